// Rows that slots keep by position, such as keys and values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/map.h"
#include "graph/plan.h"

namespace colibri {

// One state's memory, float32. Rows of one plane of one slot lie one after another, so that a head's scores are one matrix
// product over a run of memory. Pages come into being as rows are written. Of a state with a window only the rows from
// `base` on are there: when the memory is full, the last ones move to its front.
class RowState {
public:
    RowState(const State&, int64_t slots, int64_t context, int64_t max_rows);  // NoRoom

    int64_t every() const { return every_; }
    int64_t plane_width(size_t plane) const { return planes_[plane]; }

    // The given row of a plane, and those behind it; row >= base.
    float* at(int64_t slot, size_t plane, int64_t row) {
        return plane_begin(slot, plane) + (row - base(slot)) * planes_[plane];
    }
    int64_t base(int64_t slot) const { return bases_[static_cast<size_t>(slot)]; }

    // Before rows begin .. end are written, by one thread: nothing in front of what the window of `begin` needs stays for sure.
    void make_room(int64_t slot, int64_t begin, int64_t end);

    // Whether a slot that holds `length` positions can be cut to the first `wanted`.
    bool can_cut(int64_t slot, int64_t length, int64_t wanted) const;
    // What a slot needs to go on from `length` positions: rows of each plane from the first one that its window reaches.
    void save(int64_t slot, int64_t length, std::vector<float>& out) const;
    const float* restore(int64_t slot, int64_t length, const float* from);
    int64_t saved_size(int64_t length) const;  // numbers
    int64_t most_saved() const { return window_ * width_; }

    // Adds the rows of the first `length` positions, a run for each plane, where all are kept.
    void add_runs(int64_t slot, int64_t length, std::vector<std::span<float>>& out) const;

    // The rows of the first `length` positions.
    void copy(int64_t source, int64_t target, int64_t length);
    void clear(int64_t slot) { bases_[static_cast<size_t>(slot)] = 0; }
    uint64_t resident() const { return memory_.resident(); }

private:
    float* plane_begin(int64_t slot, size_t plane) const {
        return reinterpret_cast<float*>(memory_.data()) + slot * width_ * capacity_ + offsets_[plane] * capacity_;
    }
    int64_t rows_of(int64_t positions) const { return positions / every_; }
    int64_t first_needed(int64_t rows) const { return window_ == 0 || rows < window_ ? 0 : rows - window_ + 1; }

    std::vector<int64_t> planes_, offsets_;  // widths, and where each plane begins in a row of all
    int64_t width_ = 0, window_, every_, capacity_;
    std::vector<int64_t> bases_;             // per slot
    LazyMemory memory_;
};

}  // namespace colibri
