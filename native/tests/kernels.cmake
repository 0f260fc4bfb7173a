# Where the headers of SIMDe are found, kernels_test also runs the AVX-512 path, emulated, whatever the CPU.

find_path(COLIBRI_SIMDE_INCLUDE simde/x86/avx512.h)
if(COLIBRI_KERNELS_X86 AND COLIBRI_SIMDE_INCLUDE)
  target_sources(kernels_test PRIVATE "${CMAKE_CURRENT_LIST_DIR}/avx512_emulated.cpp")
  set_source_files_properties("${CMAKE_CURRENT_LIST_DIR}/avx512_emulated.cpp"
    PROPERTIES COMPILE_OPTIONS "-O1;-mavx2;-mfma;-mf16c")
  target_include_directories(kernels_test SYSTEM PRIVATE "${COLIBRI_SIMDE_INCLUDE}")
  target_compile_definitions(kernels_test PRIVATE COLIBRI_EMULATED_AVX512)
endif()

# Optimising the test takes the compiler longer than the test takes.
target_compile_options(kernels_test PRIVATE -O1)

# cmake --build BUILD --target kernels_bench
add_executable(kernels_bench EXCLUDE_FROM_ALL "${CMAKE_CURRENT_LIST_DIR}/../bench/kernels_bench.cpp")
target_link_libraries(kernels_bench PRIVATE colibri_runtime)
