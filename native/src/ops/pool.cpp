// One row for every run of so many positions, such as the keys of an index.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/rope.h"
#include "ops/step.h"

namespace colibri {

namespace {

constexpr int64_t kColumns = 64;  // pooled together

struct PoolParams : Params {
    int64_t every, width, pooled;   // values of x, and of a row that is made
    int64_t kept;                   // of a raw row: x, then its gate
    bool gated, overlap, has_norm;
    float eps;
    std::vector<float> shifted;     // 1 + the norm's weight, if that is meant
    Turning turning;
};

std::unique_ptr<Params> check_pool(Inspection& at) {
    auto params = std::make_unique<PoolParams>();
    params->every = at.integer("every", 1, Inspection::kAny);
    params->overlap = at.flag("overlap");
    params->width = at.width(0);
    params->gated = at.has(1);
    if (params->gated) at.same("width of gate", at.width(1), params->width);
    else if (params->overlap || at.has_weight(0)) at.refuse("overlap and ape go with a gate");
    if (params->overlap) at.divides("half of x", 2, params->width);
    params->pooled = params->overlap ? params->width / 2 : params->width;
    params->kept = params->gated ? 2 * params->width : params->width;
    if (at.has_weight(0)) at.vector(0, params->width, params->every);
    params->eps = at.number("eps", 0);
    if (params->eps < 0) at.refuse("eps is ", params->eps, ", it must not be negative");
    const bool unit = at.flag("unit");
    params->has_norm = at.has_weight(1);
    if (params->has_norm) at.vector(1, params->pooled);
    if (params->has_norm && unit)
        for (float w : at.weight(1).vector) params->shifted.push_back(1 + w);
    if (at.gives("inv_freq")) params->turning = at.turning(params->pooled);
    at.rows(0, {params->kept}, params->overlap ? 2 * params->every : params->every);
    at.rows(1, {params->pooled}, 0, params->every);
    return params;
}

// A run of raw rows that is complete.
struct Complete {
    const PoolParams& params;
    const float* rows;  // its first; those of the run before lie in front of it
    const float* ape;   // or null
    bool joined;        // by the run before

    // Calls visit(x, gate, ape) for each of its rows, with the parts of `width` values that the pooled row is made of; the
    // last two may be null.
    template <class Visit>
    void each(const Visit& visit) const {
        const auto part = [&](int64_t row, int64_t of_ape, int64_t offset) {
            const float* x = rows + row * params.kept + offset;
            visit(x, params.gated ? x + params.width : nullptr, ape ? ape + of_ape * params.width + offset : nullptr);
        };
        if (joined)
            for (int64_t j = 0; j < params.every; j++) part(j - params.every, j, 0);
        for (int64_t j = 0; j < params.every; j++) part(j, j, params.overlap ? params.pooled : 0);
    }
};

void mean(const Complete& run, float* y) {
    const int64_t width = run.params.pooled;
    std::fill_n(y, width, 0.0f);
    run.each([&](const float* x, const float*, const float*) {
        for (int64_t c = 0; c < width; c++) y[c] += x[c];
    });
    for (int64_t c = 0; c < width; c++) y[c] /= static_cast<float>(run.params.every);
}

void gated_sum(const Complete& run, float* y) {
    for (int64_t first = 0; first < run.params.pooled; first += kColumns) {
        const int64_t n = std::min(kColumns, run.params.pooled - first);
        float peak[kColumns], total[kColumns] = {}, sum[kColumns] = {};
        std::fill_n(peak, kColumns, -std::numeric_limits<float>::infinity());
        const auto logit = [&](const float* gate, const float* ape, int64_t c) {
            return gate[first + c] + (ape ? ape[first + c] : 0.0f);
        };
        run.each([&](const float*, const float* gate, const float* ape) {
            for (int64_t c = 0; c < n; c++) peak[c] = std::max(peak[c], logit(gate, ape, c));
        });
        run.each([&](const float* x, const float* gate, const float* ape) {
            for (int64_t c = 0; c < n; c++) {
                const float e = std::exp(logit(gate, ape, c) - peak[c]);
                total[c] += e;
                sum[c] += e * x[first + c];
            }
        });
        for (int64_t c = 0; c < n; c++) y[first + c] = sum[c] / total[c];
    }
}

void run_pool(const Step& s, const Instruction& now) {
    const auto& params = now.node->as<PoolParams>();
    RowState& raw = s.slots.rows(now.node->states[0]);
    RowState& pooled = s.slots.rows(now.node->states[1]);
    s.each_row(Rows::All, params.kept, [&](int64_t i) {
        float* to = raw.at(s.batch.slot(i), 0, s.batch.position(i));
        std::copy_n(s.row(now.in[0], i), params.width, to);
        if (params.gated) std::copy_n(s.row(now.in[1], i), params.width, to + params.width);
    });

    const float* ape = now.node->has_weight(0) ? s.vector(now, 0) : nullptr;
    const float* norm = !params.shifted.empty() ? params.shifted.data() : params.has_norm ? s.vector(now, 1) : nullptr;
    s.each_row(Rows::All, params.kept, [&](int64_t i) {
        const int64_t slot = s.batch.slot(i), end = s.batch.position(i) + 1, begin = end - params.every;
        if (end % params.every != 0) return;
        float* y = pooled.at(slot, 0, begin / params.every);
        const Complete run{params, raw.at(slot, 0, begin), ape, params.overlap && begin > 0};
        if (params.gated) gated_sum(run, y);
        else mean(run, y);
        if (norm) s.kernels.rms_norm(y, norm, params.pooled, params.eps, y);
        for (size_t j = 0; j < params.turning.inv_freq.size(); j++)
            rotate(y, params.turning, static_cast<int64_t>(j), turn_of(begin, params.turning.inv_freq[j], params.turning.factor));
    });
}

}  // namespace

extern const Op kPool{.name = "pool",
                      .inputs = {1, 2, 0b10},
                      .weights = {0, 2, 0b11},
                      .states = exactly(2),
                      .check = check_pool,
                      .run = run_pool,
                      .makes_value = false};

}  // namespace colibri
