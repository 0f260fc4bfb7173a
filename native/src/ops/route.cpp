// Mixture of experts: choosing them.
#include "ops/route.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/step.h"

namespace colibri {

namespace {

enum Score { kSoftmax, kSigmoid, kRootSoftplus };

enum Weights : size_t { kBias, kTable };

constexpr float kLowest = -std::numeric_limits<float>::infinity();

struct RouteParams : Params {
    Routing routing;
    int score;
    int64_t groups, top_groups;
    bool normalise;
    float factor;
};

std::unique_ptr<Params> check_route(Inspection& at) {
    auto params = std::make_unique<RouteParams>();
    const int64_t shared = at.integer("shared", 0, at.width(0) - 1, 0), experts = at.width(0) - shared;
    // Indices travel as floats, which hold integers up to 2^24 exactly.
    const int64_t top_k = at.integer("top_k", 1, std::min<int64_t>(experts, 1024));
    params->routing = {experts, top_k, shared};
    params->score = at.word("score", {"softmax", "sigmoid", "root_softplus"}, "softmax");
    params->groups = at.integer("groups", 1, std::min<int64_t>(experts, 1024), 1);
    params->top_groups = at.integer("top_groups", 1, params->groups, 1);
    at.divides("groups", params->groups, experts);
    if (params->top_groups * (experts / params->groups) < top_k)
        at.refuse(params->top_groups, " groups of ", experts / params->groups, " experts, ", top_k, " are to be chosen");
    params->normalise = at.flag("normalise");
    params->factor = at.number("factor", 1);
    if (at.has_weight(kBias)) at.vector(kBias, experts);
    if (at.has_weight(kBias) && at.has_weight(kTable)) at.refuse("a bias and a table can't both choose");
    if (at.has_weight(kTable)) {
        const Weight& table = at.weight(kTable);
        if (table.rows < at.vocab()) at.refuse("weight '", table.name, "' has ", table.rows, " rows for a vocabulary of ", at.vocab());
        at.vector(kTable, top_k, table.rows);
        for (size_t i = 0; i < table.vector.size(); i++) {
            const float index = table.vector[i];
            if (!(index >= 0 && index < static_cast<float>(experts)) || index != std::floor(index))
                at.refuse("weight '", table.name, "' names expert ", index, " of ", experts, " in row ", i / static_cast<size_t>(top_k));
        }
    }
    at.same("width of the result", at.out(), 2 * top_k + shared);
    return params;
}

// Of one row: all scores, the ranks of those to choose from, the groups' ranks and the groups that are kept.
int64_t scratch_floats(const RouteParams& params) {
    return 2 * params.routing.experts + params.routing.shared + params.groups + params.top_groups;
}

Needs route_needs(const Plan&, const Node& node, const Limits&) {
    return {0, static_cast<uint64_t>(scratch_floats(node.as<RouteParams>())) * sizeof(float)};
}

void score_all(const Kernels& kernels, int score, float* x, int64_t n) {
    switch (score) {
        case kSoftmax: kernels.softmax(x, n); break;
        case kSigmoid:
            for (int64_t j = 0; j < n; j++) x[j] = 1 / (1 + std::exp(-x[j]));
            break;
        case kRootSoftplus:
            for (int64_t j = 0; j < n; j++) x[j] = std::sqrt(std::max(x[j], 0.0f) + std::log1p(std::exp(-std::abs(x[j]))));
            break;
    }
}

// Whether a rank is the better one; NaN is worse than anything, so that there is always a choice.
bool beats(float a, float b) { return a > b || (std::isnan(b) && !std::isnan(a)); }

// The places of the `count` best ranks, the best first; of equals the lower place.
void best(const float* rank, int64_t n, int64_t count, float* places) {
    const auto of = [&](float place) { return rank[static_cast<int64_t>(place)]; };
    int64_t held = 0;
    for (int64_t e = 0; e < n; e++) {
        if (held == count && !beats(rank[e], of(places[held - 1]))) continue;
        int64_t at = held < count ? held++ : held - 1;
        for (; at > 0 && beats(rank[e], of(places[at - 1])); at--) places[at] = places[at - 1];
        places[at] = static_cast<float>(e);
    }
}

// The sum of the two best, or the only one.
float rank_of_group(const float* rank, int64_t n) {
    float first = kLowest, second = kLowest;
    for (int64_t e = 0; e < n; e++) {
        if (rank[e] > first) {
            second = first;
            first = rank[e];
        } else if (rank[e] > second) {
            second = rank[e];
        }
    }
    return n == 1 ? first : first + second;
}

// Takes the experts of all groups but the best out of the choice.
void drop_groups(const RouteParams& params, float* rank, float* group_rank, float* kept) {
    const int64_t size = params.routing.experts / params.groups;
    for (int64_t g = 0; g < params.groups; g++) group_rank[g] = rank_of_group(rank + g * size, size);
    best(group_rank, params.groups, params.top_groups, kept);
    for (int64_t g = 0; g < params.groups; g++)
        if (std::find(kept, kept + params.top_groups, static_cast<float>(g)) == kept + params.top_groups)
            std::fill_n(rank + g * size, size, std::numeric_limits<float>::quiet_NaN());
}

void run_route(const Step& s, const Instruction& now) {
    const auto& params = now.node->as<RouteParams>();
    const auto [experts, top_k, shared] = params.routing;
    const float* bias = now.node->has_weight(kBias) ? s.vector(now, kBias) : nullptr;
    const float* table = now.node->has_weight(kTable) ? s.vector(now, kTable) : nullptr;
    s.pool.run(s.batch.count(now.rows), [&, experts, top_k, shared](int64_t i, int thread) {
        float* score = s.scratch.floats(thread);
        std::copy_n(s.row(now.in[0], i), experts + shared, score);
        score_all(s.kernels, params.score, score, experts + shared);
        float* index = s.row(now.out, i);
        if (table) {
            std::copy_n(table + s.batch.tokens[s.batch.row(now.rows, i)] * top_k, top_k, index);
        } else {
            float* rank = score + experts + shared;
            for (int64_t e = 0; e < experts; e++) rank[e] = bias ? score[e] + bias[e] : score[e];
            if (params.top_groups < params.groups) drop_groups(params, rank, rank + experts, rank + experts + params.groups);
            best(rank, experts, top_k, index);
        }
        float* weight = index + top_k;
        for (int64_t j = 0; j < top_k; j++) weight[j] = score[static_cast<int64_t>(index[j])];
        std::copy_n(score + experts, shared, weight + top_k);
        if (params.normalise) {
            float sum = 0;
            for (int64_t j = 0; j < top_k + shared; j++) sum += weight[j];
            // These may all be 0, where shares of a softmax can not.
            if (params.score != kSoftmax) sum += 1e-20f;
            for (int64_t j = 0; j < top_k + shared; j++) weight[j] /= sum;
        }
        for (int64_t j = 0; j < top_k + shared; j++) weight[j] *= params.factor;
    });
}

}  // namespace

extern const Op kRoute{.name = "route",
                       .inputs = exactly(1),
                       .weights = {0, 2, 3},
                       .check = check_route,
                       .run = run_route,
                       .needs = route_needs};

const Routing* routing_of(const Node& node) { return node.op == &kRoute ? &node.as<RouteParams>().routing : nullptr; }

}  // namespace colibri
