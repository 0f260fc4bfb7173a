#pragma once

#include <cmath>

#include "graph/plan.h"

namespace colibri {

struct Turn {
    float cos, sin;
};

// Frequency times position in float32, as the models were trained with; cos and sin of that, rounded once.
inline Turn turn_of(int64_t position, float inv_freq, float factor) {
    const auto angle = static_cast<double>(static_cast<float>(position) * inv_freq);
    return {static_cast<float>(std::cos(angle)) * factor, static_cast<float>(std::sin(angle)) * factor};
}

// Rotates the j-th pair of a head.
inline void rotate(float* head, const Turning& turning, int64_t j, Turn turn) {
    const auto n = static_cast<int64_t>(turning.inv_freq.size());
    float& a = head[turning.offset + (turning.interleaved ? 2 * j : j)];
    float& b = head[turning.offset + (turning.interleaved ? 2 * j + 1 : j + n)];
    const float a0 = a, b0 = b;
    a = a0 * turn.cos - b0 * turn.sin;
    b = b0 * turn.cos + a0 * turn.sin;
}

// The rotation of a node whose op turns.
const Turning& turning_of(const Node&);

}  // namespace colibri
