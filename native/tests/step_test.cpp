// Steps: what is refused, small models against plain double arithmetic, and the same bytes in any company.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "check.h"
#include "runtime.h"

using namespace colibri;
using namespace colibri::test;

namespace {

constexpr int64_t kVocab = 9, kWidth = 12, kHeads = 4, kKvHeads = 2, kDim = 6, kVDim = 5, kWindow = 7;
constexpr int64_t kExperts = 5, kTopK = 2, kInner = 7;
const std::vector<double> kInvFreq{1.0, 0.25};

using Row = std::vector<double>;
using Rows = std::vector<Row>;

// The weights of the model below as doubles, and its forward pass over one sequence as a textbook has it.
struct Reference {
    std::vector<double> embed, norm, q, k, v, o, router, head;
    std::vector<std::vector<double>> gate, up, down;

    static Row multiply(const std::vector<double>& w, const Row& x) {
        Row y(w.size() / x.size(), 0.0);
        for (size_t n = 0; n < y.size(); n++)
            for (size_t i = 0; i < x.size(); i++) y[n] += w[n * x.size() + i] * x[i];
        return y;
    }

    static void turn(Row& x, int64_t heads, int64_t position) {  // pairs (1, 2) and (3, 4) of each head
        for (int64_t h = 0; h < heads; h++)
            for (size_t j = 0; j < kInvFreq.size(); j++) {
                double& a = x[static_cast<size_t>(h * kDim) + 1 + 2 * j];
                double& b = x[static_cast<size_t>(h * kDim) + 2 + 2 * j];
                const double angle = static_cast<double>(position) * kInvFreq[j], a0 = a, b0 = b;
                a = 1.5 * (a0 * std::cos(angle) - b0 * std::sin(angle));
                b = 1.5 * (b0 * std::cos(angle) + a0 * std::sin(angle));
            }
    }

    static Row shares(Row scores) {
        const double top = *std::max_element(scores.begin(), scores.end());
        double sum = 0;
        for (double& s : scores) sum += s = std::exp(s - top);
        for (double& s : scores) s /= sum;
        return scores;
    }

    Rows run(const std::vector<int64_t>& tokens) const {
        Rows keys, values, logits;
        for (size_t t = 0; t < tokens.size(); t++) {
            const auto at = static_cast<int64_t>(t);
            Row x(embed.begin() + tokens[t] * kWidth, embed.begin() + (tokens[t] + 1) * kWidth);
            double square = 0;
            for (double e : x) square += e * e;
            Row h = x;
            for (size_t i = 0; i < h.size(); i++) h[i] *= norm[i] / std::sqrt(square / kWidth + 0.01);
            Row query = multiply(q, h), key = multiply(k, h);
            turn(query, kHeads, at);
            turn(key, kKvHeads, at);
            keys.push_back(key);
            values.push_back(multiply(v, h));
            Row attended(kHeads * kVDim, 0.0);
            for (int64_t head = 0; head < kHeads; head++) {
                const int64_t first = std::max<int64_t>(0, at + 1 - kWindow), kv = head / (kHeads / kKvHeads);
                Row scores;
                for (int64_t p = first; p <= at; p++) {
                    double dot = 0;
                    for (int64_t j = 0; j < kDim; j++)
                        dot += query[static_cast<size_t>(head * kDim + j)] * keys[static_cast<size_t>(p)][static_cast<size_t>(kv * kDim + j)];
                    scores.push_back(0.4 * dot);
                }
                const Row share = shares(scores);
                for (int64_t p = first; p <= at; p++)
                    for (int64_t j = 0; j < kVDim; j++)
                        attended[static_cast<size_t>(head * kVDim + j)] +=
                            share[static_cast<size_t>(p - first)] * values[static_cast<size_t>(p)][static_cast<size_t>(kv * kVDim + j)];
            }
            const Row o_out = multiply(o, attended);
            for (size_t i = 0; i < x.size(); i++) x[i] += o_out[i];
            const Row share = shares(multiply(router, x));
            std::vector<size_t> rank(kExperts);
            std::iota(rank.begin(), rank.end(), size_t{0});
            std::stable_sort(rank.begin(), rank.end(), [&](size_t a, size_t b) { return share[a] > share[b]; });
            double sum = 0;
            for (int64_t j = 0; j < kTopK; j++) sum += share[rank[static_cast<size_t>(j)]];
            Row mixed(kWidth, 0.0);
            for (int64_t j = 0; j < kTopK; j++) {
                const size_t e = rank[static_cast<size_t>(j)];
                Row g = multiply(gate[e], x);
                const Row u = multiply(up[e], x);
                for (size_t i = 0; i < g.size(); i++) g[i] = g[i] / (1 + std::exp(-g[i])) * u[i];
                const Row y = multiply(down[e], g);
                for (size_t i = 0; i < y.size(); i++) mixed[i] += 2.5 * share[e] / sum * y[i];
            }
            logits.push_back(multiply(head, mixed));
        }
        return logits;
    }
};

struct Model {
    Draft draft{kVocab, 5};
    Reference reference;
    int logits;

