// Floats to weights of interleaved rows (see layout.h).
#include <algorithm>
#include <cmath>
#include <cstring>

#include "half.h"
#include "kernels.h"
#include "layout.h"

namespace colibri {

namespace {

// To the nearest half, to even; what is too large becomes the largest.
uint16_t half_of(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x), sign = bits >> 16 & 0x8000;
    const float magnitude = std::min(std::fabs(x), 65504.f);
    if (magnitude < 0x1p-14f) return static_cast<uint16_t>(sign | static_cast<uint32_t>(std::nearbyint(magnitude * 0x1p24f)));
    const uint32_t m = std::bit_cast<uint32_t>(magnitude);
    return static_cast<uint16_t>(sign | ((m + 0xfff + (m >> 13 & 1)) - (uint32_t{112} << 23)) >> 13);
}

struct Group {
    uint16_t scale = 0;
    int codes[kGroup] = {};
    double error = 0;
};

// The codes least..most of 64 values by a scale.
Group coded(const float* x, float scale, int least, int most) {
    Group out;
    out.scale = half_of(scale);
    const float d = float_of_half(out.scale);
    for (int64_t i = 0; i < kGroup; ++i) {
        const float code = d == 0 ? 0 : std::clamp(std::nearbyint(x[i] / d), static_cast<float>(least), static_cast<float>(most));
        out.codes[i] = static_cast<int>(code);
        const double off = double(x[i]) - double(d) * double(code);
        out.error += off * off;
    }
    return out;
}

// Four bits have one code more below zero than above: the largest value takes that side, and of scales around the one that
// gives it its code, the best is taken.
Group four_bits(const float* x) {
    float largest = 0;
    for (int64_t i = 0; i < kGroup; ++i) largest = std::fabs(x[i]) > std::fabs(largest) ? x[i] : largest;
    Group best = coded(x, largest / -8.f, -8, 7);
    for (int step = -6; step <= 6 && largest != 0; ++step) {
        Group other = coded(x, largest / (-8.f + 0.2f * static_cast<float>(step)), -8, 7);
        if (other.error < best.error) best = other;
    }
    return best;
}

Group eight_bits(const float* x) {
    float largest = 0;
    for (int64_t i = 0; i < kGroup; ++i) largest = std::max(largest, std::fabs(x[i]));
    return coded(x, largest / 127.f, -127, 127);
}

}  // namespace

void pack(DType type, const float* x, int64_t n, int64_t k, uint8_t* out, Loss& loss) {
    const bool four = type == DType::I4X16;
    const int64_t block_bytes = static_cast<int64_t>(row_bytes(type, k)) * kTogether, columns = four ? 8 : 4;
    std::memset(out, 0, size_t(stored_rows(type, n) / kTogether * block_bytes));
    for (int64_t row = 0; row < n; ++row) {
        uint8_t* block = out + row / kTogether * block_bytes;
        uint8_t* codes = block + interleaved_scales(k) + row % kTogether * 4;
        for (int64_t g = 0; g < k / kGroup; ++g) {
            const float* values = x + row * k + g * kGroup;
            const Group group = four ? four_bits(values) : eight_bits(values);
            std::memcpy(block + (g * kTogether + row % kTogether) * 2, &group.scale, 2);
            for (int64_t i = 0; i < kGroup; ++i) {
                const int64_t c = g * kGroup + i;
                uint8_t& byte = codes[c / columns * kLine + c % 4];
                if (!four) byte = static_cast<uint8_t>(group.codes[i]);
                else byte = static_cast<uint8_t>(byte | (group.codes[i] + 8) << (c % 8 < 4 ? 0 : 4));
                loss.size += double(values[i]) * double(values[i]);
            }
            loss.error += group.error;
        }
    }
}

}  // namespace colibri
