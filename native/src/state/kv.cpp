#include "state/kv.h"

#include <algorithm>
#include <cstring>

#include "error.h"

namespace colibri {

namespace {

constexpr const char* kWhat = "keys and values (lower ctx or kv_slots)";

uint64_t checked_bytes(const State& state, int64_t slots, int64_t context) {
    if (state.kv_heads == 0) return 0;
    uint64_t bytes = 0;
    const auto widths = static_cast<uint64_t>(state.k_width + state.v_width);
    if (__builtin_mul_overflow(widths * sizeof(float), static_cast<uint64_t>(context), &bytes) ||
        __builtin_mul_overflow(bytes, static_cast<uint64_t>(slots), &bytes))
        throw NoRoom(text(kWhat, ": ", slots, " slots of ", context, " positions exceed the address space"));
    return bytes;
}

}  // namespace

KvState::KvState(const State& state, int64_t slots, int64_t context)
    : kv_heads_(state.kv_heads),
      k_dim_(kv_heads_ ? state.k_width / kv_heads_ : 0),
      v_dim_(kv_heads_ ? state.v_width / kv_heads_ : 0),
      context_(context),
      memory_(checked_bytes(state, slots, context), kWhat) {}

float* KvState::k_at(int64_t slot, int64_t head) const {
    return reinterpret_cast<float*>(memory_.data()) + (slot * kv_heads_ + head) * context_ * (k_dim_ + v_dim_);
}

float* KvState::v_at(int64_t slot, int64_t head) const { return k_at(slot, head) + context_ * k_dim_; }

void KvState::write(int64_t slot, int64_t position, const float* k, const float* v) {
    for (int64_t head = 0; head < kv_heads_; head++) {
        std::copy_n(k + head * k_dim_, k_dim_, k_at(slot, head) + position * k_dim_);
        std::copy_n(v + head * v_dim_, v_dim_, v_at(slot, head) + position * v_dim_);
    }
}

void KvState::copy(int64_t source, int64_t target, int64_t length) {
    for (int64_t head = 0; head < kv_heads_; head++) {
        std::copy_n(k_at(source, head), length * k_dim_, k_at(target, head));
        std::copy_n(v_at(source, head), length * v_dim_, v_at(target, head));
    }
}

Slots::Slots(const std::vector<State>& states, int64_t slots, int64_t context)
    : context_(context), lengths_(static_cast<size_t>(slots), 0) {
    states_.reserve(states.size());
    for (const State& state : states) states_.emplace_back(state, slots, context);
}

void Slots::copy(int64_t source, int64_t target, int64_t length) {
    if (source < 0 || source >= count() || target < 0 || target >= count())
        refuse("copy: slots ", source, " and ", target, " are not both of the ", count(), " slots");
    if (length < 0 || length > this->length(source))
        refuse("copy: length ", length, ", slot ", source, " holds ", this->length(source), " positions");
    if (source != target)
        for (KvState& state : states_) state.copy(source, target, length);
    set_length(target, length);
}

uint64_t Slots::resident() const {
    uint64_t bytes = 0;
    for (const KvState& state : states_) bytes += state.resident();
    return bytes;
}

}  // namespace colibri
