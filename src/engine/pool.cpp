#include "pool.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <limits>
#include <stdexcept>
#include <system_error>
#include <thread>

namespace obax {

namespace {

constexpr double MISSING = std::numeric_limits<double>::quiet_NaN();
// Rows of a call below which one thread takes all of them.
constexpr std::size_t FEW_ROWS = 64;
// Rows after which the calling thread asks whether to stop, and how often it does while it waits.
constexpr std::size_t ROWS_BETWEEN_QUESTIONS = 16;
constexpr std::chrono::milliseconds BETWEEN_QUESTIONS{20};

}  // namespace

Pool::Pool(Spec spec) : spec_(std::move(spec)) {
    spec_.features = spec_.classes = 0;
    if (spec_.sparse) throw std::invalid_argument("sparse must be False in a pool.");
    spec_.check();
}

void Pool::change(const Spec& spec) {
    Spec changed = spec;
    changed.features = changed.classes = 0;
    changed.check();
    Pool next(changed);
    std::vector<Model> models;
    for (const Tenant& tenant : tenants_)
        if (tenant.model)
            models.push_back(tenant.model->resized(
                next.plan(tenant.features.size(), tenant.labels.size()), tenant.features.size()));
    auto model = models.begin();
    for (Tenant& tenant : tenants_)
        if (tenant.model) *tenant.model = std::move(*model++);
    spec_ = std::move(next.spec_);
    plans_ = std::move(next.plans_);
    workspaces_.clear();
}

PlanPointer Pool::plan(std::size_t features, std::size_t classes) {
    const std::lock_guard<std::mutex> guard(plans_lock_);
    PlanPointer& found = plans_[{features, classes}];
    if (!found) {
        Spec spec = spec_;
        spec.features = features;
        spec.classes = classes;
        found = make_plan(std::move(spec));
    }
    return found;
}

Tenant Pool::empty_tenant(const std::vector<std::int32_t>& features,
                          const std::vector<std::int32_t>& labels) {
    Tenant tenant;
    tenant.features = features;
    tenant.labels = labels;
    for (std::size_t i = 0; i < features.size(); ++i) {
        const auto at = static_cast<std::size_t>(features[i]);
        if (at >= tenant.own.size()) tenant.own.resize(at + 1, -1);
        tenant.own[at] = static_cast<std::int32_t>(i);
    }
    tenant.model = std::make_unique<Model>(plan(features.size(), labels.size()));
    return tenant;
}

Workspace& Pool::workspace(const Model& model, Workspaces& workspaces) {
    auto& found = workspaces[model.plan().get()];
    if (!found) found = std::make_unique<Workspace>(*model.plan());
    found->reset();
    return *found;
}

// Features of the pool that a row brings to its model for the first time, in the row's order.
void Pool::learn_features(Tenant& tenant, const PoolRows& rows, std::size_t i) {
    const RawRow raw = rows.raw(i, nullptr);
    std::vector<std::int32_t> brought, siblings;
    for (std::size_t j = 0; j < rows.width; ++j) {
        const auto column = static_cast<std::size_t>(rows.columns[j]);
        const bool known = column < tenant.own.size() && tenant.own[column] >= 0;
        if (known || std::isnan(raw.value(j))) continue;
        brought.push_back(rows.columns[j]);
        siblings.push_back(rows.siblings[j]);
    }
    if (brought.empty()) return;
    std::vector<std::int32_t> features = tenant.features, own = tenant.own;
    for (const std::int32_t column : brought) {
        const auto at = static_cast<std::size_t>(column);
        if (at >= own.size()) own.resize(at + 1, -1);
        own[at] = static_cast<std::int32_t>(features.size());
        features.push_back(column);
    }
    Model larger = tenant.model->resized(plan(features.size(), tenant.labels.size()),
                                         features.size());
    for (std::size_t j = 0; j < brought.size(); ++j) {
        const auto sibling = static_cast<std::size_t>(siblings[j]);
        if (siblings[j] >= 0 && sibling < tenant.own.size() && tenant.own[sibling] >= 0)
            larger.begin_with_zeros(tenant.features.size() + j,
                                    static_cast<std::size_t>(tenant.own[sibling]));
    }
    *tenant.model = std::move(larger);
    tenant.features = std::move(features);
    tenant.own = std::move(own);
}

void Pool::learn_label(Tenant& tenant, std::int32_t label) {
    std::vector<std::int32_t> labels = tenant.labels;
    labels.push_back(label);
    *tenant.model =
        tenant.model->resized(plan(tenant.features.size(), labels.size()), tenant.features.size());
    tenant.labels = std::move(labels);
}

void Pool::write_prediction(const PoolRows& rows, std::size_t i, const Tenant& tenant,
                            View prediction, std::size_t known) const {
    if (!spec_.classifies()) {
        rows.predictions[i] = prediction[0];
        return;
    }
    double* line = rows.predictions + i * rows.labels;
    for (std::size_t c = 0; c < known; ++c)
        if (static_cast<std::size_t>(tenant.labels[c]) < rows.labels)
            line[tenant.labels[c]] = prediction[c];
}

void Pool::write_trail(const PoolRows& rows, std::size_t i, const Tenant& tenant) const {
    if (!rows.trails) return;
    const Plan &now = *tenant.model->plan(), &last = *rows.trail;
    Vector trail(now.trail);
    tenant.model->write_trail(trail);
    double* out = rows.trails + i * last.trail;
    for (std::size_t h = 0; h < HYPERPARAMETERS; ++h) {
        const bool by_class = h == CLASS_WEIGHTS || h == LOGIT_SHIFTS;
        const std::size_t count = by_class ? tenant.labels.size() : now.spans[h].size();
        for (std::size_t j = 0; j < count; ++j) {
            const bool by_feature = h == PENALTY && now.spec.per_feature;
            const std::size_t at = by_class     ? static_cast<std::size_t>(tenant.labels[j])
                                   : by_feature ? static_cast<std::size_t>(tenant.features[j])
                                                : j;
            if (at < last.spans[h].size())
                out[last.spans[h].begin + at] = trail[now.spans[h].begin + j];
        }
    }
    for (std::size_t m = 0; m < now.trail - now.width; ++m)
        out[last.width + m] = trail[now.width + m];
}

void Pool::play_row(const PoolRows& rows, std::size_t i, Workspaces& workspaces,
                    std::vector<std::int32_t>& index, Vector& prediction) {
    Tenant& tenant = tenants_[static_cast<std::size_t>(rows.tenants[i])];
    const double target = rows.learn ? rows.targets[i] : MISSING;
    const double weight = std::isnan(target) ? 0.0 : rows.weights[i];
    if (rows.learn) tenant.given += 1.0;
    if (!tenant.model) {
        if (!rows.learn) return;
        Tenant fresh = empty_tenant({}, {});
        tenant.model = std::move(fresh.model);
    }
    bool extreme = weight > 0.0 && !spec_.classifies() && std::abs(target) > LARGEST;
    const RawRow unplaced = rows.raw(i, nullptr);
    for (std::size_t j = 0; j < rows.width && weight > 0.0; ++j)
        extreme = extreme || std::abs(unplaced.value(j)) > LARGEST;
    if (weight > 0.0 && !extreme) learn_features(tenant, rows, i);
    index.resize(rows.width);
    for (std::size_t j = 0; j < rows.width; ++j) {
        const auto column = static_cast<std::size_t>(rows.columns[j]);
        index[j] = column < tenant.own.size() ? tenant.own[column] : -1;
    }
    const RawRow raw = rows.raw(i, index.data());

    double own_target = target;
    std::size_t known = tenant.labels.size();
    bool written = false;
    double predicted = MISSING;
    if (spec_.classifies() && !std::isnan(target)) {
        const auto label = static_cast<std::int32_t>(target);
        const auto at = std::find(tenant.labels.begin(), tenant.labels.end(), label);
        own_target = static_cast<double>(at - tenant.labels.begin());
        if (at == tenant.labels.end()) {
            if (weight > 0.0 && !extreme) {
                // That the class exists is news of the very row that is predicted.
                Workspace& before = workspace(*tenant.model, workspaces);
                prediction.resize(tenant.model->plan()->predictions);
                tenant.model->predict(raw, before, prediction);
                if (known == 1) predicted = prediction[1];
                write_prediction(rows, i, tenant, prediction, known);
                written = true;
                learn_label(tenant, label);
            } else if (own_target >= static_cast<double>(tenant.model->plan()->slots)) {
                own_target = MISSING;
            }
        }
    }
    Workspace& work = workspace(*tenant.model, workspaces);
    prediction.resize(tenant.model->plan()->predictions);
    const Outcome outcome = tenant.model->step(raw, own_target, weight, work, prediction, predicted);
    if (outcome.status == Status::extreme) tenant.model->predict(raw, work, prediction);
    if (rows.status) rows.status[i] = static_cast<std::uint8_t>(outcome.status);
    if (rows.loss) rows.loss[i] = outcome.loss;
    if (outcome.status != Status::learned && rows.learn) tenant.rejected += 1.0;
    if (!written) write_prediction(rows, i, tenant, prediction, known);
    // With the first boolean comes the other one, which is known after the row.
    const bool learned = weight > 0.0 && outcome.status == Status::learned;
    const std::int32_t other =
        learned && spec_.classifies() ? rows.implied[static_cast<std::size_t>(target)] : -1;
    if (other >= 0 &&
        std::find(tenant.labels.begin(), tenant.labels.end(), other) == tenant.labels.end())
        learn_label(tenant, other);
    write_trail(rows, i, tenant);
}

void Pool::play(const PoolRows& rows, std::size_t threads, const std::function<bool()>& stop) {
    if (rows.size < FEW_ROWS || threads < 1) threads = 1;
    if (workspaces_.size() < threads) workspaces_.resize(threads);
    for (std::size_t i = 0; i < rows.size && rows.learn; ++i)
        tenants_[static_cast<std::size_t>(rows.tenants[i])].used = clock_ + static_cast<double>(i);
    if (rows.learn) clock_ += static_cast<double>(rows.size);

    // The rows of each thread, those of a key together, while its state is at hand.
    std::vector<std::vector<std::size_t>> shards(threads);
    for (std::size_t i = 0; i < rows.size; ++i)
        shards[static_cast<std::size_t>(rows.tenants[i]) % threads].push_back(i);
    for (auto& shard : shards)
        std::stable_sort(shard.begin(), shard.end(), [&](std::size_t a, std::size_t b) {
            return rows.tenants[a] < rows.tenants[b];
        });

    std::atomic<bool> stopped{false};
    std::size_t running = 0;  // of the other threads, under `lock`
    std::mutex lock;
    std::condition_variable ended;
    std::vector<std::exception_ptr> errors(threads);
    const auto work = [&](std::size_t thread) {
        try {
            std::vector<std::int32_t> index;
            Vector prediction;
            std::size_t count = 0;
            for (const std::size_t i : shards[thread]) {
                if (stopped) return;
                play_row(rows, i, workspaces_[thread], index, prediction);
                if (thread == 0 && ++count % ROWS_BETWEEN_QUESTIONS == 0 && stop())
                    stopped = true;
            }
        } catch (...) {
            errors[thread] = std::current_exception();
            stopped = true;
        }
    };
    const auto work_beside = [&](std::size_t thread) {
        work(thread);
        const std::lock_guard<std::mutex> guard(lock);
        --running;
        ended.notify_one();
    };
    std::vector<std::thread> others;
    others.reserve(threads);
    for (std::size_t thread = 1; thread < threads; ++thread) {
        if (shards[thread].empty()) continue;
        const std::lock_guard<std::mutex> guard(lock);
        try {
            others.emplace_back(work_beside, thread);
            ++running;
        } catch (const std::system_error&) {
            // No further thread can be had: this one takes the rows.
            shards[0].insert(shards[0].end(), shards[thread].begin(), shards[thread].end());
        }
    }
    work(0);
    {
        std::unique_lock<std::mutex> guard(lock);
        while (!ended.wait_for(guard, BETWEEN_QUESTIONS, [&] { return running == 0; })) {
            guard.unlock();
            if (!stopped && stop()) stopped = true;
            guard.lock();
        }
    }
    for (auto& other : others) other.join();
    for (const auto& error : errors)
        if (error) std::rethrow_exception(error);
}

}  // namespace obax
