// How gate and up are joined, alone and inside experts.
#pragma once

#include <algorithm>
#include <cmath>

#include "graph/inspect.h"
#include "kernels/kernels.h"

namespace colibri {

struct Glu {
    bool situ = false;
    float limit = 0, beta = 0, linear_beta = 0;

    // y may be gate or up.
    void run(const Kernels& kernels, const float* gate, const float* up, int64_t n, float* y) const {
        if (situ) {
            for (int64_t j = 0; j < n; j++) {
                const float g = gate[j], u = up[j];
                const float capped = beta * std::tanh(g / beta), open = 1 / (1 + std::exp(-g));
                y[j] = capped * open * (linear_beta * std::tanh(u / linear_beta));
            }
            return;
        }
        if (limit == 0) return kernels.swiglu(gate, up, n, y);
        constexpr int64_t kPiece = 256;
        float g[kPiece], u[kPiece];
        for (int64_t j = 0; j < n; j += kPiece) {
            const int64_t count = std::min(kPiece, n - j);
            for (int64_t i = 0; i < count; i++) {
                g[i] = gate[j + i] > limit ? limit : gate[j + i];
                u[i] = up[j + i] > limit ? limit : up[j + i] < -limit ? -limit : up[j + i];
            }
            kernels.swiglu(g, u, count, y + j);
        }
    }
};

inline Glu read_glu(Inspection& at) {
    Glu glu;
    glu.situ = at.word("kind", {"silu", "situ"}, "silu") == 1;
    if (glu.situ) {
        glu.beta = at.positive("beta");
        glu.linear_beta = at.positive("linear_beta");
    } else {
        glu.limit = at.number("limit", 0);
        if (glu.limit < 0) at.refuse("limit is ", glu.limit, ", it must not be negative");
    }
    return glu;
}

}  // namespace colibri
