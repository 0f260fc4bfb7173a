// Conversions between float32 and the 16-bit float storage types.
#pragma once

#include <bit>
#include <cstdint>

namespace colibri {
namespace {  // internal on purpose: sources built for different instruction sets include this and must not share code

[[maybe_unused]] float float_of_half(uint16_t h) {
    const uint32_t sign = uint32_t(h & 0x8000) << 16;
    const uint32_t magnitude = h & 0x7fff;
    if (magnitude >= 0x7c00) {  // infinity, NaN (made quiet, as hardware does)
        const uint32_t quiet = magnitude > 0x7c00 ? 0x400000 : 0;
        return std::bit_cast<float>(sign | 0x7f800000 | (magnitude & 0x3ff) << 13 | quiet);
    }
    if (magnitude < 0x0400) {  // zero and subnormals: magnitude * 2^-24, exact
        return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(float(magnitude) * 0x1p-24f));
    }
    return std::bit_cast<float>(sign | ((magnitude << 13) + (uint32_t(127 - 15) << 23)));
}

[[maybe_unused]] float float_of_bfloat(uint16_t b) {
    return std::bit_cast<float>(uint32_t(b) << 16);
}

// Rounds a finite float to the 11 significant bits of a half, to nearest even, but keeps float32's range of exponents.
[[maybe_unused]] float round_to_half_precision(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    if ((bits & 0x7f800000) == 0x7f800000) {
        return x;
    }
    return std::bit_cast<float>((bits + 0xfff + (bits >> 13 & 1)) & ~uint32_t(0x1fff));
}

}  // namespace
}  // namespace colibri
