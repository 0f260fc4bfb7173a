#include "graph/builder.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "error.h"
#include "ops/op.h"
#include "pool.h"

namespace colibri {

namespace {

// Far beyond any model, small enough that products of two cannot overflow.
constexpr int64_t kMaxWidth = int64_t{1} << 24;
constexpr int64_t kMaxRows = int64_t{1} << 31;
constexpr size_t kMaxCount = size_t{1} << 22;
constexpr size_t kMaxPlanes = size_t{1} << 16;

void room(size_t count, const char* what) {
    if (count >= kMaxCount) refuse("more than ", kMaxCount, " ", what);
}

// Bytes between the scalars a type is read by: whole floats, or the 16-bit numbers at the head or tail of blocks.
size_t alignment(DType type) {
    const int bytes = type_info(type).bytes;
    return type == DType::F32 ? 4 : bytes % 2 == 0 ? 2 : 1;
}

DType dtype_of(const std::string& what, const std::string& name) {
    DType type;
    if (!parse_dtype(name, type)) refuse(what, ": unknown storage type '", name, "'");
    return type;
}

// An index below `count`, or -1 where `absent` allows it.
int index(const Inspection& at, const char* what, int64_t value, size_t count, bool absent = false) {
    if (absent && value == -1) return -1;
    if (value < 0 || value >= static_cast<int64_t>(count)) at.refuse("no ", what, " ", value);
    return static_cast<int>(value);
}

bool may_be_absent(const Arity& arity, size_t i) { return i < 32 && (arity.optional >> i & 1) != 0; }

void count(const Inspection& at, const char* what, size_t given, const Arity& arity) {
    if (given < arity.least || given > arity.most)
        at.refuse("takes ", arity.least, arity.least == arity.most ? "" : " or more", " ", what, ", not ", given);
}

}  // namespace

void check_limits(const Limits& limits) {
    if (limits.max_rows < 1 || limits.max_rows > 65536) refuse("max_rows is ", limits.max_rows, ", not 1 to 65536");
    if (limits.slots < 1 || limits.slots > 4096) refuse("slots is ", limits.slots, ", not 1 to 4096");
    if (limits.context < 1 || limits.context > (1 << 28)) refuse("context is ", limits.context, ", not 1 to ", 1 << 28);
}

Builder::Builder(int64_t vocab) {
    if (vocab < 1 || vocab > kMaxWidth) refuse("vocab is ", vocab, ", not 1 to ", kMaxWidth);
    plan_.vocab = vocab;
}

void Builder::alive() const {
    if (spent_) refuse("this builder is spent: build was called");
}

int Builder::file(const std::string& path) {
    alive();
    room(plan_.files.size(), "files");
    plan_.files.emplace_back(path);
    return static_cast<int>(plan_.files.size()) - 1;
}

const uint8_t* Builder::bytes(const std::string& what, int64_t file, int64_t offset, uint64_t size, size_t alignment) {
    if (file < 0 || file >= static_cast<int64_t>(plan_.files.size())) refuse(what, ": no file ", file);
    const MappedFile& from = plan_.files[static_cast<size_t>(file)];
    if (offset < 0 || static_cast<uint64_t>(offset) > from.size() || from.size() - static_cast<uint64_t>(offset) < size)
        refuse(from.path(), ": ", what, " takes ", size, " bytes at offset ", offset, ", the file has ", from.size());
    const uint8_t* data = from.data() + offset;
    if (reinterpret_cast<uintptr_t>(data) % alignment == 0) {
        from.will_need(static_cast<uint64_t>(offset), size);
        return data;
    }
    auto copy = std::make_unique<uint8_t[]>(size);
    std::memcpy(copy.get(), data, size);
    plan_.copies.push_back(std::move(copy));
    return plan_.copies.back().get();
}

int Builder::weight(const std::string& name, const std::string& dtype, int64_t rows, int64_t cols, int64_t file,
                    int64_t offset, int64_t pitch) {
    alive();
    room(plan_.weights.size(), "weights");
    const std::string what = text("weight '", name, "'");
    const DType type = dtype_of(what, dtype);
    if (rows < 1 || rows > kMaxRows || cols < 1 || cols > kMaxWidth)
        refuse(what, ": shape [", rows, ", ", cols, "] is out of range");
    const TypeInfo& info = type_info(type);
    if (cols % info.block != 0) refuse(what, ": ", cols, " columns are no whole number of ", dtype, " blocks of ", info.block);
    const auto row = static_cast<int64_t>(row_bytes(type, cols));
    if (pitch == 0) pitch = row;
    if (pitch < row || pitch > (int64_t{1} << 31) || pitch % static_cast<int64_t>(alignment(type)) != 0)
        refuse(what, ": rows of ", row, " bytes do not lie ", pitch, " bytes apart");
    if (info.together > 1 && pitch != row) refuse(what, ": rows that lie interleaved have nothing between them");
    const auto last = static_cast<uint64_t>(stored_rows(type, rows) - 1);
    const uint64_t size = last * static_cast<uint64_t>(pitch) + static_cast<uint64_t>(row);  // < 2^63
    Matrix matrix{type, cols, bytes(what, file, offset, size, alignment(type)), pitch, {}, {}};
    plan_.weights.push_back({name, rows, matrix, {}});
    return static_cast<int>(plan_.weights.size()) - 1;
}

void Builder::scales(int64_t index, const Grids& grids) {
    alive();
    if (index < 0 || index >= static_cast<int64_t>(plan_.weights.size())) refuse("scales: no weight ", index);
    Weight& weight = plan_.weights[static_cast<size_t>(index)];
    const std::string what = text("scales of weight '", weight.name, "'");
    Matrix& matrix = weight.matrix;
    if (grids.block_rows < 1 || grids.block_rows > kMaxRows || grids.block_cols < 1 || grids.block_cols > kMaxWidth)
        refuse(what, ": blocks of [", grids.block_rows, ", ", grids.block_cols, "] are out of range");
    if (grids.first < 0 || grids.first > kMaxRows || grids.every < 1 || grids.every > kMaxRows)
        refuse(what, ": rows from ", grids.first, " on, ", grids.every, " apart, are out of range");
    if (!std::isfinite(static_cast<float>(grids.factor))) refuse(what, ": a factor of ", grids.factor);
    if (grids.zero < 0 || grids.zero > 255) refuse(what, ": a zero of ", grids.zero);
    const int64_t rows = (grids.first + (weight.rows - 1) * grids.every) / grids.block_rows + 1;
    const int64_t cols = (matrix.cols - 1) / grids.block_cols + 1;
    const auto grid = [&](const GridPlace& place, bool known, int64_t least_rows, int64_t least_cols) {
        const DType type = dtype_of(what, place.dtype);
        if (!known) refuse(what, ": are stored as ", place.dtype, " for values of type ", type_info(matrix.type).name);
        if (place.rows < least_rows || place.cols < least_cols || place.rows > kMaxRows || place.cols > kMaxWidth)
            refuse(what, ": are [", place.rows, ", ", place.cols, "], [", least_rows, ", ", least_cols, "] are needed");
        const auto pitch = static_cast<int64_t>(row_bytes(type, place.cols));
        const uint64_t size = static_cast<uint64_t>(place.rows) * static_cast<uint64_t>(pitch);
        return Grid{bytes(what, place.file, place.offset, size, alignment(type)), type, pitch};
    };
    if (grids.scales.file >= 0) {
        const bool known = type_info(matrix.type).act == ActType::F32 && is_scale(dtype_of(what, grids.scales.dtype));
        matrix.scales = grid(grids.scales, known, rows, cols);
    }
    if (grids.zeros.file >= 0) {
        const int64_t together = zeros_together(matrix.type);
        const bool known = together > 0 && dtype_of(what, grids.zeros.dtype) == matrix.type;
        matrix.zeros = grid(grids.zeros, known, together ? (rows - 1) / together + 1 : 0, cols * together);
    }
    matrix.block_rows = grids.block_rows;
    matrix.block_cols = grids.block_cols;
    matrix.first = grids.first;
    matrix.every = grids.every;
    matrix.factor = static_cast<float>(grids.factor);
    matrix.zero = static_cast<int>(grids.zero);
}

std::vector<uint8_t> Builder::pack(int64_t index, const std::string& dtype, int64_t first, int64_t count, int64_t threads,
                                   Loss& loss) const {
    alive();
    if (index < 0 || index >= static_cast<int64_t>(plan_.weights.size())) refuse("pack: no weight ", index);
    const Weight& weight = plan_.weights[static_cast<size_t>(index)];
    const std::string what = text("weight '", weight.name, "'");
    const DType type = dtype_of(what, dtype);
    const TypeInfo& info = type_info(type);
    const int64_t cols = weight.cols();
    if (info.together < 2) refuse(what, ": ", dtype, " is no type of interleaved rows");
    if (cols % info.block != 0) refuse(what, ": ", cols, " columns are no whole number of ", dtype, " blocks of ", info.block);
    if (first < 0 || count < 1 || first > weight.rows || count > weight.rows - first)
        refuse(what, ": no ", count, " rows from ", first, " on, it has ", weight.rows);
    if (threads < 1 || threads > 1024) refuse("pack: ", threads, " threads");

    const int64_t blocks = stored_rows(type, count) / info.together;
    const auto block_bytes = static_cast<int64_t>(row_bytes(type, cols)) * info.together;
    std::vector<uint8_t> out(static_cast<size_t>(blocks * block_bytes));
    std::vector<Loss> losses(static_cast<size_t>(blocks));
    std::vector<std::vector<float>> values(static_cast<size_t>(threads), std::vector<float>(static_cast<size_t>(info.together * cols)));
    const Kernels& kernels = colibri::kernels(available_isas().back());  // all give the same bits
    Pool pool(static_cast<int>(threads));
    pool.run(blocks, [&](int64_t b, int thread) {
        float* x = values[static_cast<size_t>(thread)].data();
        const int64_t begin = b * info.together, rows = std::min<int64_t>(info.together, count - begin);
        for (int64_t r = 0; r < rows; r++) kernels.dequantize(weight.matrix, first + begin + r, x + r * cols);
        kernels.pack(type, x, rows, cols, out.data() + b * block_bytes, losses[static_cast<size_t>(b)]);
    });
    for (const Loss& part : losses) {  // in one order, so that it is the same number with any threads
        loss.error += part.error;
        loss.size += part.size;
    }
    return out;
}

int Builder::value(int64_t width) {
    alive();
    room(plan_.widths.size(), "values");
    if (width < 1 || width > kMaxWidth) refuse("value ", plan_.widths.size(), ": width ", width, " is not 1 to ", kMaxWidth);
    plan_.widths.push_back(width);
    maker_.push_back(-1);
    return static_cast<int>(plan_.widths.size()) - 1;
}

int Builder::bank(int64_t width, int64_t inner, std::span<const int64_t> gate, std::span<const int64_t> up,
                  std::span<const int64_t> down) {
    alive();
    room(plan_.banks.size(), "banks");
    const std::string where = text("bank ", plan_.banks.size(), ": ");
    if (gate.empty() || gate.size() != up.size() || gate.size() != down.size())
        refuse(where, "needs as many gate, up and down weights, not ", gate.size(), ", ", up.size(), " and ", down.size());
    Bank bank{width, inner, {}, {}, {}};
    const auto take = [&](std::span<const int64_t> from, int64_t rows, int64_t cols, std::vector<int>& into) {
        for (int64_t index : from) {
            if (index < 0 || index >= static_cast<int64_t>(plan_.weights.size())) refuse(where, "no weight ", index);
            const Weight& weight = plan_.weights[static_cast<size_t>(index)];
            if (weight.rows != rows || weight.cols() != cols)
                refuse(where, "weight '", weight.name, "' is [", weight.rows, ", ", weight.cols(), "], it must be [", rows, ", ",
                       cols, "]");
            into.push_back(static_cast<int>(index));
        }
    };
    take(gate, inner, width, bank.gate);
    take(up, inner, width, bank.up);
    take(down, width, inner, bank.down);
    // One quantised form of x serves every expert, and one of the hidden values every down matrix.
    const auto act = [&](int index) { return type_info(plan_.weight(index).matrix.type).act; };
    for (size_t e = 0; e < bank.gate.size(); e++) {
        if (act(bank.gate[e]) != act(bank.gate[0]) || act(bank.up[e]) != act(bank.gate[0]))
            refuse(where, "the storage types of gate and up of expert ", e, " do not go with those of expert 0");
        if (act(bank.down[e]) != act(bank.down[0]))
            refuse(where, "the storage type of down of expert ", e, " does not go with that of expert 0");
    }
    plan_.banks.push_back(std::move(bank));
    return static_cast<int>(plan_.banks.size()) - 1;
}

int Builder::state(bool recurrent, std::span<const int64_t> planes, int64_t window, int64_t every) {
    alive();
    room(plan_.states.size(), "states");
    const std::string where = text("state ", plan_.states.size(), ": ");
    if (planes.empty() || planes.size() > kMaxPlanes) refuse(where, planes.size(), " planes are not 1 to ", kMaxPlanes);
    State state{recurrent, {planes.begin(), planes.end()}, window, every};
    for (int64_t plane : planes)
        if (plane < 1 || plane > kMaxWidth) refuse(where, "a width of ", plane, " is not 1 to ", kMaxWidth);
    if (window < 0 || window > (1 << 28) || every < 1 || every > (1 << 20)) refuse(where, "a window of ", window, " every ", every);
    plan_.states.push_back(std::move(state));
    return static_cast<int>(plan_.states.size()) - 1;
}

void Builder::node(const std::string& op, std::span<const int64_t> inputs, int64_t out, std::span<const int64_t> weights,
                   int64_t bank, std::span<const int64_t> states, const Attributes& attributes) {
    alive();
    room(plan_.nodes.size(), "nodes");
    Node node{find_op(op), {}, -1, {}, -1, {}, nullptr};
    Inspection at(plan_, maker_, node, op, attributes);
    if (!node.op) at.refuse("unknown operation");
    const Op& rules = *node.op;

    count(at, "inputs", inputs.size(), rules.inputs);
    for (size_t i = 0; i < inputs.size(); i++) {
        node.inputs.push_back(index(at, "value", inputs[i], maker_.size(), may_be_absent(rules.inputs, i)));
        if (node.has(i) && maker_[static_cast<size_t>(inputs[i])] < 0) at.refuse("value ", inputs[i], " is not made by any node before");
    }
    count(at, "weights", weights.size(), rules.weights);
    for (size_t i = 0; i < weights.size(); i++)
        node.weights.push_back(index(at, "weight", weights[i], plan_.weights.size(), may_be_absent(rules.weights, i)));
    count(at, "states", states.size(), rules.states);
    for (int64_t state : states) node.states.push_back(index(at, "state", state, plan_.states.size()));
    if (rules.form == Op::Form::Experts) node.bank = index(at, "bank", bank, plan_.banks.size());
    else if (bank != -1) at.refuse("takes no bank");
    if (rules.makes_value) {
        node.out = index(at, "value", out, maker_.size());
        if (maker_[static_cast<size_t>(out)] >= 0)
            at.refuse("value ", out, " is already made by node ", maker_[static_cast<size_t>(out)]);
    } else if (out != -1) {
        at.refuse("makes no value");
    }

    node.params = rules.check(at);
    at.nothing_else();
    if (node.out >= 0) maker_[static_cast<size_t>(node.out)] = static_cast<int>(plan_.nodes.size());
    plan_.nodes.push_back(std::move(node));
}

int Builder::result(const char* what, int64_t value) const {
    if (value < 0 || value >= static_cast<int64_t>(maker_.size()) || maker_[static_cast<size_t>(value)] < 0)
        refuse(what, ": no node makes value ", value);
    return static_cast<int>(value);
}

Plan Builder::finish(int64_t logits, int64_t hidden) {
    alive();
    plan_.logits = result("logits", logits);
    const int64_t width = plan_.width(plan_.logits);
    if (width != plan_.vocab) refuse("logits: value ", logits, " has width ", width, ", the vocabulary ", plan_.vocab);
    if (hidden != -1) plan_.hidden = result("hidden", hidden);
    spent_ = true;
    return std::move(plan_);
}

}  // namespace colibri
