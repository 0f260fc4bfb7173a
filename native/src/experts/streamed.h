// The experts of a layer, a part of them in memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "experts/bank.h"
#include "experts/layout.h"
#include "experts/reader.h"
#include "graph/map.h"

namespace colibri {

class StreamedBank final : public ExpertBank {
public:
    // Slabs of `slab` bytes each, as large as the largest of the layer's experts. No memory is taken before `limit`.
    StreamedBank(const Places&, const Plan&, const Bank&, Reader&, uint64_t slab);

    // Bytes that the largest expert takes; 0 if one of them is in no file.
    static uint64_t slab_bytes(const Places&, const Plan&, const Bank&);

    // How many experts may be in memory: at least one, at most as many as at the first call.
    void limit(int64_t slabs);

    std::span<const Expert> next() override;

    // Reads these while nothing more urgent is to be read, as long as there are free slabs.
    void preload(std::span<const int> experts);
    // The only experts that are not given up as long as there are others.
    void pin(std::span<const int> experts);

    struct Facts {
        int64_t slabs = 0, held = 0;
        uint64_t hits = 0, misses = 0, waited = 0;  // nanoseconds
    };
    Facts facts() const;
    bool held(int expert) const override { return home_[static_cast<size_t>(expert)] >= 0; }
    uint64_t slab() const { return slab_; }

private:
    void want(std::span<const Demand> demands) override;

    enum class State : uint8_t { Free, Reading, Ready };
    struct Slab {
        State state = State::Free;
        int expert = -1;
        uint64_t used = 0;  // the step that last asked for it
        Expert matrices;
        std::unique_ptr<Reader::Request> request;  // where it is does not change when slabs do
    };
    enum class Need : uint8_t { None, Asked, Given };

    uint8_t* memory(size_t slab) const { return memory_.data() + slab * slab_; }
    int home(int expert) const { return home_[static_cast<size_t>(expert)]; }
    int free_slab();
    bool read(int expert, bool urgent);
    void give(int slab);
    bool settle(int slab);
    void drop(size_t slab);

    const Places& places_;
    const Plan& plan_;
    const Bank& bank_;
    Reader& reader_;
    const uint64_t slab_;
    LazyMemory memory_;
    std::vector<Slab> slabs_;
    std::vector<int> home_;     // of each expert the slab, or -1
    std::vector<Need> need_;    // of each expert in this step
    std::vector<bool> pinned_;
    std::vector<float> heat_;   // how much an expert was chosen, the more lately the more
    float unit_ = 1;            // what a row that chooses an expert adds to its heat
    size_t open_ = 0;           // slabs that may be used
    uint64_t step_ = 0;

    std::vector<int> unread_;   // experts that were asked for and found no slab yet
    std::vector<int> waiting_;  // slabs that are being read for this step
    std::vector<Expert> given_;
    bool fresh_ = false;        // nothing was given since `ask`
    uint64_t hits_ = 0, misses_ = 0, waited_ = 0;
};

}  // namespace colibri
