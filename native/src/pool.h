// The compute threads. A region is a number of units taken one by one from a shared counter; the caller takes its share.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace colibri {

// Physical cores this process may run on: its CPU affinity, siblings of a core counted once, capped by a cgroup quota.
int physical_cores();

// A thread that was preempted delays at most the unit it holds: nobody waits for a thread that has not begun, and units
// are taken one at a time, never dealt out. Between regions the threads spin for a few tens of microseconds, then sleep.
class Pool {
public:
    explicit Pool(int threads);  // counts the calling thread
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    int threads() const { return static_cast<int>(workers_.size()) + 1; }

    // Calls body(unit, thread) for every unit in [0, units), thread in [0, threads()); the caller is thread 0.
    // Bodies must not throw and must not start another region.
    template <class Body>
    void run(int64_t units, const Body& body) {
        if (units <= 1 || workers_.empty()) {
            for (int64_t unit = 0; unit < units; unit++) body(unit, 0);
            return;
        }
        share(units, [](const void* context, int64_t unit, int thread) { (*static_cast<const Body*>(context))(unit, thread); },
              &body);
    }

private:
    using Call = void (*)(const void* context, int64_t unit, int thread);

    void share(int64_t units, Call call, const void* context);
    void take(int thread);
    void work(int thread);
    uint32_t await_region(uint32_t seen);

    std::vector<std::thread> workers_;

    // Written by the caller while no worker is inside, read by workers that are.
    Call call_ = nullptr;
    const void* context_ = nullptr;
    int64_t units_ = 0;

    alignas(64) std::atomic<int64_t> next_{0};
    alignas(64) std::atomic<uint32_t> region_{0};  // counts regions; workers sleep on it
    alignas(64) std::atomic<int32_t> inside_{0};   // workers that may touch the fields above
    alignas(64) std::atomic<bool> open_{false};    // a worker inside may take units
    std::atomic<bool> stop_{false};
};

}  // namespace colibri
