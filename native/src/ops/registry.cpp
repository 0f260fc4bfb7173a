// Every operation, by its name in a plan.
#include <algorithm>
#include <iterator>

#include "ops/op.h"

namespace colibri {

extern const Op kEmbed, kAdd, kMul, kScale, kClamp, kGlu, kRmsNorm, kLinear, kRope, kAttention, kSelect, kPool, kRoute, kExperts;
extern const Op kConv, kDelta, kDecay, kNgram;
extern const Op kCodes, kGiven, kSlice, kConcat, kTile, kSum, kMix, kAddWeight, kMulWeight, kActivate, kLogScale;
extern const Op kLayerNorm, kL2Clip, kSoftmax, kLinearGroups, kSinkhorn, kSpread;

namespace {

const Op* const kOps[] = {
    &kEmbed, &kAdd, &kMul, &kScale, &kClamp, &kGlu, &kRmsNorm, &kLinear, &kRope, &kAttention, &kSelect, &kPool, &kRoute, &kExperts,
    &kConv, &kDelta, &kDecay, &kNgram,
    &kCodes, &kGiven, &kSlice, &kConcat, &kTile, &kSum, &kMix, &kAddWeight, &kMulWeight, &kActivate, &kLogScale,
    &kLayerNorm, &kL2Clip, &kSoftmax, &kLinearGroups, &kSinkhorn, &kSpread,
};

}  // namespace

const Op* find_op(std::string_view name) {
    const auto* op = std::find_if(std::begin(kOps), std::end(kOps), [&](const Op* candidate) { return name == candidate->name; });
    return op == std::end(kOps) ? nullptr : *op;
}

}  // namespace colibri
