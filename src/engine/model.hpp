// A streaming model: standardise, test, train, tune, one row after another.
//
// A mixture of members predicts the row; then each member learns it, the members' shares move with
// the likelihood of what they predicted, and the hyperparameters of the tuned member move along the
// hypergradient. One `step` serves dense models (full curvature) and sparse ones (diagonal
// curvature), rows one at a time and in bulk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "auto_members.hpp"
#include "conformal.hpp"
#include "history.hpp"
#include "member.hpp"
#include "mixture.hpp"
#include "statistics.hpp"

namespace obax {

enum class Status : std::uint8_t {
    rejected = 0,  // learning it would have made the model NaN or infinite
    learned = 1,
    extreme = 2,  // a value beyond LARGEST
};

// Values of a row: value i is that of feature i or, where there is an index, of feature index[i];
// negative ones are not known. NaN is missing.
struct RawRow {
    const double* values;
    std::ptrdiff_t stride;
    const std::int32_t* index;
    std::size_t size;

    double value(std::size_t i) const {
        return values[static_cast<std::ptrdiff_t>(i) * stride];
    }
};

// Buffers for models of one plan. What it keeps between rows belongs to one model: `reset` it before
// it is used for another one.
struct Workspace {
    explicit Workspace(const Plan& plan);

    void reset() {
        prepared = predicted = false;
        if (beside) beside->reset();
    }

    std::unique_ptr<Loss> loss;
    std::vector<MemberWork> members;
    std::unique_ptr<AutoWork> beside;  // of the members beside the linear ones
    Scratch scratch;
    Row row;
    Vector raw;                          // values of the row that was read last
    std::vector<std::int32_t> raw_index;  // sparse: and their features
    std::vector<std::pair<std::size_t, double>> ordered;
    Vector trail;
    double mean_output = 0;  // the mixture's prediction of a number, in deviations
    bool prepared = false;   // what follows from the state is computed
    bool predicted = false;  // members have predicted the row that was read last
};

struct Outcome {
    Status status;
    double loss;
};

class Model {
  public:
    explicit Model(PlanPointer plan);
    Model(Model&&) noexcept;
    Model& operator=(Model&&) noexcept;
    ~Model();

    Model copy() const;

    // Predict a row: probabilities of the classes, or a number. False if no member is finite.
    bool predict(const RawRow& raw, Workspace& work, Span prediction) const;

    // Test on a row and, if its weight is not 0, train on it and tune. `target` is a label or a
    // number; NaN for a row that is only predicted.
    // `predicted` is the probability that its class had before the row brought it; NaN for others.
    Outcome step(const RawRow& raw, double target, double weight, Workspace& work,
                 Span prediction,
                 double predicted = std::numeric_limits<double>::quiet_NaN());

    // The same model with more features or classes, other options, or sparse from now on. This one
    // stays as it is.
    Model resized(PlanPointer plan, std::size_t features) const;

    // Features of a sparse model for which no memory has to be allocated.
    bool has_room(std::size_t features) const;
    void set_features(std::size_t features) noexcept { features_ = features; }

    // Make the statistics of a new feature those of one that was 0 whenever `sibling` had a value.
    // A word that comes for the first time was absent from the rows that had another word.
    void begin_with_zeros(std::size_t feature, std::size_t sibling);

    const PlanPointer& plan() const { return plan_; }
    std::size_t features() const { return features_; }
    double rows() const { return rows_; }
    const History& history() const { return history_; }
    const LastTargetBaseline& last_target() const { return last_target_; }
    ConformalScores& scores() { return scores_; }
    const ConformalScores& scores() const { return scores_; }
    // Feature whose values differ too little for a variance in double precision; -2 for the target,
    // -1 for none.
    std::ptrdiff_t underflow() const { return underflow_; }
    const RunningMoments& target_moments() const { return target_.moments(); }
    const AutoMembers* beside() const { return auto_.get(); }
    // x and the members' shares.
    void write_trail(Span out) const;
    // The weights that the tuned member's next prediction uses; features first.
    Matrix centre(Workspace& work) const;

    // All numbers of the model, for saving and loading.
    void visit(Archive& archive);

    // Multiplications for a row with so many values in a model of this plan with the same members.
    double cost(const Plan& plan, std::size_t values) const;

    // Bytes of the state, buffers and a full history of a model with so many features.
    static double bytes(const Plan& plan, std::size_t features);

    // Multiplications of the linear members for a row, about.
    double cost() const;

    // Bytes that the state takes now.
    double state_bytes() const;

  private:
    // A model with these members, for which the others need not be made.
    Model(PlanPointer plan, std::vector<std::unique_ptr<Member>> members);

    Context context(Workspace& work) const;
    AutoContext auto_context(const Workspace& work) const;
    void read(const RawRow& raw, Workspace& work) const;
    bool same_row(const RawRow& raw, const Workspace& work) const;
    void expand(Workspace& work) const;
    void standardise_sparse(Workspace& work) const;
    void learn_statistics(Workspace& work, double target, std::size_t label);
    void compare_with_last_target(Workspace& work, double target, double target_z, double factor,
                                  double loss);
    void move_shares(Workspace& work, const Example& example);
    void learn_restandardised(const Context& context, Workspace& work, double target,
                              const Example& example);
    Outcome finish(Workspace& work, double target, double loss, View prediction);
    double standardised_target(double target) const;
    Model made_sparse(PlanPointer plan, std::size_t features) const;

    PlanPointer plan_;
    std::size_t features_;
    double rows_ = 0;
    TunedHyperparameters tuned_;
    Mixture mixture_;
    std::vector<std::unique_ptr<Member>> members_;
    std::unique_ptr<AutoMembers> auto_;  // none in a model whose members are all linear
    std::vector<GuardedMoments> moments_;  // dense: of each feature
    mutable Matrix cells_;                 // sparse: see sparse.hpp
    GuardedMoments target_;
    ClassFrequencies frequencies_;
    Vector recent_;  // the last targets, the most recent one first, for lags
    History history_;
    LastTargetBaseline last_target_;
    ConformalScores scores_;
    std::ptrdiff_t underflow_ = -1;
};

}  // namespace obax
