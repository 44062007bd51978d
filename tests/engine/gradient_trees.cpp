// Quantile bins and ensembles of gradient trees, by themselves.
#include "gradient_trees.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "check.hpp"
#include "random.hpp"

using namespace obax;
using namespace obax::tests;

namespace {

constexpr double MISSING = std::numeric_limits<double>::quiet_NaN();

TreeOptions options_of(std::size_t columns, std::size_t outputs = 1, double bytes = 1e9) {
    TreeOptions options;
    options.columns = columns;
    options.outputs = outputs;
    options.scaled = outputs == 1;
    options.most_bytes = bytes;
    options.seed = 3;
    for (std::size_t j = 0; j < columns; ++j) options.column_ids.push_back(j);
    return options;
}

// An ensemble with its bins, for a squared loss on each output.
struct Learner {
    explicit Learner(TreeOptions options)
        : bins(options.columns), trees(options), places(options.columns), outputs(options.outputs) {}

    Vector predict(View values) {
        Vector found(outputs.size(), 0.0);
        trees.predict(values, leaves, found);
        return found;
    }

    void learn(View values, View targets, double weight = 1.0) {
        std::fill(outputs.begin(), outputs.end(), 0.0);
        trees.predict(values, leaves, outputs);
        bins.find(values, places.data());
        Vector gradient(outputs.size()), curvature(outputs.size(), 1.0);
        for (std::size_t k = 0; k < outputs.size(); ++k) gradient[k] = outputs[k] - targets[k];
        trees.update(leaves, places.data(), bins, gradient, curvature, weight);
        std::vector<std::size_t> changed;
        if (bins.add(values, changed)) trees.forget_bins(changed);
    }

    QuantileBins bins;
    GradientTrees trees;
    std::vector<std::uint8_t> places;
    Vector outputs;
    std::uint32_t leaves[GradientTrees::TREES];
};

// The mean square error of the last quarter of so many rows.
template <class Draw>
double error_after(Learner& learner, std::size_t rows, const Draw& draw) {
    double total = 0.0;
    for (std::size_t i = 0; i < rows; ++i) {
        Vector values;
        double target;
        draw(i, values, target);
        const double error = learner.predict(values)[0] - target;
        if (i >= rows - rows / 4) total += error * error;
        learner.learn(values, View(&target, 1));
    }
    return total / static_cast<double>(rows / 4);
}

NamedArrays saved(Learner& learner) {
    NamedArrays arrays;
    Archive archive = Archive::writer(arrays);
    learner.bins.visit(archive, "bins");
    learner.trees.visit(archive, "trees");
    return arrays;
}

void load(Learner& learner, const NamedArrays& arrays) {
    Archive archive = Archive::reader(arrays);
    learner.bins.visit(archive, "bins");
    learner.trees.visit(archive, "trees");
}

bool same(const NamedArrays& a, const NamedArrays& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
        return x.first == y.first && x.second.shape == y.second.shape &&
               std::memcmp(x.second.values.data(), y.second.values.data(),
                           8 * x.second.values.size()) == 0;
    });
}

// Rows of which some values are missing, and targets that depend on them.
void draw_row(Random& random, Vector& values, Vector& targets) {
    for (double& value : values) value = random.chance(0.1) ? MISSING : random.normal();
    values[0] = static_cast<double>(random.below(5));
    for (std::size_t k = 0; k < targets.size(); ++k)
        targets[k] = (values[0] == 2.0 ? 3.0 : 0.0) + (values[1] > 0.3 ? 1.0 : -1.0) +
                     static_cast<double>(k) + 0.1 * random.normal();
}

Learner grown(std::size_t columns, std::size_t outputs, std::size_t rows, std::uint64_t seed) {
    Learner learner(options_of(columns, outputs));
    Random random(seed);
    Vector values(columns), targets(outputs);
    for (std::size_t i = 0; i < rows; ++i) {
        draw_row(random, values, targets);
        learner.learn(values, targets, random.chance(0.1) ? 3.0 : 1.0);
    }
    return learner;
}

}  // namespace

