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
    explicit ExpertBank(int experts) : uses_(static_cast<size_t>(experts), 0), fresh_(uses_.size(), false) {}
    virtual ~ExpertBank() = default;

    // What was asked for before is forgotten. `demands` have no expert twice.
    void ask(std::span<const Demand> demands) {
        for (const Demand& demand : demands) {
            uses_[static_cast<size_t>(demand.expert)] += static_cast<uint64_t>(demand.rows);
            fresh_[static_cast<size_t>(demand.expert)] = true;
        }
        want(demands);
    }

    // Some more of those that were asked for, until there are none left; then nothing. Takes back what it gave before.
    // ReadFailed if one can't be had.
    virtual std::span<const Expert> next() = 0;

    // How often rows chose each expert since the start.
    std::span<const uint64_t> uses() const { return uses_; }
    // Whether rows chose it since the last such question.
    bool fresh(int expert) {
        const bool was = fresh_[static_cast<size_t>(expert)];
        fresh_[static_cast<size_t>(expert)] = false;
        return was;
    }
    // Whether an expert is in memory, as far as we know.
    virtual bool held(int expert) const = 0;

private:
    virtual void want(std::span<const Demand> demands) = 0;

    std::vector<uint64_t> uses_;
    std::vector<bool> fresh_;
};

// Weights that stay in the mapped file: all are ready at once.
class ResidentBank final : public ExpertBank {
public:
    ResidentBank(const Plan& plan, const Bank& bank) : ExpertBank(bank.experts()), plan_(plan), bank_(bank) {}

    bool held(int) const override { return true; }
    std::span<const Expert> next() override {
        if (given_) return {};
        given_ = true;
        return asked_;
    }

private:
    void want(std::span<const Demand> demands) override {
        asked_.clear();
        given_ = false;
        for (const Demand& demand : demands) {
            const auto e = static_cast<size_t>(demand.expert);
            asked_.push_back({demand.expert, matrix(bank_.gate[e]), matrix(bank_.up[e]), matrix(bank_.down[e])});
        }
    }
    const Matrix& matrix(int index) const { return plan_.weight(index).matrix; }

    const Plan& plan_;
    const Bank& bank_;
    std::vector<Expert> asked_;
    bool given_ = false;
};

}  // namespace colibri
