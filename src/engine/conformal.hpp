// Prediction intervals with a coverage that holds on any stream: adaptive conformal inference (Gibbs
// and Candes 2021).
//
// A row that is learned leaves a score: the error of its prediction, |target - prediction| in units
// of a running mean of that, or 1 - the probability of the class that came. `reach` is the error up
// to which the next prediction is covered: the (1 - level) quantile of the last 500 scores. For each
// coverage in use the level, which begins at 1 - coverage, moves with every row that is learned,
//
//     level <- level - GAMMA (missed - (1 - coverage)),
//
// so that misses widen the next interval and the lack of them narrows it. Summed over any T rows,
// misses differ from (1 - coverage) T by (first level - last level) / GAMMA, whatever the stream
// does. From level 1 on the set of classes is empty, so every row is missed; below 0 it holds all
// classes and no row is. Levels stay within [-GAMMA, 1 + GAMMA], so that over any 2,000 rows the
// coverage is within 1.06 / (2000 GAMMA) = 1.8 points. For numbers each further miss below 0 doubles
// the reach, which costs one more miss for each doubling of errors from one row to the next.
#pragma once

#include "archive.hpp"

namespace obax {

// Coverages in use at the same time.
inline constexpr std::size_t MOST_COVERAGES = 16;

struct Coverage {
    double coverage, level, learned, covered;
};

class ConformalScores {
  public:
    explicit ConformalScores(bool enabled) : enabled_(enabled) {}

    // The position of a coverage, which is kept from now on; MOST_COVERAGES if there is no room.
    std::size_t keep(double coverage);

    // The largest error that is covered now; infinite before the first score, negative where not
    // even a certain class is in the set.
    double reach(std::size_t position) const;

    // Take the memory that scores need, so that `add` cannot fail.
    void make_room();

    // The error of a prediction whose row is learned now, of a number or of a class.
    void add(double error, bool number);

    const std::vector<Coverage>& coverages() const { return coverages_; }
    void visit(Archive& archive);

  private:
    bool enabled_;
    bool numbers_ = false;
    double scale_ = 0;  // running mean of the errors of a regression
    double count_ = 0;  // rows in it
    std::size_t next_ = 0;
    Vector scores_;   // in the order in which they came; a ring once it is full
    Vector ordered_;  // the same in increasing order, while a coverage is in use
    std::vector<Coverage> coverages_;
};

}  // namespace obax
