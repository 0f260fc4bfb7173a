#include "runtime.h"

#include <algorithm>
#include <chrono>

#include "error.h"
#include "ops/rope.h"

namespace colibri {

namespace {

const Kernels& choose(const std::string& isa) {
    const std::vector<Isa> available = available_isas();
    if (isa.empty()) return kernels(available.back());
    std::string names;
    for (Isa candidate : available) {
        if (isa == isa_name(candidate)) return kernels(candidate);
        names += (names.empty() ? "" : ", ") + std::string(isa_name(candidate));
    }
    refuse("isa is '", isa, "', this CPU has ", names);
}

int choose_threads(int64_t threads) {
    if (threads < 0 || threads > 1024) refuse("threads is ", threads, ", not 0 to 1024");
    return threads == 0 ? physical_cores() : static_cast<int>(threads);
}

}  // namespace

Runtime::Runtime(Plan plan, const Limits& limits, int64_t threads, const std::string& isa, const Residence& residence)
    : plan_(std::move(plan)),
      limits_((check_limits(limits), limits)),
      kernels_(choose(isa)),
      program_(compile(plan_, limits_)),
      pool_(choose_threads(threads)),
      slots_(plan_.states, limits_.slots, limits_.context, limits_.max_rows),
      experts_(plan_, residence),
      arena_(program_.arena, "the activations (lower prefill_chunk)"),
      next_(static_cast<size_t>(limits_.slots), -1) {
    Needs needs;
    for (const Node& node : plan_.nodes) {
        if (!node.op->needs) continue;
        const Needs own = node.op->needs(plan_, node, limits_);
        needs = {std::max(needs.shared, own.shared), std::max(needs.per_thread, own.per_thread)};
    }
    scratch_.shared = LazyMemory(needs.shared, "scratch memory (lower ctx or prefill_chunk)");
    for (int i = 0; i < pool_.threads(); i++) scratch_.per_thread.emplace_back(needs.per_thread, "the threads' scratch memory");
    for (const Angles& angles : program_.angles) {
        const size_t size = angles.inv_freq.size() * static_cast<size_t>(limits_.max_rows);
        turns_.push_back({std::vector<float>(size), std::vector<float>(size), static_cast<int64_t>(angles.inv_freq.size())});
    }
}

void Runtime::check(const Batch& batch, std::span<const Draw> draws) {
    const int64_t rows = batch.size();
    if (rows < 1 || rows > limits_.max_rows) refuse("a step takes 1 to ", limits_.max_rows, " rows, not ", rows);
    if (static_cast<int64_t>(batch.slots.size()) != rows || static_cast<int64_t>(batch.positions.size()) != rows)
        refuse("tokens, slots and positions are ", rows, ", ", batch.slots.size(), " and ", batch.positions.size());
    if (draws.size() != batch.wanted.size()) refuse(batch.wanted.size(), " rows are wanted, with ", draws.size(), " samplers");
    std::fill(next_.begin(), next_.end(), -1);
    for (int64_t i = 0; i < rows; i++) {
        const auto row = static_cast<size_t>(i);
        const int64_t token = batch.tokens[row], slot = batch.slots[row], position = batch.positions[row];
        if (token < 0 || token >= plan_.vocab) refuse("row ", i, ": token ", token, " is not in the vocabulary of ", plan_.vocab);
        if (slot < 0 || slot >= limits_.slots) refuse("row ", i, ": no slot ", slot, ", there are ", limits_.slots);
        if (position < 0 || position >= limits_.context)
            refuse("row ", i, ": position ", position, " is outside the context of ", limits_.context);
        int64_t& next = next_[static_cast<size_t>(slot)];
        if (next >= 0 && position != next) refuse("row ", i, ": position ", position, " of slot ", slot, " must be ", next);
        if (next < 0 && position > slots_.length(slot))
            refuse("row ", i, ": position ", position, " leaves a hole, slot ", slot, " holds ", slots_.length(slot));
        if (next < 0 && !slots_.can_cut(slot, position))
            refuse("row ", i, ": slot ", slot, " can't go on from position ", position, ": rewind it");
        next = position + 1;
    }
    for (const auto& [row, codes] : batch.codes) {
        if (row < 0 || row >= rows) refuse("row ", row, " has codes, there are ", rows, " rows");
        if (plan_.codes.each == 0) refuse("row ", row, " has codes, this model reads none");
        if (static_cast<int64_t>(codes.size()) != plan_.codes.each)
            refuse("row ", row, " has ", codes.size(), " codes, ", plan_.codes.each, " are needed");
        for (uint16_t code : codes)
            if (code >= plan_.codes.limit) refuse("row ", row, ": code ", code, " is not below ", plan_.codes.limit);
    }
    if (static_cast<int64_t>(batch.given.size()) != rows * plan_.given)
        refuse(rows, " rows bring ", batch.given.size(), " numbers along, ", plan_.given, " each are needed");
    int64_t before = -1;
    for (int64_t row : batch.wanted) {
        if (row <= before || row >= rows) refuse("wanted rows must rise and be below ", rows, ", ", row, " is not");
        before = row;
    }
}

void Runtime::turn(const Batch& batch) {
    for (size_t t = 0; t < turns_.size(); t++) {
        const Angles& angles = program_.angles[t];
        Turns& turns = turns_[t];
        const auto body = [&](int64_t i, int) {
            for (int64_t j = 0; j < turns.n; j++) {
                const Turn turn = turn_of(batch.position(i), angles.inv_freq[static_cast<size_t>(j)], angles.factor);
                turns.cos[static_cast<size_t>(i * turns.n + j)] = turn.cos;
                turns.sin[static_cast<size_t>(i * turns.n + j)] = turn.sin;
            }
        };
        if (batch.size() < 8)
            for (int64_t i = 0; i < batch.size(); i++) body(i, 0);
        else
            pool_.run(batch.size(), body);
    }
}

void Runtime::gather_runs(const Batch& batch) {
    runs_.clear();
    std::fill(next_.begin(), next_.end(), -1);  // here: the slot's place in runs_
    for (int64_t i = 0; i < batch.size(); i++) {
        int64_t& place = next_[static_cast<size_t>(batch.slot(i))];
        if (place < 0) {
            place = static_cast<int64_t>(runs_.size());
            runs_.push_back({batch.slot(i), batch.position(i), {}});
        }
        runs_[static_cast<size_t>(place)].rows.push_back(i);
    }
}

void Runtime::execute(const Batch& batch) {
    const Step step{plan_, program_, kernels_, pool_, slots_, experts_, arena_.data(), scratch_, turns_, batch, runs_};
    const auto clock = [] { return std::chrono::steady_clock::now(); };
    auto before = clock();
    for (const Instruction& now : program_.instructions) {
        // With nothing wanted, ops with a state still have it to write.
        const bool writes = now.node && !now.node->states.empty();
        if (now.rows == Rows::Wanted && batch.wanted.empty() && !writes) continue;
        switch (now.what) {
            case Do::Gather: run_gather(step, now); break;
            case Do::Quantize: run_quantize(step, now); break;
            case Do::Linear: run_linear(step, now); break;
            case Do::Run: now.node->op->run(step, now); break;
        }
        const auto after = clock();
        time_of(now) += static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(after - before).count());
        before = after;
    }
    times_.steps++;
}

