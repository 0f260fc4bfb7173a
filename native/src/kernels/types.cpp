// The storage types by name, size and what they are multiplied with.
#include "kernels.h"

#include "layout.h"

namespace colibri {

namespace {

constexpr TypeInfo kTypes[] = {
    {DType::F32, "f32", 1, 4, ActType::F32},       {DType::BF16, "bf16", 1, 2, ActType::F32},
    {DType::F16, "f16", 1, 2, ActType::F32},       {DType::Q8_0, "q8_0", 32, 34, ActType::Q8},
    {DType::Q4_0, "q4_0", 32, 18, ActType::Q8},    {DType::Q5_0, "q5_0", 32, 22, ActType::Q8},
    {DType::Q4_K, "q4_k", 256, 144, ActType::Q8K}, {DType::Q6_K, "q6_k", 256, 210, ActType::Q8K},
};

}  // namespace

const TypeInfo& type_info(DType t) { return kTypes[static_cast<int>(t)]; }

bool parse_dtype(std::string_view name, DType& out) {
    for (const TypeInfo& info : kTypes) {
        if (name == info.name) {
            out = info.type;
            return true;
        }
    }
    return false;
}

size_t row_bytes(DType t, int64_t k) {
    const TypeInfo& info = type_info(t);
    return size_t(k / info.block) * size_t(info.bytes);
}

size_t act_bytes(ActType a, int64_t k) {
    int64_t bytes = 0;
    switch (a) {
        case ActType::F32: bytes = 4 * k; break;
        case ActType::Q8: bytes = q8_scales(k) + k / 32 * 4; break;
        case ActType::Q8K: bytes = q8k_scales(k) + k / 256 * 4; break;
    }
    return size_t(bytes + 63) & ~size_t(63);
}

}  // namespace colibri
