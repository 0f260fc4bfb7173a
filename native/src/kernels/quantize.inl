// Activations to int8, by the same rules as llama.cpp, so that results agree closely with it on the same file:
// blocks of 32 have the scale max/127, rounded to 11 bits after the values were rounded with the exact one;
// blocks of 256 have the scale 1/(127/max). Blocks of 64 are our own and have the scale max/127.
#pragma once

#include "half.h"
#include "layout.h"

namespace colibri {
namespace {

// A block whose largest magnitude is below this is zero: 127/max would overflow.
constexpr float kSmallest = 0x1p-100f;

// The largest magnitude of a block, and whether all of it is finite.
template <int Vectors>
inline float largest_magnitude(const float* x, bool& finite) {
    f32x8 largest = set8(0), poison = set8(0);
    for (int i = 0; i < Vectors; ++i) {
        const f32x8 v = load8(x + 8 * i);
        largest = max(abs(v), largest);
        poison = fma(v, set8(0), poison);  // NaN from the first infinity or NaN on
    }
    finite = sum(poison) == 0;
    alignas(32) float lanes[8];
    store8(lanes, largest);
    float out = 0;
    for (float lane : lanes) out = lane > out ? lane : out;
    return out;
}

// 32 values * inverse, to the nearest integers in -127..127.
inline i8x32 scaled(const float* x, f32x8 inverse) {
    const auto quarter = [&](int i) {
        return to_int(min(max(mul(load8(x + 8 * i), inverse), set8(-127)), set8(127)));
    };
    return pack(quarter(0), quarter(1), quarter(2), quarter(3));
}

inline void quantize_q8(const float* x, int64_t k, uint8_t* out) {
    float* scales = reinterpret_cast<float*>(out + q8_scales(k));
    for (int64_t b = 0; b < k / 32; ++b) {
        bool finite;
        const float largest = largest_magnitude<4>(x + 32 * b, finite);
        const float inverse = largest < kSmallest ? 0 : 127.f / largest;
        store32(out + 32 * b, scaled(x + 32 * b, set8(inverse)));
        scales[b] = !finite ? __builtin_nanf("") : inverse == 0 ? 0 : round_to_half_precision(largest / 127.f);
    }
}

inline void quantize_q8k(const float* x, int64_t k, uint8_t* out) {
    int16_t* sums = reinterpret_cast<int16_t*>(out + q8k_sums(k));
    float* scales = reinterpret_cast<float*>(out + q8k_scales(k));
    for (int64_t b = 0; b < k / 256; ++b) {
        bool finite;
        const float largest = largest_magnitude<32>(x + 256 * b, finite);
        const float inverse = largest < kSmallest ? 0 : 127.f / largest;
        scales[b] = !finite ? __builtin_nanf("") : inverse == 0 ? 0 : 1.f / inverse;
        int8_t* q = reinterpret_cast<int8_t*>(out) + 256 * b;
        for (int i = 0; i < 8; ++i) store32(q + 32 * i, scaled(x + 256 * b + 32 * i, set8(inverse)));
        for (int g = 0; g < 16; ++g) {
            int total = 0;
            for (int i = 0; i < 16; ++i) total += q[16 * g + i];
            sums[16 * b + sum_lane(g)] = int16_t(total);
        }
    }
}

inline void quantize_q64(const float* x, int64_t k, uint8_t* out) {
    float* scales = reinterpret_cast<float*>(out + q64_scales(k));
    int32_t* sums = reinterpret_cast<int32_t*>(out + q64_sums(k));
    for (int64_t b = 0; b < k / 64; ++b) {
        bool finite;
        const float largest = largest_magnitude<8>(x + 64 * b, finite);
        const float inverse = largest < kSmallest ? 0 : 127.f / largest;
        int8_t* q = reinterpret_cast<int8_t*>(out) + 64 * b;
        for (int i = 0; i < 2; ++i) store32(q + 32 * i, scaled(x + 64 * b + 32 * i, set8(inverse)));
        scales[b] = !finite ? __builtin_nanf("") : inverse == 0 ? 0 : largest / 127.f;
        int32_t total = 0;
        for (int i = 0; i < 64; ++i) total += q[i];
        sums[b] = total;
    }
}

void quantize(ActType type, const float* x, int64_t k, void* out) {
    switch (type) {
        case ActType::F32: __builtin_memmove(out, x, size_t(k) * sizeof(float)); return;
        case ActType::Q8: return quantize_q8(x, k, static_cast<uint8_t*>(out));
        case ActType::Q8K: return quantize_q8k(x, k, static_cast<uint8_t*>(out));
        case ActType::Q64: return quantize_q64(x, k, static_cast<uint8_t*>(out));
    }
}

}  // namespace
}  // namespace colibri
