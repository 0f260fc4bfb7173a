// The Python module colibri._native. Its types and docstrings are in core/src/colibri/_native.pyi.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <tuple>

#include "error.h"
#include "runtime.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using colibri::Builder;
using colibri::Sampler;
using Ints = std::vector<int64_t>;

// Other Python threads run while a step does: a second call must fail, not share the arena.
class Model {
public:
    Model(colibri::Plan plan, const colibri::Limits& limits, int64_t threads, const std::string& isa)
        : runtime_(std::move(plan), limits, threads, isa) {}

    class Use {
    public:
        explicit Use(Model& model) : model_(model) {
            if (model_.busy_.exchange(true)) throw std::runtime_error("the runtime is busy: another thread is in a step");
        }
        ~Use() { model_.busy_.store(false); }
        Use(const Use&) = delete;
        Use& operator=(const Use&) = delete;
        colibri::Runtime* operator->() { return &model_.runtime_; }

    private:
        Model& model_;
    };

    const colibri::Runtime& facts() const { return runtime_; }

private:
    colibri::Runtime runtime_;
    std::atomic<bool> busy_{false};
};

// Codes as they come: two bytes each, the lower one first.
std::vector<uint16_t> codes_of(const nb::bytes& data) {
    if (data.size() % 2 != 0) colibri::refuse(data.size(), " bytes are no whole number of codes");
    const auto* bytes = static_cast<const uint8_t*>(data.data());
    std::vector<uint16_t> codes(data.size() / 2);
    for (size_t i = 0; i < codes.size(); i++) codes[i] = static_cast<uint16_t>(bytes[2 * i] | bytes[2 * i + 1] << 8);
    return codes;
}

// Numbers as they come: float32 in this machine's order, at any address.
std::vector<float> floats_of(const nb::bytes& data) {
    if (data.size() % sizeof(float) != 0) colibri::refuse(data.size(), " bytes are no whole number of floats");
    std::vector<float> floats(data.size() / sizeof(float));
    if (!floats.empty()) std::memcpy(floats.data(), data.data(), data.size());
    return floats;
}

nb::bytes bytes_of(std::span<const float> floats) { return nb::bytes(floats.data(), floats.size_bytes()); }

Ints step(Model& model, Ints tokens, Ints slots, Ints positions, Ints wanted, const std::vector<const Sampler*>& samplers,
          const std::vector<uint64_t>& steps, const std::map<int64_t, nb::bytes>& codes, const nb::bytes& given) {
    if (samplers.size() != steps.size()) colibri::refuse(samplers.size(), " samplers with ", steps.size(), " steps");
    std::vector<colibri::Draw> draws;
    for (size_t i = 0; i < samplers.size(); i++) draws.push_back({samplers[i], steps[i]});
    colibri::Batch batch{std::move(tokens), std::move(slots), std::move(positions), std::move(wanted), {}, {}, floats_of(given)};
    for (const auto& [row, data] : codes) batch.codes.emplace(row, codes_of(data));
    Model::Use use(model);
    nb::gil_scoped_release free;
    return use->step(std::move(batch), draws);
}

std::vector<std::string> isas() {
    std::vector<std::string> names;
    for (colibri::Isa isa : colibri::available_isas()) names.emplace_back(colibri::isa_name(isa));
    return names;
}

std::string build_info() {
    std::string names;
    for (const std::string& name : isas()) names += (names.empty() ? "" : ", ") + name;
    return colibri::text("colibri ", COLIBRI_VERSION, ", ", COLIBRI_COMPILER, ", ", COLIBRI_BUILD_TYPE, ", code paths ", names);
}

nb::bytes dequantize(const std::string& dtype, nb::bytes data, int64_t count) {
    colibri::DType type;
    if (!colibri::parse_dtype(dtype, type)) colibri::refuse("unknown storage type '", dtype, "'");
    const colibri::TypeInfo& info = colibri::type_info(type);
    if (count < 0 || count > (int64_t{1} << 32) || count % info.block != 0)
        colibri::refuse(count, " values are no whole number of ", dtype, " blocks of ", info.block);
    if (data.size() != colibri::row_bytes(type, count))
        colibri::refuse(count, " values of ", dtype, " take ", colibri::row_bytes(type, count), " bytes, not ", data.size());
    // A copy: bytes objects start at any address.
    std::vector<uint8_t> aligned(static_cast<const uint8_t*>(data.data()), static_cast<const uint8_t*>(data.data()) + data.size());
    std::vector<float> values(static_cast<size_t>(count));
    if (count > 0) colibri::kernels(colibri::Isa::Scalar).dequantize(colibri::dense(type, count, aligned.data()), 0, values.data());
    return nb::bytes(values.data(), values.size() * sizeof(float));
}

// dtype, file, offset, rows, cols; or None
using Place = std::optional<std::tuple<std::string, int64_t, int64_t, int64_t, int64_t>>;

colibri::GridPlace grid_of(const Place& place) {
    if (!place) return {};
    const auto& [dtype, file, offset, rows, cols] = *place;
    return {dtype, file, offset, rows, cols};
}

