// The storage types by name, size and what they are multiplied with.
#include "kernels.h"

#include "layout.h"

namespace colibri {

namespace {

constexpr TypeInfo kTypes[] = {
    {DType::F32, "f32", 1, 4, ActType::F32},       {DType::BF16, "bf16", 1, 2, ActType::F32},
    {DType::F16, "f16", 1, 2, ActType::F32},       {DType::I32, "i32", 1, 4, ActType::F32},
    {DType::I64, "i64", 1, 8, ActType::F32},       {DType::E4M3, "e4m3", 1, 1, ActType::F32},
    {DType::E8M0, "e8m0", 1, 1, ActType::F32},     {DType::E2M1, "e2m1", 2, 1, ActType::F32},
    {DType::I8, "i8", 1, 1, ActType::F32},         {DType::U8, "u8", 1, 1, ActType::F32},
    {DType::U4, "u4", 2, 1, ActType::F32},
    {DType::Q8_0, "q8_0", 32, 34, ActType::Q8},    {DType::Q4_0, "q4_0", 32, 18, ActType::Q8},
    {DType::Q4_1, "q4_1", 32, 20, ActType::F32},   {DType::Q5_0, "q5_0", 32, 22, ActType::Q8},
    {DType::Q5_1, "q5_1", 32, 24, ActType::F32},   {DType::Q2_K, "q2_k", 256, 84, ActType::Q8K},
    {DType::Q3_K, "q3_k", 256, 110, ActType::Q8K}, {DType::Q4_K, "q4_k", 256, 144, ActType::Q8K},
    {DType::Q5_K, "q5_k", 256, 176, ActType::Q8K}, {DType::Q6_K, "q6_k", 256, 210, ActType::Q8K},
    {DType::IQ4_NL, "iq4_nl", 32, 18, ActType::F32}, {DType::IQ4_XS, "iq4_xs", 256, 136, ActType::F32},
    {DType::MXFP4, "mxfp4", 32, 17, ActType::F32}, {DType::NVFP4, "nvfp4", 64, 36, ActType::F32},
    {DType::I4X16, "i4x16", 64, 34, ActType::Q64, 16}, {DType::I8X16, "i8x16", 64, 66, ActType::Q64, 16},
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

bool is_scale(DType t) {
    return t == DType::F32 || t == DType::BF16 || t == DType::F16 || t == DType::E8M0 || t == DType::E4M3;
}

size_t row_bytes(DType t, int64_t k) {
    const TypeInfo& info = type_info(t);
    return size_t(k / info.block) * size_t(info.bytes);
}

int64_t stored_rows(DType t, int64_t rows) {
    const int64_t together = type_info(t).together;
    return (rows + together - 1) / together * together;
}

Matrix dense(DType type, int64_t cols, const void* data) {
    return {type, cols, static_cast<const uint8_t*>(data), int64_t(row_bytes(type, cols)), {}, {}};
}

size_t act_bytes(ActType a, int64_t k) {
    int64_t bytes = 0;
    switch (a) {
        case ActType::F32: bytes = 4 * k; break;
        case ActType::Q8: bytes = q8_scales(k) + k / 32 * 4; break;
        case ActType::Q8K: bytes = q8k_scales(k) + k / 256 * 4; break;
        case ActType::Q64: bytes = q64_sums(k) + k / 64 * 4; break;
    }
    return size_t(bytes + 63) & ~size_t(63);
}

}  // namespace colibri
