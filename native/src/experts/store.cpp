#include "experts/store.h"

#include <algorithm>
#include <cmath>

#include "error.h"

namespace colibri {

ExpertStore::ExpertStore(const Plan& plan, const Residence& residence) : plan_(plan), streamed_(plan.banks.size(), nullptr) {
    if (residence.streamed) {
        if (residence.readers < 1 || residence.readers > 256) refuse("readers is ", residence.readers, ", not 1 to 256");
        places_ = std::make_unique<Places>(plan, residence.mirrors);
        reader_ = std::make_unique<Reader>(static_cast<int>(residence.readers));
    }
    for (size_t i = 0; i < plan.banks.size(); i++) {
        const Bank& bank = plan.banks[i];
        const uint64_t slab = places_ ? StreamedBank::slab_bytes(*places_, plan, bank) : 0;
        if (slab == 0) {
            banks_.push_back(std::make_unique<ResidentBank>(plan, bank));
            continue;
        }
        auto streamed = std::make_unique<StreamedBank>(*places_, plan, bank, *reader_, slab);
        streamed_[i] = streamed.get();
        banks_.push_back(std::move(streamed));
    }
}

uint64_t ExpertStore::least() const {
    uint64_t bytes = 0;
    for (size_t i = 0; i < streamed_.size(); i++)
        if (streamed_[i]) bytes += static_cast<uint64_t>(plan_.banks[i].top_k) * streamed_[i]->slab();
    return bytes;
}

// Slabs of each bank: as many as one token takes, and of the rest the same part of every bank's experts.
std::vector<int64_t> ExpertStore::shares(int64_t budget) const {
    double more = 0;
    for (size_t i = 0; i < streamed_.size(); i++)
        if (streamed_[i]) more += static_cast<double>(plan_.banks[i].experts() - plan_.banks[i].top_k) * static_cast<double>(streamed_[i]->slab());
    auto left = static_cast<uint64_t>(budget) - least();
    const double part = more > 0 ? std::min(1.0, static_cast<double>(left) / more) : 1;
    std::vector<int64_t> slabs(streamed_.size(), 0);
    for (size_t i = 0; i < streamed_.size(); i++) {
        if (!streamed_[i]) continue;
        const int64_t extra = plan_.banks[i].experts() - plan_.banks[i].top_k;
        const auto given = static_cast<int64_t>(std::floor(part * static_cast<double>(extra)));
        slabs[i] = plan_.banks[i].top_k + given;
        left -= std::min(left, static_cast<uint64_t>(given) * streamed_[i]->slab());
    }
    // What rounding left over makes one more here and there.
    for (size_t i = 0; i < streamed_.size(); i++)
        if (streamed_[i] && slabs[i] < plan_.banks[i].experts() && left >= streamed_[i]->slab()) {
            slabs[i]++;
            left -= streamed_[i]->slab();
        }
    return slabs;
}

void ExpertStore::limit(int64_t budget) {
    if (!reader_) refuse("experts: they are mapped, there is no budget to change");
    if (budget < 0 || static_cast<uint64_t>(budget) < least())
        refuse("experts: one token takes ", least(), " bytes of them, there are ", budget);
    const std::vector<int64_t> slabs = shares(budget);
    for (size_t i = 0; i < streamed_.size(); i++)
        if (streamed_[i]) streamed_[i]->limit(slabs[i]);
}

}  // namespace colibri
