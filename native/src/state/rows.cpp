#include "state/rows.h"

#include <algorithm>
#include <cstring>

#include "error.h"

namespace colibri {

namespace {

constexpr const char* kWhat = "the slots' rows (lower ctx or kv_slots)";

int64_t capacity_of(const State& state, int64_t context, int64_t max_rows) {
    const int64_t all = (context + state.every - 1) / state.every;
    // Twice what a step needs: rows then move seldom, and short cuts need no memory of what was.
    return state.window == 0 ? all : std::min(all, 2 * (state.window + max_rows));
}

uint64_t checked_bytes(const State& state, int64_t slots, int64_t rows) {
    if (!state.used) return 0;
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(static_cast<uint64_t>(state.width()) * sizeof(float), static_cast<uint64_t>(rows), &bytes) ||
        __builtin_mul_overflow(bytes, static_cast<uint64_t>(slots), &bytes))
        throw NoRoom(text(kWhat, ": ", slots, " slots of ", rows, " rows exceed the address space"));
    return bytes;
}

}  // namespace

RowState::RowState(const State& state, int64_t slots, int64_t context, int64_t max_rows)
    : planes_(state.planes),
      window_(state.used ? state.window : 0),
      every_(state.every),
      capacity_(capacity_of(state, context, max_rows)),
      bases_(static_cast<size_t>(slots), 0),
      memory_(checked_bytes(state, slots, capacity_), kWhat) {
    for (int64_t plane : planes_) {
        offsets_.push_back(width_);
        width_ += plane;
    }
}

void RowState::make_room(int64_t slot, int64_t begin, int64_t end) {
    int64_t& base = bases_[static_cast<size_t>(slot)];
    if (window_ == 0 || end - base <= capacity_) return;
    // Half of what is left over stays as well, for cuts.
    const int64_t spare = (capacity_ - window_ - (end - begin)) / 2;
    const int64_t first = std::max(base, begin - window_ + 1 - std::max<int64_t>(0, spare));
    for (size_t plane = 0; plane < planes_.size(); plane++) {
        float* to = plane_begin(slot, plane);
        std::memmove(to, to + (first - base) * planes_[plane], static_cast<size_t>((begin - first) * planes_[plane]) * sizeof(float));
    }
    base = first;
}

bool RowState::can_cut(int64_t slot, int64_t length, int64_t wanted) const {
    return wanted == length || first_needed(rows_of(wanted)) >= base(slot);
}

int64_t RowState::saved_size(int64_t length) const {
    const int64_t rows = rows_of(length);
    return window_ == 0 ? 0 : (rows - first_needed(rows)) * width_;
}

void RowState::add_runs(int64_t slot, int64_t length, std::vector<std::span<float>>& out) const {
    if (window_ > 0 || memory_.size() == 0) return;
    for (size_t plane = 0; plane < planes_.size(); plane++)
        out.emplace_back(plane_begin(slot, plane), static_cast<size_t>(rows_of(length) * planes_[plane]));
}

void RowState::save(int64_t slot, int64_t length, std::vector<float>& out) const {
    if (window_ == 0) return;
    const int64_t rows = rows_of(length), first = first_needed(rows);
    for (size_t plane = 0; plane < planes_.size(); plane++) {
        const float* from = plane_begin(slot, plane) + (first - base(slot)) * planes_[plane];
        out.insert(out.end(), from, from + (rows - first) * planes_[plane]);
    }
}

const float* RowState::restore(int64_t slot, int64_t length, const float* from) {
    if (window_ == 0) return from;
    const int64_t rows = rows_of(length), first = first_needed(rows);
    bases_[static_cast<size_t>(slot)] = first;
    for (size_t plane = 0; plane < planes_.size(); plane++) {
        const int64_t count = (rows - first) * planes_[plane];
        std::copy_n(from, count, plane_begin(slot, plane));
        from += count;
    }
    return from;
}

void RowState::copy(int64_t source, int64_t target, int64_t length) {
    if (memory_.size() == 0) return;
    const int64_t rows = rows_of(length), first = window_ == 0 ? 0 : base(source);
    bases_[static_cast<size_t>(target)] = first;
    for (size_t plane = 0; plane < planes_.size(); plane++)
        std::copy_n(plane_begin(source, plane), std::max<int64_t>(0, rows - first) * planes_[plane], plane_begin(target, plane));
}

}  // namespace colibri
