// The leader's step: x, the logarithms of the hyperparameters, moves along the hypergradient.
#pragma once

#include "archive.hpp"
#include "plan.hpp"

namespace obax {

// x with running means of its hypergradient and of the square of that.
class TunedHyperparameters {
  public:
    explicit TunedHyperparameters(const Plan& plan);

    // One step along the running mean of the hypergradient in units of its running size, so that a
    // start that is five orders of magnitude off is left as fast as any other. `rows` were learned
    // before this one.
    void step(const Plan& plan, View slopes, double rows);

    // The same in a larger spec, or in one that learns others: a hyperparameter that is learned from
    // now on begins where it stands.
    TunedHyperparameters resized(const Plan& old, const Plan& now, bool begun) const;

    const Vector& x() const { return x_; }
    void visit(Archive& archive);

  private:
    Vector x_;             // of all hyperparameters
    Vector mean_, square_;  // of the learned entries
};

}  // namespace obax
