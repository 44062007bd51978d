#include "auto_members.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>

#include "model.hpp"

namespace obax {

namespace {

constexpr double MISSING = std::numeric_limits<double>::quiet_NaN();
// Probabilities are cut off here before they become columns and offsets.
constexpr double LEAST_LOGIT = 1e-12;

double logit(double p) {
    const double inside = std::min(std::max(p, LEAST_LOGIT), 1.0 - LEAST_LOGIT);
    return std::log(inside / (1.0 - inside));
}

// The logits of a prediction, or the number itself.
void outputs_of(const Plan& plan, View prediction, Span out) {
    if (!plan.classifies)
        out[0] = prediction[0];
    else if (plan.outputs == 1)
        out[0] = logit(prediction[1]);
    else
        for (std::size_t k = 0; k < out.size(); ++k)
            out[k] = std::log(std::max(prediction[k], LEAST_LOGIT));
}

// Members are judged by running means of so many rows, first after FIRST_ROWS and then every
// CHECKED_ROWS, trees together and losses by the last BENEFIT_ROWS. A member stays awake for AWAKE_ROWS at least.
constexpr double JUDGED_ROWS = 1000.0, FIRST_ROWS = 4000.0, CHECKED_ROWS = 500.0;
constexpr double BENEFIT_ROWS = 3000.0, AWAKE_ROWS = 500.0;
// What members must take from the loss, as a part of it, and the share that a tree must have.
constexpr double WORTH = 0.002, NEGLIGIBLE = 0.01;
// What sleepers save, as a part of the cost of the linear model.
constexpr double ALLOWANCE = 0.5;
// A drift: the mean loss of the last rows is so many standard errors above the running mean.
constexpr double RECENT_ROWS = 200.0, DRIFT = 4.0, BETWEEN_DRIFTS = 2000.0;

// The predictions that correcting trees see: of the linear model and the lagged one.
constexpr std::size_t SEEN = 2;
// By which trees draw the columns of predictions and of the last target; features have their place.
constexpr std::uint64_t FIRST_ID = std::uint64_t{1} << 32, LAST_ID = std::uint64_t{1} << 40;

}  // namespace

// ---- the columns of trees -------------------------------------------------------------------

TreeOptions tree_options(const Plan& plan, std::size_t ensemble) {
    const TreeMember& member = plan.spec.trees[ensemble];
    TreeOptions options;
    options.columns = member.corrects ? plan.tree_columns : plan.features;
    options.outputs = plan.outputs;
    options.memory = member.memory;
    options.seed = plan.spec.seed * plan.spec.trees.size() + ensemble;
    options.scaled = !plan.classifies;
    options.most_bytes = plan.spec.tree_bytes;
    for (std::size_t j = 0; j < plan.features; ++j) options.column_ids.push_back(j);
    if (!member.corrects) return options;
    // With two classes the one column is that of the second class.
    const std::size_t first = plan.classifies && plan.outputs == 1 ? 1 : 0;
    for (std::uint64_t i = 0; i < SEEN; ++i)
        for (std::size_t k = 0; k < plan.predicted_columns; ++k)
            options.column_ids.push_back(FIRST_ID + (i << 20) + first + k);
    options.column_ids.push_back(LAST_ID);
    return options;
}

std::vector<std::size_t> tree_column_places(const Plan& old, const Plan& now) {
    std::vector<std::size_t> places;
    for (std::size_t j = 0; j < old.features; ++j) places.push_back(j);
    const bool more = old.classifies && old.outputs == 1 && now.outputs > 1;
    for (std::size_t i = 0; i < SEEN; ++i)
        for (std::size_t k = 0; k < old.predicted_columns; ++k)
            places.push_back(now.features + i * now.predicted_columns + k + (more ? 1 : 0));
    places.push_back(now.tree_columns - 1);
    return places;
}

AutoWork::AutoWork(const Plan& plan)
    : members(plan.auto_members),
      values(plan.tree_columns, MISSING),
      bins(plan.tree_columns),
      leaves(plan.trees.size() * GradientTrees::TREES),
      linear(plan.predictions),
      mixed(plan.predictions),
      without(plan.predictions),
      gradient(plan.outputs),
      curvature(plan.outputs) {
    for (MemberWork& member : members) {
        member.outputs.assign(plan.outputs, 0.0);
        member.prediction.assign(plan.predictions, 0.0);
    }
    for (const PlanPointer& block : plan.blocks)
        blocks.push_back(block ? std::make_unique<Workspace>(*block) : nullptr);
}

void AutoWork::reset() {
    for (auto& block : blocks)
        if (block) block->reset();
}

AutoMembers::AutoMembers(const Plan& plan, double linear_cost)
    : bins_(plan.tree_columns),
      linear_(1 + plan.blocks.size(), !plan.classifies, true),
      mixture_(plan.auto_members, !plan.classifies, true),
      rests_(plan.auto_members),
      costs_{linear_cost},
      until_check_(FIRST_ROWS),
      last_target_(MISSING) {
    for (const PlanPointer& block : plan.blocks)
        blocks_.push_back(block ? std::make_unique<Model>(block) : nullptr);
    for (const TreeOptions& options : plan.trees) trees_.emplace_back(options);
    for (const auto& block : blocks_) costs_.push_back(block ? block->cost() : 0.0);
    for (const TreeOptions& options : plan.trees) costs_.push_back(GradientTrees::cost(options));
}

AutoMembers::~AutoMembers() = default;

// ---- predicting -----------------------------------------------------------------------------

bool AutoMembers::predict(const AutoContext& context, const RawRow& raw, View features, bool able,
                          AutoWork& work, Span prediction) const {
    MemberWork& linear = work.members[0];
    linear.awake = able;
    std::copy(prediction.begin(), prediction.end(), linear.prediction.begin());
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
        MemberWork& member = work.members[1 + i];
        member.awake = blocks_[i] && !rests_[1 + i].asleep &&
                       blocks_[i]->predict(raw, *work.blocks[i], member.prediction);
    }
    const bool any = linear_.predict(work.members, work.linear);
    if (!any) std::fill(work.linear.begin(), work.linear.end(), MISSING);
    for (std::size_t i = 1 + blocks_.size(); i < work.members.size(); ++i)
        work.members[i].awake = false;
    if (trees_awake()) predict_trees(context, features, work);
    const bool able_now = mixture_.predict(work.members, prediction);
    std::copy(prediction.begin(), prediction.end(), work.mixed.begin());
    return able_now;
}

