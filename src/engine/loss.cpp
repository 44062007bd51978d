#include "loss.hpp"

#include <algorithm>
#include <cmath>

#include "algebra.hpp"

namespace obax {

namespace {

constexpr int MOST_NEWTON_STEPS = 100;
// Newton steps square the error: what one of this size leaves is rounding.
constexpr double SMALL_STEP = 1e-7;
constexpr double CONVERGED = 1e-14;

double clamp(double value, double limit) { return std::min(std::max(value, -limit), limit); }

// Two classes, one logit.
class Sigmoid final : public Loss {
  public:
    bool classifies() const override { return true; }

    double value(View z, double target) const override {
        const double margin = target > 0.0 ? -z[0] : z[0];
        return std::max(margin, 0.0) + std::log1p(std::exp(-std::abs(margin)));
    }

    void negative_gradient(View z, double target, Span out) const override {
        const double sign = target > 0.0 ? 1.0 : -1.0;
        out[0] = sign * sigmoid(-sign * z[0]);
    }

    void prediction(View z, Span out) const override {
        const double e = std::exp(-std::abs(z[0]));
        const double large = 1.0 / (1.0 + e);
        const std::size_t unlikely = z[0] < 0.0 ? 1 : 0;
        out[1 - unlikely] = large;
        out[unlikely] = e * large;
    }

    void proximal(const ProximalInputs& at, double target, ProximalStep& out) const override {
        const double label = target > 0.0 ? 1.0 : 0.0;
        const double p = root(at.z0[0], at.weight * at.v, label, at.shift[0]);
        out.probabilities[0] = p;
        out.pull[0] = label - p;
        out.curvature = at.weight * p * (1.0 - p);
    }

    void pull_derivative(const ProximalInputs& at, const ProximalStep& step,
                         const ProximalInputs& direction, Span out) const override {
        const double wv = at.weight * at.v;
        const double dwv = direction.weight * at.v + at.weight * direction.v;
        const double h = step.probabilities[0] * (1.0 - step.probabilities[0]);
        const double dshift = direction.shift[0];
        const double right = direction.z0[0] + dwv * step.pull[0] - wv * h * dshift;
        out[0] = -h * (right / (1.0 + wv * h) + dshift);
    }

    double curvature_derivative(const ProximalStep& step, double weight, double dweight,
                                View dpull) const override {
        const double p = step.probabilities[0];
        return dweight * p * (1.0 - p) - weight * (1.0 - 2.0 * p) * dpull[0];
    }

  private:
    // The probability at z*, by Newton steps inside a bracket that holds the root. Where v is
    // large, a step from one flat end of the sigmoid leads to the other end and back: unless steps
    // halve, the bracket does.
    static double root(double z0, double wv, double label, double shift) {
        double low = label > 0.0 ? z0 : z0 - wv, high = label > 0.0 ? z0 + wv : z0;
        double z = z0, step = wv;
        for (int i = 0; i < MOST_NEWTON_STEPS; ++i) {
            const double p = sigmoid(z + shift);
            const double error = z - z0 - wv * (label - p);
            (error < 0.0 ? low : high) = z;
            const double newton = -error / (1.0 + wv * p * (1.0 - p));
            if (std::abs(newton) <= SMALL_STEP * (1.0 + std::abs(z))) {
                z += newton;
                break;
            }
            const bool inside = low < z + newton && z + newton < high;
            step = inside && std::abs(newton) < 0.5 * std::abs(step) ? newton
                                                                     : 0.5 * (low + high) - z;
            z += step;
        }
        return sigmoid(z + shift);
    }
};

// More than two classes, one logit for each.
class Softmax final : public Loss {
  public:
    explicit Softmax(std::size_t outputs) : z_(outputs), move_(outputs) {}

    bool classifies() const override { return true; }

    double value(View z, double target) const override {
        const double top = *std::max_element(z.begin(), z.end());
        double total = 0.0;
        for (double one : z) total += std::exp(one - top);
        const double p = std::exp(z[static_cast<std::size_t>(target)] - top) / total;
        return -std::log(std::max(p, LEAST_PROBABILITY));
    }

    void negative_gradient(View z, double target, Span out) const override {
        std::copy(z.begin(), z.end(), out.begin());
        softmax(out);
        for (double& p : out) p = -p;
        out[static_cast<std::size_t>(target)] += 1.0;
    }

    void prediction(View z, Span out) const override {
        std::copy(z.begin(), z.end(), out.begin());
        softmax(out);
    }

    void proximal(const ProximalInputs& at, double target, ProximalStep& out) const override {
        const auto label = static_cast<std::size_t>(target);
        find_root(at, label, out.probabilities);
        for (std::size_t k = 0; k < out.pull.size(); ++k)
            out.pull[k] = (k == label ? 1.0 : 0.0) - out.probabilities[k];
        out.curvature = at.weight * mean_curvature(out.probabilities);
    }

    void pull_derivative(const ProximalInputs& at, const ProximalStep& step,
                         const ProximalInputs& direction, Span out) const override {
        const double wv = at.weight * at.v;
        const double dwv = direction.weight * at.v + at.weight * direction.v;
        const Vector& p = step.probabilities;
        double above = 0.0, below = 1.0;
        for (std::size_t k = 0; k < p.size(); ++k) {
            const double gain = 1.0 / (1.0 + wv * p[k]);
            const double dshift = direction.shift[k];
            out[k] = gain * (direction.z0[k] + dwv * step.pull[k] - wv * p[k] * dshift);
            above += p[k] * (out[k] + dshift);
            below -= p[k] * gain * wv * p[k];
        }
        const double mean = above / below;
        for (std::size_t k = 0; k < p.size(); ++k) {
            const double dz = out[k] + wv * p[k] / (1.0 + wv * p[k]) * mean;
            out[k] = -p[k] * (dz + direction.shift[k] - mean);
        }
    }

