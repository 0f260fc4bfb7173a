// What can go wrong, each as an exception with one line: BadInput is ValueError in Python, NoRoom is
// MemoryError, ReadFailed is RuntimeError.
#pragma once

#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace colibri {

struct BadInput : std::invalid_argument {
    using std::invalid_argument::invalid_argument;
};

// A file that could be read before can't be any more.
struct ReadFailed : std::runtime_error {
    using std::runtime_error::runtime_error;
};

class NoRoom : public std::bad_alloc {
public:
    explicit NoRoom(std::string what) : what_(std::move(what)) {}
    const char* what() const noexcept override { return what_.c_str(); }

private:
    std::string what_;
};

template <class... Parts>
std::string text(const Parts&... parts) {
    std::ostringstream out;
    (out << ... << parts);
    return out.str();
}

template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
    throw BadInput(text(parts...));
}

}  // namespace colibri