void AutoMembers::predict_trees(const AutoContext& context, View features, AutoWork& work) const {
    const Plan& plan = context.plan;
    // What correcting trees see: the linear predictions, then the last target.
    std::copy(features.begin(), features.end(), work.values.begin());
    std::size_t at = plan.features;
    for (std::size_t i = 0; i < SEEN; ++i) {
        const bool there = i <= blocks_.size() && work.members[i].awake;
        for (std::size_t k = 0; k < plan.predicted_columns; ++k) {
            double value = MISSING;
            if (there && !plan.classifies) value = work.members[i].prediction[0];
            if (there && plan.classifies)
                value = logit(work.members[i].prediction[plan.outputs == 1 ? 1 : k]);
            work.values[at++] = value;
        }
    }
    work.values[at] = last_target_;
    bins_.find(work.values, work.bins.data());
    for (std::size_t i = 0; i < trees_.size(); ++i) {
        MemberWork& member = work.members[1 + blocks_.size() + i];
        if (rests_[1 + blocks_.size() + i].asleep) continue;
        Vector& outputs = member.outputs;
        if (plan.spec.trees[i].corrects) {
            outputs_of(plan, work.linear, outputs);
        } else if (!plan.classifies) {
            outputs[0] = base_;
        } else {
            const Vector& counts = context.frequencies;
            for (std::size_t k = 0; k < plan.outputs; ++k)
                outputs[k] = plan.outputs == 1 ? std::log((counts[1] + 0.5) / (counts[0] + 0.5))
                                               : std::log(counts[k] + 0.5);
        }
        trees_[i].predict(work.values, work.leaves.data() + i * GradientTrees::TREES, outputs);
        member.awake = context.rows >= static_cast<double>(QuantileBins::FIRST_VALUES) &&
                       std::all_of(outputs.begin(), outputs.end(),
                                   [](double one) { return std::isfinite(one); });
        context.loss.prediction(outputs, member.prediction);
    }
}

