// Weights of interleaved rows (see layout.h) times activations.
//
// Every lane of a vector is a row of its own: a group's products are summed in integers, exactly, then its scale times that
// of the activations multiplies them into the lane's sum. So an output is made of its groups in their order, whichever way
// its rows and columns are dealt out.
#pragma once

#include "layout.h"

namespace colibri {
namespace {

struct GroupedActs {
    const int8_t* q;
    const float* d;
    const int32_t* sums;
    GroupedActs() = default;
    GroupedActs(const uint8_t* row, int64_t k)
        : q(reinterpret_cast<const int8_t*>(row)),
          d(reinterpret_cast<const float*>(row + q64_scales(k))),
          sums(reinterpret_cast<const int32_t*>(row + q64_sums(k))) {}
};

// The integer sums of one group of a half of 8 rows, whose first line is `line`, with C activation rows.
template <int Bits>
struct GroupOf;

template <>
struct GroupOf<4> {
    static constexpr int64_t lines = 8;
    template <int R, int C>
    static inline void products(i32x8 (&total)[R][C], const uint8_t* line, const GroupedActs (&acts)[C], int64_t g) {
        UNROLLED
        for (int half = 0; half < 2; ++half) {
            Sums sums[R][C];
            for (auto& row : sums) {
                for (Sums& s : row) s = no_sums();
            }
            UNROLLED
            for (int l = 4 * half; l < 4 * half + 4; ++l) {
                i8x32 low[R], high[R];
                UNROLLED
                for (int r = 0; r < R; ++r) {
                    const i8x32 both = load32(line + l * kLine + 32 * r);
                    low[r] = field<0>(both, 15);
                    high[r] = field<4>(both, 15);
                }
                UNROLLED
                for (int c = 0; c < C; ++c) {
                    const int8_t* q = acts[c].q + g * kGroup + 8 * l;
                    const i8x32 first = quads(q), second = quads(q + 4);
                    UNROLLED
                    for (int r = 0; r < R; ++r) sums[r][c] = gather(gather(sums[r][c], low[r], first), high[r], second);
                }
            }
            UNROLLED
            for (int r = 0; r < R; ++r) {
                UNROLLED
                for (int c = 0; c < C; ++c) total[r][c] = taken(total[r][c], sums[r][c]);
            }
        }
    }
    static int32_t start(int32_t sum) { return -8 * sum; }  // codes are 8 more than their values
};

template <>
struct GroupOf<8> {
    static constexpr int64_t lines = 16;
    template <int R, int C>
    static inline void products(i32x8 (&total)[R][C], const uint8_t* line, const GroupedActs (&acts)[C], int64_t g) {
        for (int l = 0; l < 16; ++l) {
            i8x32 w[R];
            UNROLLED
            for (int r = 0; r < R; ++r) w[r] = load32(line + l * kLine + 32 * r);
            UNROLLED
            for (int c = 0; c < C; ++c) {
                const i8x32 four = quads(acts[c].q + g * kGroup + 4 * l);
                UNROLLED
                for (int r = 0; r < R; ++r) total[r][c] = plus(total[r][c], dot(w[r], four));
            }
        }
    }
    static int32_t start(int32_t) { return 0; }
};

// Bytes of codes that are asked for ahead of their use.
constexpr int64_t kCodesAhead = 1024;

// R halves of 8 rows, of the 16 at `block`, with C activation rows.
template <int Bits, int R, int C, bool Ahead>
inline void interleaved_tile(f32x8 (&acc)[R][C], const uint8_t* block, int64_t first_half, int64_t k, const GroupedActs (&acts)[C]) {
    using Group = GroupOf<Bits>;
    for (auto& row : acc) {
        for (f32x8& lanes : row) lanes = set8(0);
    }
    const uint8_t* scales = block + 16 * first_half;
    const uint8_t* line = block + interleaved_scales(k) + 32 * first_half;
    for (int64_t g = 0; g < k / kGroup; ++g, scales += 32, line += Group::lines * kLine) {
        if constexpr (Ahead) {
            UNROLLED
            for (int64_t l = 0; l < Group::lines; ++l) __builtin_prefetch(line + kCodesAhead + l * kLine);
        }
        i32x8 total[R][C];
        for (int c = 0; c < C; ++c) {
            for (int r = 0; r < R; ++r) total[r][c] = set_int(Group::start(acts[c].sums[g]));
        }
        Group::template products<R, C>(total, line, acts, g);
        UNROLLED
        for (int r = 0; r < R; ++r) {
            const f32x8 d = load_half8(scales + 16 * r);
            UNROLLED
            for (int c = 0; c < C; ++c) acc[r][c] = fma(to_float(total[r][c]), mul(d, set8(acts[c].d[g])), acc[r][c]);
        }
    }
}

// Those of 8 lanes that are rows n0..n1, where lane 0 is row n.
inline void store_rows(float* y, f32x8 lanes, int64_t n, int64_t n0, int64_t n1) {
    if (n >= n0 && n + 8 <= n1) return store8(y + n, lanes);
    alignas(32) float all[8];
    store8(all, lanes);
    for (int64_t i = n > n0 ? n : n0; i < (n + 8 < n1 ? n + 8 : n1); ++i) y[i] = all[i - n];
}

template <int Bits, int R, int C, bool Ahead>
void interleaved_columns(const Matrix& w, int64_t n0, int64_t n1, const uint8_t* acts, size_t act_stride, float* y, int64_t y_stride,
                         int64_t block_row) {
    GroupedActs rows[C];
    for (int c = 0; c < C; ++c) rows[c] = GroupedActs(acts + size_t(c) * act_stride, w.cols);
    const uint8_t* block = w.data + block_row * w.pitch;
    for (int64_t half = 0; half < 2; half += R) {
        f32x8 acc[R][C];
        if (Ahead && half == 0) interleaved_tile<Bits, R, C, true>(acc, block, half, w.cols, rows);
        else interleaved_tile<Bits, R, C, false>(acc, block, half, w.cols, rows);
        for (int c = 0; c < C; ++c) {
            for (int r = 0; r < R; ++r) store_rows(y + c * y_stride, acc[r][c], block_row + 8 * (half + r), n0, n1);
        }
    }
}

// 16 rows after 16 rows, each with all activation rows: their codes stay in the first cache meanwhile.
template <int Bits>
void multiply_interleaved(const Matrix& w, int64_t n0, int64_t n1, const uint8_t* acts, size_t act_stride, int64_t m, float* y,
                          int64_t y_stride) {
    for (int64_t n = n0 / kTogether * kTogether; n < n1; n += kTogether) {
        int64_t i = 0;
        const auto columns = [&](auto run, int64_t count) {
            run(w, n0, n1, acts + size_t(i) * act_stride, act_stride, y + i * y_stride, y_stride, n);
            i += count;
        };
        // The first to come finds the codes in memory.
        if (m == 1) columns(interleaved_columns<Bits, 2, 1, true>, 1);
        if (m == 2) columns(interleaved_columns<Bits, 2, 2, true>, 2);
        if (m == 3) columns(interleaved_columns<Bits, 1, 3, true>, 3);
        if (m >= 4) columns(interleaved_columns<Bits, 1, 4, true>, 4);
        while (m - i >= 4) columns(interleaved_columns<Bits, 1, 4, false>, 4);
        if (m - i == 3) columns(interleaved_columns<Bits, 1, 3, false>, 3);
        if (m - i == 2) columns(interleaved_columns<Bits, 2, 2, false>, 2);
        if (m - i == 1) columns(interleaved_columns<Bits, 2, 1, false>, 1);
    }
}

}  // namespace
}  // namespace colibri
