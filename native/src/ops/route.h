#pragma once

#include "graph/plan.h"

namespace colibri {

// How many experts a route chooses, of how many, and how many more take part whatever it chooses. It reads a score for each
// of both, first those to choose from. Its value: the indices of the chosen as floats, their weights, the weights of the rest.
struct Routing {
    int64_t experts, top_k, shared;
};

// Null for a node of another op.
const Routing* routing_of(const Node&);

}  // namespace colibri
