// A node under inspection: what an op asks about its inputs, weights and attributes, and how it refuses them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "error.h"
#include "graph/plan.h"

namespace colibri {

struct Attributes {
    std::map<std::string, int64_t> ints;
    std::map<std::string, double> floats;
    std::map<std::string, std::string> words;
    std::map<std::string, std::vector<int64_t>> int_lists;
    std::map<std::string, std::vector<double>> float_lists;
};

class Inspection {
public:
    Inspection(Plan& plan, const std::vector<int>& maker, Node& node, const std::string& op, const Attributes& attributes)
        : plan_(plan), maker_(maker), node_(node), where_(text("node ", plan.nodes.size(), " (", op, "): ")),
          attributes_(attributes) {}

    template <class... Parts>
    [[noreturn]] void refuse(const Parts&... parts) const {
        colibri::refuse(where_, parts...);
    }

    void same(const char* what, int64_t got, int64_t need) const {
        if (got != need) refuse(what, " is ", got, ", it must be ", need);
    }
    void divides(const char* what, int64_t part, int64_t whole) const {
        if (part < 1 || whole % part != 0) refuse(what, " is ", part, ", which does not divide ", whole);
    }

    size_t inputs() const { return node_.inputs.size(); }
    size_t weights() const { return node_.weights.size(); }
    size_t states() const { return node_.states.size(); }
    // Widths of an input that is there, and of the result.
    int64_t width(size_t input) const { return plan_.width(node_.inputs[input]); }
    int64_t out() const { return plan_.width(node_.out); }

    bool has(size_t input) const { return node_.has(input); }
    bool has_weight(size_t i) const { return node_.has_weight(i); }
    const Weight& weight(size_t i) const { return plan_.weight(node_, i); }
    // A weight of exactly this shape.
    const Weight& matrix(size_t i, int64_t rows, int64_t cols) const;
    // A weight of one row of this length (any: -1), whose values will be kept as floats. A matrix of several rows is taken if
    // `rows` says so.
    void vector(size_t i, int64_t length, int64_t rows = 1);

    State& state(size_t i) const { return plan_.states[static_cast<size_t>(node_.states[i])]; }
    // A state of rows that nobody else appends to: `planes` widths, kept for at least `window` positions (0: all).
    void rows(size_t i, const std::vector<int64_t>& planes, int64_t window, int64_t every = 1);
    // A state that another op fills.
    const State& filled(size_t i, int64_t width) const;
    Bank& bank() const { return plan_.banks[static_cast<size_t>(node_.bank)]; }
    // The node that makes an input.
    const Node& made_by(size_t input) const {
        return plan_.nodes[static_cast<size_t>(maker_[static_cast<size_t>(node_.inputs[input])])];
    }
    int64_t vocab() const { return plan_.vocab; }
    // Reads the codes of rows: all ops that do so read the same.
    void reads(const Codes& codes);
    // Takes the numbers that rows bring along: all ops that do so take the same.
    void takes(int64_t given);

    int64_t integer(const char* name, int64_t low, int64_t high, int64_t fallback = kRequired);
    bool flag(const char* name) { return integer(name, 0, 1, 0) != 0; }
    // Finite as a float. `fallback` NaN: required.
    float number(const char* name, double fallback = std::numeric_limits<double>::quiet_NaN());
    float positive(const char* name);
    // The index of the word among `known`; `fallback` where there is none.
    int word(const char* name, std::initializer_list<const char*> known, const char* fallback);
    std::vector<int64_t> integers(const char* name);
    // inv_freq, factor, offset, interleaved: a rotation of heads of this size.
    Turning turning(int64_t head_dim);
    bool gives(const char* name) const { return attributes_.float_lists.contains(name); }

    void nothing_else() const;

    static constexpr int64_t kRequired = std::numeric_limits<int64_t>::min();
    static constexpr int64_t kAny = std::numeric_limits<int32_t>::max();

private:
    Plan& plan_;
    const std::vector<int>& maker_;
    const Node& node_;
    std::string where_;
    const Attributes& attributes_;
    std::set<std::string> used_;
};

}  // namespace colibri
