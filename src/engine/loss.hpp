// The loss of a row for each kind of target: its value, its gradient, the proximal step and the
// derivatives of that step.
//
// A model has K outputs z = (y_k . a)_k: one for two classes and for regression, C for C classes.
// In z the follower's step on a row is small, whatever the number of features:
//
//     z* = argmin_z  |z - z0|^2 / (2 v) + weight * loss(z + shift, target).
//
// `shift` is the logit adjustment; `weight` is that of the row times that of its class.
#pragma once

#include <memory>

#include "matrix.hpp"

namespace obax {

inline constexpr double LEAST_PROBABILITY = 1e-300;

double sigmoid(double z);

// Probabilities in the place of their logits.
void softmax(Span logits);

// A logit of variance v is divided by this, as if averaged over its Gaussian (MacKay 1992).
inline constexpr double LOGIT_VARIANCE = 0.39269908169872414;  // pi / 8
double moderation(double v);

// The solution of the proximal problem of one row.
struct ProximalStep {
    Vector probabilities;  // at z*; unused for regression
    Vector pull;           // -d loss / dz at z*
    double curvature = 0;  // weight times d2 loss / dz2, one number for all outputs

    void resize(std::size_t outputs) {
        probabilities.assign(outputs, 0.0);
        pull.assign(outputs, 0.0);
    }
};

// How the inputs of the proximal problem move along a direction.
struct ProximalInputs {
    View z0;
    double v;
    double weight;
    View shift;
};

class Loss {
  public:
    virtual ~Loss() = default;

    virtual bool classifies() const = 0;

    // The loss of outputs z.
    virtual double value(View z, double target) const = 0;

    // -d loss / dz into `out`, which may be z itself.
    virtual void negative_gradient(View z, double target, Span out) const = 0;

    // What a member says of the row: probabilities of the classes, or a number.
    virtual void prediction(View z, Span out) const = 0;

    virtual void proximal(const ProximalInputs& at, double target, ProximalStep& out) const = 0;

    // d pull along a direction in which the inputs move (the implicit function theorem at z*).
    virtual void pull_derivative(const ProximalInputs& at, const ProximalStep& step,
                                 const ProximalInputs& direction, Span out) const = 0;

    // d curvature along the same direction, from d pull = -d probabilities.
    virtual double curvature_derivative(const ProximalStep& step, double weight, double dweight,
                                        View dpull) const = 0;

    // The curvature that a diagonal member adds for a feature of size 1: for many classes the mean
    // of the Hessian's eigenvalues; and its derivative.
    virtual double diagonal_curvature(const ProximalStep& step, double weight) const {
        (void)weight;
        return step.curvature;
    }
    virtual double diagonal_curvature_derivative(const ProximalStep& step, double weight,
                                                 double dweight, View dpull) const {
        return curvature_derivative(step, weight, dweight, dpull);
    }
};

enum class LossKind { logistic, squared, huber };

// The loss for so many outputs; `delta` is where Huber's loss becomes linear.
std::unique_ptr<Loss> make_loss(LossKind kind, std::size_t outputs, double delta);

}  // namespace obax
