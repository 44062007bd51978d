// Vectors, matrices and views of them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace obax {

using Vector = std::vector<double>;
using Span = std::span<double>;
using View = std::span<const double>;

// A matrix of doubles, stored row by row.
class Matrix {
  public:
    Matrix() = default;
    Matrix(std::size_t rows, std::size_t columns)
        : rows_(rows), columns_(columns), values_(rows * columns) {}

    std::size_t rows() const { return rows_; }
    std::size_t columns() const { return columns_; }
    Span operator[](std::size_t row) { return {values_.data() + row * columns_, columns_}; }
    View operator[](std::size_t row) const { return {values_.data() + row * columns_, columns_}; }
    Span flat() { return values_; }
    View flat() const { return values_; }
    double* data() { return values_.data(); }
    const double* data() const { return values_.data(); }

  private:
    std::size_t rows_ = 0;
    std::size_t columns_ = 0;
    Vector values_;
};

}  // namespace obax
