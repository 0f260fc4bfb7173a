#include "pool.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <set>
#include <string>

namespace colibri {

namespace {

constexpr auto kSpin = std::chrono::microseconds(40);

void relax() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// True once `ready()` holds; false after kSpin.
template <class Ready>
bool spin(const Ready& ready) {
    for (int i = 0; i < 64; i++) {
        if (ready()) return true;
        relax();
    }
    const auto end = std::chrono::steady_clock::now() + kSpin;
    do {
        for (int i = 0; i < 32; i++) {
            if (ready()) return true;
            relax();
        }
    } while (std::chrono::steady_clock::now() < end);
    return false;
}

// CPUs' worth of time a cgroup v2 quota leaves, or `otherwise` without one.
int quota(int otherwise) {
    std::ifstream file("/sys/fs/cgroup/cpu.max");
    double limit = 0, period = 0;
    if (!(file >> limit >> period) || period <= 0) return otherwise;  // "max" does not parse as a number
    return std::max(1, static_cast<int>(std::ceil(limit / period)));
}

}  // namespace

int physical_cores() {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    int cores = 0;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
        std::set<std::string> seen;
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
            if (!CPU_ISSET(cpu, &allowed)) continue;
            std::string siblings = std::to_string(cpu);
            std::ifstream file("/sys/devices/system/cpu/cpu" + siblings + "/topology/thread_siblings_list");
            std::getline(file, siblings);
            if (siblings.empty()) siblings = std::to_string(cpu);
            seen.insert(siblings);
        }
        cores = static_cast<int>(seen.size());
    } else {
        cores = static_cast<int>(std::thread::hardware_concurrency());  // more CPUs than a cpu_set_t holds
    }
    return std::max(1, std::min(cores, quota(cores)));
}

Pool::Pool(int threads) {
    workers_.reserve(static_cast<size_t>(std::max(0, threads - 1)));
    for (int i = 1; i < threads; i++) workers_.emplace_back([this, i] { work(i); });
}

Pool::~Pool() {
    stop_.store(true);
    region_.fetch_add(1);
    region_.notify_all();
    for (auto& worker : workers_) worker.join();
}

void Pool::share(int64_t units, Call call, const void* context) {
    call_ = call;
    context_ = context;
    units_ = units;
    next_.store(0, std::memory_order_relaxed);
    open_.store(true);
    region_.fetch_add(1);
    region_.notify_all();
    take(0);
    // A worker raises inside_ before it looks at open_, we lower open_ before we look at inside_: either it sees the
    // region closed and leaves it alone, or we see it and wait for it.
    open_.store(false);
    const auto empty = [this] { return inside_.load() == 0; };
    if (spin(empty)) return;
    for (int32_t count = inside_.load(); count != 0; count = inside_.load()) inside_.wait(count);
}

void Pool::take(int thread) {
    for (;;) {
        int64_t unit = next_.fetch_add(1, std::memory_order_relaxed);
        if (unit >= units_) return;
        call_(context_, unit, thread);
    }
}

uint32_t Pool::await_region(uint32_t seen) {
    if (!spin([&] { return region_.load() != seen; })) region_.wait(seen);
    return region_.load();
}

void Pool::work(int thread) {
    uint32_t seen = 0;
    for (;;) {
        seen = await_region(seen);
        if (stop_.load()) return;
        inside_.fetch_add(1);
        if (open_.load()) take(thread);
        if (inside_.fetch_sub(1) == 1) inside_.notify_all();
    }
}

}  // namespace colibri
