// What stands for a row that is no token: the sum of a table's rows, one for each of its codes.
#include <algorithm>

#include "ops/step.h"

namespace colibri {

namespace {

struct CodesParams : Params {
    int64_t stride;
};

constexpr int64_t kMost = 1 << 16;  // of codes, and of what one may be

std::unique_ptr<Params> check_codes(Inspection& at) {
    auto params = std::make_unique<CodesParams>();
    const int64_t each = at.integer("each", 1, kMost);
    params->stride = at.integer("stride", 1, kMost);
    at.matrix(0, each * params->stride, at.out());
    at.reads({each, params->stride});
    return params;
}

Needs codes_need(const Plan& plan, const Node& node, const Limits&) {
    return {0, static_cast<uint64_t>(plan.weight(node, 0).cols()) * sizeof(float)};
}

void run_codes(const Step& s, const Instruction& now) {
    const Matrix& table = s.plan.weight(*now.node, 0).matrix;
    const int64_t stride = now.node->as<CodesParams>().stride;
    if (s.batch.codes.empty()) {
        s.each_row(now.rows, table.cols, [&](int64_t i) { std::fill_n(s.row(now.out, i), table.cols, 0.0f); });
        return;
    }
    s.pool.run(s.batch.count(now.rows), [&](int64_t i, int thread) {
        float *y = s.row(now.out, i), *x = s.scratch.floats(thread);
        std::fill_n(y, table.cols, 0.0f);
        int64_t first = 0;
        for (uint16_t code : s.batch.codes_of(static_cast<int64_t>(s.batch.row(now.rows, i)))) {
            s.kernels.dequantize(table, first + code, x);
            s.kernels.axpy(1, x, y, table.cols);
            first += stride;
        }
    });
}

}  // namespace

extern const Op kCodes{.name = "codes",
                       .inputs = exactly(0),
                       .weights = exactly(1),
                       .check = check_codes,
                       .run = run_codes,
                       .needs = codes_need};

}  // namespace colibri
