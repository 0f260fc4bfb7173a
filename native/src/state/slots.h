// All states of a plan, for every slot, and how far each slot has come.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "state/rows.h"

namespace colibri {

// Numbers that every position of a slot changes, such as the memory of a delta rule; and room to hold what they once were.
class RecurrentState {
public:
    RecurrentState(const State&, int64_t slots);  // NoRoom
    float* at(int64_t slot) const { return half(slot, second_[static_cast<size_t>(slot)]); }
    float* held(int64_t slot) const { return half(slot, !second_[static_cast<size_t>(slot)]); }
    void swap(int64_t slot) { second_[static_cast<size_t>(slot)] ^= 1; }
    int64_t size() const { return size_; }
    uint64_t resident() const { return memory_.resident(); }

private:
    float* half(int64_t slot, bool second) const {
        return reinterpret_cast<float*>(memory_.data()) + (2 * slot + second) * size_;
    }

    int64_t size_;  // 0 if no op uses it
    std::vector<uint8_t> second_;  // per slot: which half is the present
    LazyMemory memory_;
};

// The numbers of the states that every position changes, and of the windows' rows, as they were at one length.
struct Snapshot {
    int64_t length;
    std::vector<float> values;
};
using Snapshots = std::vector<std::shared_ptr<const Snapshot>>;  // by rising length

// All that makes a slot what it is at one length, as one run of numbers: snapshots, if the plan needs any, the last of them at
// that length, and then the rows that are kept whole. `exact` of the numbers are the snapshots'.
template <class Number>
struct Contents {
    int64_t slot, length;
    std::vector<std::span<Number>> runs;
    int64_t size = 0, exact = 0;

    void add(std::span<Number> run) {
        runs.push_back(run);
        size += static_cast<int64_t>(run.size());
    }
    // Calls `use` with the parts that make up `count` numbers from `begin` on; both were checked.
    template <class Use>
    void each(int64_t begin, int64_t count, Use use) const {
        for (const std::span<Number>& run : runs) {
            const auto held = static_cast<int64_t>(run.size());
            if (count > 0 && begin < held) {
                const int64_t part = std::min(count, held - begin);
                use(run.subspan(static_cast<size_t>(begin), static_cast<size_t>(part)));
                begin += part;
                count -= part;
            }
            begin -= held;
        }
    }
};

// What a slot holds. The snapshots are its own; the rows are the slot's, which may go on but not be taken back further.
struct Image : Contents<const float> {
    Snapshots snapshots;
};

// What a slot shall hold, to be filled in. Until it is adopted the slot holds nothing.
struct Blank : Contents<float> {
    std::vector<std::shared_ptr<Snapshot>> snapshots;
};

// Rows by position can be cut at any length; a window only as far as its rows reach, and what is recurrent not at all. Slots
// of plans with such states are remembered from time to time, and are then taken back to one of the remembered lengths.
class Slots {
public:
    Slots(const std::vector<State>&, int64_t slots, int64_t context, int64_t max_rows);

    int64_t count() const { return static_cast<int64_t>(lengths_.size()); }
    int64_t context() const { return context_; }
    int64_t length(int64_t slot) const { return lengths_[static_cast<size_t>(slot)]; }
    RowState& rows(int state) { return rows_[static_cast<size_t>(places_[static_cast<size_t>(state)])]; }
    RecurrentState& recurrent(int state) { return recurrents_[static_cast<size_t>(places_[static_cast<size_t>(state)])]; }

    // A step writes positions from `begin` on, up to `end`, which must be a length the slot can be cut to; then it has come to
    // `end`. If the step fails between the two, the slot holds nothing for sure but what was remembered.
    bool can_cut(int64_t slot, int64_t length) const;
    void begin(int64_t slot, int64_t begin, int64_t end);
    void finish(int64_t slot, int64_t end) { lengths_[static_cast<size_t>(slot)] = end; }

    // The greatest length, no more than `length`, that the slot can be taken back to or copied at.
    int64_t reach(int64_t slot, int64_t length) const;
    // Takes the slot back to the greatest length that is possible and no more than `length`; returns it.
    int64_t rewind(int64_t slot, int64_t length);
    // Makes a slot what another one is after that; returns the length.
    int64_t copy(int64_t source, int64_t target, int64_t length);
    // Remembers the slot as it is, so that it can be taken back to its present length. Nothing to do where it can anyway.
    void remember(int64_t slot);
    // The same for what is only tried: until the slot is held again or taken back to there, and as long as one step reaches.
    // Costs a copy of what is recurrent, and no allocation; going back costs nothing.
    void hold(int64_t slot);

    // The slot as it would be after `rewind(slot, length)`. Reads nothing but this slot, so that others may be stepped
    // meanwhile. Of what it remembers the first length and the last two are taken along.
    Image image(int64_t slot, int64_t length) const;
    // Empties the slot to be filled with what an image of that length and those snapshots holds; BadInput if no image of
    // this plan can be like that.
    Blank blank(int64_t slot, int64_t length, const std::vector<int64_t>& snapshots);
    // Makes a slot what was filled in. Nothing may have been done to the slot since `blank`.
    void adopt(Blank&);

    void check(int64_t slot, int64_t length) const;  // BadInput
    uint64_t resident() const;

private:
    bool sequential() const { return snapshot_size_ > 0; }
    bool windows_can_cut(int64_t slot, int64_t length) const;
    bool held_at(int64_t slot, int64_t length) const;
    size_t most_snapshots() const;
    int64_t size_at(int64_t length) const;  // numbers of a snapshot
    Snapshot snapshot(int64_t slot, int64_t length) const;
    void restore(int64_t slot, const Snapshot&);
    void clear(int64_t slot);

    int64_t context_;
    std::vector<int> places_;  // of each state, in rows_ or recurrents_
    std::vector<RowState> rows_;
    std::vector<RecurrentState> recurrents_;
    std::vector<int64_t> lengths_, held_lengths_;  // -1: nothing is held
    std::vector<Snapshots> snapshots_;
    int64_t snapshot_size_ = 0;  // numbers, at most
};

}  // namespace colibri
