// Ops that look at one value, or one pair of values, at a time. Results may land on an input.
#include <algorithm>
#include <cmath>

#include "ops/glu.h"
#include "ops/step.h"

namespace colibri {

namespace {

// `cost`: of a value, as a number of plain ones.
template <class F>
void map_rows(const Step& s, const Instruction& now, const F& f, int64_t cost = 1) {
    const int64_t width = s.buffer(now.out).width;
    s.each_row(now.rows, cost * width, [&](int64_t i) {
        const float* a = s.row(now.in[0], i);
        float* y = s.row(now.out, i);
        for (int64_t j = 0; j < width; j++) y[j] = f(a[j]);
    });
}

// Each value of b meets a run of a's.
template <class F>
void zip_rows(const Step& s, const Instruction& now, const F& f) {
    const int64_t width = s.buffer(now.out).width, runs = s.buffer(now.in[1]).width, run = width / runs;
    s.each_row(now.rows, width, [&](int64_t i) {
        const float* a = s.row(now.in[0], i);
        const float* b = s.row(now.in[1], i);
        float* y = s.row(now.out, i);
        if (run == 1) {
            for (int64_t j = 0; j < width; j++) y[j] = f(a[j], b[j]);
        } else {
            for (int64_t r = 0; r < runs; r++)
                for (int64_t j = r * run; j < (r + 1) * run; j++) y[j] = f(a[j], b[r]);
        }
    });
}

std::unique_ptr<Params> check_pair(Inspection& at) {
    at.same("width of a", at.width(0), at.out());
    at.divides("width of b", at.width(1), at.out());
    return nullptr;
}

void run_add(const Step& s, const Instruction& now) {
    zip_rows(s, now, [](float a, float b) { return a + b; });
}

void run_mul(const Step& s, const Instruction& now) {
    zip_rows(s, now, [](float a, float b) { return a * b; });
}

struct Line : Params {
    float factor, shift;
};

std::unique_ptr<Params> check_scale(Inspection& at) {
    at.same("width of x", at.width(0), at.out());
    auto line = std::make_unique<Line>();
    line->factor = at.number("factor");
    line->shift = at.number("shift", 0);
    return line;
}

void run_scale(const Step& s, const Instruction& now) {
    const Line& line = now.node->as<Line>();
    map_rows(s, now, [factor = line.factor, shift = line.shift](float a) { return a * factor + shift; });
}

struct Range : Params {
    float low, high;
};

std::unique_ptr<Params> check_clamp(Inspection& at) {
    at.same("width of x", at.width(0), at.out());
    auto range = std::make_unique<Range>();
    range->low = at.number("low");
    range->high = at.number("high");
    if (range->low > range->high) at.refuse("low ", range->low, " is above high ", range->high);
    return range;
}

void run_clamp(const Step& s, const Instruction& now) {
    const Range& range = now.node->as<Range>();
    // NaN stays NaN: both comparisons are false.
    map_rows(s, now, [low = range.low, high = range.high](float a) { return a < low ? low : (a > high ? high : a); });
}

std::unique_ptr<Params> check_weighted(Inspection& at) {
    at.same("width of x", at.width(0), at.out());
    at.vector(0, -1);
    at.divides("length of the weight", at.weight(0).cols(), at.out());
    return nullptr;
}

// The weight meets every run of as many values.
template <class F>
void weigh_rows(const Step& s, const Instruction& now, const F& f) {
    const int64_t width = s.buffer(now.out).width, n = s.plan.weight(*now.node, 0).cols();
    const float* w = s.vector(now, 0);
    s.each_row(now.rows, width, [&](int64_t i) {
        const float* x = s.row(now.in[0], i);
        float* y = s.row(now.out, i);
        for (int64_t r = 0; r < width; r += n)
            for (int64_t j = 0; j < n; j++) y[r + j] = f(x[r + j], w[j]);
    });
}

void run_add_weight(const Step& s, const Instruction& now) {
    weigh_rows(s, now, [](float x, float w) { return x + w; });
}

void run_mul_weight(const Step& s, const Instruction& now) {
    weigh_rows(s, now, [](float x, float w) { return x * w; });
}

enum class Kind { Silu, Sigmoid, Softplus, Tanh, Softcap, Root };

struct Activation : Params {
    Kind kind;
    float limit;
};

std::unique_ptr<Params> check_activate(Inspection& at) {
    at.same("width of x", at.width(0), at.out());
    auto activation = std::make_unique<Activation>();
    activation->kind = static_cast<Kind>(at.word("kind", {"silu", "sigmoid", "softplus", "tanh", "softcap", "root"}, ""));
    const bool limited = activation->kind == Kind::Softcap || activation->kind == Kind::Root;
    activation->limit = limited ? at.positive("limit") : at.number("limit", 0);
    return activation;
}

void run_activate(const Step& s, const Instruction& now) {
    const Activation& activation = now.node->as<Activation>();
    const float limit = activation.limit;
    constexpr int64_t kCost = 8;
    const auto map = [&](const auto& f) { map_rows(s, now, f, kCost); };
    switch (activation.kind) {
        case Kind::Silu: return map([](float x) { return x / (1 + std::exp(-x)); });
        case Kind::Sigmoid: return map([](float x) { return 1 / (1 + std::exp(-x)); });
        case Kind::Softplus: return map([](float x) { return std::log1p(std::exp(-std::abs(x))) + (x < 0 ? 0 : x); });
        case Kind::Tanh: return map([](float x) { return std::tanh(x); });
        case Kind::Softcap: return map([limit](float x) { return limit * std::tanh(x / limit); });
        case Kind::Root:
            return map([limit](float x) {
                const float size = std::abs(x), root = std::sqrt(size < limit ? limit : size);
                return x > 0 ? root : x < 0 ? -root : x;
            });
    }
}

struct LogScale : Params {
    float floor, alpha;
};

std::unique_ptr<Params> check_log_scale(Inspection& at) {
    at.same("width of x", at.width(0), at.out());
    auto scale = std::make_unique<LogScale>();
    scale->floor = at.positive("floor");
    scale->alpha = at.number("alpha");
    return scale;
}

void run_log_scale(const Step& s, const Instruction& now) {
    const LogScale& scale = now.node->as<LogScale>();
    const int64_t width = s.buffer(now.out).width;
    s.each_row(now.rows, width, [&](int64_t i) {
        const auto count = static_cast<double>(s.batch.positions[s.batch.row(now.rows, i)] + 1);
        const auto factor = static_cast<float>(1 + scale.alpha * std::log(std::max(count / scale.floor, 1.0)));
        const float* x = s.row(now.in[0], i);
        float* y = s.row(now.out, i);
        for (int64_t j = 0; j < width; j++) y[j] = x[j] * factor;
    });
}

struct GluParams : Params {
    Glu glu;
};

std::unique_ptr<Params> check_glu(Inspection& at) {
    at.same("width of gate", at.width(0), at.out());
    at.same("width of up", at.width(1), at.out());
    auto params = std::make_unique<GluParams>();
    params->glu = read_glu(at);
    return params;
}

void run_glu(const Step& s, const Instruction& now) {
    const Glu& glu = now.node->as<GluParams>().glu;
    // exp makes a value cost about eight times a plain one.
    const int64_t width = s.buffer(now.out).width;
    constexpr int64_t kColumns = 2048;
    const int64_t columns = (width + kColumns - 1) / kColumns;
    const int64_t units = s.batch.count(now.rows) * columns;
    const auto unit = [&](int64_t u, int) {
        const int64_t i = u / columns, begin = u % columns * kColumns, n = std::min(kColumns, width - begin);
        glu.run(s.kernels, s.row(now.in[0], i) + begin, s.row(now.in[1], i) + begin, n, s.row(now.out, i) + begin);
    };
    if (units * std::min(width, kColumns) < 4096)
        for (int64_t u = 0; u < units; u++) unit(u, 0);
    else
        s.pool.run(units, unit);
}

}  // namespace

extern const Op kAdd{.name = "add", .inputs = exactly(2), .check = check_pair, .run = run_add, .in_place = true};
extern const Op kMul{.name = "mul", .inputs = exactly(2), .check = check_pair, .run = run_mul, .in_place = true};
extern const Op kScale{.name = "scale", .inputs = exactly(1), .check = check_scale, .run = run_scale, .in_place = true};
extern const Op kClamp{.name = "clamp", .inputs = exactly(1), .check = check_clamp, .run = run_clamp, .in_place = true};
extern const Op kAddWeight{.name = "add_weight",
                           .inputs = exactly(1),
                           .weights = exactly(1),
                           .check = check_weighted,
                           .run = run_add_weight,
                           .in_place = true};
extern const Op kMulWeight{.name = "mul_weight",
                           .inputs = exactly(1),
                           .weights = exactly(1),
                           .check = check_weighted,
                           .run = run_mul_weight,
                           .in_place = true};
extern const Op kActivate{
    .name = "activate", .inputs = exactly(1), .check = check_activate, .run = run_activate, .in_place = true};
extern const Op kLogScale{
    .name = "log_scale", .inputs = exactly(1), .check = check_log_scale, .run = run_log_scale, .in_place = true};
extern const Op kGlu{.name = "glu", .inputs = exactly(2), .check = check_glu, .run = run_glu};

}  // namespace colibri
