// A code path's table. A source includes its vec_*.h first, then this.
#pragma once

#include "dequantize.h"
#include "kernels.h"
#include "matmul.inl"
#include "primitives.inl"
#include "pack.inl"
#include "quantize.inl"

namespace colibri {
namespace {

constexpr Kernels table(Isa isa, const char* name) {
    return {isa,     name, quantize, dequantize, pack_rows, matmul, dot_one, axpy, rms_norm, swiglu, softmax, dots, mix};
}

}  // namespace
}  // namespace colibri
