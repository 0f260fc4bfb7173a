// What the tests of the kernels share: checks that count, random weights of every type, and all code paths.
#pragma once

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/layout.h"

namespace colibri {
#ifdef COLIBRI_EMULATED_AVX512
extern const Kernels kEmulatedAvx512Kernels;  // avx512_emulated.cpp
#endif
}  // namespace colibri

namespace colibri::test {

constexpr DType kTypes[] = {DType::F32,  DType::BF16, DType::F16,  DType::I32,  DType::I64,  DType::E4M3,   DType::E8M0,   DType::E2M1,  DType::I8,
                            DType::U8,   DType::U4,   DType::Q8_0, DType::Q4_0, DType::Q4_1,   DType::Q5_0,   DType::Q5_1,  DType::Q2_K,
                            DType::Q3_K, DType::Q4_K, DType::Q5_K, DType::Q6_K, DType::IQ4_NL, DType::IQ4_XS, DType::MXFP4, DType::NVFP4,
                            DType::I4X16, DType::I8X16};

inline int failures = 0;

inline void check(bool ok, const std::string& what) {
    if (ok) return;
    std::printf("FAILED %s\n", what.c_str());
    if (++failures > 20) std::exit(1);
}

struct Random {
    uint64_t state;
    uint64_t next() {
        state += 0x9e3779b97f4a7c15;
        uint64_t z = state;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
        z = (z ^ z >> 27) * 0x94d049bb133111eb;
        return z ^ z >> 31;
    }
    int64_t below(int64_t n) { return int64_t(next() % uint64_t(n)); }
    float uniform() { return float(next() >> 40) * 0x1p-23f - 1.f; }  // [-1, 1)
};

// Memory for activation rows, aligned as they must be. (Weights are vectors of exactly their size, so that a sanitizer sees
// a byte read too many.)
struct Memory {
    std::unique_ptr<uint8_t, void (*)(void*)> bytes;
    size_t size;
    explicit Memory(size_t n) : bytes(static_cast<uint8_t*>(std::aligned_alloc(64, (n + 63) / 64 * 64)), std::free), size(n) {}
    uint8_t* get() const { return bytes.get(); }
};

inline std::vector<const Kernels*> all_paths() {
    std::vector<const Kernels*> out;
    for (Isa isa : available_isas()) out.push_back(&kernels(isa));
#ifdef COLIBRI_EMULATED_AVX512
    out.push_back(&kEmulatedAvx512Kernels);
#endif
    return out;
}

inline std::string label(const Kernels& path, const std::string& rest) { return std::string(path.name) + " " + rest; }

inline uint16_t half_of(float x) {  // of a normal half's range, toward zero
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    return uint16_t((bits >> 16 & 0x8000) | (((bits >> 23 & 255) - 112) << 10) | (bits >> 13 & 0x3ff));
}

inline void put_half(uint8_t* p, float x) {
    const uint16_t h = half_of(x);
    std::memcpy(p, &h, 2);
}

// Where the halves of a block lie that its values are multiplied with.
inline std::vector<int> halves_of(DType type) {
    switch (type) {
        case DType::Q8_0: case DType::Q4_0: case DType::Q5_0: case DType::IQ4_NL: case DType::IQ4_XS: return {0};
        case DType::Q4_1: case DType::Q5_1: case DType::Q4_K: case DType::Q5_K: return {0, 2};
        case DType::Q2_K: return {80, 82};
        case DType::Q3_K: return {108};
        case DType::Q6_K: return {208};
        default: return {};
    }
}

// The scales of interleaved rows.
inline void put_scales(std::vector<uint8_t>& w, DType type, int64_t k, auto scale) {
    const size_t block = row_bytes(type, k) * size_t(kTogether);
    for (size_t at = 0; at < w.size(); at += block) {
        for (int64_t i = 0; i < interleaved_scales(k); i += 2) put_half(w.data() + at + i, scale());
    }
}

// Random weights: any bits for the values, scales between 0.001 and 0.1 of either sign.
inline std::vector<uint8_t> random_weights(Random& random, DType type, int64_t n, int64_t k) {
    std::vector<uint8_t> w(size_t(stored_rows(type, n)) * row_bytes(type, k));
    const TypeInfo& info = type_info(type);
    if (info.together > 1) {
        for (uint8_t& byte : w) byte = uint8_t(random.next());
        put_scales(w, type, k, [&] { return (random.below(2) ? 1.f : -1.f) * (0.001f + 0.099f * std::fabs(random.uniform())); });
        return w;
    }
    for (size_t i = 0; i < w.size(); i += size_t(info.bytes)) {
        uint8_t* p = w.data() + i;
        for (int b = 0; b < info.bytes; ++b) p[b] = uint8_t(random.next());
        const float value = random.uniform() + 0x1p-12f;
        const uint32_t bits = std::bit_cast<uint32_t>(value);
        const int64_t integer = random.below(2001) - 1000;
        const int32_t small = static_cast<int32_t>(integer);
        switch (type) {
            case DType::F32: std::memcpy(p, &value, 4); break;
            case DType::BF16: p[0] = uint8_t(bits >> 16), p[1] = uint8_t(bits >> 24); break;
            case DType::F16: put_half(p, value); break;
            case DType::I32: std::memcpy(p, &small, 4); break;
            case DType::I64: std::memcpy(p, &integer, 8); break;
            case DType::E4M3: p[0] = (p[0] & 127) == 127 ? 8 : p[0]; break;
            case DType::E8M0: case DType::MXFP4: p[0] = uint8_t(120 + random.below(10)); break;
            default: break;
        }
        for (int at : halves_of(type)) {
            put_half(p + at, (random.below(2) ? 1.f : -1.f) * (0.001f + 0.099f * std::fabs(random.uniform())));
        }
    }
    return w;
}

inline std::vector<float> random_floats(Random& random, int64_t n, float size = 1) {
    std::vector<float> x(static_cast<size_t>(n));
    for (float& v : x) v = size * random.uniform();
    return x;
}

// m activation rows, quantised by `path`.
inline Memory random_acts(Random& random, const Kernels& path, ActType type, int64_t m, int64_t k) {
    Memory acts(size_t(m) * act_bytes(type, k));
    std::memset(acts.get(), 0, acts.size);
    for (int64_t i = 0; i < m; ++i) {
        std::vector<float> x = random_floats(random, k, 3);
        if (i % 3 == 2) x[size_t(random.below(k))] = 40;  // one value far from the others
        path.quantize(type, x.data(), k, acts.get() + size_t(i) * act_bytes(type, k));
    }
    return acts;
}

// The values an activation row stands for.
inline std::vector<double> act_values(ActType type, const uint8_t* row, int64_t k) {
    std::vector<double> out(static_cast<size_t>(k));
    for (int64_t i = 0; i < k; ++i) {
        if (type == ActType::F32) {
            out[size_t(i)] = double(reinterpret_cast<const float*>(row)[i]);
            continue;
        }
        const int64_t block = type == ActType::Q8K ? 256 : type == ActType::Q64 ? 64 : 32;
        const int64_t at = type == ActType::Q8K ? q8k_scales(k) : type == ActType::Q64 ? q64_scales(k) : q8_scales(k);
        out[size_t(i)] = double(int8_t(row[i])) * double(reinterpret_cast<const float*>(row + at)[i / block]);
    }
    return out;
}

inline double relative(double got, double want) { return std::fabs(got - want) / std::fmax(std::fabs(want), 1e-30); }

inline bool same_bits(const void* a, const void* b, size_t bytes) { return std::memcmp(a, b, bytes) == 0; }

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && same_bits(a.data(), b.data(), a.size() * sizeof(float));
}

// k that suit a type.
inline std::vector<int64_t> lengths(DType type) {
    switch (type_info(type).block) {
        case 1: return {1, 7, 8, 9, 31, 64, 100, 333};
        case 2: return {2, 6, 8, 10, 30, 64, 100, 334};
        case 64: return {64, 128, 320};
        case 32: return {32, 64, 96, 320, 896};
        default: return {256, 512, 1280};
    }
}

}  // namespace colibri::test
