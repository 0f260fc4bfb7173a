// Every storage type on every code path: against the published layouts, against double precision, and against each other.
#include "kernels/kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "golden_blocks.h"
#include "kernels/half.h"
#include "kernels/layout.h"
#include "kernels/paths.h"

using namespace colibri;

namespace colibri {
#ifdef COLIBRI_EMULATED_AVX512
extern const Kernels kEmulatedAvx512Kernels;  // avx512_emulated.cpp
#endif
}  // namespace colibri

namespace {

constexpr DType kTypes[] = {DType::F32,  DType::BF16, DType::F16,  DType::Q8_0,
                            DType::Q4_0, DType::Q5_0, DType::Q4_K, DType::Q6_K};

int failures = 0;

void check(bool ok, const std::string& what) {
    if (ok) return;
    std::printf("FAILED %s\n", what.c_str());
    if (++failures > 20) std::exit(1);
}

struct Random {
    uint64_t state;
    uint64_t next() {
        state += 0x9e3779b97f4a7c15;
        uint64_t z = state;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
        z = (z ^ z >> 27) * 0x94d049bb133111eb;
        return z ^ z >> 31;
    }
    int64_t below(int64_t n) { return int64_t(next() % uint64_t(n)); }
    float uniform() { return float(next() >> 40) * 0x1p-23f - 1.f; }  // [-1, 1)
};

// Memory for activation rows, aligned as they must be. (Weights are vectors of exactly their size, so that a sanitizer sees
// a byte read too many.)
struct Memory {
    std::unique_ptr<uint8_t, void (*)(void*)> bytes;
    size_t size;
    explicit Memory(size_t n) : bytes(static_cast<uint8_t*>(std::aligned_alloc(64, (n + 63) / 64 * 64)), std::free), size(n) {}
    uint8_t* get() const { return bytes.get(); }
};

std::vector<const Kernels*> all_paths() {
    std::vector<const Kernels*> out;
    for (Isa isa : available_isas()) out.push_back(&kernels(isa));
#ifdef COLIBRI_EMULATED_AVX512
    out.push_back(&kEmulatedAvx512Kernels);
#endif
    return out;
}

std::string label(const Kernels& path, const std::string& rest) { return std::string(path.name) + " " + rest; }

uint16_t half_of(float x) {  // of a normal half's range, toward zero
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    return uint16_t((bits >> 16 & 0x8000) | (((bits >> 23 & 255) - 112) << 10) | (bits >> 13 & 0x3ff));
}

void put_half(uint8_t* p, float x) {
    const uint16_t h = half_of(x);
    std::memcpy(p, &h, 2);
}

// Random weights: any bits for the values, scales between 0.001 and 0.1 of either sign.
std::vector<uint8_t> random_weights(Random& random, DType type, int64_t n, int64_t k) {
    std::vector<uint8_t> w(size_t(n) * row_bytes(type, k));
    const TypeInfo& info = type_info(type);
    for (size_t i = 0; i < w.size(); i += size_t(info.bytes)) {
        uint8_t* p = w.data() + i;
        for (int b = 0; b < info.bytes; ++b) p[b] = uint8_t(random.next());
        const auto scale = [&] { return (random.below(2) ? 1.f : -1.f) * (0.001f + 0.099f * std::fabs(random.uniform())); };
        const float value = random.uniform() + 0x1p-12f;
        const uint32_t bits = std::bit_cast<uint32_t>(value);
        switch (type) {
            case DType::F32: std::memcpy(p, &value, 4); break;
            case DType::BF16: p[0] = uint8_t(bits >> 16), p[1] = uint8_t(bits >> 24); break;
            case DType::F16: put_half(p, value); break;
            case DType::Q4_K: put_half(p, scale()), put_half(p + 2, scale()); break;
            case DType::Q6_K: put_half(p + 208, scale()); break;
            default: put_half(p, scale()); break;
        }
    }
    return w;
}

std::vector<float> random_floats(Random& random, int64_t n, float size = 1) {
    std::vector<float> x(static_cast<size_t>(n));
    for (float& v : x) v = size * random.uniform();
    return x;
}

// m activation rows, quantised by `path`.
Memory random_acts(Random& random, const Kernels& path, ActType type, int64_t m, int64_t k) {
    Memory acts(size_t(m) * act_bytes(type, k));
    std::memset(acts.get(), 0, acts.size);
    for (int64_t i = 0; i < m; ++i) {
        std::vector<float> x = random_floats(random, k, 3);
        if (i % 3 == 2) x[size_t(random.below(k))] = 40;  // one value far from the others
        path.quantize(type, x.data(), k, acts.get() + size_t(i) * act_bytes(type, k));
    }
    return acts;
}

// The values an activation row stands for.
std::vector<double> act_values(ActType type, const uint8_t* row, int64_t k) {
    std::vector<double> out(static_cast<size_t>(k));
    for (int64_t i = 0; i < k; ++i) {
        if (type == ActType::F32) {
            out[size_t(i)] = double(reinterpret_cast<const float*>(row)[i]);
            continue;
        }
        const bool wide = type == ActType::Q8K;
        const float* scales = reinterpret_cast<const float*>(row + (wide ? q8k_scales(k) : q8_scales(k)));
        out[size_t(i)] = double(int8_t(row[i])) * double(scales[i / (wide ? 256 : 32)]);
    }
    return out;
}

bool same_bits(const void* a, const void* b, size_t bytes) { return std::memcmp(a, b, bytes) == 0; }

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && same_bits(a.data(), b.data(), a.size() * sizeof(float));
}

