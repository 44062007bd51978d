#include "dense.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "algebra.hpp"
#include "hyperparameter_weights.hpp"

namespace obax {

namespace {

constexpr double EPSILON = std::numeric_limits<double>::epsilon();

// Copy a square matrix into the places of a larger one.
void place(const Matrix& from, const std::vector<std::size_t>& places, Matrix& to) {
    for (std::size_t i = 0; i < places.size(); ++i)
        for (std::size_t j = 0; j < places.size(); ++j) to[places[i]][places[j]] = from[i][j];
}

// Weights of a model with fewer outputs or columns: one logit z becomes -z/2 and z/2.
void place_outputs(const Matrix& from, const std::vector<std::size_t>& columns, View factors,
                   std::size_t from_row, std::size_t to_row, Matrix& to) {
    for (std::size_t k = 0; k < factors.size(); ++k) {
        const std::size_t source = from_row + (factors.size() == 2 && factors[0] < 0.0 ? 0 : k);
        for (std::size_t j = 0; j < columns.size(); ++j)
            to[to_row + k][columns[j]] = factors[k] * from[source][j];
    }
}

}  // namespace

// ---- a member with full curvature ---------------------------------------------------------------

SecondOrderMember::SecondOrderMember(const Plan& plan, double penalty, double memory,
                                     double inertia)
    : weights_(plan.outputs, plan.inputs),
      curvature_(plan.inputs, plan.inputs),
      penalty_(penalty),
      inertia_(inertia),
      // Weights 1, forgetting, forgetting^2, ... have the sum memory + 1.
      forgetting_(memory / (1.0 + memory)) {}

void SecondOrderMember::prepare(const Context& context, MemberWork& work) const {
    std::fill(work.ridge.begin(), work.ridge.end(), penalty_);
    work.ridge[context.plan.features] = 0.0;
    work.inertia = inertia_;
    work.forgetting = forgetting_;
    factorise_system(context.plan, work);
}

void SecondOrderMember::factorise_system(const Plan& plan, MemberWork& work) const {
    const std::size_t d = plan.inputs;
    Matrix& matrix = work.factors;
    scale_upper(curvature_, work.forgetting, matrix);
    double trace = 0.0;
    for (std::size_t i = 0; i < d; ++i) {
        matrix[i][i] += work.inertia + work.ridge[i];
        trace += matrix[i][i];
    }
    // What rounding may have taken from the smallest eigenvalue.
    for (std::size_t i = 0; i < d; ++i) matrix[i][i] += 4.0 * EPSILON * trace;
    work.definite = factorise(matrix);
    work.centred = false;
}

void SecondOrderMember::solve_system(const Plan& plan, const Row& row, MemberWork& work) const {
    const std::size_t d = plan.inputs;
    std::copy(row.values.begin(), row.values.end(), work.right[0].begin());
    if (work.centred) {
        solve(work.factors, work.right.data(), 1, work.solutions.data());
        return;
    }
    for (std::size_t k = 0; k < plan.outputs; ++k)
        for (std::size_t i = 0; i < d; ++i) work.right[1 + k][i] = work.ridge[i] * weights_[k][i];
    solve(work.factors, work.right.data(), 1 + plan.outputs, work.solutions.data());
    const double missing = std::numeric_limits<double>::quiet_NaN();
    for (std::size_t k = 0; k < plan.outputs; ++k)
        for (std::size_t i = 0; i < d; ++i)
            work.centre[k][i] = work.definite ? weights_[k][i] - work.solutions[1 + k][i] : missing;
    work.centred = true;
}

bool SecondOrderMember::predict(const Context& context, const Row& row, MemberWork& work) const {
    const Plan& plan = context.plan;
    solve_system(plan, row, work);
    work.v = dot(work.solutions[0], row.values);
    const double by = plan.classifies ? moderation(work.v) : 1.0;
    bool finite = true;
    for (std::size_t k = 0; k < plan.outputs; ++k) {
        work.z0[k] = dot(work.centre[k], row.values);
        work.outputs[k] = work.z0[k] / by;
        finite = finite && std::isfinite(work.outputs[k]);
    }
    return finite;
}

double SecondOrderMember::check_weights(const Plan& plan, const MemberWork& work,
                                        const ProximalStep& step, double weight) const {
    double total = 0.0;
    for (std::size_t k = 0; k < plan.outputs; ++k)
        total += sum_of_scaled(work.centre[k], weight * step.pull[k], work.solutions[0]);
    return total;
}

void SecondOrderMember::write_weights(const Plan& plan, const Row& row, const MemberWork& work,
                                      const ProximalStep& step, double weight) {
    for (std::size_t k = 0; k < plan.outputs; ++k)
        add_scaled_to(work.centre[k], weight * step.pull[k], work.solutions[0], weights_[k]);
    fade_and_add_outer(curvature_, work.forgetting, step.curvature, row.values);
}

bool SecondOrderMember::update(const Context& context, const Row& row, const Example& example,
                               MemberWork& work) {
    Scratch& scratch = context.scratch;
    const ProximalInputs inputs{work.z0, work.v, example.weight, scratch.no_shift};
    context.loss.proximal(inputs, example.target, scratch.step);
    const double check = check_weights(context.plan, work, scratch.step, example.weight);
    if (!std::isfinite(check)) return false;
    write_weights(context.plan, row, work, scratch.step, example.weight);
    return true;
}

std::unique_ptr<Member> SecondOrderMember::copy() const {
    return std::make_unique<SecondOrderMember>(*this);
}

void SecondOrderMember::resize_into(SecondOrderMember& larger, const Plan& old,
                                    const Plan& now) const {
    const auto columns = column_places(old.spec, now.spec);
    place_outputs(weights_, columns, output_factors(old.spec, now.spec), 0, 0, larger.weights_);
    place(curvature_, columns, larger.curvature_);
}

std::unique_ptr<Member> SecondOrderMember::resized(const Plan& old, const Plan& now,
                                                   std::size_t) const {
    auto larger = std::make_unique<SecondOrderMember>(*this);
    larger->weights_ = Matrix(now.outputs, now.inputs);
    larger->curvature_ = Matrix(now.inputs, now.inputs);
    resize_into(*larger, old, now);
    return larger;
}

void SecondOrderMember::visit(Archive& archive, const std::string& name) {
    archive.matrix(name + ".weights", weights_);
    archive.matrix(name + ".curvature", curvature_);
}

double SecondOrderMember::cost(const Plan& plan, double) const {
    const auto d = static_cast<double>(plan.inputs), k = static_cast<double>(plan.outputs);
    return d * d * d / 3.0 + (3.0 + 2.0 * k) * d * d;
}

// ---- the tuned member ---------------------------------------------------------------------------

TunedMember::TunedMember(const Plan& plan)
    : SecondOrderMember(plan, plan.spec.penalty, plan.spec.memory, plan.spec.inertia),
      curvature_slopes_(plan.entries.size() - plan.first_curved,
                        Matrix(plan.inputs, plan.inputs)),
      sensitivity_(plan.entries.size() * plan.outputs, plan.inputs) {}

void TunedMember::prepare(const Context& context, MemberWork& work) const {
    const Plan& plan = context.plan;
    const Vector& x = context.tuned.x();
    const Range penalties = plan.spans[PENALTY];
    const double penalty = penalties.size() > 0 ? std::exp(x[penalties.begin]) : 0.0;
    std::fill(work.ridge.begin(), work.ridge.end(), penalty);
    if (penalties.size() > 1)
        for (std::size_t i = 0; i < plan.features; ++i)
            work.ridge[i] = std::exp(x[penalties.begin + i]);
    work.ridge[plan.features] = 0.0;
    work.inertia = std::exp(x[plan.at(INERTIA)]);
    work.forgetting = sigmoid(x[plan.at(MEMORY)]);
    factorise_system(plan, work);
}

void TunedMember::curvature_products(const Context& context, const MemberWork& work,
                                     std::size_t j) const {
    const Plan& plan = context.plan;
    Scratch& scratch = context.scratch;
    const std::size_t lines = 1 + plan.outputs;
    if (j < plan.first_curved) {
        std::fill(scratch.tilted.flat().begin(), scratch.tilted.flat().end(), 0.0);
        return;
    }
    // The slope along memory is kept as that along the forgetting factor, per unit of which it does
    // not vanish where memory is long.
    const bool along_memory = plan.is(plan.entries[j], MEMORY);
    const double factor = along_memory ? work.forgetting * (1.0 - work.forgetting) : 1.0;
    multiply(curvature_slopes_[j - plan.first_curved], work.solutions.data(), lines,
             scratch.tilted.data());
    scale(scratch.tilted.flat(), factor * work.forgetting, scratch.tilted.flat());
    if (!along_memory) return;
    multiply(curvature_, work.solutions.data(), lines, scratch.curved.data());
    add_scaled(scratch.tilted.flat(), factor, scratch.curved.flat());
}

double TunedMember::hypergradient(const Context& context, const Row& row, const Example& example,
                                  const MemberWork& work, double weight) const {
    const Plan& plan = context.plan;
    Scratch& scratch = context.scratch;
    const std::size_t n = plan.entries.size(), outputs = plan.outputs;
    const View a = row.values, s = work.solutions[0];
    const ProximalStep& step = scratch.step;
    const double by = moderation(work.v);
    double check = 0.0;
    for (std::size_t j = 0; j < n; ++j) {
        const std::size_t entry = plan.entries[j];
        curvature_products(context, work, j);
        // The diagonal by which L moves with ridge and inertia; ridge also shrinks y.
        const bool shrinks = plan.is(entry, PENALTY), waves = plan.is(entry, BANDWIDTH);
        Vector& diagonal = scratch.diagonal;
        std::fill(diagonal.begin(), diagonal.end(), plan.is(entry, INERTIA) ? work.inertia : 0.0);
        if (shrinks && plan.spans[PENALTY].size() == 1)
            std::copy(work.ridge.begin(), work.ridge.end(), diagonal.begin());
        else if (shrinks)
            diagonal[entry] = work.ridge[entry];
        const Span moved = scratch.moved[j];
        multiply_add(diagonal, s, scratch.tilted[0], moved);
        double dv = -dot(s, moved);
        if (waves) {
            dv += 2.0 * dot(s, row.slope);
            // In s = L^-1 a, a moves too: dL s - da stands where dL s does.
            add_scaled(moved, -1.0, row.slope);
        }
        scratch.slopes[j] = 0.0;
        for (std::size_t k = 0; k < outputs; ++k) {
            const View old = sensitivity_[j * outputs + k];
            const Span right = scratch.right[j * outputs + k];
            shrinkage_slope(work.ridge, old, diagonal, shrinks ? weights_[k] : View(),
                            work.solutions[1 + k], scratch.tilted[1 + k], right);
            double change = dot(old, a) - dot(s, right);
            add_scaled(right, weight * step.pull[k], moved);
            if (waves) change += dot(work.centre[k], row.slope);
            scratch.dz0[k] = change;
            if (plan.classifies)
                change = (change - 0.5 * LOGIT_VARIANCE * work.z0[k] * dv / (by * by)) / by;
            scratch.slopes[j] -= example.outer_weight * scratch.gradient[k] * change;
        }
        const double dweight = shift_and_weight_slopes(plan, entry, example, weight, scratch);
        const ProximalInputs inputs{work.z0, work.v, weight, scratch.shift};
        const ProximalInputs direction{scratch.dz0, dv, dweight, scratch.dshift};
        context.loss.pull_derivative(inputs, step, direction, scratch.dpull);
        scratch.curvature_slopes[j] =
            context.loss.curvature_derivative(step, weight, dweight, scratch.dpull);
        for (std::size_t k = 0; k < outputs; ++k)
            scratch.pushes[j * outputs + k] =
                dweight * step.pull[k] + weight * scratch.dpull[k];
        check += scratch.slopes[j] * scratch.slopes[j];
    }
    solve(work.factors, scratch.right.data(), n * outputs, scratch.solved.data());
    // S - L^-1 (q + weight pull dL s) + s d(weight pull).
    for (std::size_t i = 0; i < n * outputs; ++i)
        check += sensitivity_step(sensitivity_[i], scratch.pushes[i], s, plan.spec.fading,
                                  scratch.solved[i]);
    return check;
}

void TunedMember::write_sensitivity(const Context& context, const Row& row,
                                    const MemberWork& work) {
    const Plan& plan = context.plan;
    const Scratch& scratch = context.scratch;
    std::copy(scratch.solved.flat().begin(), scratch.solved.flat().end(),
              sensitivity_.flat().begin());
    const double forgetting = work.forgetting, bend = scratch.step.curvature;
    for (std::size_t j = plan.first_curved; j < plan.entries.size(); ++j) {
        Matrix& slope = curvature_slopes_[j - plan.first_curved];
        const bool along_memory = plan.is(plan.entries[j], MEMORY);
        const double factor = along_memory ? forgetting * (1.0 - forgetting) : 1.0;
        const double lift = scratch.curvature_slopes[j] / factor;
        if (along_memory)
            fade_and_add_outer_and_matrix(slope, forgetting, lift, row.values, curvature_);
        else
            fade_and_add_outer(slope, forgetting, lift, row.values);
        if (plan.is(plan.entries[j], BANDWIDTH))
            add_symmetric_outer(slope, bend, row.values, row.slope);
    }
}

bool TunedMember::update(const Context& context, const Row& row, const Example& example,
                         MemberWork& work) {
    const Plan& plan = context.plan;
    Scratch& scratch = context.scratch;
    const double weight = tuned_weight(plan, context.tuned.x(), example, scratch.shift);
    const ProximalInputs inputs{work.z0, work.v, weight, scratch.shift};
    context.loss.proximal(inputs, example.target, scratch.step);
    double check = check_weights(plan, work, scratch.step, weight);
    if (!plan.entries.empty()) {
        prediction_gradient(context, example, work, scratch.gradient);
        check += hypergradient(context, row, example, work, weight);
    }
    if (!std::isfinite(check)) return false;
    if (!plan.entries.empty()) write_sensitivity(context, row, work);
    write_weights(plan, row, work, scratch.step, weight);
    return true;
}

std::unique_ptr<Member> TunedMember::copy() const { return std::make_unique<TunedMember>(*this); }

std::unique_ptr<Member> TunedMember::resized(const Plan& old, const Plan& now,
                                                   std::size_t) const {
    auto larger = std::make_unique<TunedMember>(now);
    resize_into(*larger, old, now);
    const auto columns = column_places(old.spec, now.spec);
    const auto places = x_places(old.spec, now.spec);
    const Vector factors = output_factors(old.spec, now.spec);
    for (std::size_t i = 0; i < old.entries.size(); ++i) {
        const std::size_t place_of = places[old.entries[i]];
        const auto at = std::lower_bound(now.entries.begin(), now.entries.end(), place_of);
        if (at == now.entries.end() || *at != place_of) continue;
        const auto j = static_cast<std::size_t>(at - now.entries.begin());
        place_outputs(sensitivity_, columns, factors, i * old.outputs, j * now.outputs,
                      larger->sensitivity_);
        if (i >= old.first_curved && j >= now.first_curved)
            place(curvature_slopes_[i - old.first_curved], columns,
                  larger->curvature_slopes_[j - now.first_curved]);
    }
    return larger;
}

void TunedMember::visit(Archive& archive, const std::string& name) {
    SecondOrderMember::visit(archive, name);
    archive.matrix(name + ".sensitivity", sensitivity_);
    for (std::size_t j = 0; j < curvature_slopes_.size(); ++j)
        archive.matrix(name + ".curvature_slope." + std::to_string(j), curvature_slopes_[j]);
}

double TunedMember::cost(const Plan& plan, double values) const {
    const auto d = static_cast<double>(plan.inputs), k = static_cast<double>(plan.outputs);
    const auto n = static_cast<double>(plan.entries.size());
    return SecondOrderMember::cost(plan, values) + n * (3.0 + 2.0 * k) * d * d;
}

// ---- gradient steps -----------------------------------------------------------------------------

GradientMember::GradientMember(const Plan& plan, double rate)
    : rate_(rate), weights_(plan.outputs, plan.features + 1) {}

bool GradientMember::predict(const Context&, const Row& row, MemberWork& work) const {
    bool finite = true;
    const View a(row.values.data(), weights_.columns());
    for (std::size_t k = 0; k < weights_.rows(); ++k) {
        work.outputs[k] = dot(weights_[k], a);
        finite = finite && std::isfinite(work.outputs[k]);
    }
    return finite;
}

void GradientMember::update_restandardised(const Context& context, const Row& row,
                                           const Example& example, MemberWork& work) {
    predict(context, row, work);
    Scratch& scratch = context.scratch;
    context.loss.negative_gradient(work.outputs, example.target, scratch.gradient);
    const View a(row.values.data(), weights_.columns());
    double rate = example.weight * rate_;
    if (!context.plan.classifies) rate /= 1.0 + rate * dot(a, a);
    for (std::size_t k = 0; k < weights_.rows(); ++k)
        add_scaled(weights_[k], rate * scratch.gradient[k], a);
}

std::unique_ptr<Member> GradientMember::copy() const {
    return std::make_unique<GradientMember>(*this);
}

std::unique_ptr<Member> GradientMember::resized(const Plan& old, const Plan& now,
                                                   std::size_t) const {
    auto larger = std::make_unique<GradientMember>(now, rate_);
    std::vector<std::size_t> columns(old.features + 1);
    for (std::size_t i = 0; i < old.features; ++i) columns[i] = i;
    columns[old.features] = now.features;
    place_outputs(weights_, columns, output_factors(old.spec, now.spec), 0, 0, larger->weights_);
    return larger;
}

void GradientMember::visit(Archive& archive, const std::string& name) {
    archive.matrix(name + ".weights", weights_);
}

double GradientMember::cost(const Plan& plan, double) const {
    return 4.0 * static_cast<double>(plan.outputs * (plan.features + 1));
}

}  // namespace obax
