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
// The prediction is a fixed-share mixture of these (`mixture.hpp`). Numbers are in the target's own
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

    std::vector<MemberWork> members;                  // the linear model, blocks, trees
    std::vector<std::unique_ptr<Workspace>> blocks;
    Vector values;                                    // the features and what correcting trees see
    std::vector<std::uint8_t> bins;                   // of the values
    std::vector<std::uint32_t> leaves;                // a line of TREES for each ensemble
    Vector linear;                                    // the linear mixture's prediction
    Vector mixed;                                     // the prediction of all
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
    explicit AutoMembers(const Plan& plan);
    ~AutoMembers();

    // The mixture's prediction, in the place of the linear model's; false if no member is finite. `able`: whether the linear model's is.
    bool predict(const AutoContext&, const RawRow& raw, View features, bool able, AutoWork& work,
                 Span prediction) const;

    // Learn the row that was predicted last. `doubtful`: the linear members do not learn its target.
    void update(const AutoContext&, const RawRow& raw, double target, double weight,
                const Example& example, bool doubtful, AutoWork& work);

    std::unique_ptr<AutoMembers> resized(const Plan& old, const Plan& now) const;

    // The shares of the linear model, the blocks and the trees.
    const Vector& shares() const { return mixture_.shares(); }
    const std::vector<GradientTrees>& trees() const { return trees_; }

    void visit(Archive& archive);

    static double bytes(const Plan& plan);

  private:
    void predict_trees(const AutoContext&, View features, AutoWork& work) const;
    void score(const AutoContext&, double target, std::size_t label, AutoWork& work) const;
    void learn_trees(const AutoContext&, double target, double weight, AutoWork& work);

    std::vector<std::unique_ptr<Model>> blocks_;  // none where the plan has none
    std::vector<GradientTrees> trees_;
    QuantileBins bins_;
    Mixture linear_;   // of the linear model and the blocks
    Mixture mixture_;  // of all
    double last_target_;
    // Running mean and deviation of a target that is a number. They do not jump: a level that comes
    // back is no glitch.
    RunningMoments target_;
    double base_ = 0;  // what trees on the features alone begin from
};

}  // namespace obax
