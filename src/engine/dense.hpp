// Members of a dense model.
//
// Columns a of a row: standardised features, 1 for the intercept, lags, waves or products. Weights
// y, a line for each output. When row t arrives a member of the second order solves
//
//     g_t(x, y) = weight loss(y . a_t, target_t)
//                 + forgetting/2 |y - y_t|^2_{A_t} + inertia/2 |y - y_t|^2 + penalty/2 |y|^2
//
// - A_t = sum_i forgetting^(t-1-i) h_i a_i a_i' is the curvature of the weighted window of past
//   rows around the weights that fit it: d^2 numbers however long the memory is.
// - `inertia` ties the weights to where they were, `penalty` (not on the intercept) shrinks them.
// - For squared loss with inertia = penalty = 0 this is recursive least squares.
//
// The quadratic part comes first, then the row. With L = forgetting A + diag(inertia + ridge), where
// ridge is the penalty without the intercept,
//
//     L u = ridge y,  c = y - u,   L s = a,   z0 = c . a,   v = s . a,
//     y_new = c + s k,             k = weight * pull(z*),   pull = -d loss / dz,
//
// where `Loss::proximal` solves for z*, K numbers instead of K d. Several outputs share A, and with
// it L, s and v: the curvature h of a row is the mean of p (1 - p) over the classes.
//
// The hyperparameters' loss of the row is that of the prediction before the row is learned: test,
// then train. It depends on x through all earlier weights, so the tuned member carries the
// sensitivity S_t = dy_t / dx along. The implicit function theorem, applied to g_t, gives S_{t+1}
// from S_t: this is the algorithm `obax.RTHO` with its proximal step. Along a direction of x that
// moves ridge, inertia and forgetting by dr, di, dl, and y by S,
//
//     dL w   = dl (A + forgetting dA/d forgetting) w + (di + dr) w,
//     dz0    = S . a - s . q,                q = dr y + ridge S - dL u,
//     dv     = -s . dL s,
//     dy_new = S - L^-1 (q + k dL s) + s dk,
//
// one solve for each direction. The bandwidth of random Fourier features moves a by da and A by dA,
// which is carried along like dA / d forgetting (h_i held constant), and
//
//     dL w   = forgetting dA w,
//     dz0    = S . a - s . q + c . da,       q = ridge S - dL u,
//     dv     = -s . dL s + 2 s . da,
//     dy_new = S - L^-1 (q + k (dL s - da)) + s dk.
#pragma once

#include "member.hpp"

namespace obax {

// A member with full curvature whose hyperparameters do not move.
class SecondOrderMember : public Member {
  public:
    SecondOrderMember(const Plan& plan, double penalty, double memory, double inertia);

    void prepare(const Context&, MemberWork&) const override;
    bool predict(const Context&, const Row&, MemberWork&) const override;
    bool update(const Context&, const Row&, const Example&, MemberWork&) override;
    std::unique_ptr<Member> copy() const override;
    std::unique_ptr<Member> resized(const Plan& old, const Plan& now,
                                    std::size_t place) const override;
    void visit(Archive&, const std::string& name) override;
    double cost(const Plan& plan, double values) const override;

    const Matrix& weights() const { return weights_; }
    const Matrix& curvature() const { return curvature_; }

  protected:
    // Factorise L, given ridge, inertia and forgetting in `work`.
    void factorise_system(const Plan& plan, MemberWork& work) const;
    // Solve for s and, unless they are there, for u and c.
    void solve_system(const Plan& plan, const Row& row, MemberWork& work) const;
    // A sum of all that the new weights would be, which is finite if they are.
    double check_weights(const Plan& plan, const MemberWork& work, const ProximalStep& step,
                         double weight) const;
    void write_weights(const Plan& plan, const Row& row, const MemberWork& work,
                       const ProximalStep& step, double weight);
    void resize_into(SecondOrderMember& larger, const Plan& old, const Plan& now) const;

    Matrix weights_;    // outputs x columns
    Matrix curvature_;  // A

  private:
    double penalty_, inertia_, forgetting_;
};

// The member whose hyperparameters are tuned.
class TunedMember final : public SecondOrderMember {
  public:
    explicit TunedMember(const Plan& plan);

    void prepare(const Context&, MemberWork&) const override;
    bool update(const Context&, const Row&, const Example&, MemberWork&) override;
    std::unique_ptr<Member> copy() const override;
    std::unique_ptr<Member> resized(const Plan& old, const Plan& now,
                                    std::size_t place) const override;
    void visit(Archive&, const std::string& name) override;
    double cost(const Plan& plan, double values) const override;

  private:
    // Fills the slopes of the loss and the new sensitivity (`scratch.solved`); returns a sum of
    // them, which is finite if they are.
    double hypergradient(const Context&, const Row&, const Example&, const MemberWork&,
                         double weight) const;
    void curvature_products(const Context&, const MemberWork&, std::size_t j) const;
    void write_sensitivity(const Context&, const Row&, const MemberWork&);

    std::vector<Matrix> curvature_slopes_;  // dA / dx along the last of the learned entries
    Matrix sensitivity_;                    // dy / dx: a line for each learned entry and output
};

// Gradient steps of a fixed size:
//
//     y <- y + rate * pull a / (1 + rate |a|^2),
//
// without the divisor for log loss. For squared and Huber loss the step goes to where the gradient
// after the step is the one taken, which no rate can make diverge.
class GradientMember final : public Member {
  public:
    GradientMember(const Plan& plan, double rate);

    bool predict(const Context&, const Row&, MemberWork&) const override;
    bool update(const Context&, const Row&, const Example&, MemberWork&) override { return true; }
    void update_restandardised(const Context&, const Row&, const Example&, MemberWork&) override;
    std::unique_ptr<Member> copy() const override;
    std::unique_ptr<Member> resized(const Plan& old, const Plan& now,
                                    std::size_t place) const override;
    void visit(Archive&, const std::string& name) override;
    double cost(const Plan& plan, double values) const override;

    const Matrix& weights() const { return weights_; }

  private:
    double rate_;
    Matrix weights_;  // outputs x (features and 1)
};

}  // namespace obax