// ---- learning ---------------------------------------------------------------------------------

void AutoMembers::score(const AutoContext& context, double target, std::size_t label,
                        AutoWork& work) const {
    const double unit = target_.variance > 0.0 ? std::sqrt(target_.variance) : 1.0;
    for (MemberWork& member : work.members) {
        if (context.plan.classifies) {
            member.likelihood = std::max(member.prediction[label], LEAST_PROBABILITY);
        } else {
            const double error = (member.prediction[0] - target) / unit;
            member.loss = unit * unit * context.loss.value(View(&error, 1), 0.0);
        }
    }
}

void AutoMembers::learn_trees(const AutoContext& context, double target, double weight,
                              AutoWork& work) {
    const Plan& plan = context.plan;
    const double unit = target_.variance > 0.0 ? std::sqrt(target_.variance) : 1.0;
    for (std::size_t i = 0; i < trees_.size(); ++i) {
        const MemberWork& member = work.members[1 + blocks_.size() + i];
        if (!member.awake) continue;
        if (plan.classifies) {
            context.loss.negative_gradient(member.outputs, target, work.gradient);
            for (std::size_t k = 0; k < plan.outputs; ++k) {
                const double p = member.prediction[plan.outputs == 1 ? 1 : k];
                work.gradient[k] = -work.gradient[k];
                work.curvature[k] = p * (1.0 - p);
            }
        } else {
            const double error = (member.prediction[0] - target) / unit;
            context.loss.negative_gradient(View(&error, 1), 0.0, work.gradient);
            work.gradient[0] *= -unit;
            work.curvature[0] = 1.0;
        }
        trees_[i].update(work.leaves.data() + i * GradientTrees::TREES, work.bins.data(), bins_,
                         work.gradient, work.curvature, weight);
    }
    try {
        if (bins_.add(work.values, work.changed))
            for (GradientTrees& trees : trees_) trees.forget_bins(work.changed);
    } catch (const std::bad_alloc&) {
        for (GradientTrees& trees : trees_) trees.forget_bins(work.changed);
    }
}

void AutoMembers::update(const AutoContext& context, const RawRow& raw, double target,
                         double weight, const Example& example, bool doubtful, AutoWork& work) {
    const Plan& plan = context.plan;
    const bool glitch = doubtful && std::abs(target_.standardise(target)) >= CLIP;
    if (!glitch) {
        if (!plan.spec.restless) note_gains(context, target, example.label, work);
        for (Mixture* mixture : {&linear_, &mixture_}) {
            score(context, target, example.label, work);
            if (!plan.classifies) mixture->set_densities(work.members, context.rows);
            mixture->update(work.members, example.weight, plan.spec.share);
        }
        if (trees_awake()) learn_trees(context, target, example.weight, work);
    }
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
        if (!blocks_[i] || rests_[1 + i].asleep) continue;
        Vector& prediction = work.members[1 + i].prediction;
        try {
            blocks_[i]->step(raw, target, weight, *work.blocks[i], prediction);
        } catch (const std::bad_alloc&) {
            // It has not learned the row; the others have.
        }
    }
    if (!plan.classifies) {
        target_.add(target, plan.spec.scale_memory);
        if (context.rows < static_cast<double>(QuantileBins::FIRST_VALUES)) base_ = target_.mean;
    }
    last_target_ = target;
    if (!glitch && !plan.spec.restless) move_rests(context);
}

// ---- sleeping -----------------------------------------------------------------------------------

