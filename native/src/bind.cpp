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

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <tuple>

#include "error.h"
#include "runtime.h"
#include "state/rounded.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using colibri::Builder;
using colibri::Sampler;
using Ints = std::vector<int64_t>;

// Other Python threads run while a step does: a second call must fail, not share the arena.
class Model {
public:
    Model(colibri::Plan plan, const colibri::Limits& limits, int64_t threads, const std::string& isa,
          const colibri::Residence& residence)
        : runtime_(std::move(plan), limits, threads, isa, residence) {}

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

template <class Contents>
void check_range(const Contents& contents, int64_t begin, int64_t count) {
    if (begin < 0 || count < 0 || begin > contents.size || count > contents.size - begin)
        colibri::refuse("numbers ", begin, " and ", count, " more, there are ", contents.size);
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
    if (info.together > 1) colibri::refuse("rows of ", dtype, " lie interleaved: there is no single one");
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

nb::bytes rounded(const std::string& dtype, nb::bytes data) {
    colibri::DType type;
    if (!colibri::parse_dtype(dtype, type)) colibri::refuse("unknown storage type '", dtype, "'");
    std::vector<uint8_t> made;
    {
        const char* bytes = data.c_str();  // stays where it is: `data` holds it
        const size_t size = data.size();
        nb::gil_scoped_release free;
        if (size % sizeof(float) != 0) colibri::refuse(size, " bytes are no whole number of floats");
        std::vector<float> floats(size / sizeof(float));
        if (!floats.empty()) std::memcpy(floats.data(), bytes, size);
        made = colibri::rounded(type, floats);
    }
    return nb::bytes(made.data(), made.size());
}

// Copying may take a while and other threads may step: of the slot in question only what they leave alone is read.
nb::bytes read_image(const colibri::Image& image, int64_t begin, int64_t count) {
    check_range(image, begin, count);
    nb::bytes data = nb::steal<nb::bytes>(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(count * 4)));
    if (!data.is_valid()) nb::raise_python_error();
    auto* to = static_cast<char*>(const_cast<void*>(data.data()));
    nb::gil_scoped_release free;
    image.each(begin, count, [&](std::span<const float> part) {
        std::memcpy(to, part.data(), part.size_bytes());
        to += part.size_bytes();
    });
    return data;
}

// A blank, and the runtime whose slot it is to fill.
class Filling {
public:
    Filling(Model& model, int64_t slot, int64_t length, const Ints& snapshots)
        : model_(model), blank_(Model::Use(model)->blank(slot, length, snapshots)) {}

