// Takes a plan node by node from a source that is not trusted, and checks every index, width, shape and attribute.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/inspect.h"
#include "graph/plan.h"

namespace colibri {

// What a runtime is built for.
struct Limits {
    int64_t max_rows;
    int64_t slots;
    int64_t context;
};

struct GridPlace {
    std::string dtype;
    int64_t file = -1, offset = 0, rows = 0, cols = 0;  // file -1: there is none
};

struct Grids {
    GridPlace scales, zeros;
    int64_t block_rows = 1, block_cols = 1, first = 0, every = 1;
    double factor = 1;
    int64_t zero = 0;
};

// Every method throws BadInput, one line naming the node or tensor and the reason. Indices count the calls.
class Builder {
public:
    explicit Builder(int64_t vocab);
    Builder(const Builder&) = delete;
    Builder& operator=(const Builder&) = delete;

    int file(const std::string& path);
    // `pitch`: bytes from row to row, 0 where they lie one behind the other.
    int weight(const std::string& name, const std::string& dtype, int64_t rows, int64_t cols, int64_t file, int64_t offset,
               int64_t pitch = 0);
    // Scales of the weight `index`, a grid in a file of its own: see Matrix.
    void scales(int64_t index, const Grids&);
    // Rows first..first+count of the weight `index`, stored in a type whose rows lie interleaved; adds to `loss`.
    std::vector<uint8_t> pack(int64_t index, const std::string& dtype, int64_t first, int64_t count, int64_t threads, Loss& loss) const;
    int value(int64_t width);
    int bank(int64_t width, int64_t inner, std::span<const int64_t> gate, std::span<const int64_t> up,
             std::span<const int64_t> down);
    int state(bool recurrent, std::span<const int64_t> planes, int64_t window, int64_t every);
    void node(const std::string& op, std::span<const int64_t> inputs, int64_t out, std::span<const int64_t> weights,
              int64_t bank, std::span<const int64_t> states, const Attributes& attributes);

    // The finished plan; the builder is spent. `hidden` is a value to be read beside the logits, -1 for none.
    Plan finish(int64_t logits, int64_t hidden = -1);

private:
    void alive() const;
    int result(const char* what, int64_t value) const;
    const uint8_t* bytes(const std::string& what, int64_t file, int64_t offset, uint64_t size, size_t alignment);

    Plan plan_;
    std::vector<int> maker_;  // node that makes each value, or -1
    bool spent_ = false;
};

// Throws BadInput where a limit is not positive or absurdly large.
void check_limits(const Limits&);

}  // namespace colibri
