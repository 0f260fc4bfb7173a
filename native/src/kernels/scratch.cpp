#include "scratch.h"

#include <cstdint>
#include <memory>
#include <new>

namespace colibri {

namespace {

constexpr std::align_val_t kAlignment{64};

struct Free {
    void operator()(std::byte* p) const { ::operator delete(p, kAlignment); }
};

struct Scratch {
    std::unique_ptr<std::byte, Free> memory;
    size_t capacity = 0;
};

thread_local Scratch local;

}  // namespace

void* scratch(size_t bytes) {
    if (bytes > local.capacity) {
        local.memory.reset();
        local.capacity = 0;
        local.memory.reset(static_cast<std::byte*>(::operator new(bytes, kAlignment)));
        local.capacity = bytes;
    }
    return local.memory.get();
}

}  // namespace colibri
