#include "spec.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace obax {

namespace {

std::size_t products(std::size_t features) {
    const std::size_t some = std::min(features, MULTIPLIED);
    return some * (some + 1) / 2;
}

// Position of the product of features i <= j among those of `some` features.
std::size_t product_place(std::size_t i, std::size_t j, std::size_t some) {
    return i * some - i * (i + 1) / 2 + j;
}

void require(bool condition, const char* name, const char* expected) {
    if (!condition) throw std::invalid_argument(std::string(name) + " must be " + expected + ".");
}

bool within(double value, Hyperparameter which) {
    return value >= BOUNDS[which].first && value <= BOUNDS[which].second;
}

}  // namespace

std::size_t Spec::inputs() const {
    std::size_t count = features + 1 + lags * lag_width();
    if (expansion == Expansion::fourier) count += WAVES;
    if (expansion == Expansion::interactions) count += products(features);
    return count;
}

std::vector<std::string> Spec::member_names() const {
    std::vector<std::string> names{"tuned"};
    for (const auto& member : frozen) names.push_back(member.name);
    for (const auto& member : gradient_steps) names.push_back(member.name);
    return names;
}

std::vector<std::string> Spec::all_names() const {
    auto names = member_names();
    names.insert(names.end(), blocks.begin(), blocks.end());
    for (const auto& member : trees) names.push_back(member.name);
    return names;
}

Range Spec::span(Hyperparameter which) const {
    const std::size_t sizes[HYPERPARAMETERS] = {
        per_feature ? features : 1,       1, 1, slots(), slots(),
        expansion == Expansion::fourier ? std::size_t{1} : std::size_t{0}};
    Range range;
    for (std::size_t i = 0; i <= static_cast<std::size_t>(which); ++i)
        range = {range.end, range.end + sizes[i]};
    return range;
}

std::vector<std::size_t> Spec::entries() const {
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < HYPERPARAMETERS; ++i) {
        if (!learned[i]) continue;
        const Range range = span(static_cast<Hyperparameter>(i));
        for (std::size_t at = range.begin; at < range.end; ++at) found.push_back(at);
    }
    return found;
}

std::size_t Spec::entries_without_curvature() const {
    // Where the curvature does not depend on the weights it moves with memory and bandwidth alone.
    // With waves or products and for penalties of single features the rest is neglected, which
    // would take d^3 numbers.
    std::size_t end = 0;
    if (!classifies() || expansion != Expansion::linear)
        end = span(MEMORY).begin;
    else if (per_feature)
        end = span(PENALTY).end;
    const auto all = entries();
    return static_cast<std::size_t>(
        std::count_if(all.begin(), all.end(), [end](std::size_t entry) { return entry < end; }));
}

Vector Spec::start() const {
    Vector x(width(), 0.0);
    const std::pair<Hyperparameter, double> values[] = {
        {PENALTY, penalty}, {INERTIA, inertia}, {MEMORY, memory}};
    for (const auto& [which, value] : values) {
        const Range range = span(which);
        std::fill(x.begin() + range.begin, x.begin() + range.end, std::log(value));
    }
    return x;
}

Vector Spec::lowest() const {
    Vector x(width());
    for (std::size_t i = 0; i < HYPERPARAMETERS; ++i) {
        const Range range = span(static_cast<Hyperparameter>(i));
        std::fill(x.begin() + range.begin, x.begin() + range.end, std::log(BOUNDS[i].first));
    }
    return x;
}

Vector Spec::highest() const {
    Vector x(width());
    for (std::size_t i = 0; i < HYPERPARAMETERS; ++i) {
        const Range range = span(static_cast<Hyperparameter>(i));
        std::fill(x.begin() + range.begin, x.begin() + range.end, std::log(BOUNDS[i].second));
    }
    return x;
}

std::size_t Spec::full_member() const {
    for (std::size_t i = 0; i < frozen.size(); ++i)
        if (frozen[i].name == "long") return 1 + i;
    return 0;
}

