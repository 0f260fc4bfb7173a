// The rules each op puts on its inputs, weights and attributes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "graph/builder.h"

namespace colibri {

// `maker` holds the node that makes each value, or -1. Throws BadInput.
Node check_node(const Plan&, std::span<const int> maker, const std::string& op, std::span<const int64_t> inputs, int64_t out,
                std::span<const int64_t> weights, int64_t bank, int64_t state, const Attributes&);

Bank check_bank(const Plan&, int64_t width, int64_t inner, std::span<const int64_t> gate, std::span<const int64_t> up,
                std::span<const int64_t> down);

}  // namespace colibri
