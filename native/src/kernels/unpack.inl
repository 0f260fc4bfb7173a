// Weight rows as floats: what the types are multiplied by that have no arithmetic of their own.
#pragma once

#include "dequantize.h"
#include "scales.h"

namespace colibri {
namespace {

// A row of types that hold value beside value, `Bytes` for every 8.
template <f32x8 (*Load)(const void*), int Bytes>
inline void unpack_values(const uint8_t* p, int64_t k, float* out) {
    int64_t i = 0;
    for (; i + 8 <= k; i += 8) store8(out + i, Load(p + i / 8 * Bytes));
    if (i < k) {
        uint8_t tail[Bytes] = {};
        alignas(32) float rest[8];
        __builtin_memcpy(tail, p + i / 8 * Bytes, size_t(k - i) * Bytes / 8);
        store8(rest, Load(tail));
        __builtin_memcpy(out + i, rest, size_t(k - i) * sizeof(float));
    }
}

inline void scale_row(const Matrix& w, int64_t row, float* out) {
    if (w.scales.data == nullptr) return;
    const int64_t i = grid_row(w, row);
    for (int64_t j = 0; j * w.block_cols < w.cols; ++j) {
        const int64_t begin = j * w.block_cols, end = w.cols - begin < w.block_cols ? w.cols : begin + w.block_cols;
        const float scale = scale_at(w, i, j), zero = zero_at(w, i, j);
        for (int64_t c = begin; c < end; ++c) out[c] = (out[c] - zero) * scale;
    }
}

// The values of one row, with the bits of `dequantize`.
void float_row(const Matrix& w, int64_t row, float* out) {
    const uint8_t* p = w.row(row);
    switch (w.type) {
        case DType::E4M3: unpack_values<load_e4m3, 8>(p, w.cols, out); break;
        case DType::E2M1: unpack_values<load_e2m1, 4>(p, w.cols, out); break;
        case DType::I8: unpack_values<load_signed, 8>(p, w.cols, out); break;
        case DType::U8: unpack_values<load_unsigned, 8>(p, w.cols, out); break;
        case DType::U4: unpack_values<load_nibbles, 4>(p, w.cols, out); break;
        default: return dequantize(w, row, out);
    }
    scale_row(w, row, out);
}

}  // namespace
}  // namespace colibri
