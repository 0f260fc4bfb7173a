// The kernels: every inner loop of the runtime, one table of functions per code path (scalar, AVX2, AVX-512).
//
// Order of arithmetic is part of the contract. For every weight type, one output value is computed from one weight row
// and one activation row in one fixed order that does not depend on how many rows stand beside it, so GEMV and GEMM
// give the same bits; and all code paths use the same order, so they give the same bits as each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace colibri {

// Storage types of weights. Names and block sizes are those of compute/checkpoint.py.
enum class DType : uint8_t {
    F32, BF16, F16, I32, I64, E4M3, E8M0, E2M1, I8, U8, U4,
    Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4, NVFP4, I4X16, I8X16,
};

// What activations are turned into before they meet a weight type: left alone, or int8: in blocks of 32 with a scale, in
// blocks of 256 with a scale and sums of 16, or in blocks of 64 with a scale and a sum.
enum class ActType : uint8_t { F32, Q8, Q8K, Q64 };

struct TypeInfo {
    DType type;
    const char* name;
    int block;  // values per block
    int bytes;  // bytes per block
    ActType act;
    int together = 1;  // rows that lie interleaved: there are always a multiple of it, and it begins at one
};

const TypeInfo& type_info(DType);
bool parse_dtype(std::string_view name, DType& out);

// Whether scales may be stored so.
bool is_scale(DType);

// Unsigned codes: for how many rows of a grid of scales their zeros lie together in 32 bits. 0 for other types.
constexpr int zeros_together(DType t) { return t == DType::U4 ? 8 : t == DType::U8 ? 4 : 0; }

// Bytes of one row of `k` values in storage type `t` / as activations of type `a`. Activation rows need 64-byte alignment.
size_t row_bytes(DType t, int64_t k);
// Rows that a matrix of `rows` takes the room of: those that only fill the last interleaved ones up have any values.
int64_t stored_rows(DType t, int64_t rows);
size_t act_bytes(ActType a, int64_t k);

// A weight matrix as it lies in memory. Its scales may lie apart, if its type meets activations that are left alone: with
// i = (first + row * every) / block_rows and j = column / block_cols, the value at (row, column) is multiplied by
// scales[i, j] * factor, after `zero` was subtracted, or the zero of i and j. With n = zeros_together(type), that is
// zeros[i / n, j * n + i % n], of the same type.
struct Grid {
    const uint8_t* data = nullptr;
    DType type = DType::F32;
    int64_t pitch = 0;  // bytes from row to row
};

struct Matrix {
    DType type;
    int64_t cols;
    const uint8_t* data;  // row 0
    int64_t pitch;        // bytes from row to row
    Grid scales, zeros;
    int64_t block_rows = 1, block_cols = 1, first = 0, every = 1;
    float factor = 1;
    int zero = 0;

    const uint8_t* row(int64_t n) const { return data + n * pitch; }
};

// Rows that lie one behind the other.
Matrix dense(DType type, int64_t cols, const void* data);

// The sum of the squares of what got lost, and of all values.
struct Loss {
    double error = 0, size = 0;
};

enum class Isa : uint8_t { Scalar, Avx2, Avx512 };

struct Kernels {
    Isa isa;
    const char* name;

    // Turns `k` floats into one activation row. k is a multiple of the block for Q8 (32) and Q8K (256).
    void (*quantize)(ActType, const float* x, int64_t k, void* out);
    // The values of one row as floats.
    void (*dequantize)(const Matrix&, int64_t row, float* out);
    // Stores `n` rows of `k` floats in an interleaved type; `out` has room for stored_rows(n). Adds to the loss.
    void (*pack)(DType, const float* x, int64_t n, int64_t k, uint8_t* out, Loss&);
    // y[i * y_stride + n] = dot(weight row n, activation row i) for n in [n0, n1), i in [0, m).
    // `acts` are m rows, act_stride bytes apart, of the weight type's ActType.
    // y is written at columns n0..n1 only, so that threads share an output by columns.
    void (*matmul)(const Matrix&, int64_t n0, int64_t n1, const void* acts, size_t act_stride, int64_t m, float* y,
                   int64_t y_stride);

    // Vector primitives. Each has one fixed order of summation.
    float (*dot)(const float* a, const float* b, int64_t n);
    void (*axpy)(float alpha, const float* x, float* y, int64_t n);                             // y += alpha * x
    void (*rms_norm)(const float* x, const float* w, int64_t n, float eps, float* y);           // w * x / sqrt(mean(x^2)+eps)
    void (*swiglu)(const float* gate, const float* up, int64_t n, float* y);                    // silu(gate) * up
    void (*softmax)(float* x, int64_t n);                                                       // in place

    // Attention over rows `stride` floats apart.
    // out[j] = dot(a, b + j * stride, n) for j in [0, count), with the bits of `dot`.
    void (*dots)(const float* a, const float* b, int64_t stride, int64_t count, int64_t n, float* out);
    // y = sum over j of w[j] * (b + j * stride)[0, n), with the bits of `axpy` from zero in the order of j.
    void (*mix)(const float* w, const float* b, int64_t stride, int64_t count, int64_t n, float* y);
};

// The code paths this CPU can run, worst first; always holds Scalar.
std::vector<Isa> available_isas();
const Kernels& kernels(Isa);
const char* isa_name(Isa);

}  // namespace colibri
