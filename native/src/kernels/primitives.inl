// The vector primitives: sums in a fixed order, and exp as a fixed sequence of operations.
#pragma once

namespace colibri {
namespace {

// Calls step(i, load, store) for every 8 values of n; the last, incomplete group is filled up with `fill`.
template <class Step>
inline void by_eights(const float* x, int64_t n, float fill, Step step) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) step(i, load8(x + i), 8);
    if (i < n) {
        alignas(32) float rest[8];
        for (int j = 0; j < 8; ++j) rest[j] = i + j < n ? x[i + j] : fill;
        step(i, load8(rest), int(n - i));
    }
}

inline f32x8 load_some(const float* p, int count) {
    if (count == 8) return load8(p);
    alignas(32) float rest[8] = {};
    __builtin_memcpy(rest, p, size_t(count) * sizeof(float));
    return load8(rest);
}

inline void store_some(float* p, f32x8 a, int count) {
    if (count == 8) return store8(p, a);
    alignas(32) float rest[8];
    store8(rest, a);
    __builtin_memcpy(p, rest, size_t(count) * sizeof(float));
}

// e^x to about 1e-7: 2^n * e^r with |r| <= ln(2)/2. 0 below -88, infinity above 88.4, NaN for NaN.
inline f32x8 exp8(f32x8 x) {
    x = min(set8(89.f), max(set8(-88.f), x));  // in this order NaN stays
    const i32x8 n = to_int(mul(x, set8(0x1.715476p+0f)));
    const f32x8 whole = to_float(n);
    f32x8 r = fma(whole, set8(-0x1.62e4p-1f), x);  // ln(2) in two parts, the first short enough for an exact product
    r = fma(whole, set8(0x1.7f7d1cp-20f * -1.f), r);
    f32x8 p = set8(0x1.6a2350p-10f);  // (e^r - 1 - r) / r^2, minimax
    p = fma(p, r, set8(0x1.123a6cp-7f));
    p = fma(p, r, set8(0x1.5558f4p-5f));
    p = fma(p, r, set8(0x1.555490p-3f));
    p = fma(p, r, set8(0x1.fffffcp-2f));
    p = add(fma(mul(r, r), p, r), set8(1.f));
    return mul(p, power_of_two(n));
}

// C dot products of `a`, each in the same order: 32 lanes, what is left over in the first 8.
template <int C>
inline void dot_some(const float* a, const float* b, int64_t stride, int64_t n, float* out) {
    f32x8 acc[C][4];
    for (auto& row : acc) {
        for (f32x8& lanes : row) lanes = set8(0);
    }
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        UNROLLED
        for (int j = 0; j < 4; ++j) {
            const f32x8 x = load8(a + i + 8 * j);
            UNROLLED
            for (int c = 0; c < C; ++c) acc[c][j] = fma(x, load8(b + c * stride + i + 8 * j), acc[c][j]);
        }
    }
    for (; i < n; i += 8) {
        const int count = n - i < 8 ? int(n - i) : 8;
        const f32x8 x = load_some(a + i, count);
        for (int c = 0; c < C; ++c) acc[c][0] = fma(x, load_some(b + c * stride + i, count), acc[c][0]);
    }
    for (int c = 0; c < C; ++c) out[c] = sum(add(add(acc[c][0], acc[c][1]), add(acc[c][2], acc[c][3])));
}

float dot_one(const float* a, const float* b, int64_t n) {
    float out;
    dot_some<1>(a, b, 0, n, &out);
    return out;
}

void dots(const float* a, const float* b, int64_t stride, int64_t count, int64_t n, float* out) {
    int64_t j = 0;
    for (; j + 2 <= count; j += 2) dot_some<2>(a, b + j * stride, stride, n, out + j);
    if (j < count) dot_some<1>(a, b + j * stride, stride, n, out + j);
}

void axpy(float alpha, const float* x, float* y, int64_t n) {
    by_eights(x, n, 0, [&](int64_t i, f32x8 v, int count) {
        store_some(y + i, fma(set8(alpha), v, load_some(y + i, count)), count);
    });
}

// A column of `Vectors` vectors of the weighted sum; the last vector holds `last` values.
template <int Vectors>
inline void mix_some(const float* w, const float* b, int64_t stride, int64_t count, int last, float* y) {
    f32x8 acc[Vectors];
    for (f32x8& lanes : acc) lanes = set8(0);
    for (int64_t j = 0; j < count; ++j) {
        const f32x8 weight = set8(w[j]);
        UNROLLED
        for (int v = 0; v < Vectors; ++v) {
            const float* p = b + j * stride + 8 * v;
            acc[v] = fma(weight, v == Vectors - 1 ? load_some(p, last) : load8(p), acc[v]);
        }
    }
    for (int v = 0; v < Vectors; ++v) store_some(y + 8 * v, acc[v], v == Vectors - 1 ? last : 8);
}

void mix(const float* w, const float* b, int64_t stride, int64_t count, int64_t n, float* y) {
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) mix_some<8>(w, b + i, stride, count, 8, y + i);
    for (; i < n; i += 8) mix_some<1>(w, b + i, stride, count, n - i < 8 ? int(n - i) : 8, y + i);
}

void rms_norm(const float* x, const float* w, int64_t n, float eps, float* y) {
    const float scale = 1.f / __builtin_sqrtf(dot_one(x, x, n) / float(n) + eps);
    by_eights(x, n, 0, [&](int64_t i, f32x8 v, int count) {
        store_some(y + i, mul(load_some(w + i, count), mul(v, set8(scale))), count);
    });
}

void swiglu(const float* gate, const float* up, int64_t n, float* y) {
    by_eights(gate, n, 0, [&](int64_t i, f32x8 g, int count) {
        const f32x8 silu = div(g, add(set8(1.f), exp8(neg(g))));
        store_some(y + i, mul(silu, load_some(up + i, count)), count);
    });
}

void softmax(float* x, int64_t n) {
    constexpr float kLowest = -__builtin_huge_valf();
    float largest = kLowest;
    for (int64_t i = 0; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
    f32x8 total = set8(0);
    by_eights(x, n, kLowest, [&](int64_t i, f32x8 v, int count) {
        const f32x8 e = exp8(add(v, set8(-largest)));
        total = add(total, e);
        store_some(x + i, e, count);
    });
    const f32x8 scale = set8(1.f / sum(total));
    by_eights(x, n, 0, [&](int64_t i, f32x8 v, int count) { store_some(x + i, mul(v, scale), count); });
}

}  // namespace
}  // namespace colibri
