#include "quantile_bins.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace obax {

namespace {

// Rows that the sample remembers.
constexpr double SAMPLE_ROWS = 10000.0;
// Values after which the first edges, which so few gave, are made anew; and between later looks.
constexpr double SECOND_LOOK = 800.0, BETWEEN_LOOKS = 1000.0;
// Edges are made anew when the share of values up to one of them has moved by so much.
constexpr double MOVED = 0.2;

std::uint64_t mixed(std::uint64_t x) {  // splitmix64
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

}  // namespace

double hashed_uniform(std::uint64_t seed, std::uint64_t a, std::uint64_t b) {
    return static_cast<double>(mixed(mixed(mixed(seed) + a) + b) >> 11) * 0x1.0p-53;
}

bool QuantileBins::Column::learn(double value, std::size_t number) {
    seen += 1.0;
    if (sample.size() < SAMPLE) {
        sample.push_back(value);
    } else {
        const double rows = std::min(seen, SAMPLE_ROWS);
        const auto at = static_cast<std::size_t>(
            rows * hashed_uniform(0, number, static_cast<std::uint64_t>(seen)));
        if (at < SAMPLE) sample[at] = value;
    }
    const bool first = seen == static_cast<double>(FIRST_VALUES), second = seen == SECOND_LOOK;
    if (!first && !second && std::fmod(seen, BETWEEN_LOOKS) != 0.0) return false;
    Vector sorted = sample;
    std::sort(sorted.begin(), sorted.end());
    if (!first && !second && !has_left_edges(sorted)) return false;
    make_edges(sorted);
    return true;
}

void QuantileBins::Column::make_edges(const Vector& sorted) {
    Vector values = sorted, found;
    values.erase(std::unique(values.begin(), values.end()), values.end());
    const bool few = values.size() <= BINS;
    for (std::size_t i = 1; i < (few ? values.size() : BINS); ++i) {
        const double edge = few ? values[i - 1] + 0.5 * (values[i] - values[i - 1])
                                : sorted[i * sorted.size() / BINS];
        if (edge < sorted.back() && (found.empty() || edge > found.back())) found.push_back(edge);
    }
    const auto size = static_cast<double>(sorted.size());
    Vector shares;
    for (double edge : found) {
        const auto end = std::upper_bound(sorted.begin(), sorted.end(), edge);
        shares.push_back(static_cast<double>(end - sorted.begin()) / size);
    }
    edges = std::move(found);
    below = std::move(shares);
    distinct = few && values.size() > 2;
}

bool QuantileBins::Column::has_left_edges(const Vector& sorted) const {
    const auto size = static_cast<double>(sorted.size());
    if (edges.empty()) return sorted.front() < sorted.back();
    // Beyond the last edge, or before the first one, values may have left the bins too.
    for (std::size_t i = 0; i < edges.size(); ++i) {
        const auto end = std::upper_bound(sorted.begin(), sorted.end(), edges[i]);
        if (std::abs(static_cast<double>(end - sorted.begin()) / size - below[i]) > MOVED)
            return true;
    }
    return false;
}

void QuantileBins::find(View values, std::uint8_t* bins) const {
    for (std::size_t j = 0; j < columns_.size(); ++j) {
        const Vector& edges = columns_[j].edges;
        const double value = values[j];
        bins[j] = static_cast<std::uint8_t>(
            std::isnan(value) ? MISSING
                              : static_cast<std::size_t>(
                                    std::lower_bound(edges.begin(), edges.end(), value) -
                                    edges.begin()));
    }
}

bool QuantileBins::add(View values, std::vector<std::size_t>& changed) {
    changed.clear();
    for (std::size_t j = 0; j < columns_.size(); ++j)
        if (!std::isnan(values[j]) && columns_[j].learn(values[j], j)) changed.push_back(j);
    return !changed.empty();
}

double QuantileBins::low(std::size_t column, std::size_t bin) const {
    return bin == 0 ? std::numeric_limits<double>::lowest() : columns_[column].edges[bin - 1];
}

double QuantileBins::high(std::size_t column, std::size_t bin) const {
    const Vector& edges = columns_[column].edges;
    return bin < edges.size() ? edges[bin] : std::numeric_limits<double>::max();
}

QuantileBins QuantileBins::resized(const std::vector<std::size_t>& places,
                                   std::size_t columns) const {
    QuantileBins larger(columns);
    for (std::size_t j = 0; j < places.size(); ++j) larger.columns_[places[j]] = columns_[j];
    return larger;
}

void QuantileBins::visit(Archive& archive, const std::string& name) {
    // A line for each column: what it has seen, how many values and edges, and these.
    Vector lines;
    for (const Column& column : columns_) {
        for (double number : {column.seen, static_cast<double>(column.sample.size()),
                              static_cast<double>(column.edges.size()),
                              column.distinct ? 1.0 : 0.0})
            lines.push_back(number);
        for (const Vector* part : {&column.sample, &column.edges, &column.below})
            lines.insert(lines.end(), part->begin(), part->end());
    }
    archive.list(name, lines, columns_.size() * (4 + SAMPLE + 2 * BINS));
    if (!archive.reading()) return;
    std::size_t at = 0;
    const auto take = [&](std::size_t count) {
        archive.require(lines.size() - at >= count, name, "as long as it says");
        at += count;
        return View(lines.data() + at - count, count);
    };
    std::vector<Column> columns(columns_.size());
    for (Column& column : columns) {
        const View counts = take(4);
        archive.require_whole(counts[0], 0.0, 9007199254740992.0, name);
        archive.require_whole(counts[1], 0.0, static_cast<double>(SAMPLE), name);
        archive.require_whole(counts[2], 0.0, static_cast<double>(BINS - 1), name);
        archive.require_whole(counts[3], 0.0, 1.0, name);
        archive.require(counts[1] == std::min(counts[0], static_cast<double>(SAMPLE)), name,
                        "a sample of the values seen");
        column.seen = counts[0];
        column.distinct = counts[3] > 0.0;
        const auto edges = static_cast<std::size_t>(counts[2]);
        const View sample = take(static_cast<std::size_t>(counts[1]));
        column.sample.assign(sample.begin(), sample.end());
        const View found = take(edges), below = take(edges);
        column.edges.assign(found.begin(), found.end());
        column.below.assign(below.begin(), below.end());
        for (std::size_t i = 1; i < edges; ++i)
            archive.require(column.edges[i - 1] < column.edges[i], name, "edges that increase");
        for (double share : column.below)
            archive.require(share >= 0.0 && share <= 1.0, name, "shares of a sample");
    }
    archive.require(at == lines.size(), name, "as long as it says");
    columns_ = std::move(columns);
}

double QuantileBins::bytes_per_column() {
    return static_cast<double>(sizeof(Column)) + 8.0 * static_cast<double>(SAMPLE + 2 * BINS);
}

}  // namespace obax
