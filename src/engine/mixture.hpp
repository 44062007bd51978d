// Fixed-share mixture of experts.
//
// Member i has share w_i and gave the target the probability (for regression: the density) p_i:
//
//     mixture = sum_i w_i p_i,      w_i <- (1 - share) w_i p_i / mixture + share / N.
//
// For classes the log loss of the mixture is -ln mixture. With share = 0 the losses telescope: after
// any rows of any stream their sum is at most ln N above that of the best member. With share > 0 it
// is at most
//
//     (k + 1) ln N + k ln(1 / share) + (T - k - 1) ln(1 / (1 - share))
//
// above that of the best sequence of members with k switches in T rows (Herbster and Warmuth 1998).
// For numbers p_i = exp(-loss_i / scale) with the loss in deviations of the target; scale is the
// least running mean of twice the loss among the members, known before the row: for squared loss a
// Gaussian around the member's prediction with the residual variance of the best member. The
// prediction is the mean under the shares. The bounds then hold for the log score of the mixture's
// density; for the squared error of its mean they hold where members err by less than a deviation
// of the residuals (exp-concavity).
//
// A member whose prediction is not finite sits out: the others predict without it and it keeps its
// share, as if it had predicted what they did (Freund et al. 1997).
#pragma once

#include "archive.hpp"

namespace obax {

struct MemberWork;

class Mixture {
  public:
    // A `cautious` one gives a number p_i = exp(-0.05 squared error_i / scale), with the running
    // mean of the squared error, of 1,000 rows, as scale. It is exp-concave, and the bounds hold for
    // the squared error of its mean, where no member errs by more than the root of 10 scales.
    Mixture(std::size_t members, bool regression, bool cautious = false);

    // The members' mean prediction under the shares; false if no member is finite.
    bool predict(const std::vector<MemberWork>& members, Span out) const;

    // Move the shares once the target is known. `weight` is that of the row; above 1 it counts as 1,
    // so that the bound holds for losses times min(weight, 1).
    void update(std::vector<MemberWork>& members, double weight, double share);

    // Likelihoods of a number from the members' losses, which also enter the running means.
    void set_densities(std::vector<MemberWork>& members, double rows);

    // Shares and counts of a mixture with these members, now at `places`, among `count`.
    Mixture resized(const std::vector<std::size_t>& places, std::size_t count) const;

    const Vector& shares() const { return shares_; }
    void count_sat_out(std::size_t member) { sat_out_[member] += 1.0; }
    void visit(Archive& archive);

  private:
    bool cautious_;
    Vector shares_;
    Vector residuals_;  // running mean of twice the loss of each member, for regression
    Vector sat_out_;    // rows in which a member could not take part
};

}  // namespace obax
