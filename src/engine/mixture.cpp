#include "mixture.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "member.hpp"

namespace obax {

namespace {

// Shares do not fall below it, so that they cannot be lost to underflow: over 1e12 rows that is
// 1e-288 in the bound.
constexpr double LEAST_SHARE = 1e-300;
// The memory of the running means of the losses.
constexpr double RESIDUAL_ROWS = 100.0, CAUTIOUS_ROWS = 1000.0;
// By which a loss counts in units of the running mean of the squared error: 0.05 of that error.
constexpr double CAUTIOUS_RATE = 0.1;
constexpr double LEAST_RESIDUAL = 1e-12, LEAST_LOSS = 1e-300;
// Rows until a cautious mixture moves its shares.
constexpr double TRUSTED_LOSSES = 10.0;

}  // namespace

Mixture::Mixture(std::size_t members, bool regression, bool cautious)
    : cautious_(cautious),
      shares_(members, 1.0 / static_cast<double>(members)),
      residuals_(regression ? members : 0, cautious ? 0.0 : 1.0),
      sat_out_(members, 0.0) {}

bool Mixture::predict(const std::vector<MemberWork>& members, Span out) const {
    double total = 0.0;
    for (std::size_t i = 0; i < shares_.size(); ++i)
        if (members[i].awake) total += shares_[i];
    std::fill(out.begin(), out.end(), 0.0);
    if (!(total > 0.0)) return false;
    for (std::size_t i = 0; i < shares_.size(); ++i) {
        if (!members[i].awake) continue;
        const double by = shares_.size() == 1 ? 1.0 : shares_[i] / total;
        for (std::size_t c = 0; c < out.size(); ++c) out[c] += by * members[i].prediction[c];
    }
    return true;
}

void Mixture::update(std::vector<MemberWork>& members, double weight, double share) {
    if (weight < 1.0) {
        double top = 0.0;
        for (const auto& member : members)
            if (member.awake) top = std::max(top, member.likelihood);
        if (top > 0.0)
            for (auto& member : members)
                member.likelihood =
                    member.awake ? std::pow(member.likelihood / top, weight) : 0.0;
    }
    double asleep = 0.0, together = 0.0;
    for (std::size_t i = 0; i < shares_.size(); ++i) {
        if (members[i].awake)
            together += shares_[i] * members[i].likelihood;
        else
            asleep += shares_[i];
    }
    if (!(together > 0.0)) return;
    const double even = share / static_cast<double>(shares_.size());
    for (std::size_t i = 0; i < shares_.size(); ++i) {
        double moved = shares_[i];
        if (members[i].awake)
            moved = (1.0 - asleep) * shares_[i] * members[i].likelihood / together;
        shares_[i] = std::max((1.0 - share) * moved + even, LEAST_SHARE);
    }
}

void Mixture::set_densities(std::vector<MemberWork>& members, double rows) {
    double scale = std::numeric_limits<double>::infinity(), least = scale;
    for (std::size_t i = 0; i < shares_.size(); ++i) {
        if (!members[i].awake) continue;
        if (residuals_[i] > 0.0) scale = std::min(scale, residuals_[i]);
        least = std::min(least, members[i].loss);
    }
    // A few losses do not tell how large they are where nothing is known of their unit.
    const bool known = !cautious_ || (rows >= TRUSTED_LOSSES && std::isfinite(scale));
    const double rate = cautious_ ? CAUTIOUS_RATE : 1.0;
    const double by = cautious_ ? 1.0 / std::min(rows + 1.0, CAUTIOUS_ROWS)
                                : 1.0 / std::min(rows + 2.0, RESIDUAL_ROWS);
    for (std::size_t i = 0; i < shares_.size(); ++i) {
        MemberWork& member = members[i];
        member.likelihood = 0.0;
        if (!member.awake) continue;
        member.likelihood = known ? std::exp(rate * (least - member.loss) / scale) : 1.0;
        if (!(residuals_[i] > 0.0))
            residuals_[i] = std::isfinite(scale) ? scale : 2.0 * member.loss;
        residuals_[i] += by * (2.0 * member.loss - residuals_[i]);
        residuals_[i] = std::max(residuals_[i], cautious_ ? LEAST_LOSS : LEAST_RESIDUAL);
    }
}

Mixture Mixture::resized(const std::vector<std::size_t>& places, std::size_t count) const {
    Mixture mixture(count, !residuals_.empty(), cautious_);
    // A member that is new gets the share of one among all.
    const double left = static_cast<double>(places.size()) / static_cast<double>(count);
    for (std::size_t i = 0; i < places.size(); ++i) {
        mixture.shares_[places[i]] = places.size() == count ? shares_[i] : left * shares_[i];
        mixture.sat_out_[places[i]] = sat_out_[i];
        if (!residuals_.empty()) mixture.residuals_[places[i]] = residuals_[i];
    }
    return mixture;
}

void Mixture::visit(Archive& archive) {
    archive.array("shares", shares_, {shares_.size()}, Rule::not_negative);
    archive.array("residuals", residuals_, {residuals_.size()}, Rule::not_negative);
    archive.array("sat_out", sat_out_, {sat_out_.size()}, Rule::not_negative);
    double total = 0.0;
    for (double share : shares_) total += share;
    archive.require(total > 0.5 && total < 1.5, "shares", "shares of the members");
}

}  // namespace obax