// k that suit a type: whole blocks, or any number for floats.
std::vector<int64_t> lengths(DType type) {
    switch (type_info(type).block) {
        case 1: return {1, 7, 8, 9, 31, 64, 100, 333};
        case 32: return {32, 64, 96, 320, 896};
        default: return {256, 512, 1280};
    }
}

// --- the tests

void test_table() {
    for (DType type : kTypes) {
        DType parsed;
        check(parse_dtype(type_info(type).name, parsed) && parsed == type, "parse_dtype");
        check(type_info(type).type == type, "type_info");
    }
    DType ignored;
    check(!parse_dtype("q4_0 ", ignored) && !parse_dtype("", ignored), "parse_dtype of an unknown name");
    check(row_bytes(DType::Q6_K, 512) == 420 && row_bytes(DType::BF16, 7) == 14, "row_bytes");
    check(act_bytes(ActType::F32, 3) == 64 && act_bytes(ActType::Q8, 64) == 128 && act_bytes(ActType::Q8K, 256) == 320,
          "act_bytes");
    check(available_isas().front() == Isa::Scalar, "scalar comes first");
    for (Isa isa : available_isas()) check(kernels(isa).isa == isa && kernels(isa).name == std::string(isa_name(isa)), "kernels");
}

void test_halves() {
    const auto half = [](uint32_t h) { return float_of_half(uint16_t(h)); };
    check(half(0x3c00) == 1 && half(0xc000) == -2 && half(0x7bff) == 65504 && half(0x0001) == 0x1p-24f, "halves");
    check(half(0x03ff) == 1023 * 0x1p-24f && half(0x0400) == 0x1p-14f && std::signbit(half(0x8000)), "small halves");
    check(std::isinf(half(0x7c00)) && std::isnan(half(0x7e01)) && std::isnan(half(0xfc01)), "halves that are no numbers");
    check(round_to_half_precision(1.f + 0x1p-11f) == 1 && round_to_half_precision(1.f + 0x1.8p-10f) == 1.f + 0x1p-9f &&
              round_to_half_precision(1.f + 0x1.2p-11f) == 1.f + 0x1p-10f, "rounding to nearest even");
    check(round_to_half_precision(0x1.001p-40f) == 0x1p-40f && std::isinf(round_to_half_precision(INFINITY)), "rounding's range");
    for (const Kernels* path : all_paths()) {  // all halves, through the vector conversions
        std::vector<uint16_t> w(65536);
        for (size_t i = 0; i < w.size(); ++i) w[i] = uint16_t(i);
        const float one = 1;
        std::vector<float> y(w.size());
        path->matmul(DType::F16, w.data(), 1, 0, 65536, &one, sizeof(one), 1, y.data(), 65536);
        for (uint32_t i = 0; i < 65536; ++i) {
            const float want = half(i);
            check(std::isnan(want) ? std::isnan(y[i]) : y[i] == want, label(*path, "half " + std::to_string(i)));
        }
    }
}

