#include "statistics.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace obax {

namespace {

// What one value can do to the running mean and variance, in deviations.
constexpr double UPDATE_CLIP = 4.0;
// A glitch among a few values is so many median deviations off: 100 deviations of a Gaussian.
constexpr double GLITCH = 100.0 * 1.4826;
// A value that is cut off counts as missing if it is farther off than any before by this factor.
constexpr double FARTHER = 1.1;
constexpr double EPSILON = std::numeric_limits<double>::epsilon();

// The median of a few values, which it puts in order.
double median(Span values) {
    std::sort(values.begin(), values.end());
    const std::size_t n = values.size();
    return 0.5 * (values[n / 2] + values[(n - 1) / 2]);
}

// Mean and variance of a few values without their glitches.
std::pair<double, double> judge(View values) {
    std::array<double, DOUBTFUL_VALUES> storage;
    const Span room(storage.data(), values.size());
    std::copy(values.begin(), values.end(), room.begin());
    const double middle = median(room);
    for (std::size_t i = 0; i < values.size(); ++i) room[i] = std::abs(values[i] - middle);
    const double limit = GLITCH * median(room);
    double n = 0.0, average = 0.0, square = 0.0;
    for (double value : values) {
        const double gap = value - middle;
        if (std::abs(gap) > limit && limit != 0.0) continue;
        n += 1.0;
        average += gap;
        square += gap * gap;
    }
    average /= n;
    return {middle + average, std::max(square / n - average * average, 0.0)};
}

}  // namespace

double standardise(double value, double mean, double variance) {
    const double floor = EPSILON * mean;
    if (!(std::abs(value) <= LARGEST && variance > floor * floor)) return 0.0;
    return std::min(std::max((value - mean) / std::sqrt(variance), -CLIP), CLIP);
}

void RunningMoments::add(double value, double memory) {
    double gap = value - mean, most = UPDATE_CLIP;
    if (count < TRUSTED_ROWS) most *= TRUSTED_ROWS / std::max(count, 1.0);
    if (most * most * variance > 0.0 && gap * gap > most * most * variance)
        gap = std::copysign(most * std::sqrt(variance), gap);
    const double rows = std::min(count, memory - 1.0) + 1.0;
    const double by = 1.0 / rows;
    count = rows;
    mean += by * gap;
    variance = (1.0 - by) * (variance + by * gap * gap);
}

bool GuardedMoments::add(double value, double memory, std::size_t enough) {
    if (moments_.count == 0.0 || waiting_ < 0.0) {
        const auto n = static_cast<std::size_t>(1.0 - waiting_);
        values_[n - 1] = value;
        const View first(values_.data(), n);
        const auto [mean, variance] = judge(first);
        moments_ = {std::min(static_cast<double>(n), memory), mean, variance};
        waiting_ = n < DOUBTFUL_VALUES ? -static_cast<double>(n) : 0.0;
        if (variance > 0.0) return true;
        const auto [low, high] = std::minmax_element(first.begin(), first.end());
        return *high - *low == 0.0 || *high - *low > 1e-150;
    }
    const double gap = value - moments_.mean;
    farthest_ = std::max(farthest_, std::abs(gap));
    auto waiting = static_cast<std::size_t>(waiting_);
    const double limit = CLIP * CLIP * moments_.variance;
    if (limit > 0.0 && gap * gap > limit)
        values_[waiting++] = value;
    else
        waiting = 0;
    waiting_ = static_cast<double>(waiting % enough);
    if (waiting == enough) {
        const auto [mean, variance] = judge(View(values_.data(), enough));
        // The rare value of a feature may come many times in a row; for targets it is a level.
        if (enough == JUMP || variance > 0.0) {
            moments_ = {std::min(static_cast<double>(DOUBTFUL_VALUES), memory), mean,
                        std::max(moments_.variance, variance)};
            farthest_ = 0.0;
            return true;
        }
    }
    moments_.add(value, memory);
    return moments_.variance > 0.0 || gap == 0.0 || std::abs(gap) > 1e-150;
}

double GuardedMoments::standardise_unless_doubtful(double value) const {
    const double a = moments_.standardise(value);
    if (std::abs(a) != CLIP) return a;
    const bool farther = std::abs(value - moments_.mean) > FARTHER * farthest_;
    const auto waiting = static_cast<std::size_t>(std::max(waiting_, 0.0));
    if (waiting_ >= 0.0 && farther) return 0.0;
    if (waiting > 0 && value != values_[waiting - 1]) return 0.0;
    return a;
}

GuardedMoments GuardedMoments::of_zeros() const {
    GuardedMoments zeros;
    zeros.moments_.count = moments_.count;
    zeros.waiting_ = std::min(waiting_, 0.0);
    return zeros;
}

void GuardedMoments::write(Span line) const {
    line[0] = moments_.count;
    line[1] = moments_.mean;
    line[2] = moments_.variance;
    line[3] = waiting_;
    line[4] = farthest_;
    std::copy(values_.begin(), values_.end(), line.begin() + 5);
}

void GuardedMoments::read(View line) {
    moments_ = {line[0], line[1], line[2]};
    waiting_ = line[3];
    farthest_ = line[4];
    std::copy(line.begin() + 5, line.begin() + NUMBERS, values_.begin());
}

void check_guarded(const Archive& archive, View line, const std::string& name,
                   std::size_t enough) {
    archive.require(line[0] >= 0.0 && line[2] >= 0.0 && line[4] >= 0.0, name, "numbers >= 0");
    archive.require_whole(line[3], 1.0 - DOUBTFUL_VALUES, static_cast<double>(enough) - 1.0, name);
    archive.require(line[0] > 0.0 || line[3] == 0.0, name, "0 before the first value");
}

void ClassFrequencies::add(std::size_t label, double memory) {
    double total = 0.0;
    for (double count : counts) total += count;
    if (total >= memory)
        for (double& count : counts) count *= 1.0 - 1.0 / memory;
    counts[label] += 1.0;
}

double ClassFrequencies::rarity(std::size_t label) const {
    double total = 0.0, seen = 0.0;
    for (double count : counts) {
        total += count;
        seen += count > 0.0 ? 1.0 : 0.0;
    }
    if (!(counts[label] > 0.0)) return 1.0;
    return 1.0 / std::max(counts[label] / total * seen, 0.01);
}

}  // namespace obax
