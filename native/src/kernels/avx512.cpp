#include "vec_avx512.h"

#include "paths.h"
#include "table.inl"

namespace colibri {

constinit const Kernels kAvx512Kernels = table(Isa::Avx512, "avx512");

}  // namespace colibri