void test_layouts() {
    const auto golden = [](DType type, const uint8_t* block, const uint32_t* values) {
        const int size = type_info(type).block;
        std::vector<uint8_t> exact(block, block + type_info(type).bytes);
        for (const Kernels* path : all_paths()) {
            std::vector<float> out(static_cast<size_t>(size));
            path->dequantize(type, exact.data(), size, out.data());
            check(same_bits(out.data(), values, out.size() * 4), label(*path, std::string("layout of ") + type_info(type).name));
        }
    };
    golden(DType::Q8_0, golden::q8_0_block, golden::q8_0_values);
    golden(DType::Q4_0, golden::q4_0_block, golden::q4_0_values);
    golden(DType::Q5_0, golden::q5_0_block, golden::q5_0_values);
    golden(DType::Q4_K, golden::q4_k_block, golden::q4_k_values);
    golden(DType::Q6_K, golden::q6_k_block, golden::q6_k_values);

    const uint8_t halves[] = {0x00, 0x3c, 0x00, 0xc0}, bfloats[] = {0x80, 0x3f, 0x00, 0xc0};
    float out[2];
    kernels(Isa::Scalar).dequantize(DType::F16, halves, 2, out);
    check(out[0] == 1 && out[1] == -2, "layout of f16");
    kernels(Isa::Scalar).dequantize(DType::BF16, bfloats, 2, out);
    check(out[0] == 1 && out[1] == -2, "layout of bf16");
}

void test_quantize() {
    Random random{1};
    for (ActType type : {ActType::Q8, ActType::Q8K}) {
        const int block = type == ActType::Q8 ? 32 : 256;
        for (int64_t k : {int64_t(block), int64_t(5 * block)}) {
            const std::vector<float> x = random_floats(random, k, 10);
            Memory first(act_bytes(type, k));
            for (const Kernels* path : all_paths()) {
                Memory row(act_bytes(type, k));
                std::memset(row.get(), 0, row.size);
                path->quantize(type, x.data(), k, row.get());
                const std::vector<double> values = act_values(type, row.get(), k);
                for (int64_t b = 0; b < k / block; ++b) {
                    double largest = 0;
                    for (int i = 0; i < block; ++i) largest = std::fmax(largest, std::fabs(double(x[size_t(b * block + i)])));
                    for (int i = 0; i < block; ++i) {
                        const size_t at = size_t(b * block + i);
                        const double scale_error = type == ActType::Q8 ? 0x1p-11 : 1e-6;
                        check(std::fabs(values[at] - double(x[at])) <= largest / 254 * 1.0001 + largest * scale_error,
                              label(*path, "quantisation error"));
                    }
                }
                if (type == ActType::Q8K) {
                    const int16_t* sums = reinterpret_cast<const int16_t*>(row.get() + q8k_sums(k));
                    for (int64_t g = 0; g < k / 16; ++g) {
                        int total = 0;
                        for (int i = 0; i < 16; ++i) total += int8_t(row.get()[16 * g + i]);
                        check(sums[g / 16 * 16 + sum_lane(g % 16)] == total, label(*path, "sums of 16"));
                    }
                }
                if (path == all_paths().front()) std::memcpy(first.get(), row.get(), row.size);
                check(same_bits(first.get(), row.get(), row.size), label(*path, "quantises like scalar"));
            }
        }

        // The scale by the letter, halves to even, and blocks of zeros, tiny values, infinities and NaN.
        for (const Kernels* path : all_paths()) {
            const auto quantized = [&](std::vector<float> x) {
                x.resize(size_t(block));
                Memory row(act_bytes(type, block));
                path->quantize(type, x.data(), block, row.get());
                const float* scale = reinterpret_cast<const float*>(row.get() + (block == 32 ? q8_scales(32) : q8k_scales(256)));
                return std::pair(std::vector<int>{int8_t(row.get()[0]), int8_t(row.get()[1]), int8_t(row.get()[2])}, *scale);
            };
            const auto [q, d] = quantized({-254, 3, 5});
            check(q == std::vector<int>{-127, 2, 2} && d == 2, label(*path, "rounding to even"));
            const auto [q1, d1] = quantized({100.3f, -50, 0});
            const float exact = block == 32 ? round_to_half_precision(100.3f / 127) : 1 / (127 / 100.3f);
            check(q1 == std::vector<int>{127, -63, 0} && d1 == exact, label(*path, "scale"));
            const auto [q2, d2] = quantized({0, 0, 0});
            check(q2 == std::vector<int>{0, 0, 0} && d2 == 0, label(*path, "a block of zeros"));
            const auto [q3, d3] = quantized({1e-39f, -1e-40f, 0});
            check(q3 == std::vector<int>{0, 0, 0} && d3 == 0, label(*path, "a block of next to nothing"));
            for (float bad : {INFINITY, -INFINITY, NAN}) {
                check(std::isnan(quantized({1, bad, 2}).second), label(*path, "a block with " + std::to_string(bad)));
            }
        }
    }
}

