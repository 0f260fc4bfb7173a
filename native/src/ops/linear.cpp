// x @ weight.T + bias, for all weights that read the same x.
#include <algorithm>

#include "ops/step.h"

namespace colibri {

namespace {

// Rows of activations a unit works on: a block of them stays in the second-level cache while weight rows stream by.
constexpr int64_t kRowBlock = 64;

// Weight rows of a unit: enough units for threads to even out, few enough that taking one costs nothing.
int64_t panel(int64_t outputs, int64_t row_blocks, int threads) {
    const int64_t even = outputs * row_blocks / (int64_t{8} * threads);
    return std::clamp<int64_t>(even / 16 * 16, 16, 64);
}

std::unique_ptr<Params> check_linear(Inspection& at) {
    at.matrix(0, at.out(), at.width(0));
    if (at.has_weight(1)) at.vector(1, at.out());
    return nullptr;
}

}  // namespace

// Runs as Do::Linear, together with others of its input.
extern const Op kLinear{.name = "linear",
                        .inputs = exactly(1),
                        .weights = {1, 2, 2},
                        .check = check_linear,
                        .run = run_linear,
                        .form = Op::Form::Linear};

void run_linear(const Step& s, const Instruction& now) {
    const int64_t m = s.batch.count(now.rows);
    const int64_t blocks = (m + kRowBlock - 1) / kRowBlock;
    int64_t outputs = 0;
    for (const Product& product : now.products) outputs += product.weight->rows;
    const int64_t rows = panel(outputs, blocks, s.pool.threads());

    int64_t panels = 0;
    for (const Product& product : now.products) panels += (product.weight->rows + rows - 1) / rows;

    s.pool.run(panels * blocks, [&](int64_t unit, int) {
        // Neighbouring units share weight rows, which are dearer to fetch than activations.
        int64_t p = unit / blocks;
        const int64_t i0 = unit % blocks * kRowBlock, i1 = std::min(m, i0 + kRowBlock);
        const Product* product = now.products.data();
        for (int64_t own; p >= (own = (product->weight->rows + rows - 1) / rows); product++) p -= own;

        const Weight& weight = *product->weight;
        const int64_t n0 = p * rows, n1 = std::min(weight.rows, n0 + rows), apart = s.floats_apart(product->out);
        float* y = s.row(product->out, i0);
        s.kernels.matmul(weight.matrix, n0, n1, s.bytes(product->activations, i0),
                         s.buffer(product->activations).stride, i1 - i0, y, apart);
        if (product->bias)
            for (int64_t i = 0; i < i1 - i0; i++)
                for (int64_t n = n0; n < n1; n++) y[i * apart + n] += product->bias[n];
    });
}

}  // namespace colibri
