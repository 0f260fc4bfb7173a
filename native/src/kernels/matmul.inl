// Matrix times activations, for every storage type, by one algorithm.
//
// Every output is kept in 8 float lanes that take the blocks of its row in order, and are added up at the end by `sum`.
// What happens to a lane depends on its weight row and its activation row only, never on the tile that holds it.
//
// Few activation rows: weights are unpacked in registers, straight from the file's bytes, so the speed is that of memory.
// Many: a panel of weight rows is unpacked once to scratch memory that stays in cache while all activation rows pass.
#pragma once

#include "arithmetic.inl"
#include "formats.inl"
#include "interleaved.inl"
#include "scratch.h"
#include "unpack.inl"

namespace colibri {
namespace {

// A storage type: its packed block and its kind of arithmetic.
template <class PackedBlock, class KindOf, class UnpackedBlock>
struct Format {
    using Packed = PackedBlock;
    using Kind = KindOf;
    using Unpacked = UnpackedBlock;
    static constexpr bool any_length = Kind::size == 8;  // floats: a row may end within a block
    static constexpr int64_t block_bytes = any_length ? 8 * Packed::bytes : Packed::bytes;
};

template <class Packed>
using FloatFormat = Format<Packed, Floats, Floats::Unpacked>;
template <class Packed>
using Format32 = Format<Packed, Blocks32, Blocks32::Unpacked>;
template <class Packed>
using Format256 = Format<Packed, Blocks256, Blocks256::Values<Packed::has_minima>>;

// R weight rows as they lie in the file. What comes next in memory is asked for early: processors prefetch by themselves,
// but not across pages, nor where short rows end.
template <class Fmt, int R>
struct PackedRows {
    const uint8_t* row[R];
    int64_t ahead;
    typename Fmt::Packed block(int r, int64_t b) const {
        const uint8_t* p = row[r] + b * Fmt::block_bytes;
        UNROLLED
        for (int64_t i = 0; i < Fmt::block_bytes; i += 64) __builtin_prefetch(p + ahead + i);
        return {p};
    }
};

// R weight rows of a panel. Of floats, a last incomplete block is filled up with zeros.
template <class Fmt, int R>
struct PanelRows {
    const typename Fmt::Unpacked* row[R];
    const typename Fmt::Unpacked& block(int r, int64_t b) const { return row[r][b]; }
};

// The last incomplete block of a row of floats, filled up with zeros.
template <class Fmt>
inline void copy_tail(uint8_t (&tail)[Fmt::block_bytes], const uint8_t* row, int64_t k) {
    __builtin_memset(tail, 0, sizeof(tail));
    __builtin_memcpy(tail, row + k / 8 * Fmt::block_bytes, size_t(k % 8) * Fmt::Packed::bytes);
}

template <class Fmt, int R, int C>
inline void accumulate_tail(f32x8 (&acc)[R][C], const PackedRows<Fmt, R>& rows, const Floats::Acts (&acts)[C], int64_t k) {
    for (int r = 0; r < R; ++r) {
        alignas(32) uint8_t tail[Fmt::block_bytes];
        copy_tail<Fmt>(tail, rows.row[r], k);
        Floats::accumulate(acc[r], typename Fmt::Packed{tail}, acts, 0);
    }
}

template <class Fmt, int R, int C>
inline void accumulate_tail(f32x8 (&acc)[R][C], const PanelRows<Fmt, R>& rows, const Floats::Acts (&acts)[C], int64_t k) {
    for (int r = 0; r < R; ++r) Floats::accumulate(acc[r], rows.block(r, k / 8), acts, 0);
}

// Where a tile's outputs go: only the first `rows` weight rows and `cols` activation rows of it are real.
struct Target {
    float* y;
    int64_t stride;
    int64_t rows, cols;
};

// R weight rows times C activation rows.
template <class Fmt, int R, int C, class Rows>
inline void tile(const Rows& rows, const typename Fmt::Kind::Acts (&acts)[C], int64_t k, const Target& target) {
    f32x8 acc[R][C];
    for (auto& row : acc) {
        for (f32x8& lanes : row) lanes = set8(0);
    }
    const int64_t blocks = k / Fmt::Kind::size;
    for (int64_t b = 0; b < blocks; ++b) {
        UNROLLED
        for (int r = 0; r < R; ++r) Fmt::Kind::accumulate(acc[r], rows.block(r, b), acts, b);
    }
    if constexpr (Fmt::any_length) {
        if (k % 8 != 0) {
            alignas(32) float padded[C][8] = {};
            Floats::Acts tails[C];
            for (int c = 0; c < C; ++c) {
                __builtin_memcpy(padded[c], acts[c].x + k / 8 * 8, size_t(k % 8) * sizeof(float));
                tails[c].x = padded[c];
            }
            accumulate_tail<Fmt, R, C>(acc, rows, tails, k);
        }
    }
    for (int c = 0; c < C; ++c) {
        for (int r = 0; r < R; ++r) {
            if (r < target.rows && c < target.cols) target.y[c * target.stride + r] = sum(acc[r][c]);
        }
    }
}

struct Job {
    const uint8_t* w;
    int64_t pitch, k, n0, n1;
    const uint8_t* acts;
    size_t act_stride;
    int64_t m;
    float* y;
    int64_t y_stride;

