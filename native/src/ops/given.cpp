// The numbers that every row brings along.
#include <algorithm>

#include "ops/step.h"

namespace colibri {

namespace {

std::unique_ptr<Params> check_given(Inspection& at) {
    at.takes(at.out());
    return nullptr;
}

void run_given(const Step& s, const Instruction& now) {
    const int64_t width = s.plan.given;
    s.each_row(now.rows, width, [&](int64_t i) {
        const size_t row = s.batch.row(now.rows, i);
        std::copy_n(s.batch.given.data() + row * static_cast<size_t>(width), width, s.row(now.out, i));
    });
}

}  // namespace

extern const Op kGiven{.name = "given", .inputs = exactly(0), .check = check_given, .run = run_given};

}  // namespace colibri
