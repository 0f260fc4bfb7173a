#include "graph/inspect.h"

#include <cmath>

namespace colibri {

const Weight& Inspection::matrix(size_t i, int64_t rows, int64_t cols) const {
    const Weight& weight = this->weight(i);
    if (weight.rows != rows || weight.cols() != cols)
        refuse("weight '", weight.name, "' is [", weight.rows, ", ", weight.cols(), "], it must be [", rows, ", ", cols, "]");
    return weight;
}

void Inspection::vector(size_t i, int64_t length, int64_t rows) {
    Weight& weight = plan_.weights[static_cast<size_t>(node_.weights[i])];
    matrix(i, rows, length < 0 ? weight.cols() : length);
    if (!weight.vector.empty()) return;
    weight.vector.resize(static_cast<size_t>(rows * weight.cols()));
    for (int64_t row = 0; row < rows; row++)
        kernels(Isa::Scalar).dequantize(weight.matrix, row, weight.vector.data() + row * weight.cols());
}

void Inspection::rows(size_t i, const std::vector<int64_t>& planes, int64_t window, int64_t every) {
    State& state = this->state(i);
    const std::string name = text("state ", node_.states[i]);
    if (state.used) refuse(name, " is already used by another operation");
    if (state.recurrent || state.every != every || state.planes != planes)
        refuse(name, " does not keep the rows that are needed");
    if (state.window != 0 && (window == 0 || state.window < window))
        refuse(name, " keeps ", state.window, " rows, ", window, " are needed");
    state.used = true;
}

const State& Inspection::filled(size_t i, int64_t width) const {
    const State& state = this->state(i);
    const std::string name = text("state ", node_.states[i]);
    if (!state.used) refuse(name, " is filled by no operation before");
    if (state.recurrent || state.window != 0 || state.planes != std::vector<int64_t>{width})
        refuse(name, " does not hold the rows that are needed");
    return state;
}

void Inspection::reads(const Codes& codes) {
    Codes& known = plan_.codes;
    if (known.each != 0 && (known.each != codes.each || known.limit != codes.limit))
        refuse("reads ", codes.each, " codes below ", codes.limit, ", another operation ", known.each, " below ", known.limit);
    known = codes;
}

void Inspection::takes(int64_t given) {
    int64_t& known = plan_.given;
    if (known != 0 && known != given) refuse("takes ", given, " numbers a row, another operation ", known);
    known = given;
}

int64_t Inspection::integer(const char* name, int64_t low, int64_t high, int64_t fallback) {
    used_.insert(name);
    const auto at = attributes_.ints.find(name);
    const bool absent = at == attributes_.ints.end();
    if (absent && attributes_.floats.contains(name)) refuse(name, " must be an integer");
    if (absent && fallback == kRequired) refuse(name, " is missing");
    const int64_t value = absent ? fallback : at->second;
    if (value < low || value > high) refuse(name, " is ", value, ", it must be ", low, " to ", high);
    return value;
}

float Inspection::number(const char* name, double fallback) {
    used_.insert(name);
    double value = fallback;
    if (auto real = attributes_.floats.find(name); real != attributes_.floats.end()) value = real->second;
    else if (auto whole = attributes_.ints.find(name); whole != attributes_.ints.end()) value = static_cast<double>(whole->second);
    else if (std::isnan(fallback)) refuse(name, " is missing");
    if (!std::isfinite(static_cast<float>(value))) refuse(name, " is ", value, ", it must be a finite float");
    return static_cast<float>(value);
}

float Inspection::positive(const char* name) {
    const float value = number(name);
    if (!(value > 0)) refuse(name, " is ", value, ", it must be above 0");
    return value;
}

int Inspection::word(const char* name, std::initializer_list<const char*> known, const char* fallback) {
    used_.insert(name);
    const auto at = attributes_.words.find(name);
    const std::string value = at == attributes_.words.end() ? fallback : at->second;
    int index = 0;
    for (const char* word : known) {
        if (value == word) return index;
        index++;
    }
    refuse(name, " '", value, "' is unknown");
}

std::vector<int64_t> Inspection::integers(const char* name) {
    used_.insert(name);
    const auto at = attributes_.int_lists.find(name);
    if (at == attributes_.int_lists.end()) refuse(name, " is missing");
    return at->second;
}

Turning Inspection::turning(int64_t head_dim) {
    Turning turning{{}, number("factor", 1), integer("offset", 0, kAny, 0), flag("interleaved")};
    used_.insert("inv_freq");
    if (const auto at = attributes_.float_lists.find("inv_freq"); at != attributes_.float_lists.end())
        for (double f : at->second) {
            if (!std::isfinite(static_cast<float>(f))) refuse("inv_freq holds ", f);
            turning.inv_freq.push_back(static_cast<float>(f));
        }
    const int64_t turned = 2 * static_cast<int64_t>(turning.inv_freq.size());
    if (turned == 0 || turning.offset + turned > head_dim)
        refuse("inv_freq turns ", turned, " values from ", turning.offset, " on of heads of ", head_dim);
    return turning;
}

void Inspection::nothing_else() const {
    const auto known = [&](const auto& attributes) {
        for (const auto& [name, value] : attributes)
            if (!used_.contains(name)) refuse("unknown attribute '", name, "'");
    };
    known(attributes_.ints);
    known(attributes_.floats);
    known(attributes_.words);
    known(attributes_.int_lists);
    known(attributes_.float_lists);
}

}  // namespace colibri
