// How near the kernels come to the machine: GB/s of cold weights at one activation row against plain reading, and
// GFLOP/s (two per multiply-add) at many.
//
//     kernels_bench [path] [threads] [type]     defaults: the best path, 2 threads, all types
#include "kernels/kernels.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace colibri;

namespace {

constexpr int64_t kColdBytes = int64_t(256) << 20;  // of weights that are cycled through, more than any cache holds

using Bytes = std::unique_ptr<uint8_t, void (*)(void*)>;

Bytes allocate(size_t n) {
    Bytes out(static_cast<uint8_t*>(std::aligned_alloc(64, (n + 63) / 64 * 64)), std::free);
    std::memset(out.get(), 0x11, n);
    return out;
}

double seconds_of(int threads, auto work) {  // best of 5
    double best = 1e9;
    for (int repeat = 0; repeat < 5; ++repeat) {
        const auto start = std::chrono::steady_clock::now();
        std::vector<std::thread> pool;
        for (int t = 1; t < threads; ++t) pool.emplace_back([&, t] { work(t); });
        work(0);
        for (std::thread& thread : pool) thread.join();
        best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return best;
}

double plain_read(int threads) {  // GB/s
    const Bytes memory = allocate(size_t(kColdBytes));
    std::vector<uint64_t> sums(static_cast<size_t>(threads) * 8);
    const double seconds = seconds_of(threads, [&](int t) {
        const int64_t words = kColdBytes / 8 / threads;
        const auto* p = reinterpret_cast<const uint64_t*>(memory.get()) + t * words;
        uint64_t sum[8] = {};
        for (int64_t i = 0; i < words; i += 8) {  // a cache line
            __builtin_prefetch(p + i + 256);
            for (int j = 0; j < 8; ++j) sum[j] += p[i + j];
        }
        for (uint64_t s : sum) sums[size_t(t) * 8] += s;
    });
    if (sums[0] == 1) std::printf(" ");  // the sum is used
    return double(kColdBytes) / seconds / 1e9;
}

void measure(const Kernels& path, DType type, int threads, int64_t k) {
    const TypeInfo& info = type_info(type);
    const int64_t row = int64_t(row_bytes(type, k));
    const int64_t n = std::max<int64_t>(kColdBytes / row / 64 * 64, 64);
    const Bytes w = allocate(size_t(n * row));
    const int64_t most = 512;
    const Bytes acts = allocate(size_t(most) * act_bytes(info.act, k));
    const std::vector<float> x(size_t(k), 0.5f);
    for (int64_t i = 0; i < most; ++i) path.quantize(info.act, x.data(), k, acts.get() + size_t(i) * act_bytes(info.act, k));

    std::printf("%-5s k=%-5ld", info.name, long(k));
    for (int64_t m : {1, 2, 4, 8, 64, 512}) {
        const int64_t rows = m <= 4 ? n : std::max<int64_t>(64, std::min(n, n * 4 / m) / 64 * 64);
        std::vector<float> y(size_t(rows * m));
        const double seconds = seconds_of(threads, [&](int t) {
            path.matmul(dense(type, k, w.get()), rows * t / threads, rows * (t + 1) / threads, acts.get(), act_bytes(info.act, k), m,
                        y.data(), rows);
        });
        if (m <= 8) std::printf("  m=%ld %5.1f GB/s", long(m), double(rows * row) / seconds / 1e9);
        if (m >= 8) std::printf("  m=%ld %6.1f GFLOP/s", long(m), 2. * double(rows * m * k) / seconds / 1e9);
    }
    std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
    Isa isa = available_isas().back();
    for (Isa candidate : available_isas()) {
        if (argc > 1 && std::string(argv[1]) == isa_name(candidate)) isa = candidate;
    }
    const int threads = argc > 2 ? std::max(1, std::atoi(argv[2])) : 2;
    std::printf("%s, %d threads, plain read %.1f GB/s\n", isa_name(isa), threads, plain_read(threads));
    for (int t = 0; t <= int(DType::I8X16); ++t) {
        const DType type = DType(t);
        if (argc > 3 && std::string(argv[3]) != type_info(type).name) continue;
        for (int64_t k : {1024, 4864}) measure(kernels(isa), type, threads, k);
    }
}
