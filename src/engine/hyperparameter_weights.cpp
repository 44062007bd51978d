#include "hyperparameter_weights.hpp"

#include <cmath>

namespace obax {

double tuned_weight(const Plan& plan, View x, const Example& example, Span shift) {
    if (!plan.classifies) return example.weight;
    const std::size_t shifts = plan.at(LOGIT_SHIFTS);
    // One logit for two classes: its shift is that of the second less that of the first.
    for (std::size_t k = 0; k < plan.outputs; ++k)
        shift[k] = plan.outputs == 1 ? x[shifts + 1] - x[shifts] : x[shifts + k];
    const double logarithm = x[plan.at(CLASS_WEIGHTS) + example.label];
    return logarithm == 0.0 ? example.weight : example.weight * std::exp(logarithm);
}

double shift_and_weight_slopes(const Plan& plan, std::size_t entry, const Example& example,
                               double weight, Scratch& scratch) {
    if (!plan.classifies) {
        scratch.dshift[0] = 0.0;
        return 0.0;
    }
    const std::size_t shifts = plan.at(LOGIT_SHIFTS);
    for (std::size_t k = 0; k < plan.outputs; ++k)
        scratch.dshift[k] = entry == shifts + k ? 1.0 : 0.0;
    if (plan.outputs == 1)
        scratch.dshift[0] = (entry == shifts + 1 ? 1.0 : 0.0) - scratch.dshift[0];
    return entry == plan.at(CLASS_WEIGHTS) + example.label ? weight : 0.0;
}

void prediction_gradient(const Context& context, const Example& example, const MemberWork& work,
                         Span gradient) {
    if (!context.plan.classifies) {
        context.loss.negative_gradient(work.outputs, example.target, gradient);
        return;
    }
    const View p = work.prediction;
    if (context.plan.outputs == 1) {
        gradient[0] = example.label > 0 ? p[0] : -p[1];
        return;
    }
    for (std::size_t k = 0; k < p.size(); ++k)
        gradient[k] = (k == example.label ? 1.0 : 0.0) - p[k];
}

}  // namespace obax
