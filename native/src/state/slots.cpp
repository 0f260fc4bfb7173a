#include "state/slots.h"

#include <algorithm>

#include "error.h"

namespace colibri {

namespace {

constexpr const char* kWhat = "the slots' recurrent states (lower kv_slots)";

// What a slot remembers: this many lengths, fewer where they would take more than these bytes, but two in any case.
constexpr int64_t kMostSnapshots = 8;
constexpr int64_t kSnapshotBytes = int64_t{1} << 30;

}  // namespace

RecurrentState::RecurrentState(const State& state, int64_t slots)
    : size_(state.used ? state.width() : 0),
      second_(static_cast<size_t>(slots), 0),
      memory_(static_cast<uint64_t>(size_) * sizeof(float) * 2 * static_cast<uint64_t>(slots), kWhat) {}

Slots::Slots(const std::vector<State>& states, int64_t slots, int64_t context, int64_t max_rows)
    : context_(context),
      lengths_(static_cast<size_t>(slots), 0),
      held_lengths_(static_cast<size_t>(slots), -1),
      snapshots_(static_cast<size_t>(slots)) {
    for (const State& state : states) {
        if (state.recurrent) {
            places_.push_back(static_cast<int>(recurrents_.size()));
            recurrents_.emplace_back(state, slots);
            snapshot_size_ += recurrents_.back().size();
        } else {
            places_.push_back(static_cast<int>(rows_.size()));
            rows_.emplace_back(state, slots, context, max_rows);
            if (state.used) snapshot_size_ += rows_.back().most_saved();
        }
    }
}

void Slots::check(int64_t slot, int64_t length) const {
    if (slot < 0 || slot >= count()) refuse("no slot ", slot, ", there are ", count());
    if (length < 0 || length > this->length(slot))
        refuse("length ", length, ", slot ", slot, " holds ", this->length(slot), " positions");
}

bool Slots::can_cut(int64_t slot, int64_t length) const {
    const int64_t held = this->length(slot);
    if (length == held || length == 0) return true;
    for (const RecurrentState& state : recurrents_)
        if (state.size() > 0) return false;
    return windows_can_cut(slot, length);
}

bool Slots::windows_can_cut(int64_t slot, int64_t length) const {
    const int64_t held = this->length(slot);
    return std::all_of(rows_.begin(), rows_.end(), [&](const RowState& rows) { return rows.can_cut(slot, held, length); });
}

bool Slots::held_at(int64_t slot, int64_t length) const {
    return held_lengths_[static_cast<size_t>(slot)] == length && windows_can_cut(slot, length);
}

void Slots::begin(int64_t slot, int64_t begin, int64_t end) {
    if (begin == 0) clear(slot);
    Snapshots& known = snapshots_[static_cast<size_t>(slot)];
    while (!known.empty() && known.back()->length > begin) known.pop_back();
    int64_t& tried = held_lengths_[static_cast<size_t>(slot)];
    if (tried > begin) tried = -1;
    // Rows by position before `begin` are left alone; what else there is may be half written if the step fails.
    lengths_[static_cast<size_t>(slot)] = sequential() ? 0 : begin;
    for (RowState& rows : rows_) rows.make_room(slot, begin / rows.every(), (end + rows.every() - 1) / rows.every());
}

int64_t Slots::reach(int64_t slot, int64_t length) const {
    check(slot, 0);
    length = std::min(length, this->length(slot));
    if (length < 0) refuse("length ", length, " is negative");
    if (can_cut(slot, length)) return length;
    int64_t best = 0;
    for (const auto& snapshot : snapshots_[static_cast<size_t>(slot)])
        if (snapshot->length <= length) best = snapshot->length;
    const int64_t held = held_lengths_[static_cast<size_t>(slot)];
    return held > best && held <= length && held_at(slot, held) ? held : best;
}

int64_t Slots::rewind(int64_t slot, int64_t length) {
    length = reach(slot, length);
    Snapshots& known = snapshots_[static_cast<size_t>(slot)];
    while (!known.empty() && known.back()->length > length) known.pop_back();
    int64_t& tried = held_lengths_[static_cast<size_t>(slot)];
    if (!can_cut(slot, length)) {
        if (held_at(slot, length)) {
            for (RecurrentState& state : recurrents_) state.swap(slot);
            tried = -1;
        } else {
            restore(slot, *known.back());
        }
    }
    if (length == 0) clear(slot);
    if (tried > length) tried = -1;
    lengths_[static_cast<size_t>(slot)] = length;
    return length;
}

int64_t Slots::copy(int64_t source, int64_t target, int64_t length) {
    check(source, length);
    check(target, 0);
    if (source == target) return rewind(source, length);
    length = reach(source, length);
    Snapshots known = snapshots_[static_cast<size_t>(source)];
    while (!known.empty() && known.back()->length > length) known.pop_back();

    clear(target);
    lengths_[static_cast<size_t>(target)] = length;
    if (length > 0) {
        for (RowState& rows : rows_) rows.copy(source, target, length);
        if (can_cut(source, length))
            for (RecurrentState& state : recurrents_) std::copy_n(state.at(source), state.size(), state.at(target));
        else if (held_at(source, length))
            for (RecurrentState& state : recurrents_) std::copy_n(state.held(source), state.size(), state.at(target));
        else
            restore(target, *known.back());
    }
    snapshots_[static_cast<size_t>(target)] = std::move(known);
    return length;
}

void Slots::remember(int64_t slot) {
    check(slot, 0);
    Snapshots& known = snapshots_[static_cast<size_t>(slot)];
    const int64_t length = this->length(slot);
    if (!sequential() || length == 0 || (!known.empty() && known.back()->length == length)) return;
    if (known.size() >= most_snapshots()) {
        // The first is the opening that conversations share, and the last is where the next turn begins; of the others the one
        // goes that stands closest behind the one before it.
        size_t worst = 1;
        for (size_t i = 2; i < known.size(); i++)
            if (known[i]->length - known[i - 1]->length < known[worst]->length - known[worst - 1]->length) worst = i;
        known.erase(known.begin() + static_cast<ptrdiff_t>(worst));
    }
    known.push_back(std::make_shared<Snapshot>(snapshot(slot, length)));
}

size_t Slots::most_snapshots() const {
    const int64_t bytes = snapshot_size_ * static_cast<int64_t>(sizeof(float));
    return static_cast<size_t>(std::clamp<int64_t>(kSnapshotBytes / bytes, 2, kMostSnapshots));
}

int64_t Slots::size_at(int64_t length) const {
    int64_t size = 0;
    for (const RecurrentState& state : recurrents_) size += state.size();
    for (const RowState& rows : rows_) size += rows.saved_size(length);
    return size;
}

Snapshot Slots::snapshot(int64_t slot, int64_t length) const {
    Snapshot made{length, {}};
    made.values.reserve(static_cast<size_t>(size_at(length)));
    const bool tried = !can_cut(slot, length);  // then `length` is where the slot is held
    for (const RecurrentState& state : recurrents_) {
        const float* from = tried ? state.held(slot) : state.at(slot);
        made.values.insert(made.values.end(), from, from + state.size());
    }
    for (const RowState& rows : rows_) rows.save(slot, length, made.values);
    return made;
}

Image Slots::image(int64_t slot, int64_t length) const {
    length = reach(slot, length);
    Image image{{slot, length, {}}, {}};
    if (sequential() && length > 0) {
        Snapshots& taken = image.snapshots;
        for (const auto& known : snapshots_[static_cast<size_t>(slot)])
            if (known->length <= length) taken.push_back(known);
        const bool stands = !taken.empty() && taken.back()->length == length;
        const size_t most = 3 + stands;  // of the conversation's opening, and of where the last turns began
        if (taken.size() > most) taken.erase(taken.begin() + 1, taken.end() - static_cast<ptrdiff_t>(most - 1));
        if (!stands) taken.push_back(std::make_shared<Snapshot>(snapshot(slot, length)));
        for (const auto& each : taken) image.add(each->values);
    }
    image.exact = image.size;
    std::vector<std::span<float>> runs;
    for (const RowState& rows : rows_) rows.add_runs(slot, length, runs);
    for (const std::span<float>& run : runs) image.add(run);
    return image;
}

Blank Slots::blank(int64_t slot, int64_t length, const std::vector<int64_t>& snapshots) {
    check(slot, 0);
    if (length < 1 || length > context_) refuse("length ", length, " is outside the context of ", context_);
    if (!sequential() && !snapshots.empty()) refuse("snapshots of a plan that needs none");
    if (sequential() && (snapshots.empty() || snapshots.back() != length)) refuse("no snapshot at length ", length);
    if (sequential() && snapshots.size() > most_snapshots() + 2) refuse(snapshots.size(), " snapshots are too many");
    Blank blank{{slot, length, {}}, {}};
    int64_t before = 0;
    for (int64_t at : snapshots) {
        if (at <= before) refuse("snapshots at ", before, " and then at ", at);
        before = at;
        blank.snapshots.push_back(std::make_shared<Snapshot>(Snapshot{at, std::vector<float>(static_cast<size_t>(size_at(at)))}));
        blank.add(blank.snapshots.back()->values);
    }
    blank.exact = blank.size;
    std::vector<std::span<float>> runs;
    for (const RowState& rows : rows_) rows.add_runs(slot, length, runs);
    for (const std::span<float>& run : runs) blank.add(run);
    rewind(slot, 0);
    return blank;
}

void Slots::adopt(Blank& blank) {
    if (length(blank.slot) != 0) refuse("slot ", blank.slot, " is in use");
    Snapshots& known = snapshots_[static_cast<size_t>(blank.slot)];
    known.assign(blank.snapshots.begin(), blank.snapshots.end());
    if (!known.empty()) restore(blank.slot, *known.back());
    while (sequential() && known.size() > most_snapshots()) known.erase(known.begin() + 1);
    lengths_[static_cast<size_t>(blank.slot)] = blank.length;
    blank = {};
}

void Slots::hold(int64_t slot) {
    check(slot, 0);
    for (RecurrentState& state : recurrents_) std::copy_n(state.at(slot), state.size(), state.held(slot));
    held_lengths_[static_cast<size_t>(slot)] = length(slot);
}

void Slots::restore(int64_t slot, const Snapshot& snapshot) {
    const float* from = snapshot.values.data();
    for (RecurrentState& state : recurrents_) {
        std::copy_n(from, state.size(), state.at(slot));
        from += state.size();
    }
    for (RowState& rows : rows_) from = rows.restore(slot, snapshot.length, from);
}

void Slots::clear(int64_t slot) {
    held_lengths_[static_cast<size_t>(slot)] = -1;
    for (RecurrentState& state : recurrents_) std::fill_n(state.at(slot), state.size(), 0.0f);
    for (RowState& rows : rows_) rows.clear(slot);
}

uint64_t Slots::resident() const {
    uint64_t bytes = 0;
    for (const RowState& rows : rows_) bytes += rows.resident();
    for (const RecurrentState& state : recurrents_) bytes += state.resident();
    for (const Snapshots& known : snapshots_)
        for (const auto& snapshot : known) bytes += snapshot->values.size() * sizeof(float);
    return bytes;
}

}  // namespace colibri
