// The storage types: how one block of weights is read in place.
//
// Each type is a view of one packed block. Blocks of 32 give `w` (signed bytes) and `d`; blocks of 256 give eight vectors
// `q` of unsigned values with one scale per 16 of them, and what is to be subtracted for the values' offset or minimum;
// floats give 8 values. The arithmetic on them is in arithmetic.inl.
#pragma once

namespace colibri {
namespace {

inline uint32_t load_u32(const uint8_t* p) {
    uint32_t x;
    __builtin_memcpy(&x, p, sizeof(x));
    return x;
}

struct F32Block {
    static constexpr int bytes = 4;
    const uint8_t* p;
    f32x8 values() const { return load8(p); }
};

struct Bf16Block {
    static constexpr int bytes = 2;
    const uint8_t* p;
    f32x8 values() const { return load_bfloat8(p); }
};

struct F16Block {
    static constexpr int bytes = 2;
    const uint8_t* p;
    f32x8 values() const { return load_half8(p); }
};

// f16 d | 32 int8
struct Q8_0Block {
    static constexpr int bytes = 34;
    const uint8_t* p;
    f32x8 d() const { return set_half8(p); }
    i8x32 w() const { return load32(p + 2); }
};

// f16 d | 16 bytes of nibbles; a value is nibble - 8
struct Q4_0Block {
    static constexpr int bytes = 18;
    const uint8_t* p;
    f32x8 d() const { return set_half8(p); }
    i8x32 w() const { return minus(nibbles(p + 2), set32(8)); }
};

// f16 d | 32 fifth bits | 16 bytes of nibbles; a value is nibble + 16 * bit - 16
struct Q5_0Block {
    static constexpr int bytes = 22;
    const uint8_t* p;
    f32x8 d() const { return set_half8(p); }
    i8x32 w() const { return either(nibbles(p + 6), without(set32(0xf0), bits(p + 2))); }
};

// f16 d | f16 dmin | 8 scales and 8 minima of 6 bits in 12 bytes | 128 bytes of nibbles;
// a value is d * scale * nibble - dmin * minimum
struct Q4_KBlock {
    static constexpr int bytes = 144;
    static constexpr bool has_minima = true;
    const uint8_t* p;
    f32x8 d() const { return set_half8(p); }
    f32x8 offset_d() const { return neg(set_half8(p + 2)); }
    i8x32 q(int j) const {
        const i8x32 both = load32(p + 16 + j / 2 * 32);
        return j % 2 ? field<4>(both, 15) : field<0>(both, 15);
    }
    i16x16 scales() const { return six_bits(load_u32(p + 4), load_u32(p + 12)); }
    i16x16 offsets() const { return six_bits(load_u32(p + 8), load_u32(p + 12) >> 4); }

private:
    // Four values lie in the low 6 bits of `first`; the other four have their low nibbles in `last`, and their upper
    // two bits on top of the first four.
    static i16x16 six_bits(uint32_t first, uint32_t last) {
        const uint32_t other = (last & 0x0f0f0f0f) | (first >> 2 & 0x30303030);
        return both_halves((first & 0x3f3f3f3f) | uint64_t(other) << 32);
    }
};

// 128 bytes of low nibbles | 64 bytes of upper 2 bits | 16 int8 scales | f16 d; a value is d * scale * (six bits - 32)
struct Q6_KBlock {
    static constexpr int bytes = 210;
    static constexpr bool has_minima = false;
    const uint8_t* p;
    f32x8 d() const { return set_half8(p + 208); }
    i8x32 q(int j) const {
        const i8x32 low = load32(p + j / 4 * 64 + j % 2 * 32);
        const i8x32 high = load32(p + 128 + j / 4 * 32);
        switch (j % 4) {
            case 0: return either(field<0>(low, 15), field<-4>(high, 0x30));
            case 1: return either(field<0>(low, 15), field<-2>(high, 0x30));
            case 2: return either(field<4>(low, 15), field<0>(high, 0x30));
            default: return either(field<4>(low, 15), field<2>(high, 0x30));
        }
    }
    i16x16 scales() const { return even_odd(p + 192); }
    i16x16 offsets() const { return negated_times_power<5>(scales()); }  // -32 * scale
};

}  // namespace
}  // namespace colibri
