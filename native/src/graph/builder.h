// Takes a plan node by node from a source that is not trusted, and checks every index, width, shape and attribute.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/plan.h"

namespace colibri {

struct Attributes {
    std::map<std::string, int64_t> ints;
    std::map<std::string, double> floats;
    std::vector<double> inv_freq;
};

// What a runtime is built for.
struct Limits {
    int64_t max_rows;
    int64_t slots;
    int64_t context;
};

// Every method throws BadInput, one line naming the node or tensor and the reason. Indices count the calls.
class Builder {
public:
    explicit Builder(int64_t vocab);
    Builder(const Builder&) = delete;
    Builder& operator=(const Builder&) = delete;

    int file(const std::string& path);
    int weight(const std::string& name, const std::string& dtype, int64_t rows, int64_t cols, int64_t file, int64_t offset);
    int value(int64_t width);
    int bank(int64_t width, int64_t inner, std::span<const int64_t> gate, std::span<const int64_t> up,
             std::span<const int64_t> down);
    int kv(int64_t k_width, int64_t v_width);
    void node(const std::string& op, std::span<const int64_t> inputs, int64_t out, std::span<const int64_t> weights,
              int64_t bank, int64_t state, const Attributes& attributes);

    // The finished plan; the builder is spent.
    Plan finish(int64_t logits);

private:
    void alive() const;

    Plan plan_;
    std::vector<int> maker_;  // node that makes each value, or -1
    bool spent_ = false;
};

// Throws BadInput where a limit is not positive or absurdly large.
void check_limits(const Limits&);

}  // namespace colibri
