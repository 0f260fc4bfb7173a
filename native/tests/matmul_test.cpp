// Products with every storage type on every code path: against double precision, and against each other bit for bit.
#include "weights.h"

#include <algorithm>
#include <limits>

using namespace colibri;
using namespace colibri::test;

namespace {

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
                path->matmul(dense(type, k, w.data()), 0, n, acts.get(), act_bytes(act, k), m, y.data(), n);
                for (int64_t i = 0; i < m; ++i) {
                    const std::vector<double> a = act_values(act, acts.get() + size_t(i) * act_bytes(act, k), k);
                    for (int64_t r = 0; r < n; ++r) {
                        std::vector<float> row(static_cast<size_t>(k));
                        path->dequantize(dense(type, k, w.data()), r, row.data());
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
                    kernels(Isa::Scalar).matmul(dense(type, k, w.data()), r, r + 1, acts.get() + size_t(i) * stride, stride, 1,
                                                alone.data() + i * n, n);
                }
            }
            for (const Kernels* path : all_paths()) {
                const int64_t y_stride = n + 3, n0 = random.below(n), n1 = n0 + 1 + random.below(n - n0);
                std::vector<float> y(size_t(m * y_stride), 77), want = y;
                for (int64_t i = 0; i < m; ++i) {
                    for (int64_t r = n0; r < n1; ++r) want[size_t(i * y_stride + r)] = alone[size_t(i * n + r)];
                }
                path->matmul(dense(type, k, w.data()), n0, n1, acts.get(), stride, m, y.data(), y_stride);
                check(same_bits(y, want), label(*path, std::string("bits of ") + type_info(type).name + " k=" + std::to_string(k) +
                                                           " m=" + std::to_string(m) + " n=" + std::to_string(n1 - n0)));
                for (int64_t i = 0; i < m; ++i) {
                    path->matmul(dense(type, k, w.data()), n0, n1, acts.get() + size_t(i) * stride, stride, 1, y.data() + i * y_stride,
                                 y_stride);
                }
                check(same_bits(y, want), label(*path, std::string("bits row by row of ") + type_info(type).name));
                path->matmul(dense(type, k, w.data()), n0, n0, acts.get(), stride, m, y.data(), y_stride);
                path->matmul(dense(type, k, w.data()), n0, n1, acts.get(), stride, 0, y.data(), y_stride);
                check(same_bits(y, want), label(*path, "nothing to do"));
            }
        }
    }
}

