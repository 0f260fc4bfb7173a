// The pool: every unit runs once, whatever the threads do, and nothing is left running afterwards.
#include "pool.h"

#include <sys/resource.h>

#include <chrono>
#include <memory>
#include <numeric>

#include "check.h"

using namespace colibri;
using namespace colibri::test;

namespace {

void every_unit_once() {
    for (int threads : {1, 2, 3, 8}) {
        Pool pool(threads);
        check(pool.threads() == threads, "threads");
        for (int64_t units : {0, 1, 2, 3, 7, 100, 5000}) {
            std::vector<std::atomic<int>> count(static_cast<size_t>(units));
            std::atomic<bool> strange{false};
            pool.run(units, [&](int64_t unit, int thread) {
                count[static_cast<size_t>(unit)]++;
                if (thread < 0 || thread >= threads) strange = true;
            });
            for (auto& c : count) check(c == 1, "a unit ran other than once");
            check(!strange, "a thread number out of range");
        }
    }
}

// Results are there when run returns, and the next region sees them: many short regions, one after another.
void regions_in_order() {
    Pool pool(3);
    std::vector<int64_t> values(64, 0);
    for (int64_t round = 1; round <= 20000; round++)
        pool.run(static_cast<int64_t>(values.size()), [&](int64_t unit, int) {
            auto& value = values[static_cast<size_t>(unit)];
            value = value + 1 == round ? round : -1;
        });
    for (int64_t value : values) check(value == 20000, "a region began before the last one had ended");
}

// A thread that is held up delays the unit it holds and no other.
void uneven_units() {
    Pool pool(2);
    for (int round = 0; round < 20; round++) {
        std::atomic<int64_t> sum{0};
        pool.run(50, [&](int64_t unit, int) {
            if (unit == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
            sum += unit;
        });
        check(sum == 49 * 50 / 2, "sum of uneven units");
    }
}

void sleeping_threads_wake() {
    Pool pool(4);
    for (int round = 0; round < 10; round++) {
        std::this_thread::sleep_for(std::chrono::milliseconds(3));
        std::atomic<int> count{0};
        pool.run(1000, [&](int64_t, int) { count++; });
        check(count == 1000, "units after a pause");
    }
}

void idle_threads_burn_nothing() {
    Pool pool(8);
    pool.run(100, [](int64_t, int) {});
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const auto used = [] {
        rusage usage{};
        getrusage(RUSAGE_SELF, &usage);
        return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
    };
    const auto before = used();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    check(used() - before < 20000, "idle threads use the processor");  // spinning would take 200 ms on each
}

void threads_end() {
    for (int i = 0; i < 50; i++) Pool pool(4);  // without ever running, and at once
    check(physical_cores() >= 1, "physical cores");
    check(physical_cores() <= static_cast<int>(std::thread::hardware_concurrency()), "no more cores than threads");
}

}  // namespace

int main() {
    every_unit_once();
    regions_in_order();
    uneven_units();
    sleeping_threads_wake();
    idle_threads_burn_nothing();
    threads_end();
    return report("pool_test");
}
