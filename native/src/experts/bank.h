// Where an expert's weights are while they are computed with.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/plan.h"

namespace colibri {

struct Expert {
    int index;
    Matrix gate, up, down;
};

// How often a step's rows chose an expert.
struct Demand {
    int expert;
    int64_t rows;
};

// The experts of one layer. A step asks for all that its rows chose at once, so that a store can start every read it needs,
// and is then given them in groups as they get ready.
class ExpertBank {
public:
    virtual ~ExpertBank() = default;

    // What was asked for before is forgotten. `demands` have no expert twice.
    virtual void ask(std::span<const Demand> demands) = 0;

    // Some more of those that were asked for, until there are none left; then nothing. Takes back what it gave before.
    // ReadFailed if one can't be had.
    virtual std::span<const Expert> next() = 0;
};

// Weights that stay in the mapped file: all are ready at once.
class ResidentBank final : public ExpertBank {
public:
    ResidentBank(const Plan& plan, const Bank& bank) : plan_(plan), bank_(bank) {}

    void ask(std::span<const Demand> demands) override {
        asked_.clear();
        given_ = false;
        for (const Demand& demand : demands) {
            const auto e = static_cast<size_t>(demand.expert);
            asked_.push_back({demand.expert, matrix(bank_.gate[e]), matrix(bank_.up[e]), matrix(bank_.down[e])});
        }
    }
    std::span<const Expert> next() override {
        if (given_) return {};
        given_ = true;
        return asked_;
    }

private:
    const Matrix& matrix(int index) const { return plan_.weight(index).matrix; }

    const Plan& plan_;
    const Bank& bank_;
    std::vector<Expert> asked_;
    bool given_ = false;
};

}  // namespace colibri
