// The vector vocabulary in plain C++: the definition of what every operation means, bit for bit.
//
// All kernels are written once, in the .inl files, in terms of these types and functions. A code path is one vec_*.h and
// one source that includes it before table.inl. Everything lives in an unnamed namespace, so that code built for one
// instruction set is never linked into another code path.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "small_floats.h"

// Put before the short loops that vector code needs unrolled to keep its values in registers.
#define UNROLLED

namespace colibri {
namespace {

struct f32x8 { float v[8]; };
struct i32x8 { int32_t v[8]; };
struct i16x16 { int16_t v[16]; };
struct i8x32 { int8_t v[32]; };

template <class V, class Lane>
inline V each(Lane lane) {
    V out;
    for (int i = 0; i < int(sizeof(out.v) / sizeof(out.v[0])); ++i) out.v[i] = lane(i);
    return out;
}

// float32, 8 lanes

inline f32x8 set8(float x) { return each<f32x8>([&](int) { return x; }); }
inline f32x8 load8(const void* p) {  // 8 floats, at any alignment
    f32x8 out;
    __builtin_memcpy(out.v, p, sizeof(out.v));
    return out;
}
inline void store8(float* p, f32x8 a) { for (int i = 0; i < 8; ++i) p[i] = a.v[i]; }
inline f32x8 load_half8(const void* p) {  // 8 f16 values, at any alignment
    uint16_t h[8];
    __builtin_memcpy(h, p, sizeof(h));
    return each<f32x8>([&](int i) { return float_of_half(h[i]); });
}
inline f32x8 load_bfloat8(const void* p) {
    uint16_t b[8];
    __builtin_memcpy(b, p, sizeof(b));
    return each<f32x8>([&](int i) { return float_of_bfloat(b[i]); });
}
inline f32x8 set_half8(const void* p) {  // one f16 value in all lanes
    uint16_t h;
    __builtin_memcpy(&h, p, sizeof(h));
    return set8(float_of_half(h));
}
inline f32x8 load_e4m3(const void* p) {
    return each<f32x8>([&](int i) { return float_of_e4m3(static_cast<const uint8_t*>(p)[i]); });
}
inline f32x8 load_signed(const void* p) {  // 8 signed bytes
    return each<f32x8>([&](int i) { return float(static_cast<const int8_t*>(p)[i]); });
}
inline f32x8 load_unsigned(const void* p) {
    return each<f32x8>([&](int i) { return float(static_cast<const uint8_t*>(p)[i]); });
}
inline f32x8 load_nibbles(const void* p) {  // 4 bytes, the low half of each first
    return each<f32x8>([&](int i) { return float(static_cast<const uint8_t*>(p)[i / 2] >> i % 2 * 4 & 15); });
}
inline f32x8 load_e2m1(const void* p) {  // the same, as e2m1
    return each<f32x8>([&](int i) { return kE2m1[static_cast<const uint8_t*>(p)[i / 2] >> i % 2 * 4 & 15]; });
}

inline f32x8 add(f32x8 a, f32x8 b) { return each<f32x8>([&](int i) { return a.v[i] + b.v[i]; }); }
inline f32x8 mul(f32x8 a, f32x8 b) { return each<f32x8>([&](int i) { return a.v[i] * b.v[i]; }); }
inline f32x8 div(f32x8 a, f32x8 b) { return each<f32x8>([&](int i) { return a.v[i] / b.v[i]; }); }
inline f32x8 fma(f32x8 a, f32x8 b, f32x8 c) {  // a * b + c, rounded once
    return each<f32x8>([&](int i) { return std::fma(a.v[i], b.v[i], c.v[i]); });
}
inline f32x8 neg(f32x8 a) { return each<f32x8>([&](int i) { return -a.v[i]; }); }
inline f32x8 abs(f32x8 a) { return each<f32x8>([&](int i) { return std::fabs(a.v[i]); }); }
inline f32x8 max(f32x8 a, f32x8 b) {  // b where either is NaN
    return each<f32x8>([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
inline f32x8 min(f32x8 a, f32x8 b) {  // b where either is NaN
    return each<f32x8>([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
inline float sum(f32x8 a) {  // the one order in which lanes are added
    const float* v = a.v;
    return ((v[0] + v[4]) + (v[1] + v[5])) + ((v[2] + v[6]) + (v[3] + v[7]));
}

inline i32x8 to_int(f32x8 a) {  // to nearest even; INT32_MIN for what does not fit
    return each<i32x8>([&](int i) {
        return a.v[i] >= -0x1p31f && a.v[i] < 0x1p31f ? int32_t(std::nearbyint(a.v[i])) : INT32_MIN;
    });
}
inline f32x8 to_float(i32x8 a) { return each<f32x8>([&](int i) { return float(a.v[i]); }); }
inline f32x8 power_of_two(i32x8 n) {  // 2^n as a float for -126 <= n <= 127, 0 for n = -127, infinity for n = 128
    return each<f32x8>([&](int i) { return std::bit_cast<float>(uint32_t(n.v[i] + 127u) << 23); });
}

// integers

inline i32x8 zero_int() { return {}; }
inline i16x16 load16(const int16_t* p) { return each<i16x16>([&](int i) { return p[i]; }); }
inline i8x32 load32(const void* p) {
    i8x32 out;
    __builtin_memcpy(out.v, p, 32);
    return out;
}
inline void store32(void* p, i8x32 a) { __builtin_memcpy(p, a.v, 32); }

// 16 bytes as 32 values of 4 bits: the low halves, then the high halves
inline i8x32 nibbles(const uint8_t* p) {
    return each<i8x32>([&](int i) { return int8_t(i < 16 ? p[i] & 15 : p[i - 16] >> 4); });
}
// 4 bytes as 32 masks: all ones where the bit is set
inline i8x32 bits(const uint8_t* p) {
    return each<i8x32>([&](int i) { return int8_t(p[i / 8] >> i % 8 & 1 ? -1 : 0); });
}
// each byte shifted right (left if negative) and masked; the mask must leave out bits that the shift brings in
template <int Shift>
inline i8x32 field(i8x32 a, uint8_t mask) {
    return each<i8x32>([&](int i) {
        const uint8_t byte = uint8_t(a.v[i]);
        return int8_t((Shift >= 0 ? byte >> (Shift & 7) : byte << (-Shift & 7)) & mask);
    });
}
inline i8x32 either(i8x32 a, i8x32 b) { return each<i8x32>([&](int i) { return int8_t(a.v[i] | b.v[i]); }); }
inline i8x32 without(i8x32 a, i8x32 b) { return each<i8x32>([&](int i) { return int8_t(a.v[i] & ~b.v[i]); }); }
inline i8x32 minus(i8x32 a, i8x32 b) { return each<i8x32>([&](int i) { return int8_t(a.v[i] - b.v[i]); }); }
inline i8x32 set32(int x) { return each<i8x32>([&](int) { return int8_t(x); }); }

// 8 bytes, zero-extended, in both halves
inline i16x16 both_halves(uint64_t bytes) {
    return each<i16x16>([&](int i) { return int16_t(bytes >> i % 8 * 8 & 255); });
}
// 16 signed bytes: the even ones in the low half, the odd ones in the high half
inline i16x16 even_odd(const void* p) {
    int8_t s[16];
    __builtin_memcpy(s, p, sizeof(s));
    return each<i16x16>([&](int i) { return int16_t(s[i % 8 * 2 + i / 8]); });
}
// lane j of each half in all lanes of that half
inline i16x16 pick(i16x16 a, int j) { return each<i16x16>([&](int i) { return a.v[i / 8 * 8 + j]; }); }
template <int Shift>
inline i16x16 negated_times_power(i16x16 a) { return each<i16x16>([&](int i) { return int16_t(-(a.v[i] * (1 << Shift))); }); }

// sums of 4 neighbouring products; both signed, a > -128
inline i32x8 dot(i8x32 w, i8x32 a) {
    return each<i32x8>([&](int i) {
        int32_t s = 0;
        for (int j = 4 * i; j < 4 * i + 4; ++j) s += w.v[j] * a.v[j];
        return s;
    });
}
// 4 bytes, eight times
inline i8x32 quads(const void* p) {
    int8_t four[4];
    __builtin_memcpy(four, p, sizeof(four));
    return each<i8x32>([&](int i) { return four[i % 4]; });
}
inline i32x8 set_int(int x) { return each<i32x8>([&](int) { return x; }); }
inline i32x8 plus(i32x8 a, i32x8 b) { return each<i32x8>([&](int i) { return a.v[i] + b.v[i]; }); }
inline i32x8 less(i32x8 a, i32x8 b) { return each<i32x8>([&](int i) { return a.v[i] - b.v[i]; }); }

// Sums of 4 neighbouring products of u in 0..15 and signed a > -128, over at most 8 of them until they are taken.
struct Sums { i32x8 v; };
inline Sums no_sums() { return {}; }
inline Sums gather(Sums s, i8x32 u, i8x32 a) {
    return {each<i32x8>([&](int i) {
        int32_t sum = s.v.v[i];
        for (int j = 4 * i; j < 4 * i + 4; ++j) sum += u.v[j] * a.v[j];
        return sum;
    })};
}
inline i32x8 taken(i32x8 total, Sums s) { return plus(total, s.v); }

// sums of 2 neighbouring products of u in 0..63 and signed a
inline i16x16 pairs(i8x32 u, i8x32 a) {
    return each<i16x16>([&](int i) { return int16_t(u.v[2 * i] * a.v[2 * i] + u.v[2 * i + 1] * a.v[2 * i + 1]); });
}
// acc + sums of 2 neighbouring products
inline i32x8 madd(i32x8 acc, i16x16 a, i16x16 b) {
    return each<i32x8>([&](int i) {
        return acc.v[i] + a.v[2 * i] * b.v[2 * i] + a.v[2 * i + 1] * b.v[2 * i + 1];
    });
}
// four vectors of values in -128..127, one after the other
inline i8x32 pack(i32x8 a, i32x8 b, i32x8 c, i32x8 d) {
    const i32x8* in[] = {&a, &b, &c, &d};
    return each<i8x32>([&](int i) { return int8_t(in[i / 8]->v[i % 8]); });
}

}  // namespace
}  // namespace colibri
