// Ops that bring values into place: rows of a table, parts of rows and sums of them, and what the compiler adds between ops.
#include <algorithm>
#include <vector>

#include "ops/step.h"

namespace colibri {

namespace {

std::unique_ptr<Params> check_embed(Inspection& at) {
    const Weight& table = at.weight(0);
    // Rows behind the vocabulary are padding.
    if (table.rows < at.vocab()) at.refuse("weight '", table.name, "' has ", table.rows, " rows for a vocabulary of ", at.vocab());
    at.same("width of the result", at.out(), table.cols());
    return nullptr;
}

void run_embed(const Step& s, const Instruction& now) {
    const Matrix& table = s.plan.weight(*now.node, 0).matrix;
    s.each_row(now.rows, table.cols, [&](int64_t i) {
        const size_t row = s.batch.row(now.rows, i);
        if (s.batch.codes.contains(static_cast<int64_t>(row))) std::fill_n(s.row(now.out, i), table.cols, 0.0f);
        else s.kernels.dequantize(table, s.batch.tokens[row], s.row(now.out, i));
    });
}

struct Slice : Params {
    int64_t group, offset, width;
};

std::unique_ptr<Params> check_slice(Inspection& at) {
    auto slice = std::make_unique<Slice>();
    slice->group = at.integer("group", 1, Inspection::kAny);
    at.divides("group", slice->group, at.width(0));
    slice->width = at.integer("width", 1, slice->group);
    slice->offset = at.integer("offset", 0, slice->group - slice->width);
    at.same("width of the result", at.out(), at.width(0) / slice->group * slice->width);
    return slice;
}

void run_slice(const Step& s, const Instruction& now) {
    const Slice& slice = now.node->as<Slice>();
    const int64_t width = s.buffer(now.out).width, runs = width / slice.width;
    s.each_row(now.rows, width, [&](int64_t i) {
        const float* x = s.row(now.in[0], i) + slice.offset;
        float* y = s.row(now.out, i);
        for (int64_t r = 0; r < runs; r++) std::copy_n(x + r * slice.group, slice.width, y + r * slice.width);
    });
}

struct Concat : Params {
    int64_t groups;
    std::vector<int64_t> runs;  // width of each input's
};

std::unique_ptr<Params> check_concat(Inspection& at) {
    auto concat = std::make_unique<Concat>();
    concat->groups = at.integer("groups", 1, Inspection::kAny);
    int64_t width = 0;
    for (size_t input = 0; input < at.inputs(); input++) {
        at.divides("groups", concat->groups, at.width(input));
        concat->runs.push_back(at.width(input) / concat->groups);
        width += at.width(input);
    }
    at.same("width of the result", at.out(), width);
    return concat;
}

void run_concat(const Step& s, const Instruction& now) {
    const Concat& concat = now.node->as<Concat>();
    const int64_t width = s.buffer(now.out).width, whole = width / concat.groups;
    s.each_row(now.rows, width, [&](int64_t i) {
        float* y = s.row(now.out, i);
        for (size_t input = 0; input < now.in.size(); input++) {
            const float* x = s.row(now.in[input], i);
            const int64_t run = concat.runs[input];
            for (int64_t g = 0; g < concat.groups; g++) std::copy_n(x + g * run, run, y + g * whole);
            y += run;
        }
    });
}

std::unique_ptr<Params> check_tile(Inspection& at) {
    const int64_t times = at.integer("times", 1, Inspection::kAny);
    at.same("width of the result", at.out(), times * at.width(0));
    return nullptr;
}

void run_tile(const Step& s, const Instruction& now) {
    const int64_t width = s.buffer(now.out).width, run = s.buffer(now.in[0]).width;
    s.each_row(now.rows, width, [&](int64_t i) {
        for (int64_t j = 0; j < width; j += run) std::copy_n(s.row(now.in[0], i), run, s.row(now.out, i) + j);
    });
}

struct Sum : Params {
    std::vector<float> ones;  // as many as a run has values
};

std::unique_ptr<Params> check_sum(Inspection& at) {
    const int64_t group = at.integer("group", 1, Inspection::kAny);
    at.divides("group", group, at.width(0));
    at.same("width of the result", at.out(), at.width(0) / group);
    auto sum = std::make_unique<Sum>();
    sum->ones.assign(static_cast<size_t>(group), 1.0f);
    return sum;
}

void run_sum(const Step& s, const Instruction& now) {
    const std::vector<float>& ones = now.node->as<Sum>().ones;
    const int64_t runs = s.buffer(now.out).width, group = static_cast<int64_t>(ones.size());
    s.each_row(now.rows, runs * group, [&](int64_t i) {
        const float* x = s.row(now.in[0], i);
        for (int64_t r = 0; r < runs; r++) s.row(now.out, i)[r] = s.kernels.dot(x + r * group, ones.data(), group);
    });
}

struct Mix : Params {
    int64_t n;
    std::vector<float> equal;  // shares, where none are given
};

std::unique_ptr<Params> check_mix(Inspection& at) {
    auto mix = std::make_unique<Mix>();
    mix->n = at.integer("n", 1, Inspection::kAny);
    at.divides("n", mix->n, at.width(0));
    at.same("width of the result", at.out(), at.width(0) / mix->n);
    if (at.has(1)) at.same("width of shares", at.width(1), mix->n);
    else mix->equal.assign(static_cast<size_t>(mix->n), 1 / static_cast<float>(mix->n));
    return mix;
}

void run_mix(const Step& s, const Instruction& now) {
    const Mix& mix = now.node->as<Mix>();
    const int64_t width = s.buffer(now.out).width;
    s.each_row(now.rows, mix.n * width, [&](int64_t i) {
        const float* shares = now.has(1) ? s.row(now.in[1], i) : mix.equal.data();
        s.kernels.mix(shares, s.row(now.in[0], i), width, mix.n, width, s.row(now.out, i));
    });
}

}  // namespace

extern const Op kEmbed{.name = "embed", .inputs = exactly(0), .weights = exactly(1), .check = check_embed, .run = run_embed};
extern const Op kSlice{.name = "slice", .inputs = exactly(1), .check = check_slice, .run = run_slice};
extern const Op kConcat{.name = "concat", .inputs = at_least(1), .check = check_concat, .run = run_concat};
extern const Op kTile{.name = "tile", .inputs = exactly(1), .check = check_tile, .run = run_tile};
extern const Op kSum{.name = "sum", .inputs = exactly(1), .check = check_sum, .run = run_sum};
extern const Op kMix{.name = "mix", .inputs = {1, 2, 0b10}, .check = check_mix, .run = run_mix};

void run_gather(const Step& s, const Instruction& now) {
    const int64_t width = s.buffer(now.out).width;
    s.each_row(now.rows, width, [&](int64_t i) {
        std::copy_n(s.row(now.in[0], s.batch.wanted[static_cast<size_t>(i)]), width, s.row(now.out, i));
    });
}

void run_quantize(const Step& s, const Instruction& now) {
    const int64_t width = s.buffer(now.in[0]).width;
    s.each_row(now.rows, width, [&](int64_t i) { s.kernels.quantize(now.act, s.row(now.in[0], i), width, s.bytes(now.out, i)); });
}

}  // namespace colibri
