// Experts on disks that fail, stall and give less than they are asked for.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "check.h"
#include "experts/store.h"

using namespace colibri;
using namespace colibri::test;

namespace {

// What the next reads meet.
struct Disk {
    std::atomic<int> failing{0};      // reads that end with EIO; -1: all
    std::atomic<int> interrupted{0};  // that end with EINTR
    std::atomic<bool> piecemeal{false};
    std::atomic<bool> stalled{false};
    std::atomic<int> reads{0}, waiting{0};
} disk;

bool take(std::atomic<int>& count) {
    if (count == -1) return true;
    int left = count;
    while (left > 0)
        if (count.compare_exchange_weak(left, left - 1)) return true;
    return false;
}

}  // namespace

// In place of the system's.
extern "C" ssize_t pread(int fd, void* to, size_t bytes, off_t offset) {
    disk.reads++;
    disk.waiting++;
    while (disk.stalled) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    disk.waiting--;
    if (take(disk.interrupted)) {
        errno = EINTR;
        return -1;
    }
    if (take(disk.failing)) {
        errno = EIO;
        return -1;
    }
    if (disk.piecemeal && bytes > 4096) bytes = 4096 + offset % 7 * 512;
    return syscall(SYS_pread64, fd, to, bytes, offset);
}
extern "C" ssize_t pread64(int fd, void* to, size_t bytes, off_t offset) { return pread(fd, to, bytes, offset); }

namespace {

constexpr int kExperts = 12;
constexpr int64_t kWidth = 64, kInner = 96;

std::string random_bytes(size_t count) {
    Random random{3};
    std::string bytes(count, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random.below(256));
    return bytes;
}

// A bank of experts, each of whose parts lies somewhere.
struct Model {
    static constexpr int64_t kPart = kWidth * kInner;
    std::string bytes = random_bytes(static_cast<size_t>(3 * kExperts * (kPart + 100)));
    TemporaryFile file{bytes};
    Plan plan;

    Model() {
        Builder b(4);
        b.file(file.path());
        std::vector<int64_t> parts[3];
        for (int64_t e = 0; e < kExperts; e++)
            for (int64_t kind = 0; kind < 3; kind++) {
                const int64_t rows = kind == 2 ? kWidth : kInner, cols = kind == 2 ? kInner : kWidth;
                parts[kind].push_back(b.weight("w", "e4m3", rows, cols, 0, (3 * e + kind) * (kPart + 100) + 17));
            }
        b.bank(kWidth, kInner, parts[0], parts[1], parts[2]);
        const int x = b.value(4);
        b.node("embed", {}, x, std::vector<int64_t>{b.weight("embed", "f32", 4, 4, 0, 0)}, -1, {}, {});
        plan = b.finish(x);
        plan.banks[0].top_k = 3;
    }
};

bool right(const Model& model, const Expert& expert) {
    const auto same = [&](const Matrix& matrix, int kind) {
        const auto at = static_cast<size_t>((3 * expert.index + kind) * (Model::kPart + 100) + 17);
        return std::memcmp(matrix.data, model.bytes.data() + at, Model::kPart) == 0;
    };
    return same(expert.gate, 0) && same(expert.up, 1) && same(expert.down, 2);
}

// Asks for some experts and checks all that is given.
void use(const Model& model, ExpertBank& bank, std::initializer_list<int> experts) {
    std::vector<Demand> demands;
    for (int expert : experts) demands.push_back({expert, 1});
    bank.ask(demands);
    std::vector<int> given;
    for (auto group = bank.next(); !group.empty(); group = bank.next())
        for (const Expert& expert : group) {
            given.push_back(expert.index);
            check(right(model, expert), text("expert ", expert.index, " has other bytes"));
        }
    std::sort(given.begin(), given.end());
    check(std::equal(given.begin(), given.end(), experts.begin(), experts.end()), "not what was asked for");
}

template <class Body>
void fails(const std::string& part, const Body& body) {
    try {
        body();
    } catch (const ReadFailed& error) {
        check(std::string(error.what()).find(part) != std::string::npos, text("wrong reason: ", error.what()));
        return;
    }
    check(false, "did not fail: " + part);
}

struct Cache {
    Model model;
    ExpertStore store;
    ExpertBank& bank;

    explicit Cache(int64_t room, int64_t readers = 3) : store(model.plan, {true, readers, {}}), bank(store[0]) {
        store.limit(room * static_cast<int64_t>(store.streamed(0)->slab()));
    }
    void use(std::initializer_list<int> experts) { ::use(model, bank, experts); }
};

void any_number_at_once() {
    for (int64_t room : {3, 5, 12}) {
        Cache cache(room);
        cache.use({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
        cache.use({4});
        cache.use({3, 4, 11});
        cache.use({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
        check(cache.store.streamed(0)->facts().held <= room, "more than there is room for");
    }
}

void reads_that_give_less() {
    Cache cache(4);
    disk.piecemeal = true;
    disk.interrupted = 5;
    cache.use({0, 5, 7, 8, 9, 11});
    disk.piecemeal = false;
}

void a_disk_that_fails_is_named_and_tried_again() {
    Cache cache(4);
    cache.use({1, 2});
    disk.failing = -1;
    cache.use({1, 2});  // they are there
    fails(cache.model.file.path() + ": can't be read at", [&] { cache.use({1, 2, 3}); });
    fails("Input/output error", [&] { cache.use({3, 4, 5, 6, 7, 8}); });
    disk.failing = 0;
    cache.use({1, 2, 3, 4, 5, 6, 7, 8});
    disk.failing = 1;
    fails("Input/output error", [&] { cache.use({9, 10, 11}); });
    cache.use({9, 10, 11});
}

void a_disk_that_stalls_is_waited_for() {
    Cache cache(5);
    cache.use({0, 1});
    disk.stalled = true;
    std::thread later([] {
        while (disk.waiting < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        disk.stalled = false;
    });
    cache.use({0, 1, 2, 3, 4});
    later.join();
    check(cache.store.streamed(0)->facts().waited > 40'000'000, "the wait is counted");
}

void what_was_asked_for_later_overtakes_what_may_be_needed() {
    Cache cache(12, 1);
    disk.stalled = true;
    cache.store.streamed(0)->preload(std::vector{0, 1, 2, 3, 4, 5, 6, 7});
    std::thread later([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        disk.stalled = false;
    });
    cache.use({6, 7, 8});
    later.join();
    cache.use({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
}

void ended_while_reads_are_under_way() {
    for (int i = 0; i < 20; i++) {
        Cache cache(12, 4);
        cache.store.streamed(0)->preload(std::vector{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
        if (i % 2) cache.use({3, 4});
        cache.store.limit(static_cast<int64_t>(cache.store.least()));
    }
}

}  // namespace

int main() {
    any_number_at_once();
    reads_that_give_less();
    a_disk_that_fails_is_named_and_tried_again();
    a_disk_that_stalls_is_waited_for();
    what_was_asked_for_later_overtakes_what_may_be_needed();
    ended_while_reads_are_under_way();
    check(disk.reads > 100, "the reads went through this file");
    return report("streaming");
}
