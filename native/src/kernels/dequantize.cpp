// The storage types spelled out, value by value: what embedding looks up, and what tests measure the fast paths by.
#include "dequantize.h"

#include <cstring>

#include "layout.h"
#include "scales.h"

namespace colibri {

namespace {

float half_at(const uint8_t* p) {
    uint16_t h;
    std::memcpy(&h, p, sizeof(h));
    return float_of_half(h);
}

float bfloat_at(const uint8_t* p) {
    uint16_t b;
    std::memcpy(&b, p, sizeof(b));
    return float_of_bfloat(b);
}

// Nibbles of 16 bytes: the low ones are values 0..15, the high ones 16..31.
int nibble(const uint8_t* p, int i) { return i < 16 ? p[i] & 15 : p[i - 16] >> 4; }

void q8_0(const uint8_t* p, float* out) {
    const float d = half_at(p);
    for (int i = 0; i < 32; ++i) out[i] = d * float(static_cast<int8_t>(p[2 + i]));
}

void q4_0(const uint8_t* p, float* out) {
    const float d = half_at(p);
    for (int i = 0; i < 32; ++i) out[i] = d * float(nibble(p + 2, i) - 8);
}

void q4_1(const uint8_t* p, float* out) {
    const float d = half_at(p), least = half_at(p + 2);
    for (int i = 0; i < 32; ++i) out[i] = d * float(nibble(p + 4, i)) + least;
}

// A nibble with a fifth bit; the 32 of those lie before the nibbles.
int five_bits(const uint8_t* p, int i) { return nibble(p + 4, i) | (p[i / 8] >> i % 8 & 1) << 4; }

void q5_0(const uint8_t* p, float* out) {
    const float d = half_at(p);
    for (int i = 0; i < 32; ++i) out[i] = d * float(five_bits(p + 2, i) - 16);
}

void q5_1(const uint8_t* p, float* out) {
    const float d = half_at(p), least = half_at(p + 2);
    for (int i = 0; i < 32; ++i) out[i] = d * float(five_bits(p + 4, i)) + least;
}

// Two bits of 64 bytes: 32 bytes hold 128 values.
int two_bits(const uint8_t* p, int i) { return p[i / 128 * 32 + i % 32] >> i / 32 % 4 * 2 & 3; }

void q2_k(const uint8_t* p, float* out) {
    const float d = half_at(p + 80), dmin = half_at(p + 82);
    for (int i = 0; i < 256; ++i) {
        const int scale = p[i / 16] & 15, minimum = p[i / 16] >> 4;
        out[i] = d * float(scale) * float(two_bits(p + 16, i)) - dmin * float(minimum);
    }
}

void q3_k(const uint8_t* p, float* out) {
    const float d = half_at(p + 108);
    const uint8_t* packed = p + 96;
    for (int i = 0; i < 256; ++i) {
        const int j = i / 16;
        const int scale = (packed[j % 8] >> j / 8 * 4 & 15) | (packed[8 + j % 4] >> j / 4 * 2 & 3) << 4;
        const int upper = p[i % 32] >> i / 32 & 1;
        out[i] = d * float(scale - 32) * float((two_bits(p + 32, i) | upper << 2) - 4);
    }
}

// Scale and minimum of group j, of 6 bits each, in 12 bytes for eight groups.
int scale_of(const uint8_t* packed, int j) {
    return j < 4 ? packed[j] & 63 : (packed[4 + j] & 15) | (packed[j - 4] >> 6) << 4;
}
int minimum_of(const uint8_t* packed, int j) {
    return j < 4 ? packed[4 + j] & 63 : packed[4 + j] >> 4 | (packed[j] >> 6) << 4;
}

// Nibbles of 128 bytes: 32 bytes hold 64 values, the low ones first.
int long_nibble(const uint8_t* p, int i) { return p[i / 64 * 32 + i % 32] >> i / 32 % 2 * 4 & 15; }

void q4_k(const uint8_t* p, float* out) {
    const float d = half_at(p), dmin = half_at(p + 2);
    for (int i = 0; i < 256; ++i) {
        const int scale = scale_of(p + 4, i / 32), minimum = minimum_of(p + 4, i / 32);
        out[i] = d * float(scale) * float(long_nibble(p + 16, i)) - dmin * float(minimum);
    }
}

void q5_k(const uint8_t* p, float* out) {
    const float d = half_at(p), dmin = half_at(p + 2);
    for (int i = 0; i < 256; ++i) {
        const int scale = scale_of(p + 4, i / 32), minimum = minimum_of(p + 4, i / 32);
        const int q = long_nibble(p + 48, i) | (p[16 + i % 32] >> i / 32 & 1) << 4;
        out[i] = d * float(scale) * float(q) - dmin * float(minimum);
    }
}

void q6_k(const uint8_t* p, float* out) {
    const float d = half_at(p + 208);
    for (int i = 0; i < 256; ++i) {
        const int half = i / 128, quarter = i / 32 % 4;
        const int low = p[64 * half + i % 64] >> quarter / 2 * 4 & 15;
        const int high = p[128 + 32 * half + i % 32] >> 2 * quarter & 3;
        const int scale = static_cast<int8_t>(p[192 + i / 16]);
        out[i] = d * float(scale) * float((low | high << 4) - 32);
    }
}

constexpr int8_t kIq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

void iq4_nl(const uint8_t* p, float* out) {
    const float d = half_at(p);
    for (int i = 0; i < 32; ++i) out[i] = d * float(kIq4[nibble(p + 2, i)]);
}

void iq4_xs(const uint8_t* p, float* out) {
    const float d = half_at(p);
    for (int i = 0; i < 256; ++i) {
        const int j = i / 32;
        const int scale = (p[4 + j / 2] >> j % 2 * 4 & 15) | (p[2 + j / 4] >> j % 4 * 2 & 3) << 4;
        out[i] = d * float(scale - 32) * float(kIq4[nibble(p + 8 + 16 * j, i % 32)]);
    }
}

void mxfp4(const uint8_t* p, float* out) {
    const float d = float_of_e8m0(p[0]);
    for (int i = 0; i < 32; ++i) out[i] = d * kE2m1[nibble(p + 1, i)];
}

void nvfp4(const uint8_t* p, float* out) {
    for (int i = 0; i < 64; ++i) {
        const int j = i / 16, scale = p[j] & 127;  // its sign is no sign, and what were no number is zero
        const int q = p[4 + 8 * j + i % 8] >> i / 8 % 2 * 4 & 15;
        out[i] = (scale == 127 ? 0.f : float_of_e4m3(uint8_t(scale))) * kE2m1[q];
    }
}

template <typename Integer>
void integer(const uint8_t* p, float* out) {
    Integer x;
    std::memcpy(&x, p, sizeof(x));
    *out = float(x);
}

void u4(const uint8_t* p, float* out) {
    for (int i = 0; i < 2; ++i) out[i] = float(*p >> 4 * i & 15);
}

void e2m1(const uint8_t* p, float* out) {
    for (int i = 0; i < 2; ++i) out[i] = kE2m1[*p >> 4 * i & 15];
}

// One of 16 interleaved rows.
template <int Bits>
void interleaved(const Matrix& w, int64_t row, float* out) {
    constexpr int64_t columns = 32 / Bits;  // of a line
    const uint8_t* block = w.data + row / kTogether * kTogether * w.pitch;
    const uint8_t* codes = block + interleaved_scales(w.cols) + row % kTogether * 4;
    for (int64_t c = 0; c < w.cols; ++c) {
        const uint8_t code = codes[c / columns * kLine + c % 4];
        const int value = Bits == 8 ? static_cast<int8_t>(code) : (c % columns < 4 ? code & 15 : code >> 4) - 8;
        out[c] = half_at(block + (c / kGroup * kTogether + row % kTogether) * 2) * float(value);
    }
}

void values(const Matrix& w, int64_t row, float* out) {
    const uint8_t* p = type_info(w.type).together > 1 ? nullptr : w.row(row);
    const auto blocks = [&](auto block) {
        const TypeInfo& info = type_info(w.type);
        for (int64_t b = 0; b < w.cols / info.block; ++b) block(p + b * info.bytes, out + b * info.block);
    };
    switch (w.type) {
        case DType::F32: std::memcpy(out, p, size_t(w.cols) * sizeof(float)); return;
        case DType::BF16: return blocks([](const uint8_t* q, float* o) { *o = bfloat_at(q); });
        case DType::F16: return blocks([](const uint8_t* q, float* o) { *o = half_at(q); });
        case DType::I32: return blocks(integer<int32_t>);
        case DType::I64: return blocks(integer<int64_t>);
        case DType::E4M3: return blocks([](const uint8_t* q, float* o) { *o = float_of_e4m3(*q); });
        case DType::E8M0: return blocks([](const uint8_t* q, float* o) { *o = float_of_e8m0(*q); });
        case DType::E2M1: return blocks(e2m1);
        case DType::I8: return blocks([](const uint8_t* q, float* o) { *o = float(static_cast<int8_t>(*q)); });
        case DType::U8: return blocks([](const uint8_t* q, float* o) { *o = float(*q); });
        case DType::U4: return blocks(u4);
        case DType::Q8_0: return blocks(q8_0);
        case DType::Q4_0: return blocks(q4_0);
        case DType::Q4_1: return blocks(q4_1);
        case DType::Q5_0: return blocks(q5_0);
        case DType::Q5_1: return blocks(q5_1);
        case DType::Q2_K: return blocks(q2_k);
        case DType::Q3_K: return blocks(q3_k);
        case DType::Q4_K: return blocks(q4_k);
        case DType::Q5_K: return blocks(q5_k);
        case DType::Q6_K: return blocks(q6_k);
        case DType::IQ4_NL: return blocks(iq4_nl);
        case DType::IQ4_XS: return blocks(iq4_xs);
        case DType::MXFP4: return blocks(mxfp4);
        case DType::NVFP4: return blocks(nvfp4);
        case DType::I4X16: return interleaved<4>(w, row, out);
        case DType::I8X16: return interleaved<8>(w, row, out);
    }
}

}  // namespace

void dequantize(const Matrix& w, int64_t row, float* out) {
    values(w, row, out);
    if (w.scales.data == nullptr) return;
    const int64_t i = grid_row(w, row);
    for (int64_t c = 0; c < w.cols; ++c) {
        const int64_t j = c / w.block_cols;
        out[c] = (out[c] - zero_at(w, i, j)) * scale_at(w, i, j);
    }
}

}  // namespace colibri
