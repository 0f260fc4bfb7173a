// The rows of an index that suit a query best, for attention to look at no others.
#include "ops/select.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "error.h"
#include "ops/step.h"

namespace colibri {

extern const Op kSelect;

namespace {

constexpr int64_t kTile = 512;  // rows scored together
constexpr int64_t kBatch = 8;   // rows of the step that share reads of the index

// Row numbers are values, and values are floats: whole numbers up to here are exact.
constexpr int64_t kMostPositions = int64_t{1} << 24;

struct SelectParams : Params {
    int64_t heads, width, budget, every;
    float scale;
    bool expand;
    Selection selection;
};

int64_t padded(int64_t floats) { return (floats + 15) / 16 * 16; }

std::unique_ptr<Params> check_select(Inspection& at) {
    auto params = std::make_unique<SelectParams>();
    params->heads = at.integer("heads", 1, Inspection::kAny);
    params->budget = at.integer("budget", 1, Inspection::kAny);
    params->every = at.integer("every", 1, Inspection::kAny, 1);
    params->scale = at.number("scale");
    params->expand = at.flag("expand");
    at.divides("heads", params->heads, at.width(0));
    params->width = at.width(0) / params->heads;
    if (at.has(2)) at.same("width of weights", at.width(2), params->heads);
    if (at.has(1)) {
        at.same("width of k", at.width(1), params->width);
        at.same("every", params->every, 1);
        at.rows(0, {params->width}, 0);
    } else {
        at.same("every", params->every, at.filled(0, params->width).every);
    }
    const int64_t listed = params->expand ? params->budget * params->every + params->every - 1 : params->budget;
    at.same("width of the result", at.out(), listed);
    params->selection.every = params->expand ? 1 : params->every;
    return params;
}

struct Workspace {
    float* q;       // [heads, padded(width)]
    float* scores;  // [heads, kTile]
    Workspace(float* at, const SelectParams& params) : q(at), scores(at + params.heads * padded(params.width)) {}
    static int64_t floats(const SelectParams& params) { return params.heads * (padded(params.width) + kTile); }
};

int64_t most_rows(const SelectParams& params, int64_t context) { return padded(context / params.every); }

Needs select_needs(const Plan&, const Node& node, const Limits& limits) {
    const auto& params = node.as<SelectParams>();
    if (limits.context > kMostPositions)
        refuse("select: a context of ", limits.context, " is more than the ", kMostPositions, " positions that can be listed");
    const auto bytes = [](int64_t floats) { return static_cast<uint64_t>(floats) * sizeof(float); };
    return {bytes(kBatch * 2 * most_rows(params, limits.context)), bytes(Workspace::floats(params))};
}

// Scores of the rows begin .. end of one index for one query. A score that is no number is the lowest.
void score(const Kernels& kernels, const SelectParams& params, const float* keys, int64_t begin, int64_t end, const float* q,
           const float* weights, const Workspace& work, float* scores) {
    const int64_t n = end - begin;
    for (int64_t h = 0; h < params.heads; h++) std::copy_n(q + h * params.width, params.width, work.q + h * padded(params.width));
    kernels.matmul(dense(DType::F32, params.width, keys + begin * params.width), 0, n, work.q,
                   static_cast<size_t>(padded(params.width)) * sizeof(float), params.heads, work.scores, kTile);
    float* sums = scores + begin;
    std::fill_n(sums, n, 0.0f);
    for (int64_t h = 0; h < params.heads; h++) {
        const float weight = weights ? weights[h] : 1.0f;
        const float* products = work.scores + h * kTile;
        for (int64_t j = 0; j < n; j++) sums[j] += weight * std::max(0.0f, products[j] * params.scale);
    }
    for (int64_t j = 0; j < n; j++)
        if (std::isnan(sums[j])) sums[j] = -std::numeric_limits<float>::infinity();
}

// Writes numbers one behind the other, each as the row or as the positions it stands for.
struct Writer {
    const SelectParams& params;
    float* at;
    void row(int64_t row) {
        if (params.expand) positions(row * params.every, (row + 1) * params.every);
        else *at++ = static_cast<float>(row);
    }
    void positions(int64_t begin, int64_t end) {
        for (int64_t position = begin; position < end; position++) *at++ = static_cast<float>(position);
    }
};

// The `budget` highest of `count` scores, more than there may be. `sorted` is room for as many.
void choose(const float* scores, int64_t count, int64_t budget, float* sorted, Writer& list) {
    std::copy_n(scores, count, sorted);
    std::nth_element(sorted, sorted + budget - 1, sorted + count, std::greater<>());
    const float last = sorted[budget - 1];
    int64_t ties = budget - std::count_if(scores, scores + count, [&](float x) { return x > last; });
    for (int64_t row = 0; row < count; row++)
        if (scores[row] > last || (scores[row] == last && ties-- > 0)) list.row(row);
}

void run_select(const Step& s, const Instruction& now) {
    const auto& params = now.node->as<SelectParams>();
    RowState& state = s.slots.rows(now.node->states[0]);
    if (now.has(1))
        s.each_row(Rows::All, params.width, [&](int64_t i) {
            std::copy_n(s.row(now.in[1], i), params.width, state.at(s.batch.slot(i), 0, s.batch.position(i)));
        });

    const int64_t rows = s.batch.count(now.rows), apart = most_rows(params, s.slots.context());
    auto* scores = reinterpret_cast<float*>(s.scratch.shared.data());
    float* sorted = scores + kBatch * apart;
    const auto position = [&](int64_t i) { return s.batch.positions[s.batch.row(now.rows, i)]; };
    const auto visible = [&](int64_t i) { return (position(i) + 1) / params.every; };
    for (int64_t first = 0; first < rows; first += kBatch) {
        const int64_t count = std::min(kBatch, rows - first);
        int64_t most = 0;  // rows that have to be scored
        for (int64_t i = first; i < first + count; i++)
            if (visible(i) > params.budget) most = std::max(most, visible(i));
        s.pool.run((most + kTile - 1) / kTile, [&](int64_t tile, int thread) {
            const Workspace work(s.scratch.floats(thread), params);
            for (int64_t i = first; i < first + count; i++) {
                const int64_t begin = tile * kTile, end = std::min(begin + kTile, visible(i));
                if (visible(i) <= params.budget || begin >= end) continue;
                const float* keys = state.at(s.batch.slots[s.batch.row(now.rows, i)], 0, 0);
                score(s.kernels, params, keys, begin, end, s.row(now.in[0], i), now.has(2) ? s.row(now.in[2], i) : nullptr, work,
                      scores + (i - first) * apart);
            }
        });
        s.pool.run(count, [&](int64_t index, int) {
            const int64_t i = first + index;
            Writer list{params, s.row(now.out, i)};
            float* end = list.at + s.buffer(now.out).width;
            if (visible(i) > params.budget)
                choose(scores + index * apart, visible(i), params.budget, sorted + index * apart, list);
            else
                for (int64_t row = 0; row < visible(i); row++) list.row(row);
            if (params.expand) list.positions(visible(i) * params.every, position(i) + 1);
            std::fill(list.at, end, -1.0f);
        });
    }
}

}  // namespace

const Selection* selection_of(const Node& node) {
    return node.op == &kSelect ? &node.as<SelectParams>().selection : nullptr;
}

extern const Op kSelect{.name = "select",
                        .inputs = {1, 3, 0b110},
                        .states = exactly(1),
                        .check = check_select,
                        .run = run_select,
                        .needs = select_needs,
                        .history = 2};

}  // namespace colibri
