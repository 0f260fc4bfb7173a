#include "graph/check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "error.h"

namespace colibri {

namespace {

struct Signature {
    const char* name;
    Op op;
    size_t inputs;
    size_t min_weights, max_weights;
    bool bank, state;
};

constexpr Signature kSignatures[] = {
    {"embed", Op::Embed, 0, 1, 1, false, false},     {"rms_norm", Op::RmsNorm, 1, 1, 1, false, false},
    {"linear", Op::Linear, 1, 1, 2, false, false},   {"add", Op::Add, 2, 0, 0, false, false},
    {"mul", Op::Mul, 2, 0, 0, false, false},         {"scale", Op::Scale, 1, 0, 0, false, false},
    {"clamp", Op::Clamp, 1, 0, 0, false, false},     {"swiglu", Op::Swiglu, 2, 0, 0, false, false},
    {"rope", Op::Rope, 1, 0, 0, false, false},       {"attention", Op::Attention, 3, 0, 0, false, true},
    {"route", Op::Route, 1, 0, 0, false, false},     {"experts", Op::Experts, 2, 0, 0, true, false},
};

// One node under inspection: knows how to name itself in an error.
class Inspection {
public:
    Inspection(const Plan& plan, const std::string& op, const Attributes& attributes)
        : plan_(plan), where_(text("node ", plan.nodes.size(), " (", op, "): ")), attributes_(attributes) {}

    template <class... Parts>
    [[noreturn]] void refuse(const Parts&... parts) const {
        colibri::refuse(where_, parts...);
    }

    void same(const char* what, int64_t got, int64_t need) const {
        if (got != need) refuse(what, " is ", got, ", it must be ", need);
    }

    int64_t width(int value) const { return plan_.widths[static_cast<size_t>(value)]; }
    const Weight& weight(int index) const { return plan_.weights[static_cast<size_t>(index)]; }

    void shape(const Weight& weight, int64_t rows, int64_t cols) const {
        if (weight.rows != rows || weight.cols != cols)
            refuse("weight '", weight.name, "' is [", weight.rows, ", ", weight.cols, "], it must be [", rows, ", ", cols, "]");
    }

    int64_t integer(const char* name, int64_t low, int64_t high, int64_t fallback = kRequired) {
        used_.insert(name);
        auto at = attributes_.ints.find(name);
        if (at == attributes_.ints.end() && attributes_.floats.contains(name)) refuse(name, " must be an integer");
        if (at == attributes_.ints.end() && fallback == kRequired) refuse(name, " is missing");
        int64_t value = at == attributes_.ints.end() ? fallback : at->second;
        if (value < low || value > high) refuse(name, " is ", value, ", it must be ", low, " to ", high);
        return value;
    }

    // Finite as a float. `fallback` NaN: required.
    float number(const char* name, double fallback = std::numeric_limits<double>::quiet_NaN()) {
        used_.insert(name);
        double value = fallback;
        if (auto real = attributes_.floats.find(name); real != attributes_.floats.end()) value = real->second;
        else if (auto whole = attributes_.ints.find(name); whole != attributes_.ints.end()) value = static_cast<double>(whole->second);
        else if (std::isnan(fallback)) refuse(name, " is missing");
        if (!std::isfinite(static_cast<float>(value))) refuse(name, " is ", value, ", it must be a finite float");
        return static_cast<float>(value);
    }

    std::vector<float> inv_freq() {
        used_.insert("inv_freq");
        std::vector<float> out;
        for (double f : attributes_.inv_freq) {
            if (!std::isfinite(static_cast<float>(f))) refuse("inv_freq holds ", f);
            out.push_back(static_cast<float>(f));
        }
        return out;
    }

    void nothing_else() const {
        for (auto& [name, value] : attributes_.ints)
            if (!used_.contains(name)) refuse("unknown attribute '", name, "'");
        for (auto& [name, value] : attributes_.floats)
            if (!used_.contains(name)) refuse("unknown attribute '", name, "'");
        if (!attributes_.inv_freq.empty() && !used_.contains("inv_freq")) refuse("unknown attribute 'inv_freq'");
    }

