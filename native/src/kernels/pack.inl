// Floats to weights of interleaved rows (see layout.h): a group of 64 at a time.
#pragma once

#include "half.h"
#include "layout.h"

namespace colibri {
namespace {

// Codes of a group by one scale, and the sum of the squares of what they lose.
struct PackedGroup {
    uint16_t scale;
    float error;
    alignas(32) int8_t codes[kGroup];
};

// To the nearest half; what is too large becomes the largest.
inline uint16_t half_of(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x), sign = bits >> 16 & 0x8000;
    float magnitude = x < 0 ? -x : x;
    if (!(magnitude < 65504.f)) magnitude = magnitude == magnitude ? 65504.f : 0;
    if (magnitude < 0x1p-14f) return uint16_t(sign | uint32_t(magnitude * 0x1p24f + 0.5f));
    const uint32_t m = std::bit_cast<uint32_t>(magnitude);
    return uint16_t(sign | ((m + 0xfff + (m >> 13 & 1)) - (uint32_t(112) << 23)) >> 13);
}

// With codes from `least` to `most`. A scale of zero, or one that is none, makes zeros.
inline void pack_group(const float* x, float scale, float least, float most, PackedGroup& out) {
    out.scale = half_of(scale);
    const float d = float_of_half(out.scale);
    const f32x8 inverse = set8(d == 0 ? 0 : 1 / d), back = set8(-d);
    f32x8 error = set8(0);
    for (int i = 0; i < 2; ++i) {
        const auto quarter = [&](int j) {
            const f32x8 value = load8(x + 32 * i + 8 * j);
            const i32x8 code = to_int(min(max(mul(value, inverse), set8(least)), set8(most)));
            const f32x8 off = fma(back, to_float(code), value);
            error = fma(off, off, error);
            return code;
        };
        const i32x8 a = quarter(0), b = quarter(1), c = quarter(2), e = quarter(3);
        store32(out.codes + 32 * i, pack(a, b, c, e));
    }
    out.error = sum(error);
}

// Four bits have one code more below zero than above: the largest value takes that side, and of scales around the one that
// gives it its code, the best is taken.
inline void pack_four_bits(const float* x, PackedGroup& best) {
    float largest = 0;
    for (int64_t i = 0; i < kGroup; ++i) {
        const float magnitude = x[i] < 0 ? -x[i] : x[i];
        if (magnitude > (largest < 0 ? -largest : largest)) largest = x[i];
    }
    pack_group(x, largest / -8.f, -8, 7, best);
    PackedGroup other;
    for (int step = -6; step <= 6 && largest != 0; ++step) {
        pack_group(x, largest / (-8.f + 0.2f * float(step)), -8, 7, other);
        if (other.error < best.error) best = other;
    }
}

inline void pack_eight_bits(const float* x, PackedGroup& out) {
    float largest = 0;
    for (int64_t i = 0; i < kGroup; ++i) {
        const float magnitude = x[i] < 0 ? -x[i] : x[i];
        if (magnitude > largest) largest = magnitude;
    }
    pack_group(x, largest / 127.f, -127, 127, out);
}

void pack_rows(DType type, const float* x, int64_t n, int64_t k, uint8_t* out, Loss& loss) {
    const bool four = type == DType::I4X16;
    const int64_t block_bytes = int64_t(row_bytes(type, k)) * kTogether, columns = four ? 8 : 4;
    __builtin_memset(out, 0, size_t(stored_rows(type, n) / kTogether * block_bytes));
    PackedGroup group;
    for (int64_t row = 0; row < n; ++row) {
        uint8_t* block = out + row / kTogether * block_bytes;
        uint8_t* codes = block + interleaved_scales(k) + row % kTogether * 4;
        for (int64_t g = 0; g < k / kGroup; ++g) {
            const float* values = x + row * k + g * kGroup;
            if (four) pack_four_bits(values, group);
            else pack_eight_bits(values, group);
            __builtin_memcpy(block + (g * kTogether + row % kTogether) * 2, &group.scale, 2);
            for (int64_t i = 0; i < kGroup; i += columns) {
                uint8_t* line = codes + (g * kGroup + i) / columns * kLine;
                for (int64_t j = 0; j < 4; ++j) {
                    const int8_t* code = group.codes + i + j;
                    line[j] = four ? uint8_t((code[0] + 8) | (code[4] + 8) << 4) : uint8_t(code[0]);
                }
            }
            loss.error += double(group.error);
            loss.size += double(dot_one(values, values, kGroup));
        }
    }
}

}  // namespace
}  // namespace colibri
