// Members beside the linear ones, and the mixture of all of them: `features="auto"`.
//
// The linear model of `model.hpp`, with its own mixture, is the first member here. Beside it stand
//
// - blocks: models of the same kind that see more columns: the last targets, products, waves;
// - ensembles of gradient trees on the features alone;
// - ensembles of gradient trees that correct the linear mixture, that of the linear model and the
//   blocks: its logits are their offset, and they see what the linear model and the lagged one
//   predict, and the last target, beside the features.
//
// The prediction is a fixed-share mixture of these (`mixture.hpp`).
//
// A member that does not earn its cost is put to sleep: it neither predicts nor learns and keeps its
// share among those who do (specialists, Freund et al. 1997), so that the mixture's loss over the
// rows in which a member was awake is bounded by that member's over the same rows. A member's gain
// is how much larger the loss of a row would have been without it. Every so many rows one member
// goes to sleep: the one with the least gain for its cost among those that bring the mixture, and
// the linear mixture if they are blocks, less than a small part of its loss and are by themselves
// no better than the linear mixture by as much, where the running means are two standard errors
// below these limits. Each sleeper saves an equal part of ALLOWANCE times the cost of the linear model, and wakes
// for some rows when it has saved what they cost, or at a drift if it is not in debt: after the
// first rows, members that earn nothing cost at most ALLOWANCE times the linear model on average.
//
// Numbers are in the target's own
// units here, in which trees keep what they know when the target's running mean and deviation jump.
#pragma once

#include "gradient_trees.hpp"
#include "member.hpp"
#include "mixture.hpp"
#include "statistics.hpp"

namespace obax {

class Model;
struct RawRow;
struct Workspace;

// Buffers of the members of one plan.
struct AutoWork {
    explicit AutoWork(const Plan& plan);
    void reset();

    std::vector<MemberWork> members;                  // the linear model, blocks, trees
    std::vector<std::unique_ptr<Workspace>> blocks;
    Vector values;                                    // the features and what correcting trees see
    std::vector<std::uint8_t> bins;                   // of the values
    std::vector<std::uint32_t> leaves;                // a line of TREES for each ensemble
    Vector linear;                                    // the linear mixture's prediction
    Vector mixed;                                     // the prediction of all
    Vector without;                                   // of all but one
    Vector gradient, curvature;
    std::vector<std::size_t> changed;                 // columns with new edges
};

// What the members see of the model around them.
struct AutoContext {
    const Plan& plan;
    const Loss& loss;
    const Vector& frequencies;     // of the classes
    double rows;                   // learned before this one
};

class AutoMembers {
  public:
    // `linear_cost`: multiplications of the linear model for a row.
    AutoMembers(const Plan& plan, double linear_cost);
    ~AutoMembers();

    // The mixture's prediction, in the place of the linear model's; false if no member is finite. `able`: whether the linear model's is.
    bool predict(const AutoContext&, const RawRow& raw, View features, bool able, AutoWork& work,
                 Span prediction) const;

    // Learn the row that was predicted last. `doubtful`: the linear members do not learn its target.
    void update(const AutoContext&, const RawRow& raw, double target, double weight,
                const Example& example, bool doubtful, AutoWork& work);

    std::unique_ptr<AutoMembers> resized(const Plan& old, const Plan& now,
                                         double linear_cost) const;

    // The shares of the linear model, the blocks and the trees among those that are awake.
    Vector shares() const;
    bool asleep(std::size_t member) const { return rests_[member].asleep; }
    // Multiplications of each of them for a row.
    const Vector& costs() const { return costs_; }
    const std::vector<GradientTrees>& trees() const { return trees_; }

    void visit(Archive& archive);

    static double bytes(const Plan& plan);

  private:
    struct RunningMean {
        double mean = 0, square = 0;

        void add(double value, double rows);
        // What the mean may be: two standard errors above it.
        double at_most(double rows) const;
    };

    // When a member sleeps, and what it earns.
    struct Rest {
        bool asleep = false;
        double since = 0;  // rows since it woke, or began
        double saved = 0;  // multiplications
        RunningMean gain;    // its gain,
        RunningMean within;  // a block's in the linear mixture,
        RunningMean ahead;   // and the linear mixture's loss less its own
    };

    void note_gains(const AutoContext&, double target, std::size_t label, AutoWork& work);
    void move_rests(const AutoContext&);
    void wake(std::size_t member);
    double gain_of(const AutoContext&, const AutoWork& work, const Mixture& mixture,
                   std::size_t member, View mixed, double target, std::size_t label,
                   Span without) const;
    double loss_of(const AutoContext&, View prediction, double target, std::size_t label) const;
    void predict_trees(const AutoContext&, View features, AutoWork& work) const;
    void score(const AutoContext&, double target, std::size_t label, AutoWork& work) const;
    void learn_trees(const AutoContext&, double target, double weight, AutoWork& work);

    std::vector<std::unique_ptr<Model>> blocks_;  // none where the plan has none
    std::vector<GradientTrees> trees_;
    QuantileBins bins_;
    Mixture linear_;   // of the linear model and the blocks
    Mixture mixture_;  // of all
    std::vector<Rest> rests_;
    Vector costs_;
    double loss_ = 0, recent_loss_ = 0, loss_square_ = 0;  // running means of the mixture's loss
    double linear_loss_ = 0;                               // and of the linear mixture's
    double until_check_ = 0, since_drift_ = 0;
    double last_target_;
    // Running mean and deviation of a target that is a number. They do not jump: a level that comes
    // back is no glitch.
    RunningMoments target_;
    double base_ = 0;  // what trees on the features alone begin from
};

}  // namespace obax
