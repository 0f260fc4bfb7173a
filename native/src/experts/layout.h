// Where the parts of an expert lie in files, and where they come to lie when they are read together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "experts/bank.h"
#include "experts/reader.h"
#include "graph/plan.h"

namespace colibri {

// The files of a plan by the addresses they are mapped at.
class Places {
public:
    // `mirrors`: for each of the plan's files the path of its copy, or nothing where there are none.
    Places(const Plan& plan, const std::vector<std::string>& mirrors);

    struct Place {
        const ExpertFile* file = nullptr;  // null: not in a file
        uint64_t offset = 0;
    };
    Place find(const uint8_t* at) const;

private:
    struct Mapped {
        const uint8_t* begin;
        uint64_t size;
        ExpertFile file;
    };
    std::vector<Mapped> mapped_;
};

// One expert as a few stretches of whole pages, which come to lie one behind the other in a slab.
class Layout {
public:
    Layout(const Places&, const Plan&, const Bank&, int expert);

    // Some parts are in no file: those that lay out of line were copied to memory.
    bool in_files() const { return in_files_; }
    uint64_t bytes() const { return bytes_; }  // in the slab
    std::vector<Reader::Piece> pieces(uint8_t* slab) const;
    // The expert, once the pieces were read.
    Expert in(const uint8_t* slab) const;

private:
    struct Part {
        const uint8_t* data;
        uint64_t bytes;
        const ExpertFile* file;
        uint64_t begin;  // in the file
        uint64_t end() const { return begin + bytes; }
    };
    struct Stretch {
        const ExpertFile* file;
        uint64_t begin, end;  // in the file: a page, and the end of the last part
        uint64_t at;          // in the slab
    };
    void add(const Places&, const Matrix&, int64_t rows);
    void add(const Places&, const uint8_t* data, uint64_t bytes);
    const uint8_t* moved(const uint8_t* data, const uint8_t* slab) const;
    Matrix moved(Matrix, const uint8_t* slab) const;

    Expert expert_;
    std::vector<Part> parts_;
    std::vector<Stretch> stretches_;
    uint64_t bytes_ = 0;
    bool in_files_ = true;
};

}  // namespace colibri
