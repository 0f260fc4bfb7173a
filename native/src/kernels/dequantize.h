#pragma once

#include "kernels.h"

namespace colibri {

// The values of one weight row as floats, by the definition of the storage type. The same code on every code path.
void dequantize(const Matrix& w, int64_t row, float* out);

}  // namespace colibri