TEST(trees_find_an_edge) {
    Learner learner(options_of(4));
    Random random(1);
    const double error = error_after(learner, 6000, [&](std::size_t, Vector& values, double& target) {
        values = random_values(random, 4);
        for (double& value : values) value = random.normal();
        target = values[2] > 0.3 ? 5.0 : -5.0;
    });
    CHECK(error < 1.0);  // of 25
    const Vector& gains = learner.trees.gains();
    CHECK(gains[2] > std::max({gains[0], gains[1], gains[3]}));
}

TEST(trees_find_one_of_a_few_values) {
    Learner learner(options_of(2));
    Random random(2);
    const double error = error_after(learner, 6000, [&](std::size_t, Vector& values, double& target) {
        values = {static_cast<double>(random.below(9)), random.normal()};
        target = values[0] == 4.0 ? 5.0 : 0.0;
    });
    CHECK(error < 0.2);  // of 2.5
}

TEST(trees_send_missing_values_where_they_belong) {
    Learner learner(options_of(2));
    Random random(3);
    const double error = error_after(learner, 8000, [&](std::size_t, Vector& values, double& target) {
        values = {random.chance(0.3) ? MISSING : random.normal(), random.normal()};
        target = std::isnan(values[0]) || values[0] > 0.5 ? 4.0 : -4.0;
    });
    CHECK(error < 1.0);  // of 16
    CHECK(learner.predict(Vector{MISSING, 0.0})[0] > 3.0);
}

TEST(leaves_follow_a_drift) {
    Learner learner(options_of(2));
    Random random(4);
    const double error = error_after(learner, 12000, [&](std::size_t i, Vector& values, double& target) {
        values = {random.normal(), random.normal()};
        target = (values[0] > 0.0) == (i < 6000) ? 4.0 : -4.0;
    });
    CHECK(error < 1.0);
}

TEST(bins_are_quantiles_and_follow_the_values) {
    QuantileBins bins(3);
    Random random(5);
    std::vector<std::size_t> changed;
    std::size_t changes = 0;
    for (std::size_t i = 0; i < 60000; ++i) {
        const double level = i < 10000 ? 0.0 : 100.0;
        const Vector values{level + random.normal(), static_cast<double>(random.below(4)), MISSING};
        if (bins.add(values, changed) && i > 10000) ++changes;
    }
    CHECK(changes > 0);
    CHECK(bins.bins(0) == QuantileBins::BINS);
    CHECK(bins.bins(1) == 4 && bins.distinct(1) && !bins.distinct(0));
    CHECK(bins.bins(2) == 1);
    CHECK(bins.low(0, 16) > 95.0 && bins.high(0, 16) < 101.0);
    std::uint8_t found[3];
    bins.find(Vector{1e9, 2.0, MISSING}, found);
    CHECK(found[0] == QuantileBins::BINS - 1 && found[1] == 2 && found[2] == QuantileBins::MISSING);
}

TEST(trees_stay_within_their_bytes) {
    const TreeOptions all = options_of(6, 2);
    TreeOptions few = all;
    few.most_bytes = 100000.0;
    Learner free(all), bounded(few);
    Random random(6);
    Vector values(6), targets(2);
    for (std::size_t i = 0; i < 4000; ++i) {
        draw_row(random, values, targets);
        free.learn(values, targets);
        bounded.learn(values, targets);
        CHECK(bounded.trees.histogram_bytes() <= few.most_bytes);
    }
    CHECK(free.trees.histogram_bytes() > few.most_bytes);
    CHECK(free.trees.histogram_bytes() <= GradientTrees::bytes(all));
    CHECK(GradientTrees::bytes(few) < GradientTrees::bytes(all));
}

TEST(full_trees_count_no_more) {
    Learner learner(options_of(2));
    Random random(7);
    for (std::size_t i = 0; i < 40000; ++i) {
        const Vector values{random.normal(), random.normal()};
        const double target = std::sin(9.0 * values[0]) * 10.0 + std::cos(7.0 * values[1]) * 10.0;
        learner.learn(values, View(&target, 1));
    }
    CHECK(learner.trees.leaves() > 10 * GradientTrees::TREES);
    CHECK(learner.trees.leaves() <= GradientTrees::MOST_LEAVES * GradientTrees::TREES);
    NamedArrays arrays = saved(learner);
    Learner again(options_of(2));
    load(again, arrays);
    CHECK(same(saved(again), arrays));
}

