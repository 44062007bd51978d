// All sizes that follow from a spec, computed once and shared by the models that have it.
#pragma once

#include <memory>

#include "gradient_trees.hpp"
#include "spec.hpp"

namespace obax {

struct Plan {
    explicit Plan(Spec options);

    Spec spec;
    std::array<Range, HYPERPARAMETERS> spans;
    std::size_t features, inputs, outputs, slots, predictions, members, width, trail;
    bool classifies;
    std::vector<std::size_t> entries;  // of x that are learned
    std::size_t first_curved;          // learned entries before it have no derivative of the curvature
    Vector lowest, highest;            // bounds of x
    std::size_t auto_members;          // the linear model, blocks and trees; or 0
    std::vector<std::shared_ptr<const Plan>> blocks;  // none where it would see too many columns
    std::vector<TreeOptions> trees;
    std::size_t predicted_columns;     // of each linear prediction that correcting trees see
    std::size_t tree_columns;          // features, predictions and the last target

    std::size_t at(Hyperparameter which) const { return spans[which].begin; }
    bool is(std::size_t entry, Hyperparameter which) const {
        return entry >= spans[which].begin && entry < spans[which].end;
    }
};

using PlanPointer = std::shared_ptr<const Plan>;

TreeOptions tree_options(const Plan& plan, std::size_t ensemble);

inline PlanPointer make_plan(Spec spec) {
    spec.check();
    return std::make_shared<const Plan>(std::move(spec));
}

// What correcting trees see of a prediction: the log odds of some classes, or the number.
inline constexpr std::size_t MOST_PREDICTED = 8;
// For each column of the correcting trees of the old plan its place in the new one.
std::vector<std::size_t> tree_column_places(const Plan& old, const Plan& now);

inline Plan::Plan(Spec options)
    : spec(std::move(options)),
      features(spec.features),
      inputs(spec.sparse ? 0 : spec.inputs()),
      outputs(spec.outputs()),
      slots(spec.slots()),
      predictions(spec.predictions()),
      members(spec.members()),
      width(spec.width()),
      trail(spec.trail()),
      classifies(spec.classifies()),
      entries(spec.entries()),
      first_curved(spec.sparse ? 0 : spec.entries_without_curvature()),
      lowest(spec.lowest()),
      highest(spec.highest()),
      auto_members(spec.auto_members()),
      predicted_columns(std::min(outputs, MOST_PREDICTED)),
      tree_columns(auto_members > 0 ? features + 2 * predicted_columns + 1 : 0) {
    for (std::size_t i = 0; i < HYPERPARAMETERS; ++i)
        spans[i] = spec.span(static_cast<Hyperparameter>(i));
    for (const auto& name : spec.blocks)
        blocks.push_back(has_block(spec, name) ? make_plan(block_spec(spec, name)) : nullptr);
    for (std::size_t i = 0; i < spec.trees.size(); ++i)
        trees.push_back(tree_options(*this, i));
}

}  // namespace obax
