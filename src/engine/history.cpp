#include "history.hpp"

#include <algorithm>

namespace obax {

namespace {

// Room for more numbers, twice as many as often as it takes, but never more than there can be.
void reserve_more(Vector& values, std::size_t more, std::size_t most) {
    const std::size_t needed = values.size() + more;
    if (needed > values.capacity()) values.reserve(std::max(needed, std::min(2 * needed, most)));
}

}  // namespace

bool History::add_loss(double loss) {
    learned_ += 1.0;
    total_ += loss;
    sum_ += loss;
    pending_ += 1.0;
    return pending_ >= stride_;
}

void History::make_room() {
    reserve_more(rows_, 1, points_);
    reserve_more(losses_, 1, points_);
    reserve_more(trails_, width_, points_ * width_);
}

void History::add_point(View trail) {
    rows_.push_back(learned_);
    losses_.push_back(sum_ / stride_);
    trails_.insert(trails_.end(), trail.begin(), trail.end());
    sum_ = pending_ = 0.0;
    if (rows_.size() < points_) return;
    const std::size_t half = points_ / 2;
    for (std::size_t i = 0; i < half; ++i) {
        rows_[i] = rows_[2 * i + 1];
        losses_[i] = (losses_[2 * i] + losses_[2 * i + 1]) / 2.0;
        std::copy_n(trails_.begin() + (2 * i + 1) * width_, width_, trails_.begin() + i * width_);
    }
    rows_.resize(half);
    losses_.resize(half);
    trails_.resize(half * width_);
    stride_ *= 2.0;
}

History History::widened(std::size_t width, const std::vector<std::size_t>& places) const {
    History wide(*this);
    wide.width_ = width;
    wide.trails_.assign(size() * width, std::numeric_limits<double>::quiet_NaN());
    for (std::size_t i = 0; i < size(); ++i)
        for (std::size_t j = 0; j < width_; ++j)
            if (places[j] < width)
                wide.trails_[i * width + places[j]] = trails_[i * width_ + j];
    return wide;
}

void History::visit(Archive& archive) {
    archive.number("history.stride", stride_);
    archive.number("history.learned", learned_);
    archive.number("history.total", total_);
    archive.number("history.sum", sum_);
    archive.number("history.pending", pending_);
    archive.list("history.rows", rows_, points_ - 1);
    archive.list("history.losses", losses_, points_ - 1);
    archive.list("history.trails", trails_, (points_ - 1) * width_, Rule::missing_allowed);
    if (!archive.reading()) return;
    constexpr double most = 9007199254740992.0;  // 2^53
    archive.require_whole(stride_, 1.0, most, "history.stride");
    archive.require_whole(learned_, 0.0, most, "history.learned");
    archive.require_whole(pending_, 0.0, stride_ - 1.0, "history.pending");
    archive.require(losses_.size() == rows_.size() && trails_.size() == rows_.size() * width_,
                    "history", "as many losses and hyperparameters as rows");
    for (double row : rows_) archive.require_whole(row, 0.0, learned_, "history.rows");
}

void LastTargetBaseline::visit(Archive& archive) {
    archive.number("last_target.last", last, Rule::missing_allowed);
    archive.number("last_target.repeated", repeated, Rule::not_negative);
    archive.number("last_target.total_loss", total_loss);
}

}  // namespace obax
