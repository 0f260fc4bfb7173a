// Picking a token from logits.
#pragma once

#include <cstdint>
#include <span>

namespace colibri {

struct Sampling {
    double temperature = 0;  // 0: the highest logit
    double top_p = 1;        // [0, 1]; 1 is off, 0 leaves the most probable
    int64_t top_k = 0;       // 0 is off
    double min_p = 0;        // [0, 1]; 0 is off
    uint64_t seed = 0;
};

// Cuts, in this order: the top_k highest logits; divided by the temperature and made probabilities; the fewest most
// probable of them that hold top_p together; of those, the ones with at least min_p of the highest probability. One is
// drawn by its share of what is left. Equal logits rank by id, lowest first.
//
// The random number is a function of (seed, step) alone, so a request draws the same tokens in whatever company. NaN and
// -inf are never picked; +inf wins like the highest logit.
class Sampler {
public:
    explicit Sampler(const Sampling&);  // BadInput naming the parameter

    static constexpr int64_t kNothing = -1;  // no logit can be picked
    int64_t pick(std::span<const float> logits, uint64_t step) const;

private:
    Sampling with_;
};

}  // namespace colibri
