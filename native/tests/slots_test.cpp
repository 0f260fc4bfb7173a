// Slots read out and put back, and numbers rounded for files.
#include <cmath>
#include <cstring>
#include <limits>

#include "check.h"
#include "kernels/kernels.h"
#include "state/rounded.h"
#include "state/slots.h"

using namespace colibri;
using namespace colibri::test;

namespace {

constexpr int64_t kSlots = 3, kContext = 40, kMaxRows = 4;

// Rows, pooled rows, a window, a memory, and rows that nothing uses.
std::vector<State> states() {
    return {{false, {3, 2}, 0, 1, true}, {false, {4}, 0, 3, true}, {false, {2}, 5, 1, true}, {true, {7}, 0, 1, true},
            {false, {9}, 0, 1, false}};
}

// The number a state holds, made of where it is and of a seed.
float number(float seed, int64_t state, int64_t plane, int64_t row, int64_t i) {
    return seed + static_cast<float>(state) * 1000 + static_cast<float>(plane) * 300 + static_cast<float>(row) * 4 +
           static_cast<float>(i) / 16;
}

void step(Slots& slots, int64_t slot, int64_t begin, int64_t end, float seed) {
    slots.begin(slot, begin, end);
    for (int state : {0, 1, 2}) {
        RowState& rows = slots.rows(state);
        for (int64_t row = begin / rows.every(); row < end / rows.every(); row++)
            for (size_t plane = 0; plane < (state == 0 ? 2u : 1u); plane++)
                for (int64_t i = 0; i < rows.plane_width(plane); i++)
                    rows.at(slot, plane, row)[i] = number(seed, state, static_cast<int64_t>(plane), row, i);
    }
    for (int64_t i = 0; i < 7; i++) slots.recurrent(3).at(slot)[i] = number(seed, 3, 0, end, i);
    slots.finish(slot, end);
}

void fill(Slots& slots, int64_t slot, int64_t length, float seed) {
    for (int64_t at = 0; at < length; at += kMaxRows) {
        step(slots, slot, at, std::min(length, at + kMaxRows), seed);
        if (at % 8 == 0) slots.remember(slot);
    }
}

bool holds(Slots& slots, int64_t slot, int64_t length, float seed) {
    bool same = slots.length(slot) == length;
    for (int state : {0, 1, 2}) {
        RowState& rows = slots.rows(state);
        const int64_t end = length / rows.every();
        for (int64_t row = state == 2 ? std::max<int64_t>(0, end - 4) : 0; row < end; row++)
            for (size_t plane = 0; plane < (state == 0 ? 2u : 1u); plane++)
                for (int64_t i = 0; i < rows.plane_width(plane); i++)
                    same &= rows.at(slot, plane, row)[i] == number(seed, state, static_cast<int64_t>(plane), row, i);
    }
    for (int64_t i = 0; i < 7; i++) same &= slots.recurrent(3).at(slot)[i] == number(seed, 3, 0, length, i);
    return same;
}

std::vector<int64_t> lengths_of(const Image& image) {
    std::vector<int64_t> lengths;
    for (const auto& snapshot : image.snapshots) lengths.push_back(snapshot->length);
    return lengths;
}

void put(const Image& image, Slots& slots, int64_t slot, int64_t piece) {
    Blank blank = slots.blank(slot, image.length, lengths_of(image));
    check(blank.size == image.size && blank.exact == image.exact, "a blank of another size");
    for (int64_t begin = 0; begin < image.size; begin += piece) {
        const int64_t count = std::min(piece, image.size - begin);
        std::vector<float> numbers;
        image.each(begin, count, [&](std::span<const float> part) { numbers.insert(numbers.end(), part.begin(), part.end()); });
        check(static_cast<int64_t>(numbers.size()) == count, "a piece of another size");
        const float* from = numbers.data();
        blank.each(begin, count, [&](std::span<float> part) {
            std::copy_n(from, part.size(), part.begin());
            from += part.size();
        });
    }
    slots.adopt(blank);
}

void a_slot_put_back_is_what_it_was() {
    for (int64_t length : {1, 2, 5, 6, 17, 39, 40})
        for (int64_t piece : {1, 7, 100000})
            for (int64_t max_rows : {kMaxRows, int64_t{1}, int64_t{20}}) {
                Slots source(states(), kSlots, kContext, kMaxRows), target(states(), kSlots, kContext, max_rows);
                fill(source, 1, length, 5);
                for (int64_t at = 0; at < 9; at++) step(target, 2, at, at + 1, 8);  // something else before
                put(source.image(1, length), target, 2, piece);
                check(holds(target, 2, length, 5), text("length ", length, " in pieces of ", piece));
                check(holds(source, 1, length, 5), "reading has changed the source");
                check(target.length(0) == 0 && target.length(1) == 0, "another slot was touched");
            }
}

void an_image_can_be_of_a_length_before() {
    Slots source(states(), kSlots, kContext, kMaxRows), target(states(), kSlots, kContext, kMaxRows);
    fill(source, 0, 39, 5);  // remembered at 4, 12, 20, 28 and 36
    const Image image = source.image(0, 38);
    check(image.length == 36, text("length ", image.length));
    check(lengths_of(image) == std::vector<int64_t>{4, 20, 28, 36}, "other snapshots");
    fill(source, 0, 40, 6);  // the image's snapshots are its own, its rows are not
    for (int64_t at : {28, 36}) check(target.reach(1, at) == 0, "a slot with nothing in it");
    Slots again(states(), kSlots, kContext, kMaxRows);
    fill(again, 0, 39, 5);
    put(again.image(0, 39), target, 1, 50);
    check(holds(target, 1, 39, 5), "the whole");
    check(target.rewind(1, 38) == 36 && holds(target, 1, 36, 5), "back to the newest");
    check(target.rewind(1, 35) == 28 && holds(target, 1, 28, 5), "back to the one before");
    check(target.rewind(1, 19) == 4 && holds(target, 1, 4, 5), "back to the first");
    check(again.image(2, 10).length == 0 && again.image(2, 10).size == 0, "an image of an empty slot");
}

void what_no_image_can_be_is_refused() {
    Slots slots(states(), kSlots, kContext, kMaxRows);
    refused("no slot 3", [&] { slots.blank(3, 5, {5}); });
    refused("outside the context", [&] { slots.blank(0, kContext + 1, {kContext + 1}); });
    refused("outside the context", [&] { slots.blank(0, std::numeric_limits<int64_t>::max(), {5}); });
    refused("no snapshot at length 5", [&] { slots.blank(0, 5, {4}); });
    refused("too many", [&] { slots.blank(0, 20, std::vector<int64_t>(20, 20)); });
    refused("snapshots at 5 and then at 5", [&] { slots.blank(0, 5, {5, 5}); });
    Blank blank = slots.blank(0, 5, {5});
    fill(slots, 0, 3, 1);
    refused("in use", [&] { slots.adopt(blank); });
}

void rounded_numbers_come_back() {
    Random random{3};
    for (size_t count : {0, 1, 31, 32, 33, 100}) {
        std::vector<float> numbers(count);
        for (float& x : numbers) x = random.uniform() * 8;
        for (DType type : {DType::F32, DType::F16, DType::Q8_0}) {
            const std::vector<uint8_t> data = rounded(type, numbers);
            const auto block = static_cast<size_t>(type_info(type).block);
            const auto padded = static_cast<int64_t>((count + block - 1) / block * block);
            check(data.size() == row_bytes(type, padded), "another size");
            std::vector<float> found(static_cast<size_t>(padded));
            if (padded > 0) kernels(Isa::Scalar).dequantize(dense(type, padded, data.data()), 0, found.data());
            const float bound = type == DType::F32 ? 0 : type == DType::F16 ? 8 * 0x1p-11f : 8.5f / 127 / 2;
            for (size_t i = 0; i < found.size(); i++)
                check(std::fabs(found[i] - (i < count ? numbers[i] : 0)) <= bound, text(type_info(type).name, " number ", i));
        }
    }
    const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> odd{inf, -inf, nan, -nan, 1e30f, -1e30f, 65520, 1e-8f, 6e-8f, 6.1e-5f, -0.0f};
    const std::vector<uint16_t> expected{0x7bff, 0xfbff, 0x7e00, 0xfe00, 0x7bff, 0xfbff, 0x7bff, 0, 1, 0x0400, 0x8000};
    const std::vector<uint8_t> halves = rounded(DType::F16, odd);
    for (size_t i = 0; i < odd.size(); i++) {
        uint16_t half;
        std::memcpy(&half, halves.data() + 2 * i, sizeof(half));
        check(half == expected[i] || (i == 9 && half == 0x03ff), text("half ", i, " is ", half));
    }
    rounded(DType::Q8_0, odd);
    refused("not to q4_k", [&] { rounded(DType::Q4_K, odd); });
}

}  // namespace

int main() {
    a_slot_put_back_is_what_it_was();
    an_image_can_be_of_a_length_before();
    what_no_image_can_be_is_refused();
    rounded_numbers_come_back();
    return report("slots");
}