    static constexpr int64_t kRequired = std::numeric_limits<int64_t>::min();

private:
    const Plan& plan_;
    std::string where_;
    const Attributes& attributes_;
    std::set<std::string> used_;
};

constexpr int64_t kAny = std::numeric_limits<int32_t>::max();

void check_rms_norm(Inspection& at, Node& node) {
    const int64_t width = at.width(node.inputs[0]);
    node.eps = at.number("eps");
    if (node.eps < 0) at.refuse("eps is ", node.eps, ", it must not be negative");
    node.group = at.integer("group", 0, kAny, 0);
    if (node.group > 0 && width % node.group != 0) at.refuse("width ", width, " is no multiple of group ", node.group);
    at.shape(at.weight(node.weights[0]), 1, node.group > 0 ? node.group : width);
    at.same("width of the result", at.width(node.out), width);
}

void check_linear(Inspection& at, Node& node) {
    at.shape(at.weight(node.weights[0]), at.width(node.out), at.width(node.inputs[0]));
    if (node.weights.size() > 1) at.shape(at.weight(node.weights[1]), 1, at.width(node.out));
}

void check_elementwise(Inspection& at, Node& node) {
    for (int input : node.inputs) at.same("width of an input", at.width(input), at.width(node.out));
    if (node.op == Op::Scale) node.factor = at.number("factor");
    if (node.op == Op::Clamp) {
        node.low = at.number("low");
        node.high = at.number("high");
        if (node.low > node.high) at.refuse("low ", node.low, " is above high ", node.high);
    }
}

void check_rope(Inspection& at, Node& node) {
    const int64_t width = at.width(node.inputs[0]);
    at.same("width of the result", at.width(node.out), width);
    node.heads = at.integer("heads", 1, kAny);
    node.head_dim = at.integer("head_dim", 1, kAny);
    node.offset = at.integer("offset", 0, kAny, 0);
    node.interleaved = at.integer("interleaved", 0, 1, 0) != 0;
    node.factor = at.number("factor", 1);
    node.inv_freq = at.inv_freq();
    at.same("heads * head_dim", node.heads * node.head_dim, width);
    const int64_t turned = 2 * static_cast<int64_t>(node.inv_freq.size());
    if (node.inv_freq.empty() || node.offset + turned > node.head_dim)
        at.refuse("inv_freq turns ", turned, " values from ", node.offset, " on of heads of ", node.head_dim);
}

void check_attention(Inspection& at, Node& node, const Plan& plan) {
    const State& state = plan.states[static_cast<size_t>(node.state)];
    if (state.kv_heads != 0) at.refuse("state ", node.state, " is already used by another attention");
    node.heads = at.integer("heads", 1, kAny);
    node.kv_heads = at.integer("kv_heads", 1, kAny);
    node.window = at.integer("window", 0, kAny, 0);
    node.scale = at.number("scale");
    if (node.heads % node.kv_heads != 0) at.refuse("heads ", node.heads, " is no multiple of kv_heads ", node.kv_heads);
    at.same("width of k", at.width(node.inputs[1]), state.k_width);
    at.same("width of v", at.width(node.inputs[2]), state.v_width);
    if (state.k_width % node.kv_heads != 0 || state.v_width % node.kv_heads != 0)
        at.refuse("k and v of widths ", state.k_width, " and ", state.v_width, " do not split into ", node.kv_heads, " heads");
    at.same("width of q", at.width(node.inputs[0]), node.heads * (state.k_width / node.kv_heads));
    at.same("width of the result", at.width(node.out), node.heads * (state.v_width / node.kv_heads));
}

void check_route(Inspection& at, Node& node) {
    const int64_t experts = at.width(node.inputs[0]);
    // Indices travel as floats, which hold integers up to 2^24 exactly.
    node.top_k = at.integer("top_k", 1, std::min<int64_t>(experts, 1024));
    at.integer("score", 0, 0, 0);
    node.normalise = at.integer("normalise", 0, 1, 0) != 0;
    node.factor = at.number("factor", 1);
    at.same("width of the result", at.width(node.out), 2 * node.top_k);
}

void check_experts(Inspection& at, Node& node, const Plan& plan, std::span<const int> maker) {
    const Bank& bank = plan.banks[static_cast<size_t>(node.bank)];
    at.same("width of x", at.width(node.inputs[0]), bank.width);
    at.same("width of the result", at.width(node.out), bank.width);
    // Indices of experts are only ever taken from a route, which can not leave their range.
    const Node& route = plan.nodes[static_cast<size_t>(maker[static_cast<size_t>(node.inputs[1])])];
    if (route.op != Op::Route) at.refuse("value ", node.inputs[1], " is not made by route");
    at.same("number of routed experts", at.width(route.inputs[0]), bank.experts());
    node.top_k = route.top_k;
}

int index(const Inspection& at, const char* what, int64_t value, size_t count) {
    if (value < 0 || value >= static_cast<int64_t>(count)) at.refuse("no ", what, " ", value);
    return static_cast<int>(value);
}

}  // namespace

Node check_node(const Plan& plan, std::span<const int> maker, const std::string& op, std::span<const int64_t> inputs,
                int64_t out, std::span<const int64_t> weights, int64_t bank, int64_t state, const Attributes& attributes) {
    Inspection at(plan, op, attributes);
    const auto* signature = std::find_if(std::begin(kSignatures), std::end(kSignatures), [&](auto& s) { return op == s.name; });
    if (signature == std::end(kSignatures)) at.refuse("unknown operation");

    Node node{.op = signature->op, .inputs = {}, .weights = {}, .inv_freq = {}};
    if (inputs.size() != signature->inputs) at.refuse("takes ", signature->inputs, " inputs, not ", inputs.size());
    for (int64_t input : inputs) {
        node.inputs.push_back(index(at, "value", input, maker.size()));
        if (maker[static_cast<size_t>(input)] < 0) at.refuse("value ", input, " is not made by any node before");
    }
    node.out = index(at, "value", out, maker.size());
    if (maker[static_cast<size_t>(out)] >= 0) at.refuse("value ", out, " is already made by node ", maker[static_cast<size_t>(out)]);
    if (weights.size() < signature->min_weights || weights.size() > signature->max_weights)
        at.refuse("takes ", signature->min_weights, " to ", signature->max_weights, " weights, not ", weights.size());
    for (int64_t weight : weights) node.weights.push_back(index(at, "weight", weight, plan.weights.size()));
    if (signature->bank) node.bank = index(at, "bank", bank, plan.banks.size());
    else if (bank != -1) at.refuse("takes no bank");
    if (signature->state) node.state = index(at, "state", state, plan.states.size());
    else if (state != -1) at.refuse("takes no state");

    switch (node.op) {
        case Op::Embed: at.shape(at.weight(node.weights[0]), plan.vocab, at.width(node.out)); break;
        case Op::RmsNorm: check_rms_norm(at, node); break;
        case Op::Linear: check_linear(at, node); break;
        case Op::Add:
        case Op::Mul:
        case Op::Scale:
        case Op::Clamp:
        case Op::Swiglu: check_elementwise(at, node); break;
        case Op::Rope: check_rope(at, node); break;
        case Op::Attention: check_attention(at, node, plan); break;
        case Op::Route: check_route(at, node); break;
        case Op::Experts: check_experts(at, node, plan, maker); break;
    }
    at.nothing_else();
    return node;
}

Bank check_bank(const Plan& plan, int64_t width, int64_t inner, std::span<const int64_t> gate, std::span<const int64_t> up,
                std::span<const int64_t> down) {
    const std::string where = text("bank ", plan.banks.size(), ": ");
    if (gate.empty() || gate.size() != up.size() || gate.size() != down.size())
        refuse(where, "needs as many gate, up and down weights, not ", gate.size(), ", ", up.size(), " and ", down.size());
    Bank bank{width, inner, {}, {}, {}};
    const auto take = [&](std::span<const int64_t> from, int64_t rows, int64_t cols, std::vector<int>& into) {
        for (int64_t index : from) {
            if (index < 0 || index >= static_cast<int64_t>(plan.weights.size())) refuse(where, "no weight ", index);
            const Weight& weight = plan.weights[static_cast<size_t>(index)];
            if (weight.rows != rows || weight.cols != cols)
                refuse(where, "weight '", weight.name, "' is [", weight.rows, ", ", weight.cols, "], it must be [", rows, ", ", cols, "]");
            into.push_back(static_cast<int>(index));
        }
    };
    take(gate, inner, width, bank.gate);
    take(up, inner, width, bank.up);
    take(down, width, inner, bank.down);
    // One quantised form of x serves every expert, and one of the hidden values every down matrix.
    const auto act = [&](int index) { return type_info(plan.weights[static_cast<size_t>(index)].type).act; };
    for (size_t e = 0; e < bank.gate.size(); e++) {
        if (act(bank.gate[e]) != act(bank.gate[0]) || act(bank.up[e]) != act(bank.gate[0]))
            refuse(where, "the storage types of gate and up of expert ", e, " do not go with those of expert 0");
        if (act(bank.down[e]) != act(bank.down[0]))
            refuse(where, "the storage type of down of expert ", e, " does not go with that of expert 0");
    }
    return bank;
}

}  // namespace colibri
