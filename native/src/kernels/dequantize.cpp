// The storage types spelled out, value by value: what embedding looks up, and what tests measure the fast paths by.
#include "dequantize.h"

#include <cstring>

#include "half.h"

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
    for (int i = 0; i < 32; ++i) out[i] = half_at(p) * float(static_cast<int8_t>(p[2 + i]));
}

void q4_0(const uint8_t* p, float* out) {
    for (int i = 0; i < 32; ++i) out[i] = half_at(p) * float(nibble(p + 2, i) - 8);
}

void q5_0(const uint8_t* p, float* out) {
    for (int i = 0; i < 32; ++i) {
        const int fifth = p[2 + i / 8] >> i % 8 & 1;
        out[i] = half_at(p) * float(nibble(p + 6, i) + 16 * fifth - 16);
    }
}

void q4_k(const uint8_t* p, float* out) {
    const uint8_t* packed = p + 4;
    for (int i = 0; i < 256; ++i) {
        const int j = i / 32;
        const int scale = j < 4 ? packed[j] & 63 : (packed[4 + j] & 15) | (packed[j - 4] >> 6) << 4;
        const int minimum = j < 4 ? packed[4 + j] & 63 : packed[4 + j] >> 4 | (packed[j] >> 6) << 4;
        const int q = p[16 + j / 2 * 32 + i % 32] >> j % 2 * 4 & 15;
        out[i] = half_at(p) * float(scale) * float(q) - half_at(p + 2) * float(minimum);
    }
}

void q6_k(const uint8_t* p, float* out) {
    for (int i = 0; i < 256; ++i) {
        const int half = i / 128, quarter = i / 32 % 4;
        const int low = p[64 * half + i % 64] >> quarter / 2 * 4 & 15;
        const int high = p[128 + 32 * half + i % 32] >> 2 * quarter & 3;
        const int scale = static_cast<int8_t>(p[192 + i / 16]);
        out[i] = half_at(p + 208) * float(scale) * float((low | high << 4) - 32);
    }
}

}  // namespace

void dequantize(DType type, const void* w, int64_t k, float* out) {
    const auto* p = static_cast<const uint8_t*>(w);
    const auto blocks = [&](auto block) {
        const TypeInfo& info = type_info(type);
        for (int64_t b = 0; b < k / info.block; ++b) block(p + b * info.bytes, out + b * info.block);
    };
    switch (type) {
        case DType::F32: std::memcpy(out, p, size_t(k) * sizeof(float)); return;
        case DType::BF16: return blocks([](const uint8_t* q, float* o) { *o = bfloat_at(q); });
        case DType::F16: return blocks([](const uint8_t* q, float* o) { *o = half_at(q); });
        case DType::Q8_0: return blocks(q8_0);
        case DType::Q4_0: return blocks(q4_0);
        case DType::Q5_0: return blocks(q5_0);
        case DType::Q4_K: return blocks(q4_k);
        case DType::Q6_K: return blocks(q6_k);
    }
}

}  // namespace colibri