void test_matmul_values() {
    Random random{2};
    for (DType type : kTypes) {
        const ActType act = type_info(type).act;
        for (int64_t k : lengths(type)) {
            const int64_t n = 5, m = 3;
            const std::vector<uint8_t> w = random_weights(random, type, n, k);
            for (const Kernels* path : all_paths()) {
                const Memory acts = random_acts(random, *path, act, m, k);
                std::vector<float> y(size_t(n * m));
                path->matmul(type, w.data(), k, 0, n, acts.get(), act_bytes(act, k), m, y.data(), n);
                for (int64_t i = 0; i < m; ++i) {
                    const std::vector<double> a = act_values(act, acts.get() + size_t(i) * act_bytes(act, k), k);
                    for (int64_t r = 0; r < n; ++r) {
                        std::vector<float> row(static_cast<size_t>(k));
                        path->dequantize(type, w.data() + size_t(r) * row_bytes(type, k), k, row.data());
                        double want = 0, size = 0;
                        for (size_t j = 0; j < row.size(); ++j) {
                            want += double(row[j]) * a[j];
                            size += std::fabs(double(row[j]) * a[j]);
                        }
                        const double got = double(y[size_t(i * n + r)]);
                        check(std::fabs(got - want) <= 1e-6 * size + 1e-30,
                              label(*path, std::string("value of ") + type_info(type).name + " k=" + std::to_string(k)));
                    }
                }
            }
        }
    }
}

// One activation row at a time, all at once, in any split of the columns and on any path: the same bytes.
void test_matmul_bits() {
    Random random{3};
    for (DType type : kTypes) {
        const ActType act = type_info(type).act;
        const size_t stride = act_bytes(act, lengths(type).back());
        for (int trial = 0; trial < 12; ++trial) {
            const std::vector<int64_t> ks = lengths(type);
            const int64_t k = ks[size_t(trial) % ks.size()];
            const int64_t n = 1 + random.below(40), m = 1 + random.below(trial == 11 ? 70 : 14);
            const std::vector<uint8_t> w = random_weights(random, type, n, k);
            const Memory quantized = random_acts(random, kernels(Isa::Scalar), act, m, k);
            Memory acts(size_t(m) * stride);
            for (int64_t i = 0; i < m; ++i) {
                std::memcpy(acts.get() + size_t(i) * stride, quantized.get() + size_t(i) * act_bytes(act, k), act_bytes(act, k));
            }

            std::vector<float> alone(size_t(n * m));
            for (int64_t i = 0; i < m; ++i) {
                for (int64_t r = 0; r < n; ++r) {
                    kernels(Isa::Scalar).matmul(type, w.data(), k, r, r + 1, acts.get() + size_t(i) * stride, stride, 1,
                                                alone.data() + i * n, n);
                }
            }
            for (const Kernels* path : all_paths()) {
                const int64_t y_stride = n + 3, n0 = random.below(n), n1 = n0 + 1 + random.below(n - n0);
                std::vector<float> y(size_t(m * y_stride), 77), want = y;
                for (int64_t i = 0; i < m; ++i) {
                    for (int64_t r = n0; r < n1; ++r) want[size_t(i * y_stride + r)] = alone[size_t(i * n + r)];
                }
                path->matmul(type, w.data(), k, n0, n1, acts.get(), stride, m, y.data(), y_stride);
                check(same_bits(y, want), label(*path, std::string("bits of ") + type_info(type).name + " k=" + std::to_string(k) +
                                                           " m=" + std::to_string(m) + " n=" + std::to_string(n1 - n0)));
                for (int64_t i = 0; i < m; ++i) {
                    path->matmul(type, w.data(), k, n0, n1, acts.get() + size_t(i) * stride, stride, 1, y.data() + i * y_stride,
                                 y_stride);
                }
                check(same_bits(y, want), label(*path, std::string("bits row by row of ") + type_info(type).name));
                path->matmul(type, w.data(), k, n0, n0, acts.get(), stride, m, y.data(), y_stride);
                path->matmul(type, w.data(), k, n0, n1, acts.get(), stride, 0, y.data(), y_stride);
                check(same_bits(y, want), label(*path, "nothing to do"));
            }
        }
    }
}

