// A checked forward pass: what Builder makes and compile reads. See compute/plan.py for what each op means.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graph/map.h"
#include "kernels/kernels.h"

namespace colibri {

enum class Op : uint8_t { Embed, RmsNorm, Linear, Add, Mul, Scale, Clamp, Swiglu, Rope, Attention, Route, Experts };

// Rows of a matrix in a mapped file, one after another. A vector has one row.
struct Weight {
    std::string name;
    DType type;
    int64_t rows;
    int64_t cols;
    const uint8_t* data;         // aligned for the scalars it holds, not for vectors
    std::vector<float> vector;   // the values, once an op uses it as a vector
};

struct Bank {
    int64_t width;
    int64_t inner;
    std::vector<int> gate, up, down;  // weight per expert
    int experts() const { return static_cast<int>(gate.size()); }
};

struct State {
    int64_t k_width;
    int64_t v_width;
    int64_t kv_heads = 0;  // from the attention that uses it; 0 if none does
};

// One operation; the fields its op does not have keep their defaults. Everything in it was checked by Builder.
struct Node {
    Op op;
    std::vector<int> inputs;
    int out = -1;
    std::vector<int> weights;
    int bank = -1;
    int state = -1;

    float eps = 0, factor = 1, low = 0, high = 0, scale = 1;
    int64_t group = 0, heads = 0, kv_heads = 0, head_dim = 0, offset = 0, window = 0, top_k = 0;
    bool interleaved = false, normalise = false;
    std::vector<float> inv_freq;
};

struct Plan {
    int64_t vocab = 0;
    std::vector<int64_t> widths;  // of each value
    std::vector<Weight> weights;
    std::vector<Bank> banks;
    std::vector<State> states;
    std::vector<Node> nodes;  // in an order in which every value is made before it is used
    int logits = -1;

    std::vector<MappedFile> files;
    std::vector<std::unique_ptr<uint8_t[]>> copies;  // of weights that lie misaligned in their file
};

}  // namespace colibri
