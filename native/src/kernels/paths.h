// The code paths that are compiled in. x86 has the vector ones; elsewhere the scalar one is all there is.
#pragma once

#include "kernels.h"

namespace colibri {

extern const Kernels kScalarKernels;
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;

}  // namespace colibri
