# The kernels' sources as COLIBRI_KERNEL_SOURCES, each with the options of its code path. Include it from the directory
# that declares the targets: source properties hold for one directory.

set(_kernels "${CMAKE_CURRENT_LIST_DIR}")

# One order of arithmetic on every path: no contraction of a * b + c that isn't written as fma.
set(_kernel_options ${COLIBRI_OPTIMISATION} -ffp-contract=off)
set(_avx2_options -mavx2 -mfma -mf16c)
set(_avx512_options ${_avx2_options} -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni)

set(COLIBRI_KERNEL_SOURCES
    "${_kernels}/dequantize.cpp"
    "${_kernels}/dispatch.cpp"
    "${_kernels}/scalar.cpp"
    "${_kernels}/scratch.cpp"
    "${_kernels}/types.cpp")
set_source_files_properties(${COLIBRI_KERNEL_SOURCES} PROPERTIES COMPILE_OPTIONS "${_kernel_options}")

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(COLIBRI_KERNELS_X86 ON)
  set_source_files_properties("${_kernels}/avx2.cpp" PROPERTIES COMPILE_OPTIONS "${_kernel_options};${_avx2_options}")
  set_source_files_properties("${_kernels}/avx512.cpp" PROPERTIES COMPILE_OPTIONS "${_kernel_options};${_avx512_options}")
  list(APPEND COLIBRI_KERNEL_SOURCES "${_kernels}/avx2.cpp" "${_kernels}/avx512.cpp")
endif()
