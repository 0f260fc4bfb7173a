// A compiled model with its slots.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "ops/step.h"
#include "sample/sampler.h"

namespace colibri {

struct Draw {
    const Sampler* sampler;  // null: nothing is picked
    uint64_t step;
};

// Nanoseconds that steps took since the start, by what was done, and how many there were.
struct Times {
    uint64_t attention = 0, experts = 0, head = 0, other = 0, steps = 0;
};

class Runtime {
public:
    // threads 0 takes all physical cores, isa "" the best this CPU has. BadInput, NoRoom.
    Runtime(Plan plan, const Limits&, int64_t threads, const std::string& isa, const Residence& = {});

    // Runs the rows and picks a token for each wanted row with a sampler: kNothing where no logit can be picked, and -1
    // for those without one. Everything is checked before anything is touched: BadInput, and the slots are as they were.
    static constexpr int64_t kNothing = -2;
    std::vector<int64_t> step(Batch batch, std::span<const Draw> draws);

    // Logits of the index-th wanted row of the last step.
    std::span<const float> logits(int64_t index) const;
    // The plan's hidden value of a row of the last step.
    std::span<const float> hidden(int64_t row) const;

    // See Slots.
    int64_t copy(int64_t source, int64_t target, int64_t length) { return slots_.copy(source, target, length); }
    int64_t reach(int64_t slot, int64_t length) const { return slots_.reach(slot, length); }
    int64_t rewind(int64_t slot, int64_t length) { return slots_.rewind(slot, length); }
    void remember(int64_t slot) { slots_.remember(slot); }
    void hold(int64_t slot) { slots_.hold(slot); }
    Image image(int64_t slot, int64_t length) const { return slots_.image(slot, length); }
    Blank blank(int64_t slot, int64_t length, const std::vector<int64_t>& snapshots) {
        return slots_.blank(slot, length, snapshots);
    }
    void adopt(Blank& blank) { slots_.adopt(blank); }
    ExpertStore& experts() { return experts_; }
    const Times& times() const { return times_; }
    // Brings a part of a mapped file into memory. At any time.
    void populate(int64_t file, int64_t offset, int64_t bytes) const;  // BadInput
    // Bytes that steps take besides the slots, once they were as large as they can be.
    uint64_t workspace() const;
    uint64_t resident_bytes() const;

    int64_t max_rows() const { return limits_.max_rows; }
    int threads() const { return pool_.threads(); }
    const char* isa() const { return kernels_.name; }

private:
    void check(const Batch&, std::span<const Draw>);
    void gather_runs(const Batch&);
    void turn(const Batch&);
    void execute(const Batch&);
    uint64_t& time_of(const Instruction&);
    std::span<const float> read(int buffer, int64_t row) const;

    Plan plan_;
    Limits limits_;
    const Kernels& kernels_;
    Program program_;
    Pool pool_;
    Slots slots_;
    ExpertStore experts_;
    LazyMemory arena_;
    Scratch scratch_;
    std::vector<Turns> turns_;
    Times times_;
    std::vector<Run> runs_;      // of the step
    std::vector<int64_t> next_;  // per slot: the position its next row in this step must have, or -1
    int64_t rows_ = 0, wanted_ = 0;  // of the last step
};

}  // namespace colibri