    const colibri::Blank& blank() const { return blank_; }
    void write(int64_t begin, const nb::bytes& data) {
        if (data.size() % sizeof(float) != 0) colibri::refuse(data.size(), " bytes are no whole number of floats");
        check_range(blank_, begin, static_cast<int64_t>(data.size() / sizeof(float)));
        const char* from = data.c_str();
        blank_.each(begin, static_cast<int64_t>(data.size() / sizeof(float)), [&](std::span<float> part) {
            std::memcpy(part.data(), from, part.size_bytes());
            from += part.size_bytes();
        });
    }
    void adopt() {
        if (blank_.length == 0) colibri::refuse("it was adopted before");
        Model::Use(model_)->adopt(blank_);
    }

private:
    Model& model_;
    colibri::Blank blank_;
};

// A bank that is a cache, with none of `experts` outside of it.
colibri::StreamedBank& streamed(Model& model, int64_t bank, const std::vector<int>& experts) {
    colibri::ExpertStore& store = Model::Use(model)->experts();
    if (bank < 0 || bank >= static_cast<int64_t>(store.size())) colibri::refuse("no bank ", bank);
    colibri::StreamedBank* found = store.streamed(static_cast<size_t>(bank));
    if (!found) colibri::refuse("bank ", bank, " is not streamed");
    for (int expert : experts)
        if (expert < 0 || expert >= static_cast<int>(found->uses().size())) colibri::refuse("bank ", bank, ": no expert ", expert);
    return *found;
}

// Of each bank: bytes of a slab, experts, slabs, experts in them, hits, misses, nanoseconds waited for; all 0 where it is mapped.
std::vector<std::tuple<uint64_t, int64_t, int64_t, int64_t, uint64_t, uint64_t, uint64_t>> banks(Model& model) {
    Model::Use use(model);
    colibri::ExpertStore& store = use->experts();
    std::vector<std::tuple<uint64_t, int64_t, int64_t, int64_t, uint64_t, uint64_t, uint64_t>> all(store.size());
    for (size_t i = 0; i < store.size(); i++)
        if (const colibri::StreamedBank* bank = store.streamed(i)) {
            const auto facts = bank->facts();
            all[i] = {bank->slab(), static_cast<int64_t>(bank->uses().size()), facts.slabs, facts.held, facts.hits, facts.misses, facts.waited};
        }
    return all;
}

// Of each bank a byte for each expert: bit 7 if it was chosen since the last such question, bit 6 if it is in memory, and the
// number of binary digits of how often it was chosen.
std::vector<nb::bytes> expert_map(Model& model) {
    Model::Use use(model);
    std::vector<nb::bytes> rows;
    for (size_t i = 0; i < use->experts().size(); i++) {
        colibri::ExpertBank& bank = use->experts()[static_cast<int>(i)];
        std::string row;
        for (size_t e = 0; e < bank.uses().size(); e++) {
            const int expert = static_cast<int>(e), digits = std::min(static_cast<int>(std::bit_width(bank.uses()[e])), 63);
            row += static_cast<char>((bank.fresh(expert) ? 128 : 0) | (bank.held(expert) ? 64 : 0) | digits);
        }
        rows.emplace_back(row.data(), row.size());
    }
    return rows;
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
    m.def("rounded", &rounded, "dtype"_a, "data"_a);

    nb::class_<colibri::Image>(m, "Image")
        .def("read", &read_image, "begin"_a, "count"_a)
        .def_prop_ro("length", [](const colibri::Image& self) { return self.length; })
        .def_prop_ro("exact", [](const colibri::Image& self) { return self.exact; })
        .def_prop_ro("size", [](const colibri::Image& self) { return self.size; })
        .def_prop_ro("snapshots", [](const colibri::Image& self) {
            Ints lengths;
            for (const auto& snapshot : self.snapshots) lengths.push_back(snapshot->length);
            return lengths;
        });
    nb::class_<Filling>(m, "Blank")
        .def("write", &Filling::write, "begin"_a, "data"_a)
        .def("adopt", &Filling::adopt)
        .def_prop_ro("exact", [](const Filling& self) { return self.blank().exact; })
        .def_prop_ro("size", [](const Filling& self) { return self.blank().size; });

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
        .def("image",
             [](Model& self, int64_t slot, int64_t length) {
                 nb::gil_scoped_release free;
                 return self.facts().image(slot, length);  // at any time: see Slots
             },
             "slot"_a, "length"_a, nb::keep_alive<0, 1>())
        .def("blank",
             [](Model& self, int64_t slot, int64_t length, const Ints& snapshots) {
                 return std::make_unique<Filling>(self, slot, length, snapshots);
             },
             "slot"_a, "length"_a, "snapshots"_a, nb::keep_alive<0, 1>())
        .def("populate",
             [](Model& self, int64_t file, int64_t offset, int64_t bytes) {
                 nb::gil_scoped_release free;
                 self.facts().populate(file, offset, bytes);
             },
             "file"_a, "offset"_a, "bytes"_a)
        .def("limit_experts", [](Model& self, int64_t budget) { Model::Use(self)->experts().limit(budget); }, "budget"_a)
        .def("preload",
             [](Model& self, int64_t bank, const std::vector<int>& experts) { streamed(self, bank, experts).preload(experts); },
             "bank"_a, "experts"_a)
        .def("pin",
             [](Model& self, int64_t bank, const std::vector<int>& experts) { streamed(self, bank, experts).pin(experts); },
             "bank"_a, "experts"_a)
        .def("banks", &banks)
        .def("reads",
             [](Model& self) {
                 Model::Use use(self);
                 return std::pair(use->experts().bytes_read(), use->experts().reading());
             })
        .def("times",
             [](Model& self) {
                 const colibri::Times& times = self.facts().times();
                 return std::map<std::string, uint64_t>{{"attention", times.attention}, {"experts", times.experts},
                                                        {"head", times.head},           {"other", times.other},
                                                        {"steps", times.steps}};
             })
        .def("expert_map", &expert_map)
        .def("uses", [](Model& self, int64_t bank) {
                 Model::Use use(self);
                 if (bank < 0 || bank >= static_cast<int64_t>(use->experts().size())) colibri::refuse("no bank ", bank);
                 const auto uses = use->experts()[static_cast<int>(bank)].uses();
                 return std::vector<uint64_t>(uses.begin(), uses.end());
             },
             "bank"_a)
        .def("held",
             [](Model& self, int64_t bank) {
                 const colibri::StreamedBank& from = streamed(self, bank, {});
                 std::vector<int> held;
                 for (int e = 0; e < static_cast<int>(from.uses().size()); e++)
                     if (from.held(e)) held.push_back(e);
                 return held;
             },
             "bank"_a)
        .def("resident_bytes", [](Model& self) { return self.facts().resident_bytes(); })
        .def_prop_ro("workspace", [](Model& self) { return self.facts().workspace(); })
        .def_prop_ro("least_experts", [](Model& self) { return Model::Use(self)->experts().least(); })
        .def_prop_ro("max_rows", [](Model& self) { return self.facts().max_rows(); })
        .def_prop_ro("threads", [](Model& self) { return self.facts().threads(); })
        .def_prop_ro("isa", [](Model& self) { return self.facts().isa(); });

    nb::class_<Builder>(m, "Builder")
        .def(nb::init<int64_t>(), "vocab"_a)
        .def("file", &Builder::file, "path"_a)
        .def("weight", &Builder::weight, "name"_a, "dtype"_a, "rows"_a, "cols"_a, "file"_a, "offset"_a,
             "pitch"_a = 0)
        .def("scales", &add_scales, "weight"_a, "scales"_a, "zeros"_a, "block"_a, "first"_a, "every"_a, "factor"_a, "zero"_a)
        .def("pack",
             [](const Builder& self, int64_t weight, const std::string& dtype, int64_t first, int64_t count, int64_t threads) {
                 colibri::Loss loss;
                 std::vector<uint8_t> packed;
                 {
                     nb::gil_scoped_release free;
                     packed = self.pack(weight, dtype, first, count, threads, loss);
                 }
                 return std::tuple(nb::bytes(packed.data(), packed.size()), loss.error, loss.size);
             },
             "weight"_a, "dtype"_a, "first"_a, "count"_a, "threads"_a)
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
                const std::string& isa, int64_t hidden, bool streamed, int64_t readers, std::vector<std::string> mirrors) {
                 nb::gil_scoped_release free;
                 return std::make_unique<Model>(self.finish(logits, hidden), colibri::Limits{max_rows, slots, context}, threads, isa,
                                                colibri::Residence{streamed, readers, std::move(mirrors)});
             },
             "logits"_a, "max_rows"_a, "slots"_a, "context"_a, "threads"_a, "isa"_a, "hidden"_a = -1, "streamed"_a = false,
             "readers"_a = 8, "mirrors"_a = std::vector<std::string>());
}