    double curvature_derivative(const ProximalStep& step, double weight, double dweight,
                                View dpull) const override {
        double total = 0.0;
        const Vector& p = step.probabilities;
        for (std::size_t k = 0; k < p.size(); ++k) total += (1.0 - 2.0 * p[k]) * dpull[k];
        return dweight * mean_curvature(p) - weight * total / static_cast<double>(p.size());
    }

    double diagonal_curvature(const ProximalStep& step, double weight) const override {
        const Vector& p = step.probabilities;
        return weight * (1.0 - dot(p, p)) / (static_cast<double>(p.size()) - 1.0);
    }

    double diagonal_curvature_derivative(const ProximalStep& step, double weight, double dweight,
                                         View dpull) const override {
        const Vector& p = step.probabilities;
        const double size = 1.0 - dot(p, p), along = 2.0 * dot(p, dpull);
        return (dweight * size + weight * along) / (static_cast<double>(p.size()) - 1.0);
    }

  private:
    // One number for the curvature diag(p) - p p': the mean of its diagonal.
    static double mean_curvature(View p) {
        double total = 0.0;
        for (double one : p) total += one * (1.0 - one);
        return total / static_cast<double>(p.size());
    }

    void shifted_softmax(View shift, Vector& p) const {
        for (std::size_t k = 0; k < p.size(); ++k) p[k] = z_[k] + shift[k];
        softmax(p);
    }

    // The probabilities at z*, by Newton steps with the Hessian 1 + wv (diag(p) - p p').
    void find_root(const ProximalInputs& at, std::size_t label, Vector& p) const {
        const double wv = at.weight * at.v;
        std::copy(at.z0.begin(), at.z0.end(), z_.begin());
        for (int step = 0; step < MOST_NEWTON_STEPS; ++step) {
            shifted_softmax(at.shift, p);
            double across = 0.0, taken = 0.0, most = 0.0;
            for (std::size_t k = 0; k < p.size(); ++k) {
                const double gain = 1.0 / (1.0 + wv * p[k]);
                move_[k] = gain * (z_[k] - at.z0[k] - wv * ((k == label ? 1.0 : 0.0) - p[k]));
                across += p[k] * move_[k];
                taken += p[k] * gain * wv * p[k];
            }
            for (std::size_t k = 0; k < p.size(); ++k) {
                move_[k] += wv * p[k] / (1.0 + wv * p[k]) * across / (1.0 - taken);
                most = std::max(most, std::abs(move_[k]));
            }
            // Damped: a full step from far away can overshoot where the softmax is flat.
            for (std::size_t k = 0; k < p.size(); ++k) z_[k] -= move_[k] / (1.0 + 0.5 * most);
            if (most < CONVERGED) break;
        }
        shifted_softmax(at.shift, p);
    }

    mutable Vector z_, move_;
};

// Squared loss, and Huber's: linear beyond `delta`.
class Regression final : public Loss {
  public:
    explicit Regression(double delta) : delta_(delta) {}

    bool classifies() const override { return false; }

    double value(View z, double target) const override {
        const double error = std::abs(target - z[0]), inside = std::min(error, delta_);
        return inside == error ? 0.5 * error * error : inside * (error - 0.5 * inside);
    }

    void negative_gradient(View z, double target, Span out) const override {
        out[0] = clamp(target - z[0], delta_);
    }

    void prediction(View z, Span out) const override { out[0] = z[0]; }

    void proximal(const ProximalInputs& at, double target, ProximalStep& out) const override {
        out.pull[0] = (target - at.z0[0]) / (1.0 + at.weight * at.v);
        out.curvature = at.weight;
        if (std::abs(out.pull[0]) >= delta_) {
            out.pull[0] = std::copysign(delta_, out.pull[0]);
            out.curvature = 0.0;
        }
    }

    void pull_derivative(const ProximalInputs& at, const ProximalStep& step,
                         const ProximalInputs& direction, Span out) const override {
        const double wv = at.weight * at.v;
        const double dwv = direction.weight * at.v + at.weight * direction.v;
        out[0] = step.curvature > 0.0 ? -(direction.z0[0] + dwv * step.pull[0]) / (1.0 + wv) : 0.0;
    }

    double curvature_derivative(const ProximalStep&, double, double, View) const override {
        return 0.0;
    }

  private:
    double delta_;
};

}  // namespace

double sigmoid(double z) {
    if (z >= 0.0) return 1.0 / (1.0 + std::exp(-z));
    const double e = std::exp(z);
    return e / (1.0 + e);
}

void softmax(Span logits) {
    const double top = *std::max_element(logits.begin(), logits.end());
    double total = 0.0;
    for (double& one : logits) total += one = std::exp(one - top);
    for (double& one : logits) one /= total;
}

double moderation(double v) { return std::sqrt(1.0 + LOGIT_VARIANCE * v); }

std::unique_ptr<Loss> make_loss(LossKind kind, std::size_t outputs, double delta) {
    if (kind != LossKind::logistic)
        return std::make_unique<Regression>(kind == LossKind::huber ? delta : INFINITY);
    if (outputs > 1) return std::make_unique<Softmax>(outputs);
    return std::make_unique<Sigmoid>();
}

}  // namespace obax
