// Ops on rows that hold several streams: how a block reads from them and writes to them.
#include <cmath>

#include "ops/step.h"

namespace colibri {

namespace {

constexpr int64_t kMaxStreams = 1024;

struct Sinkhorn : Params {
    int64_t n, iterations;
    float eps;
};

std::unique_ptr<Params> check_sinkhorn(Inspection& at) {
    auto params = std::make_unique<Sinkhorn>();
    params->n = at.integer("n", 1, kMaxStreams);
    params->iterations = at.integer("iterations", 1, 1000);
    params->eps = at.number("eps");
    if (params->eps < 0) at.refuse("eps is ", params->eps, ", it must not be negative");
    const int64_t width = (2 + params->n) * params->n;
    at.same("width of x", at.width(0), width);
    at.same("width of the result", at.out(), width);
    at.vector(0, width);
    at.vector(1, 3);
    return params;
}

// Divides `n` values, `stride` apart, by their sum.
void share(float* values, int64_t n, int64_t stride, float eps) {
    float sum = 0;
    for (int64_t j = 0; j < n; j++) sum += values[j * stride];
    const float whole = sum + eps;
    for (int64_t j = 0; j < n; j++) values[j * stride] /= whole;
}

void run_sinkhorn(const Step& s, const Instruction& now) {
    const Sinkhorn& params = now.node->as<Sinkhorn>();
    const int64_t n = params.n, width = s.buffer(now.out).width;
    const float eps = params.eps, *base = s.vector(now, 0), *scale = s.vector(now, 1);
    const auto sigmoid = [](float x) { return 1 / (1 + std::exp(-x)); };
    s.each_row(now.rows, 4 * n * n * params.iterations, [&](int64_t i) {
        const float* x = s.row(now.in[0], i);
        float* y = s.row(now.out, i);
        for (int64_t j = 0; j < n; j++) y[j] = sigmoid(x[j] * scale[0] + base[j]) + eps;
        for (int64_t j = n; j < 2 * n; j++) y[j] = 2 * sigmoid(x[j] * scale[1] + base[j]);
        for (int64_t j = 2 * n; j < width; j++) y[j] = x[j] * scale[2] + base[j];
        float* joint = y + 2 * n;
        for (int64_t j = 0; j < n; j++) {
            s.kernels.softmax(joint + j * n, n);
            for (int64_t k = 0; k < n; k++) joint[j * n + k] += eps;
        }
        for (int64_t round = 0; round < params.iterations; round++) {
            if (round > 0)
                for (int64_t j = 0; j < n; j++) share(joint + j * n, n, 1, eps);
            for (int64_t k = 0; k < n; k++) share(joint + k, n, n, eps);
        }
    });
}

struct Spread : Params {
    int64_t n;
};

std::unique_ptr<Params> check_spread(Inspection& at) {
    auto params = std::make_unique<Spread>();
    params->n = at.integer("n", 1, kMaxStreams);
    at.same("width of x", at.width(0), params->n * at.width(1));
    at.same("width of the coefficients", at.width(2), (2 + params->n) * params->n);
    at.same("width of the result", at.out(), at.width(0));
    return params;
}

void run_spread(const Step& s, const Instruction& now) {
    const int64_t n = now.node->as<Spread>().n, width = s.buffer(now.in[1]).width;
    s.each_row(now.rows, n * n * width, [&](int64_t i) {
        const float *x = s.row(now.in[0], i), *y = s.row(now.in[1], i);
        const float *post = s.row(now.in[2], i) + n, *joint = post + n;
        for (int64_t k = 0; k < n; k++) {
            float* stream = s.row(now.out, i) + k * width;
            for (int64_t c = 0; c < width; c++) stream[c] = post[k] * y[c];
            for (int64_t j = 0; j < n; j++) s.kernels.axpy(joint[j * n + k], x + j * width, stream, width);
        }
    });
}

}  // namespace

extern const Op kSinkhorn{.name = "sinkhorn",
                          .inputs = exactly(1),
                          .weights = exactly(2),
                          .check = check_sinkhorn,
                          .run = run_sinkhorn,
                          .in_place = true};
extern const Op kSpread{.name = "spread", .inputs = exactly(3), .check = check_spread, .run = run_spread};

}  // namespace colibri
