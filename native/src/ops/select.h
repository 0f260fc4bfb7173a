#pragma once

#include "graph/plan.h"

namespace colibri {

// What a select's numbers say: a row of them stands for so many positions. 1 where positions are listed themselves.
struct Selection {
    int64_t every;
};

// Null for a node of another op.
const Selection* selection_of(const Node&);

}  // namespace colibri