// What a prediction is judged by: log loss, or a logarithm of the squared error.
double AutoMembers::loss_of(const AutoContext& context, View prediction, double target,
                            std::size_t label) const {
    if (context.plan.classifies)
        return -std::log(std::max(prediction[label], LEAST_PROBABILITY));
    // A few rows that nobody predicts must not decide: in units of the linear mixture's errors,
    // large ones count by their logarithm.
    const double unit = linear_square_ > 0.0 ? linear_square_ : 1.0;
    const double error = prediction[0] - target;
    return std::log1p(error * error / unit);
}

// How much larger the loss would be if one member sat out.
double AutoMembers::gain_of(const AutoContext& context, const AutoWork& work,
                            const Mixture& mixture, std::size_t member, View mixed, double target,
                            std::size_t label, Span without) const {
    const Vector& shares = mixture.shares();
    double awake = 0.0;
    for (std::size_t i = 0; i < shares.size(); ++i)
        if (work.members[i].awake) awake += shares[i];
    const double loss = loss_of(context, mixed, target, label), share = shares[member] / awake;
    if (!(share < 1.0 - 1e-9)) return loss;  // there is nobody else
    for (std::size_t k = 0; k < without.size(); ++k)
        without[k] = (mixed[k] - share * work.members[member].prediction[k]) / (1.0 - share);
    return loss_of(context, without, target, label) - loss;
}

void AutoMembers::note_gains(const AutoContext& context, double target, std::size_t label,
                             AutoWork& work) {
    const double loss = loss_of(context, work.mixed, target, label);
    const double linear_loss = loss_of(context, work.linear, target, label);
    if (!std::isfinite(loss) || !std::isfinite(linear_loss)) return;
    const auto move = [](double& mean, double value, double rows) {
        if (std::isfinite(value)) mean += (value - mean) / rows;
    };
    const double known = context.rows + 1.0;
    move(recent_loss_, loss, std::min(known, RECENT_ROWS));
    move(loss_, loss, std::min(known, BENEFIT_ROWS));
    move(loss_square_, loss * loss, std::min(known, BENEFIT_ROWS));
    if (!context.plan.classifies) {
        const double error = work.linear[0] - target;
        move(linear_square_, error * error, std::min(known, JUDGED_ROWS));
    }
    move(linear_loss_, linear_loss, std::min(known, BENEFIT_ROWS));
    double awake = 0.0;
    for (std::size_t i = 0; i < work.members.size(); ++i)
        if (work.members[i].awake) awake += mixture_.shares()[i];
    bool trees = false;
    for (std::size_t i = 1; i < work.members.size(); ++i) {
        Rest& rest = rests_[i];
        if (!work.members[i].awake) continue;
        rest.since += 1.0;
        const double rows = std::min(rest.since, JUDGED_ROWS);
        move(rest.share, mixture_.shares()[i] / awake, rows);
        if (i > blocks_.size()) {
            trees = true;
            continue;
        }
        move(rest.gain, gain_of(context, work, mixture_, i, work.mixed, target, label, work.without),
             rows);
        move(rest.within,
             gain_of(context, work, linear_, i, work.linear, target, label, work.without), rows);
    }
    if (!trees) return;
    benefit_rows_ += 1.0;
    const double benefit = linear_loss - loss, rows = std::min(benefit_rows_, BENEFIT_ROWS);
    move(benefit_, benefit, rows);
    move(benefit_square_, benefit * benefit, rows);
}

void AutoMembers::put_to_sleep() {
    const double spread = std::max(benefit_square_ - benefit_ * benefit_, 0.0);
    const double doubt = benefit_rows_ < BENEFIT_ROWS ? 0.0 : std::sqrt(spread / BENEFIT_ROWS);
    const bool earning = benefit_ + doubt >= WORTH * linear_loss_;
    bool corrected = false;
    for (std::size_t i = rests_.size(); --i > 0;) {  // trees first
        Rest& rest = rests_[i];
        if (rest.asleep || !(costs_[i] > 0.0)) continue;
        bool earns = rest.since < AWAKE_ROWS;
        if (i > blocks_.size()) {
            earns = earns || (earning && rest.share >= NEGLIGIBLE);
            corrected = corrected || earns;
        } else {
            earns = earns || rest.gain >= WORTH * loss_ || rest.within >= WORTH * linear_loss_ ||
                    (corrected && i < SEEN);
        }
        rest.asleep = !earns;
    }
}

