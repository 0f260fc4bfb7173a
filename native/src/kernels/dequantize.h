#pragma once

#include "kernels.h"

namespace colibri {

// `k` values of one weight row as floats, by the definition of the storage type. The same code on every code path.
void dequantize(DType type, const void* w, int64_t k, float* out);

}  // namespace colibri