// The largest integers a type can hold, of either sign: nothing saturates.
void test_matmul_extremes() {
    for (DType type : kTypes) {
        const TypeInfo& info = type_info(type);
        if (info.block == 1) continue;
        const int64_t k = info.block;
        for (int fill : {0x00, 0x7f, 0x80, 0x81, 0xff}) {
            std::vector<uint8_t> w(size_t(info.bytes), uint8_t(fill));
            put_half(w.data() + (type == DType::Q6_K ? 208 : 0), 0.5f);
            if (type == DType::Q4_K) put_half(w.data() + 2, 0.25f);
            for (float sign : {1.f, -1.f}) {
                const std::vector<float> x(size_t(k), sign * 127);
                std::vector<float> row(static_cast<size_t>(k));
                kernels(Isa::Scalar).dequantize(type, w.data(), k, row.data());
                double want = 0;
                for (float v : row) want += double(v) * double(sign) * 127;
                for (const Kernels* path : all_paths()) {
                    Memory acts(act_bytes(info.act, k));
                    path->quantize(info.act, x.data(), k, acts.get());
                    float y = 0;
                    path->matmul(type, w.data(), k, 0, 1, acts.get(), act_bytes(info.act, k), 1, &y, 1);
                    check(double(y) == want, label(*path, std::string("extremes of ") + info.name));
                }
            }
        }
    }
}

// Any bytes are weights. Whatever comes out, it comes out on every path alike (one NaN is as good as another).
void test_hostile_weights() {
    Random random{4};
    for (DType type : kTypes) {
        const TypeInfo& info = type_info(type);
        const int64_t k = info.block == 1 ? 77 : 2 * info.block, n = 200, m = 5;
        std::vector<uint8_t> w(size_t(n) * row_bytes(type, k));
        for (uint8_t& byte : w) byte = uint8_t(random.next());
        for (size_t i = 0; i < w.size(); i += size_t(info.bytes)) {  // scales of all ones now and then
            if (random.below(10) == 0) w[i] = w[i + 1] = 0xff;
        }
        const Memory acts = random_acts(random, kernels(Isa::Scalar), info.act, m, k);
        std::vector<float> want;
        for (const Kernels* path : all_paths()) {
            std::vector<float> y(size_t(n * m)), values(static_cast<size_t>(k));
            path->matmul(type, w.data(), k, 0, n, acts.get(), act_bytes(info.act, k), m, y.data(), n);
            path->dequantize(type, w.data(), k, values.data());
            for (float& v : y) v = std::isnan(v) ? NAN : v;
            if (want.empty()) want = y;
            check(same_bits(y, want), label(*path, std::string("hostile ") + info.name));
        }
    }
}

double relative(double got, double want) { return std::fabs(got - want) / std::fmax(std::fabs(want), 1e-30); }

