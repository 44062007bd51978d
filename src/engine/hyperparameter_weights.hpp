// What dense and sparse members share: the weights and shifts of classes, and the gradient of the
// loss at a prediction.
#pragma once

#include "member.hpp"

namespace obax {

// The weight of an example for the tuned member, and the shift of its logits.
double tuned_weight(const Plan& plan, View x, const Example& example, Span shift);

// How weight and shift move along an entry of x; the shift's slope goes to `scratch.dshift`.
double shift_and_weight_slopes(const Plan& plan, std::size_t entry, const Example& example,
                               double weight, Scratch& scratch);

// -d loss / dz at what a member predicted.
void prediction_gradient(const Context& context, const Example& example, const MemberWork& work,
                         Span gradient);

}  // namespace obax