void AutoMembers::wake_members(bool drift) {
    double sleepers = 0.0, saved = 0.0, needed = 0.0;
    const bool trees = trees_awake();
    for (const Rest& rest : rests_) sleepers += rest.asleep ? 1.0 : 0.0;
    if (!(sleepers > 0.0)) return;
    for (std::size_t i = 1; i < rests_.size(); ++i) {
        Rest& rest = rests_[i];
        if (!rest.asleep) continue;
        rest.saved += ALLOWANCE * costs_[0] / sleepers;
        // Trees that all sleep wake together, and with them the block that they see.
        if (i <= blocks_.size() && i >= SEEN) continue;
        saved += rest.saved;
        needed += AWAKE_ROWS * costs_[i];
    }
    const bool together = !trees && (saved >= needed || (drift && saved >= 0.0));
    for (std::size_t i = 1; i < rests_.size(); ++i) {
        Rest& rest = rests_[i];
        if (!rest.asleep) continue;
        const bool with_trees = i > blocks_.size() || i < SEEN;
        const bool alone = rest.saved >= AWAKE_ROWS * costs_[i] || (drift && rest.saved >= 0.0);
        if (!(with_trees && !trees ? together : alone)) continue;
        rest = {false, 0.0, rest.saved - AWAKE_ROWS * costs_[i], rest.share, 0.0, 0.0};
        if (i > blocks_.size() && !trees) benefit_ = benefit_square_ = benefit_rows_ = 0.0;
    }
}

void AutoMembers::move_rests(const AutoContext& context) {
    since_drift_ += 1.0;
    const double spread = std::max(loss_square_ - loss_ * loss_, 0.0);
    const bool drift = since_drift_ >= BETWEEN_DRIFTS && context.rows >= JUDGED_ROWS &&
                       recent_loss_ - loss_ > DRIFT * std::sqrt(spread / RECENT_ROWS);
    if (drift) since_drift_ = 0.0;
    wake_members(drift);
    until_check_ -= 1.0;
    if (until_check_ > 0.0) return;
    until_check_ = CHECKED_ROWS;
    put_to_sleep();
}

bool AutoMembers::trees_awake() const {
    return std::any_of(rests_.begin() + 1 + static_cast<std::ptrdiff_t>(blocks_.size()),
                       rests_.end(), [](const Rest& rest) { return !rest.asleep; });
}

Vector AutoMembers::shares() const {
    Vector shares = mixture_.shares();
    double awake = 0.0;
    for (std::size_t i = 0; i < shares.size(); ++i) {
        if (rests_[i].asleep || !(costs_[i] > 0.0)) shares[i] = 0.0;
        awake += shares[i];
    }
    for (double& share : shares) share /= awake;
    return shares;
}

void AutoMembers::begin_with_zeros(std::size_t feature, std::size_t sibling) {
    for (auto& block : blocks_)
        if (block) block->begin_with_zeros(feature, sibling);
}

// ---- growing and looking ----------------------------------------------------------------------

