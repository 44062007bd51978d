// Random numbers, specs and rows for the tests: the same on every machine.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "model.hpp"

namespace obax::tests {

class Random {
  public:
    explicit Random(std::uint64_t seed) : state_(seed * 2654435761u + 88172645463325252u) {}

    std::uint64_t bits() {
        state_ ^= state_ << 13;
        state_ ^= state_ >> 7;
        state_ ^= state_ << 17;
        return state_;
    }
    double uniform() { return static_cast<double>(bits() >> 11) * 0x1.0p-53; }
    std::size_t below(std::size_t n) { return static_cast<std::size_t>(bits() % n); }
    bool chance(double p) { return uniform() < p; }
    double normal() {
        const double radius = std::sqrt(-2.0 * std::log(uniform() + 1e-300));
        return radius * std::cos(6.283185307179586 * uniform());
    }

  private:
    std::uint64_t state_;
};

inline std::shared_ptr<const Waves> waves_of(std::size_t features) {
    Random random(7);
    auto waves = std::make_shared<Waves>();
    waves->directions = Matrix(features, WAVES);
    for (double& value : waves->directions.flat()) value = random.normal();
    waves->phases.resize(WAVES);
    for (double& value : waves->phases) value = 6.28 * random.uniform();
    return waves;
}

// A spec without features and classes.
inline Spec random_spec(Random& random) {
    Spec spec;
    spec.loss = static_cast<LossKind>(random.below(3));
    spec.learned = {random.chance(0.8), random.chance(0.8), random.chance(0.8), false, false, false};
    const std::size_t kind = random.below(6);
    if (kind == 0) spec.per_feature = true;
    if (kind == 1) {
        spec.expansion = Expansion::fourier;
        spec.waves = waves_of(16);
        spec.learned[BANDWIDTH] = random.chance(0.5);
    }
    if (kind == 2) spec.expansion = Expansion::interactions;
    if (kind == 3) spec.lags = 1 + random.below(2);
    if (spec.classifies()) {
        spec.learned[CLASS_WEIGHTS] = random.chance(0.2);
        spec.learned[LOGIT_SHIFTS] = random.chance(0.2);
        spec.balance = static_cast<Balance>(random.below(3));
    }
    if (kind >= 4 && random.chance(0.5)) {
        for (const char* block : {"lags", "interactions", "fourier"})
            if (random.chance(block[0] == 'f' ? 0.1 : 0.5)) spec.blocks.push_back(block);
        spec.waves = waves_of(16);
        if (random.chance(0.9)) spec.trees = {{"trees", 30.0, false}, {"correcting", 50.0, true}};
        spec.seed = random.below(9);
        spec.restless = random.chance(0.3);
        if (random.chance(0.3)) spec.tree_bytes = 100000.0;
    }
    if (random.chance(0.7)) spec.frozen.push_back({"start", 1e-3, 100.0, 1.0});
    if (random.chance(0.3)) spec.frozen.push_back({"long", 1e-3, 3000.0, 1.0});
    if (random.chance(0.7)) spec.gradient_steps = {{"sgd 0.01", 0.01}, {"sgd 0.3", 0.3}};
    spec.history_points = 2 + random.below(40);
    spec.intervals = random.chance(0.8);
    spec.scale_memory = random.chance(0.5) ? 10000.0 : 2.0 + 50.0 * random.uniform();
    return spec;
}

inline bool can_be_sparse(const Spec& spec) {
    return !spec.per_feature && spec.lags == 0 && spec.auto_members() == 0 && spec.expansion == Expansion::linear;
}

// Values of a row, now and then missing, constant, far off or extreme.
inline Vector random_values(Random& random, std::size_t features) {
    Vector values(features);
    for (double& value : values) {
        value = random.normal();
        const std::size_t kind = random.below(40);
        if (kind == 0) value = std::numeric_limits<double>::quiet_NaN();
        if (kind == 1) value = 0.0;
        if (kind == 2) value = 1e6 * random.normal();
        if (kind == 3) value = 1e-200 * random.normal();
    }
    return values;
}

inline RawRow raw_row(const Vector& values) { return {values.data(), 1, nullptr, values.size()}; }

}  // namespace obax::tests
