// What Builder refuses: files, tensors and nodes that lie about a size, an offset, an index, a shape or an attribute.
#include <sys/stat.h>

#include <cmath>
#include <limits>

#include "check.h"
#include "runtime.h"

using namespace colibri;
using namespace colibri::test;

namespace {

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

void files() {
    Builder builder(8);
    refused("No such file", [&] { builder.file("/nonexistent/model.gguf"); });
    refused("not a regular file", [&] { builder.file("/tmp"); });
    refused("not a regular file", [&] { builder.file("/dev/zero"); });
    refused("NUL", [&] { builder.file(std::string("/tmp/a\0b", 8)); });
    const std::string fifo = "/tmp/colibri_test_fifo_" + std::to_string(getpid());
    check(mkfifo(fifo.c_str(), 0600) == 0, "mkfifo");
    refused("not a regular file", [&] { builder.file(fifo); });  // without waiting for a writer
    unlink(fifo.c_str());
    refused("vocab", [] { Builder bad(0); });
    refused("vocab", [] { Builder bad(kHuge); });
}

void weights() {
    TemporaryFile file(std::string(1000, '\1')), empty("");
    Builder builder(8);
    builder.file(file.path());
    builder.file(empty.path());
    const auto weight = [&](const char* type, int64_t rows, int64_t cols, int64_t at, int64_t from = 0) {
        return builder.weight("t", type, rows, cols, from, at);
    };
    check(weight("f32", 10, 25, 0) == 0, "a tensor that fills its file");
    check(weight("f32", 1, 1, 996) == 1, "a tensor at the end of its file");
    refused("weight 't' takes 1000 bytes at offset 1, the file has 1000", [&] { weight("f32", 10, 25, 1); });
    refused("the file has 1000", [&] { weight("f32", 1, 1, 997); });
    refused("the file has 1000", [&] { weight("f32", 1, 1, 1001); });
    refused("the file has 1000", [&] { weight("f32", 1, 1, kHuge); });
    refused("the file has 1000", [&] { weight("f32", 1, 1, -4); });
    refused("the file has 1000", [&] { weight("f32", int64_t{1} << 31, 1 << 24, 0); });
    refused("the file has 0", [&] { weight("f32", 1, 1, 0, 1); });
    refused("out of range", [&] { weight("f32", kHuge, 1, 0); });
    refused("out of range", [&] { weight("f32", 1, kHuge, 0); });
    refused("out of range", [&] { weight("f32", 0, 4, 0); });
    refused("out of range", [&] { weight("f32", 4, -1, 0); });
    refused("blocks of 32", [&] { weight("q4_0", 1, 33, 0); });
    refused("blocks of 256", [&] { weight("q4_k", 1, 32, 0); });
    refused("unknown storage type 'q9'", [&] { weight("q9", 1, 32, 0); });
    refused("no file 2", [&] { weight("f32", 1, 1, 0, 2); });
    refused("no file -1", [&] { weight("f32", 1, 1, 0, -1); });
}

void values_and_states() {
    Builder builder(8);
    refused("width 0", [&] { builder.value(0); });
    refused("width", [&] { builder.value(kHuge); });
    const auto state = [&](std::vector<int64_t> planes, int64_t window = 0, int64_t every = 1) {
        builder.state(false, planes, window, every);
    };
    refused("0 planes", [&] { state({}); });
    refused("a width of 0", [&] { state({4, 0}); });
    refused("a width of", [&] { state({4, kHuge}); });
    refused("a window of -1", [&] { state({4}, -1); });
    refused("every 0", [&] { state({4}, 0, 0); });
    refused("every", [&] { state({4}, 0, kHuge); });
}

void nodes() {
    Draft d(8);
    Builder& b = d.builder;
    const int x = d.embed(12), wide = d.embed(16), unmade = b.value(12);
    const int square = d.weight(12, 12), vector = d.weight(1, 12), state = b.state(false, std::vector<int64_t>{4, 4, 2, 2}, 0, 1);
    const auto node = [&](const char* op, std::vector<int64_t> in, int64_t out, std::vector<int64_t> w = {}, Attributes with = {},
                          int64_t bank = -1, std::vector<int64_t> s = {}) { b.node(op, in, out, w, bank, s, with); };
    const auto fresh = [&](int64_t width) { return b.value(width); };

    refused("(telepathy): unknown operation", [&] { node("telepathy", {x}, fresh(12)); });
    refused("takes 1 inputs, not 0", [&] { node("linear", {}, fresh(12), {square}); });
    refused("no value 999", [&] { node("linear", {999}, fresh(12), {square}); });
    refused("no value -1", [&] { node("linear", {-1}, fresh(12), {square}); });
    refused("is not made by any node before", [&] { node("linear", {unmade}, fresh(12), {square}); });
    refused("no value 999", [&] { node("linear", {x}, 999, {square}); });
    refused("is already made by node", [&] { node("linear", {x}, x, {square}); });
    refused("takes 1 or more weights, not 0", [&] { node("linear", {x}, fresh(12)); });
    refused("no weight 77", [&] { node("linear", {x}, fresh(12), {77}); });
    refused("takes no bank", [&] { node("linear", {x}, fresh(12), {square}, {}, 0); });
    refused("takes 0 states, not 1", [&] { node("linear", {x}, fresh(12), {square}, {}, -1, {0}); });
    refused("it must be [13, 12]", [&] { node("linear", {x}, fresh(13), {square}); });
    refused("it must be [12, 16]", [&] { node("linear", {wide}, fresh(12), {square}); });
    refused("it must be [1, 12]", [&] { node("linear", {x}, fresh(12), {square, square}); });
    refused("has 1 rows for a vocabulary of 8", [&] { node("embed", {}, fresh(12), {vector}); });
    refused("width of the result", [&] { node("embed", {}, fresh(13), {square}); });
    refused("unknown attribute 'color'", [&] { node("linear", {x}, fresh(12), {square}, {{{"color", 1}}, {}, {}}); });
    refused("unknown attribute 'inv_freq'", [&] { node("linear", {x}, fresh(12), {square}, {{}, {}, {}, {}, {{"inv_freq", {1.0}}}}); });

    refused("eps is missing", [&] { node("rms_norm", {x}, fresh(12), {vector}); });
    refused("eps", [&] { node("rms_norm", {x}, fresh(12), {vector}, {{}, {{"eps", -1.0}}, {}}); });
    refused("eps", [&] { node("rms_norm", {x}, fresh(12), {vector}, {{}, {{"eps", std::nan("")}}, {}}); });
    refused("eps", [&] { node("rms_norm", {x}, fresh(12), {vector}, {{}, {{"eps", 1e300}}, {}}); });
    refused("no multiple of group 5", [&] { node("rms_norm", {x}, fresh(12), {vector}, {{{"group", 5}}, {{"eps", 0}}, {}}); });
    refused("group", [&] { node("rms_norm", {x}, fresh(12), {vector}, {{{"group", -1}}, {{"eps", 0}}, {}}); });
    refused("group must be an integer", [&] { node("rms_norm", {x}, fresh(12), {vector}, {{}, {{"group", 4.0}, {"eps", 0}}, {}}); });
    const int odd = d.weight(1, 5);
    refused("it must be [1, 4]", [&] { node("rms_norm", {x}, fresh(12), {odd}, {{{"group", 4}}, {{"eps", 0}}, {}}); });
    refused("width of the result", [&] { node("rms_norm", {x}, fresh(13), {vector}, {{}, {{"eps", 0}}, {}}); });

    refused("width of b is 16, which does not divide 12", [&] { node("add", {x, wide}, fresh(12)); });
    refused("width of gate is 12", [&] { node("glu", {x, x}, fresh(13)); });
    refused("factor is missing", [&] { node("scale", {x}, fresh(12)); });
    refused("low 2 is above high 1", [&] { node("clamp", {x}, fresh(12), {}, {{}, {{"low", 2}, {"high", 1}}, {}}); });

    const auto rope = [&](int64_t heads, int64_t dim, int64_t offset, std::vector<double> inv_freq) {
        node("rope", {x}, fresh(12), {}, {{{"heads", heads}, {"head_dim", dim}, {"offset", offset}}, {}, {}, {}, {{"inv_freq", inv_freq}}});
    };
    refused("heads * head_dim is 15", [&] { rope(3, 5, 0, {1}); });
    refused("turns 4 values from 1 on of heads of 4", [&] { rope(3, 4, 1, {1, 1}); });
    refused("turns 0 values", [&] { rope(3, 4, 0, {}); });
    refused("offset", [&] { rope(3, 4, -1, {1}); });
    refused("heads is", [&] { rope(kHuge, 4, 0, {1}); });
    refused("inv_freq holds 1e+60", [&] { rope(3, 4, 0, {1e60}); });

    const int q = d.linear(x, 12, 16), k = d.linear(x, 12, 8), v = d.linear(x, 12, 4);
    const auto attention = [&](std::vector<int64_t> in, int64_t out, int64_t heads, int64_t kv_heads, int64_t s) {
        node("attention", in, fresh(out), {}, {{{"heads", heads}, {"kv_heads", kv_heads}}, {{"scale", 1}}, {}}, -1, std::vector<int64_t>{s});
    };
    refused("no state 5", [&] { attention({q, k, v}, 8, 4, 2, 5); });
    refused("kv_heads is 2, which does not divide 3", [&] { attention({q, k, v}, 8, 3, 2, state); });
    refused("kv_heads", [&] { attention({q, k, v}, 8, 4, 0, state); });
    refused("kv_heads is 3, which does not divide 8", [&] { attention({q, k, v}, 8, 3, 3, state); });
    refused("width of q is 16", [&] { attention({q, k, v}, 8, 2, 2, state); });
    refused("width of q is 16", [&] { attention({q, v, k}, 8, 4, 2, state); });
    refused("width of v is 8", [&] { attention({q, k, k}, 8, 4, 2, state); });
    refused("heads is 4, which does not divide 9", [&] { attention({q, k, v}, 9, 4, 2, state); });
    attention({q, k, v}, 8, 4, 2, state);
    refused("already used by another operation", [&] { attention({q, k, v}, 8, 4, 2, state); });

    const int scores = d.linear(x, 12, 3);
    const auto route = [&](int64_t top_k, int64_t width) {
        const int out = b.value(width);
        node("route", {scores}, out, {}, {{{"top_k", top_k}}, {}, {}});
        return out;
    };
    refused("top_k is 4", [&] { route(4, 8); });
    refused("top_k is 0", [&] { route(0, 8); });
    refused("width of the result is 5", [&] { route(2, 5); });
    refused("score 'charm' is unknown", [&] { node("route", {scores}, fresh(4), {}, {{{"top_k", 2}}, {}, {{"score", "charm"}}}); });
    const int routes = route(2, 4);
    const int64_t gate = d.weight(6, 12), down = d.weight(12, 6);
    refused("needs as many", [&] { b.bank(12, 6, std::vector<int64_t>{}, std::vector<int64_t>{}, std::vector<int64_t>{}); });
    refused("needs as many", [&] { b.bank(12, 6, std::vector{gate}, std::vector{gate, gate}, std::vector{down}); });
    refused("it must be [6, 12]", [&] { b.bank(12, 6, std::vector{down}, std::vector{gate}, std::vector{down}); });
    refused("no weight 1000", [&] { b.bank(12, 6, std::vector{gate}, std::vector<int64_t>{1000}, std::vector{down}); });
    const int two = b.bank(12, 6, std::vector{gate, gate}, std::vector{gate, gate}, std::vector{down, down});
    const int three = b.bank(12, 6, std::vector{gate, gate, gate}, std::vector{gate, gate, gate}, std::vector{down, down, down});
    refused("number of routed experts is 3, it must be 2", [&] { node("experts", {x, routes}, fresh(12), {}, {}, two); });
    refused("is not made by route", [&] { node("experts", {x, v}, fresh(12), {}, {}, three); });
    refused("width of x is 16", [&] { node("experts", {wide, routes}, fresh(12), {}, {}, three); });
    refused("no bank 9", [&] { node("experts", {x, routes}, fresh(12), {}, {}, 9); });

    refused("no node makes value", [&] { b.finish(unmade); });
    refused("no node makes value 1234", [&] { b.finish(1234); });
    refused("the vocabulary 8", [&] { b.finish(x); });
    const int logits = d.linear(x, 12, 8);
    b.finish(logits);
    refused("spent", [&] { b.finish(logits); });
    refused("spent", [&] { b.value(1); });
}

void banks_of_mixed_types() {
    TemporaryFile file(std::string(1 << 16, '\0'));
    Builder b(8);
    b.file(file.path());
    const int64_t floats = b.weight("a", "f32", 32, 32, 0, 0), blocks = b.weight("b", "q8_0", 32, 32, 0, 0);
    refused("gate and up of expert 0", [&] { b.bank(32, 32, std::vector{floats}, std::vector{blocks}, std::vector{floats}); });
    refused("down of expert 1", [&] {
        b.bank(32, 32, std::vector{floats, floats}, std::vector{floats, floats}, std::vector{floats, blocks});
    });
    check(b.bank(32, 32, std::vector{floats}, std::vector{floats}, std::vector{blocks}) == 0, "down may differ from gate and up");
}

void limits() {
    const auto build = [](Limits limits, int64_t threads, const char* isa) {
        Draft d(8);
        const int logits = d.linear(d.embed(4), 4, 8);
        Runtime runtime(d.builder.finish(logits), limits, threads, isa);
    };
    refused("max_rows is 0", [&] { build({0, 1, 8}, 1, ""); });
    refused("max_rows is", [&] { build({kHuge, 1, 8}, 1, ""); });
    refused("slots is 0", [&] { build({1, 0, 8}, 1, ""); });
    refused("context is -1", [&] { build({1, 1, -1}, 1, ""); });
    refused("threads is -1", [&] { build({1, 1, 8}, -1, ""); });
    refused("isa is 'sse9', this CPU has scalar", [&] { build({1, 1, 8}, 1, "sse9"); });
    build({1, 1, 8}, 0, "");

    Draft d(8);
    const int x = d.embed(4), wide = d.linear(x, 4, 1 << 11);
    const int state = d.builder.state(false, std::vector<int64_t>{1 << 11, 1 << 11}, 0, 1);
    const int a = d.node("attention", {wide, wide, wide}, 1 << 11, {}, {{{"heads", 1}, {"kv_heads", 1}}, {{"scale", 1}}, {}}, -1, {state});
    const int logits = d.linear(a, 1 << 11, 8);
    try {
        Runtime runtime(d.builder.finish(logits), {1, 4096, 1 << 28}, 1, "");
        check(false, "an exabyte of slots was granted");
    } catch (const NoRoom& error) {
        check(std::string(error.what()).find("lower ctx or kv_slots") != std::string::npos, error.what());
    }
}

}  // namespace

int main() {
    files();
    weights();
    values_and_states();
    nodes();
    banks_of_mixed_types();
    limits();
    return report("builder_test");
}
