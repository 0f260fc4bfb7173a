// The sampler: its cuts, its shares, and logits no model should give.
#include "sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "check.h"

using namespace colibri;
using namespace colibri::test;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::nanf("");

int64_t pick(Sampling with, const std::vector<float>& logits, uint64_t step = 0) { return Sampler(with).pick(logits, step); }

std::set<int64_t> reach(Sampling with, const std::vector<float>& logits) {
    std::set<int64_t> found;
    const Sampler sampler(with);
    for (uint64_t step = 0; step < 1500; step++) found.insert(sampler.pick(logits, step));
    return found;
}

// The kept set as a plain sort gives it, with probabilities.
std::vector<double> reference(const Sampling& with, const std::vector<float>& logits) {
    std::vector<size_t> rank(logits.size());
    std::iota(rank.begin(), rank.end(), size_t{0});
    std::stable_sort(rank.begin(), rank.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
    if (with.top_k > 0) rank.resize(std::min(rank.size(), static_cast<size_t>(with.top_k)));
    const auto share = [&](size_t i) { return std::exp((static_cast<double>(logits[i]) - logits[rank[0]]) / with.temperature); };
    double total = 0, held = 0;
    for (size_t i : rank) total += share(i);
    size_t kept = 0;
    while (kept < rank.size() && (kept == 0 || held < with.top_p * total)) held += share(rank[kept++]);
    while (share(rank[kept - 1]) < with.min_p) kept--;
    std::vector<double> p(logits.size(), 0.0);
    double sum = 0;
    for (size_t i = 0; i < kept; i++) sum += share(rank[i]);
    for (size_t i = 0; i < kept; i++) p[rank[i]] = share(rank[i]) / sum;
    return p;
}

void greedy() {
    check(pick({}, {1, 5, 2}) == 1, "the highest");
    check(pick({}, {5, 1, 5, 5}) == 0, "the lowest of equals");
    check(pick({}, {-kInf, -3, -2}) == 2, "-inf is never highest");
    check(pick({}, {kNan, 1, kNan, 7}) == 3, "NaN is never picked");
    check(pick({}, {1, kInf, 2, kInf}) == 1, "+inf wins");
    check(pick({.temperature = 1, .top_k = 1}, {1, 5, 5}) == 1, "top_k 1 is greedy");
    check(pick({.temperature = 1, .top_p = 0}, {1, 5, 5}) == 1, "top_p 0 is greedy");
}

void nothing_to_pick() {
    for (double temperature : {0.0, 1.0}) {
        check(pick({.temperature = temperature}, {kNan, kNan}) == Sampler::kNothing, "all NaN");
        check(pick({.temperature = temperature}, {-kInf, kNan}) == Sampler::kNothing, "-inf and NaN");
        check(pick({.temperature = temperature}, {}) == Sampler::kNothing, "no logits");
    }
}

void strange_logits() {
    const Sampling with{.temperature = 1};
    for (uint64_t step = 0; step < 500; step++) {
        const int64_t token = pick(with, {kNan, 1, -kInf, 1, kNan}, step);
        check(token == 1 || token == 3, "sampled NaN or -inf");
        check(pick(with, {1, kInf, kInf}, step) == 1, "+inf wins when sampling");
        check(pick({.temperature = 1e-300}, {1, 1.5f, 1}, step) == 1, "a temperature near 0");
        check(pick({.temperature = 1}, {3e38f, -3e38f}, step) == 0, "logits far apart");
    }
    check(reach({.temperature = 1e300}, {0, 100, -100}).size() == 3, "a temperature without end is uniform");
}

void cuts() {
    const std::vector<float> logits{0, 3, 1, 2, -1};  // shares .03, .64, .09, .24 and .01
    check(reach({.temperature = 1}, logits).size() == 5, "no cut");
    check(reach({.temperature = 1, .top_k = 2}, logits) == std::set<int64_t>{1, 3}, "top_k");
    check(reach({.temperature = 1, .top_p = 0.6}, logits) == std::set<int64_t>{1}, "top_p within the first");
    check(reach({.temperature = 1, .top_p = 0.7}, logits) == std::set<int64_t>{1, 3}, "top_p takes the one that crosses");
    check(reach({.temperature = 1, .min_p = 0.2}, logits) == std::set<int64_t>{1, 3}, "min_p is relative to the highest");
    check(reach({.temperature = 1, .min_p = 1}, logits) == std::set<int64_t>{1}, "min_p 1");
    check(reach({.temperature = 1, .top_k = 2}, {1, 1, 1}) == std::set<int64_t>{0, 1}, "equals rank by id");
    // The cut is on the distribution the temperature made: hotter keeps more.
    check(reach({.temperature = 10, .top_p = 0.7}, logits).size() == 4, "top_p after temperature");
}

void shares() {
    Random random{3};
    for (int round = 0; round < 12; round++) {
        std::vector<float> logits(static_cast<size_t>(round % 2 ? 12 : 300));
        for (float& x : logits) x = random.uniform() * 4;
        const Sampling with{.temperature = 0.5 + 0.25 * (round % 4),
                            .top_p = round % 3 ? 0.8 : 1,
                            .top_k = round % 4 ? 150 : 0,
                            .min_p = round % 5 ? 0.03 : 0,
                            .seed = static_cast<uint64_t>(round)};
        const std::vector<double> expected = reference(with, logits);
        std::vector<int> count(logits.size());
        const Sampler sampler(with);
        const int draws = 8000;
        for (int i = 0; i < draws; i++) count[static_cast<size_t>(sampler.pick(logits, static_cast<uint64_t>(i)))]++;
        double chi = 0, bins = 0, rest = 0, rest_expected = 0;
        for (size_t i = 0; i < logits.size(); i++) {
            const double e = expected[i] * draws;
            if (e == 0) {
                check(count[i] == 0, "a token that was cut was drawn");
            } else if (e < 10) {
                rest += count[i];
                rest_expected += e;
            } else {
                chi += (count[i] - e) * (count[i] - e) / e;
                bins++;
            }
        }
        if (rest_expected > 10) chi += (rest - rest_expected) * (rest - rest_expected) / rest_expected, bins++;
        check(bins < 2 || chi < bins + 6 * std::sqrt(2 * bins), text("round ", round, ": chi square ", chi, " of ", bins, " bins"));
    }
}

void dice() {
    const std::vector<float> logits(1000, 1.0f);
    const Sampling one{.temperature = 1, .seed = 1}, two{.temperature = 1, .seed = 2};
    int same = 0;
    for (uint64_t step = 0; step < 200; step++) {
        check(pick(one, logits, step) == pick(one, logits, step), "(seed, step) fixes the draw");
        same += pick(one, logits, step) == pick(two, logits, step);
        same += pick(one, logits, step) == pick(one, logits, step + 1);
        same += pick(one, logits, step) == pick(two, logits, step + 1);  // a stream must not be another one's, moved
    }
    check(same < 10, "seeds and steps give different draws");
}

void parameters() {
    refused("temperature is -1", [] { Sampler({.temperature = -1}); });
    refused("temperature", [] { Sampler({.temperature = std::nan("")}); });
    refused("temperature", [] { Sampler({.temperature = std::numeric_limits<double>::infinity()}); });
    refused("top_p is 1.5", [] { Sampler({.top_p = 1.5}); });
    refused("top_p", [] { Sampler({.top_p = std::nan("")}); });
    refused("top_k is -1", [] { Sampler({.top_k = -1}); });
    refused("min_p is 2", [] { Sampler({.min_p = 2}); });
}

}  // namespace

int main() {
    greedy();
    nothing_to_pick();
    strange_logits();
    cuts();
    shares();
    dice();
    parameters();
    return report("sampler_test");
}
