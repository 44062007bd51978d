// The interface of the members of a mixture, and what they share during a row.
#pragma once

#include <memory>
#include <string>

#include "archive.hpp"
#include "loss.hpp"
#include "plan.hpp"
#include "tuning.hpp"

namespace obax {

// A row as the members get it.
struct Row {
    Vector values;                    // dense: all columns; sparse: the features that are present
    Vector slope;                     // dense: d values / d log bandwidth
    std::vector<std::size_t> places;  // sparse: the cell of each value, the intercept's (0) first
};

// A target that is learned.
struct Example {
    double target;          // the label, or a number in deviations
    std::size_t label;      // 0 for numbers
    double weight;          // of the loss that members learn from
    double outer_weight;    // of the loss that hyperparameters learn from
};

// The buffers of one member. What does not depend on the row is valid while the state stays as it is.
struct MemberWork {
    bool awake = false;    // its prediction of the row is finite
    bool learned = false;  // it could learn the row
    double likelihood = 0, loss = 0;
    double v = 0;        // a' L^-1 a
    Vector z0, outputs;  // outputs before and after moderation
    Vector prediction;   // probabilities of the classes, or a number
    Vector solution;     // sparse: 1 / L of each feature that is present
    Matrix factors;      // dense: of L, or its inverse
    Matrix right;        // the right-hand sides a and ridge y, ...
    Matrix solutions;    // ... and s = L^-1 a and, a line for each output, u = L^-1 (ridge y)
    Matrix centre;       // c = y - u
    bool definite = false;  // L is
    bool centred = false;   // u and c are computed
    Vector ridge;        // the penalty of each column
    double inertia = 0, forgetting = 0;
};

// Buffers that the members use one after the other.
struct Scratch {
    ProximalStep step;
    Vector no_shift, shift;        // of the logits
    Vector gradient;               // -d loss / dz at the prediction
    Vector dz0, dshift, dpull;     // along one entry of x
    Vector pushes;                 // d (weight pull), a line for each learned entry of x
    Vector slopes;                 // of the tuned member's loss, along each learned entry of x
    Vector curvature_slopes;       // how the row's curvature moves along each of them
    Matrix curved, tilted;         // s and u times the curvature; times its derivative
    Matrix moved;                  // dL s along each learned entry of x
    Matrix right, solved;          // right-hand sides and their solutions
    Vector diagonal;               // by which L moves along one entry of x
};

// What members see of the model.
struct Context {
    const Plan& plan;
    const Loss& loss;
    const TunedHyperparameters& tuned;
    double rows;      // learned before this one
    Matrix* cells;    // sparse: a line of numbers for each feature
    Scratch& scratch;
};

class Member {
  public:
    virtual ~Member() = default;

    // Compute what does not depend on the row.
    virtual void prepare(const Context&, MemberWork&) const {}

    // Predict a row into `work.outputs`; false where that is not finite.
    virtual bool predict(const Context&, const Row&, MemberWork&) const = 0;

    // Learn a row that was predicted last; false, and nothing is changed, where something would
    // not be finite.
    virtual bool update(const Context&, const Row&, const Example&, MemberWork&) = 0;

    // Learn the row as it looks after the running statistics have taken it in.
    virtual void update_restandardised(const Context&, const Row&, const Example&, MemberWork&) {}

    virtual std::unique_ptr<Member> copy() const = 0;

    // The same member in a larger model, or in one that learns other hyperparameters, where it
    // stands at `place`.
    virtual std::unique_ptr<Member> resized(const Plan& old, const Plan& now,
                                            std::size_t place) const = 0;

    // All numbers of the member, for saving and loading.
    virtual void visit(Archive&, const std::string& name) = 0;

    // Multiplications for a row with so many values.
    virtual double cost(const Plan& plan, double values) const = 0;
};

}  // namespace obax
