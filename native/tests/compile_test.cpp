// The compiler: what is computed for which rows, what is shared, and that no two live values share memory.
#include "graph/compile.h"

#include <algorithm>
#include <map>

#include "check.h"
#include "ops/op.h"

using namespace colibri;
using namespace colibri::test;

namespace {

constexpr Limits kLimits{16, 2, 64};

std::vector<const Instruction*> all(const Program& program, Do what, std::string_view op = "") {
    std::vector<const Instruction*> found;
    for (const Instruction& now : program.instructions)
        if (now.what == what && (op.empty() || op == now.node->op->name)) found.push_back(&now);
    return found;
}

int attend(Draft& d, int x, int64_t width) {
    const int q = d.linear(x, width, width), k = d.linear(x, width, width), v = d.linear(x, width, width);
    const int64_t half = width / 2;
    const int state = d.builder.state(false, std::vector<int64_t>{half, half, half, half}, 0, 1);
    const int a = d.node("attention", {q, k, v}, width, {}, {{{"heads", 2}, {"kv_heads", 2}}, {{"scale", 1}}, {}}, -1, {state});
    return d.node("add", {x, d.linear(a, width, width)}, width);
}

// Two layers: all of the first feeds the second's keys; of the second only keys and values feed later rows.
void rows_wanted() {
    Draft d(8);
    const int x = attend(d, d.embed(6), 6);
    const int logits = d.linear(attend(d, x, 6), 6, 8);
    const Plan plan = d.builder.finish(logits);
    const Program program = compile(plan, kLimits);

    const auto attention = all(program, Do::Run, "attention");
    check(attention.size() == 2 && attention[0]->rows == Rows::All && attention[1]->rows == Rows::Wanted, "attentions");
    const auto add = all(program, Do::Run, "add");
    check(add.size() == 2 && add[0]->rows == Rows::All && add[1]->rows == Rows::Wanted, "residuals");
    check(all(program, Do::Gather).size() == 1, "one value crosses the border, once");
    const auto linear = all(program, Do::Linear);
    check(linear.size() == 6, "q k v of layer 1, its o, q of layer 2, its k v, its o, the head: " + std::to_string(linear.size()));
    check(linear[0]->products.size() == 3 && linear[0]->rows == Rows::All, "q, k and v run as one");
    check(linear[2]->products.size() == 1 && linear[2]->rows == Rows::Wanted, "q for wanted rows");
    check(linear[3]->products.size() == 2 && linear[3]->rows == Rows::All, "k and v for all rows");
}

void dead_nodes_go() {
    Draft d(8);
    const int x = d.embed(6);
    attend(d, x, 6);  // nothing reads it
    const Plan plan = d.builder.finish(d.linear(x, 6, 8));
    check(compile(plan, kLimits).instructions.size() == 2, "only what leads to the logits is kept");
}

// One quantised form of a value serves all linears that need it, and linears that need another form still join.
void activations_are_shared() {
    TemporaryFile file(std::string(1 << 20, '\0'));
    Builder b(256);
    b.file(file.path());
    const auto weight = [&](const char* type) { return int64_t{b.weight(type, type, 256, 256, 0, 0)}; };
    const auto node = [&](const char* op, std::vector<int64_t> in, std::vector<int64_t> w) {
        const int out = b.value(256);
        b.node(op, in, out, w, -1, {}, {});
        return out;
    };
    const int x = node("embed", {}, {weight("f32")});
    const int p = node("linear", {x}, {weight("q8_0")});
    const int r = node("linear", {x}, {weight("q4_0")});
    const int s = node("linear", {x}, {weight("q4_k")});
    const int t = node("linear", {x}, {weight("f16")});
    const int y = node("add", {node("add", {node("add", {p, r}, {}), s}, {}), t}, {});
    const Plan plan = b.finish(y);
    const Program program = compile(plan, kLimits);
    const auto quantize = all(program, Do::Quantize);
    check(quantize.size() == 2 && quantize[0]->act != quantize[1]->act, "one form each for blocks of 32 and of 256");
    const auto linear = all(program, Do::Linear);
    check(linear.size() == 1 && linear[0]->products.size() == 4, "four linears run as one");
    check(linear[0]->products[0].activations == linear[0]->products[1].activations, "q8_0 and q4_0 share activations");
    check(linear[0]->products[3].activations == linear[0]->in[0], "floats are read where they are");
    for (const Instruction* q : quantize) check(q < linear[0], "forms are made before they are read");
}

// Runs the program on tags instead of numbers: every buffer must still hold what its maker left when it is read.
void memory_is_not_shared(const Program& program) {
    std::map<uint64_t, int> owner;  // 64-byte line of the arena -> buffer
    const auto lines = [&](int buffer, auto visit) {
        const Buffer& b = program.buffers[static_cast<size_t>(buffer)];
        const uint64_t bytes = b.stride * static_cast<uint64_t>(kLimits.max_rows);
        check(b.offset % 64 == 0 && b.stride % 64 == 0, "alignment");
        check(b.offset + bytes <= program.arena, "a buffer beyond the arena");
        for (uint64_t at = b.offset; at < b.offset + bytes; at += 64) visit(at);
    };
    const auto read = [&](int buffer) {
        bool whole = true;
        lines(buffer, [&](uint64_t at) { whole &= owner.contains(at) && owner[at] == buffer; });
        check(whole, "a value was overwritten before it was read");
    };
    const auto write = [&](int buffer) { lines(buffer, [&](uint64_t at) { owner[at] = buffer; }); };
    for (const Instruction& now : program.instructions) {
        for (int in : now.in) read(in);
        for (const Product& product : now.products) read(product.activations);
        if (now.out >= 0) write(now.out);
        for (const Product& product : now.products) write(product.out);
        // Only ops that work in place may write where they read.
        if (now.what != Do::Run || !now.node->op->in_place) {
            for (int in : now.in) read(in);
            for (const Product& product : now.products) read(product.activations);
        }
        if (now.out >= 0) read(now.out);
        for (const Product& product : now.products) read(product.out);
    }
    read(program.logits);
}

void random_plans() {
    for (uint64_t seed = 0; seed < 60; seed++) {
        Random random{seed};
        Draft d(8, seed);
        std::vector<std::pair<int, int64_t>> values{{d.embed(6), 6}};
        for (int i = 0; i < 25; i++) {
            auto [x, width] = values[static_cast<size_t>(random.below(static_cast<int64_t>(values.size())))];
            switch (random.below(5)) {
                case 0: {
                    const int64_t out = 1 + random.below(40);
                    values.emplace_back(d.linear(x, width, out), out);
                    break;
                }
                case 1: values.emplace_back(d.node("scale", {x}, width, {}, {{}, {{"factor", 2}}, {}}), width); break;
                case 2: values.emplace_back(d.node("add", {x, x}, width), width); break;
                case 3: values.emplace_back(d.node("glu", {x, d.linear(x, width, width)}, width), width); break;
                default: {
                    const int64_t even = 2 * (1 + random.below(8));
                    values.emplace_back(attend(d, d.linear(x, width, even), even), even);
                }
            }
        }
        int y = d.linear(values[0].first, 6, 8);
        for (auto [x, width] : values)
            if (random.below(2)) y = d.node("add", {y, d.linear(x, width, 8)}, 8);
        const Plan plan = d.builder.finish(y);
        memory_is_not_shared(compile(plan, kLimits));
    }
}

void memory_is_reused() {
    Draft d(8);
    int x = d.embed(64);
    for (int i = 0; i < 50; i++) x = d.node("add", {x, d.linear(x, 64, 64)}, 64);
    const Plan plan = d.builder.finish(d.linear(x, 64, 8));
    const Program program = compile(plan, kLimits);
    check(program.arena <= 4 * 64 * 4 * 16, "fifty layers take the memory of one");
}

}  // namespace

int main() {
    rows_wanted();
    dead_nodes_go();
    activations_are_shared();
    random_plans();
    memory_is_reused();
    return report("compile_test");
}
