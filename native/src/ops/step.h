// What every op of a step sees.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "experts/store.h"
#include "graph/compile.h"
#include "kernels/kernels.h"
#include "ops/op.h"
#include "pool.h"
#include "state/slots.h"

namespace colibri {

// The rows of one step, checked. `wanted` are the rows whose logits are computed.
struct Batch {
    std::vector<int64_t> tokens, slots, positions;
    std::vector<int64_t> wanted;
    std::vector<int64_t> place;  // of each row of the step among the wanted ones, or -1
    std::map<int64_t, std::vector<uint16_t>> codes;  // of the rows of the step that have some
    std::vector<float> given;  // what every row brings along, one behind the other

    int64_t size() const { return static_cast<int64_t>(tokens.size()); }
    int64_t count(Rows rows) const { return rows == Rows::All ? size() : static_cast<int64_t>(wanted.size()); }
    // Row of the step that is row `i` of a matrix over `rows`.
    size_t row(Rows rows, int64_t i) const {
        return static_cast<size_t>(rows == Rows::All ? i : wanted[static_cast<size_t>(i)]);
    }
    // The row of a matrix over `rows` that is row `i` of the step, or -1.
    int64_t place_in(Rows rows, int64_t i) const { return rows == Rows::All ? i : place[static_cast<size_t>(i)]; }
    std::span<const uint16_t> codes_of(int64_t i) const {
        const auto at = codes.find(i);
        return at == codes.end() ? std::span<const uint16_t>() : at->second;
    }
    int64_t slot(int64_t i) const { return slots[static_cast<size_t>(i)]; }
    int64_t position(int64_t i) const { return positions[static_cast<size_t>(i)]; }
};

// The rows of one slot in a step: rows[0], rows[1], … stand at the positions first, first + 1, …
struct Run {
    int64_t slot, first;
    std::vector<int64_t> rows;
    int64_t end() const { return first + static_cast<int64_t>(rows.size()); }
};

struct Turns {
    std::vector<float> cos, sin;  // [rows of the step, n]
    int64_t n;
};

// Memory an op needs while it runs, allocated once for the largest.
struct Scratch {
    LazyMemory shared;
    std::vector<LazyMemory> per_thread;
    float* floats(int thread) { return reinterpret_cast<float*>(per_thread[static_cast<size_t>(thread)].data()); }
};

struct Step {
    const Plan& plan;
    const Program& program;
    const Kernels& kernels;
    Pool& pool;
    Slots& slots;
    ExpertStore& experts;
    uint8_t* arena;
    Scratch& scratch;
    const std::vector<Turns>& turns;
    const Batch& batch;
    const std::vector<Run>& runs;

    const Buffer& buffer(int index) const { return program.buffers[static_cast<size_t>(index)]; }
    uint8_t* bytes(int index, int64_t row) const { return arena + buffer(index).offset + static_cast<size_t>(row) * buffer(index).stride; }
    float* row(int index, int64_t row) const { return reinterpret_cast<float*>(bytes(index, row)); }
    const float* vector(const Instruction& now, size_t weight) const { return plan.weight(*now.node, weight).vector.data(); }
    int64_t floats_apart(int index) const { return static_cast<int64_t>(buffer(index).stride / sizeof(float)); }

    // Calls body(row) for every row of an instruction; on this thread alone where waking others would take longer.
    // `work` is about the number of floats a row costs.
    template <class Body>
    void each_row(Rows rows, int64_t work, const Body& body) const {
        const int64_t count = batch.count(rows);
        constexpr int64_t kWorthSharing = 16384;
        if (count * work < kWorthSharing) {
            for (int64_t i = 0; i < count; i++) body(i);
            return;
        }
        const int64_t share = std::max<int64_t>(1, 4096 / std::max<int64_t>(1, work));
        pool.run((count + share - 1) / share, [&](int64_t unit, int) {
            for (int64_t i = unit * share; i < std::min(count, (unit + 1) * share); i++) body(i);
        });
    }
};

// What the compiler makes of more than one op.
void run_gather(const Step&, const Instruction&);
void run_quantize(const Step&, const Instruction&);
void run_linear(const Step&, const Instruction&);

}  // namespace colibri
