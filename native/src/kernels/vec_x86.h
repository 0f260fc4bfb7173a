// The vector vocabulary in 256-bit x86 vectors (AVX2, FMA, F16C), all but the integer dot products: those differ between
// the code paths that include this. What each operation means is said in vec_scalar.h.
#pragma once

#ifdef COLIBRI_SIMDE
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#else
#include <immintrin.h>
#endif

#include <cstdint>

#define UNROLLED _Pragma("GCC unroll 8")

namespace colibri {
namespace {

struct f32x8 { __m256 v; };
struct i32x8 { __m256i v; };
struct i16x16 { __m256i v; };
struct i8x32 { __m256i v; };

inline __m256i load256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline __m128i load128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
inline __m256i join(__m128i low, __m128i high) { return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1); }

// float32, 8 lanes

inline f32x8 set8(float x) { return {_mm256_set1_ps(x)}; }
inline f32x8 load8(const void* p) { return {_mm256_loadu_ps(static_cast<const float*>(p))}; }
inline void store8(float* p, f32x8 a) { _mm256_storeu_ps(p, a.v); }
inline f32x8 load_half8(const void* p) { return {_mm256_cvtph_ps(load128(p))}; }
inline f32x8 load_bfloat8(const void* p) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(p)), 16))};
}
inline f32x8 set_half8(const void* p) {
    int16_t h;
    __builtin_memcpy(&h, p, sizeof(h));
    return {_mm256_cvtph_ps(_mm_set1_epi16(h))};
}
inline f32x8 load_e4m3(const void* p) {  // see float_of_e4m3
    const __m128i words = _mm_cvtepu8_epi16(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
    const __m128i sign = _mm_slli_epi16(_mm_srli_epi16(words, 7), 15);
    const __m128i magnitude = _mm_slli_epi16(_mm_and_si128(words, _mm_set1_epi16(127)), 7);
    const __m256 values = _mm256_mul_ps(_mm256_cvtph_ps(_mm_or_si128(sign, magnitude)), _mm256_set1_ps(256));
    const __m256 none = _mm256_cmp_ps(_mm256_andnot_ps(_mm256_set1_ps(-0.f), values), _mm256_set1_ps(480), _CMP_EQ_OQ);
    return {_mm256_or_ps(values, none)};
}
inline f32x8 load_signed(const void* p) {
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p))))};
}
inline f32x8 load_unsigned(const void* p) {
    return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p))))};
}
inline __m256i eight_nibbles(const void* p) {
    int32_t word;
    __builtin_memcpy(&word, p, sizeof(word));
    const __m256i shifted = _mm256_srlv_epi32(_mm256_set1_epi32(word), _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
    return _mm256_and_si256(shifted, _mm256_set1_epi32(15));
}
inline f32x8 load_nibbles(const void* p) { return {_mm256_cvtepi32_ps(eight_nibbles(p))}; }
inline f32x8 load_e2m1(const void* p) {
    const __m256i codes = eight_nibbles(p);
    const __m256 magnitudes = _mm256_permutevar8x32_ps(_mm256_setr_ps(0, .5f, 1, 1.5f, 2, 3, 4, 6), codes);
    const __m256i signs = _mm256_slli_epi32(_mm256_srli_epi32(codes, 3), 31);
    return {_mm256_or_ps(magnitudes, _mm256_castsi256_ps(signs))};
}

inline f32x8 add(f32x8 a, f32x8 b) { return {_mm256_add_ps(a.v, b.v)}; }
inline f32x8 mul(f32x8 a, f32x8 b) { return {_mm256_mul_ps(a.v, b.v)}; }
inline f32x8 div(f32x8 a, f32x8 b) { return {_mm256_div_ps(a.v, b.v)}; }
inline f32x8 fma(f32x8 a, f32x8 b, f32x8 c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
inline f32x8 neg(f32x8 a) { return {_mm256_xor_ps(a.v, _mm256_set1_ps(-0.f))}; }
inline f32x8 abs(f32x8 a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.f), a.v)}; }
inline f32x8 max(f32x8 a, f32x8 b) { return {_mm256_max_ps(a.v, b.v)}; }
inline f32x8 min(f32x8 a, f32x8 b) { return {_mm256_min_ps(a.v, b.v)}; }
inline float sum(f32x8 a) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehdup_ps(four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehl_ps(two, two)));
}

