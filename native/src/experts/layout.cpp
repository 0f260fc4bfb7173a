#include "experts/layout.h"

#include <algorithm>

namespace colibri {

namespace {

// Parts that lie closer than this are read at once: what is between them takes less time than another read.
constexpr uint64_t kGap = 64 << 10;

// The same matrix, whose grids begin at its own first row: they are often those of many experts.
Matrix with_own_grids(const Weight& weight) {
    Matrix matrix = weight.matrix;
    const int64_t together = std::max(1, zeros_together(matrix.type));
    const int64_t above = matrix.first / matrix.block_rows / together * together;
    matrix.first -= above * matrix.block_rows;
    if (matrix.scales.data) matrix.scales.data += above * matrix.scales.pitch;
    if (matrix.zeros.data) matrix.zeros.data += above / together * matrix.zeros.pitch;
    return matrix;
}

}  // namespace

Places::Places(const Plan& plan, const std::vector<std::string>& mirrors) {
    for (size_t i = 0; i < plan.files.size(); i++) {
        const MappedFile& file = plan.files[i];
        if (file.size() > 0) mapped_.push_back({file.data(), file.size(), ExpertFile(file, i < mirrors.size() ? mirrors[i] : "")});
    }
}

Places::Place Places::find(const uint8_t* at) const {
    for (const Mapped& each : mapped_)
        if (at >= each.begin && at < each.begin + each.size) return {&each.file, static_cast<uint64_t>(at - each.begin)};
    return {};
}

Layout::Layout(const Places& places, const Plan& plan, const Bank& bank, int expert) : expert_{expert, {}, {}, {}} {
    const auto e = static_cast<size_t>(expert);
    const auto take = [&](int index, Matrix& into) {
        const Weight& weight = plan.weight(index);
        into = with_own_grids(weight);
        add(places, into, weight.rows);
    };
    take(bank.gate[e], expert_.gate);
    take(bank.up[e], expert_.up);
    take(bank.down[e], expert_.down);
    if (!in_files_) return;

    std::sort(parts_.begin(), parts_.end(), [](const Part& a, const Part& b) {
        return a.file != b.file ? std::less<>()(a.file, b.file) : a.begin < b.begin;
    });
    for (const Part& part : parts_) {
        const bool near = !stretches_.empty() && stretches_.back().file == part.file && part.begin <= stretches_.back().end + kGap;
        if (near) stretches_.back().end = std::max(stretches_.back().end, part.end());
        else stretches_.push_back({part.file, page_floor(part.begin), part.end(), 0});
    }
    for (Stretch& stretch : stretches_) {
        stretch.at = bytes_;
        bytes_ += page_ceil(stretch.end) - stretch.begin;
    }
}

void Layout::add(const Places& places, const Matrix& matrix, int64_t rows) {
    const int64_t last = stored_rows(matrix.type, rows) - 1;
    add(places, matrix.data, static_cast<uint64_t>(last * matrix.pitch) + row_bytes(matrix.type, matrix.cols));
    const int64_t grid_rows = (matrix.first + (rows - 1) * matrix.every) / matrix.block_rows + 1;
    if (matrix.scales.data) add(places, matrix.scales.data, static_cast<uint64_t>(grid_rows * matrix.scales.pitch));
    if (matrix.zeros.data) {
        const int64_t together = zeros_together(matrix.type);
        add(places, matrix.zeros.data, static_cast<uint64_t>((grid_rows + together - 1) / together * matrix.zeros.pitch));
    }
}

void Layout::add(const Places& places, const uint8_t* data, uint64_t bytes) {
    const Places::Place place = places.find(data);
    in_files_ &= place.file != nullptr;
    parts_.push_back({data, bytes, place.file, place.offset});
}

std::vector<Reader::Piece> Layout::pieces(uint8_t* slab) const {
    std::vector<Reader::Piece> pieces;
    for (const Stretch& stretch : stretches_)
        pieces.push_back({stretch.file, stretch.begin, page_ceil(stretch.end) - stretch.begin, stretch.end - stretch.begin,
                          slab + stretch.at});
    return pieces;
}

const uint8_t* Layout::moved(const uint8_t* data, const uint8_t* slab) const {
    const auto part = std::find_if(parts_.begin(), parts_.end(), [&](const Part& each) { return each.data == data; });
    const auto stretch = std::find_if(stretches_.begin(), stretches_.end(), [&](const Stretch& each) {
        return each.file == part->file && part->begin >= each.begin && part->end() <= each.end;
    });
    return slab + stretch->at + (part->begin - stretch->begin);
}

Matrix Layout::moved(Matrix matrix, const uint8_t* slab) const {
    matrix.data = moved(matrix.data, slab);
    if (matrix.scales.data) matrix.scales.data = moved(matrix.scales.data, slab);
    if (matrix.zeros.data) matrix.zeros.data = moved(matrix.zeros.data, slab);
    return matrix;
}

Expert Layout::in(const uint8_t* slab) const {
    return {expert_.index, moved(expert_.gate, slab), moved(expert_.up, slab), moved(expert_.down, slab)};
}

}  // namespace colibri
