#include "state/rounded.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "error.h"
#include "kernels/half.h"

namespace colibri {

namespace {

constexpr float kLargestHalf = 65504.0f;

uint16_t half_of(float x) {
    const auto sign = static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16 & 0x8000);
    if (std::isnan(x)) return static_cast<uint16_t>(sign | 0x7e00);
    const float size = std::min(std::fabs(x), kLargestHalf);
    // Subnormals count in steps of 2^-24; one that rounds up to 1024 of them has the bits of the smallest normal number.
    if (size < 0x1p-14f) return static_cast<uint16_t>(sign | std::lrint(size * 0x1p24f));
    const uint32_t bits = std::bit_cast<uint32_t>(size);
    return static_cast<uint16_t>(sign | (((bits + 0xfff + (bits >> 13 & 1)) >> 13) - (112u << 10)));
}

void put_half(uint8_t* to, float x) {
    const uint16_t half = half_of(x);
    std::memcpy(to, &half, sizeof(half));
}

void put_block(uint8_t* to, std::span<const float> numbers) {
    float most = 0;
    for (float x : numbers) most = std::max(most, std::fabs(x));  // which passes over what is not a number
    put_half(to, most / 127);
    uint16_t half;
    std::memcpy(&half, to, sizeof(half));
    const float scale = float_of_half(half);
    for (size_t i = 0; i < numbers.size(); i++) {
        const float code = scale > 0 && !std::isnan(numbers[i]) ? numbers[i] / scale : 0;
        to[2 + i] = static_cast<uint8_t>(std::lrint(std::clamp(code, -127.0f, 127.0f)));
    }
}

}  // namespace

std::vector<uint8_t> rounded(DType type, std::span<const float> numbers) {
    const auto block = static_cast<size_t>(type_info(type).block);
    const size_t blocks = (numbers.size() + block - 1) / block;
    std::vector<uint8_t> made(row_bytes(type, static_cast<int64_t>(blocks * block)));
    switch (type) {
        case DType::F32:
            if (!made.empty()) std::memcpy(made.data(), numbers.data(), made.size());
            break;
        case DType::F16:
            for (size_t i = 0; i < numbers.size(); i++) put_half(made.data() + 2 * i, numbers[i]);
            break;
        case DType::Q8_0:
            for (size_t i = 0; i < blocks; i++)
                put_block(made.data() + 34 * i, numbers.subspan(i * block, std::min(block, numbers.size() - i * block)));
            break;
        default: refuse("numbers can be rounded to f32, f16 and q8_0, not to ", type_info(type).name);
    }
    return made;
}

}  // namespace colibri
