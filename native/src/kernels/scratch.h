// Working memory of the calling thread.
#pragma once

#include <cstddef>

namespace colibri {

// At least `bytes` bytes, aligned to 64; valid until the thread's next call. It grows as needed and is freed with the thread.
void* scratch(size_t bytes);

}  // namespace colibri
