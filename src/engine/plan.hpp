// All sizes that follow from a spec, computed once and shared by the models that have it.
#pragma once

#include <memory>

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

    std::size_t at(Hyperparameter which) const { return spans[which].begin; }
    bool is(std::size_t entry, Hyperparameter which) const {
        return entry >= spans[which].begin && entry < spans[which].end;
    }
};

using PlanPointer = std::shared_ptr<const Plan>;

inline PlanPointer make_plan(Spec spec) {
    spec.check();
    return std::make_shared<const Plan>(std::move(spec));
}

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
      highest(spec.highest()) {
    for (std::size_t i = 0; i < HYPERPARAMETERS; ++i)
        spans[i] = spec.span(static_cast<Hyperparameter>(i));
}

}  // namespace obax
