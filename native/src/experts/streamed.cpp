#include "experts/streamed.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "error.h"

namespace colibri {

namespace {

// Rows after which a choice counts half as much.
constexpr float kHalfLife = 1000;
constexpr float kHottest = 1e30f;

uint64_t now() {
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count());
}

}  // namespace

uint64_t StreamedBank::slab_bytes(const Places& places, const Plan& plan, const Bank& bank) {
    uint64_t bytes = 0;
    for (int e = 0; e < bank.experts(); e++) {
        const Layout layout(places, plan, bank, e);
        if (!layout.in_files()) return 0;
        bytes = std::max(bytes, layout.bytes());
    }
    return bytes;
}

StreamedBank::StreamedBank(const Places& places, const Plan& plan, const Bank& bank, Reader& reader, uint64_t slab)
    : ExpertBank(bank.experts()),
      places_(places),
      plan_(plan),
      bank_(bank),
      reader_(reader),
      slab_(slab),
      home_(static_cast<size_t>(bank.experts()), -1),
      need_(home_.size(), Need::None),
      pinned_(home_.size(), false),
      heat_(home_.size(), 0.0f) {}

void StreamedBank::limit(int64_t slabs) {
    if (slabs_.empty()) {
        memory_ = LazyMemory(static_cast<uint64_t>(slabs) * slab_, "the experts (lower ram)");
#ifdef MADV_HUGEPAGE
        madvise(memory_.data(), memory_.size(), MADV_HUGEPAGE);
#endif
        slabs_.resize(static_cast<size_t>(slabs));
        for (Slab& slab : slabs_) slab.request = std::make_unique<Reader::Request>();
    }
    open_ = std::clamp<size_t>(static_cast<size_t>(std::max<int64_t>(slabs, 1)), 1, slabs_.size());
    waiting_.clear();
    unread_.clear();
    given_.clear();
    std::fill(need_.begin(), need_.end(), Need::None);
    for (size_t i = open_; i < slabs_.size(); i++) {
        while (!settle(static_cast<int>(i))) reader_.await(reader_.finished());
        drop(i);
        madvise(memory(i), slab_, MADV_DONTNEED);
    }
}

void StreamedBank::drop(size_t slab) {
    if (slabs_[slab].expert >= 0) home_[static_cast<size_t>(slabs_[slab].expert)] = -1;
    slabs_[slab].expert = -1;
    slabs_[slab].state = State::Free;
}

// Whether a slab is not being read any more. ReadFailed if that went wrong, and the slab is then free.
bool StreamedBank::settle(int slab) {
    Slab& at = slabs_[static_cast<size_t>(slab)];
    if (at.state != State::Reading) return true;
    std::string error;
    if (!reader_.done(*at.request, error)) return false;
    if (error.empty()) {
        at.state = State::Ready;
        return true;
    }
    const bool needed = need_[static_cast<size_t>(at.expert)] != Need::None;
    drop(static_cast<size_t>(slab));
    if (needed) throw ReadFailed(error);
    return true;
}

// A slab to read into: a free one, or that of the expert that will be missed least. Of the half that was not used for
// longest it is the coldest: what was used a moment ago is likely to be used again, and what is used often even more so.
int StreamedBank::free_slab() {
    std::vector<size_t> candidates, pinned;
    bool others = false;
    for (size_t i = 0; i < open_; i++) {
        const Slab& slab = slabs_[i];
        // What was read ahead may be there by now, and nobody may have asked for it.
        if (slab.state == State::Reading && need_[static_cast<size_t>(slab.expert)] == Need::None) settle(static_cast<int>(i));
        if (slab.state == State::Free) return static_cast<int>(i);
        const auto e = static_cast<size_t>(slab.expert);
        others |= !pinned_[e];
        if (slab.state == State::Ready && need_[e] == Need::None) (pinned_[e] ? pinned : candidates).push_back(i);
    }
    if (!others) candidates.swap(pinned);  // a smaller budget left nothing else
    if (candidates.empty()) return -1;
    const auto heat = [&](size_t i) { return heat_[static_cast<size_t>(slabs_[i].expert)]; };
    const auto older = candidates.begin() + static_cast<ptrdiff_t>((candidates.size() + 1) / 2);
    std::nth_element(candidates.begin(), older - 1, candidates.end(), [&](size_t a, size_t b) {
        return slabs_[a].used != slabs_[b].used ? slabs_[a].used < slabs_[b].used : heat(a) < heat(b);
    });
    const size_t victim = *std::min_element(candidates.begin(), older, [&](size_t a, size_t b) { return heat(a) < heat(b); });
    drop(victim);
    return static_cast<int>(victim);
}