TEST(weights_that_are_large_or_small_stay_finite) {
    Learner learner(options_of(2));
    Random random(8);
    for (std::size_t i = 0; i < 3000; ++i) {
        const Vector values{random.normal(), random.normal()};
        const double target = 1e15 * random.normal();
        const double weight = random.chance(0.1) ? 1e300 : random.chance(0.1) ? 1e-300 : 1.0;
        learner.learn(values, View(&target, 1), weight);
        CHECK(std::isfinite(learner.predict(values)[0]));
    }
}

TEST(ensembles_that_are_loaded_continue_alike) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
        const std::size_t outputs = 1 + seed % 3;
        Learner learner = grown(4, outputs, 2500, seed);
        Learner again(options_of(4, outputs));
        load(again, saved(learner));
        Random first(seed + 9), second(seed + 9);
        Vector values(4), targets(outputs);
        for (std::size_t i = 0; i < 300; ++i) {
            draw_row(first, values, targets);
            learner.learn(values, targets);
            draw_row(second, values, targets);
            again.learn(values, targets);
        }
        CHECK(same(saved(learner), saved(again)));
    }
}

TEST(larger_ensembles_predict_the_same) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
        Learner learner = grown(3, 1, 2500, seed);
        Learner larger(options_of(5, 3));
        larger.bins = learner.bins.resized({0, 2, 4}, 5);
        const Vector factors{-0.5, 0.5};
        larger.trees = learner.trees.resized(options_of(5, 3), {0, 2, 4}, factors);
        Random random(seed);
        for (std::size_t i = 0; i < 50; ++i) {
            const Vector values{random.normal(), random.normal(), random.normal()};
            const Vector wide{values[0], random.normal(), values[1], MISSING, values[2]};
            const double before = learner.predict(values)[0];
            const Vector after = larger.predict(wide);
            CHECK(std::abs(after[1] - after[0] - before) < 1e-12 && after[2] == 0.0);
        }
        Vector values(5), targets(3);
        for (std::size_t i = 0; i < 1000; ++i) {
            draw_row(random, values, targets);
            larger.learn(values, targets);
        }
        Learner again(options_of(5, 3));
        load(again, saved(larger));
        CHECK(same(saved(again), saved(larger)));
    }
}

TEST(ensembles_that_were_tampered_with) {
    std::size_t refused = 0, taken = 0;
    Learner base = grown(4, 2, 2500, 1);
    const NamedArrays whole = saved(base);
    for (std::uint64_t seed = 1; seed <= 600; ++seed) {
        Random random(seed);
        NamedArrays arrays = whole;
        auto one = arrays.begin();
        std::advance(one, static_cast<std::ptrdiff_t>(random.below(arrays.size())));
        NamedArray& array = one->second;
        if (array.values.empty() || array.shape.empty()) continue;
        const double values[] = {MISSING, 1e300, -1.0, 0.5, 3.0, 200.0, 1e9, 0.0};
        const std::size_t at = random.below(array.values.size());
        switch (random.below(4)) {
            case 0:
                array.values.pop_back();
                array.shape.back() -= 1;
                break;
            case 1:
                array.values.push_back(1.0);
                array.shape.back() += 1;
                break;
            default:
                array.values[at] = values[random.below(8)];
        }
        Learner learner(options_of(4, 2));
        try {
            load(learner, arrays);
            ++taken;
        } catch (const std::invalid_argument&) {
            ++refused;
            continue;
        }
        Vector row(4), targets(2);
        for (std::size_t i = 0; i < 200; ++i) {
            draw_row(random, row, targets);
            learner.learn(row, targets);
        }
        Learner larger(options_of(5, 3));
        const Vector factors{1.0, 1.0};
        larger.trees = learner.trees.resized(options_of(5, 3), {0, 1, 2, 4}, factors);
    }
    CHECK(refused > 150);
    CHECK(taken > 50);
}
