// How an activation row of `k` values lies in memory.
//
//     F32   k floats
//     Q8    k int8 | k/32 float scales
//     Q8K   k int8 | k/256 times 16 int16 sums | k/256 float scales
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

constexpr int64_t sum_lane(int64_t group) { return group / 2 + group % 2 * 8; }

}  // namespace
}  // namespace colibri
