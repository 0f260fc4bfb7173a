// The scales and zeros that lie apart from the values of a matrix.
#pragma once

#include "kernels.h"
#include "small_floats.h"

namespace colibri {
namespace {  // internal on purpose, see half.h

// The row of the grid that holds the scales of a row of the matrix.
[[maybe_unused]] int64_t grid_row(const Matrix& w, int64_t row) { return (w.first + row * w.every) / w.block_rows; }

// What the values of column j of the grid are multiplied with.
[[maybe_unused]] float scale_at(const Matrix& w, int64_t grid_row, int64_t j) {
    const uint8_t* p = w.scales.data + grid_row * w.scales.pitch;
    float scale = 0;
    uint16_t bits;
    switch (w.scales.type) {
        case DType::F32: __builtin_memcpy(&scale, p + 4 * j, sizeof(scale)); break;
        case DType::BF16: __builtin_memcpy(&bits, p + 2 * j, sizeof(bits)), scale = float_of_bfloat(bits); break;
        case DType::F16: __builtin_memcpy(&bits, p + 2 * j, sizeof(bits)), scale = float_of_half(bits); break;
        case DType::E8M0: scale = float_of_e8m0(p[j]); break;
        case DType::E4M3: scale = float_of_e4m3(p[j]); break;
        default: scale = __builtin_nanf(""); break;  // is_scale says no
    }
    return scale * w.factor;
}

// What is subtracted from the codes of column j of the grid first.
[[maybe_unused]] float zero_at(const Matrix& w, int64_t grid_row, int64_t j) {
    if (w.zeros.data == nullptr) return float(w.zero);
    const int64_t together = zeros_together(w.zeros.type), place = grid_row % together;
    const uint8_t* word = w.zeros.data + grid_row / together * w.zeros.pitch + 4 * j;
    return float(w.zeros.type == DType::U4 ? word[place / 2] >> place % 2 * 4 & 15 : word[place]);
}

}  // namespace
}  // namespace colibri
