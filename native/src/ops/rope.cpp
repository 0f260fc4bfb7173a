// Rotation of heads by their row's position.
#include "ops/rope.h"

#include <cstring>

#include "ops/step.h"

namespace colibri {

namespace {

struct RopeParams : Params {
    int64_t heads, head_dim;
    Turning turning;
    bool inverse;
};

std::unique_ptr<Params> check_rope(Inspection& at) {
    const int64_t width = at.width(0);
    at.same("width of the result", at.out(), width);
    auto params = std::make_unique<RopeParams>();
    params->heads = at.integer("heads", 1, Inspection::kAny);
    params->head_dim = at.integer("head_dim", 1, Inspection::kAny);
    at.same("heads * head_dim", params->heads * params->head_dim, width);
    params->turning = at.turning(params->head_dim);
    params->inverse = at.flag("inverse");
    return params;
}

void run_rope(const Step& s, const Instruction& now) {
    const auto& params = now.node->as<RopeParams>();
    const Turns& turns = s.turns[static_cast<size_t>(now.angles)];
    const int64_t width = s.buffer(now.out).width, n = turns.n;
    const float sign = params.inverse ? -1.0f : 1.0f;
    s.each_row(now.rows, width, [&](int64_t i) {
        const float* x = s.row(now.in[0], i);
        float* y = s.row(now.out, i);
        if (x != y) std::memcpy(y, x, static_cast<size_t>(width) * sizeof(float));
        const float* c = turns.cos.data() + s.batch.row(now.rows, i) * static_cast<size_t>(n);
        const float* d = turns.sin.data() + s.batch.row(now.rows, i) * static_cast<size_t>(n);
        for (int64_t head = 0; head < params.heads; head++)
            for (int64_t j = 0; j < n; j++) rotate(y + head * params.head_dim, params.turning, j, {c[j], sign * d[j]});
    });
}

}  // namespace

const Turning& turning_of(const Node& node) { return node.as<RopeParams>().turning; }

extern const Op kRope{
    .name = "rope", .inputs = exactly(1), .check = check_rope, .run = run_rope, .in_place = true, .turns = true};

}  // namespace colibri
