// What queries make of the rows they look at: a softmax over any number of spans of rows, tile by tile.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"

namespace colibri {

constexpr int64_t kQueries = 32;  // that look at a span together

// What the keys and values of a head are like, and how far its bias by distance reaches.
struct HeadShape {
    int64_t k_dim, v_dim;
    bool shares;     // a key's first values are its value
    int64_t extent;  // how far back a key may stand for its logit to have a bias; 0: none has
    bool gathers;    // some spans are read by a list
};

struct Query {
    float* out;
    int64_t position;
    int64_t low, high;  // of a span's rows or of its list: what the query sees
    float peak, mass;   // highest logit so far; sum of exp(logit - peak), 0 before the first
};

// Rows of one key head in a state: those from `base` on lie at `keys` and `values`. With a list only the rows that it names.
struct Span {
    const float *keys, *values;
    int64_t base;
    const float* list;
};

// One thread's memory.
struct Workspace {
    float* q;       // [kQueries, padded(k_dim)], times the scale
    float* scores;  // [kQueries, a tile]
    float* sums;    // [padded(v_dim)]
    float* bias;    // [kQueries, padded(extent)], by how far back the key stands
    float *keys, *values;  // of a tile, gathered

    Workspace(float* at, const HeadShape&);
    static int64_t floats(const HeadShape&);
    static int64_t padded(int64_t floats) { return (floats + 15) / 16 * 16; }
};

// Adds what the queries, whose own numbers are in `work`, see of a span to what they saw before.
void attend(const Kernels&, const HeadShape&, const Span&, Query* queries, int64_t count, const Workspace& work);

// Adds a logit that has no value.
void add_sink(Query&, float logit, int64_t v_dim);

}  // namespace colibri
