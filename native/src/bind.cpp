// The Python module colibri._native. Its types and docstrings are in core/src/colibri/_native.pyi.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <stdexcept>

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

Ints step(Model& model, Ints tokens, Ints slots, Ints positions, Ints wanted, const std::vector<const Sampler*>& samplers,
          const std::vector<uint64_t>& steps) {
    if (samplers.size() != steps.size()) colibri::refuse(samplers.size(), " samplers with ", steps.size(), " steps");
    std::vector<colibri::Draw> draws;
    for (size_t i = 0; i < samplers.size(); i++) draws.push_back({samplers[i], steps[i]});
    Model::Use use(model);
    nb::gil_scoped_release free;
    return use->step({std::move(tokens), std::move(slots), std::move(positions), std::move(wanted)}, draws);
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
    if (count > 0) colibri::kernels(colibri::Isa::Scalar).dequantize(type, aligned.data(), count, values.data());
    return nb::bytes(values.data(), values.size() * sizeof(float));
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
        .def("step", &step, "tokens"_a, "slots"_a, "positions"_a, "wanted"_a, "samplers"_a, "steps"_a)
        .def("logits",
             [](Model& self, int64_t index) {
                 const auto logits = Model::Use(self)->logits(index);
                 return nb::bytes(logits.data(), logits.size_bytes());
             },
             "index"_a)
        .def("copy",
             [](Model& self, int64_t source, int64_t target, int64_t length) { Model::Use(self)->copy(source, target, length); },
             "source"_a, "target"_a, "length"_a)
        .def("resident_bytes", [](Model& self) { return self.facts().resident_bytes(); })
        .def_prop_ro("max_rows", [](Model& self) { return self.facts().max_rows(); })
        .def_prop_ro("threads", [](Model& self) { return self.facts().threads(); })
        .def_prop_ro("isa", [](Model& self) { return self.facts().isa(); });

    nb::class_<Builder>(m, "Builder")
        .def(nb::init<int64_t>(), "vocab"_a)
        .def("file", &Builder::file, "path"_a)
        .def("weight", &Builder::weight, "name"_a, "dtype"_a, "rows"_a, "cols"_a, "file"_a, "offset"_a)
        .def("value", &Builder::value, "width"_a)
        .def("bank",
             [](Builder& self, int64_t width, int64_t inner, const Ints& gate, const Ints& up, const Ints& down) {
                 return self.bank(width, inner, gate, up, down);
             },
             "width"_a, "inner"_a, "gate"_a, "up"_a, "down"_a)
        .def("kv", &Builder::kv, "k_width"_a, "v_width"_a)
        .def("node",
             [](Builder& self, const std::string& op, const Ints& inputs, int64_t out, const Ints& weights, int64_t bank,
                int64_t state, std::map<std::string, int64_t> ints, std::map<std::string, double> floats,
                std::vector<double> inv_freq) {
                 self.node(op, inputs, out, weights, bank, state, {std::move(ints), std::move(floats), std::move(inv_freq)});
             },
             "op"_a, "inputs"_a, "out"_a, "weights"_a, "bank"_a, "state"_a, "ints"_a, "floats"_a, "inv_freq"_a)
        .def("build",
             [](Builder& self, int64_t logits, int64_t max_rows, int64_t slots, int64_t context, int64_t threads,
                const std::string& isa) {
                 nb::gil_scoped_release free;
                 return std::make_unique<Model>(self.finish(logits), colibri::Limits{max_rows, slots, context}, threads, isa);
             },
             "logits"_a, "max_rows"_a, "slots"_a, "context"_a, "threads"_a, "isa"_a);
}