void Spec::check() const {
    constexpr std::size_t most = std::size_t{1} << 24;
    require(features <= most, "features", "at most 16,777,216");
    require(classes <= 32767, "classes", "at most 32,767");
    require(classifies() || classes == 0, "classes", "0 for regression");
    require(lags <= most, "lags", "at most 16,777,216");
    require(within(penalty, PENALTY), "penalty", "within its bounds");
    require(within(memory, MEMORY), "memory", "within its bounds");
    require(within(inertia, INERTIA), "inertia", "within its bounds");
    require(step_size > 0 && std::isfinite(step_size), "step_size", "a number > 0");
    require(fading >= 0 && fading <= 1, "fading", "a number from 0 to 1");
    require(scale_memory >= 2 && std::isfinite(scale_memory), "scale_memory", "a number >= 2");
    require(delta > 0, "delta", "a number > 0");
    require(share >= 0 && share < 1, "share", "a number from 0 up to, but not, 1");
    require(history_points >= 2 && history_points <= most, "history_points", "an integer >= 2");
    for (const auto& member : frozen)
        require(within(member.penalty, PENALTY) && within(member.memory, MEMORY) &&
                    within(member.inertia, INERTIA),
                "frozen", "members with penalty, memory and inertia within their bounds");
    for (const auto& member : gradient_steps)
        require(member.rate > 0 && std::isfinite(member.rate), "rates", "numbers > 0");
    require(!sparse || (!per_feature && lags == 0 && expansion == Expansion::linear), "sparse",
            "False with per_feature, lags, waves or products");
    for (const auto& block : blocks)
        require(block == "lags" || block == "interactions" || block == "fourier", "blocks",
                "some of 'lags', 'interactions' and 'fourier'");
    for (const auto& member : trees)
        require(member.memory >= 2 && std::isfinite(member.memory), "trees", "with memory >= 2");
    require(tree_bytes >= 0, "tree_bytes", "a number >= 0");
    require(seed <= most, "seed", "at most 16,777,216");
    require(auto_members() == 0 || (!sparse && !per_feature && expansion == Expansion::linear),
            "blocks and trees", "none in a model that is sparse or sees computed columns");
    auto names = all_names();
    std::sort(names.begin(), names.end());
    require(std::adjacent_find(names.begin(), names.end()) == names.end(), "members",
            "different from each other");
    const bool waved = std::find(blocks.begin(), blocks.end(), "fourier") != blocks.end();
    require((expansion != Expansion::fourier && !waved) ||
                (waves && waves->phases.size() == WAVES && waves->directions.columns() == WAVES &&
                 waves->directions.rows() >= features),
            "waves", "directions for each feature and a phase for each wave");
}

std::vector<std::size_t> x_places(const Spec& old, const Spec& now) {
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < HYPERPARAMETERS; ++i) {
        const auto which = static_cast<Hyperparameter>(i);
        const Range from = old.span(which), to = now.span(which);
        for (std::size_t j = 0; j < from.size(); ++j) places.push_back(to.begin + j);
    }
    return places;
}

std::vector<std::size_t> column_places(const Spec& old, const Spec& now) {
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < old.features; ++i) places.push_back(i);
    places.push_back(now.features);
    for (std::size_t lag = 0; lag < old.lags; ++lag)
        for (std::size_t c = 0; c < old.lag_width(); ++c)
            places.push_back(now.features + 1 + lag * now.lag_width() + c);
    const std::size_t begin = now.features + 1 + now.lags * now.lag_width();
    if (old.expansion == Expansion::fourier)
        for (std::size_t j = 0; j < WAVES; ++j) places.push_back(begin + j);
    if (old.expansion == Expansion::interactions) {
        const std::size_t some = std::min(old.features, MULTIPLIED);
        const std::size_t more = std::min(now.features, MULTIPLIED);
        for (std::size_t i = 0; i < some; ++i)
            for (std::size_t j = i; j < some; ++j)
                places.push_back(begin + product_place(i, j, more));
    }
    return places;
}

std::vector<std::size_t> member_places(const Spec& old, const Spec& now) {
    const auto names = now.member_names();
    std::vector<std::size_t> places;
    for (const auto& name : old.member_names()) {
        const auto at = std::find(names.begin(), names.end(), name);
        if (at == names.end()) throw std::invalid_argument("members must stay what they are.");
        places.push_back(static_cast<std::size_t>(at - names.begin()));
    }
    return places;
}

std::vector<std::size_t> auto_member_places(const Spec& old, const Spec& now) {
    const std::size_t before = old.members(), after = now.members();
    const auto from = old.all_names(), to = now.all_names();
    std::vector<std::size_t> places{0};
    for (std::size_t i = before; i < from.size(); ++i) {
        const auto begin = to.begin() + static_cast<std::ptrdiff_t>(after);
        const auto at = std::find(begin, to.end(), from[i]);
        if (at == to.end()) throw std::invalid_argument("members must stay what they are.");
        places.push_back(1 + static_cast<std::size_t>(at - begin));
    }
    return places;
}

std::vector<std::size_t> trail_places(const Spec& old, const Spec& now) {
    auto places = x_places(old, now);
    const auto names = now.all_names();
    for (const auto& name : old.all_names()) {
        const auto at = std::find(names.begin(), names.end(), name);
        places.push_back(at == names.end() ? NOWHERE
                                           : now.width() + static_cast<std::size_t>(at - names.begin()));
    }
    return places;
}

Spec block_spec(const Spec& spec, const std::string& name) {
    Spec block = spec;
    block.blocks.clear();
    block.trees.clear();
    block.frozen.clear();
    block.gradient_steps.clear();
    block.intervals = false;
    block.history_points = 2;
    if (name == "lags") block.lags = std::max<std::size_t>(spec.lags, 1);
    if (name == "interactions") block.expansion = Expansion::interactions;
    if (name == "fourier") block.expansion = Expansion::fourier;
    return block;
}

bool has_block(const Spec& spec, const std::string& name) {
    if (name == "interactions") return spec.features > 0 && spec.features <= MOST_MULTIPLIED;
    return name == "lags" || spec.features > 0;
}

Vector output_factors(const Spec& old, const Spec& now) {
    if (now.outputs() > old.outputs() && old.outputs() == 1) return {-0.5, 0.5};
    return Vector(old.outputs(), 1.0);
}

}  // namespace obax
