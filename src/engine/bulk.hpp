// Many rows of a call: where they are, and what became of them.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>

#include "model.hpp"
#include "python_arrays.hpp"
#include "spec.hpp"

namespace obax {

// Rows of a dense array with any strides, or of CSR arrays. Offsets and indices of the latter are
// checked when it is made.
class BulkRows {
  public:
    explicit BulkRows(const Doubles2D& values)
        : values_(values.data()),
          rows_(values.shape(0)),
          columns_(values.shape(1)),
          row_stride_(values.stride(0)),
          stride_(values.stride(1)) {}

    BulkRows(const Integers& begins, const Integers& index, const Contiguous& values)
        : values_(values.data()), rows_(0), columns_(0), row_stride_(0), stride_(1) {
        if (begins.shape(0) < 1 || index.shape(0) != values.shape(0))
            throw std::invalid_argument("sparse rows need offsets, and as many indices as values.");
        rows_ = begins.shape(0) - 1;
        begins_.assign(begins.data(), begins.data() + begins.size());
        const auto end = static_cast<std::int64_t>(values.shape(0));
        for (std::size_t i = 0; i <= rows_; ++i)
            if (begins_[i] < (i > 0 ? begins_[i - 1] : 0) || begins_[i] > end)
                throw std::invalid_argument("offsets of sparse rows must not decrease.");
        index_.resize(index.size());
        for (std::size_t i = 0; i < index.size(); ++i) {
            const std::int64_t at = index.data()[i];
            index_[i] = at < 0 || at > std::numeric_limits<std::int32_t>::max()
                            ? -1
                            : static_cast<std::int32_t>(at);
        }
    }

    std::size_t size() const { return rows_; }

    RawRow operator[](std::size_t i) const {
        if (begins_.empty())
            return {values_ + static_cast<std::ptrdiff_t>(i) * row_stride_, stride_, nullptr,
                    columns_};
        const auto begin = static_cast<std::size_t>(begins_[i]);
        return {values_ + begin, 1, index_.data() + begin,
                static_cast<std::size_t>(begins_[i + 1]) - begin};
    }

  private:
    const double* values_;
    std::size_t rows_, columns_;
    std::ptrdiff_t row_stride_, stride_;
    std::vector<std::int64_t> begins_;
    std::vector<std::int32_t> index_;
};

inline bool is_extreme(const RawRow& raw) {
    for (std::size_t i = 0; i < raw.size; ++i)
        if (std::abs(raw.value(i)) > LARGEST) return true;
    return false;
}

// Says a few times a second that it is time to look for signals.
class Clock {
  public:
    // `cost` is that of a row, in multiplications: of cheap rows some are taken between two looks.
    explicit Clock(double cost) : rows_(cost > 1e6 ? 1 : 8) {}

    bool is_time() { return ++calls_ % rows_ == 0 && is_time_now(); }

    bool is_time_now() {
        const auto now = std::chrono::steady_clock::now();
        if (now - last_ < std::chrono::milliseconds(50)) return false;
        last_ = now;
        return true;
    }

  private:
    std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
    unsigned rows_, calls_ = 0;
};

// What became of the rows of a call.
class Bulk {
  public:
    Bulk(std::size_t rows, std::size_t columns, std::size_t trail)
        : status(new std::uint8_t[rows + 1]()),
          loss(new double[rows + 1]()),
          reach(new double[rows + 1]()),
          rows_(rows),
          columns_(columns),
          width_(trail),
          predictions_(new double[rows * columns + 1]()),
          trails_(new double[rows * trail + 1]) {
        std::fill_n(trails_.get(), rows * trail, std::numeric_limits<double>::quiet_NaN());
    }

    std::unique_ptr<std::uint8_t[]> status;
    std::unique_ptr<double[]> loss, reach;

    void write_prediction(std::size_t row, View prediction) {
        const std::size_t count = std::min(prediction.size(), columns_);
        std::copy_n(prediction.begin(), count, predictions_.get() + row * columns_);
    }

    // x and shares after the row, in the layout of the last plan of the call.
    void write_trail(std::size_t row, const Model& model, const Plan& last) {
        if (width_ == 0) return;
        const Plan& now = *model.plan();
        trail_.resize(now.trail);
        model.write_trail(trail_);
        double* out = trails_.get() + row * width_;
        for (std::size_t i = 0; i < HYPERPARAMETERS; ++i)
            for (std::size_t j = 0; j < now.spans[i].size(); ++j)
                out[last.spans[i].begin + j] = trail_[now.spans[i].begin + j];
        for (std::size_t i = 0; i < now.trail - now.width; ++i)
            out[last.width + i] = trail_[now.width + i];
    }

    double* prediction_data() { return predictions_.get(); }
    double* trail_data() { return trails_.get(); }

    nanobind::object predictions() { return own(std::move(predictions_), {rows_, columns_}); }

    nanobind::tuple as_tuple() {
        return nanobind::make_tuple(own(std::move(status), {rows_}), own(std::move(loss), {rows_}),
                                    own(std::move(reach), {rows_}), predictions(),
                                    own(std::move(trails_), {width_ > 0 ? rows_ : 0, width_}));
    }

  private:
    std::size_t rows_, columns_, width_;
    std::unique_ptr<double[]> predictions_, trails_;
    Vector trail_;
};

}  // namespace obax
