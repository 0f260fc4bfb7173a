// Rows of a table by hashes of the last tokens.
#include <algorithm>
#include <limits>

#include "ops/step.h"

namespace colibri {

namespace {

constexpr int64_t kMostOrders = 64;

struct NgramParams : Params {
    int64_t orders, heads, dim, eos;
    std::vector<uint64_t> multipliers, sizes, offsets;
    std::vector<int64_t> ends;  // of each part of the table, in rows of the whole

    const Matrix& part(const Plan& plan, const Node& node, int64_t& row) const {
        const auto at = std::upper_bound(ends.begin(), ends.end(), row);
        if (at != ends.begin()) row -= *std::prev(at);
        return plan.weight(node, static_cast<size_t>(at - ends.begin())).matrix;
    }
};

std::unique_ptr<Params> check_ngram(Inspection& at) {
    auto params = std::make_unique<NgramParams>();
    const auto numbers = [&](const char* name, int64_t low) {
        std::vector<uint64_t> all;
        for (int64_t value : at.integers(name)) {
            if (value < low) at.refuse(name, " holds ", value);
            all.push_back(static_cast<uint64_t>(value));
        }
        return all;
    };
    params->multipliers = numbers("multipliers", std::numeric_limits<int64_t>::min());
    params->sizes = numbers("sizes", 1);
    params->offsets = numbers("offsets", 0);
    const auto orders = params->orders = static_cast<int64_t>(params->multipliers.size());
    if (orders < 2 || orders > kMostOrders) at.refuse("multipliers are ", orders, ", not 2 to ", kMostOrders);
    params->heads = at.integer("heads", 1, 1 << 16);
    params->eos = at.integer("eos", 0, Inspection::kAny);
    const int64_t rows = params->heads * (orders - 1);
    at.same("number of sizes", static_cast<int64_t>(params->sizes.size()), rows);
    at.same("number of offsets", static_cast<int64_t>(params->offsets.size()), rows);
    params->dim = at.weight(0).cols();
    at.same("width of the result", at.out(), rows * params->dim);
    int64_t height = 0;  // stays below 2^53: at most 2^16 parts of 2^31 rows
    for (size_t i = 0; i < at.weights(); i++) {
        at.matrix(i, at.weight(i).rows, params->dim);
        params->ends.push_back(height += at.weight(i).rows);
    }
    for (size_t i = 0; i < params->sizes.size(); i++) {
        const auto size = params->sizes[i], offset = params->offsets[i], all = static_cast<uint64_t>(height);
        if (size > all || offset > all - size)
            at.refuse("rows ", offset, " to ", offset + size, " are looked at, the table has ", height);
    }
    at.rows(0, {1}, orders);
    return params;
}

void run_ngram(const Step& s, const Instruction& now) {
    const auto& params = now.node->as<NgramParams>();
    RowState& state = s.slots.rows(now.node->states[0]);
    // A float holds every token: a vocabulary ends at 2^24.
    for (int64_t i = 0; i < s.batch.size(); i++)
        *state.at(s.batch.slot(i), 0, s.batch.position(i)) = static_cast<float>(s.batch.tokens[static_cast<size_t>(i)]);

    s.each_row(now.rows, s.buffer(now.out).width, [&](int64_t i) {
        const auto row = static_cast<int64_t>(s.batch.row(now.rows, i));
        const int64_t slot = s.batch.slot(row), position = s.batch.position(row);
        float* y = s.row(now.out, i);
        size_t found = 0;
        uint64_t hash = 0;
        bool ended = false;
        for (int64_t back = 0; back < params.orders; back++) {
            int64_t token = params.eos;
            if (!ended && back <= position) token = static_cast<int64_t>(*state.at(slot, 0, position - back));
            ended = ended || back > position || (back > 0 && token == params.eos);
            hash ^= static_cast<uint64_t>(token) * params.multipliers[static_cast<size_t>(back)];
            for (int64_t head = 0; back > 0 && head < params.heads; head++, found++, y += params.dim) {
                auto at = static_cast<int64_t>(hash % params.sizes[found] + params.offsets[found]);
                const Matrix& part = params.part(s.plan, *now.node, at);
                s.kernels.dequantize(part, at, y);
            }
        }
    });
}

}  // namespace

extern const Op kNgram{.name = "ngram",
                       .inputs = exactly(0),
                       .weights = at_least(1),
                       .states = exactly(1),
                       .check = check_ngram,
                       .run = run_ngram};

}  // namespace colibri