    Model() {
        Draft& d = draft;
        const auto w = [&](int64_t rows, int64_t cols, std::vector<double>& into) {
            const int index = d.weight(rows, cols);
            into = d.values(index);
            return int64_t{index};
        };
        const int x = d.node("embed", {}, kWidth, {w(kVocab, kWidth, reference.embed)});
        const int h = d.node("rms_norm", {x}, kWidth, {w(1, kWidth, reference.norm)}, {{}, {{"eps", 0.01}}, {}});
        const auto rope = [&](int value, int64_t heads) {
            return d.node("rope", {value}, heads * kDim, {},
                          {{{"heads", heads}, {"head_dim", kDim}, {"offset", 1}, {"interleaved", 1}}, {{"factor", 1.5}}, {}, {},
                           {{"inv_freq", kInvFreq}}});
        };
        const int q = rope(d.node("linear", {h}, kHeads * kDim, {w(kHeads * kDim, kWidth, reference.q)}), kHeads);
        const int k = rope(d.node("linear", {h}, kKvHeads * kDim, {w(kKvHeads * kDim, kWidth, reference.k)}), kKvHeads);
        const int v = d.node("linear", {h}, kKvHeads * kVDim, {w(kKvHeads * kVDim, kWidth, reference.v)});
        const int state = d.builder.state(false, std::vector<int64_t>{kDim, kDim, kVDim, kVDim}, kWindow, 1);
        const int a = d.node("attention", {q, k, v}, kHeads * kVDim, {},
                             {{{"heads", kHeads}, {"kv_heads", kKvHeads}, {"window", kWindow}}, {{"scale", 0.4}}, {}}, -1, {state});
        const int y = d.node("add", {x, d.node("linear", {a}, kWidth, {w(kWidth, kHeads * kVDim, reference.o)})}, kWidth);
        const int scores = d.node("linear", {y}, kExperts, {w(kExperts, kWidth, reference.router)});
        const int routes = d.node("route", {scores}, 2 * kTopK, {}, {{{"top_k", kTopK}, {"normalise", 1}}, {{"factor", 2.5}}, {}});
        std::vector<int64_t> gate, up, down;
        for (int64_t e = 0; e < kExperts; e++) {
            gate.push_back(w(kInner, kWidth, reference.gate.emplace_back()));
            up.push_back(w(kInner, kWidth, reference.up.emplace_back()));
            down.push_back(w(kWidth, kInner, reference.down.emplace_back()));
        }
        const int bank = d.builder.bank(kWidth, kInner, gate, up, down);
        const int mixed = d.node("experts", {y, routes}, kWidth, {}, {}, bank);
        logits = d.node("linear", {mixed}, kVocab, {w(kVocab, kWidth, reference.head)});
    }

};

constexpr Limits kLimits{16, 3, 64};

std::vector<Draw> no_draws(size_t count) { return std::vector<Draw>(count, Draw{nullptr, 0}); }

// Logits of all positions, `chunk` rows at a time.
std::vector<std::vector<float>> run(Runtime& runtime, const std::vector<int64_t>& tokens, size_t chunk, int64_t slot = 0) {
    std::vector<std::vector<float>> found;
    for (size_t at = 0; at < tokens.size(); at += chunk) {
        Batch batch;
        for (size_t i = at; i < std::min(tokens.size(), at + chunk); i++) {
            batch.wanted.push_back(batch.size());
            batch.tokens.push_back(tokens[i]);
            batch.slots.push_back(slot);
            batch.positions.push_back(static_cast<int64_t>(i));
        }
        const auto count = batch.wanted.size();
        runtime.step(std::move(batch), no_draws(count));
        for (size_t i = 0; i < count; i++) {
            const auto logits = runtime.logits(static_cast<int64_t>(i));
            found.emplace_back(logits.begin(), logits.end());
        }
    }
    return found;
}

std::vector<int64_t> some_tokens(size_t count) {
    Random random{11};
    std::vector<int64_t> tokens(count);
    for (int64_t& token : tokens) token = random.below(kVocab);
    return tokens;
}

void agrees_with_doubles_everywhere() {
    const std::vector<int64_t> tokens = some_tokens(40);
    std::vector<std::vector<float>> first;
    for (Isa isa : available_isas())
        for (int64_t threads : {1, 2, 3})
            for (size_t chunk : {size_t{1}, size_t{3}, size_t{16}}) {
                Model model;
                const Rows expected = model.reference.run(tokens);
                Runtime runtime(model.draft.builder.finish(model.logits), kLimits, threads, isa_name(isa));
                for (int64_t slot = 2; slot >= 0; slot--) {
                    const auto found = run(runtime, tokens, chunk, slot);
                    if (first.empty()) first = found;
                    for (size_t i = 0; i < tokens.size(); i++) {
                        double error = 0, norm = 0;
                        for (size_t j = 0; j < kVocab; j++) {
                            error += std::pow(found[i][j] - expected[i][j], 2);
                            norm += std::pow(expected[i][j], 2);
                        }
                        check(std::sqrt(error / norm) < 1e-5, text("position ", i, " is off by ", std::sqrt(error / norm)));
                        check(std::memcmp(found[i].data(), first[i].data(), kVocab * sizeof(float)) == 0, "not the same bytes");
                    }
                }
            }
}

void refusals_change_nothing() {
    Model model;
    Runtime runtime(model.draft.builder.finish(model.logits), kLimits, 2, "");
    const std::vector<int64_t> tokens = some_tokens(20);
    const auto before = run(runtime, tokens, 8, 1);
    const auto step = [&](Batch batch) {
        const auto count = batch.wanted.size();
        runtime.step(std::move(batch), no_draws(count));
    };
    constexpr int64_t huge = std::numeric_limits<int64_t>::max();
    refused("1 to 16 rows, not 0", [&] { step({}); });
    refused("1 to 16 rows, not 17", [&] { step({std::vector<int64_t>(17), std::vector<int64_t>(17), std::vector<int64_t>(17), {}}); });
    refused("tokens, slots and positions are 2, 1 and 2", [&] { step({{0, 0}, {0}, {0, 1}, {}}); });
    refused("token 9", [&] { step({{kVocab}, {0}, {0}, {}}); });
    refused("token -1", [&] { step({{-1}, {0}, {0}, {}}); });
    refused("no slot 3", [&] { step({{0}, {3}, {0}, {}}); });
    refused("no slot -1", [&] { step({{0}, {-1}, {0}, {}}); });
    refused("position 64 is outside", [&] { step({{0}, {0}, {64}, {}}); });
    refused("position -1 is outside", [&] { step({{0}, {0}, {-1}, {}}); });
    refused("position 9223372036854775807", [&] { step({{0}, {0}, {huge}, {}}); });
    refused("position 1 leaves a hole, slot 0 holds 0", [&] { step({{0}, {0}, {1}, {}}); });
    refused("position 21 leaves a hole, slot 1 holds 20", [&] { step({{0}, {1}, {21}, {}}); });
    refused("position 3 of slot 1 must be 2", [&] { step({{0, 0}, {1, 1}, {1, 3}, {}}); });
    refused("position 1 of slot 1 must be 2", [&] { step({{0, 0, 0}, {1, 0, 1}, {1, 0, 1}, {}}); });
    refused("wanted rows", [&] { step({{0}, {0}, {0}, {1}}); });
    refused("wanted rows", [&] { step({{0}, {0}, {0}, {-1}}); });
    refused("wanted rows", [&] { step({{0}, {0}, {0}, {0, 0}}); });
    refused("with 2 samplers", [&] { runtime.step({{0}, {0}, {0}, {0}}, no_draws(2)); });
    refused("no slot 3", [&] { runtime.copy(1, 3, 0); });
    refused("no slot -1", [&] { runtime.copy(-1, 0, 0); });
    refused("length 21, slot 1 holds 20", [&] { runtime.copy(1, 0, 21); });
    refused("length -1", [&] { runtime.copy(1, 0, -1); });
    refused("no logits 4: the last step had 4", [&] { (void)runtime.logits(4); });  // of the step before all this
    refused("no logits -1", [&] { (void)runtime.logits(-1); });

    // Slot 1 is as it was: its last position can be computed again from the ones before.
    Batch last{{tokens[19]}, {1}, {19}, {0}};
    runtime.step(last, no_draws(1));
    check(std::memcmp(runtime.logits(0).data(), before[19].data(), kVocab * sizeof(float)) == 0, "a refused step changed a slot");
    runtime.copy(1, 2, 19);
    last.slots[0] = 2;
    runtime.step(last, no_draws(1));
    check(std::memcmp(runtime.logits(0).data(), before[19].data(), kVocab * sizeof(float)) == 0, "a copied slot differs");
}

void samplers_pick_in_a_step() {
    Model model;
    Runtime runtime(model.draft.builder.finish(model.logits), kLimits, 2, "");
    const Sampler greedy(Sampling{}), hot({.temperature = 1.5, .seed = 4});
    const std::vector<Draw> draws{{&greedy, 0}, {nullptr, 0}, {&hot, 7}};
    const auto picked = runtime.step({{1, 2, 3, 4}, {0, 1, 1, 2}, {0, 0, 1, 0}, {0, 1, 3}}, draws);
    check(picked.size() == 3, "a token per wanted row");
    check(picked[0] == greedy.pick(runtime.logits(0), 0), "greedy in a step");
    check(picked[1] == -1, "no sampler, no token");
    check(picked[2] == hot.pick(runtime.logits(2), 7), "sampled in a step");
    check(runtime.resident_bytes() > 0, "some memory is in use");
}

void experts_read_as_needed_are_the_same() {
    const std::vector<int64_t> tokens = some_tokens(40);
    Model mapped;
    Runtime resident(mapped.draft.builder.finish(mapped.logits), kLimits, 1, "");
    const auto expected = run(resident, tokens, 4);
    for (int64_t readers : {1, 4}) {
        Model model;
        Runtime runtime(model.draft.builder.finish(model.logits), kLimits, 2, "", {true, readers, {}});
        ExpertStore& experts = runtime.experts();
        const auto least = static_cast<int64_t>(experts.least());
        refused("limit_experts comes before", [&] { run(runtime, tokens, 1); });
        refused("one token takes", [&] { experts.limit(least - 1); });
        for (int64_t budget : {3 * least, least, 2 * least, 100 * least})
            for (size_t chunk : {size_t{1}, size_t{5}, size_t{16}}) {
                experts.limit(budget);
                const auto found = run(runtime, tokens, chunk);
                for (size_t i = 0; i < tokens.size(); i++)
                    check(std::memcmp(found[i].data(), expected[i].data(), kVocab * sizeof(float)) == 0,
                          text("position ", i, " with ", budget, " bytes, ", chunk, " rows a step"));
            }
        const auto facts = experts.streamed(0)->facts();
        check(facts.hits > 0 && facts.misses > 0 && facts.held <= facts.slabs, "experts come and go");
        check(experts.bytes_read() > 0, "experts were read");
    }
}

// A model that computes NaN says so for its rows and leaves the others alone.
void weights_that_are_not_numbers() {
    std::vector<float> values(64, 1.0f);
    values[3] = std::nanf("");  // in the embedding of token 0
    TemporaryFile file(std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
    Builder b(4);
    b.file(file.path());
    const int64_t embed = b.weight("embed", "f32", 4, 4, 0, 0), head = b.weight("head", "f32", 4, 4, 0, 64);
    const int x = b.value(4), scores = b.value(4), routes = b.value(4), y = b.value(4), z = b.value(4);
    b.node("embed", {}, x, std::vector{embed}, -1, {}, {});
    b.node("linear", std::vector<int64_t>{x}, scores, std::vector{head}, -1, {}, {});
    b.node("route", std::vector<int64_t>{scores}, routes, {}, -1, {}, {{{"top_k", 2}}, {}, {}});
    const std::vector<int64_t> weights(4, head);
    b.bank(4, 4, weights, weights, weights);
    b.node("experts", std::vector<int64_t>{x, routes}, y, {}, 0, {}, {});
    b.node("linear", std::vector<int64_t>{y}, z, std::vector{head}, -1, {}, {});
    Runtime runtime(b.finish(z), kLimits, 2, "");
    const Sampler greedy(Sampling{});
    const std::vector<Draw> draws(2, {&greedy, 0});
    const auto picked = runtime.step({{0, 1}, {0, 1}, {0, 0}, {0, 1}}, draws);
    check(picked[0] == Runtime::kNothing && picked[1] == 0, "NaN stays in its row");
}

void memory_grows_with_use() {
    Draft d(8);
    const int x = d.embed(16);
    const int wide = d.linear(x, 16, 512);
    const int state = d.builder.state(false, std::vector<int64_t>{256, 256, 256, 256}, 0, 1);
    const int a = d.node("attention", {wide, wide, wide}, 512, {}, {{{"heads", 2}, {"kv_heads", 2}}, {{"scale", 1}}, {}}, -1, {state});
    const int logits = d.linear(a, 512, 8);
    Runtime runtime(d.builder.finish(logits), {16, 8, 1 << 24}, 1, "");  // half a terabyte of keys and values
    const uint64_t before = runtime.resident_bytes();
    for (int64_t p = 0; p < 256; p++) runtime.step({{1}, {5}, {p}, {}}, {});
    const uint64_t grown = runtime.resident_bytes() - before;
    check(grown >= 256 * 1024 * sizeof(float), "keys and values of 256 positions are in memory");
    check(grown < 4 << 20, text("256 positions took ", grown >> 10, " KiB"));
}

}  // namespace

int main() {
    agrees_with_doubles_everywhere();
    experts_read_as_needed_are_the_same();
    refusals_change_nothing();
    samplers_pick_in_a_step();
    weights_that_are_not_numbers();
    memory_grows_with_use();
    return report("step_test");
}
