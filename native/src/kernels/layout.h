// How an activation row of `k` values lies in memory.
//
//     F32   k floats
//     Q8    k int8 | k/32 float scales
//     Q8K   k int8 | k/256 times 16 int16 sums | k/256 float scales
//     Q64   k int8 | k/64 float scales | k/64 int32 sums
//
// A value is int8 * scale. A sum adds 16 neighbouring int8. Of the 16 groups of a block, the eight even ones come first,
// then the odd ones: that is the order in which 16-bit vector lanes meet them (see Blocks256 in arithmetic.inl).
#pragma once

#include <cstdint>

namespace colibri {
namespace {

constexpr int64_t q8_scales(int64_t k) { return k; }
constexpr int64_t q8k_sums(int64_t k) { return k; }
constexpr int64_t q8k_scales(int64_t k) { return k + k / 256 * 32; }

constexpr int64_t q64_scales(int64_t k) { return k; }
constexpr int64_t q64_sums(int64_t k) { return k + k / 64 * 4; }

// How weights of interleaved rows lie in memory, 16 rows after 16 rows:
//
//     16 f16 scales for each 64 columns | the codes of each 64 columns
//
// Codes come in lines of 64 bytes, four for each of the 16 rows: of i8x16 a line has the codes of 4 columns, of i4x16 those
// of 8, the first four in the low halves of the bytes and the others in the high ones, each 8 more than its value. So one
// vector meets one stretch of activations with all its rows, and what a row gets never passes between lanes.
constexpr int64_t kTogether = 16, kGroup = 64, kLine = 64;
constexpr int64_t interleaved_scales(int64_t k) { return k / kGroup * kTogether * 2; }

constexpr int64_t sum_lane(int64_t group) { return group / 2 + group % 2 * 8; }

}  // namespace
}  // namespace colibri