inline i32x8 to_int(f32x8 a) { return {_mm256_cvtps_epi32(a.v)}; }
inline f32x8 to_float(i32x8 a) { return {_mm256_cvtepi32_ps(a.v)}; }
inline f32x8 power_of_two(i32x8 n) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n.v, _mm256_set1_epi32(127)), 23))};
}

// integers

inline i32x8 zero_int() { return {_mm256_setzero_si256()}; }
inline i16x16 load16(const int16_t* p) { return {load256(p)}; }
inline i8x32 load32(const void* p) { return {load256(p)}; }
inline void store32(void* p, i8x32 a) { _mm256_storeu_si256(static_cast<__m256i*>(p), a.v); }
inline i8x32 set32(int x) { return {_mm256_set1_epi8(static_cast<char>(x))}; }

inline i8x32 nibbles(const uint8_t* p) {
    const __m256i twice = _mm256_broadcastsi128_si256(load128(p));
    const __m256i shifted = _mm256_srlv_epi32(twice, _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4));
    return {_mm256_and_si256(shifted, _mm256_set1_epi8(15))};
}
inline i8x32 bits(const uint8_t* p) {
    int32_t word;
    __builtin_memcpy(&word, p, sizeof(word));
    const __m256i byte_of = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i all_others = _mm256_set1_epi64x(0x7fbfdfeff7fbfdfe);
    const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(word), byte_of);
    return {_mm256_cmpeq_epi8(_mm256_or_si256(bytes, all_others), _mm256_set1_epi8(-1))};
}
template <int Shift>
inline i8x32 field(i8x32 a, uint8_t mask) {
    const __m256i shifted = Shift >= 0 ? _mm256_srli_epi16(a.v, Shift & 7) : _mm256_slli_epi16(a.v, -Shift & 7);
    return {_mm256_and_si256(shifted, _mm256_set1_epi8(static_cast<char>(mask)))};
}
inline i8x32 either(i8x32 a, i8x32 b) { return {_mm256_or_si256(a.v, b.v)}; }
inline i8x32 without(i8x32 a, i8x32 b) { return {_mm256_andnot_si256(b.v, a.v)}; }
inline i8x32 minus(i8x32 a, i8x32 b) { return {_mm256_sub_epi8(a.v, b.v)}; }

inline i16x16 both_halves(uint64_t bytes) {
    const __m128i words = _mm_cvtepu8_epi16(_mm_cvtsi64_si128(static_cast<long long>(bytes)));
    return {join(words, words)};
}
inline i16x16 even_odd(const void* p) {
    const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    return {_mm256_cvtepi8_epi16(_mm_shuffle_epi8(load128(p), order))};
}
inline i16x16 pick(i16x16 a, int j) {
    return {_mm256_shuffle_epi8(a.v, _mm256_set1_epi16(static_cast<short>(2 * j | (2 * j + 1) << 8)))};
}
template <int Shift>
inline i16x16 negated_times_power(i16x16 a) {
    return {_mm256_sub_epi16(_mm256_setzero_si256(), _mm256_slli_epi16(a.v, Shift))};
}

inline i8x32 quads(const void* p) {
    int32_t word;
    __builtin_memcpy(&word, p, sizeof(word));
    return {_mm256_set1_epi32(word)};
}
inline i32x8 set_int(int x) { return {_mm256_set1_epi32(x)}; }
inline i32x8 plus(i32x8 a, i32x8 b) { return {_mm256_add_epi32(a.v, b.v)}; }
inline i32x8 less(i32x8 a, i32x8 b) { return {_mm256_sub_epi32(a.v, b.v)}; }

inline i16x16 pairs(i8x32 u, i8x32 a) { return {_mm256_maddubs_epi16(u.v, a.v)}; }
inline i8x32 pack(i32x8 a, i32x8 b, i32x8 c, i32x8 d) {
    const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(a.v, b.v), _mm256_packs_epi32(c.v, d.v));
    return {_mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7))};
}

}  // namespace
}  // namespace colibri