uint64_t& Runtime::time_of(const Instruction& now) {
    if (now.what == Do::Linear) return now.products.back().out == program_.logits ? times_.head : times_.other;
    if (now.what != Do::Run) return times_.other;
    if (now.node->op->form == Op::Form::Experts) return times_.experts;
    return now.node->states.empty() ? times_.other : times_.attention;
}

std::vector<int64_t> Runtime::step(Batch batch, std::span<const Draw> draws) {
    check(batch, draws);
    batch.place.assign(static_cast<size_t>(batch.size()), -1);
    for (size_t i = 0; i < batch.wanted.size(); i++) batch.place[static_cast<size_t>(batch.wanted[i])] = static_cast<int64_t>(i);
    gather_runs(batch);
    rows_ = wanted_ = 0;
    for (const Run& run : runs_) slots_.begin(run.slot, run.first, run.end());
    turn(batch);
    execute(batch);
    for (const Run& run : runs_) slots_.finish(run.slot, run.end());
    rows_ = batch.size();
    wanted_ = static_cast<int64_t>(batch.wanted.size());

    std::vector<int64_t> picked(draws.size(), -1);
    pool_.run(wanted_, [&](int64_t i, int) {
        const Draw& draw = draws[static_cast<size_t>(i)];
        if (!draw.sampler) return;
        const int64_t token = draw.sampler->pick(logits(i), draw.step);
        picked[static_cast<size_t>(i)] = token == Sampler::kNothing ? kNothing : token;
    });
    return picked;
}

std::span<const float> Runtime::logits(int64_t index) const {
    if (index < 0 || index >= wanted_) refuse("no logits ", index, ": the last step had ", wanted_, " wanted rows");
    return read(program_.logits, index);
}

std::span<const float> Runtime::hidden(int64_t row) const {
    if (program_.hidden < 0) refuse("no hidden rows are kept: the plan names none, or it was loaded without them");
    if (row < 0 || row >= rows_) refuse("no hidden row ", row, ": the last step had ", rows_, " rows");
    return read(program_.hidden, row);
}

std::span<const float> Runtime::read(int buffer, int64_t row) const {
    const Buffer& place = program_.buffers[static_cast<size_t>(buffer)];
    const uint8_t* at = arena_.data() + place.offset + static_cast<size_t>(row) * place.stride;
    return {reinterpret_cast<const float*>(at), static_cast<size_t>(place.width)};
}

void Runtime::populate(int64_t file, int64_t offset, int64_t bytes) const {
    if (file < 0 || file >= static_cast<int64_t>(plan_.files.size())) refuse("no file ", file);
    if (offset < 0 || bytes < 0) refuse("no ", bytes, " bytes at ", offset);
    plan_.files[static_cast<size_t>(file)].populate(static_cast<uint64_t>(offset), static_cast<uint64_t>(bytes));
}

uint64_t Runtime::workspace() const {
    uint64_t bytes = arena_.size() + scratch_.shared.size();
    for (const LazyMemory& memory : scratch_.per_thread) bytes += memory.size();
    return bytes;
}

uint64_t Runtime::resident_bytes() const {
    uint64_t bytes = arena_.resident() + slots_.resident() + scratch_.shared.resident();
    for (const LazyMemory& memory : scratch_.per_thread) bytes += memory.resident();
    return bytes;
}

}  // namespace colibri
