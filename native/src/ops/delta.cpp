// The gated delta rule: memories that every position fades, corrects and reads.
#include <algorithm>
#include <cmath>

#include "ops/step.h"

namespace colibri {

namespace {

struct DeltaParams : Params {
    int64_t heads, key_heads, dk, dv;
    bool by_row;  // a decay for every row of a memory, or one for all
};

std::unique_ptr<Params> check_delta(Inspection& at) {
    auto params = std::make_unique<DeltaParams>();
    const int64_t heads = params->heads = at.integer("heads", 1, 1 << 16);
    params->key_heads = at.integer("key_heads", 1, heads);
    at.divides("key_heads", params->key_heads, heads);
    at.divides("key_heads", params->key_heads, at.width(1));
    at.divides("heads", heads, at.width(2));
    params->dk = at.width(1) / params->key_heads;
    params->dv = at.width(2) / heads;
    at.same("width of q", at.width(0), at.width(1));
    at.same("width of beta", at.width(4), heads);
    at.same("width of the result", at.out(), at.width(2));
    params->by_row = at.width(3) != heads;
    if (params->by_row) at.same("width of decay", at.width(3), heads * params->dk);
    State& memory = at.state(0);
    if (memory.used) at.refuse("its state is already used by another operation");
    if (!memory.recurrent || memory.width() != heads * params->dk * params->dv)
        at.refuse("its state is no memory of ", heads, " heads of [", params->dk, ", ", params->dv, "]");
    memory.used = true;
    return params;
}

// Of a thread: q, k and the decay of every row of the memory; what is written and what was there.
struct Workspace {
    float *q, *k, *keep, *write, *held;
    Workspace(float* at, int64_t dk, int64_t dv) : q(at), k(q + dk), keep(k + dk), write(keep + dk), held(write + dv) {}
    static int64_t floats(int64_t dk, int64_t dv) { return 3 * dk + 2 * dv; }
};

Needs delta_needs(const Plan&, const Node& node, const Limits&) {
    const auto& params = node.as<DeltaParams>();
    return {0, static_cast<uint64_t>(Workspace::floats(params.dk, params.dv)) * sizeof(float)};
}

// x at length 1, times `factor`.
void unit(const Kernels& kernels, const float* x, int64_t n, float factor, float* y) {
    const float scale = factor / std::sqrt(kernels.dot(x, x, n) + 1e-6f);
    for (int64_t j = 0; j < n; j++) y[j] = x[j] * scale;
}

void run_delta(const Step& s, const Instruction& now) {
    const auto& params = now.node->as<DeltaParams>();
    const RecurrentState& state = s.slots.recurrent(now.node->states[0]);
    const int64_t heads = params.heads, dk = params.dk, dv = params.dv;
    const float q_factor = 1 / std::sqrt(static_cast<float>(dk));

    // Heads and slots have nothing to do with each other; the rows of a slot come one by one.
    s.pool.run(static_cast<int64_t>(s.runs.size()) * heads, [&](int64_t u, int thread) {
        const Run& run = s.runs[static_cast<size_t>(u / heads)];
        const int64_t head = u % heads, key_head = head / (heads / params.key_heads);
        const Workspace work(s.scratch.floats(thread), dk, dv);
        float* memory = state.at(run.slot) + head * dk * dv;
        for (const int64_t i : run.rows) {
            const float* decay = s.row(now.in[3], i) + head * (params.by_row ? dk : 1);
            if (params.by_row)
                for (int64_t a = 0; a < dk; a++) work.keep[a] = std::exp(decay[a]);
            else
                std::fill_n(work.keep, dk, std::exp(*decay));
            for (int64_t a = 0; a < dk; a++)
                for (int64_t b = 0; b < dv; b++) memory[a * dv + b] *= work.keep[a];

            unit(s.kernels, s.row(now.in[1], i) + key_head * dk, dk, 1, work.k);
            s.kernels.mix(work.k, memory, dv, dk, dv, work.held);
            const float* v = s.row(now.in[2], i) + head * dv;
            const float beta = s.row(now.in[4], i)[head];
            for (int64_t b = 0; b < dv; b++) work.write[b] = beta * (v[b] - work.held[b]);
            for (int64_t a = 0; a < dk; a++) s.kernels.axpy(work.k[a], work.write, memory + a * dv, dv);

            const int64_t place = s.batch.place_in(now.rows, i);
            if (place < 0) continue;
            unit(s.kernels, s.row(now.in[0], place) + key_head * dk, dk, q_factor, work.q);
            s.kernels.mix(work.q, memory, dv, dk, dv, s.row(now.out, place) + head * dv);
        }
    });
}

struct DecayParams : Params {
    float bound;               // 0: there is none
    std::vector<float> rates;  // of each head
};

std::unique_ptr<Params> check_decay(Inspection& at) {
    auto params = std::make_unique<DecayParams>();
    const int64_t heads = at.integer("heads", 1, Inspection::kAny);
    at.divides("heads", heads, at.width(0));
    at.same("width of the result", at.out(), at.width(0));
    params->bound = at.number("bound", 0);
    at.vector(0, -1);
    at.vector(1, at.width(0));
    const Weight& a = at.weight(0);
    const bool log = at.flag("log");
    if (a.cols() < heads) at.refuse("weight '", a.name, "' has ", a.cols(), " values for ", heads, " heads");
    for (int64_t h = 0; h < heads; h++) {
        const float value = a.vector[static_cast<size_t>(h)];
        params->rates.push_back(log ? std::exp(value) : -value);
    }
    return params;
}

float softplus(float x) { return std::max(x, 0.0f) + std::log1p(std::exp(-std::abs(x))); }

void run_decay(const Step& s, const Instruction& now) {
    const auto& params = now.node->as<DecayParams>();
    const float* bias = s.vector(now, 1);
    const int64_t width = s.buffer(now.out).width, heads = static_cast<int64_t>(params.rates.size()), run = width / heads;
    s.each_row(now.rows, 16 * width, [&](int64_t i) {
        const float* x = s.row(now.in[0], i);
        float* y = s.row(now.out, i);
        for (int64_t h = 0; h < heads; h++) {
            const float rate = params.rates[static_cast<size_t>(h)];
            for (int64_t j = h * run; j < (h + 1) * run; j++) {
                const float z = x[j] + bias[j];
                y[j] = params.bound == 0 ? -rate * softplus(z) : params.bound / (1 + std::exp(-rate * z));
            }
        }
    });
}

}  // namespace

extern const Op kDelta{.name = "delta",
                       .inputs = exactly(5),
                       .states = exactly(1),
                       .check = check_delta,
                       .run = run_delta,
                       .needs = delta_needs,
                       .history = 0b11110};

extern const Op kDecay{.name = "decay",
                       .inputs = exactly(1),
                       .weights = exactly(2),
                       .check = check_decay,
                       .run = run_decay,
                       .in_place = true};

}  // namespace colibri
