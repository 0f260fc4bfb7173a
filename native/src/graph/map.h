// A model file mapped read-only, and memory that costs nothing until it is touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace colibri {

// Weights are read where they lie. Every range handed out was checked against the file's size when it was mapped;
// a file that another process truncates later raises SIGBUS on the next read of the lost pages, which ends the worker
// process (its clients get a named error and the worker is started again). Replace a model file by renaming, never by
// writing over it.
class MappedFile {
public:
    explicit MappedFile(const std::string& path);  // BadInput if it cannot be opened or is no regular file
    ~MappedFile();
    MappedFile(MappedFile&&) noexcept;
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;
    MappedFile& operator=(MappedFile&&) = delete;

    const std::string& path() const { return path_; }
    uint64_t size() const { return size_; }
    const uint8_t* data() const { return data_; }
    int descriptor() const { return fd_; }

    // Brings the pages of [offset, offset + bytes) into memory, as far as they are part of the file.
    void populate(uint64_t offset, uint64_t bytes) const;

private:
    std::string path_;
    int fd_ = -1;
    uint64_t size_ = 0;
    const uint8_t* data_ = nullptr;
};

// Zeroed, page-aligned memory; pages exist once they are written.
class LazyMemory {
public:
    LazyMemory() = default;
    LazyMemory(uint64_t bytes, const char* what);  // NoRoom naming `what`
    ~LazyMemory();
    LazyMemory(LazyMemory&&) noexcept;
    LazyMemory& operator=(LazyMemory&&) noexcept;
    LazyMemory(const LazyMemory&) = delete;
    LazyMemory& operator=(const LazyMemory&) = delete;

    uint8_t* data() const { return data_; }
    uint64_t size() const { return size_; }
    uint64_t resident() const;  // bytes of pages in memory now

private:
    uint8_t* data_ = nullptr;
    uint64_t size_ = 0;
};

}  // namespace colibri
