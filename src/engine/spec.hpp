// Sizes and options of a model: what it predicts, what it learns, who its members are.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "loss.hpp"
#include "matrix.hpp"

namespace obax {

// Hyperparameters, in the order in which x holds their logarithms.
enum Hyperparameter { PENALTY, INERTIA, MEMORY, CLASS_WEIGHTS, LOGIT_SHIFTS, BANDWIDTH };
inline constexpr std::size_t HYPERPARAMETERS = 6;
inline constexpr std::array<const char*, HYPERPARAMETERS> HYPERPARAMETER_NAMES = {
    "penalty", "inertia", "memory", "class_weights", "logit_shifts", "bandwidth"};
// Lowest and highest value of each.
inline constexpr std::array<std::pair<double, double>, HYPERPARAMETERS> BOUNDS = {{
    {1e-7, 1e3},
    {1e-3, 1e4},
    {1.0, 1e6},
    {1e-3, 1e3},
    {4.5399929762484854e-05, 22026.465794806718},  // exp(-10), exp(10)
    {0.1, 10.0},
}};

// What the inverse frequency of a row's class multiplies.
enum class Balance { none, leader, all };

// The columns that are computed from the features.
enum class Expansion { linear, fourier, interactions };

// Number of random Fourier features: with 60 the errors of some streams are a tenth larger.
inline constexpr std::size_t WAVES = 90;
// Products are taken of the first 19 features with each other: 190 columns.
inline constexpr std::size_t MULTIPLIED = 19;
// The block of products is there up to so many features.
inline constexpr std::size_t MOST_MULTIPLIED = 9;

struct Range {
    std::size_t begin = 0, end = 0;
    std::size_t size() const { return end - begin; }
};

// A member whose hyperparameters do not move.
struct FrozenMember {
    std::string name;
    double penalty, memory, inertia;
};

// A member that takes gradient steps of a fixed size.
struct GradientSteps {
    std::string name;
    double rate;
};

// An ensemble of gradient trees.
struct TreeMember {
    std::string name;
    double memory;
    bool corrects;  // the linear mixture; otherwise it learns from the features alone
};

// Directions and phases of the random Fourier features. Row i of `directions` belongs to feature i,
// whatever the number of features is.
struct Waves {
    Matrix directions;  // features x WAVES
    Vector phases;
};

struct Spec {
    LossKind loss = LossKind::logistic;
    std::size_t features = 0;
    std::size_t classes = 0;
    bool sparse = false;
    std::array<bool, HYPERPARAMETERS> learned{};
    bool per_feature = false;
    Balance balance = Balance::none;
    std::vector<FrozenMember> frozen;
    std::vector<GradientSteps> gradient_steps;
    Expansion expansion = Expansion::linear;
    std::size_t lags = 0;
    double penalty = 1e-3, memory = 100.0, inertia = 1.0;  // where the tuned member starts
    double step_size = 0.01;       // of the hyperparameters
    double fading = 0.998;         // of the sensitivity
    double scale_memory = 10000;   // rows in the running means of features and target
    double delta = 1.345;          // where Huber's loss becomes linear
    double share = 0.001;          // of the members' weights that is redistributed after a row
    std::size_t history_points = 1024;
    bool intervals = true;         // whether scores for prediction intervals are kept
    std::shared_ptr<const Waves> waves;
    // Members beside the linear ones: models of other columns, and ensembles of trees.
    std::vector<std::string> blocks;
    std::vector<TreeMember> trees;
    double tree_bytes = 33554432;  // of what an ensemble counts
    std::size_t seed = 0;          // of the columns that trees see
    bool restless = false;         // whether no member sleeps

    bool classifies() const { return loss == LossKind::logistic; }
    // Classes that there is room for: two at least; none for regression.
    std::size_t slots() const { return classifies() ? (classes < 2 ? 2 : classes) : 0; }
    // One logit for two classes and for regression, otherwise one for each class.
    std::size_t outputs() const { return slots() > 2 ? slots() : 1; }
    // Numbers in a prediction.
    std::size_t predictions() const { return classifies() ? slots() : 1; }
    // Columns of a row in a dense model: features, 1, lags, then waves or products.
    std::size_t inputs() const;
    std::size_t lag_width() const { return slots() > 0 ? slots() : 1; }
    std::size_t members() const { return 1 + frozen.size() + gradient_steps.size(); }
    std::vector<std::string> member_names() const;
    // Members of the mixture around the linear model, which is the first; 0 where there is none.
    std::size_t auto_members() const {
        const std::size_t beside = blocks.size() + trees.size();
        return beside > 0 ? 1 + beside : 0;
    }
    // The linear members, blocks and trees.
    std::vector<std::string> all_names() const;
    // Where each hyperparameter stands in x.
    Range span(Hyperparameter which) const;
    std::size_t width() const { return span(BANDWIDTH).end; }
    // x and the members' shares: what the history keeps of a row.
    std::size_t trail() const { return width() + all_names().size(); }
    // Entries of x that are learned, in increasing order.
    std::vector<std::size_t> entries() const;
    // How many of them, the first ones, have no derivative of the curvature.
    std::size_t entries_without_curvature() const;
    // x at the start, as logarithms.
    Vector start() const;
    Vector lowest() const;
    Vector highest() const;
    // Whether the member "long" of a sparse model has full curvature.
    bool has_full_member() const { return full_member() > 0; }
    // Its position among the members; 0 where there is none.
    std::size_t full_member() const;
    // Throws std::invalid_argument, naming the field, where a value cannot be.
    void check() const;
};

// For each entry of x of the old spec its place in the new one.
std::vector<std::size_t> x_places(const Spec& old, const Spec& now);
// For each column of a dense row of the old spec its place in the new one.
std::vector<std::size_t> column_places(const Spec& old, const Spec& now);
// For each member of the old spec its place in the new one.
std::vector<std::size_t> member_places(const Spec& old, const Spec& now);
// The same for the linear model, blocks and trees.
std::vector<std::size_t> auto_member_places(const Spec& old, const Spec& now);
// For each entry of a trail of the old spec its place in the new one; NOWHERE if it has none.
inline constexpr std::size_t NOWHERE = static_cast<std::size_t>(-1);
std::vector<std::size_t> trail_places(const Spec& old, const Spec& now);
// The spec of a block, which is a dense model of other columns.
Spec block_spec(const Spec& spec, const std::string& name);
// Whether a model with so many features has this block: products are cheap for a few.
bool has_block(const Spec& spec, const std::string& name);
// How outputs continue when a model with one logit gets one for each class: z becomes -z/2 and z/2.
Vector output_factors(const Spec& old, const Spec& now);

}  // namespace obax
