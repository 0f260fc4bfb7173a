// Ops that bring a row, or runs of it, to a size.
#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/step.h"

namespace colibri {

namespace {

struct RmsParams : Params {
    float eps;
    int64_t group;            // values a mean is taken over
    std::vector<float> ones;  // in place of an absent weight
    bool whole;               // the weight is the row's, not a run's
    std::vector<float> shifted;  // 1 + weight
};

std::unique_ptr<Params> check_rms_norm(Inspection& at) {
    const int64_t width = at.width(0);
    auto params = std::make_unique<RmsParams>();
    params->eps = at.number("eps");
    if (params->eps < 0) at.refuse("eps is ", params->eps, ", it must not be negative");
    const int64_t group = at.integer("group", 0, Inspection::kAny, 0);
    if (group > 0 && width % group != 0) at.refuse("width ", width, " is no multiple of group ", group);
    params->group = group > 0 ? group : width;
    params->whole = false;
    const bool unit = at.flag("unit");
    if (at.has_weight(0)) {
        params->whole = at.weight(0).cols() == width;
        at.vector(0, params->whole ? width : params->group);
        if (unit)
            for (float w : at.weight(0).vector) params->shifted.push_back(1 + w);
    } else {
        params->ones.assign(static_cast<size_t>(params->group), 1.0f);
    }
    at.same("width of the result", at.out(), width);
    return params;
}

void run_rms_norm(const Step& s, const Instruction& now) {
    const auto& params = now.node->as<RmsParams>();
    const int64_t width = s.buffer(now.out).width, group = params.group;
    const float* weight = !params.ones.empty() ? params.ones.data()
                          : !params.shifted.empty() ? params.shifted.data()
                                                    : s.vector(now, 0);
    s.each_row(now.rows, width, [&](int64_t i) {
        const float* x = s.row(now.in[0], i);
        float* y = s.row(now.out, i);
        for (int64_t j = 0; j < width; j += group)
            s.kernels.rms_norm(x + j, weight + (params.whole ? j : 0), group, params.eps, y + j);
    });
}

struct LayerNorm : Params {
    float eps;
    std::vector<float> ones;
};

std::unique_ptr<Params> check_layer_norm(Inspection& at) {
    const int64_t width = at.width(0);
    at.same("width of the result", at.out(), width);
    at.vector(0, width);
    at.vector(1, width);
    auto params = std::make_unique<LayerNorm>();
    params->eps = at.number("eps");
    if (params->eps < 0) at.refuse("eps is ", params->eps, ", it must not be negative");
    params->ones.assign(static_cast<size_t>(width), 1.0f);
    return params;
}

void run_layer_norm(const Step& s, const Instruction& now) {
    const LayerNorm& params = now.node->as<LayerNorm>();
    const int64_t width = s.buffer(now.out).width;
    const float *weight = s.vector(now, 0), *bias = s.vector(now, 1);
    s.each_row(now.rows, 4 * width, [&](int64_t i) {
        const float* x = s.row(now.in[0], i);
        float* y = s.row(now.out, i);
        const float mean = s.kernels.dot(x, params.ones.data(), width) / static_cast<float>(width);
        for (int64_t j = 0; j < width; j++) y[j] = x[j] - mean;
        const float variance = s.kernels.dot(y, y, width) / static_cast<float>(width);
        const float scale = 1 / std::sqrt(variance + params.eps);
        for (int64_t j = 0; j < width; j++) y[j] = weight[j] * (y[j] * scale) + bias[j];
    });
}

struct Runs : Params {
    int64_t group;
    float limit = 0;
};

std::unique_ptr<Runs> check_runs(Inspection& at) {
    at.same("width of the result", at.out(), at.width(0));
    auto runs = std::make_unique<Runs>();
    runs->group = at.integer("group", 1, Inspection::kAny);
    at.divides("group", runs->group, at.width(0));
    return runs;
}

std::unique_ptr<Params> check_l2_clip(Inspection& at) {
    auto runs = check_runs(at);
    runs->limit = at.positive("limit");
    return runs;
}

void run_l2_clip(const Step& s, const Instruction& now) {
    const Runs& runs = now.node->as<Runs>();
    const int64_t width = s.buffer(now.out).width;
    s.each_row(now.rows, 2 * width, [&](int64_t i) {
        for (int64_t r = 0; r < width; r += runs.group) {
            const float* x = s.row(now.in[0], i) + r;
            float* y = s.row(now.out, i) + r;
            const float length = std::sqrt(s.kernels.dot(x, x, runs.group));
            const float share = std::min(runs.limit / (length + 1e-6f), 1.0f);
            for (int64_t j = 0; j < runs.group; j++) y[j] = x[j] * share;
        }
    });
}

std::unique_ptr<Params> check_softmax(Inspection& at) { return check_runs(at); }

void run_softmax(const Step& s, const Instruction& now) {
    const int64_t group = now.node->as<Runs>().group, width = s.buffer(now.out).width;
    s.each_row(now.rows, 8 * width, [&](int64_t i) {
        const float* x = s.row(now.in[0], i);
        float* y = s.row(now.out, i);
        if (x != y) std::copy_n(x, width, y);
        for (int64_t r = 0; r < width; r += group) s.kernels.softmax(y + r, group);
    });
}

}  // namespace

extern const Op kRmsNorm{
    .name = "rms_norm", .inputs = exactly(1), .weights = exactly(1, 1), .check = check_rms_norm, .run = run_rms_norm};
extern const Op kLayerNorm{.name = "layer_norm",
                           .inputs = exactly(1),
                           .weights = exactly(2),
                           .check = check_layer_norm,
                           .run = run_layer_norm,
                           .in_place = true};
extern const Op kL2Clip{
    .name = "l2_clip", .inputs = exactly(1), .check = check_l2_clip, .run = run_l2_clip, .in_place = true};
extern const Op kSoftmax{
    .name = "softmax", .inputs = exactly(1), .check = check_softmax, .run = run_softmax, .in_place = true};

}  // namespace colibri
