// Integer dot products in AVX-512 VNNI. Vectors stay at 256 bits: the lanes of an output are the same on every path.
#pragma once

#include "vec_x86.h"

namespace colibri {
namespace {

inline i32x8 madd(i32x8 acc, i16x16 a, i16x16 b) { return {_mm256_dpwssd_epi32(acc.v, a.v, b.v)}; }

inline i32x8 dot(i8x32 w, i8x32 a) {
    return {_mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_sign_epi8(w.v, w.v), _mm256_sign_epi8(a.v, w.v))};
}

struct Sums { __m256i v; };
inline Sums no_sums() { return {_mm256_setzero_si256()}; }
inline Sums gather(Sums s, i8x32 u, i8x32 a) { return {_mm256_dpbusd_epi32(s.v, u.v, a.v)}; }
inline i32x8 taken(i32x8 total, Sums s) { return plus(total, {s.v}); }

}  // namespace
}  // namespace colibri
