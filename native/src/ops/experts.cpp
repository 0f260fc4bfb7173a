// Mixture of experts: running each over all rows that chose it.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/glu.h"
#include "ops/route.h"
#include "ops/step.h"

namespace colibri {

namespace {

size_t float_stride(int64_t floats) { return (static_cast<size_t>(floats) * sizeof(float) + 63) / 64 * 64; }

size_t act_stride(ActType act, int64_t k) { return (act_bytes(act, k) + 63) / 64 * 64; }

ActType act_of(const Weight& weight) { return type_info(weight.matrix.type).act; }

// Where the pairs (row, choice) are worked on, sorted by expert.
struct Workspace {
    int32_t* begins;    // [experts + 1]: pairs of an expert stand from begins[e] to begins[e + 1]
    int32_t* place;     // [pairs]: where pair row * top_k + j stands
    uint8_t* x;         // [pairs] activations
    uint8_t* gate;      // [pairs, inner]
    uint8_t* up;        // [pairs, inner]
    uint8_t* hidden;    // [pairs, inner]
    uint8_t* h;         // [pairs] activations of hidden; the same memory where they are floats
    uint8_t* down;      // [pairs, width]
    size_t x_stride, inner_stride, h_stride, width_stride;
    uint64_t bytes;

    Workspace(uint8_t* base, int64_t experts, int64_t pairs, int64_t width, int64_t inner, ActType x_act, ActType h_act)
        : x_stride(act_stride(x_act, width)),
          inner_stride(float_stride(inner)),
          h_stride(h_act == ActType::F32 ? inner_stride : act_stride(h_act, inner)),
          width_stride(float_stride(width)) {
        uint64_t at = 0;
        const auto take = [&](uint64_t size) {
            uint8_t* here = base + at;
            at += (size + 63) / 64 * 64;
            return here;
        };
        const auto n = static_cast<uint64_t>(pairs);
        begins = reinterpret_cast<int32_t*>(take(static_cast<uint64_t>(experts + 1) * sizeof(int32_t)));
        place = reinterpret_cast<int32_t*>(take(n * sizeof(int32_t)));
        x = take(n * x_stride);
        gate = take(n * inner_stride);
        up = take(n * inner_stride);
        hidden = take(n * inner_stride);
        h = h_act == ActType::F32 ? hidden : take(n * h_stride);
        down = take(n * width_stride);
        bytes = at;
    }
};

// Experts that rows chose, with how many of them.
std::vector<Demand> demands_of(const int32_t* begins, int experts) {
    std::vector<Demand> demands;
    for (int e = 0; e < experts; e++)
        if (begins[e] < begins[e + 1]) demands.push_back({e, begins[e + 1] - begins[e]});
    return demands;
}

// Counting sort of the pairs by expert; rows keep their order within one.
void sort_pairs(const Step& s, int routes, int64_t rows, int64_t top_k, int experts, const Workspace& work) {
    std::fill_n(work.begins, experts + 1, 0);
    const auto chosen = [&](int64_t i, int64_t j) { return static_cast<int>(s.row(routes, i)[j]); };
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < top_k; j++) work.begins[chosen(i, j) + 1]++;
    for (int e = 0; e < experts; e++) work.begins[e + 1] += work.begins[e];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < top_k; j++) work.place[i * top_k + j] = work.begins[chosen(i, j)]++;
    for (int e = experts; e > 0; e--) work.begins[e] = work.begins[e - 1];
    work.begins[0] = 0;
}

int64_t panel(int64_t outputs, int threads) { return std::clamp<int64_t>(outputs / (int64_t{8} * threads) / 16 * 16, 16, 64); }

struct ExpertsParams : Params {
    Glu glu;
    int64_t top_k;
};

std::unique_ptr<Params> check_experts(Inspection& at) {
    const Bank& bank = at.bank();
    at.same("width of x", at.width(0), bank.width);
    at.same("width of the result", at.out(), bank.width);
    // Indices of experts are only ever taken from a route, which can not leave their range.
    const Routing* routing = routing_of(at.made_by(1));
    if (!routing) at.refuse("its second input is not made by route");
    at.same("number of routed experts", routing->experts, bank.experts());
    auto params = std::make_unique<ExpertsParams>();
    params->glu = read_glu(at);
    params->top_k = at.bank().top_k = routing->top_k;
    return params;
}

Needs experts_needs(const Plan& plan, const Node& node, const Limits& limits) {
    const Bank& bank = plan.banks[static_cast<size_t>(node.bank)];
    const Workspace work(nullptr, bank.experts(), limits.max_rows * node.as<ExpertsParams>().top_k, bank.width, bank.inner,
                         act_of(plan.weight(bank.gate[0])), act_of(plan.weight(bank.down[0])));
    return {work.bytes, 0};
}

