#include "experts/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "error.h"

namespace colibri {

namespace {

int64_t nanoseconds(const timespec& time) { return int64_t{time.tv_sec} * 1000000000 + time.tv_nsec; }

// Bytes that are compared at each of some places of a copy: enough to tell another model or another conversion.
constexpr uint64_t kSample = 4096;
constexpr uint64_t kSamples = 64;

}  // namespace

void ExpertFile::Copy::close() {
    if (direct >= 0) ::close(direct);
    if (buffered >= 0) ::close(buffered);
    direct = buffered = -1;
}

ExpertFile::Copy ExpertFile::open(const std::string& path, int fd) {
    struct stat info {};
    if (fd < 0 || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        const std::string reason = fd < 0 ? std::strerror(errno) : "not a regular file";
        if (fd >= 0) ::close(fd);
        refuse(path, ": ", reason);
    }
    Copy copy{path, fd, -1, static_cast<uint64_t>(info.st_size), nanoseconds(info.st_mtim)};
#ifdef O_DIRECT
    // Again the same file, whatever its name means by now.
    copy.direct = ::open(text("/proc/self/fd/", fd).c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
#endif
    return copy;
}

ExpertFile::ExpertFile(const MappedFile& file, const std::string& mirror) {
    copies_.push_back(open(file.path(), fcntl(file.descriptor(), F_DUPFD_CLOEXEC, 0)));
    if (mirror.empty()) return;
    try {
        copies_.push_back(open(mirror, ::open(mirror.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)));
        compare(file);
    } catch (...) {
        for (Copy& copy : copies_) copy.close();
        throw;
    }
}

ExpertFile::~ExpertFile() {
    for (Copy& copy : copies_) copy.close();
}

ExpertFile::ExpertFile(ExpertFile&& other) noexcept : copies_(std::exchange(other.copies_, {})) {}

void ExpertFile::compare(const MappedFile& file) const {
    const Copy& copy = copies_[1];
    bool same = copy.size == file.size();
    std::vector<uint8_t> sample(kSample);
    for (uint64_t i = 0; same && i < kSamples; i++) {
        const uint64_t offset = file.size() / kSamples * i, bytes = std::min(kSample, file.size() - offset);
        same = pread(copy.buffered, sample.data(), bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes) &&
               std::memcmp(sample.data(), file.data() + offset, bytes) == 0;
    }
    if (!same) refuse(copy.path, ": is no copy of ", file.path(), "; copy it again, or leave --mirror out");
}

std::string ExpertFile::read(uint64_t offset, uint64_t bytes, uint64_t needed, uint8_t* to, uint64_t turn) const {
    std::string reason;
    for (size_t i = 0; i < copies_.size(); i++) {
        reason = read(copies_[(turn + i) % copies_.size()], offset, bytes, needed, to);
        if (reason.empty()) return reason;
    }
    return reason;
}

std::string ExpertFile::read(const Copy& copy, uint64_t offset, uint64_t bytes, uint64_t needed, uint8_t* to) {
    int fd = copy.direct >= 0 ? copy.direct : copy.buffered;
    uint64_t done = 0;
    while (done < needed) {
        const ssize_t got = pread(fd, to + done, bytes - done, static_cast<off_t>(offset + done));
        if (got > 0) {
            done += static_cast<uint64_t>(got);
            // What is left no longer begins at a page.
            if (done % kPage != 0) fd = copy.buffered;
            continue;
        }
        if (got == 0) return text(copy.path, ": was cut short: nothing at ", offset + done, " while the model is served from it");
        if (errno == EINTR || errno == EAGAIN) continue;
        if (errno == EINVAL && fd == copy.direct && fd != copy.buffered) {
            fd = copy.buffered;  // the file system opens such files but does not read them
            continue;
        }
        return text(copy.path, ": can't be read at ", offset + done, ": ", std::strerror(errno));
    }
#ifdef POSIX_FADV_DONTNEED
    if (fd == copy.buffered) posix_fadvise(fd, static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_DONTNEED);
#endif
    struct stat info {};
    if (fstat(copy.buffered, &info) != 0 || static_cast<uint64_t>(info.st_size) != copy.size || nanoseconds(info.st_mtim) != copy.changed)
        return text(copy.path, ": was changed while the model is served from it; start the server again");
    return {};
}

}  // namespace colibri
