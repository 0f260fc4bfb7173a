// The storage types against the published layouts, and the kernels that are no products: against double precision, and on
// all code paths against each other.
#include <algorithm>

#include "golden_blocks.h"
#include "kernels/half.h"
#include "weights.h"

using namespace colibri;
using namespace colibri::test;

namespace {

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
        path->matmul(dense(DType::F16, 1, w.data()), 0, 65536, &one, sizeof(one), 1, y.data(), 65536);
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
            path->dequantize(dense(type, size, exact.data()), 0, out.data());
            const std::string what = label(*path, std::string("layout of ") + type_info(type).name);
            for (size_t i = 0; i < out.size(); ++i) check(out[i] == std::bit_cast<float>(values[i]), what);
        }
    };
    golden(DType::Q8_0, golden::q8_0_block, golden::q8_0_values);
    golden(DType::Q4_0, golden::q4_0_block, golden::q4_0_values);
    golden(DType::Q5_0, golden::q5_0_block, golden::q5_0_values);
    golden(DType::Q4_K, golden::q4_k_block, golden::q4_k_values);
    golden(DType::Q6_K, golden::q6_k_block, golden::q6_k_values);
    golden(DType::NVFP4, golden::nvfp4_block, golden::nvfp4_values);
    golden(DType::MXFP4, golden::mxfp4_block, golden::mxfp4_values);
    golden(DType::IQ4_XS, golden::iq4_xs_block, golden::iq4_xs_values);
    golden(DType::IQ4_NL, golden::iq4_nl_block, golden::iq4_nl_values);
    golden(DType::Q5_K, golden::q5_k_block, golden::q5_k_values);
    golden(DType::Q3_K, golden::q3_k_block, golden::q3_k_values);
    golden(DType::Q2_K, golden::q2_k_block, golden::q2_k_values);
    golden(DType::Q5_1, golden::q5_1_block, golden::q5_1_values);
    golden(DType::Q4_1, golden::q4_1_block, golden::q4_1_values);

    const uint8_t halves[] = {0x00, 0x3c, 0x00, 0xc0}, bfloats[] = {0x80, 0x3f, 0x00, 0xc0};
    float out[2];
    kernels(Isa::Scalar).dequantize(dense(DType::F16, 2, halves), 0, out);
    check(out[0] == 1 && out[1] == -2, "layout of f16");
    kernels(Isa::Scalar).dequantize(dense(DType::BF16, 2, bfloats), 0, out);
    check(out[0] == 1 && out[1] == -2, "layout of bf16");
}

// The small floats, code by code, by the definition of each type.
void test_small_floats() {
    const float quarters[] = {0, .5f, 1, 1.5f, 2, 3, 4, 6};
    std::vector<uint8_t> codes(256);
    for (int i = 0; i < 256; ++i) codes[size_t(i)] = uint8_t(i);
    const float one = 1;
    for (const Kernels* path : all_paths()) {
        const auto by_row = [&](DType type) {  // as products with one
            std::vector<float> y(256);
            path->matmul(dense(type, 1, codes.data()), 0, 256, &one, sizeof(one), 1, y.data(), 256);
            return y;
        };
        const std::vector<float> e4m3 = by_row(DType::E4M3), e8m0 = by_row(DType::E8M0);
        for (int i = 0; i < 256; ++i) {
            const int exponent = i >> 3 & 15, fraction = i & 7;
            const double size = exponent ? std::ldexp(8 + fraction, exponent - 10) : std::ldexp(fraction, -9);
            const float want = (i & 127) == 127 ? NAN : float(i & 128 ? -size : size);
            const float got = e4m3[size_t(i)];
            check(std::isnan(want) ? std::isnan(got) : got == want, label(*path, "e4m3 " + std::to_string(i)));
            const float power = float(std::ldexp(1, i - 127));
            check(i == 255 ? std::isnan(e8m0[255]) : e8m0[size_t(i)] == power, label(*path, "e8m0 " + std::to_string(i)));
        }
        std::vector<float> e2m1(512);
        path->dequantize(dense(DType::E2M1, 512, codes.data()), 0, e2m1.data());
        for (int i = 0; i < 512; ++i) {
            const int code = i % 2 ? i / 2 >> 4 : i / 2 & 15;
            const float want = code & 8 ? -quarters[code & 7] : quarters[code & 7];
            check(same_bits(&want, &e2m1[size_t(i)], 4), label(*path, "e2m1 " + std::to_string(i)));
        }
    }
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
    test_small_floats();
    test_quantize();
    test_primitives();
    test_exp();
    if (failures) return 1;
    std::printf("kernels: all good on");
    for (const Kernels* path : all_paths()) std::printf(" %s", path->name);
    std::printf("\n");
}
