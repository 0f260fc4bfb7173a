#include "vec_scalar.h"

#include "paths.h"
#include "table.inl"

namespace colibri {

constinit const Kernels kScalarKernels = table(Isa::Scalar, "scalar");

}  // namespace colibri
