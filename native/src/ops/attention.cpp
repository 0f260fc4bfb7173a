// Causal softmax attention over the slots' keys and values.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "ops/step.h"

namespace colibri {

namespace {

// Positions are walked in tiles that begin at multiples of kTile whatever the step holds: a query's sums are the same
// alone or among others, and a thread's memory does not grow with the context.
constexpr int64_t kTile = 512;
constexpr int64_t kQueries = 32;  // of one unit: (row, head) pairs that read the same keys

struct Query {
    float* out;
    int64_t low, high;  // positions it sees
    float peak, mass;   // highest score so far; sum of exp(score - peak)
};

// Rows of one slot, neighbours in the step, that share reads of its keys.
struct Block {
    int64_t begin, end;
};

int64_t padded(int64_t floats) { return (floats + 15) / 16 * 16; }

struct Workspace {
    float* q;       // [kQueries, padded(k_dim)]
    float* scores;  // [kQueries, kTile]
    float* sums;    // [padded(v_dim)]
    Workspace(float* at, int64_t k_dim)
        : q(at), scores(q + kQueries * padded(k_dim)), sums(scores + kQueries * kTile) {}
    static int64_t floats(int64_t k_dim, int64_t v_dim) { return kQueries * (padded(k_dim) + kTile) + padded(v_dim); }
};

// Turns scores into shares of this tile and returns its sum of exp(score - peak).
float tile_shares(const Kernels& kernels, float* scores, int64_t n, float& peak) {
    int64_t at = 0;
    for (int64_t i = 1; i < n; i++)
        if (scores[i] > scores[at]) at = i;
    peak = scores[at];
    kernels.softmax(scores, n);
    return 1 / scores[at];  // there the share is exp(0) / sum
}

// Adds a tile's mean of values (`sums`, of weight `mass`) to a query's mean over the tiles before.
void merge(Query& query, float peak, float mass, const float* sums, int64_t n) {
    const float top = std::max(query.peak, peak);
    const float before = query.mass * std::exp(query.peak - top), now = mass * std::exp(peak - top);
    const float total = before + now;
    const float keep = before / total, add = now / total;
    for (int64_t j = 0; j < n; j++) query.out[j] = keep * query.out[j] + add * sums[j];
    query.peak = top;
    query.mass = total;
}

void attend(const Kernels& kernels, const float* keys, const float* values, int64_t k_dim, int64_t v_dim, Query* queries,
            int64_t count, const Workspace& work) {
    int64_t first = std::numeric_limits<int64_t>::max(), last = 0;
    for (int64_t i = 0; i < count; i++) {
        first = std::min(first, queries[i].low);
        last = std::max(last, queries[i].high);
    }
    for (int64_t tile = first / kTile * kTile; tile < last; tile += kTile) {
        const int64_t begin = std::max(tile, first), end = std::min(tile + kTile, last);
        kernels.matmul(DType::F32, keys + begin * k_dim, k_dim, 0, end - begin, work.q,
                       static_cast<size_t>(padded(k_dim)) * sizeof(float), count, work.scores, kTile);
        for (int64_t i = 0; i < count; i++) {
            const int64_t from = std::max(begin, queries[i].low), to = std::min(end, queries[i].high);
            if (from >= to) continue;
            float* shares = work.scores + i * kTile + (from - begin);
            float peak;
            const float mass = tile_shares(kernels, shares, to - from, peak);
            const bool first_tile = from == queries[i].low;
            float* sums = first_tile ? queries[i].out : work.sums;
            kernels.mix(shares, values + from * v_dim, v_dim, to - from, v_dim, sums);
            if (first_tile) {
                queries[i].peak = peak;
                queries[i].mass = mass;
            } else {
                merge(queries[i], peak, mass, sums, v_dim);
            }
        }
    }
}

}  // namespace

uint64_t attention_scratch(const Plan& plan, const Instruction& now) {
    const State& state = plan.states[static_cast<size_t>(now.node->state)];
    return static_cast<uint64_t>(Workspace::floats(state.k_width / state.kv_heads, state.v_width / state.kv_heads)) * sizeof(float);
}

void run_attention(const Step& s, const Instruction& now) {
    const Node& node = *now.node;
    KvState& state = s.slots.state(node.state);
    const int64_t k_dim = state.k_dim(), v_dim = state.v_dim(), kv_heads = node.kv_heads;

    // Every row's keys and values are in place before any row looks: rows of one step see each other as if they had
    // come one by one.
    s.each_row(Rows::All, kv_heads * (k_dim + v_dim), [&](int64_t i) {
        const auto row = static_cast<size_t>(i);
        state.write(s.batch.slots[row], s.batch.positions[row], s.row(now.in[1], i), s.row(now.in[2], i));
    });

    const int64_t rows = s.batch.count(now.rows), group = node.heads / kv_heads;
    const int64_t share = std::max<int64_t>(1, kQueries / group);  // rows of a block
    thread_local std::vector<Block> kept;
    std::vector<Block>& blocks = kept;
    blocks.clear();
    const auto slot = [&](int64_t i) { return s.batch.slots[s.batch.row(now.rows, i)]; };
    for (int64_t i = 0; i < rows; i++) {
        if (!blocks.empty() && blocks.back().end - blocks.back().begin < share && slot(blocks.back().begin) == slot(i))
            blocks.back().end = i + 1;
        else
            blocks.push_back({i, i + 1});
    }
    // Heads of one group share keys; they are parted where there would be too little to do for every thread.
    const int64_t available = static_cast<int64_t>(blocks.size()) * kv_heads;
    const int64_t wanted_parts = std::clamp<int64_t>((3 * s.pool.threads() + available - 1) / std::max<int64_t>(1, available), 1, group);
    const int64_t heads = std::min((group + wanted_parts - 1) / wanted_parts, kQueries);
    const int64_t parts = (group + heads - 1) / heads;

    s.pool.run(available * parts, [&](int64_t unit, int thread) {
        // Late blocks of a long prompt see most positions: begin with them.
        const Block block = blocks[blocks.size() - 1 - static_cast<size_t>(unit / (kv_heads * parts))];
        const int64_t kv_head = unit / parts % kv_heads, h0 = unit % parts * heads, h1 = std::min(group, h0 + heads);
        const Workspace work(s.scratch.floats(thread), k_dim);
        Query queries[kQueries];
        int64_t count = 0;
        for (int64_t i = block.begin; i < block.end; i++) {
            const int64_t position = s.batch.positions[s.batch.row(now.rows, i)];
            for (int64_t h = kv_head * group + h0; h < kv_head * group + h1; h++) {
                const float* q = s.row(now.in[0], i) + h * k_dim;
                float* to = work.q + count * padded(k_dim);
                for (int64_t j = 0; j < k_dim; j++) to[j] = q[j] * node.scale;
                const int64_t low = node.window > 0 ? std::max<int64_t>(0, position + 1 - node.window) : 0;
                queries[count++] = {s.row(now.out, i) + h * v_dim, low, position + 1, 0, 0};
            }
        }
        const int64_t at = s.batch.slots[s.batch.row(now.rows, block.begin)];
        attend(s.kernels, state.keys(at, kv_head), state.values(at, kv_head), k_dim, v_dim, queries, count, work);
    });
}

}  // namespace colibri
