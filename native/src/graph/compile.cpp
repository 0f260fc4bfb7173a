#include "graph/compile.h"

#include <algorithm>
#include <map>

#include "ops/op.h"
#include "ops/rope.h"

namespace colibri {

namespace {

constexpr size_t kAlign = 64;

constexpr size_t round_up(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

bool becomes_state(const Node& node, size_t input) { return input < 32 && (node.op->history >> input & 1) != 0; }

// The rows each node is run for, from the logits backward. What becomes state is needed for all rows: later rows look at it
// whether or not this row's logits are wanted.
std::vector<Rows> rows_needed(const Plan& plan) {
    std::vector<Rows> need(plan.widths.size(), Rows::None);
    need[static_cast<size_t>(plan.logits)] = Rows::Wanted;
    if (plan.hidden >= 0) need[static_cast<size_t>(plan.hidden)] = Rows::All;
    for (auto node = plan.nodes.rbegin(); node != plan.nodes.rend(); ++node) {
        const Rows rows = node->out < 0 ? Rows::All : need[static_cast<size_t>(node->out)];
        if (rows == Rows::None) continue;
        for (size_t i = 0; i < node->inputs.size(); i++) {
            if (!node->has(i)) continue;
            Rows& input = need[static_cast<size_t>(node->inputs[i])];
            input = std::max(input, becomes_state(*node, i) ? Rows::All : rows);
        }
    }
    return need;
}

class Compiler {
public:
    Compiler(const Plan& plan, const Limits& limits)
        : plan_(plan), limits_(limits), need_(rows_needed(plan)), buffer_(plan.widths.size(), -1) {}

    Program run() {
        for (const Node& node : plan_.nodes)
            if (node.out < 0 || need_[static_cast<size_t>(node.out)] != Rows::None) emit(node);
        program_.logits = read(plan_.logits, Rows::Wanted);
        if (plan_.hidden >= 0) program_.hidden = buffer_[static_cast<size_t>(plan_.hidden)];
        place();
        return std::move(program_);
    }

private:
    int new_buffer(int64_t width, size_t stride) {
        program_.buffers.push_back({width, round_up(stride), 0});
        return static_cast<int>(program_.buffers.size()) - 1;
    }

    int new_matrix(int64_t width) { return new_buffer(width, static_cast<size_t>(width) * sizeof(float)); }

    // The buffer that holds `value` for exactly `rows`.
    int read(int value, Rows rows) {
        const auto v = static_cast<size_t>(value);
        if (need_[v] == rows) return buffer_[v];
        auto [at, fresh] = gathered_.try_emplace(value, -1);
        if (fresh) {
            at->second = new_matrix(plan_.widths[v]);
            program_.instructions.push_back({.what = Do::Gather, .rows = Rows::Wanted, .in = {buffer_[v]}, .out = at->second});
        }
        return at->second;
    }

    int activations(int buffer, ActType act, Rows rows) {
        if (act == ActType::F32) return buffer;
        auto [at, fresh] = quantised_.try_emplace({buffer, act}, -1);
        if (fresh) {
            at->second = new_buffer(0, act_bytes(act, program_.buffers[static_cast<size_t>(buffer)].width));
            Instruction quantize{.what = Do::Quantize, .rows = rows, .in = {buffer}, .out = at->second, .act = act};
            auto& code = program_.instructions;
            // Before any linear of the same input, so that one that needs this form can join it.
            const auto linear = linears_.find(buffer);
            const size_t place = linear == linears_.end() ? code.size() : linear->second;
            code.insert(code.begin() + static_cast<ptrdiff_t>(place), std::move(quantize));
            for (auto& [input, index] : linears_) index += index >= place;
        }
        return at->second;
    }

    void emit(const Node& node) {
        const Rows rows = node.out < 0 ? Rows::All : need_[static_cast<size_t>(node.out)];
        Instruction now{.what = Do::Run, .rows = rows, .node = &node};
        for (size_t i = 0; i < node.inputs.size(); i++)
            now.in.push_back(node.has(i) ? read(node.inputs[i], becomes_state(node, i) ? Rows::All : rows) : -1);
        if (node.out >= 0) now.out = buffer_[static_cast<size_t>(node.out)] = new_matrix(plan_.width(node.out));

        if (node.op->turns) now.angles = angles(node);
        if (node.op->form == Op::Form::Experts) {
            const Bank& bank = plan_.banks[static_cast<size_t>(node.bank)];
            const auto form = [&](int index) { return type_info(plan_.weight(index).matrix.type).act; };
            now.act = form(bank.gate[0]);
            now.hidden_act = form(bank.down[0]);
            now.in.push_back(activations(now.in[0], now.act, rows));
        }
        if (node.op->form == Op::Form::Linear) {
            const Weight& weight = plan_.weight(node, 0);
            const int acts = activations(now.in[0], type_info(weight.matrix.type).act, rows);
            Product product{&weight, node.has_weight(1) ? plan_.weight(node, 1).vector.data() : nullptr, acts, now.out};
            auto& code = program_.instructions;
            const auto [linear, fresh] = linears_.try_emplace(now.in[0], code.size());
            if (!fresh) {
                code[linear->second].products.push_back(product);
                return;
            }
            now.what = Do::Linear;
            now.products.push_back(product);
            now.out = -1;
        }
        program_.instructions.push_back(std::move(now));
    }

    int angles(const Node& node) {
        const Turning& turning = turning_of(node);
        auto& all = program_.angles;
        auto at = std::find_if(all.begin(), all.end(), [&](const Angles& a) {
            return a.inv_freq == turning.inv_freq && a.factor == turning.factor;
        });
        if (at == all.end()) at = all.insert(at, Angles{turning.inv_freq, turning.factor});
        return static_cast<int>(at - all.begin());
    }

    // Calls `visit` with a reference to every buffer index of an instruction, inputs first.
    template <class Visit>
    static void each_input(Instruction& now, const Visit& visit) {
        for (int& buffer : now.in)
            if (buffer >= 0) visit(buffer);
        for (Product& product : now.products) visit(product.activations);
    }

    template <class Visit>
    static void each_output(Instruction& now, const Visit& visit) {
        if (now.out >= 0) visit(now.out);
        for (Product& product : now.products) visit(product.out);
    }

    const Buffer& buffer(int index) const { return program_.buffers[static_cast<size_t>(index)]; }

    // Gives every buffer its place: first fit among the buffers alive at the same time.
    void place() {
        auto& code = program_.instructions;
        std::vector<size_t> last(program_.buffers.size(), 0);
        for (size_t i = 0; i < code.size(); i++) {
            each_output(code[i], [&](int buffer) { last[static_cast<size_t>(buffer)] = i; });
            each_input(code[i], [&](int buffer) { last[static_cast<size_t>(buffer)] = i; });
        }
        for (int read : {program_.logits, program_.hidden})
            if (read >= 0) last[static_cast<size_t>(read)] = code.size();

        std::map<uint64_t, uint64_t> taken;  // offset -> end
        const auto allot = [&](Buffer& buffer) {
            const uint64_t bytes = buffer.stride * static_cast<uint64_t>(limits_.max_rows);
            uint64_t at = 0;
            for (auto [begin, end] : taken) {
                if (begin >= at + bytes) break;
                at = end;
            }
            taken[at] = at + bytes;
            buffer.offset = at;
            program_.arena = std::max(program_.arena, at + bytes);
        };
        for (size_t i = 0; i < code.size(); i++) {
            const auto dies = [&](int buffer) { return last[static_cast<size_t>(buffer)] == i; };
            int reused = -1;
            if (code[i].what == Do::Run && code[i].node->op->in_place && code[i].out >= 0)
                for (int input : code[i].in)
                    if (reused < 0 && input >= 0 && dies(input) && buffer(input).width == buffer(code[i].out).width) reused = input;
            each_output(code[i], [&](int out) {
                Buffer& buffer = program_.buffers[static_cast<size_t>(out)];
                if (reused >= 0) buffer.offset = program_.buffers[static_cast<size_t>(reused)].offset;
                else allot(buffer);
            });
            std::vector<int> dead;
            const auto bury = [&](int buffer) {
                if (dies(buffer) && buffer != reused && std::find(dead.begin(), dead.end(), buffer) == dead.end())
                    dead.push_back(buffer);
            };
            each_input(code[i], bury);
            if (reused < 0) each_output(code[i], bury);
            for (int buffer : dead) taken.erase(program_.buffers[static_cast<size_t>(buffer)].offset);
        }
    }

    const Plan& plan_;
    const Limits& limits_;
    std::vector<Rows> need_;
    std::vector<int> buffer_;                            // of each value
    std::map<int, int> gathered_;                        // value -> buffer of its wanted rows
    std::map<std::pair<int, ActType>, int> quantised_;   // buffer, form -> buffer
    std::map<int, size_t> linears_;                      // input buffer -> its instruction
    Program program_;
};

}  // namespace

Program compile(const Plan& plan, const Limits& limits) { return Compiler(plan, limits).run(); }

}  // namespace colibri
