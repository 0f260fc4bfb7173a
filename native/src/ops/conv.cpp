// Causal convolution of every column with its own taps.
#include <algorithm>

#include "ops/step.h"

namespace colibri {

namespace {

struct ConvParams : Params {
    int64_t width, kernel, dilation;
    int64_t run = 0;           // columns that share a row's taps; 0: there are none
    bool lags;                 // whether the first tap is the one for the row itself
    std::vector<float> taps;   // [kernel, width] by lag

    // The place of a lag's tap.
    int64_t place(int64_t lag) const { return lags ? lag : kernel - 1 - lag; }
};

std::unique_ptr<Params> check_conv(Inspection& at) {
    auto params = std::make_unique<ConvParams>();
    const int64_t width = params->width = at.width(0), kernel = params->kernel = at.integer("kernel", 1, 1024);
    params->dilation = at.integer("dilation", 1, 1 << 16, 1);
    params->lags = at.flag("lags");
    at.same("width of the result", at.out(), width);
    if (at.has(1)) {
        at.divides("kernel", kernel, at.width(1));
        at.divides("number of runs", at.width(1) / kernel, width);
        params->run = width / (at.width(1) / kernel);
    }
    if (params->lags) {
        at.matrix(0, kernel, width);
        at.vector(0, width, kernel);
    } else {
        at.matrix(0, width, kernel);
        at.vector(0, kernel, width);
    }
    const std::vector<float>& given = at.weight(0).vector;
    params->taps.resize(given.size());
    for (int64_t lag = 0; lag < kernel; lag++)
        for (int64_t c = 0; c < width; c++) {
            const int64_t from = params->lags ? lag * width + c : c * kernel + params->place(lag);
            params->taps[static_cast<size_t>(lag * width + c)] = given[static_cast<size_t>(from)];
        }
    at.rows(0, {width}, (kernel - 1) * params->dilation + 1);
    return params;
}

void run_conv(const Step& s, const Instruction& now) {
    const auto& params = now.node->as<ConvParams>();
    RowState& state = s.slots.rows(now.node->states[0]);
    const int64_t width = params.width;

    // Every row is in place before any row looks back.
    s.each_row(Rows::All, width, [&](int64_t i) {
        std::copy_n(s.row(now.in[0], i), width, state.at(s.batch.slot(i), 0, s.batch.position(i)));
    });
    s.each_row(now.rows, width * params.kernel, [&](int64_t i) {
        const auto row = static_cast<int64_t>(s.batch.row(now.rows, i));
        const int64_t slot = s.batch.slot(row), position = s.batch.position(row);
        float* y = s.row(now.out, i);
        std::fill_n(y, width, 0.0f);
        for (int64_t lag = 0; lag < params.kernel && lag * params.dilation <= position; lag++) {
            const float* x = state.at(slot, 0, position - lag * params.dilation);
            const float* w = params.taps.data() + lag * width;
            if (params.run == 0) {
                for (int64_t c = 0; c < width; c++) y[c] += w[c] * x[c];
            } else {
                for (int64_t r = 0; r < width / params.run; r++) {
                    const float own = s.row(now.in[1], i)[r * params.kernel + params.place(lag)];
                    for (int64_t c = r * params.run; c < (r + 1) * params.run; c++) y[c] += (w[c] + own) * x[c];
                }
            }
        }
    });
}

}  // namespace

extern const Op kConv{.name = "conv",
                      .inputs = {1, 2, 2},
                      .weights = exactly(1),
                      .states = exactly(1),
                      .check = check_conv,
                      .run = run_conv,
                      .history = 1};

}  // namespace colibri
