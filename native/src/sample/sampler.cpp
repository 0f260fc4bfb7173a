#include "sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "error.h"

namespace colibri {

namespace {

struct Candidate {
    float logit;
    int32_t id;
};

bool before(const Candidate& a, const Candidate& b) { return a.logit > b.logit || (a.logit == b.logit && a.id < b.id); }

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// Lowest id of the highest logit; comparisons are false for NaN.
int64_t highest(std::span<const float> logits) {
    float best = kLowest;
    int64_t at = Sampler::kNothing;
    for (size_t i = 0; i < logits.size(); i++)
        if (logits[i] > best) best = logits[i], at = static_cast<int64_t>(i);
    return at;
}

// The finalizer of splitmix64 (Steele, Lea, Flood 2014): every input bit reaches every output bit.
uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

// [0, 1), 53 bits.
double uniform(uint64_t seed, uint64_t step) {
    constexpr uint64_t golden = 0x9e3779b97f4a7c15;
    return static_cast<double>(mix(mix(seed + golden) + (step + 1) * golden) >> 11) * 0x1p-53;
}

// The candidates that can be picked, most probable first as far as any cut can reach, with their unnormalised
// probabilities (the highest has 1).
class Ranking {
public:
    Ranking(std::span<const float> logits, float top, double temperature) : top_(top), temperature_(temperature) {
        candidates_.reserve(logits.size());
        for (size_t i = 0; i < logits.size(); i++)
            if (logits[i] > kLowest) candidates_.push_back({logits[i], static_cast<int32_t>(i)});
    }

    size_t size() const { return candidates_.size(); }
    int32_t id(size_t rank) const { return candidates_[rank].id; }
    double probability(size_t rank) const {
        return std::exp(static_cast<float>((static_cast<double>(candidates_[rank].logit) - top_) / temperature_));
    }

    void keep(size_t count) {
        if (count >= size()) return;
        std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<ptrdiff_t>(count), candidates_.end(), before);
        candidates_.resize(count);
        order(count);
    }

    // Puts the `count` highest in order at the front; a vocabulary is never sorted whole unless a cut asks for it all.
    void order(size_t count) {
        count = std::min(count, size());
        if (count <= ordered_) return;
        auto at = [&](size_t i) { return candidates_.begin() + static_cast<ptrdiff_t>(i); };
        if (count < size()) std::nth_element(at(ordered_), at(count), candidates_.end(), before);
        std::sort(at(ordered_), at(count), before);
        ordered_ = count;
    }
    size_t ordered() const { return ordered_; }

    double total() const {
        double sum = 0;
        for (size_t i = 0; i < size(); i++) sum += probability(i);
        return sum;
    }

    // Ranks before the first whose probability is below `floor`, among the first `limit`.
    size_t at_least(double floor, size_t limit) {
        size_t rank = 0;
        for (size_t reach = 64; rank < limit; reach *= 8) {
            order(std::min(reach, limit));
            while (rank < std::min(ordered_, limit) && probability(rank) >= floor) rank++;
            if (rank < std::min(ordered_, limit)) break;
        }
        return rank;
    }

    // The fewest ranks that together reach `mass`.
    size_t holding(double mass) {
        size_t rank = 0;
        double sum = 0;
        for (size_t reach = 64; rank < size(); reach *= 8) {
            order(reach);
            while (rank < ordered_) {
                sum += probability(rank++);
                if (sum >= mass) return rank;
            }
        }
        return size();
    }

private:
    double top_, temperature_;
    std::vector<Candidate> candidates_;
    size_t ordered_ = 0;
};

}  // namespace

Sampler::Sampler(const Sampling& with) : with_(with) {
    if (!(with.temperature >= 0) || std::isinf(with.temperature)) refuse("temperature is ", with.temperature, ", it must be 0 or more");
    if (!(with.top_p >= 0 && with.top_p <= 1)) refuse("top_p is ", with.top_p, ", it must be 0 to 1");
    if (with.top_k < 0) refuse("top_k is ", with.top_k, ", it must be 0 or more");
    if (!(with.min_p >= 0 && with.min_p <= 1)) refuse("min_p is ", with.min_p, ", it must be 0 to 1");
}

int64_t Sampler::pick(std::span<const float> logits, uint64_t step) const {
    const int64_t best = highest(logits);
    if (best == kNothing || with_.temperature == 0 || with_.top_k == 1) return best;
    const float top = logits[static_cast<size_t>(best)];
    if (std::isinf(top)) return best;

    Ranking ranking(logits, top, with_.temperature);
    if (with_.top_k > 0) ranking.keep(static_cast<size_t>(with_.top_k));
    size_t kept = ranking.size();
    if (with_.top_p < 1) kept = ranking.holding(with_.top_p * ranking.total());
    if (with_.min_p > 0) kept = ranking.at_least(with_.min_p, kept);

    double sum = 0;
    for (size_t i = 0; i < kept; i++) sum += ranking.probability(i);
    double mark = uniform(with_.seed, step) * sum;
    for (size_t i = 0; i < kept; i++) {
        mark -= ranking.probability(i);
        if (mark < 0) return ranking.id(i);
    }
    // Rounding can leave the mark at zero after the last: the draw was the end of the line.
    return ranking.id(kept - 1);
}

}  // namespace colibri
