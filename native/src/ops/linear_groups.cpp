// Runs of a row, each times its own rows of one weight.
#include <algorithm>

#include "ops/step.h"

namespace colibri {

namespace {

// Rows of activations a unit works on, and rows of the weight: see linear.cpp. They begin at multiples of these.
constexpr int64_t kRowBlock = 64;
constexpr int64_t kPanel = 64;

struct LinearGroups : Params {
    int64_t groups, first, stride;
    bool transposed;
    int64_t taken, made;  // values of a run of x, and of the result
};

std::unique_ptr<Params> check_linear_groups(Inspection& at) {
    const Weight& weight = at.weight(0);
    auto params = std::make_unique<LinearGroups>();
    params->groups = at.integer("groups", 1, Inspection::kAny);
    params->first = at.integer("first", 0, Inspection::kAny, 0);
    params->stride = at.integer("stride", 1, Inspection::kAny);
    params->transposed = at.flag("transposed");
    at.divides("groups", params->groups, at.width(0));
    at.divides("groups", params->groups, at.out());
    params->taken = at.width(0) / params->groups;
    params->made = at.out() / params->groups;
    const int64_t across = params->transposed ? params->made : params->taken;
    const int64_t rows = params->transposed ? params->taken : params->made;
    if (weight.cols() != across)
        at.refuse("weight '", weight.name, "' has ", weight.cols(), " columns for runs of ", across);
    const int64_t end = params->first + (params->groups - 1) * params->stride + rows;
    if (end > weight.rows) at.refuse("weight '", weight.name, "' has ", weight.rows, " rows, ", end, " are needed");
    const int64_t together = type_info(weight.matrix.type).together;
    if (!params->transposed && (params->first % together || params->stride % together))
        at.refuse("weight '", weight.name, "' has ", together, " rows interleaved, runs must begin at multiples of that");
    return params;
}

ActType act_of(const Matrix& matrix) { return type_info(matrix.type).act; }

Needs linear_groups_needs(const Plan& plan, const Node& node, const Limits& limits) {
    const auto& params = node.as<LinearGroups>();
    const Matrix& matrix = plan.weight(node, 0).matrix;
    if (params.transposed) return {0, static_cast<uint64_t>(matrix.cols) * sizeof(float)};
    if (act_of(matrix) == ActType::F32) return {};
    const auto runs = static_cast<uint64_t>(limits.max_rows) * static_cast<uint64_t>(params.groups);
    return {runs * act_bytes(act_of(matrix), matrix.cols), 0};
}

// The matrix from one of its rows on.
Matrix rows_from(Matrix matrix, int64_t row) {
    matrix.data = matrix.row(row);
    matrix.first += row * matrix.every;
    return matrix;
}

// Runs of x as activations: run g of row i stands at begin + i * pitch + g * run.
struct Activations {
    const uint8_t* begin;
    size_t pitch, run;
};

Activations activations(const Step& s, const Instruction& now, const LinearGroups& params, ActType act) {
    if (act == ActType::F32)
        return {s.bytes(now.in[0], 0), s.buffer(now.in[0]).stride, static_cast<size_t>(params.taken) * sizeof(float)};
    uint8_t* begin = s.scratch.shared.data();
    const size_t run = act_bytes(act, params.taken), pitch = static_cast<size_t>(params.groups) * run;
    s.each_row(now.rows, s.buffer(now.in[0]).width, [&](int64_t i) {
        for (int64_t g = 0; g < params.groups; g++)
            s.kernels.quantize(act, s.row(now.in[0], i) + g * params.taken, params.taken,
                               begin + static_cast<size_t>(i) * pitch + static_cast<size_t>(g) * run);
    });
    return {begin, pitch, run};
}

void multiply(const Step& s, const Instruction& now, const LinearGroups& params, const Matrix& matrix) {
    const int64_t m = s.batch.count(now.rows), blocks = (m + kRowBlock - 1) / kRowBlock;
    const int64_t panels = (params.made + kPanel - 1) / kPanel;
    const Activations x = activations(s, now, params, act_of(matrix));
    s.pool.run(params.groups * panels * blocks, [&](int64_t unit, int) {
        // Neighbouring units share weight rows, which are dearer to fetch than activations.
        const int64_t i0 = unit % blocks * kRowBlock, i1 = std::min(m, i0 + kRowBlock);
        const int64_t n0 = unit / blocks % panels * kPanel, n1 = std::min(params.made, n0 + kPanel);
        const int64_t g = unit / blocks / panels;
        s.kernels.matmul(rows_from(matrix, params.first + g * params.stride), n0, n1,
                         x.begin + static_cast<size_t>(i0) * x.pitch + static_cast<size_t>(g) * x.run, x.pitch, i1 - i0,
                         s.row(now.out, i0) + g * params.made, s.floats_apart(now.out));
    });
}

// Every value of the result is a sum over the weight's rows in their order, whatever other rows of x there are.
void multiply_transposed(const Step& s, const Instruction& now, const LinearGroups& params, const Matrix& matrix) {
    const int64_t m = s.batch.count(now.rows), blocks = (m + kRowBlock - 1) / kRowBlock;
    s.pool.run(params.groups * blocks, [&](int64_t unit, int thread) {
        const int64_t i0 = unit % blocks * kRowBlock, i1 = std::min(m, i0 + kRowBlock), g = unit / blocks;
        const auto result = [&](int64_t i) { return s.row(now.out, i) + g * params.made; };
        float* row = s.scratch.floats(thread);
        for (int64_t i = i0; i < i1; i++) std::fill_n(result(i), params.made, 0.0f);
        for (int64_t k = 0; k < params.taken; k++) {
            s.kernels.dequantize(matrix, params.first + g * params.stride + k, row);
            for (int64_t i = i0; i < i1; i++)
                s.kernels.axpy(s.row(now.in[0], i)[g * params.taken + k], row, result(i), params.made);
        }
    });
}

void run_linear_groups(const Step& s, const Instruction& now) {
    const auto& params = now.node->as<LinearGroups>();
    const Matrix& matrix = s.plan.weight(*now.node, 0).matrix;
    if (params.transposed) multiply_transposed(s, now, params, matrix);
    else multiply(s, now, params, matrix);
}

}  // namespace

extern const Op kLinearGroups{.name = "linear_groups",
                              .inputs = exactly(1),
                              .weights = exactly(1),
                              .check = check_linear_groups,
                              .run = run_linear_groups,
                              .needs = linear_groups_needs};

}  // namespace colibri
