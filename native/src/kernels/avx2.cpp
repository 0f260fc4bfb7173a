#include "vec_avx2.h"

#include "paths.h"
#include "table.inl"

namespace colibri {

constinit const Kernels kAvx2Kernels = table(Isa::Avx2, "avx2");

}  // namespace colibri
