// A model file as experts are read from it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "graph/map.h"

namespace colibri {

// Reads begin and end at multiples of this, in the file and in memory.
constexpr uint64_t kPage = 4096;

constexpr uint64_t page_floor(uint64_t offset) { return offset / kPage * kPage; }
constexpr uint64_t page_ceil(uint64_t offset) { return (offset + kPage - 1) / kPage * kPage; }

// Past the page cache where the file system can do that: what is read is kept by us, once, and not by the system as well.
// A second copy on another disk takes its share of the reads, and all of them while the first one fails.
class ExpertFile {
public:
    // `mirror`: the path of a copy, or empty. BadInput for one that is not the same.
    ExpertFile(const MappedFile& file, const std::string& mirror);
    ~ExpertFile();
    ExpertFile(ExpertFile&&) noexcept;
    ExpertFile(const ExpertFile&) = delete;
    ExpertFile& operator=(const ExpertFile&) = delete;
    ExpertFile& operator=(ExpertFile&&) = delete;

    // Reads what lies in whole pages from `offset` on, of which the first `needed` bytes must be there. `turn` chooses the
    // copy. Returns what went wrong in words, or nothing. Any thread may call it.
    std::string read(uint64_t offset, uint64_t bytes, uint64_t needed, uint8_t* to, uint64_t turn) const;

    bool direct() const { return copies_[0].direct >= 0; }

private:
    struct Copy {
        std::string path;
        int buffered = -1, direct = -1;
        uint64_t size = 0;
        int64_t changed = 0;  // nanoseconds
        void close();
    };
    static Copy open(const std::string& path, int fd);
    static std::string read(const Copy&, uint64_t offset, uint64_t bytes, uint64_t needed, uint8_t* to);
    void compare(const MappedFile&) const;

    std::vector<Copy> copies_;
};

}  // namespace colibri
