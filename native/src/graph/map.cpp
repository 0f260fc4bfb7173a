#include "graph/map.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "error.h"

namespace colibri {

namespace {

uint64_t page_size() {
    static const uint64_t size = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    return size;
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
    if (path.find('\0') != std::string::npos) refuse("file name holds a NUL byte");
    // O_NONBLOCK: opening a FIFO must not wait for a writer.
    fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd_ < 0) refuse(path, ": ", std::strerror(errno));
    struct stat info {};
    if (fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) {
        ::close(fd_);
        refuse(path, ": not a regular file");
    }
    size_ = static_cast<uint64_t>(info.st_size);
    if (size_ > 0) {
        void* at = mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd_, 0);
        if (at == MAP_FAILED) {
            int error = errno;
            ::close(fd_);
            refuse(path, ": cannot be mapped: ", std::strerror(error));
        }
        data_ = static_cast<const uint8_t*>(at);
    }
}

MappedFile::~MappedFile() {
    if (data_) munmap(const_cast<uint8_t*>(data_), size_);
    if (fd_ >= 0) ::close(fd_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_), data_(std::exchange(other.data_, nullptr)) {}

void MappedFile::populate(uint64_t offset, uint64_t bytes) const {
    if (offset >= size_) return;
    const uint64_t start = offset / page_size() * page_size(), length = std::min(bytes, size_ - offset) + (offset - start);
    auto* begin = const_cast<uint8_t*>(data_) + start;
    madvise(begin, length, MADV_WILLNEED);
#ifdef MADV_POPULATE_READ
    // A file that was cut short since: nothing to bring in. An older kernel does not know the word.
    if (madvise(begin, length, MADV_POPULATE_READ) == 0 || errno != EINVAL) return;
#endif
    for (uint64_t at = 0; at < length; at += page_size()) static_cast<void>(*static_cast<volatile const uint8_t*>(begin + at));
}

LazyMemory::LazyMemory(uint64_t bytes, const char* what) : size_(bytes) {
    if (bytes == 0) return;
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) throw NoRoom(text(what, ": ", bytes >> 20, " MiB of address space: ", std::strerror(errno)));
    data_ = static_cast<uint8_t*>(at);
}

LazyMemory::~LazyMemory() {
    if (data_) munmap(data_, size_);
}

LazyMemory::LazyMemory(LazyMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

LazyMemory& LazyMemory::operator=(LazyMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
}

uint64_t LazyMemory::resident() const {
    const uint64_t page = page_size();
    std::vector<unsigned char> present(4096);
    uint64_t pages = 0;
    for (uint64_t at = 0; at < size_; at += present.size() * page) {
        uint64_t bytes = std::min<uint64_t>(size_ - at, present.size() * page);
        if (mincore(data_ + at, bytes, present.data()) != 0) continue;
        uint64_t count = (bytes + page - 1) / page;
        for (uint64_t i = 0; i < count; i++) pages += present[i] & 1;
    }
    return pages * page;
}

}  // namespace colibri
