# Where the headers of SIMDe are found, the kernels' tests also run the AVX-512 path, emulated, whatever the CPU.

find_path(COLIBRI_SIMDE_INCLUDE simde/x86/avx512.h)
if(COLIBRI_KERNELS_X86 AND COLIBRI_SIMDE_INCLUDE)
  add_library(kernels_emulated OBJECT "${CMAKE_CURRENT_LIST_DIR}/avx512_emulated.cpp")
  target_compile_options(kernels_emulated PRIVATE -O1 -mavx2 -mfma -mf16c -ffp-contract=off)
  target_include_directories(kernels_emulated PRIVATE "${CMAKE_CURRENT_LIST_DIR}/../src")
  target_include_directories(kernels_emulated SYSTEM PRIVATE "${COLIBRI_SIMDE_INCLUDE}")
endif()

foreach(name kernels_test matmul_test)
  # Optimising the tests takes the compiler longer than the tests take.
  target_compile_options(${name} PRIVATE -O1)
  if(TARGET kernels_emulated)
    target_link_libraries(${name} PRIVATE kernels_emulated)
    target_compile_definitions(${name} PRIVATE COLIBRI_EMULATED_AVX512)
  endif()
endforeach()

# cmake --build BUILD --target kernels_bench
add_executable(kernels_bench EXCLUDE_FROM_ALL "${CMAKE_CURRENT_LIST_DIR}/../bench/kernels_bench.cpp")
target_link_libraries(kernels_bench PRIVATE colibri_runtime)
