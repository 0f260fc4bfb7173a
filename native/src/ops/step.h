// What every op of a step sees.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "experts/bank.h"
#include "graph/compile.h"
#include "kernels/kernels.h"
#include "pool.h"
#include "state/kv.h"

namespace colibri {

// The rows of one step, checked. `wanted` are the rows whose logits are computed.
struct Batch {
    std::vector<int64_t> tokens, slots, positions;
    std::vector<int64_t> wanted;

    int64_t size() const { return static_cast<int64_t>(tokens.size()); }
    int64_t count(Rows rows) const { return rows == Rows::All ? size() : static_cast<int64_t>(wanted.size()); }
    // Row of the step that is row `i` of a matrix over `rows`.
    size_t row(Rows rows, int64_t i) const {
        return static_cast<size_t>(rows == Rows::All ? i : wanted[static_cast<size_t>(i)]);
    }
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
    const Program& program;
    const Kernels& kernels;
    Pool& pool;
    Slots& slots;
    std::vector<std::unique_ptr<ExpertBank>>& banks;
    uint8_t* arena;
    Scratch& scratch;
    const std::vector<Turns>& turns;
    const Batch& batch;

    const Buffer& buffer(int index) const { return program.buffers[static_cast<size_t>(index)]; }
    uint8_t* bytes(int index, int64_t row) const { return arena + buffer(index).offset + static_cast<size_t>(row) * buffer(index).stride; }
    float* row(int index, int64_t row) const { return reinterpret_cast<float*>(bytes(index, row)); }
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

// One function per instruction. None looks at more than its own rows and their past.
void run_gather(const Step&, const Instruction&);
void run_quantize(const Step&, const Instruction&);
void run_embed(const Step&, const Instruction&);
void run_rms_norm(const Step&, const Instruction&);
void run_linear(const Step&, const Instruction&);
void run_add(const Step&, const Instruction&);
void run_mul(const Step&, const Instruction&);
void run_scale(const Step&, const Instruction&);
void run_clamp(const Step&, const Instruction&);
void run_swiglu(const Step&, const Instruction&);
void run_rope(const Step&, const Instruction&);
void run_attention(const Step&, const Instruction&);
void run_route(const Step&, const Instruction&);
void run_experts(const Step&, const Instruction&);

// Bytes of scratch an instruction needs for up to `max_rows` rows: shared, and per thread.
uint64_t experts_scratch(const Plan&, const Instruction&, int64_t max_rows);
uint64_t attention_scratch(const Plan&, const Instruction&);
uint64_t route_scratch(const Program&, const Instruction&);

}  // namespace colibri
