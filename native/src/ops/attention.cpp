// Causal softmax attention over the slots' keys and values.
#include <algorithm>
#include <vector>

#include "ops/attend.h"
#include "ops/select.h"
#include "ops/step.h"

namespace colibri {

namespace {

enum Input : size_t { kQ, kK, kV, kSelect, kSink, kDistance };
enum Weights : size_t { kSinks, kProfile };

struct AttentionParams : Params {
    int64_t heads, kv_heads, window, every;
    float scale;
    HeadShape shape{};
    bool pooled;           // rows of a second state are seen besides
    int64_t profiled = 0;  // values of a distance a head
};

void check_extras(Inspection& at, AttentionParams& params) {
    params.pooled = at.states() == 2;
    params.every = at.integer("every", 1, Inspection::kAny, 1);
    if (params.pooled) {
        if (params.kv_heads != 1 || !params.shape.shares) at.refuse("pooled rows go with one key head whose keys are its values");
        at.same("every", params.every, at.filled(1, params.shape.k_dim).every);
    } else {
        at.same("every", params.every, 1);
    }
    params.shape.gathers = at.has(kSelect);
    if (at.has(kSelect)) {
        const Selection* selection = selection_of(at.made_by(kSelect));
        if (!selection) at.refuse("the rows it is to see are not chosen by select");
        if (!params.pooled && params.window > 0) at.refuse("takes a window or selected rows, not both");
        at.same("every of the selected rows", selection->every, params.every);
    }
    if (at.has(kSink)) at.same("width of sink", at.width(kSink), params.heads);
    if (at.has_weight(kSinks)) at.vector(kSinks, params.heads);
    if (at.has(kSink) && at.has_weight(kSinks)) at.refuse("takes sink or sinks, not both");
    if (at.has(kDistance) != at.has_weight(kProfile)) at.refuse("distance and profile go together");
    if (at.has(kDistance)) {
        if (params.pooled) at.refuse("pooled rows stand at no distance");
        params.profiled = at.weight(kProfile).rows;
        params.shape.extent = at.weight(kProfile).cols();
        at.same("width of distance", at.width(kDistance), params.heads * params.profiled);
        at.vector(kProfile, params.shape.extent, params.profiled);
    }
}

std::unique_ptr<Params> check_attention(Inspection& at) {
    auto params = std::make_unique<AttentionParams>();
    HeadShape& shape = params->shape;
    params->heads = at.integer("heads", 1, Inspection::kAny);
    params->kv_heads = at.integer("kv_heads", 1, 1 << 16);
    params->window = at.integer("window", 0, Inspection::kAny, 0);
    params->scale = at.number("scale");
    at.divides("kv_heads", params->kv_heads, params->heads);
    at.divides("kv_heads", params->kv_heads, at.width(kK));
    at.divides("heads", params->heads, at.out());
    shape.k_dim = at.width(kK) / params->kv_heads;
    shape.v_dim = at.out() / params->heads;
    shape.shares = !at.has(kV);
    at.same("width of q", at.width(kQ), params->heads * shape.k_dim);
    std::vector<int64_t> planes(static_cast<size_t>(params->kv_heads), shape.k_dim);
    if (shape.shares) {
        if (shape.v_dim > shape.k_dim) at.refuse("values of ", shape.v_dim, " from keys of ", shape.k_dim);
    } else {
        at.same("width of v", at.width(kV), params->kv_heads * shape.v_dim);
        planes.insert(planes.end(), static_cast<size_t>(params->kv_heads), shape.v_dim);
    }
    check_extras(at, *params);
    at.rows(0, planes, params->window);
    return params;
}

Needs attention_needs(const Plan&, const Node& node, const Limits&) {
    const auto& params = node.as<AttentionParams>();
    return {0, static_cast<uint64_t>(Workspace::floats(params.shape)) * sizeof(float)};
}

void append(const Step& s, const Instruction& now, const AttentionParams& params, RowState& state) {
    const int64_t k_dim = params.shape.k_dim, v_dim = params.shape.v_dim, kv_heads = params.kv_heads;
    s.each_row(Rows::All, kv_heads * (k_dim + v_dim), [&](int64_t i) {
        const int64_t slot = s.batch.slot(i), position = s.batch.position(i);
        for (int64_t head = 0; head < kv_heads; head++) {
            const auto plane = static_cast<size_t>(head);
            std::copy_n(s.row(now.in[kK], i) + head * k_dim, k_dim, state.at(slot, plane, position));
            if (!params.shape.shares)
                std::copy_n(s.row(now.in[kV], i) + head * v_dim, v_dim, state.at(slot, plane + static_cast<size_t>(kv_heads), position));
        }
    });
}

// The rows selected for one row of the step: rising, then -1.
struct List {
    const float* rows;
    int64_t size;
};

List list_of(const Step& s, const Instruction& now, int64_t row) {
    if (!now.has(kSelect)) return {nullptr, 0};
    const float* rows = s.row(now.in[kSelect], row);
    const float* end = rows + s.buffer(now.in[kSelect]).width;
    return {rows, std::partition_point(rows, end, [](float number) { return number >= 0; }) - rows};
}

// Rows of one slot, neighbours in the step, that share reads of its keys.
struct Block {
    int64_t begin, end;
};

// The queries of a block's rows and of heads that share keys.
struct Unit {
    const Step& s;
    const Instruction& now;
    const AttentionParams& params;
    const Workspace work;
    int64_t slot, kv_head, count = 0;
    Query queries[kQueries] = {};
    const float* sinks[kQueries] = {};  // or null

