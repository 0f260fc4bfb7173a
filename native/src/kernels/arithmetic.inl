// What is computed of a weight block and an activation block: three kinds of arithmetic.
//
// Each has `size`, the values of a block; `Acts`, one activation row; `Unpacked`, a block ready for use; and `accumulate`,
// which adds one weight block times C activation blocks to C outputs. Then there are the weight rows a tile has, as
// measured to be best: `stream_rows` when memory is the limit, `panel_rows` when arithmetic is.
#pragma once

#include "layout.h"

namespace colibri {
namespace {

struct Floats {
    static constexpr int size = 8, stream_rows = 4, panel_rows = 3;

    struct Acts {
        const float* x;
        Acts() = default;
        Acts(const uint8_t* row, int64_t) : x(reinterpret_cast<const float*>(row)) {}
    };

    struct Unpacked {
        f32x8 values_;
        template <class Block>
        explicit Unpacked(const Block& block) : values_(block.values()) {}
        f32x8 values() const { return values_; }
    };

    template <int C, class Block>
    static inline void accumulate(f32x8 (&acc)[C], const Block& block, const Acts (&acts)[C], int64_t b) {
        const f32x8 w = block.values();
        UNROLLED
        for (int c = 0; c < C; ++c) acc[c] = fma(w, load8(acts[c].x + 8 * b), acc[c]);
    }
};

struct Blocks32 {
    static constexpr int size = 32, stream_rows = 1, panel_rows = 4;

    struct Acts {
        const int8_t* q;
        const float* d;
        Acts() = default;
        Acts(const uint8_t* row, int64_t k)
            : q(reinterpret_cast<const int8_t*>(row)), d(reinterpret_cast<const float*>(row + q8_scales(k))) {}
    };

    struct Unpacked {
        i8x32 w_;
        f32x8 d_;
        template <class Block>
        explicit Unpacked(const Block& block) : w_(block.w()), d_(block.d()) {}
        i8x32 w() const { return w_; }
        f32x8 d() const { return d_; }
    };

    template <int C, class Block>
    static inline void accumulate(f32x8 (&acc)[C], const Block& block, const Acts (&acts)[C], int64_t b) {
        const i8x32 w = block.w();
        const f32x8 d = block.d();
        i32x8 products[C];  // of all columns before any is used: so the multipliers have enough to do
        UNROLLED
        for (int c = 0; c < C; ++c) products[c] = dot(w, load32(acts[c].q + 32 * b));
        UNROLLED
        for (int c = 0; c < C; ++c) acc[c] = fma(to_float(products[c]), mul(d, set8(acts[c].d[b])), acc[c]);
    }
};

struct Blocks256 {
    static constexpr int size = 256, stream_rows = 1, panel_rows = 2;

    struct Acts {
        const int8_t* q;
        const int16_t* sums;
        const float* d;
        Acts() = default;
        Acts(const uint8_t* row, int64_t k)
            : q(reinterpret_cast<const int8_t*>(row)),
              sums(reinterpret_cast<const int16_t*>(row + q8k_sums(k))),
              d(reinterpret_cast<const float*>(row + q8k_scales(k))) {}
    };

    template <bool HasMinima>
    struct Values {
        static constexpr bool has_minima = HasMinima;
        i8x32 q_[8];
        i16x16 scales_, offsets_;
        f32x8 d_, offset_d_;
        template <class Block>
        explicit Values(const Block& block) : scales_(block.scales()), offsets_(block.offsets()), d_(block.d()) {
            UNROLLED
            for (int j = 0; j < 8; ++j) q_[j] = block.q(j);
            if constexpr (has_minima) offset_d_ = block.offset_d();
        }
        i8x32 q(int j) const { return q_[j]; }
        i16x16 scales() const { return scales_; }
        i16x16 offsets() const { return offsets_; }
        f32x8 d() const { return d_; }
        f32x8 offset_d() const { return offset_d_; }
    };

    // An offset in units of d joins the integer sum; minima have a scale of their own and follow as a second term.
    template <int C, class Block>
    static inline void accumulate(f32x8 (&acc)[C], const Block& block, const Acts (&acts)[C], int64_t b) {
        const i16x16 scales = block.scales(), offsets = block.offsets();
        i32x8 products[C], offset[C];
        UNROLLED
        for (int c = 0; c < C; ++c) {
            offset[c] = madd(zero_int(), offsets, load16(acts[c].sums + 16 * b));
            products[c] = Block::has_minima ? zero_int() : offset[c];
        }
        UNROLLED
        for (int j = 0; j < 8; ++j) {
            const i8x32 q = block.q(j);
            const i16x16 scale = pick(scales, j);
            UNROLLED
            for (int c = 0; c < C; ++c) {
                products[c] = madd(products[c], pairs(q, load32(acts[c].q + 256 * b + 32 * j)), scale);
            }
        }
        const f32x8 d = block.d();
        UNROLLED
        for (int c = 0; c < C; ++c) {
            const f32x8 act_d = set8(acts[c].d[b]);
            acc[c] = fma(to_float(products[c]), mul(d, act_d), acc[c]);
            if constexpr (Block::has_minima) acc[c] = fma(to_float(offset[c]), mul(block.offset_d(), act_d), acc[c]);
        }
    }
};

}  // namespace
}  // namespace colibri