    // Rows past the end repeat the last one: they are computed and not stored.
    const uint8_t* weight_row(int64_t n) const { return w + (n < n1 ? n : n1 - 1) * pitch; }
    const uint8_t* act_row(int64_t i) const { return acts + size_t(i < m ? i : m - 1) * act_stride; }
    Target target(int64_t n, int64_t i) const { return {y + i * y_stride + n, y_stride, n1 - n, m - i}; }
};

template <class Kind, int C>
struct Columns {
    typename Kind::Acts acts[C];
    Columns(const Job& job, int64_t i) {
        for (int c = 0; c < C; ++c) acts[c] = typename Kind::Acts(job.act_row(i + c), job.k);
    }
};

constexpr int64_t kLeastAhead = 2048;  // bytes

// All weight rows against all C activation rows, unpacked on the way.
template <class Fmt, int C>
void stream(const Job& job) {
    constexpr int R = Fmt::Kind::stream_rows;
    const Columns<typename Fmt::Kind, C> columns(job, 0);
    PackedRows<Fmt, R> rows;
    rows.ahead = R * job.pitch > kLeastAhead ? R * job.pitch : kLeastAhead;
    for (int64_t n = job.n0; n < job.n1; n += R) {
        for (int r = 0; r < R; ++r) rows.row[r] = job.weight_row(n + r);
        tile<Fmt, R, C>(rows, columns.acts, job.k, job.target(n, 0));
    }
}

// A multiple of every kind's `panel_rows`.
constexpr int64_t kPanelRows = 12;

// A panel of weight rows n .. n+kPanelRows against activation rows i .. i+C.
template <class Fmt, int C>
void pass(const Job& job, const typename Fmt::Unpacked* panel, int64_t blocks, int64_t n, int64_t i) {
    constexpr int R = Fmt::Kind::panel_rows;
    static_assert(kPanelRows % R == 0);
    const Columns<typename Fmt::Kind, C> columns(job, i);
    for (int64_t p = 0; p < kPanelRows && n + p < job.n1; p += R) {
        PanelRows<Fmt, R> rows;
        for (int r = 0; r < R; ++r) rows.row[r] = panel + (p + r) * blocks;
        tile<Fmt, R, C>(rows, columns.acts, job.k, job.target(n + p, i));
    }
}

template <class Fmt>
void unpack_row(const uint8_t* row, int64_t k, typename Fmt::Unpacked* out) {
    const PackedRows<Fmt, 1> packed{{row}, kLeastAhead};
    const int64_t whole = k / Fmt::Kind::size;
    for (int64_t b = 0; b < whole; ++b) out[b] = typename Fmt::Unpacked(packed.block(0, b));
    if constexpr (Fmt::any_length) {
        if (k % 8 != 0) {
            alignas(32) uint8_t tail[Fmt::block_bytes];
            copy_tail<Fmt>(tail, row, k);
            out[whole] = typename Fmt::Unpacked(typename Fmt::Packed{tail});
        }
    }
}

constexpr int64_t kFew = 4;  // activation rows

template <class Fmt>
void multiply_few(const Job& job) {
    switch (job.m) {
        case 1: return stream<Fmt, 1>(job);
        case 2: return stream<Fmt, 2>(job);
        case 3: return stream<Fmt, 3>(job);
        case 4: return stream<Fmt, 4>(job);
    }
}

template <class Fmt>
void multiply(const Job& job) {
    if (job.m <= kFew) return multiply_few<Fmt>(job);

    using Unpacked = typename Fmt::Unpacked;
    const int64_t blocks = (job.k + Fmt::Kind::size - 1) / Fmt::Kind::size;
    auto* panel = static_cast<Unpacked*>(scratch(size_t(kPanelRows * blocks) * sizeof(Unpacked)));
    for (int64_t n = job.n0; n < job.n1; n += kPanelRows) {
        for (int64_t p = 0; p < kPanelRows; ++p) unpack_row<Fmt>(job.weight_row(n + p), job.k, panel + p * blocks);
        int64_t i = 0;
        for (; i + 2 < job.m; i += 4) pass<Fmt, 4>(job, panel, blocks, n, i);
        for (; i < job.m; i += 2) pass<Fmt, 2>(job, panel, blocks, n, i);
    }
}

// Types that have no arithmetic of their own: a panel of weight rows is turned into floats first.
void multiply_floats(const Matrix& w, const Job& job) {
    const int64_t pitch = (w.cols + 15) / 16 * 16;
    float* panel = static_cast<float*>(scratch(size_t(kPanelRows * pitch) * sizeof(float)));
    for (int64_t n = job.n0; n < job.n1; n += kPanelRows) {
        const int64_t rows = job.n1 - n < kPanelRows ? job.n1 - n : kPanelRows;
        for (int64_t p = 0; p < rows; ++p) float_row(w, n + p, panel + p * pitch);
        for (int64_t i = 0; i < job.m; i += kFew) {
            Job part = job;
            part.w = reinterpret_cast<const uint8_t*>(panel);
            part.pitch = pitch * int64_t(sizeof(float));
            part.n0 = 0, part.n1 = rows;
            part.acts = job.act_row(i);
            part.m = job.m - i < kFew ? job.m - i : kFew;
            part.y = job.y + i * job.y_stride + n;
            multiply_few<FloatFormat<F32Block>>(part);
        }
    }
}

void matmul(const Matrix& w, int64_t n0, int64_t n1, const void* acts, size_t act_stride, int64_t m, float* y,
            int64_t y_stride) {
    if (n0 >= n1 || m <= 0) return;
    const Job job{w.data, w.pitch, w.cols, n0, n1, static_cast<const uint8_t*>(acts), act_stride, m, y, y_stride};
    if (w.scales.data != nullptr) return multiply_floats(w, job);
    switch (w.type) {
        case DType::F32: return multiply<FloatFormat<F32Block>>(job);
        case DType::BF16: return multiply<FloatFormat<Bf16Block>>(job);
        case DType::F16: return multiply<FloatFormat<F16Block>>(job);
        case DType::Q8_0: return multiply<Format32<Q8_0Block>>(job);
        case DType::Q4_0: return multiply<Format32<Q4_0Block>>(job);
        case DType::Q5_0: return multiply<Format32<Q5_0Block>>(job);
        case DType::Q2_K: return multiply<Format256<Q2_KBlock>>(job);
        case DType::Q3_K: return multiply<Format256<Q3_KBlock>>(job);
        case DType::Q4_K: return multiply<Format256<Q4_KBlock>>(job);
        case DType::Q5_K: return multiply<Format256<Q5_KBlock>>(job);
        case DType::Q6_K: return multiply<Format256<Q6_KBlock>>(job);
        case DType::I4X16: return multiply_interleaved<4>(w, n0, n1, job.acts, act_stride, m, y, y_stride);
        case DType::I8X16: return multiply_interleaved<8>(w, n0, n1, job.acts, act_stride, m, y, y_stride);
        default: return multiply_floats(w, job);
    }
}

}  // namespace
}  // namespace colibri
