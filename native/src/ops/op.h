// What the runtime knows of an operation. Each is defined beside what it computes; ops/registry.cpp lists them all.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "graph/inspect.h"
#include "graph/plan.h"

namespace colibri {

struct Instruction;
struct Limits;
struct Step;

// How many there may be; `optional` has a bit for each that may be absent.
struct Arity {
    size_t least, most;
    uint32_t optional = 0;
    static constexpr size_t kMany = 1 << 16;
};
constexpr Arity exactly(size_t n, uint32_t optional = 0) { return {n, n, optional}; }
constexpr Arity at_least(size_t n) { return {n, Arity::kMany}; }

// Memory an op needs while it runs, in bytes.
struct Needs {
    uint64_t shared = 0, per_thread = 0;
};

struct Op {
    // Linear products of one input run together, and experts work on activations in a form of their own.
    enum class Form : uint8_t { Plain, Linear, Experts };

    const char* name;
    Arity inputs, weights = exactly(0), states = exactly(0);
    // Checks a node's widths, weights, states and attributes; returns what it read from them, or null. Throws BadInput.
    std::unique_ptr<Params> (*check)(Inspection&);
    // Computes the rows of an instruction. Looks at no more than its own rows and their past.
    void (*run)(const Step&, const Instruction&);
    Needs (*needs)(const Plan&, const Node&, const Limits&) = nullptr;

    Form form = Form::Plain;
    bool makes_value = true;
    bool in_place = false;   // its result may take the place of an input of the same width
    uint32_t history = 0;    // bits of the inputs that its states keep: needed for all rows
    bool turns = false;      // rotates by the rows' positions
};

const Op* find_op(std::string_view name);  // null: unknown

}  // namespace colibri
