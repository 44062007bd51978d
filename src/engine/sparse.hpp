// Members of a sparse model: many features, at the cost of those that are present in a row.
//
// A row is its features and their values; features that are absent are not touched. Each member
// solves
//
//     g_t(x, y) = weight loss(y . a_t, target_t) + 1/2 sum_i stiffness_i (y_i - y_t,i)^2
//                 + penalty/2 sum_i y_i^2          over the features i of the row and the intercept,
//
// as in a dense model, but with diagonal curvature, the same for every class:
//
//     stiffness_i = inertia + forgetting A_i,         A_i = sum forgetting^age h a_i^2,  or
//     stiffness_i = inertia sqrt(1 + forgetting A_i), A_i = sum forgetting^age |weight pull|^2 a_i^2.
//
// Sums are over the rows that had feature i and ages count such rows: what a word means is not
// forgotten while it is not used. h is p (1 - p) for two classes, the mean eigenvalue of the Hessian
// for more, 1 for numbers. The second kind, by the root, is AdaGrad with an implicit step.
//
// With L_i = stiffness_i + penalty (0 for the intercept): y_new,i = (1 - penalty / L_i) y_i
// + a_i / L_i k, where `Loss::proximal` solves for k = weight pull(z*). The sensitivity S = dy/dx is
// carried along feature by feature, and so is dA_i/dx: the hypergradient is exact but for `fading`.
// Logits are not moderated: the v of a diagonal is no variance where features go together.
//
// Numbers of a feature stand in one line of `cells`: first its statistics, then what each member has
// (curvature, its derivatives, weights, their sensitivities). The first line is the intercept's.
#pragma once

#include "member.hpp"

namespace obax {

// Features up to which one member of a sparse model has full curvature.
inline constexpr std::size_t MOST_FULL = 511;

// Statistics at the begin of a cell.
enum CellPart : std::size_t { FIRST_ROW, ROWS_SEEN, COUNT, MEAN, VARIANCE, MEMBER_PARTS };

// Cells that there is room for, with so many features and the intercept.
std::size_t cells_for(std::size_t features);
// Numbers in a cell, and where those of a member begin.
std::size_t cell_width(const Plan& plan);
std::size_t cell_offset(const Plan& plan, std::size_t member);

// A member with diagonal curvature.
class DiagonalMember : public Member {
  public:
    // The tuned member, and one with fixed hyperparameters.
    DiagonalMember(const Plan& plan, std::size_t offset);
    DiagonalMember(const Plan& plan, std::size_t offset, bool root, double penalty, double inertia,
                   double memory);

    void prepare(const Context&, MemberWork&) const override;
    bool predict(const Context&, const Row&, MemberWork&) const override;
    bool update(const Context&, const Row&, const Example&, MemberWork&) override;
    std::unique_ptr<Member> copy() const override;
    std::unique_ptr<Member> resized(const Plan& old, const Plan& now,
                                    std::size_t place) const override;
    void visit(Archive&, const std::string& name) override;
    double cost(const Plan& plan, double values) const override;

    // Room for so many features; cells stay as they are.
    virtual void fit(const Plan&, Matrix&, std::size_t features) { (void)features; }

  protected:
    bool tuned_, root_ = false;
    std::size_t offset_;  // in a cell
    double penalty_ = 0, inertia_ = 0, forgetting_ = 0;

  private:
    double curvature_of_row(const Context&, double weight) const;
    // Fills the slopes of the loss; returns a sum of their sizes.
    double slopes(const Context&, const Row&, const Example&, const MemberWork&,
                  double weight) const;
    void write(const Context&, const Row&, const MemberWork&, double weight, double lift) const;
};

// The member with full curvature, while there are few enough features for it.
//
// Its weights are a random walk that is drawn to zero and of which the rows tell something (a Kalman
// filter): with the covariance P of the weights, the same for every class,
//
//     s = P a,   v = a . s,   y_new = keep (y + s k),
//     P_new = keep^2 (P - h / (1 + h v) s s') + drift I,
//
// k = weight pull(z*), h the curvature at z*, keep = 1 - 1 / (2 memory), and drift so that a weight
// of which nothing is told goes back to the variance 1 / inertia. A row touches d^2 numbers, where
// factors of a curvature with inertia and penalty in it would take d^3.
class FullMember final : public DiagonalMember {
  public:
    FullMember(const Plan& plan, std::size_t offset);

    // One that continues from a dense member's curvature (the intercept last there).
    void continue_from(const Matrix& curvature, std::size_t features);

    void prepare(const Context&, MemberWork&) const override;
    bool predict(const Context&, const Row&, MemberWork&) const override;
    bool update(const Context&, const Row&, const Example&, MemberWork&) override;
    std::unique_ptr<Member> copy() const override;
    std::unique_ptr<Member> resized(const Plan& old, const Plan& now,
                                    std::size_t place) const override;
    void visit(Archive&, const std::string& name) override;
    double cost(const Plan& plan, double values) const override;
    void fit(const Plan& plan, Matrix& cells, std::size_t features) override;

  private:
    double memory_;
    bool given_up_ = false;  // there are too many features
    Matrix covariance_;      // P
};

// The members of a sparse model.
std::vector<std::unique_ptr<Member>> sparse_members(const Plan& plan);

// Cells of a model with fewer classes, or one that learned other hyperparameters.
Matrix widened_cells(const Plan& old, const Plan& now, const Matrix& cells);

}  // namespace obax
