// Conversions to float32 from the 4-bit and 8-bit float types.
#pragma once

#include "half.h"

namespace colibri {
namespace {  // internal on purpose, see half.h

constexpr float kE2m1[16] = {0.f, .5f, 1.f, 1.5f, 2.f, 3.f, 4.f, 6.f, -0.f, -.5f, -1.f, -1.5f, -2.f, -3.f, -4.f, -6.f};

// By way of a half with the same bits for exponent and fraction: its exponents are 8 too small, its subnormals as well.
// The largest magnitude, 480 if it were a number, is none.
[[maybe_unused]] float float_of_e4m3(uint8_t e) {
    if ((e & 0x7f) == 0x7f) return __builtin_nanf("");
    return float_of_half(uint16_t((e & 0x80) << 8 | (e & 0x7f) << 7)) * 256.f;
}

// 2^(e - 127), and NaN for 255.
[[maybe_unused]] float float_of_e8m0(uint8_t e) {
    if (e == 0xff) return __builtin_nanf("");
    return std::bit_cast<float>(e == 0 ? uint32_t(0x00400000) : uint32_t(e) << 23);
}

}  // namespace
}  // namespace colibri