void test_primitives() {
    Random random{5};
    for (int64_t n : {1, 5, 8, 13, 32, 40, 64, 67, 100, 128, 896}) {
        const std::vector<float> a = random_floats(random, n, 2), b = random_floats(random, n, 2);
        const size_t count = size_t(n);
        std::vector<std::vector<float>> first;
        for (const Kernels* path : all_paths()) {
            std::vector<std::vector<float>> results;

            double dot = 0, size = 0;
            for (size_t i = 0; i < count; ++i) dot += double(a[i]) * double(b[i]), size += std::fabs(double(a[i]) * double(b[i]));
            results.push_back({path->dot(a.data(), b.data(), n)});
            check(std::fabs(double(results.back()[0]) - dot) <= 1e-6 * size, label(*path, "dot"));

            std::vector<float> y = b;
            path->axpy(0.7f, a.data(), y.data(), n);
            for (size_t i = 0; i < count; ++i) check(y[i] == std::fma(0.7f, a[i], b[i]), label(*path, "axpy"));
            results.push_back(y);

            path->rms_norm(a.data(), b.data(), n, 1e-6f, y.data());
            double squares = 0;
            for (float v : a) squares += double(v) * double(v);
            for (size_t i = 0; i < count; ++i) {
                const double want = double(b[i]) * double(a[i]) / std::sqrt(squares / double(n) + double(1e-6f));
                check(relative(double(y[i]), want) < 1e-6, label(*path, "rms_norm"));
            }
            results.push_back(y);

            std::vector<float> gate = a;
            for (float& v : gate) v *= 20;
            path->swiglu(gate.data(), b.data(), n, y.data());
            for (size_t i = 0; i < count; ++i) {
                const double want = double(gate[i]) / (1 + std::exp(-double(gate[i]))) * double(b[i]);
                check(relative(double(y[i]), want) < 1e-6, label(*path, "swiglu"));
            }
            results.push_back(y);

            y = gate;
            path->softmax(y.data(), n);
            const float largest = *std::max_element(gate.begin(), gate.end());
            double total = 0;
            for (float v : gate) total += std::exp(double(v - largest));
            for (size_t i = 0; i < count; ++i) {
                check(relative(double(y[i]), std::exp(double(gate[i] - largest)) / total) < 1e-6, label(*path, "softmax"));
            }
            results.push_back(y);

            const int64_t rows = 7, stride = n + 3;
            Random more{6};
            const std::vector<float> keys = random_floats(more, (rows - 1) * stride + n, 2), weights = random_floats(more, rows);
            std::vector<float> scores(static_cast<size_t>(rows));
            path->dots(a.data(), keys.data(), stride, rows, n, scores.data());
            for (int64_t j = 0; j < rows; ++j) {
                const float one = path->dot(a.data(), keys.data() + j * stride, n);
                check(same_bits(&one, &scores[size_t(j)], 4), label(*path, "dots are dot"));
            }
            path->mix(weights.data(), keys.data(), stride, rows, n, y.data());
            std::vector<float> sum(count);
            for (int64_t j = 0; j < rows; ++j) path->axpy(weights[size_t(j)], keys.data() + j * stride, sum.data(), n);
            check(same_bits(y, sum), label(*path, "mix is axpy"));
            results.push_back(y);
            path->mix(weights.data(), keys.data(), stride, 0, n, y.data());
            check(same_bits(y, std::vector<float>(count)), label(*path, "mix of nothing"));

            if (first.empty()) first = results;
            for (size_t i = 0; i < results.size(); ++i) {
                check(same_bits(results[i], first[i]), label(*path, "primitive " + std::to_string(i) + " has scalar's bits"));
            }
        }
    }
}

// exp over its whole range, seen through softmax of two values (the sum is 1 + e^x) and swiglu of a gate.
void test_exp() {
    for (const Kernels* path : all_paths()) {
        for (float x = -100; x < 100; x += 0.0371f) {
            const float up = 1;
            float y;
            path->swiglu(&x, &up, 1, &y);
            const double want = double(x) / (1 + std::exp(-double(x)));
            check(std::fabs(double(y) - want) <= 3e-7 * std::fabs(want) + 1e-36, label(*path, "silu of " + std::to_string(x)));
        }
        float pair[] = {0, -INFINITY}, bad[] = {1, NAN};
        path->softmax(pair, 2);
        check(pair[0] == 1 && pair[1] == 0, label(*path, "softmax of minus infinity"));
        path->softmax(bad, 2);
        check(std::isnan(bad[0]), label(*path, "softmax keeps NaN"));
    }
}

}  // namespace

int main() {
    test_table();
    test_halves();
    test_layouts();
    test_quantize();
    test_matmul_values();
    test_matmul_bits();
    test_matmul_extremes();
    test_hostile_weights();
    test_primitives();
    test_exp();
    if (failures) return 1;
    std::printf("kernels: all good on");
    for (const Kernels* path : all_paths()) std::printf(" %s", path->name);
    std::printf("\n");
}