std::unique_ptr<AutoMembers> AutoMembers::resized(const Plan& old, const Plan& now,
                                                  double linear_cost) const {
    auto larger = std::make_unique<AutoMembers>(now, linear_cost);
    const auto all = auto_member_places(old.spec, now.spec);
    std::vector<std::size_t> blocks{0};
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
        const std::size_t place = all[1 + i];
        blocks.push_back(place);
        if (blocks_[i] && now.blocks[place - 1])
            *larger->blocks_[place - 1] =
                blocks_[i]->resized(now.blocks[place - 1], now.features);
    }
    larger->linear_ = linear_.resized(blocks, 1 + now.blocks.size());
    larger->mixture_ = mixture_.resized(all, now.auto_members);
    const auto columns = tree_column_places(old, now);
    larger->bins_ = bins_.resized(columns, now.tree_columns);
    const Vector factors = output_factors(old.spec, now.spec);
    for (std::size_t i = 0; i < trees_.size(); ++i) {
        const std::size_t place = all[1 + blocks_.size() + i] - 1 - now.blocks.size();
        larger->trees_[place] = trees_[i].resized(now.trees[place], columns, factors);
    }
    for (std::size_t i = 0; i < rests_.size(); ++i) larger->rests_[all[i]] = rests_[i];
    larger->loss_ = loss_;
    larger->recent_loss_ = recent_loss_;
    larger->linear_loss_ = linear_loss_;
    larger->linear_square_ = linear_square_;
    larger->benefit_ = benefit_;
    larger->benefit_square_ = benefit_square_;
    larger->benefit_rows_ = benefit_rows_;
    larger->loss_square_ = loss_square_;
    larger->until_check_ = until_check_;
    larger->since_drift_ = since_drift_;
    larger->last_target_ = last_target_;
    larger->target_ = target_;
    larger->base_ = base_;
    return larger;
}

void AutoMembers::visit(Archive& whole) {
    Archive archive = whole.within("auto.");
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
        Archive part = archive.within("block." + std::to_string(i) + ".");
        if (blocks_[i]) blocks_[i]->visit(part);
    }
    for (std::size_t i = 0; i < trees_.size(); ++i)
        trees_[i].visit(archive, "trees." + std::to_string(i));
    bins_.visit(archive, "bins");
    archive.number("last_target", last_target_, Rule::missing_allowed);
    archive.number("target.count", target_.count, Rule::not_negative);
    archive.number("target.mean", target_.mean);
    archive.number("target.variance", target_.variance, Rule::not_negative);
    archive.number("base", base_);
    archive.number("loss", loss_);
    archive.number("recent_loss", recent_loss_);
    archive.number("linear_loss", linear_loss_);
    archive.number("linear_square", linear_square_, Rule::not_negative);
    archive.number("benefit", benefit_);
    archive.number("benefit_square", benefit_square_, Rule::not_negative);
    archive.number("benefit_rows", benefit_rows_, Rule::not_negative);
    archive.number("loss_square", loss_square_, Rule::not_negative);
    archive.number("until_check", until_check_);
    archive.number("since_drift", since_drift_, Rule::not_negative);
    Archive linear = archive.within("linear.");
    linear_.visit(linear);
    mixture_.visit(archive);
    Matrix rests(rests_.size(), 6);
    for (std::size_t i = 0; i < rests_.size(); ++i) {
        const Rest& rest = rests_[i];
        const double line[] = {rest.asleep ? 1.0 : 0.0, rest.since, rest.saved,
                               rest.share,              rest.gain,  rest.within};
        std::copy_n(line, 6, rests[i].begin());
    }
    archive.matrix("rests", rests);
    for (std::size_t i = 0; i < rests_.size(); ++i) {
        const View line = rests[i];
        archive.require_whole(line[0], 0.0, i > 0 ? 1.0 : 0.0, "rests");
        archive.require(line[1] >= 0.0 && line[3] >= 0.0, "rests", "rows and shares >= 0");
        rests_[i] = {line[0] > 0.0, line[1], line[2], line[3], line[4], line[5]};
    }
}

double AutoMembers::bytes(const Plan& plan) {
    double total = QuantileBins::bytes_per_column() * static_cast<double>(plan.tree_columns);
    for (const PlanPointer& block : plan.blocks)
        if (block) total += Model::bytes(*block, block->features);
    for (const TreeOptions& trees : plan.trees) total += GradientTrees::bytes(trees);
    return total;
}

}  // namespace obax
