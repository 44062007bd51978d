// The algebra against the sums as they are written in a textbook.
#include "algebra.hpp"

#include "check.hpp"
#include "random.hpp"

using namespace obax;
using obax::tests::Random;

namespace {

bool near(double a, double b, double scale = 1.0) {
    return std::abs(a - b) <= 1e-9 * (scale + std::abs(a) + std::abs(b));
}

Vector random_vector(Random& random, std::size_t n) {
    Vector values(n);
    for (double& value : values) value = random.normal();
    return values;
}

Matrix random_definite(Random& random, std::size_t d) {
    Matrix matrix(d, d);
    for (std::size_t i = 0; i < d; ++i) matrix[i][i] = 1.0 + random.uniform();
    for (std::size_t k = 0; k < d + 3; ++k) {
        const Vector a = random_vector(random, d);
        for (std::size_t i = 0; i < d; ++i)
            for (std::size_t j = 0; j < d; ++j) matrix[i][j] += a[i] * a[j];
    }
    return matrix;
}

}  // namespace

TEST(solutions_of_definite_systems) {
    Random random(1);
    for (std::size_t d = 1; d <= 70; ++d) {
        const Matrix matrix = random_definite(random, d);
        for (std::size_t count = 1; count <= 4; ++count) {
            Matrix factors = matrix, lines(count, d), solutions(count, d);
            for (double& value : lines.flat()) value = random.normal();
            CHECK(factorise(factors));
            solve(factors, lines.data(), count, solutions.data());
            for (std::size_t c = 0; c < count; ++c)
                for (std::size_t i = 0; i < d; ++i) {
                    double sum = 0.0;
                    for (std::size_t j = 0; j < d; ++j) sum += matrix[i][j] * solutions[c][j];
                    CHECK(near(sum, lines[c][i]));
                }
        }
    }
}

TEST(indefinite_systems_are_refused) {
    for (std::size_t d = 1; d <= 60; ++d) {
        for (std::size_t wrong = 0; wrong < d; wrong += 7) {
            Matrix matrix(d, d);
            for (std::size_t i = 0; i < d; ++i) matrix[i][i] = i == wrong ? -1.0 : 2.0;
            CHECK(!factorise(matrix));
        }
    }
}

TEST(products_with_symmetric_matrices) {
    Random random(2);
    for (std::size_t d = 1; d <= 40; ++d) {
        const Matrix matrix = random_definite(random, d);
        for (std::size_t count = 1; count <= 3; ++count) {
            Matrix lines(count, d), out(count, d);
            for (double& value : lines.flat()) value = random.normal();
            multiply(matrix, lines.data(), count, out.data());
            for (std::size_t c = 0; c < count; ++c)
                for (std::size_t j = 0; j < d; ++j) {
                    double sum = 0.0;
                    for (std::size_t i = 0; i < d; ++i) sum += matrix[i][j] * lines[c][i];
                    CHECK(near(sum, out[c][j]));
                }
        }
    }
}

TEST(sums_of_vectors_and_outer_products) {
    Random random(3);
    for (std::size_t d = 1; d <= 21; ++d) {
        const Vector a = random_vector(random, d), b = random_vector(random, d);
        Vector out = b;
        add_scaled(out, 0.5, a);
        double product = 0.0;
        for (std::size_t i = 0; i < d; ++i) {
            CHECK(near(out[i], b[i] + 0.5 * a[i]));
            product += a[i] * b[i];
        }
        CHECK(near(dot(a, b), product));
        Matrix matrix = random_definite(random, d), other = random_definite(random, d);
        const Matrix before = matrix;
        fade_and_add_outer_and_matrix(matrix, 0.9, 0.3, a, other);
        add_symmetric_outer(matrix, 0.2, a, b);
        for (std::size_t i = 0; i < d; ++i)
            for (std::size_t j = 0; j < d; ++j)
                CHECK(near(matrix[i][j], 0.9 * before[i][j] + 0.3 * a[i] * a[j] + other[i][j] +
                                             0.2 * (a[i] * b[j] + b[i] * a[j])));
    }
}
