// Where an expert's weights are while they are computed with.
#pragma once

#include <cstddef>

#include "graph/plan.h"

namespace colibri {

struct Expert {
    const Weight* gate;
    const Weight* up;
    const Weight* down;
};

// The experts of one layer. The executor acquires every expert a step's rows chose, computes, then releases them, so a
// store that reads from disk can start all its reads at once and keep the bytes still in the meantime.
class ExpertBank {
public:
    virtual ~ExpertBank() = default;
    virtual Expert acquire(int expert) = 0;
    virtual void release(int expert) = 0;
};

// Weights that stay in the mapped file.
class ResidentBank final : public ExpertBank {
public:
    ResidentBank(const Plan& plan, const Bank& bank) : plan_(plan), bank_(bank) {}

    Expert acquire(int expert) override {
        const auto e = static_cast<size_t>(expert);
        return {&weight(bank_.gate[e]), &weight(bank_.up[e]), &weight(bank_.down[e])};
    }
    void release(int) override {}

private:
    const Weight& weight(int index) const { return plan_.weights[static_cast<size_t>(index)]; }

    const Plan& plan_;
    const Bank& bank_;
};

}  // namespace colibri
