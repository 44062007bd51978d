// What a failed allocation leaves: a row is learned as a whole or not at all, a larger model stands
// beside the old one until it is whole.
#include <cstdlib>
#include <cstring>
#include <new>

#include "check.hpp"
#include "pool.hpp"
#include "random.hpp"

using namespace obax;
using namespace obax::tests;

namespace {

// Allocations until one fails; less than 0 for never.
thread_local long allocations_left = -1;

void* allocate(std::size_t size) {
    if (allocations_left == 0) throw std::bad_alloc();
    if (allocations_left > 0) --allocations_left;
    if (void* found = std::malloc(size > 0 ? size : 1)) return found;
    throw std::bad_alloc();
}

// Run with the allocation of this number failing; false if there were not so many.
template <class Call>
bool fails(long number, Call call) {
    allocations_left = number;
    bool failed = false;
    try {
        call();
    } catch (const std::bad_alloc&) {
        failed = true;
    }
    allocations_left = -1;
    return failed;
}

Vector numbers_of(Model& model) {
    NamedArrays arrays;
    Archive archive = Archive::writer(arrays);
    model.visit(archive);
    Vector all;
    for (const auto& [name, array] : arrays) all.insert(all.end(), array.values.begin(), array.values.end());
    return all;
}

bool same_bits(const Vector& a, const Vector& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

Model random_model(Random& random, bool sparse) {
    Spec spec = random_spec(random);
    spec.sparse = sparse && can_be_sparse(spec);
    const std::size_t features = 3;
    spec.features = spec.sparse ? 0 : features;
    spec.classes = spec.classifies() ? 3 : 0;
    Model model = Model(make_plan(spec)).resized(make_plan(spec), features);
    if (random.chance(0.5)) model.scores().keep(0.9);
    return model;
}

struct LearnedRow {
    Vector values;
    double target;
};

LearnedRow random_row(Random& random, const Model& model) {
    const bool classifies = model.plan()->classifies;
    return {random_values(random, model.features()),
            classifies ? static_cast<double>(random.below(3)) : random.normal()};
}

void learn(Model& model, const LearnedRow& row, Workspace& work) {
    Vector prediction(model.plan()->predictions);
    model.step(raw_row(row.values), row.target, 1.0, work, prediction);
}

}  // namespace

void* operator new(std::size_t size) { return allocate(size); }
void* operator new[](std::size_t size) { return allocate(size); }
// std::stable_sort asks for memory so, and can do without.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return std::malloc(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return std::malloc(size); }
void operator delete(void* place) noexcept { std::free(place); }
void operator delete[](void* place) noexcept { std::free(place); }
void operator delete(void* place, std::size_t) noexcept { std::free(place); }
void operator delete[](void* place, std::size_t) noexcept { std::free(place); }

TEST(a_row_is_learned_as_a_whole_or_not_at_all) {
    std::size_t failed = 0;
    for (std::uint64_t seed = 1; seed <= 80; ++seed) {
        Random random(seed);
        Model model = random_model(random, seed % 2 == 0);
        for (std::size_t i = 0; i < 40; ++i) {
            const LearnedRow row = random_row(random, model), next = random_row(random, model);
            Model after = model.copy();
            Workspace apart(*after.plan());
            learn(after, row, apart);
            const Vector before = numbers_of(model), expected = numbers_of(after);
            for (long number = 0;; ++number) {
                Model interrupted = model.copy();
                Workspace work(*interrupted.plan());
                const bool came = fails(number, [&] { learn(interrupted, row, work); });
                CHECK(same_bits(numbers_of(interrupted), came ? before : expected));
                if (!came) break;
                ++failed;
                // What is kept between rows fits what was learned.
                learn(interrupted, row, work);
                CHECK(same_bits(numbers_of(interrupted), expected));
            }
            Workspace work(*model.plan());
            learn(model, row, work);
            learn(model, next, work);
        }
    }
    CHECK(failed > 1000);
}

TEST(a_model_that_cannot_grow_stays_as_it_is) {
    std::size_t failed = 0;
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        Random random(seed);
        Model model = random_model(random, seed % 2 == 0);
        Workspace work(*model.plan());
        for (std::size_t i = 0; i < 20; ++i) learn(model, random_row(random, model), work);
        Spec larger = model.plan()->spec;
        if (larger.classifies()) larger.classes += 2;
        if (!larger.sparse) larger.features += 2;
        const Vector before = numbers_of(model);
        for (long number = 0;; ++number) {
            const bool came = fails(number, [&] {
                model = model.resized(make_plan(larger), model.features() + 2);
            });
            if (!came) break;
            CHECK(same_bits(numbers_of(model), before));
            ++failed;
        }
        CHECK(model.features() == 5);
    }
    CHECK(failed > 1000);
}

TEST(a_pool_that_cannot_grow_goes_on_later) {
    std::size_t failed = 0;
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
        Random random(seed);
        Spec spec = random_spec(random);
        spec.features = spec.classes = 0;
        constexpr std::size_t rows = 12, width = 2, labels = 3;
        Vector values, targets, weights(rows, 1.0);
        std::vector<std::int64_t> tenants;
        for (std::size_t i = 0; i < rows; ++i) {
            const Vector row = random_values(random, width);
            values.insert(values.end(), row.begin(), row.end());
            tenants.push_back(static_cast<std::int64_t>(random.below(2)));
            targets.push_back(spec.classifies() ? static_cast<double>(random.below(labels))
                                                : random.normal());
        }
        const std::int32_t columns[width] = {0, 1}, siblings[width] = {-1, -1};
        const std::int32_t implied[labels] = {seed % 3 == 0 ? 1 : -1, -1, -1};
        Vector predictions(rows * labels);
        const auto play = [&](Pool& pool, std::size_t i) {
            PoolRows row{tenants.data() + i, 1, values.data() + i * width, width, 1, columns, width,
                         siblings, targets.data() + i, weights.data() + i, labels, implied, true,
                         nullptr, nullptr, predictions.data(), nullptr, nullptr};
            pool.play(row, 1, [] { return false; });
        };
        Pool whole(spec), stumbling(spec);
        whole.add(2);
        stumbling.add(2);
        for (std::size_t i = 0; i < rows; ++i) {
            play(whole, i);
            // What comes of a row that failed is a model that knows its features and its class.
            for (long number = 0; fails(number, [&] { play(stumbling, i); }); ++number) ++failed;
            const Tenant& tenant = stumbling[static_cast<std::size_t>(tenants[i])];
            CHECK(tenant.model->plan()->spec.classes == tenant.labels.size());
            CHECK(tenant.model->features() == tenant.features.size());
        }
        // The class that a boolean implies comes after the row, which may have been learned by then.
        if (implied[0] >= 0) continue;
        for (std::size_t k = 0; k < 2; ++k)
            if (whole[k].model)
                CHECK(same_bits(numbers_of(*whole[k].model), numbers_of(*stumbling[k].model)));
    }
    CHECK(failed > 300);
}
