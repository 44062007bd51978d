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
// Members that do not earn their cost sleep: they neither predict nor learn and keep their share
// among those who do (specialists, Freund et al. 1997), so that the mixture's loss over the rows in
// which a member was awake is bounded by that member's over the same rows. Now and then
//
// - all trees go to sleep if the mixture's loss is not below the linear mixture's by a small part;
// - a tree goes to sleep if its own share is negligible;
// - a block goes to sleep if neither mixture would lose by a small part without it and no trees are
//   awake that see it.
//
// Who sleeps saves an equal part of ALLOWANCE times the cost of the linear model, and wakes for some
// rows when it has saved what they cost, or at a drift if it is not in debt. So members that earn
// nothing cost on average at most ALLOWANCE times the linear model, once the first rows are over. Trees that
// were awake for long have the benefit of one standard error of doubt.
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

    // See `Model::begin_with_zeros`.
    void begin_with_zeros(std::size_t feature, std::size_t sibling);

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
    // When a member sleeps, and running means of what it earns since it woke.
    struct Rest {
        bool asleep = false;
        double since = 0;   // rows
        double saved = 0;   // multiplications
        double share = 0;   // its share
        double gain = 0;    // how much larger the loss would have been without it,
        double within = 0;  // and, of a block, that of the linear mixture
    };

    void note_gains(const AutoContext&, double target, std::size_t label, AutoWork& work);
    void move_rests(const AutoContext&);
    void wake_members(bool drift);
    void put_to_sleep();
    bool trees_awake() const;
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
    double linear_loss_ = 0, linear_square_ = 0;  // of the linear mixture's, and its squared error,
    double benefit_ = 0, benefit_square_ = 0, benefit_rows_ = 0;  // and of what trees take from it
    double until_check_ = 0, since_drift_ = 0;
    double last_target_;
    // Running mean and deviation of a target that is a number. They do not jump: a level that comes
    // back is no glitch.
    RunningMoments target_;
    double base_ = 0;  // what trees on the features alone begin from
};

}  // namespace obax
