// Threads that read experts. They wait for disks, not for processors: they don't count as compute threads.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "experts/file.h"

namespace colibri {

class Reader {
public:
    // Something to be read in one or more pieces. Its owner keeps it until it is done.
    class Request {
        friend class Reader;
        int left_ = 0;
        std::string error_;
    };
    struct Piece {
        const ExpertFile* file;
        uint64_t offset, bytes, needed;
        uint8_t* to;
    };

    explicit Reader(int threads);
    ~Reader();  // waits for the reads that have begun; others are dropped
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;

    // Urgent requests go before those that somebody may need later.
    void start(Request&, const std::vector<Piece>&, bool urgent);
    void hurry(Request&);

    // Whether a request is done; what went wrong is then in `error`.
    bool done(Request&, std::string& error);
    // Waits until one more request is done than were at the time of `seen`; returns how many are.
    uint64_t finished() const { return finished_.load(); }
    uint64_t await(uint64_t seen);

    uint64_t bytes() const { return bytes_.load(); }
    // Nanoseconds in which at least one read was under way.
    uint64_t busy() const { return busy_.load(); }

private:
    struct Task {
        Request* request;
        Piece piece;
    };
    void work();

    mutable std::mutex mutex_;
    std::condition_variable wanted_, ready_;
    std::deque<Task> urgent_, later_;
    int reading_ = 0;
    uint64_t since_ = 0;  // when the reading began that is still under way
    uint64_t turn_ = 0;
    bool stop_ = false;
    std::atomic<uint64_t> finished_{0}, bytes_{0}, busy_{0};
    std::vector<std::thread> threads_;
};

}  // namespace colibri
