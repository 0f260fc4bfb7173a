// Keys and values of every slot, per attention.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/map.h"
#include "graph/plan.h"

namespace colibri {

// One attention's memory, float32. The positions of one head of one slot lie one after another, so that a head's scores
// are one matrix product over a run of memory. Pages come into being as positions are written.
class KvState {
public:
    KvState(const State&, int64_t slots, int64_t context);  // NoRoom

    int64_t kv_heads() const { return kv_heads_; }
    int64_t k_dim() const { return k_dim_; }
    int64_t v_dim() const { return v_dim_; }

    // Row 0 of [context, k_dim] / [context, v_dim].
    float* keys(int64_t slot, int64_t head) { return k_at(slot, head); }
    float* values(int64_t slot, int64_t head) { return v_at(slot, head); }

    void write(int64_t slot, int64_t position, const float* k, const float* v);
    void copy(int64_t source, int64_t target, int64_t length);
    uint64_t resident() const { return memory_.resident(); }

private:
    float* k_at(int64_t slot, int64_t head) const;
    float* v_at(int64_t slot, int64_t head) const;

    int64_t kv_heads_, k_dim_, v_dim_, context_;
    LazyMemory memory_;
};

// All states of a plan with the number of positions each slot holds. States no attention uses take no memory.
class Slots {
public:
    Slots(const std::vector<State>&, int64_t slots, int64_t context);

    int64_t count() const { return static_cast<int64_t>(lengths_.size()); }
    int64_t context() const { return context_; }
    int64_t length(int64_t slot) const { return lengths_[static_cast<size_t>(slot)]; }
    void set_length(int64_t slot, int64_t length) { lengths_[static_cast<size_t>(slot)] = length; }
    KvState& state(int index) { return states_[static_cast<size_t>(index)]; }

    void copy(int64_t source, int64_t target, int64_t length);  // BadInput
    uint64_t resident() const;

private:
    int64_t context_;
    std::vector<KvState> states_;
    std::vector<int64_t> lengths_;
};

}  // namespace colibri
