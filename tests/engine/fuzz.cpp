// Random sequences of operations, and states that were tampered with.
#include <cstring>
#include <stdexcept>

#include "check.hpp"
#include "pool.hpp"
#include "random.hpp"

using namespace obax;
using namespace obax::tests;

namespace {

bool same_bits(View a, View b) {
    return a.size() == b.size() &&
           (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0);
}

NamedArrays saved(Model& model) {
    NamedArrays arrays;
    Archive archive = Archive::writer(arrays);
    model.visit(archive);
    return arrays;
}

Model loaded(const Model& like, const NamedArrays& arrays) {
    Model model = Model(like.plan()).resized(like.plan(), like.features());
    Archive archive = Archive::reader(arrays);
    model.visit(archive);
    return model;
}

// A target; in a model with trees it depends on the row, so that they have something to learn.
double random_target(Random& random, const Spec& spec, View row) {
    if (spec.auto_members() > 0 && !row.empty() && random.chance(0.9)) {
        if (!spec.classifies()) return row[0] > 0.0 ? 3.0 : -3.0;
        return row[0] > 0.5 ? static_cast<double>(spec.slots() - 1) : 0.0;
    }
    if (!spec.classifies()) return random.chance(0.02) ? 1e8 : random.normal();
    return static_cast<double>(random.below(spec.slots()));
}

// Play a few rows; predictions must be finite.
void play(Model& model, Random& random, std::size_t rows) {
    Workspace work(*model.plan());
    Vector prediction(model.plan()->predictions);
    for (std::size_t i = 0; i < rows; ++i) {
        const Vector values = random_values(random, model.features());
        const double weight = random.chance(0.1) ? 0.0 : random.chance(0.1) ? 3.0 : 1.0;
        model.step(raw_row(values), random_target(random, model.plan()->spec, values), weight, work,
                   prediction);
        for (double one : prediction) CHECK(std::isfinite(one));
    }
}

Model grown(const Model& model, Random& random) {
    Spec spec = model.plan()->spec;
    const std::size_t features = model.features() + random.below(4);
    if (spec.classifies()) spec.classes += random.below(3);
    if (!spec.sparse && can_be_sparse(spec) && random.chance(0.2)) spec.sparse = true;
    spec.features = spec.sparse ? 0 : features;
    return model.resized(make_plan(spec), features);
}

Model random_model(Random& random) {
    Model model(make_plan(random_spec(random)));
    for (std::size_t i = 0; i < 3; ++i) {
        model = grown(model, random);
        // Trees begin late.
        const bool late = model.plan()->spec.auto_members() > 0 && random.chance(0.5);
        play(model, random, late ? 250 : random.below(30));
    }
    return model;
}

}  // namespace

TEST(copies_and_loaded_models_continue_alike) {
    for (std::uint64_t seed = 1; seed <= 150; ++seed) {
        Random random(seed);
        Model model = random_model(random);
        Model copy = model.copy(), again = loaded(model, saved(model));
        Random first(seed + 1000), second(seed + 1000), third(seed + 1000);
        play(model, first, 20);
        play(copy, second, 20);
        play(again, third, 20);
        const auto one = saved(model), two = saved(copy), three = saved(again);
        for (const auto& [name, array] : one) {
            CHECK(same_bits(array.values, two.at(name).values));
            CHECK(same_bits(array.values, three.at(name).values));
        }
    }
}

TEST(states_that_were_tampered_with) {
    std::size_t refused = 0, taken = 0;
    for (std::uint64_t seed = 1; seed <= 600; ++seed) {
        Random random(seed);
        Model model = random_model(random);
        NamedArrays arrays = saved(model);
        for (std::size_t change = 0; change < 1 + random.below(3); ++change) {
            auto one = arrays.begin();
            std::advance(one, static_cast<std::ptrdiff_t>(random.below(arrays.size())));
            NamedArray& array = one->second;
            const double values[] = {std::numeric_limits<double>::quiet_NaN(),
                                     std::numeric_limits<double>::infinity(),
                                     -1.0,
                                     1e300,
                                     -1e18,
                                     0.5,
                                     1e9,
                                     499.0,
                                     500.0};
            switch (random.below(5)) {
                case 0:
                    array.values.resize(array.values.size() + 1 + random.below(3));
                    break;
                case 1:
                    if (!array.values.empty()) array.values.pop_back();
                    break;
                case 2:
                    array.shape.push_back(random.below(3));
                    break;
                case 3:
                    arrays.erase(one);
                    break;
                default:
                    if (!array.values.empty())
                        array.values[random.below(array.values.size())] = values[random.below(9)];
            }
            if (arrays.empty()) break;
        }
        try {
            Model other = loaded(model, arrays);
            ++taken;
            // What was taken is within its limits: nothing may leave its arrays.
            Workspace work(*other.plan());
            Vector prediction(other.plan()->predictions);
            for (std::size_t i = 0; i < 20; ++i) {
                const Vector row = random_values(random, other.features());
                other.step(raw_row(row), random_target(random, other.plan()->spec, row), 1.0, work,
                           prediction);
            }
            const std::size_t position = other.scores().keep(0.9);
            if (position < MOST_COVERAGES) other.scores().reach(position);
            Model larger = grown(other, random);
            play(larger, random, 3);
        } catch (const std::invalid_argument&) {
            ++refused;
        } catch (const std::runtime_error&) {
            // A state with absurd numbers may predict what is not finite.
            ++taken;
        }
    }
    CHECK(refused > 300);
    CHECK(taken > 0);
}

TEST(pools_equal_separate_models) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        Random random(seed);
        Spec spec = random_spec(random);
        spec.intervals = false;
        constexpr std::size_t rows = 150, keys = 5, width = 4, labels = 3;
        Pool pool(spec), again(spec);
        pool.add(keys);
        again.add(keys);
        std::vector<std::int64_t> tenants(rows);
        Vector values, targets(rows), weights(rows, 1.0);
        for (std::size_t i = 0; i < rows; ++i) {
            tenants[i] = static_cast<std::int64_t>(random.below(keys));
            const Vector row = random_values(random, width);
            values.insert(values.end(), row.begin(), row.end());
            targets[i] = spec.classifies() ? static_cast<double>(random.below(labels))
                                           : random.normal();
        }
        const std::int32_t columns[width] = {0, 1, 2, 3}, siblings[width] = {-1, 0, -1, -1};
        const std::int32_t implied[labels] = {1, -1, -1};
        const std::size_t count = spec.classifies() ? labels : 1;
        Vector together(rows * count), apart(rows * count);
        std::vector<std::uint8_t> status(rows);
        Vector loss(rows);
        PoolRows call{tenants.data(), rows, values.data(), width, 1, columns, width, siblings, targets.data(),
                      weights.data(), labels, implied, true, status.data(), loss.data(), together.data(),
                      nullptr, nullptr};
        pool.play(call, 2, [] { return false; });
        for (std::size_t i = 0; i < rows; ++i) {
            PoolRows one = call;
            one.tenants += i;
            one.size = 1;
            one.values += i * width;
            one.targets += i;
            one.weights += i;
            one.predictions = apart.data() + i * count;
            again.play(one, 1, [] { return false; });
        }
        CHECK(same_bits(together, apart));
        for (std::size_t k = 0; k < keys; ++k) CHECK(pool[k].given == again[k].given);
    }
}