    void add(int64_t row, int64_t head) {
        const HeadShape& shape = params.shape;
        const int64_t position = s.batch.positions[s.batch.row(now.rows, row)];
        const float* q = s.row(now.in[kQ], row) + head * shape.k_dim;
        float* to = work.q + count * Workspace::padded(shape.k_dim);
        for (int64_t j = 0; j < shape.k_dim; j++) to[j] = q[j] * params.scale;
        const int64_t low = params.window > 0 ? std::max<int64_t>(0, position + 1 - params.window) : 0;
        if (shape.extent > 0) {
            const float* distance = s.row(now.in[kDistance], row) + head * params.profiled;
            const int64_t reach = std::min(shape.extent, position + 1 - low);
            s.kernels.mix(distance, s.vector(now, kProfile), shape.extent, params.profiled, reach,
                          work.bias + count * Workspace::padded(shape.extent));
        }
        sinks[count] = now.has(kSink)                 ? s.row(now.in[kSink], row) + head
                       : now.node->has_weight(kSinks) ? s.vector(now, kSinks) + head
                                                      : nullptr;
        queries[count++] = {s.row(now.out, row) + head * shape.v_dim, position, low, position + 1, 0, 0};
    }

    // A list of all that may be seen says no more than no list.
    void attend_to(Span span, const List& list, int64_t visible) {
        if (list.rows) {
            span.list = list.size < visible ? list.rows : nullptr;
            for (int64_t i = 0; i < count; i++) {
                queries[i].low = 0;
                queries[i].high = list.size;
            }
        }
        attend(s.kernels, params.shape, span, queries, count, work);
    }

    void run(RowState& state, const List& list) {
        const int64_t base = state.base(slot);
        const auto plane = static_cast<size_t>(kv_head);
        const float* keys = state.at(slot, plane, base);
        const float* values = params.shape.shares ? keys : state.at(slot, plane + static_cast<size_t>(params.kv_heads), base);
        attend_to({keys, values, base, nullptr}, params.pooled ? List{nullptr, 0} : list, queries[0].position + 1);
        if (params.pooled) {
            for (int64_t i = 0; i < count; i++) {
                queries[i].low = 0;
                queries[i].high = (queries[i].position + 1) / params.every;
            }
            const float* rows = s.slots.rows(now.node->states[1]).at(slot, 0, 0);
            attend_to({rows, rows, 0, nullptr}, list, queries[0].high);
        }
        for (int64_t i = 0; i < count; i++)
            if (sinks[i]) add_sink(queries[i], *sinks[i], params.shape.v_dim);
    }
};

void run_attention(const Step& s, const Instruction& now) {
    const auto& params = now.node->as<AttentionParams>();
    RowState& state = s.slots.rows(now.node->states[0]);
    // Every row's keys and values are in place before any row looks: rows of one step see each other as if they had
    // come one by one.
    append(s, now, params, state);

    const int64_t rows = s.batch.count(now.rows), group = params.heads / params.kv_heads;
    // Rows of a block; each has a list of its own.
    const int64_t share = now.has(kSelect) ? 1 : std::max<int64_t>(1, kQueries / group);
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
    const int64_t available = static_cast<int64_t>(blocks.size()) * params.kv_heads;
    const int64_t wanted_parts = std::clamp<int64_t>((3 * s.pool.threads() + available - 1) / std::max<int64_t>(1, available), 1, group);
    const int64_t heads = std::min((group + wanted_parts - 1) / wanted_parts, kQueries);
    const int64_t parts = (group + heads - 1) / heads;

    s.pool.run(available * parts, [&](int64_t index, int thread) {
        // Late blocks of a long prompt see most positions: begin with them.
        const Block block = blocks[blocks.size() - 1 - static_cast<size_t>(index / (params.kv_heads * parts))];
        const int64_t kv_head = index / parts % params.kv_heads, h0 = index % parts * heads, h1 = std::min(group, h0 + heads);
        Unit unit{s, now, params, Workspace(s.scratch.floats(thread), params.shape), slot(block.begin), kv_head};
        for (int64_t i = block.begin; i < block.end; i++)
            for (int64_t h = kv_head * group + h0; h < kv_head * group + h1; h++) unit.add(i, h);
        unit.run(state, list_of(s, now, block.begin));
    });
}

}  // namespace

extern const Op kAttention{.name = "attention",
                           .inputs = {2, 6, 0b111100},
                           .weights = {0, 2, 3},
                           .states = {1, 2},
                           .check = check_attention,
                           .run = run_attention,
                           .needs = attention_needs,
                           .history = 2 | 4};

}  // namespace colibri
