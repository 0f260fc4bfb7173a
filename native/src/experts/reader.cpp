#include "experts/reader.h"

#include <algorithm>
#include <chrono>

namespace colibri {

namespace {

// A large record in several pieces keeps a disk with many channels busy; smaller ones cost more calls than they gain.
constexpr uint64_t kPiece = uint64_t{4} << 20;

uint64_t now() {
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count());
}

}  // namespace

Reader::Reader(int threads) {
    threads_.reserve(static_cast<size_t>(threads));
    for (int i = 0; i < threads; i++) threads_.emplace_back([this] { work(); });
}

Reader::~Reader() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    wanted_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

void Reader::start(Request& request, const std::vector<Piece>& pieces, bool urgent) {
    {
        const std::lock_guard lock(mutex_);
        request.error_.clear();
        for (const Piece& whole : pieces)
            for (uint64_t at = 0; at < whole.needed; at += kPiece) {
                const uint64_t bytes = std::min(kPiece, whole.bytes - at);
                const Piece piece{whole.file, whole.offset + at, bytes, std::min(bytes, whole.needed - at), whole.to + at};
                (urgent ? urgent_ : later_).push_back({&request, piece});
                request.left_++;
            }
    }
    if (pieces.size() > 1) wanted_.notify_all();
    else wanted_.notify_one();
}

void Reader::hurry(Request& request) {
    const std::lock_guard lock(mutex_);
    for (auto task = later_.begin(); task != later_.end();) {
        if (task->request != &request) {
            ++task;
            continue;
        }
        urgent_.push_back(*task);
        task = later_.erase(task);
    }
}

bool Reader::done(Request& request, std::string& error) {
    const std::lock_guard lock(mutex_);
    if (request.left_ > 0) return false;
    error = request.error_;
    return true;
}

uint64_t Reader::await(uint64_t seen) {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return finished_.load() != seen; });
    return finished_.load();
}

void Reader::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        wanted_.wait(lock, [&] { return stop_ || !urgent_.empty() || !later_.empty(); });
        if (stop_) return;
        std::deque<Task>& queue = urgent_.empty() ? later_ : urgent_;
        const Task task = queue.front();
        queue.pop_front();
        if (reading_++ == 0) since_ = now();
        const uint64_t turn = turn_++;
        lock.unlock();
        const std::string error = task.piece.file->read(task.piece.offset, task.piece.bytes, task.piece.needed, task.piece.to, turn);
        lock.lock();
        if (--reading_ == 0) busy_ += now() - since_;
        bytes_ += task.piece.needed;
        if (task.request->error_.empty()) task.request->error_ = error;
        if (--task.request->left_ == 0) {
            finished_++;
            ready_.notify_all();
        }
    }
}

}  // namespace colibri
