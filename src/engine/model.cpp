#include "model.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>

#include "algebra.hpp"
#include "dense.hpp"
#include "sparse.hpp"

namespace obax {

namespace {

// A feature that is present in this share of the rows is centred in a sparse model.
constexpr double PRESENT_OFTEN = 0.9;
constexpr double MISSING = std::numeric_limits<double>::quiet_NaN();

std::vector<std::unique_ptr<Member>> dense_members(const Plan& plan) {
    std::vector<std::unique_ptr<Member>> members;
    members.push_back(std::make_unique<TunedMember>(plan));
    for (const auto& one : plan.spec.frozen)
        members.push_back(
            std::make_unique<SecondOrderMember>(plan, one.penalty, one.memory, one.inertia));
    for (const auto& one : plan.spec.gradient_steps)
        members.push_back(std::make_unique<GradientMember>(plan, one.rate));
    return members;
}

bool same_bits(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

// A value of a sparse model as its members get it; 0 for a missing one and for a constant. A
// feature that is nearly always there is standardised and its mean stands for a missing value. Any
// other, a word, is divided by the root of its mean square and not centred: absent is 0.
double scale_sparse(View cell, double value, double rows) {
    const double seen = cell[ROWS_SEEN];
    const bool present = seen >= TRUSTED_ROWS && seen >= PRESENT_OFTEN * (rows - cell[FIRST_ROW]);
    if (present || seen >= PRESENT_OFTEN * rows)
        return standardise(value, cell[MEAN], cell[VARIANCE]);
    const double size = seen > 0.0 ? std::sqrt(cell[VARIANCE] + cell[MEAN] * cell[MEAN])
                                   : std::abs(value);
    if (!(std::abs(value) <= LARGEST && size > 0.0)) return 0.0;
    return std::min(std::max(value / size, -CLIP), CLIP);
}

}  // namespace

// ---- buffers ------------------------------------------------------------------------------------

Workspace::Workspace(const Plan& plan)
    : loss(make_loss(plan.spec.loss, plan.outputs, plan.spec.delta)),
      members(plan.members),
      raw(plan.spec.sparse ? 0 : plan.features, MISSING),
      trail(plan.trail) {
    const std::size_t d = plan.inputs, k = plan.outputs, n = plan.entries.size();
    const std::size_t second_order = plan.spec.sparse ? 0 : 1 + plan.spec.frozen.size();
    for (std::size_t i = 0; i < members.size(); ++i) {
        MemberWork& member = members[i];
        member.z0.assign(k, 0.0);
        member.outputs.assign(k, 0.0);
        member.prediction.assign(plan.predictions, 0.0);
        if (i >= second_order) continue;
        member.ridge.assign(d, 0.0);
        member.factors = Matrix(d, d);
        member.right = member.solutions = Matrix(1 + k, d);
        member.centre = Matrix(k, d);
    }
    if (plan.auto_members > 0) beside = std::make_unique<AutoWork>(plan);
    row.values.assign(d, 0.0);
    row.slope.assign(d, 0.0);
    scratch.step.resize(k);
    for (Vector* one : {&scratch.no_shift, &scratch.shift, &scratch.gradient, &scratch.dz0,
                        &scratch.dshift, &scratch.dpull})
        one->assign(k, 0.0);
    scratch.pushes.assign(n * k, 0.0);
    scratch.slopes.assign(n, 0.0);
    scratch.curvature_slopes.assign(n, 0.0);
    scratch.curved = scratch.tilted = Matrix(1 + k, d);
    scratch.moved = Matrix(n, d);
    scratch.right = scratch.solved = Matrix(n * k, d);
    scratch.diagonal.assign(d, 0.0);
}

// ---- making and growing -------------------------------------------------------------------------

Model::Model(PlanPointer plan)
    : Model(plan, plan->spec.sparse ? sparse_members(*plan) : dense_members(*plan)) {}

Model::Model(PlanPointer plan, std::vector<std::unique_ptr<Member>> members)
    : plan_(std::move(plan)),
      features_(plan_->features),
      tuned_(*plan_),
      mixture_(plan_->members, !plan_->classifies),
      members_(std::move(members)),
      auto_(plan_->auto_members > 0 ? std::make_unique<AutoMembers>(*plan_, cost()) : nullptr),
      moments_(plan_->spec.sparse ? 0 : plan_->features),
      frequencies_{Vector(plan_->slots, 0.0)},
      recent_(plan_->spec.lags, MISSING),
      history_(plan_->trail, plan_->spec.history_points),
      scores_(plan_->spec.intervals) {
    if (!plan_->spec.sparse) return;
    cells_ = Matrix(cells_for(features_), cell_width(*plan_));
    for (auto& member : members_)
        static_cast<DiagonalMember&>(*member).fit(*plan_, cells_, features_);
}

Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

Model Model::copy() const { return resized(plan_, features_); }

bool Model::has_room(std::size_t features) const {
    return plan_->spec.sparse && cells_for(features) <= cells_.rows();
}

void Model::begin_with_zeros(std::size_t feature, std::size_t sibling) {
    if (!plan_->spec.sparse) {
        moments_[feature] = moments_[sibling].of_zeros();
        if (auto_) auto_->begin_with_zeros(feature, sibling);
        return;
    }
    const View from = cells_[1 + sibling];
    const Span to = cells_[1 + feature];
    for (const CellPart part : {FIRST_ROW, ROWS_SEEN, COUNT}) to[part] = from[part];
}

Model Model::resized(PlanPointer plan, std::size_t features) const {
    if (plan->spec.sparse && !plan_->spec.sparse) return made_sparse(std::move(plan), features);
    const Plan &old = *plan_, &now = *plan;
    const auto places = member_places(old.spec, now.spec);
    std::vector<std::unique_ptr<Member>> members(now.members);
    if (places.size() < now.members)
        members = now.spec.sparse ? sparse_members(now) : dense_members(now);
    for (std::size_t i = 0; i < places.size(); ++i)
        members[places[i]] = members_[i]->resized(old, now, places[i]);
    Model larger(plan, std::move(members));
    larger.features_ = features;
    larger.rows_ = rows_;
    larger.tuned_ = tuned_.resized(old, now, rows_ > 0.0);
    larger.mixture_ = mixture_.resized(places, now.members);
    if (auto_ && larger.auto_) larger.auto_ = auto_->resized(old, now, larger.cost());
    std::copy(moments_.begin(), moments_.end(), larger.moments_.begin());
    larger.target_ = target_;
    std::copy(frequencies_.counts.begin(), frequencies_.counts.end(),
              larger.frequencies_.counts.begin());
    larger.recent_ = recent_;
    larger.last_target_ = last_target_;
    larger.scores_ = scores_;
    larger.underflow_ = underflow_;
    larger.history_ = history_.widened(now.trail, trail_places(old.spec, now.spec));
    if (!now.spec.sparse) return larger;
    const bool same_cells = cell_width(old) == cell_width(now) && old.entries == now.entries;
    const Matrix cells = same_cells ? cells_ : widened_cells(old, now, cells_);
    larger.cells_ = Matrix(std::max(cells_for(features), cells_.rows()), cell_width(now));
    std::copy(cells.flat().begin(), cells.flat().end(), larger.cells_.flat().begin());
    for (auto& member : larger.members_)
        static_cast<DiagonalMember&>(*member).fit(now, larger.cells_, features);
    return larger;
}

Model Model::made_sparse(PlanPointer plan, std::size_t features) const {
    Model sparse(plan);
    const Plan &old = *plan_, &now = *sparse.plan_;
    const std::size_t f = features_;
    sparse.features_ = features;
    sparse.rows_ = rows_;
    sparse.tuned_ = tuned_.resized(old, now, rows_ > 0.0);
    const auto places = member_places(old.spec, now.spec);
    sparse.mixture_ = mixture_.resized(places, now.members);
    sparse.target_ = target_;
    std::copy(frequencies_.counts.begin(), frequencies_.counts.end(),
              sparse.frequencies_.counts.begin());
    sparse.last_target_ = last_target_;
    sparse.scores_ = scores_;
    sparse.history_ = history_.widened(now.trail, trail_places(old.spec, now.spec));

    Matrix& cells = sparse.cells_ = Matrix(cells_for(std::max(features, f)), cell_width(now));
    for (std::size_t i = 0; i < f; ++i) {
        const RunningMoments& moments = moments_[i].moments();
        const Span cell = cells[1 + i];
        cell[ROWS_SEEN] = cell[COUNT] = moments.count;
        cell[MEAN] = moments.mean;
        cell[VARIANCE] = moments.variance;
    }
    const Vector factors = output_factors(old.spec, now.spec);
    const std::size_t second_order = 1 + old.spec.frozen.size();
    for (std::size_t m = 0; m < now.members; ++m) {
        auto& member = static_cast<DiagonalMember&>(*sparse.members_[m]);
        member.fit(now, cells, f);
        // A member that is new begins as the tuned one. Gradient steps have no curvature here: they
        // get that of the tuned one, which estimates the same.
        const auto at = std::find(places.begin(), places.end(), m);
        const std::size_t was = at == places.end() ? 0 : static_cast<std::size_t>(at - places.begin());
        const bool first_order = was >= second_order;
        const Matrix& weights =
            first_order ? static_cast<const GradientMember&>(*members_[was]).weights()
                        : static_cast<const SecondOrderMember&>(*members_[was]).weights();
        const Matrix& curvature =
            static_cast<const SecondOrderMember&>(*members_[first_order ? 0 : was]).curvature();
        const std::size_t offset = cell_offset(now, m), n = m == 0 ? now.entries.size() : 0;
        for (std::size_t i = 0; i <= f; ++i) {
            const std::size_t column = i > 0 ? i - 1 : f;  // the intercept is the last one there
            cells[i][offset] = curvature[column][column];
            for (std::size_t k = 0; k < factors.size(); ++k)
                cells[i][offset + 1 + n + k] =
                    factors[k] * weights[weights.rows() == 1 ? 0 : k][column];
        }
        if (m == now.spec.full_member() && m > 0)
            static_cast<FullMember&>(member).continue_from(curvature, f);
        member.fit(now, cells, features);
    }
    return sparse;
}

// ---- reading a row ------------------------------------------------------------------------------

Context Model::context(Workspace& work) const {
    return {*plan_, *work.loss, tuned_, rows_, &cells_, work.scratch};
}

AutoContext Model::auto_context(const Workspace& work) const {
    return {*plan_, *work.loss, frequencies_.counts, rows_};
}

bool Model::same_row(const RawRow& raw, const Workspace& work) const {
    if (plan_->spec.sparse) {
        if (raw.size != work.raw.size()) return false;
        for (std::size_t i = 0; i < raw.size; ++i) {
            const auto at = raw.index ? raw.index[i] : static_cast<std::int32_t>(i);
            if (at != work.raw_index[i] || !same_bits(raw.value(i), work.raw[i])) return false;
        }
        return true;
    }
    if (raw.index || raw.size != work.raw.size()) return false;
    for (std::size_t i = 0; i < raw.size; ++i)
        if (!same_bits(raw.value(i), work.raw[i])) return false;
    return true;
}

void Model::read(const RawRow& raw, Workspace& work) const {
    if (plan_->spec.sparse) {
        work.raw.resize(raw.size);
        work.raw_index.resize(raw.size);
        for (std::size_t i = 0; i < raw.size; ++i) {
            const auto at = raw.index ? raw.index[i] : static_cast<std::int32_t>(i);
            work.raw[i] = raw.value(i);
            work.raw_index[i] = at < static_cast<std::int32_t>(features_) ? at : -1;
        }
        standardise_sparse(work);
        return;
    }
    if (raw.index) {
        std::fill(work.raw.begin(), work.raw.end(), MISSING);
        for (std::size_t i = 0; i < raw.size; ++i) {
            const auto at = raw.index[i];
            if (at >= 0 && static_cast<std::size_t>(at) < features_)
                work.raw[static_cast<std::size_t>(at)] = raw.value(i);
        }
    } else {
        const std::size_t size = std::min(raw.size, features_);
        for (std::size_t i = 0; i < size; ++i) work.raw[i] = raw.value(i);
        for (std::size_t i = size; i < features_; ++i) work.raw[i] = MISSING;
    }
    for (std::size_t i = 0; i < features_; ++i)
        work.row.values[i] = moments_[i].standardise_unless_doubtful(work.raw[i]);
    work.row.values[features_] = 1.0;
    expand(work);
}

void Model::standardise_sparse(Workspace& work) const {
    auto& ordered = work.ordered;
    ordered.clear();
    ordered.emplace_back(0, 1.0);
    for (std::size_t i = 0; i < work.raw.size(); ++i) {
        if (work.raw_index[i] < 0) continue;
        const std::size_t place = static_cast<std::size_t>(work.raw_index[i]) + 1;
        ordered.emplace_back(place, scale_sparse(cells_[place], work.raw[i], rows_));
    }
    // By place, so that the order in which features come changes nothing.
    const auto by_place = [](const auto& a, const auto& b) { return a.first < b.first; };
    if (!std::is_sorted(ordered.begin(), ordered.end(), by_place))
        std::sort(ordered.begin(), ordered.end(), by_place);
    work.row.places.resize(ordered.size());
    work.row.values.resize(ordered.size());
    for (std::size_t i = 0; i < ordered.size(); ++i)
        std::tie(work.row.places[i], work.row.values[i]) = ordered[i];
}

// A wave is sqrt(2) cos(w . a / bandwidth + phase) with w drawn from a normal of variance 1 / 2f:
// the product of two rows' waves is on average exp(-|a - a'|^2 / (4 f bandwidth^2)), so that weights
// of waves are a Gaussian kernel machine (Rahimi and Recht 2007), and a bandwidth of 1 is the
// distance of two rows. Each wave is as large as a standardised feature.
void Model::expand(Workspace& work) const {
    const Plan& plan = *plan_;
    Vector& a = work.row.values;
    std::size_t at = features_ + 1;
    for (double target : recent_) {
        if (!plan.classifies) {
            a[at++] = target_.moments().standardise(target);
            continue;
        }
        for (std::size_t c = 0; c < plan.slots; ++c)
            a[at++] = target == static_cast<double>(c) ? 1.0 : 0.0;
    }
    if (plan.spec.expansion == Expansion::fourier) {
        const Waves& waves = *plan.spec.waves;
        const double size = std::sqrt(2.0);
        const double bandwidth = std::exp(tuned_.x()[plan.at(BANDWIDTH)]);
        const double unit =
            1.0 / (std::sqrt(static_cast<double>(std::max<std::size_t>(1, 2 * features_))) *
                   bandwidth);
        const Span angles(work.row.slope.data() + at, WAVES);
        std::fill(angles.begin(), angles.end(), 0.0);
        for (std::size_t i = 0; i < features_; ++i)
            if (a[i] != 0.0) add_scaled(angles, a[i], waves.directions[i]);
        for (std::size_t j = 0; j < WAVES; ++j) {
            const double angle = unit * angles[j];
            a[at + j] = size * std::cos(angle + waves.phases[j]);
            angles[j] = size * std::sin(angle + waves.phases[j]) * angle;
        }
    } else if (plan.spec.expansion == Expansion::interactions) {
        const std::size_t some = std::min(features_, MULTIPLIED);
        for (std::size_t i = 0; i < some; ++i)
            for (std::size_t j = i; j < some; ++j)
                a[at++] = std::min(std::max(a[i] * a[j], -CLIP), CLIP);
    }
}

// ---- testing and training -----------------------------------------------------------------------

bool Model::predict(const RawRow& raw, Workspace& work, Span prediction) const {
    const Plan& plan = *plan_;
    const bool fresh = !(work.prepared && work.predicted && same_row(raw, work));
    if (fresh) {
        read(raw, work);
        const Context seen = context(work);
        for (std::size_t i = 0; i < plan.members; ++i) {
            MemberWork& member = work.members[i];
            if (!work.prepared) members_[i]->prepare(seen, member);
            member.awake = members_[i]->predict(seen, work.row, member);
            work.loss->prediction(member.outputs, member.prediction);
        }
        work.prepared = work.predicted = true;
    }
    bool able = mixture_.predict(work.members, prediction);
    if (!plan.classifies) {
        work.mean_output = prediction[0];
        const RunningMoments& target = target_.moments();
        const double deviation = std::sqrt(target.variance);
        prediction[0] = target.mean + deviation * prediction[0];
        if (auto_) {
            able = auto_->predict(auto_context(work), raw, work.raw, able, *work.beside, prediction);
            work.mean_output = deviation > 0.0 ? (prediction[0] - target.mean) / deviation : 0.0;
        }
        return able;
    }
    if (auto_)
        able = auto_->predict(auto_context(work), raw, work.raw, able, *work.beside, prediction);
    if (!able) {
        std::fill(prediction.begin(), prediction.end(),
                  1.0 / static_cast<double>(prediction.size()));
    } else if (plan.spec.classes == 1) {
        // Another class is at most as probable as the rows so far say (Krichevsky and Trofimov 1981).
        prediction[0] = std::max(prediction[0], (rows_ + 0.5) / (rows_ + 1.0));
        prediction[1] = 1.0 - prediction[0];
    }
    return able;
}

double Model::standardised_target(double target) const {
    return plan_->classifies ? target : target_.moments().standardise(target);
}

Outcome Model::step(const RawRow& raw, double target, double weight, Workspace& work,
                    Span prediction, double predicted) {
    const Plan& plan = *plan_;
    if (std::isnan(target)) weight = 0.0;
    if (weight > 0.0) {
        bool extreme = std::abs(target) > LARGEST;
        for (std::size_t i = 0; i < raw.size; ++i)
            extreme = extreme || std::abs(raw.value(i)) > LARGEST;
        if (extreme) return {Status::extreme, 0.0};
    }
    if (!predict(raw, work, prediction)) return {Status::rejected, 0.0};
    if (std::isnan(target)) return {Status::learned, MISSING};

    const auto label = plan.classifies ? static_cast<std::size_t>(target) : 0;
    Example example{standardised_target(target), label, weight, 0.0};
    const double rarity =
        plan.spec.balance == Balance::none ? 1.0 : frequencies_.rarity(label);
    double loss;
    if (plan.members == 1 && !auto_)
        loss = work.loss->value(work.members[0].outputs, example.target);
    else if (plan.classifies)
        loss = -std::log(std::max(std::isnan(predicted) ? prediction[label] : predicted,
                                  LEAST_PROBABILITY));
    else
        loss = work.loss->value(View(&work.mean_output, 1), example.target);
    const double factor = plan.spec.balance == Balance::leader ? rarity : 1.0;
    loss *= factor;
    if (!std::isfinite(loss)) return {Status::rejected, 0.0};
    if (!(weight > 0.0)) return {Status::learned, loss};
    // From here on nothing takes memory: the row is learned as a whole.
    history_.make_room();
    scores_.make_room();

    // A target that is cut off is no glitch where a feature has a rare value that has come before.
    const auto rare = [&] {
        return std::any_of(work.row.values.begin(), work.row.values.begin() + plan.features,
                           [](double value) { return std::abs(value) >= CLIP; });
    };
    const bool doubtful =
        !plan.classifies && !plan.spec.sparse && std::abs(example.target) >= CLIP && !rare();
    if (doubtful) {
        // A glitch teaches nothing, and of a jump nothing but the statistics has to move.
        if (auto_)
            auto_->update(auto_context(work), raw, target, weight, example, true, *work.beside);
        rows_ += 1.0;
        compare_with_last_target(work, target, example.target, factor, loss);
        learn_statistics(work, target, label);
        work.reset();
        return finish(work, target, loss, prediction);
    }
    example.outer_weight = rarity * weight;
    if (plan.spec.balance == Balance::all) example.weight = example.outer_weight;

    const Context seen = context(work);
    bool any = false;
    for (std::size_t i = 0; i < plan.members; ++i) {
        MemberWork& member = work.members[i];
        member.learned = member.awake && members_[i]->update(seen, work.row, example, member);
        any = any || member.learned;
    }
    // Nothing of a member is written before all of it is known to be finite.
    if (!any) return {Status::rejected, 0.0};
    for (std::size_t i = 0; i < plan.members; ++i)
        if (!work.members[i].learned) mixture_.count_sat_out(i);
    move_shares(work, example);
    if (auto_)
        auto_->update(auto_context(work), raw, target, weight, example, false, *work.beside);
    if (work.members[0].learned) tuned_.step(plan, work.scratch.slopes, rows_);
    if (!plan.spec.sparse) {
        rows_ += 1.0;
        compare_with_last_target(work, target, example.target, factor, loss);
        learn_statistics(work, target, label);
        learn_restandardised(seen, work, target, example);
    } else {
        learn_statistics(work, target, label);
        rows_ += 1.0;
    }
    work.reset();
    return finish(work, target, loss, prediction);
}

Outcome Model::finish(Workspace& work, double target, double loss, View prediction) {
    if (!recent_.empty()) {
        std::rotate(recent_.begin(), recent_.end() - 1, recent_.end());
        recent_[0] = target;
    }
    history_.add(loss, [&]() -> View {
        write_trail(work.trail);
        return work.trail;
    });
    const bool number = !plan_->classifies;
    const double error = number ? std::abs(target - prediction[0])
                                : 1.0 - prediction[static_cast<std::size_t>(target)];
    scores_.add(error, number);
    return {Status::learned, loss};
}

void Model::move_shares(Workspace& work, const Example& example) {
    if (plan_->classifies) {
        for (auto& member : work.members)
            member.likelihood = std::max(member.prediction[example.label], LEAST_PROBABILITY);
    } else {
        for (auto& member : work.members)
            member.loss = work.loss->value(member.outputs, example.target);
        mixture_.set_densities(work.members, rows_);
    }
    mixture_.update(work.members, example.weight, plan_->spec.share);
}

void Model::learn_statistics(Workspace& work, double target, std::size_t label) {
    const double memory = plan_->spec.scale_memory;
    if (plan_->spec.sparse) {
        for (std::size_t i = 0; i < work.raw.size(); ++i) {
            if (work.raw_index[i] < 0) continue;
            const Span cell = cells_[static_cast<std::size_t>(work.raw_index[i]) + 1];
            if (!(cell[ROWS_SEEN] > 0.0)) cell[FIRST_ROW] = rows_;
            cell[ROWS_SEEN] += 1.0;
            if (std::isnan(work.raw[i])) continue;
            RunningMoments moments{cell[COUNT], cell[MEAN], cell[VARIANCE]};
            moments.add(work.raw[i], memory);
            cell[COUNT] = moments.count;
            cell[MEAN] = moments.mean;
            cell[VARIANCE] = moments.variance;
        }
        if (!plan_->classifies) target_.add_unguarded(target, memory);
    } else {
        for (std::size_t i = 0; i < features_; ++i)
            if (!std::isnan(work.raw[i]) &&
                !moments_[i].add(work.raw[i], memory, DOUBTFUL_VALUES))
                underflow_ = static_cast<std::ptrdiff_t>(i);
        if (!plan_->classifies && !target_.add(target, memory, JUMP)) underflow_ = -2;
    }
    if (plan_->classifies) frequencies_.add(label, memory);
}

// The row as it looks when the statistics have it in them: what is far off is then less so, which a
// plain gradient step needs. What is in doubt stays out.
void Model::learn_restandardised(const Context& context, Workspace& work, double target,
                                 const Example& example) {
    if (plan_->spec.gradient_steps.empty()) return;
    for (std::size_t i = 0; i < features_; ++i)
        if (work.row.values[i] != 0.0)
            work.row.values[i] = moments_[i].moments().standardise(work.raw[i]);
    Example again = example;
    again.target = standardised_target(target);
    for (std::size_t i = 0; i < plan_->members; ++i)
        if (work.members[i].awake)
            members_[i]->update_restandardised(context, work.row, again, work.members[i]);
}

void Model::compare_with_last_target(Workspace& work, double target, double target_z,
                                     double factor, double loss) {
    LastTargetBaseline& baseline = last_target_;
    const double last = baseline.last;
    baseline.last = target;
    if (std::isnan(last)) {
        baseline.total_loss += loss;
    } else if (plan_->classifies) {
        const double again = (baseline.repeated + 1.0) / (history_.rows_learned() + 1.0);
        const double others = static_cast<double>(plan_->slots) - 1.0;
        const double p = target == last ? again : (1.0 - again) / others;
        if (target == last) baseline.repeated += 1.0;
        baseline.total_loss -= factor * std::log(p);
    } else {
        const double z = target_.moments().standardise(last);
        baseline.total_loss += factor * work.loss->value(View(&z, 1), target_z);
    }
}

// ---- looking at it ------------------------------------------------------------------------------

void Model::write_trail(Span out) const {
    const Vector& x = tuned_.x();
    std::copy(x.begin(), x.end(), out.begin());
    Vector shares = mixture_.shares();
    if (auto_) {
        const Vector all = auto_->shares();
        for (double& share : shares) share *= all[0];
        shares.insert(shares.end(), all.begin() + 1, all.end());
    }
    std::copy(shares.begin(), shares.end(), out.begin() + x.size());
}

Matrix Model::centre(Workspace& work) const {
    const Plan& plan = *plan_;
    const Context seen = context(work);
    MemberWork& tuned = work.members[0];
    members_[0]->prepare(seen, tuned);
    work.reset();
    if (!plan.spec.sparse) {
        members_[0]->predict(seen, work.row, tuned);
        return tuned.centre;
    }
    Matrix centre(plan.outputs, features_ + 1);
    const std::size_t offset = cell_offset(plan, 0), n = plan.entries.size();
    for (std::size_t i = 0; i <= features_; ++i) {
        const View cell = View(cells_.data() + i * cells_.columns() + offset, 1 + n + plan.outputs);
        const double stiffness = tuned.inertia + tuned.forgetting * cell[0];
        const double keep = i > 0 ? stiffness / (stiffness + tuned.ridge[0]) : 1.0;
        for (std::size_t k = 0; k < plan.outputs; ++k)
            centre[k][i > 0 ? i - 1 : features_] = keep * cell[1 + n + k];
    }
    return centre;
}

double Model::cost(const Plan& plan, std::size_t values) const {
    double total = 0.0;
    for (const auto& member : members_) total += member->cost(plan, static_cast<double>(values));
    return total;
}

double Model::bytes(const Plan& plan, std::size_t features) {
    const auto number = [](std::size_t count) { return static_cast<double>(count); };
    const double d = number(plan.inputs), k = number(plan.outputs), n = number(plan.entries.size());
    const double second_order = number(1 + plan.spec.frozen.size());
    const double first_order = number(plan.spec.gradient_steps.size());
    const double points = number(plan.spec.history_points), trail = number(plan.trail);
    double numbers = points * (2.0 + trail) + 3.0 * trail + 2.0 * n;
    numbers += number(plan.members) * (number(plan.predictions) + 2.0 * k);
    if (plan.spec.intervals) numbers += 1000.0;
    if (plan.spec.sparse) {
        numbers += number(cells_for(features)) * number(cell_width(plan));
        if (plan.spec.has_full_member() && features <= MOST_FULL) {
            const double side = number(std::min(cells_for(features), MOST_FULL + 1));
            numbers += side * side;
        }
        return 8.0 * numbers;
    }
    const double slopes = n - number(plan.first_curved);
    const double f = number(features);
    numbers += second_order * (d * d + k * d) + slopes * d * d + n * k * d;  // state
    if (plan.auto_members > 0) numbers += AutoMembers::bytes(plan) / 8.0;
    numbers += first_order * k * (f + 1.0) + GuardedMoments::NUMBERS * (f + 1.0);
    numbers += second_order * (d * d + 2.0 * k * d + 2.0 * d);  // buffers
    numbers += 3.0 * (1.0 + k) * d + n * d + 2.0 * n * k * d + 4.0 * d;
    return 8.0 * numbers;
}

double Model::cost() const {
    double total = 20.0 * static_cast<double>(features_);
    for (const auto& member : members_)
        total += member->cost(*plan_, static_cast<double>(features_ + 1));
    return total;
}

double Model::state_bytes() const {
    NamedArrays arrays;
    Archive archive = Archive::writer(arrays);
    const_cast<Model*>(this)->visit(archive);
    double numbers = 0.0;
    for (const auto& [name, array] : arrays) numbers += static_cast<double>(array.values.size());
    return 8.0 * numbers + sizeof(Model);
}

void Model::visit(Archive& archive) {
    archive.number("rows", rows_);
    archive.require_whole(rows_, 0.0, 9007199254740992.0, "rows");
    tuned_.visit(archive);
    mixture_.visit(archive);
    const auto names = plan_->spec.member_names();
    if (plan_->spec.sparse) {
        const std::size_t used = features_ + 1;
        archive.array("cells", Span(cells_.data(), used * cells_.columns()),
                      {used, cells_.columns()});
        for (std::size_t i = 0; i < used; ++i) {
            const View cell = cells_[i];
            archive.require(cell[ROWS_SEEN] >= 0.0 && cell[COUNT] >= 0.0 && cell[VARIANCE] >= 0.0,
                            "cells", "statistics >= 0");
            for (std::size_t m = 0; m < plan_->members; ++m)
                archive.require(cell[cell_offset(*plan_, m)] >= 0.0, "cells", "curvatures >= 0");
        }
    }
    for (std::size_t i = 0; i < members_.size(); ++i)
        members_[i]->visit(archive, "member." + names[i]);
    if (auto_) auto_->visit(archive);
    Matrix lines(moments_.size() + 1, GuardedMoments::NUMBERS);
    for (std::size_t i = 0; i < moments_.size(); ++i) moments_[i].write(lines[i]);
    target_.write(lines[moments_.size()]);
    archive.matrix("moments", lines);
    if (archive.reading()) {
        for (std::size_t i = 0; i < moments_.size(); ++i) {
            check_guarded(archive, lines[i], "moments", DOUBTFUL_VALUES);
            moments_[i].read(lines[i]);
        }
        check_guarded(archive, lines[moments_.size()], "moments", JUMP);
        target_.read(lines[moments_.size()]);
    }
    archive.array("frequencies", frequencies_.counts, {frequencies_.counts.size()},
                  Rule::not_negative);
    archive.array("recent", recent_, {recent_.size()}, Rule::missing_allowed);
    history_.visit(archive);
    last_target_.visit(archive);
    scores_.visit(archive);
    double underflow = static_cast<double>(underflow_);
    archive.number("underflow", underflow);
    archive.require_whole(underflow, -2.0, static_cast<double>(features_) - 1.0, "underflow");
    underflow_ = static_cast<std::ptrdiff_t>(underflow);
}

}  // namespace obax