bool StreamedBank::read(int expert, bool urgent) {
    const int slab = free_slab();
    if (slab < 0) return false;
    const Layout layout(places_, plan_, bank_, expert);
    Slab& at = slabs_[static_cast<size_t>(slab)];
    at.state = State::Reading;
    at.expert = expert;
    at.used = step_;
    at.matrices = layout.in(memory(static_cast<size_t>(slab)));
    home_[static_cast<size_t>(expert)] = slab;
    reader_.start(*at.request, layout.pieces(memory(static_cast<size_t>(slab))), urgent);
    return true;
}

void StreamedBank::give(int slab) {
    Slab& at = slabs_[static_cast<size_t>(slab)];
    need_[static_cast<size_t>(at.expert)] = Need::Given;
    given_.push_back(at.matrices);
}

void StreamedBank::want(std::span<const Demand> demands) {
    if (slabs_.empty()) refuse("the experts were given no memory: limit_experts comes before the first step");
    step_++;
    std::fill(need_.begin(), need_.end(), Need::None);
    waiting_.clear();
    unread_.clear();
    given_.clear();
    int64_t most = 1;
    for (const Demand& demand : demands) {
        // What was begun for an earlier step and failed is tried again.
        if (home(demand.expert) >= 0) settle(home(demand.expert));
        need_[static_cast<size_t>(demand.expert)] = Need::Asked;
        heat_[static_cast<size_t>(demand.expert)] += unit_ * static_cast<float>(demand.rows);
        most = std::max(most, demand.rows);
    }
    unit_ *= std::exp2(static_cast<float>(most) / kHalfLife);
    if (unit_ > kHottest) {
        for (float& each : heat_) each /= unit_;
        unit_ = 1;
    }
    for (const Demand& demand : demands) {
        const int slab = home(demand.expert);
        if (slab < 0) {
            unread_.push_back(demand.expert);
            misses_++;
            continue;
        }
        Slab& at = slabs_[static_cast<size_t>(slab)];
        at.used = step_;
        if (at.state == State::Reading) {
            reader_.hurry(*at.request);
            waiting_.push_back(slab);
        } else {
            give(slab);
        }
        hits_++;
    }
    fresh_ = true;
}

std::span<const Expert> StreamedBank::next() {
    if (!fresh_) {
        for (const Expert& expert : given_) need_[static_cast<size_t>(expert.index)] = Need::None;
        given_.clear();
    }
    size_t begun = 0;
    while (begun < unread_.size() && read(unread_[begun], true)) waiting_.push_back(home(unread_[begun++]));
    unread_.erase(unread_.begin(), unread_.begin() + static_cast<ptrdiff_t>(begun));
    // What is there is computed with while the rest is read.
    if (std::exchange(fresh_, false) && !given_.empty()) return given_;
    while (!waiting_.empty() || !unread_.empty()) {
        const uint64_t seen = reader_.finished();
        size_t left = 0;
        for (int slab : waiting_) {
            if (settle(slab)) give(slab);
            else waiting_[left++] = slab;
        }
        waiting_.resize(left);
        if (!given_.empty()) return given_;
        if (waiting_.empty() && read(unread_.front(), true)) {
            waiting_.push_back(home(unread_.front()));
            unread_.erase(unread_.begin());
            continue;
        }
        const uint64_t since = now();
        reader_.await(seen);
        waited_ += now() - since;
    }
    return {};
}

void StreamedBank::preload(std::span<const int> experts) {
    for (int expert : experts) {
        const auto free = std::find_if(slabs_.begin(), slabs_.begin() + static_cast<ptrdiff_t>(open_),
                                       [](const Slab& slab) { return slab.state == State::Free; });
        if (free == slabs_.begin() + static_cast<ptrdiff_t>(open_)) return;
        if (home(expert) < 0) read(expert, false);
    }
}

void StreamedBank::pin(std::span<const int> experts) {
    std::fill(pinned_.begin(), pinned_.end(), false);
    for (int expert : experts) pinned_[static_cast<size_t>(expert)] = true;
}

StreamedBank::Facts StreamedBank::facts() const {
    Facts facts{static_cast<int64_t>(open_), 0, hits_, misses_, waited_};
    for (int slab : home_) facts.held += slab >= 0;
    return facts;
}

}  // namespace colibri
