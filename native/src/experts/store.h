// Where all experts of a model are: in the mapped files, or, of a model larger than memory, a part of them in caches.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "experts/layout.h"
#include "experts/reader.h"
#include "experts/streamed.h"

namespace colibri {

struct Residence {
    bool streamed = false;             // else experts stay mapped, and the system keeps what it can
    int64_t readers = 8;               // threads
    std::vector<std::string> mirrors;  // for each of the plan's files the path of a copy on another disk; or none at all
};

class ExpertStore {
public:
    ExpertStore(const Plan&, const Residence&);

    ExpertBank& operator[](int bank) { return *banks_[static_cast<size_t>(bank)]; }

    // Keeps experts in so many bytes from now on, at most those of the first call, without which none can be used. BadInput
    // for a budget that does not hold what one token takes in every layer.
    void limit(int64_t budget);

    // The bank as a cache, null where its experts are mapped.
    StreamedBank* streamed(size_t bank) { return streamed_[bank]; }
    size_t size() const { return banks_.size(); }
    uint64_t bytes_read() const { return reader_ ? reader_->bytes() : 0; }
    uint64_t reading() const { return reader_ ? reader_->busy() : 0; }  // nanoseconds
    uint64_t least() const;  // bytes that one token takes in every layer

private:
    std::vector<int64_t> shares(int64_t budget) const;

    const Plan& plan_;
    std::unique_ptr<Places> places_;
    std::vector<StreamedBank*> streamed_;
    std::vector<std::unique_ptr<ExpertBank>> banks_;
    std::unique_ptr<Reader> reader_;  // goes first: it writes into the caches
};

}  // namespace colibri
