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

// Bit j of every byte, moved to bit `To`.
template <int To>
inline i8x32 bit_to(i8x32 a, int j) {
    constexpr uint8_t mask = 1 << To;
    switch (j) {
        case 0: return field<0 - To>(a, mask);
        case 1: return field<1 - To>(a, mask);
        case 2: return field<2 - To>(a, mask);
        case 3: return field<3 - To>(a, mask);
        case 4: return field<4 - To>(a, mask);
        case 5: return field<5 - To>(a, mask);
        case 6: return field<6 - To>(a, mask);
        default: return field<7 - To>(a, mask);
    }
}

// Pair j of four pairs of bits of every byte.
inline i8x32 two_bits(i8x32 a, int j) {
    switch (j) {
        case 0: return field<0>(a, 3);
        case 1: return field<2>(a, 3);
        case 2: return field<4>(a, 3);
        default: return field<6>(a, 3);
    }
}

// 16 scales and 16 minima of 4 bits in 16 bytes | 64 bytes of 2 bits | f16 d | f16 dmin;
// a value is d * scale * two bits - dmin * minimum
struct Q2_KBlock {
    static constexpr int bytes = 84;
    static constexpr bool has_minima = true;
    const uint8_t* p;
    f32x8 d() const { return set_half8(p + 80); }
    f32x8 offset_d() const { return neg(set_half8(p + 82)); }
    i8x32 q(int j) const { return two_bits(load32(p + 16 + j / 4 * 32), j % 4); }
    i16x16 scales() const { return four_bits(0); }
    i16x16 offsets() const { return four_bits(4); }

private:
    i16x16 four_bits(int shift) const {
        uint32_t words[4];
        for (int i = 0; i < 4; ++i) words[i] = load_u32(p + 4 * i) >> shift & 0x0f0f0f0f;
        return even_odd(words);
    }
};

// 32 bytes of third bits | 64 bytes of lower 2 bits | 16 scales of 6 bits in 12 bytes | f16 d;
// a value is d * (scale - 32) * (three bits - 4)
struct Q3_KBlock {
    static constexpr int bytes = 110;
    static constexpr bool has_minima = false;
    const uint8_t* p;
    f32x8 d() const { return set_half8(p + 108); }
    i8x32 q(int j) const { return either(two_bits(load32(p + 32 + j / 4 * 32), j % 4), bit_to<2>(load32(p), j)); }
    // The nibbles of 8 bytes, low ones first, and above them the pairs of bits of the last 4 bytes.
    i16x16 scales() const {
        uint32_t words[4];
        for (int i = 0; i < 4; ++i) {
            const uint32_t low = load_u32(p + 96 + i % 2 * 4) >> i / 2 * 4 & 0x0f0f0f0f;
            const uint32_t six = low | (load_u32(p + 104) >> 2 * i & 0x03030303) << 4;
            const uint32_t sign = ~six & 0x20202020;  // minus 32: six bits with a sign, which has to fill the byte
            words[i] = (six ^ 0x20202020) | sign << 1 | sign << 2;
        }
        return even_odd(words);
    }
    i16x16 offsets() const { return negated_times_power<2>(scales()); }  // -4 * scale
};

// f16 d | f16 dmin | 8 scales and 8 minima of 6 bits in 12 bytes | 128 bytes of nibbles;
// a value is d * scale * nibble - dmin * minimum
struct Q4_KBlock {
    static constexpr int bytes = 144;
    static constexpr bool has_minima = true;
    const uint8_t* p;
    f32x8 d() const { return set_half8(p); }
    f32x8 offset_d() const { return neg(set_half8(p + 2)); }
    i8x32 q(int j) const { return nibble(p + 16, j); }
    i16x16 scales() const { return six_bits(load_u32(p + 4), load_u32(p + 12)); }
    i16x16 offsets() const { return six_bits(load_u32(p + 8), load_u32(p + 12) >> 4); }

    static i8x32 nibble(const uint8_t* nibbles, int j) {
        const i8x32 both = load32(nibbles + j / 2 * 32);
        return j % 2 ? field<4>(both, 15) : field<0>(both, 15);
    }
    // Four values lie in the low 6 bits of `first`; the other four have their low nibbles in `last`, and their upper
    // two bits on top of the first four.
    static i16x16 six_bits(uint32_t first, uint32_t last) {
        const uint32_t other = (last & 0x0f0f0f0f) | (first >> 2 & 0x30303030);
        return both_halves((first & 0x3f3f3f3f) | uint64_t(other) << 32);
    }
};

// As q4_k, with 32 bytes of fifth bits before the nibbles: bit j of a byte is that of one value of the j-th 32
struct Q5_KBlock {
    static constexpr int bytes = 176;
    static constexpr bool has_minima = true;
    const uint8_t* p;
    f32x8 d() const { return Q4_KBlock{p}.d(); }
    f32x8 offset_d() const { return Q4_KBlock{p}.offset_d(); }
    i8x32 q(int j) const { return either(Q4_KBlock::nibble(p + 48, j), bit_to<4>(load32(p + 16), j)); }
    i16x16 scales() const { return Q4_KBlock{p}.scales(); }
    i16x16 offsets() const { return Q4_KBlock{p}.offsets(); }
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
