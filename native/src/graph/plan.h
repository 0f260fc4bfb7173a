// A checked forward pass: what Builder makes and compile reads. See compute/plan.py for what each op means.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graph/map.h"
#include "kernels/kernels.h"

namespace colibri {

struct Op;

// A weight in a mapped file. A vector has one row.
struct Weight {
    std::string name;
    int64_t rows;
    Matrix matrix;
    std::vector<float> vector;  // the values, once an op uses it as a vector
    int64_t cols() const { return matrix.cols; }
};

struct Bank {
    int64_t width;
    int64_t inner;
    std::vector<int> gate, up, down;  // weight per expert
    int64_t top_k = 1;                // how many a token takes
    int experts() const { return static_cast<int>(gate.size()); }
};

// What a slot keeps: for each plane a row per `every` positions, or, if recurrent, numbers that each position changes.
struct State {
    bool recurrent;
    std::vector<int64_t> planes;  // widths
    int64_t window;               // rows that have to be kept; 0: all
    int64_t every;
    bool used = false;            // by an op: others take no memory
    bool sequential() const { return recurrent || window > 0; }
    int64_t width() const {
        int64_t sum = 0;
        for (int64_t plane : planes) sum += plane;
        return sum;
    }
};

// How heads are rotated by a position.
struct Turning {
    std::vector<float> inv_freq;
    float factor = 1;
    int64_t offset = 0;
    bool interleaved = false;
};

// What an op has read from a node's attributes.
struct Params {
    virtual ~Params() = default;
};

// One operation. Everything in it was checked by Builder. Absent inputs and weights are -1, as is `out` where nothing is made.
struct Node {
    const Op* op;
    std::vector<int> inputs;
    int out = -1;
    std::vector<int> weights;
    int bank = -1;
    std::vector<int> states;
    std::shared_ptr<const Params> params;

    bool has(size_t input) const { return input < inputs.size() && inputs[input] >= 0; }
    bool has_weight(size_t weight) const { return weight < weights.size() && weights[weight] >= 0; }
    template <class P>
    const P& as() const {
        return static_cast<const P&>(*params);
    }
};

// What a row may have in place of a token: `each` codes below `limit`. each 0: no operation reads codes.
struct Codes {
    int64_t each = 0, limit = 0;
};

struct Plan {
    int64_t vocab = 0;
    Codes codes;
    int64_t given = 0;  // numbers that each row brings along
    std::vector<int64_t> widths;  // of each value
    std::vector<Weight> weights;
    std::vector<Bank> banks;
    std::vector<State> states;
    std::vector<Node> nodes;  // in an order in which every value is made before it is used
    int logits = -1;
    int hidden = -1;  // a value to be read beside the logits, or -1

    std::vector<MappedFile> files;
    std::vector<std::unique_ptr<uint8_t[]>> copies;  // of weights that lie misaligned in their file

    int64_t width(int value) const { return widths[static_cast<size_t>(value)]; }
    const Weight& weight(int index) const { return weights[static_cast<size_t>(index)]; }
    const Weight& weight(const Node& node, size_t i) const { return weight(node.weights[i]); }
};

}  // namespace colibri
