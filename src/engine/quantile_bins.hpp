// Running quantile bins of the columns of a stream.
//
// A column keeps a sample of its values: all of the first ones, then each new value takes the place
// of a random one, so that the sample forgets like the running means do. The edges of the bins are
// quantiles of the sample, or lie between its values where these are few. They are made anew when
// the sample has left them, not for every value: what was counted by bin is lost then.
#pragma once

#include <cstdint>

#include "archive.hpp"

namespace obax {

// A random number from 0 up to 1 that depends on nothing but its arguments.
double hashed_uniform(std::uint64_t seed, std::uint64_t a, std::uint64_t b);

class QuantileBins {
  public:
    static constexpr std::size_t BINS = 32;  // MISSING is one more
    static constexpr std::size_t MISSING = BINS;
    // Values of a column until it has edges.
    static constexpr std::size_t FIRST_VALUES = 200;

    explicit QuantileBins(std::size_t columns) : columns_(columns) {}

    std::size_t columns() const { return columns_.size(); }
    // Of each value its bin; MISSING for one that is not a number.
    void find(View values, std::uint8_t* bins) const;
    // Take a row in; return whether edges changed, of the columns in `changed`.
    bool add(View values, std::vector<std::size_t>& changed);

    std::size_t bins(std::size_t column) const { return columns_[column].edges.size() + 1; }
    // Values in the bin are above `low`, where there is one, and not above `high`.
    double low(std::size_t column, std::size_t bin) const;
    double high(std::size_t column, std::size_t bin) const;
    // Whether each bin is one of a few values, such as codes of categories.
    bool distinct(std::size_t column) const { return columns_[column].distinct; }

    // The same with the old columns at `places`.
    QuantileBins resized(const std::vector<std::size_t>& places, std::size_t columns) const;
    void visit(Archive& archive, const std::string& name);

    static double bytes_per_column();

  private:
    static constexpr std::size_t SAMPLE = 256;

    struct Column {
        double seen = 0;
        Vector sample;  // in the order of coming
        Vector edges;   // increasing
        Vector below;   // the share of the sample up to each edge when the edges were made
        bool distinct = false;

        bool learn(double value, std::size_t number);
        void make_edges(const Vector& sorted);
        bool has_left_edges(const Vector& sorted) const;
    };

    std::vector<Column> columns_;
};

}  // namespace obax
