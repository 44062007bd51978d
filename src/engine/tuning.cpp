#include "tuning.hpp"

#include <algorithm>
#include <cmath>

namespace obax {

namespace {

// The first steps are 1 + WARM_UP times as long, falling to plain ones.
constexpr double WARM_UP = 20.0, WARM_UP_ROWS = 300.0;
// Decay of the running mean of the hypergradient, and the rows in that of its square. These are
// many: what one change of the stream weighs must not be forgotten before the next, or the small
// slopes in between move x as far as the large ones. Until there are so many it is the last tenth
// of them: what the very first rows weigh, whose standardisation has not settled, must be forgotten.
constexpr double MEAN_DECAY = 0.9, SQUARE_ROWS = 3000.0;
// Rows after which nothing is left of the start in the running mean.
constexpr double LONG_AGO = 1000.0;
// A slope counts for at most so many of its running sizes, so that one glitch is not what all later
// slopes are measured by.
constexpr double LARGEST_SLOPE = 30.0;

}  // namespace

TunedHyperparameters::TunedHyperparameters(const Plan& plan)
    : x_(plan.spec.start()), mean_(plan.entries.size(), 0.0), square_(plan.entries.size(), 0.0) {}

void TunedHyperparameters::step(const Plan& plan, View slopes, double rows) {
    const double plain = plan.spec.step_size;
    const double rate = plain * (1.0 + WARM_UP / (1.0 + rows / WARM_UP_ROWS));
    const double mean_share = rows < LONG_AGO ? 1.0 - std::pow(MEAN_DECAY, rows + 1.0) : 1.0;
    const double square_share = std::max(1.0 / SQUARE_ROWS, 10.0 / (rows + 10.0));
    for (std::size_t j = 0; j < plan.entries.size(); ++j) {
        const std::size_t at = plan.entries[j];
        double slope = slopes[j];
        if (rows >= WARM_UP_ROWS && square_[j] > 0.0) {
            const double most = LARGEST_SLOPE * std::sqrt(square_[j]);
            slope = std::min(std::max(slope, -most), most);
        }
        mean_[j] = MEAN_DECAY * mean_[j] + (1.0 - MEAN_DECAY) * slope;
        square_[j] += square_share * (slope * slope - square_[j]);
        const double size = std::sqrt(square_[j]) + 1e-12;
        // While there are fewer rows than waves, a bandwidth at which no row is like another looks
        // best: the bandwidth does not hurry there.
        const double by = plan.is(at, BANDWIDTH) ? plain : rate;
        double top = plan.highest[at];
        // There is no more to remember than has been seen, and with a longer memory the slope
        // vanishes: there would be no way back after a change.
        if (plan.is(at, MEMORY))
            top = std::min(top, std::max(x_[at], std::log(rows + WARM_UP_ROWS)));
        const double moved = x_[at] - by * mean_[j] / mean_share / size;
        x_[at] = std::min(std::max(moved, plan.lowest[at]), top);
    }
}

TunedHyperparameters TunedHyperparameters::resized(const Plan& old, const Plan& now,
                                                   bool begun) const {
    TunedHyperparameters larger(now);
    const auto places = x_places(old.spec, now.spec);
    for (std::size_t i = 0; i < places.size(); ++i) larger.x_[places[i]] = x_[i];
    if (begun && now.spans[BANDWIDTH].size() > 0) {
        // In units of the root of the number of features: the waves stay as they were.
        const auto count = [](const Plan& plan) {
            return static_cast<double>(std::max<std::size_t>(1, plan.features));
        };
        larger.x_[now.at(BANDWIDTH)] -= 0.5 * std::log(count(now) / count(old));
    }
    for (std::size_t j = 0; j < old.entries.size(); ++j) {
        const std::size_t place = places[old.entries[j]];
        const auto found = std::lower_bound(now.entries.begin(), now.entries.end(), place);
        if (found == now.entries.end() || *found != place) continue;
        const auto at = static_cast<std::size_t>(found - now.entries.begin());
        larger.mean_[at] = mean_[j];
        larger.square_[at] = square_[j];
    }
    return larger;
}

void TunedHyperparameters::visit(Archive& archive) {
    archive.array("tuned.x", x_, {x_.size()});
    archive.array("tuned.mean", mean_, {mean_.size()});
    archive.array("tuned.square", square_, {square_.size()}, Rule::not_negative);
    for (std::size_t i = 0; i < x_.size(); ++i)
        archive.require(std::abs(x_[i]) < 100.0, "tuned.x", "logarithms of hyperparameters");
}

}  // namespace obax
