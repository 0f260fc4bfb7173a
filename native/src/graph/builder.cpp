#include "graph/builder.h"

#include <cstring>

#include "error.h"
#include "graph/check.h"

namespace colibri {

namespace {

// Far beyond any model, small enough that products of two cannot overflow.
constexpr int64_t kMaxWidth = int64_t{1} << 24;
constexpr int64_t kMaxRows = int64_t{1} << 31;
constexpr size_t kMaxCount = size_t{1} << 22;

void room(size_t count, const char* what) {
    if (count >= kMaxCount) refuse("more than ", kMaxCount, " ", what);
}

// Bytes between the scalars a type is read by: whole floats, or the 16-bit numbers at the head or tail of blocks.
size_t alignment(DType type) { return type == DType::F32 ? 4 : 2; }

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

int Builder::weight(const std::string& name, const std::string& dtype, int64_t rows, int64_t cols, int64_t file,
                    int64_t offset) {
    alive();
    room(plan_.weights.size(), "weights");
    DType type;
    if (!parse_dtype(dtype, type)) refuse("weight '", name, "': unknown storage type '", dtype, "'");
    if (rows < 1 || rows > kMaxRows || cols < 1 || cols > kMaxWidth)
        refuse("weight '", name, "': shape [", rows, ", ", cols, "] is out of range");
    const TypeInfo& info = type_info(type);
    if (cols % info.block != 0)
        refuse("weight '", name, "': ", cols, " columns are no whole number of ", dtype, " blocks of ", info.block);
    if (file < 0 || file >= static_cast<int64_t>(plan_.files.size())) refuse("weight '", name, "': no file ", file);
    const MappedFile& from = plan_.files[static_cast<size_t>(file)];
    const uint64_t bytes = static_cast<uint64_t>(rows) * row_bytes(type, cols);  // < 2^31 * 2^26
    if (offset < 0 || static_cast<uint64_t>(offset) > from.size() || from.size() - static_cast<uint64_t>(offset) < bytes)
        refuse(from.path(), ": weight '", name, "' takes ", bytes, " bytes at offset ", offset, ", the file has ", from.size());

    const uint8_t* data = from.data() + offset;
    if (reinterpret_cast<uintptr_t>(data) % alignment(type) != 0) {
        auto copy = std::make_unique<uint8_t[]>(bytes);
        std::memcpy(copy.get(), data, bytes);
        data = copy.get();
        plan_.copies.push_back(std::move(copy));
    } else {
        from.will_need(static_cast<uint64_t>(offset), bytes);
    }
    plan_.weights.push_back({name, type, rows, cols, data, {}});
    return static_cast<int>(plan_.weights.size()) - 1;
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
    plan_.banks.push_back(check_bank(plan_, width, inner, gate, up, down));
    return static_cast<int>(plan_.banks.size()) - 1;
}

int Builder::kv(int64_t k_width, int64_t v_width) {
    alive();
    room(plan_.states.size(), "states");
    if (k_width < 1 || k_width > kMaxWidth || v_width < 1 || v_width > kMaxWidth)
        refuse("state ", plan_.states.size(), ": widths ", k_width, " and ", v_width, " are not 1 to ", kMaxWidth);
    plan_.states.push_back({k_width, v_width});
    return static_cast<int>(plan_.states.size()) - 1;
}

void Builder::node(const std::string& op, std::span<const int64_t> inputs, int64_t out, std::span<const int64_t> weights,
                   int64_t bank, int64_t state, const Attributes& attributes) {
    alive();
    room(plan_.nodes.size(), "nodes");
    Node node = check_node(plan_, maker_, op, inputs, out, weights, bank, state, attributes);
    maker_[static_cast<size_t>(node.out)] = static_cast<int>(plan_.nodes.size());
    if (node.state >= 0) plan_.states[static_cast<size_t>(node.state)].kv_heads = node.kv_heads;
    plan_.nodes.push_back(std::move(node));
}

Plan Builder::finish(int64_t logits) {
    alive();
    if (logits < 0 || logits >= static_cast<int64_t>(maker_.size()) || maker_[static_cast<size_t>(logits)] < 0)
        refuse("logits: no node makes value ", logits);
    const int64_t width = plan_.widths[static_cast<size_t>(logits)];
    if (width != plan_.vocab) refuse("logits: value ", logits, " has width ", width, ", the vocabulary ", plan_.vocab);
    plan_.logits = static_cast<int>(logits);

    // Norm weights and biases are few and read whole on every row: keep them as floats.
    for (const Node& node : plan_.nodes)
        for (size_t i = 0; i < node.weights.size(); i++)
            if (node.op == Op::RmsNorm || (node.op == Op::Linear && i == 1)) {
                Weight& weight = plan_.weights[static_cast<size_t>(node.weights[i])];
                weight.vector.resize(static_cast<size_t>(weight.cols));
                kernels(Isa::Scalar).dequantize(weight.type, weight.data, weight.cols, weight.vector.data());
            }
    spent_ = true;
    return std::move(plan_);
}

}  // namespace colibri
