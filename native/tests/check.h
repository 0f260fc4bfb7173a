// What the tests share: checks that count, and a plan with its weights made in a few lines.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "error.h"
#include "graph/builder.h"

namespace colibri::test {

inline int failures = 0;

inline void check(bool ok, const std::string& what) {
    if (ok) return;
    std::printf("FAILED %s\n", what.c_str());
    if (++failures > 20) std::exit(1);
}

// `body` must throw BadInput with one line that holds `part`.
template <class Body>
void refused(const std::string& part, const Body& body) {
    try {
        body();
    } catch (const BadInput& error) {
        const std::string line = error.what();
        check(line.find(part) != std::string::npos, "wrong reason: '" + line + "', expected '" + part + "'");
        check(line.find('\n') == std::string::npos, "a reason of several lines: " + line);
        return;
    }
    check(false, "not refused: " + part);
}

inline int report(const char* name) {
    std::printf("%s: %s\n", name, failures ? "FAILED" : "passed");
    return failures ? 1 : 0;
}

struct Random {
    uint64_t state;
    uint64_t next() {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        return state >> 33;
    }
    int64_t below(int64_t n) { return static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }
    float uniform() { return static_cast<float>(below(20001)) / 10000 - 1; }  // [-1, 1]
};

// A file that is gone with its object.
class TemporaryFile {
public:
    explicit TemporaryFile(const std::string& bytes) {
        char name[] = "/tmp/colibri_test_XXXXXX";
        const int fd = mkstemp(name);
        if (fd < 0) std::abort();
        ::close(fd);
        path_ = name;
        std::ofstream(path_, std::ios::binary) << bytes;
    }
    ~TemporaryFile() { std::remove(path_.c_str()); }
    TemporaryFile(const TemporaryFile&) = delete;
    TemporaryFile& operator=(const TemporaryFile&) = delete;
    const std::string& path() const { return path_; }

private:
    std::string path_;
};

// A plan of float32 weights, uniform in [-1, 1] over sqrt(columns), under construction.
class Draft {
public:
    explicit Draft(int64_t vocab, uint64_t seed = 1) : builder(vocab), random_{seed}, vocab_(vocab) {
        for (auto& f : pool_) f = random_.uniform();
        file_.emplace(std::string(reinterpret_cast<const char*>(pool_.data()), pool_.size() * sizeof(float)));
        builder.file(file_->path());
    }

    std::vector<double> values(int weight) const {  // row-major
        const auto [rows, cols, at] = shapes_[static_cast<size_t>(weight)];
        return {pool_.begin() + at, pool_.begin() + at + rows * cols};
    }

    int weight(int64_t rows, int64_t cols) {
        const int64_t at = random_.below(static_cast<int64_t>(pool_.size()) - rows * cols);
        shapes_.push_back({rows, cols, at});
        return builder.weight("w" + std::to_string(shapes_.size() - 1), "f32", rows, cols, 0, at * 4);
    }

    int node(const std::string& op, std::vector<int64_t> inputs, int64_t width, std::vector<int64_t> weights = {}, Attributes with = {},
             int64_t bank = -1, std::vector<int64_t> states = {}) {
        const int out = builder.value(width);
        builder.node(op, inputs, out, weights, bank, states, with);
        return out;
    }

    int embed(int64_t width) { return node("embed", {}, width, {weight(vocab_, width)}); }
    int linear(int x, int64_t in, int64_t out) { return node("linear", {x}, out, {weight(out, in)}); }

    Builder builder;

private:
    struct Shape {
        int64_t rows, cols, at;
    };
    Random random_;
    int64_t vocab_;
    std::vector<float> pool_ = std::vector<float>(20000);
    std::vector<Shape> shapes_;
    std::optional<TemporaryFile> file_;
};

}  // namespace colibri::test