// The largest integers a type can hold, of either sign: nothing saturates.
void test_matmul_extremes() {
    for (DType type : kTypes) {
        const TypeInfo& info = type_info(type);
        if (info.act == ActType::F32) continue;
        const int64_t k = info.block;
        for (int fill : {0x00, 0x7f, 0x80, 0x81, 0xff}) {
            std::vector<uint8_t> w(size_t(info.bytes * info.together), uint8_t(fill));
            if (info.together > 1) put_scales(w, type, k, [] { return 0.5f; });
            for (int at : halves_of(type)) put_half(w.data() + at, at == 2 ? 0.25f : 0.5f);
            for (float sign : {1.f, -1.f}) {
                const std::vector<float> x(size_t(k), sign * 127);
                std::vector<float> row(static_cast<size_t>(k));
                kernels(Isa::Scalar).dequantize(dense(type, k, w.data()), 0, row.data());
                double want = 0;
                for (float v : row) want += double(v) * double(sign) * 127;
                for (const Kernels* path : all_paths()) {
                    Memory acts(act_bytes(info.act, k));
                    path->quantize(info.act, x.data(), k, acts.get());
                    float y = 0;
                    path->matmul(dense(type, k, w.data()), 0, 1, acts.get(), act_bytes(info.act, k), 1, &y, 1);
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
        const int64_t k = info.block == 1 ? 77 : info.block == 2 ? 78 : 2 * info.block, n = 200, m = 5;
        std::vector<uint8_t> w(size_t(stored_rows(type, n)) * row_bytes(type, k));
        for (uint8_t& byte : w) byte = uint8_t(random.next());
        for (size_t i = 0; i + 1 < w.size(); i += size_t(info.bytes)) {  // scales of all ones now and then
            if (random.below(10) == 0) w[i] = w[i + 1] = 0xff;
        }
        const Memory acts = random_acts(random, kernels(Isa::Scalar), info.act, m, k);
        std::vector<float> want;
        for (const Kernels* path : all_paths()) {
            std::vector<float> y(size_t(n * m)), values(static_cast<size_t>(k));
            path->matmul(dense(type, k, w.data()), 0, n, acts.get(), act_bytes(info.act, k), m, y.data(), n);
            path->dequantize(dense(type, k, w.data()), 0, values.data());
            for (float& v : y) v = std::isnan(v) ? NAN : v;
            if (want.empty()) want = y;
            check(same_bits(y, want), label(*path, std::string("hostile ") + info.name));
        }
    }
}

// Packing loses no more than the type must, says how much, and says the same of what it gives back.
void test_packing() {
    Random random{8};
    for (DType type : {DType::I4X16, DType::I8X16}) {
        for (const auto& [n, k] : {std::pair{int64_t(1), int64_t(64)}, {int64_t(16), int64_t(128)}, {int64_t(37), int64_t(320)}}) {
            std::vector<float> x = random_floats(random, n * k, 0.3f), back(x.size());
            std::fill_n(x.begin(), 64, 0.f);  // a group of zeros
            std::vector<uint8_t> w(size_t(stored_rows(type, n)) * row_bytes(type, k));
            Loss loss;
            kernels(Isa::Scalar).pack(type, x.data(), n, k, w.data(), loss);
            for (const Kernels* path : all_paths()) {
                std::vector<uint8_t> same(w.size());
                Loss lost;
                path->pack(type, x.data(), n, k, same.data(), lost);
                check(same == w && lost.error == loss.error && lost.size == loss.size, label(*path, "packing"));
            }
            double error = 0, size = 0;
            for (int64_t r = 0; r < n; ++r) kernels(Isa::Scalar).dequantize(dense(type, k, w.data()), r, back.data() + r * k);
            for (size_t i = 0; i < x.size(); ++i) {
                error += std::pow(double(x[i]) - double(back[i]), 2);
                size += double(x[i]) * double(x[i]);
            }
            const std::string what = std::string("packing ") + type_info(type).name;
            check(relative(loss.error, error) < 1e-4 && relative(loss.size, size) < 1e-5, what + " says its loss");
            check(std::sqrt(error / size) < (type == DType::I4X16 ? 0.09 : 0.006) || n == 1, what + " loses little");
            check(std::all_of(back.begin(), back.begin() + 64, [](float v) { return v == 0; }), what + " keeps zeros");
            std::vector<uint8_t> again(w.size());
            Loss none;
            kernels(Isa::Scalar).pack(type, back.data(), n, k, again.data(), none);
            check(none.error <= 1e-9 * size, what + " keeps what it gave");
            std::vector<float> odd(size_t(n * k), std::numeric_limits<float>::quiet_NaN());  // whatever it makes of it, it ends
            odd.back() = std::numeric_limits<float>::infinity();
            kernels(Isa::Scalar).pack(type, odd.data(), n, k, again.data(), none);
        }
    }
}

// A matrix whose scales lie apart, in memory of exactly its size.
struct Scaled {
    std::vector<uint8_t> values, grid, zeros;
    Matrix matrix;
    int64_t rows;
};

// With blocks of any shape, rows that skip rows and begin within a block, and bytes between the rows of everything.
Scaled random_scaled(Random& random, DType type, DType scale, bool with_zeros) {
    const int64_t k = 2 * (1 + random.below(90)), n = 1 + random.below(40);
    const int64_t block_rows = 1 + random.below(9), block_cols = 1 + random.below(40), first = random.below(12), every = 1 + random.below(3);
    const int64_t grid_rows = (first + (n - 1) * every) / block_rows + 1, grid_cols = (k + block_cols - 1) / block_cols;
    const int64_t together = type == DType::U4 ? 8 : 4, words = (grid_rows + together - 1) / together;
    const int64_t pitch = int64_t(row_bytes(type, k)) + random.below(4), scale_pitch = int64_t(row_bytes(scale, grid_cols)) + random.below(3);
    Scaled out;
    out.rows = n;
    const auto spread = [&](const std::vector<uint8_t>& dense_rows, int64_t rows, int64_t bytes, int64_t apart) {
        std::vector<uint8_t> all(size_t((rows - 1) * apart + bytes), 0x55);
        for (int64_t r = 0; r < rows; ++r) std::memcpy(all.data() + r * apart, dense_rows.data() + r * bytes, size_t(bytes));
        return all;
    };
    out.values = spread(random_weights(random, type, n, k), n, int64_t(row_bytes(type, k)), pitch);
    out.grid = spread(random_weights(random, scale, grid_rows, grid_cols), grid_rows, int64_t(row_bytes(scale, grid_cols)), scale_pitch);
    out.zeros = std::vector<uint8_t>(size_t(words * grid_cols * 4));
    for (uint8_t& byte : out.zeros) byte = uint8_t(random.next());
    out.matrix = {type, k, out.values.data(), pitch, {out.grid.data(), scale, scale_pitch}, {}};
    out.matrix.block_rows = block_rows, out.matrix.block_cols = block_cols;
    out.matrix.first = first, out.matrix.every = every;
    out.matrix.factor = 0.37f, out.matrix.zero = 3;
    if (with_zeros) out.matrix.zeros = {out.zeros.data(), type, grid_cols * 4};
    return out;
}

// The value at (row, column), spelled out.
double scaled_value(const Scaled& s, int64_t row, int64_t column) {
    const Matrix& w = s.matrix;
    std::vector<float> values(size_t(w.cols)), scales(size_t((w.cols + w.block_cols - 1) / w.block_cols));
    kernels(Isa::Scalar).dequantize(dense(w.type, w.cols, w.row(row)), 0, values.data());
    const int64_t i = (w.first + row * w.every) / w.block_rows, j = column / w.block_cols;
    kernels(Isa::Scalar).dequantize(dense(w.scales.type, int64_t(scales.size()), w.scales.data + i * w.scales.pitch), 0, scales.data());
    double zero = w.zero;
    if (w.zeros.data != nullptr) {
        const int bits = w.type == DType::U4 ? 4 : 8, together = 32 / bits;
        uint32_t word;
        std::memcpy(&word, w.zeros.data + i / together * w.zeros.pitch + 4 * j, 4);
        zero = word >> (i % together * bits) & ((1u << bits) - 1);
    }
    return (double(values[size_t(column)]) - zero) * double(scales[size_t(j)]) * double(w.factor);
}

void test_scales_apart() {
    Random random{7};
    for (DType type : {DType::E4M3, DType::E2M1, DType::I8, DType::U8, DType::U4, DType::BF16}) {
        for (DType scale : {DType::F32, DType::BF16, DType::F16, DType::E8M0, DType::E4M3}) {
            for (int trial = 0; trial < 6; ++trial) {
                const bool with_zeros = trial % 2 && (type == DType::U4 || type == DType::U8);
                const Scaled scaled = random_scaled(random, type, scale, with_zeros);
                const Matrix& w = scaled.matrix;
                const int64_t k = w.cols, n = scaled.rows, m = 1 + random.below(9);
                const size_t stride = act_bytes(ActType::F32, k);
                const Memory acts = random_acts(random, kernels(Isa::Scalar), ActType::F32, m, k);
                const std::string what = std::string(type_info(type).name) + " with scales " + type_info(scale).name;

                std::vector<float> rows(size_t(n * k)), want(size_t(n * m));
                for (int64_t r = 0; r < n; ++r) {
                    kernels(Isa::Scalar).dequantize(w, r, rows.data() + r * k);
                    for (int64_t c = 0; c < k; ++c) {
                        check(relative(double(rows[size_t(r * k + c)]), scaled_value(scaled, r, c)) < 1e-6, "value of " + what);
                    }
                }
                kernels(Isa::Scalar).matmul(dense(DType::F32, k, rows.data()), 0, n, acts.get(), stride, m, want.data(), n);
                for (const Kernels* path : all_paths()) {
                    std::vector<float> y(size_t(n * m));
                    path->matmul(w, 0, n, acts.get(), stride, m, y.data(), n);
                    check(same_bits(y, want), label(*path, "bits of " + what));
                    for (int64_t i = 0; i < m; ++i) {
                        for (int64_t r = 0; r < n; ++r) {
                            path->matmul(w, r, r + 1, acts.get() + size_t(i) * stride, stride, 1, y.data() + i * n, n);
                        }
                    }
                    check(same_bits(y, want), label(*path, "bits one by one of " + what));
                }
            }
        }
    }
}

}  // namespace

int main() {
    test_matmul_values();
    test_matmul_bits();
    test_matmul_extremes();
    test_hostile_weights();
    test_scales_apart();
    test_packing();
    if (failures) return 1;
    std::printf("matmul: all good on");
    for (const Kernels* path : all_paths()) std::printf(" %s", path->name);
    std::printf("\n");
}
