// Integer dot products in AVX2.
#pragma once

#include "vec_x86.h"

namespace colibri {
namespace {

inline i32x8 madd(i32x8 acc, i16x16 a, i16x16 b) {
    return {_mm256_add_epi32(acc.v, _mm256_madd_epi16(a.v, b.v))};
}

// The multiplier takes one unsigned operand: |w|, with w's sign moved to a. 2 * 128 * 127 fits 16 bits.
inline i32x8 dot(i8x32 w, i8x32 a) {
    const __m256i two = _mm256_maddubs_epi16(_mm256_sign_epi8(w.v, w.v), _mm256_sign_epi8(a.v, w.v));
    return {_mm256_madd_epi16(two, _mm256_set1_epi16(1))};
}

// 16 bits hold 8 times 2 * 15 * 127.
struct Sums { __m256i v; };
inline Sums no_sums() { return {_mm256_setzero_si256()}; }
inline Sums gather(Sums s, i8x32 u, i8x32 a) { return {_mm256_add_epi16(s.v, _mm256_maddubs_epi16(u.v, a.v))}; }
inline i32x8 taken(i32x8 total, Sums s) {
    return {_mm256_add_epi32(total.v, _mm256_madd_epi16(s.v, _mm256_set1_epi16(1)))};
}

}  // namespace
}  // namespace colibri