// Some experts, over all rows that chose them: from work.x to work.down.
void compute(const Step& s, const Instruction& now, const Workspace& work, std::span<const Expert> group, const Bank& shape) {
    const Kernels& kernels = s.kernels;
    const Glu& glu = now.node->as<ExpertsParams>().glu;
    const int64_t width = shape.width, inner = shape.inner, count = static_cast<int64_t>(group.size());
    const int threads = s.pool.threads();
    const auto begin = [&](const Expert& expert) { return static_cast<size_t>(work.begins[expert.index]); };
    const auto end = [&](const Expert& expert) { return static_cast<size_t>(work.begins[expert.index + 1]); };

    const int64_t gate_rows = panel(2 * inner * count, threads), gate_panels = (inner + gate_rows - 1) / gate_rows;
    s.pool.run(count * gate_panels, [&](int64_t unit, int) {
        const Expert& expert = group[static_cast<size_t>(unit / gate_panels)];
        const int64_t n0 = unit % gate_panels * gate_rows, n1 = std::min(inner, n0 + gate_rows);
        const size_t p0 = begin(expert), p1 = end(expert);
        const auto apart = static_cast<int64_t>(work.inner_stride / sizeof(float));
        const auto multiply = [&](const Matrix& matrix, uint8_t* to) {
            kernels.matmul(matrix, n0, n1, work.x + p0 * work.x_stride, work.x_stride, static_cast<int64_t>(p1 - p0),
                           reinterpret_cast<float*>(to + p0 * work.inner_stride), apart);
        };
        multiply(expert.gate, work.gate);
        multiply(expert.up, work.up);
        for (size_t p = p0; p < p1; p++) {
            const auto row = [&](uint8_t* of) { return reinterpret_cast<float*>(of + p * work.inner_stride) + n0; };
            glu.run(kernels, row(work.gate), row(work.up), n1 - n0, row(work.hidden));
        }
    });

    if (work.h != work.hidden) {
        std::vector<size_t> pairs;
        for (const Expert& expert : group)
            for (size_t p = begin(expert); p < end(expert); p++) pairs.push_back(p);
        const auto quantize = [&](int64_t i, int) {
            const size_t p = pairs[static_cast<size_t>(i)];
            kernels.quantize(now.hidden_act, reinterpret_cast<const float*>(work.hidden + p * work.inner_stride), inner,
                             work.h + p * work.h_stride);
        };
        const auto some = static_cast<int64_t>(pairs.size());
        if (some * inner < 16384)
            for (int64_t i = 0; i < some; i++) quantize(i, 0);
        else
            s.pool.run(some, quantize);
    }

    const int64_t down_rows = panel(width * count, threads), down_panels = (width + down_rows - 1) / down_rows;
    s.pool.run(count * down_panels, [&](int64_t unit, int) {
        const Expert& expert = group[static_cast<size_t>(unit / down_panels)];
        const int64_t n0 = unit % down_panels * down_rows, n1 = std::min(width, n0 + down_rows);
        const size_t p0 = begin(expert), p1 = end(expert);
        kernels.matmul(expert.down, n0, n1, work.h + p0 * work.h_stride, work.h_stride, static_cast<int64_t>(p1 - p0),
                       reinterpret_cast<float*>(work.down + p0 * work.width_stride),
                       static_cast<int64_t>(work.width_stride / sizeof(float)));
    });
}

void run_experts(const Step& s, const Instruction& now) {
    const Kernels& kernels = s.kernels;
    const int routes = now.in[1], activations = now.in[2];
    const int64_t rows = s.batch.count(now.rows), top_k = now.node->as<ExpertsParams>().top_k;
    const Bank& shape = s.plan.banks[static_cast<size_t>(now.node->bank)];
    const int64_t width = shape.width;
    const Workspace work(s.scratch.shared.data(), shape.experts(), rows * top_k, width, shape.inner, now.act, now.hidden_act);

    sort_pairs(s, routes, rows, top_k, shape.experts(), work);
    ExpertBank& bank = s.experts[now.node->bank];
    bank.ask(demands_of(work.begins, shape.experts()));
    s.each_row(now.rows, top_k * width / 4, [&](int64_t i) {
        for (int64_t j = 0; j < top_k; j++)
            std::memcpy(work.x + static_cast<size_t>(work.place[i * top_k + j]) * work.x_stride, s.bytes(activations, i),
                        act_bytes(now.act, width));
    });
    for (auto group = bank.next(); !group.empty(); group = bank.next()) compute(s, now, work, group, shape);

    // A row's experts are added in the order of its routes, whatever the other rows chose.
    s.each_row(now.rows, top_k * width, [&](int64_t i) {
        float* y = s.row(now.out, i);
        std::fill_n(y, width, 0.0f);
        for (int64_t j = 0; j < top_k; j++)
            kernels.axpy(s.row(routes, i)[top_k + j],
                         reinterpret_cast<const float*>(work.down + static_cast<size_t>(work.place[i * top_k + j]) * work.width_stride),
                         y, width);
    });
}

}  // namespace

extern const Op kExperts{.name = "experts",
                         .inputs = exactly(2),
                         .check = check_experts,
                         .run = run_experts,
                         .needs = experts_needs,
                         .form = Op::Form::Experts};

}  // namespace colibri
