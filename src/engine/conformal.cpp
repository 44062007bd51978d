#include "conformal.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace obax {

namespace {

constexpr std::size_t SCORES = 500;
constexpr double GAMMA = 0.03;
// Rows in the running mean by which errors of a regression are divided.
constexpr double SCALE_ROWS = 100.0;
constexpr double LARGEST_SCORE = 1e12;

}  // namespace

std::size_t ConformalScores::keep(double coverage) {
    for (std::size_t i = 0; i < coverages_.size(); ++i)
        if (coverages_[i].coverage == coverage) return i;
    if (coverages_.size() == MOST_COVERAGES) return MOST_COVERAGES;
    coverages_.reserve(coverages_.size() + 1);
    if (coverages_.empty()) {
        ordered_.reserve(SCORES);
        ordered_ = scores_;
        std::sort(ordered_.begin(), ordered_.end());
    }
    coverages_.push_back({coverage, 1.0 - coverage, 0.0, 0.0});
    return coverages_.size() - 1;
}

double ConformalScores::reach(std::size_t position) const {
    const double level = coverages_[position].level;
    const auto used = static_cast<double>(scores_.size());
    if (scores_.empty()) return std::numeric_limits<double>::infinity();
    const double rank = std::ceil((used + 1.0) * (1.0 - level));
    if (rank <= 0.0) return numbers_ ? 0.0 : -1.0;
    if (rank <= used) return ordered_[static_cast<std::size_t>(rank) - 1] * scale_;
    if (!numbers_) return 1.0;
    return ordered_.back() * scale_ * std::pow(2.0, std::max(0.0, -level / GAMMA));
}

void ConformalScores::make_room() {
    if (enabled_) scores_.reserve(SCORES);
    if (!coverages_.empty()) ordered_.reserve(SCORES);
}

void ConformalScores::add(double error, bool number) {
    if (!enabled_) return;
    for (std::size_t i = 0; i < coverages_.size(); ++i) {
        Coverage& one = coverages_[i];
        const double missed = error > reach(i) ? 1.0 : 0.0;
        one.level = std::min(one.level - GAMMA * (missed - (1.0 - one.coverage)), 1.0 + GAMMA);
        one.learned += 1.0;
        one.covered += 1.0 - missed;
    }
    if (!number)
        scale_ = 1.0;
    else if (scale_ == 0.0)
        scale_ = error;  // the first error, or the first after nothing but exact predictions
    const double score = scale_ > 0.0 ? std::min(error / scale_, LARGEST_SCORE) : 0.0;
    if (scores_.size() < SCORES) {
        scores_.push_back(score);
    } else {
        if (!coverages_.empty())
            ordered_.erase(std::lower_bound(ordered_.begin(), ordered_.end(), scores_[next_]));
        scores_[next_] = score;
    }
    if (!coverages_.empty())
        ordered_.insert(std::upper_bound(ordered_.begin(), ordered_.end(), score), score);
    next_ = next_ + 1 < SCORES ? next_ + 1 : 0;
    if (number) {
        numbers_ = true;
        count_ = std::min(count_ + 1.0, SCALE_ROWS);
        scale_ += (error - scale_) / count_;
    }
}

void ConformalScores::visit(Archive& archive) {
    const std::string name = "intervals";
    archive.list(name + ".scores", scores_, SCORES);
    Vector flat;
    for (const auto& one : coverages_)
        flat.insert(flat.end(), {one.coverage, one.level, one.learned, one.covered});
    archive.list(name + ".coverages", flat, 4 * MOST_COVERAGES);
    double numbers = numbers_ ? 1.0 : 0.0, next = static_cast<double>(next_);
    archive.number(name + ".numbers", numbers);
    archive.number(name + ".next", next);
    archive.number(name + ".scale", scale_, Rule::not_negative);
    archive.number(name + ".count", count_, Rule::not_negative);
    if (!archive.reading()) return;
    archive.require(enabled_ || (scores_.empty() && flat.empty()), name, "empty for this model");
    archive.require_whole(numbers, 0.0, 1.0, name + ".numbers");
    archive.require_whole(next, 0.0, SCORES - 1.0, name + ".next");
    const bool full = scores_.size() == SCORES;
    archive.require(full || static_cast<std::size_t>(next) == scores_.size(), name + ".next",
                    "the number of scores");
    archive.require(count_ <= SCALE_ROWS, name + ".count", "at most 100");
    archive.require(flat.size() % 4 == 0, name + ".coverages", "four numbers for each coverage");
    numbers_ = numbers != 0.0;
    next_ = static_cast<std::size_t>(next);
    coverages_.clear();
    for (std::size_t i = 0; i + 4 <= flat.size(); i += 4) {
        const Coverage one{flat[i], flat[i + 1], flat[i + 2], flat[i + 3]};
        const bool twice = std::any_of(coverages_.begin(), coverages_.end(), [&](const auto& two) {
            return two.coverage == one.coverage;
        });
        archive.require(one.coverage > 0.0 && one.coverage < 1.0 && !twice, name + ".coverages",
                        "different from each other and between 0 and 1");
        archive.require(one.covered >= 0.0 && one.covered <= one.learned, name + ".coverages",
                        "with no more rows covered than learned");
        coverages_.push_back(one);
    }
    ordered_.clear();
    if (!coverages_.empty()) {
        ordered_ = scores_;
        std::sort(ordered_.begin(), ordered_.end());
        ordered_.reserve(SCORES);
    }
}

}  // namespace obax
