#include "ops/attend.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace colibri {

namespace {

// Rows are walked in tiles that begin at multiples of kTile whatever the step holds: a query's sums are the same alone or
// among others, and a thread's memory does not grow with the context. A list of all rows gives the bits of no list.
constexpr int64_t kTile = 512;

// A tile's rows begin .. end, where they lie.
struct Tile {
    const float *keys, *values;
    int64_t stride;  // of values
};

Tile tile_of(const HeadShape& shape, const Span& span, int64_t begin, int64_t end, const Workspace& work) {
    const int64_t k_dim = shape.k_dim, v_dim = shape.v_dim, stride = shape.shares ? k_dim : v_dim;
    if (!span.list) return {span.keys + (begin - span.base) * k_dim, span.values + (begin - span.base) * stride, stride};
    for (int64_t j = begin; j < end; j++) {
        const int64_t row = static_cast<int64_t>(span.list[j]) - span.base;
        std::copy_n(span.keys + row * k_dim, k_dim, work.keys + (j - begin) * k_dim);
        if (!shape.shares) std::copy_n(span.values + row * v_dim, v_dim, work.values + (j - begin) * v_dim);
    }
    return {work.keys, shape.shares ? work.keys : work.values, stride};
}

// Adds to the logits of the rows from .. to their bias.
void add_bias(const Query& query, const Span& span, int64_t extent, const float* bias, int64_t from, int64_t to, float* logits) {
    if (span.list) {
        for (int64_t j = from; j < to; j++) {
            const int64_t back = query.position - static_cast<int64_t>(span.list[j]);
            if (back < extent) logits[j - from] += bias[back];
        }
    } else {
        for (int64_t j = std::max(from, query.position + 1 - extent); j < to; j++) logits[j - from] += bias[query.position - j];
    }
}

// Turns logits into shares of this tile and returns its sum of exp(logit - peak).
float tile_shares(const Kernels& kernels, float* scores, int64_t n, float& peak) {
    int64_t at = 0;
    for (int64_t i = 1; i < n; i++)
        if (scores[i] > scores[at]) at = i;
    peak = scores[at];
    kernels.softmax(scores, n);
    return 1 / scores[at];  // there the share is exp(0) / sum
}

// Adds a mean of values (`sums`, of weight `mass`; null: all zero) to a query's mean over what it saw before.
void merge(Query& query, float peak, float mass, const float* sums, int64_t n) {
    const float top = std::max(query.peak, peak);
    const float before = query.mass * std::exp(query.peak - top), now = mass * std::exp(peak - top);
    const float total = before + now;
    const float keep = before / total, add = now / total;
    if (sums)
        for (int64_t j = 0; j < n; j++) query.out[j] = keep * query.out[j] + add * sums[j];
    else
        for (int64_t j = 0; j < n; j++) query.out[j] *= keep;
    query.peak = top;
    query.mass = total;
}

}  // namespace

Workspace::Workspace(float* at, const HeadShape& shape) {
    const auto take = [&](int64_t floats) {
        float* taken = at;
        at += padded(floats);
        return taken;
    };
    q = take(kQueries * padded(shape.k_dim));
    scores = take(kQueries * kTile);
    sums = take(shape.v_dim);
    bias = take(kQueries * padded(shape.extent));
    keys = take(kTile * shape.k_dim);
    values = at;
}

int64_t Workspace::floats(const HeadShape& shape) {
    const int64_t own = kQueries * (padded(shape.k_dim) + kTile + padded(shape.extent)) + padded(shape.v_dim);
    return own + (shape.gathers ? kTile * (shape.k_dim + (shape.shares ? 0 : shape.v_dim)) : 0);
}

void attend(const Kernels& kernels, const HeadShape& shape, const Span& span, Query* queries, int64_t count, const Workspace& work) {
    int64_t first = std::numeric_limits<int64_t>::max(), last = 0;
    for (int64_t i = 0; i < count; i++) {
        first = std::min(first, queries[i].low);
        last = std::max(last, queries[i].high);
    }
    const int64_t k_dim = shape.k_dim, v_dim = shape.v_dim;
    for (int64_t start = first / kTile * kTile; start < last; start += kTile) {
        const int64_t begin = std::max(start, first), end = std::min(start + kTile, last);
        const Tile tile = tile_of(shape, span, begin, end, work);
        kernels.matmul(dense(DType::F32, k_dim, tile.keys), 0, end - begin, work.q,
                       static_cast<size_t>(Workspace::padded(k_dim)) * sizeof(float), count, work.scores, kTile);
        for (int64_t i = 0; i < count; i++) {
            Query& query = queries[i];
            const int64_t from = std::max(begin, query.low), to = std::min(end, query.high);
            if (from >= to) continue;
            float* shares = work.scores + i * kTile + (from - begin);
            if (shape.extent > 0)
                add_bias(query, span, shape.extent, work.bias + i * Workspace::padded(shape.extent), from, to, shares);
            float peak;
            const float mass = tile_shares(kernels, shares, to - from, peak);
            const bool opens = query.mass == 0;
            float* sums = opens ? query.out : work.sums;
            kernels.mix(shares, tile.values + (from - begin) * tile.stride, tile.stride, to - from, v_dim, sums);
            if (opens) {
                query.peak = peak;
                query.mass = mass;
            } else {
                merge(query, peak, mass, sums, v_dim);
            }
        }
    }
}

void add_sink(Query& query, float logit, int64_t v_dim) { merge(query, logit, 1, nullptr, v_dim); }

}  // namespace colibri
