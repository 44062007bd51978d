// Running means and variances of features and target, and class frequencies.
//
// A glitch (a -9999, a target of 1e9) must not spoil them, and a jump must be believed. Values that
// the statistics cannot judge are put aside and judged together, by median and median deviation:
// the first values of a stream, and values so far off that the model does not see them, once enough
// of them came in a row.
#pragma once

#include <array>

#include "archive.hpp"

namespace obax {

// Standardised features and targets are cut off at this many deviations.
inline constexpr double CLIP = 10.0;
// Values beyond it are not learned.
inline constexpr double LARGEST = 1e15;
// Values put aside before they are judged.
inline constexpr std::size_t DOUBTFUL_VALUES = 10;
// So many targets in a row that are cut off are a jump.
inline constexpr std::size_t JUMP = 3;
// Rows until the running mean and variance are trusted.
inline constexpr double TRUSTED_ROWS = 30.0;

// Deviations from the mean, cut off; 0 for a missing value, an extreme one and a constant.
double standardise(double value, double mean, double variance);

// A running mean and variance, which one value moves by a few deviations at most.
struct RunningMoments {
    double count = 0, mean = 0, variance = 0;

    void add(double value, double memory);
    double standardise(double value) const { return obax::standardise(value, mean, variance); }
};

// The same, with doubtful values put aside.
class GuardedMoments {
  public:
    // Returns false where values differ by less than the square root of the smallest double, so
    // that their variance is lost.
    bool add(double value, double memory, std::size_t enough);

    // Without putting anything aside.
    void add_unguarded(double value, double memory) { moments_.add(value, memory); }

    // The standardised value; 0 for one that is cut off and may be a glitch or a jump.
    double standardise_unless_doubtful(double value) const;

    // What they would be if every value so far had been 0.
    GuardedMoments of_zeros() const;

    const RunningMoments& moments() const { return moments_; }

    static constexpr std::size_t NUMBERS = 5 + DOUBTFUL_VALUES;
    // All numbers in a line, for archives.
    void write(Span line) const;
    void read(View line);

  private:
    RunningMoments moments_;
    double waiting_ = 0;   // values put aside; less than 0 for the first ones of a stream
    double farthest_ = 0;  // the largest distance from the mean so far
    std::array<double, DOUBTFUL_VALUES> values_{};
};

// Checks a line of GuardedMoments that is read from a file.
void check_guarded(const Archive& archive, View line, const std::string& name, std::size_t enough);

// Counts of classes; beyond the memory they fade.
struct ClassFrequencies {
    Vector counts;

    void add(std::size_t label, double memory);
    // How much more a row of a class counts than in a stream where all are as frequent.
    double rarity(std::size_t label) const;
};

}  // namespace obax
