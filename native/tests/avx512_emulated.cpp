// The AVX-512 path with its intrinsics emulated by SIMDe, under a name of its own, so that its results can be compared
// with the other paths on a CPU that lacks the instructions.
#define COLIBRI_SIMDE
#define kAvx512Kernels kEmulatedAvx512Kernels
#include "../src/kernels/avx512.cpp"