void add_scales(Builder& builder, int64_t weight, const Place& scales, const Place& zeros, std::pair<int64_t, int64_t> block,
                int64_t first, int64_t every, double factor, int64_t zero) {
    builder.scales(weight, {grid_of(scales), grid_of(zeros), block.first, block.second, first, every, factor, zero});
}

using Logits = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

int64_t pick(const Sampler& sampler, const Logits& logits, uint64_t step) {
    const int64_t token = sampler.pick({logits.data(), logits.size()}, step);
    if (token == Sampler::kNothing) colibri::refuse("no logit can be picked: all are NaN or -inf");
    return token;
}

}  // namespace

NB_MODULE(_native, m) {
    m.attr("__version__") = COLIBRI_VERSION;
    m.def("isas", &isas);
    m.def("build_info", &build_info);
    m.def("dequantize", &dequantize, "dtype"_a, "data"_a, "count"_a);

    nb::class_<Sampler>(m, "Sampler")
        .def("__init__",
             [](Sampler* self, double temperature, double top_p, int64_t top_k, double min_p, uint64_t seed) {
                 new (self) Sampler({temperature, top_p, top_k, min_p, seed});
             },
             "temperature"_a, "top_p"_a, "top_k"_a, "min_p"_a, "seed"_a)
        .def("pick", &pick, "logits"_a, "step"_a);

    nb::class_<Model>(m, "Runtime")
        .def("step", &step, "tokens"_a, "slots"_a, "positions"_a, "wanted"_a, "samplers"_a, "steps"_a, "codes"_a,
             "given"_a = nb::bytes("", 0))
        .def("logits",
             [](Model& self, int64_t index) { return bytes_of(Model::Use(self)->logits(index)); }, "index"_a)
        .def("hidden", [](Model& self, int64_t row) { return bytes_of(Model::Use(self)->hidden(row)); }, "row"_a)
        .def("copy",
             [](Model& self, int64_t source, int64_t target, int64_t length) {
                 return Model::Use(self)->copy(source, target, length);
             },
             "source"_a, "target"_a, "length"_a)
        .def("reach", [](Model& self, int64_t slot, int64_t length) { return Model::Use(self)->reach(slot, length); },
             "slot"_a, "length"_a)
        .def("rewind", [](Model& self, int64_t slot, int64_t length) { return Model::Use(self)->rewind(slot, length); },
             "slot"_a, "length"_a)
        .def("remember", [](Model& self, int64_t slot) { Model::Use(self)->remember(slot); }, "slot"_a)
        .def("hold", [](Model& self, int64_t slot) { Model::Use(self)->hold(slot); }, "slot"_a)
        .def("resident_bytes", [](Model& self) { return self.facts().resident_bytes(); })
        .def_prop_ro("max_rows", [](Model& self) { return self.facts().max_rows(); })
        .def_prop_ro("threads", [](Model& self) { return self.facts().threads(); })
        .def_prop_ro("isa", [](Model& self) { return self.facts().isa(); });

    nb::class_<Builder>(m, "Builder")
        .def(nb::init<int64_t>(), "vocab"_a)
        .def("file", &Builder::file, "path"_a)
        .def("weight", &Builder::weight, "name"_a, "dtype"_a, "rows"_a, "cols"_a, "file"_a, "offset"_a,
             "pitch"_a = 0)
        .def("scales", &add_scales, "weight"_a, "scales"_a, "zeros"_a, "block"_a, "first"_a, "every"_a, "factor"_a, "zero"_a)
        .def("value", &Builder::value, "width"_a)
        .def("bank",
             [](Builder& self, int64_t width, int64_t inner, const Ints& gate, const Ints& up, const Ints& down) {
                 return self.bank(width, inner, gate, up, down);
             },
             "width"_a, "inner"_a, "gate"_a, "up"_a, "down"_a)
        .def("state",
             [](Builder& self, bool recurrent, const Ints& planes, int64_t window, int64_t every) {
                 return self.state(recurrent, planes, window, every);
             },
             "recurrent"_a, "planes"_a, "window"_a, "every"_a)
        .def("node",
             [](Builder& self, const std::string& op, const Ints& inputs, int64_t out, const Ints& weights, int64_t bank,
                const Ints& states, std::map<std::string, int64_t> ints, std::map<std::string, double> floats,
                std::map<std::string, std::string> words, std::map<std::string, Ints> int_lists,
                std::map<std::string, std::vector<double>> float_lists) {
                 self.node(op, inputs, out, weights, bank, states,
                           {std::move(ints), std::move(floats), std::move(words), std::move(int_lists), std::move(float_lists)});
             },
             "op"_a, "inputs"_a, "out"_a, "weights"_a, "bank"_a, "states"_a, "ints"_a, "floats"_a, "words"_a, "int_lists"_a,
             "float_lists"_a)
        .def("build",
             [](Builder& self, int64_t logits, int64_t max_rows, int64_t slots, int64_t context, int64_t threads,
                const std::string& isa, int64_t hidden) {
                 nb::gil_scoped_release free;
                 return std::make_unique<Model>(self.finish(logits, hidden), colibri::Limits{max_rows, slots, context}, threads, isa);
             },
             "logits"_a, "max_rows"_a, "slots"_a, "context"_a, "threads"_a, "isa"_a,
             "hidden"_a = -1);
}
