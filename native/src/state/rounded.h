// Numbers of a slot's rows in fewer bytes, for files.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernels.h"

namespace colibri {

// As F32, as F16, or as Q8_0, whose last block is filled up with zeros. Numbers beyond F16's range become its largest;
// what is not a number becomes 0 in Q8_0. BadInput for other types.
std::vector<uint8_t> rounded(DType, std::span<const float> numbers);

}  // namespace colibri
