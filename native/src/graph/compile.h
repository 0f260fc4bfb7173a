// From a checked plan to a program: a flat list of instructions over one block of memory.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/builder.h"
#include "graph/plan.h"

namespace colibri {

// Which rows of a step a value is computed for. What feeds nothing but the logits is wanted only where logits are.
enum class Rows : uint8_t { None, Wanted, All };

enum class Do : uint8_t {
    Gather,    // the wanted rows of a value that has all
    Quantize,  // a value as activations of one type; every linear that needs that form shares it
    Linear,    // products of one input
    Run,       // any other op
};

// A matrix of the program: one row per row of the step (or per wanted row), `stride` bytes apart, 64-byte aligned.
struct Buffer {
    int64_t width;   // floats a row holds; 0 for quantised activations
    size_t stride;
    size_t offset;   // in the arena
};

// One weight of a linear instruction. Linears of the same input run as one, so that threads share them evenly.
struct Product {
    const Weight* weight;
    const float* bias;  // or null
    int activations;    // buffer
    int out;            // buffer
};

struct Instruction {
    Do what;
    Rows rows;
    std::vector<int> in;  // buffers, -1 for an input that is absent
    int out = -1;         // buffer; -1 for Linear, and for ops that make no value
    const Node* node = nullptr;
    ActType act = ActType::F32;         // quantize: what to make; experts: the form of x
    ActType hidden_act = ActType::F32;  // experts
    int angles = -1;                    // of an op that turns
    std::vector<Product> products;      // linear

    bool has(size_t input) const { return input < in.size() && in[input] >= 0; }
};

// cos and sin of every row's position: ops with the same frequencies share one table.
struct Angles {
    std::vector<float> inv_freq;
    float factor;
};

struct Program {
    std::vector<Instruction> instructions;
    std::vector<Buffer> buffers;
    std::vector<Angles> angles;
    uint64_t arena = 0;  // bytes
    int logits = -1;     // buffer, of the wanted rows
    int hidden = -1;     // buffer, of all rows, or -1
};

// `plan` must outlive the program.
Program compile(const Plan& plan, const Limits&);

}  // namespace colibri
