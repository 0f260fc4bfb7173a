// Ops that look at one row at a time and move little data.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/step.h"

namespace colibri {

namespace {

// Loops of one row; `b` null for ops of one input. Results may land on an input.
template <class F>
void map_rows(const Step& s, const Instruction& now, const F& f) {
    const int64_t width = s.buffer(now.out).width;
    s.each_row(now.rows, width, [&](int64_t i) {
        const float* a = s.row(now.in[0], i);
        float* y = s.row(now.out, i);
        for (int64_t j = 0; j < width; j++) y[j] = f(a[j]);
    });
}

template <class F>
void zip_rows(const Step& s, const Instruction& now, const F& f) {
    const int64_t width = s.buffer(now.out).width;
    s.each_row(now.rows, width, [&](int64_t i) {
        const float* a = s.row(now.in[0], i);
        const float* b = s.row(now.in[1], i);
        float* y = s.row(now.out, i);
        for (int64_t j = 0; j < width; j++) y[j] = f(a[j], b[j]);
    });
}

}  // namespace

void run_gather(const Step& s, const Instruction& now) {
    const int64_t width = s.buffer(now.out).width;
    s.each_row(now.rows, width, [&](int64_t i) {
        std::copy_n(s.row(now.in[0], s.batch.wanted[static_cast<size_t>(i)]), width, s.row(now.out, i));
    });
}

void run_quantize(const Step& s, const Instruction& now) {
    const int64_t width = s.buffer(now.in[0]).width;
    s.each_row(now.rows, width, [&](int64_t i) { s.kernels.quantize(now.act, s.row(now.in[0], i), width, s.bytes(now.out, i)); });
}

void run_embed(const Step& s, const Instruction& now) {
    const Weight& table = *now.table;
    const size_t pitch = row_bytes(table.type, table.cols);
    s.each_row(now.rows, table.cols, [&](int64_t i) {
        const auto token = static_cast<size_t>(s.batch.tokens[s.batch.row(now.rows, i)]);
        s.kernels.dequantize(table.type, table.data + token * pitch, table.cols, s.row(now.out, i));
    });
}

void run_rms_norm(const Step& s, const Instruction& now) {
    const int64_t width = s.buffer(now.out).width;
    const int64_t group = now.node->group > 0 ? now.node->group : width;
    s.each_row(now.rows, width, [&](int64_t i) {
        const float* x = s.row(now.in[0], i);
        float* y = s.row(now.out, i);
        for (int64_t j = 0; j < width; j += group) s.kernels.rms_norm(x + j, now.weight, group, now.node->eps, y + j);
    });
}

void run_add(const Step& s, const Instruction& now) {
    zip_rows(s, now, [](float a, float b) { return a + b; });
}

void run_mul(const Step& s, const Instruction& now) {
    zip_rows(s, now, [](float a, float b) { return a * b; });
}

void run_scale(const Step& s, const Instruction& now) {
    map_rows(s, now, [factor = now.node->factor](float a) { return a * factor; });
}

void run_clamp(const Step& s, const Instruction& now) {
    // NaN stays NaN: both comparisons are false.
    map_rows(s, now, [low = now.node->low, high = now.node->high](float a) { return a < low ? low : (a > high ? high : a); });
}

void run_swiglu(const Step& s, const Instruction& now) {
    // exp makes a value cost about eight times a plain one.
    const int64_t width = s.buffer(now.out).width;
    constexpr int64_t kColumns = 2048;
    const int64_t columns = (width + kColumns - 1) / kColumns;
    const int64_t units = s.batch.count(now.rows) * columns;
    const auto unit = [&](int64_t u, int) {
        const int64_t i = u / columns, begin = u % columns * kColumns, n = std::min(kColumns, width - begin);
        s.kernels.swiglu(s.row(now.in[0], i) + begin, s.row(now.in[1], i) + begin, n, s.row(now.out, i) + begin);
    };
    if (units * std::min(width, kColumns) < 4096)
        for (int64_t u = 0; u < units; u++) unit(u, 0);
    else
        s.pool.run(units, unit);
}

void run_rope(const Step& s, const Instruction& now) {
    const Node& node = *now.node;
    const Turns& turns = s.turns[static_cast<size_t>(now.angles)];
    const int64_t width = s.buffer(now.out).width, n = turns.n;
    s.each_row(now.rows, width, [&](int64_t i) {
        const float* x = s.row(now.in[0], i);
        float* y = s.row(now.out, i);
        if (x != y) std::memcpy(y, x, static_cast<size_t>(width) * sizeof(float));
        const float* c = turns.cos.data() + s.batch.row(now.rows, i) * static_cast<size_t>(n);
        const float* d = turns.sin.data() + s.batch.row(now.rows, i) * static_cast<size_t>(n);
        for (int64_t head = 0; head < node.heads; head++) {
            float* z = y + head * node.head_dim + node.offset;
            const int64_t apart = node.interleaved ? 1 : n, stride = node.interleaved ? 2 : 1;
            for (int64_t j = 0; j < n; j++) {
                float& a = z[j * stride];
                float& b = z[j * stride + apart];
                const float a0 = a, b0 = b;
                a = a0 * c[j] - b0 * d[j];
                b = b0 * c[j] + a0 * d[j];
            }
        }
    });
}

}  // namespace colibri
