#include "sparse.hpp"

#include <algorithm>
#include <cmath>

#include "algebra.hpp"
#include "hyperparameter_weights.hpp"

namespace obax {

namespace {

constexpr std::size_t LEAST_CELLS = 128;
// Hyperparameters of the members by the root, and of the one with full curvature.
constexpr double ROOT_PENALTY = 1e-6, ROOT_MEMORY = 1e4;
constexpr double FULL_PENALTY = 1e-3, FULL_MEMORY = 1e5;
// Nothing is known of the intercept at first.
constexpr double INTERCEPT_VARIANCE = 10.0;
// A slope beyond it is on its way to infinity.
constexpr double LARGEST_SLOPE = 1e100;

// Of a class a row tells less than of a number.
double full_inertia(const Plan& plan) { return plan.classifies ? 10.0 : 3.0; }

std::size_t member_width(const Plan& plan, std::size_t member) {
    const std::size_t n = member == 0 ? plan.entries.size() : 0, k = plan.outputs;
    return 1 + n + k + n * k;
}

// Along an entry of x: how L of a feature moves, and how what the penalty takes from a weight does.
struct FeatureSlope {
    double change;  // dL
    double keep;    // 1 - ridge / L
    double shrink;  // d(ridge / L)
};

struct Direction {
    bool penalty, inertia, memory;
};

FeatureSlope feature_slope(const MemberWork& work, const Direction& along, double ridge,
                           double inverse, double past, double past_slope) {
    double change = work.forgetting * past_slope;
    if (along.penalty)
        change += ridge;
    else if (along.inertia)
        change += work.inertia;
    else if (along.memory)
        change += work.forgetting * (1.0 - work.forgetting) * past;
    const double dridge = along.penalty ? ridge : 0.0;
    return {change, 1.0 - ridge * inverse, inverse * (dridge - change * ridge * inverse)};
}

Direction direction_of(const Plan& plan, std::size_t entry) {
    return {plan.is(entry, PENALTY), plan.is(entry, INERTIA), plan.is(entry, MEMORY)};
}

}  // namespace

std::size_t cells_for(std::size_t features) {
    std::size_t room = LEAST_CELLS;
    while (room < features + 1) room *= 2;
    return room;
}

std::size_t cell_offset(const Plan& plan, std::size_t member) {
    std::size_t offset = MEMBER_PARTS;
    for (std::size_t i = 0; i < member; ++i) offset += member_width(plan, i);
    return offset;
}

std::size_t cell_width(const Plan& plan) { return cell_offset(plan, plan.members); }

// ---- diagonal curvature -------------------------------------------------------------------------

DiagonalMember::DiagonalMember(const Plan&, std::size_t offset) : tuned_(true), offset_(offset) {}

DiagonalMember::DiagonalMember(const Plan&, std::size_t offset, bool root, double penalty,
                               double inertia, double memory)
    : tuned_(false),
      root_(root),
      offset_(offset),
      penalty_(penalty),
      inertia_(inertia),
      forgetting_(memory / (1.0 + memory)) {}

void DiagonalMember::prepare(const Context& context, MemberWork& work) const {
    const Plan& plan = context.plan;
    const Vector& x = context.tuned.x();
    work.ridge.assign(1, tuned_ ? std::exp(x[plan.at(PENALTY)]) : penalty_);
    work.inertia = tuned_ ? std::exp(x[plan.at(INERTIA)]) : inertia_;
    work.forgetting = tuned_ ? sigmoid(x[plan.at(MEMORY)]) : forgetting_;
}

bool DiagonalMember::predict(const Context& context, const Row& row, MemberWork& work) const {
    const Plan& plan = context.plan;
    const Matrix& cells = *context.cells;
    const std::size_t outputs = plan.outputs, n = tuned_ ? plan.entries.size() : 0;
    const double penalty = work.ridge[0];
    work.solution.resize(row.places.size());
    std::fill(work.z0.begin(), work.z0.end(), 0.0);
    double v = 0.0;
    for (std::size_t i = 0; i < row.places.size(); ++i) {
        const double* part = cells.data() + row.places[i] * cells.columns() + offset_;
        const double* weights = part + 1 + n;
        const double ridge = i > 0 ? penalty : 0.0, past = work.forgetting * part[0];
        const double stiffness = root_ ? work.inertia * std::sqrt(1.0 + past) : work.inertia + past;
        const double inverse = 1.0 / (stiffness + ridge), a = row.values[i];
        work.solution[i] = inverse;
        v += a * a * inverse;
        const double by = a * (1.0 - ridge * inverse);
        for (std::size_t k = 0; k < outputs; ++k) work.z0[k] += by * weights[k];
    }
    work.v = v;
    bool finite = std::isfinite(v);
    for (std::size_t k = 0; k < outputs; ++k) {
        work.outputs[k] = work.z0[k];
        finite = finite && std::isfinite(work.z0[k]);
    }
    return finite;
}

double DiagonalMember::curvature_of_row(const Context& context, double weight) const {
    const ProximalStep& step = context.scratch.step;
    if (root_) return weight * weight * dot(step.pull, step.pull);
    return context.loss.diagonal_curvature(step, weight);
}

double DiagonalMember::slopes(const Context& context, const Row& row, const Example& example,
                              const MemberWork& work, double weight) const {
    const Plan& plan = context.plan;
    const Matrix& cells = *context.cells;
    Scratch& scratch = context.scratch;
    const std::size_t n = plan.entries.size(), outputs = plan.outputs;
    prediction_gradient(context, example, work, scratch.gradient);
    double check = 0.0;
    for (std::size_t j = 0; j < n; ++j) {
        const std::size_t entry = plan.entries[j];
        const Direction along = direction_of(plan, entry);
        std::fill(scratch.dz0.begin(), scratch.dz0.end(), 0.0);
        double dv = 0.0;
        for (std::size_t i = 0; i < row.places.size(); ++i) {
            const double* part = cells.data() + row.places[i] * cells.columns() + offset_;
            const double *y = part + 1 + n, *s = y + outputs + j * outputs;
            const double inverse = work.solution[i], a = row.values[i];
            const double ridge = i > 0 ? work.ridge[0] : 0.0;
            const auto slope = feature_slope(work, along, ridge, inverse, part[0], part[1 + j]);
            dv -= slope.change * (a * inverse) * (a * inverse);
            for (std::size_t k = 0; k < outputs; ++k)
                scratch.dz0[k] += a * (slope.keep * s[k] - slope.shrink * y[k]);
        }
        scratch.slopes[j] = 0.0;
        for (std::size_t k = 0; k < outputs; ++k)
            scratch.slopes[j] -= example.outer_weight * scratch.gradient[k] * scratch.dz0[k];
        const double dweight = shift_and_weight_slopes(plan, entry, example, weight, scratch);
        const ProximalInputs inputs{work.z0, work.v, weight, scratch.shift};
        const ProximalInputs direction{scratch.dz0, dv, dweight, scratch.dshift};
        context.loss.pull_derivative(inputs, scratch.step, direction, scratch.dpull);
        scratch.curvature_slopes[j] = context.loss.diagonal_curvature_derivative(
            scratch.step, weight, dweight, scratch.dpull);
        check += std::abs(scratch.slopes[j]) + std::abs(dv) + std::abs(scratch.curvature_slopes[j]);
        for (std::size_t k = 0; k < outputs; ++k) {
            scratch.pushes[j * outputs + k] =
                dweight * scratch.step.pull[k] + weight * scratch.dpull[k];
            check += std::abs(scratch.dz0[k]) + std::abs(scratch.pushes[j * outputs + k]);
        }
    }
    return check;
}

void DiagonalMember::write(const Context& context, const Row& row, const MemberWork& work,
                           double weight, double lift) const {
    const Plan& plan = context.plan;
    Matrix& cells = *context.cells;
    const Scratch& scratch = context.scratch;
    const std::size_t n = tuned_ ? plan.entries.size() : 0, outputs = plan.outputs;
    const double forgetting = work.forgetting, faster = forgetting * (1.0 - forgetting);
    for (std::size_t i = 0; i < row.places.size(); ++i) {
        double* part = cells.data() + row.places[i] * cells.columns() + offset_;
        double *y = part + 1 + n, *sensitivity = y + outputs;
        const double inverse = work.solution[i], a = row.values[i];
        const double ridge = i > 0 ? work.ridge[0] : 0.0, spread = a * inverse;
        for (std::size_t j = 0; j < n; ++j) {
            const Direction along = direction_of(plan, plan.entries[j]);
            const auto slope = feature_slope(work, along, ridge, inverse, part[0], part[1 + j]);
            const double pushed = weight * slope.change * spread * inverse;
            double* s = sensitivity + j * outputs;
            for (std::size_t k = 0; k < outputs; ++k) {
                double moved = slope.keep * s[k] - slope.shrink * y[k];
                moved += spread * scratch.pushes[j * outputs + k] - pushed * scratch.step.pull[k];
                s[k] = plan.spec.fading * moved;
            }
            const double longer = along.memory ? faster * part[0] : 0.0;
            part[1 + j] = forgetting * part[1 + j] + longer + scratch.curvature_slopes[j] * a * a;
        }
        for (std::size_t k = 0; k < outputs; ++k)
            y[k] = (1.0 - ridge * inverse) * y[k] + spread * weight * scratch.step.pull[k];
        part[0] = forgetting * part[0] + lift * a * a;
    }
}

bool DiagonalMember::update(const Context& context, const Row& row, const Example& example,
                            MemberWork& work) {
    const Plan& plan = context.plan;
    Scratch& scratch = context.scratch;
    double weight = example.weight;
    View shift = scratch.no_shift;
    if (tuned_) {
        weight = tuned_weight(plan, context.tuned.x(), example, scratch.shift);
        shift = scratch.shift;
    }
    const ProximalInputs inputs{work.z0, work.v, weight, shift};
    context.loss.proximal(inputs, example.target, scratch.step);
    const double lift = curvature_of_row(context, weight);
    double check = std::abs(work.v) + std::abs(lift);
    for (std::size_t k = 0; k < plan.outputs; ++k)
        check += std::abs(work.z0[k]) + std::abs(scratch.step.pull[k]);
    if (tuned_) check += slopes(context, row, example, work, weight);
    // The slopes of z0 have every new slope of a weight in them, so that what is written is finite.
    if (!(check <= LARGEST_SLOPE)) return false;
    write(context, row, work, weight, lift);
    return true;
}

std::unique_ptr<Member> DiagonalMember::copy() const {
    return std::make_unique<DiagonalMember>(*this);
}

std::unique_ptr<Member> DiagonalMember::resized(const Plan&, const Plan& now,
                                                std::size_t place) const {
    auto larger = std::make_unique<DiagonalMember>(*this);
    larger->offset_ = cell_offset(now, place);
    return larger;
}

void DiagonalMember::visit(Archive&, const std::string&) {}

double DiagonalMember::cost(const Plan& plan, double values) const {
    const auto k = static_cast<double>(plan.outputs);
    const auto n = tuned_ ? static_cast<double>(plan.entries.size()) : 0.0;
    return values * (8.0 + 4.0 * k + n * (20.0 + 8.0 * k));
}

// ---- full curvature -----------------------------------------------------------------------------

FullMember::FullMember(const Plan& plan, std::size_t offset)
    : DiagonalMember(plan, offset, false, FULL_PENALTY, full_inertia(plan), FULL_MEMORY),
      memory_(FULL_MEMORY) {}

void FullMember::fit(const Plan& plan, Matrix& cells, std::size_t features) {
    if (given_up_) return;
    if (features > MOST_FULL) {
        // The diagonal of the covariance goes into the curvature of the cells.
        for (std::size_t i = 0; i < covariance_.rows(); ++i) {
            const double known = std::max(1.0 / covariance_[i][i] - inertia_, 0.0);
            cells[i][offset_] = known * (1.0 + memory_) / memory_;
        }
        given_up_ = true;
        covariance_ = Matrix();
        return;
    }
    const std::size_t side = std::min(cells_for(features), MOST_FULL + 1);
    if (side <= covariance_.rows()) return;
    Matrix larger(side, side);
    for (std::size_t i = 0; i < side; ++i) larger[i][i] = 1.0 / full_inertia(plan);
    larger[0][0] = INTERCEPT_VARIANCE;
    for (std::size_t i = 0; i < covariance_.rows(); ++i)
        std::copy(covariance_[i].begin(), covariance_[i].end(), larger[i].begin());
    covariance_ = std::move(larger);
}

void FullMember::continue_from(const Matrix& curvature, std::size_t features) {
    if (given_up_) return;
    // The inverse of the curvature and of what was known before.
    const std::size_t d = features + 1;
    Matrix known(d, d), identity(d, d), inverse(d, d);
    for (std::size_t i = 0; i < d; ++i) {
        for (std::size_t j = 0; j < d; ++j)
            known[i][j] = curvature[i > 0 ? i - 1 : features][j > 0 ? j - 1 : features];
        known[i][i] += 1.0 / covariance_[i][i];
        identity[i][i] = 1.0;
    }
    if (!factorise(known)) return;
    solve(known, identity.data(), d, inverse.data());
    for (std::size_t i = 0; i < d; ++i)
        for (std::size_t j = 0; j < d; ++j)
            covariance_[i][j] = 0.5 * (inverse[i][j] + inverse[j][i]);
}

void FullMember::prepare(const Context& context, MemberWork& work) const {
    DiagonalMember::prepare(context, work);
    work.solution.reserve(covariance_.rows());
}

bool FullMember::predict(const Context& context, const Row& row, MemberWork& work) const {
    if (given_up_) return DiagonalMember::predict(context, row, work);
    const Matrix& cells = *context.cells;
    const std::size_t outputs = context.plan.outputs;
    std::fill(work.outputs.begin(), work.outputs.end(), 0.0);
    for (std::size_t i = 0; i < row.places.size(); ++i) {
        const double* y = cells.data() + row.places[i] * cells.columns() + offset_ + 1;
        for (std::size_t k = 0; k < outputs; ++k) work.outputs[k] += row.values[i] * y[k];
    }
    bool finite = true;
    for (std::size_t k = 0; k < outputs; ++k) {
        work.z0[k] = work.outputs[k];
        finite = finite && std::isfinite(work.z0[k]);
    }
    return finite;
}

bool FullMember::update(const Context& context, const Row& row, const Example& example,
                        MemberWork& work) {
    if (given_up_) return DiagonalMember::update(context, row, example, work);
    const Plan& plan = context.plan;
    Matrix& cells = *context.cells;
    Scratch& scratch = context.scratch;
    const std::size_t side = covariance_.rows();
    Vector& s = work.solution;
    s.assign(side, 0.0);
    for (std::size_t i = 0; i < row.places.size(); ++i)
        add_scaled(s, row.values[i], covariance_[row.places[i]]);
    double v = 0.0;
    for (std::size_t i = 0; i < row.places.size(); ++i) v += row.values[i] * s[row.places[i]];
    const ProximalInputs inputs{work.z0, v, example.weight, scratch.no_shift};
    context.loss.proximal(inputs, example.target, scratch.step);
    const double h = context.loss.diagonal_curvature(scratch.step, example.weight);
    double check = std::abs(v) + std::abs(h);
    for (double pull : scratch.step.pull) check += std::abs(pull);
    for (double one : s) check += std::abs(one);
    if (!(check <= LARGEST_SLOPE && v >= 0.0)) return false;
    const double keep = 1.0 - 0.5 / memory_;
    const double drift = (1.0 - keep * keep) / inertia_, by = h / (1.0 + h * v);
    for (std::size_t i = 0; i < side; ++i) {
        // A feature that has not come yet is as it was, whenever there was room for it.
        if (i > 0 && s[i] == 0.0 && cells[i][ROWS_SEEN] == 0.0) continue;
        fade_and_subtract(covariance_[i], keep * keep, by * s[i], s);
        covariance_[i][i] += drift;
        double* y = cells.data() + i * cells.columns() + offset_ + 1;
        const double kept = i > 0 ? keep : 1.0;
        for (std::size_t k = 0; k < plan.outputs; ++k)
            y[k] = kept * (y[k] + example.weight * scratch.step.pull[k] * s[i]);
    }
    return true;
}

std::unique_ptr<Member> FullMember::copy() const { return std::make_unique<FullMember>(*this); }

std::unique_ptr<Member> FullMember::resized(const Plan&, const Plan& now,
                                            std::size_t place) const {
    auto larger = std::make_unique<FullMember>(*this);
    larger->offset_ = cell_offset(now, place);
    return larger;
}

void FullMember::visit(Archive& archive, const std::string& name) {
    double given_up = given_up_ ? 1.0 : 0.0;
    archive.number(name + ".given_up", given_up);
    archive.require_whole(given_up, 0.0, 1.0, name + ".given_up");
    archive.require(given_up_ == (given_up != 0.0), name + ".given_up",
                    "what follows from the number of features");
    if (!given_up_) archive.matrix(name + ".covariance", covariance_);
}

double FullMember::cost(const Plan& plan, double values) const {
    if (given_up_) return DiagonalMember::cost(plan, values);
    const auto side = static_cast<double>(covariance_.rows());
    return side * (2.0 * side + values);
}

Matrix widened_cells(const Plan& old, const Plan& now, const Matrix& cells) {
    Matrix wide(cells.rows(), cell_width(now));
    const auto members = member_places(old.spec, now.spec);
    const auto places = x_places(old.spec, now.spec);
    const Vector factors = output_factors(old.spec, now.spec);
    const std::size_t before = old.outputs, after = now.outputs, written = factors.size();
    // For each learned entry of the old plan its position among those of the new one, if it has one.
    std::vector<std::size_t> learned;
    for (std::size_t entry : old.entries) {
        const auto at = std::find(now.entries.begin(), now.entries.end(), places[entry]);
        learned.push_back(static_cast<std::size_t>(at - now.entries.begin()));
    }
    for (std::size_t row = 0; row < cells.rows(); ++row) {
        const View from = cells[row];
        const Span to = wide[row];
        std::copy_n(from.begin(), static_cast<std::size_t>(MEMBER_PARTS), to.begin());
        for (std::size_t m = 0; m < members.size(); ++m) {
            const std::size_t n = m == 0 ? old.entries.size() : 0;
            const std::size_t more = m == 0 ? now.entries.size() : 0;
            const View source = from.subspan(cell_offset(old, m));
            const Span target = to.subspan(cell_offset(now, members[m]));
            target[0] = source[0];
            for (std::size_t k = 0; k < written; ++k)
                target[1 + more + k] = factors[k] * source[1 + n + (before == 1 ? 0 : k)];
            for (std::size_t j = 0; j < n; ++j) {
                if (learned[j] == more) continue;
                target[1 + learned[j]] = source[1 + j];
                for (std::size_t k = 0; k < written; ++k)
                    target[1 + more + after + learned[j] * after + k] =
                        factors[k] * source[1 + n + before + j * before + (before == 1 ? 0 : k)];
            }
        }
    }
    return wide;
}

std::vector<std::unique_ptr<Member>> sparse_members(const Plan& plan) {
    std::vector<std::unique_ptr<Member>> members;
    const auto offset = [&] { return cell_offset(plan, members.size()); };
    members.push_back(std::make_unique<DiagonalMember>(plan, offset()));
    for (const auto& one : plan.spec.frozen) {
        if (members.size() == plan.spec.full_member())
            members.push_back(std::make_unique<FullMember>(plan, offset()));
        else
            members.push_back(std::make_unique<DiagonalMember>(plan, offset(), false, one.penalty,
                                                               one.inertia, one.memory));
    }
    for (const auto& one : plan.spec.gradient_steps)
        members.push_back(std::make_unique<DiagonalMember>(plan, offset(), true, ROOT_PENALTY,
                                                           1.0 / one.rate, ROOT_MEMORY));
    return members;
}

}  // namespace obax
