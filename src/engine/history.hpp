// How losses and hyperparameters went, in bounded memory.
#pragma once

#include <limits>

#include "archive.hpp"

namespace obax {

// The mean loss of every `stride` rows, and x with the members' shares at the end of each such
// stretch. When it is full every other point goes and the points stand twice as far apart.
class History {
  public:
    History(std::size_t width, std::size_t points) : width_(width), points_(points) {}

    // Take the memory that the next row needs, so that `add` cannot fail.
    void make_room();

    // Note a row that was learned; `trail` gives the numbers to note and is called if need be.
    template <class Trail>
    void add(double loss, const Trail& trail) {
        if (add_loss(loss)) add_point(trail());
    }

    // The same history where the noted numbers stand at `places` of wider lines.
    History widened(std::size_t width, const std::vector<std::size_t>& places) const;

    double rows_learned() const { return learned_; }
    double total_loss() const { return total_; }
    double stride() const { return stride_; }
    std::size_t width() const { return width_; }
    std::size_t size() const { return rows_.size(); }
    const Vector& rows() const { return rows_; }
    const Vector& losses() const { return losses_; }
    const Vector& trails() const { return trails_; }
    void visit(Archive& archive);

  private:
    bool add_loss(double loss);
    void add_point(View trail);

    std::size_t width_, points_;
    double stride_ = 1, learned_ = 0, total_ = 0;
    double sum_ = 0, pending_ = 0;  // losses and rows since the last point
    Vector rows_, losses_, trails_;
};

// The loss of predicting each target by the last one. For classes the last label has the probability
// of being repeated that the rows so far give, (repeats + 1) / (rows + 2).
struct LastTargetBaseline {
    double last = std::numeric_limits<double>::quiet_NaN();
    double repeated = 0, total_loss = 0;

    void visit(Archive& archive);
};

}  // namespace obax
