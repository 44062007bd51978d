#include "algebra.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace obax {

namespace {

// Four doubles, which the compiler splits where the processor has narrower registers. A
// kernel is written once for four and single numbers: see `for_groups`.
#if defined(__GNUC__)
#define OBAX_INLINE inline __attribute__((always_inline))
#define OBAX_INLINED __attribute__((always_inline))
// Functions that take or give such numbers are always inlined, so that no call depends on how they
// are passed.
#pragma GCC diagnostic ignored "-Wpsabi"
typedef double Four __attribute__((vector_size(32)));
typedef double FourInMemory __attribute__((vector_size(32), aligned(8), may_alias));
template <class T>
T load(const double* p);
template <>
OBAX_INLINE Four load<Four>(const double* p) {
    return *reinterpret_cast<const FourInMemory*>(p);
}
template <class T>
void store(double* p, const T& value);
template <>
OBAX_INLINE void store<Four>(double* p, const Four& value) {
    *reinterpret_cast<FourInMemory*>(p) = value;
}
template <class T>
OBAX_INLINE T fill(double x);
template <>
OBAX_INLINE Four fill<Four>(double x) {
    return Four{x, x, x, x};
}
OBAX_INLINE double lane(const Four& x, int i) { return x[i]; }
#else
#define OBAX_INLINE inline
#define OBAX_INLINED
template <std::size_t N>
struct Group {
    std::array<double, N> v;
    template <class F>
    static Group of(F f) {
        Group out;
        for (std::size_t i = 0; i < N; ++i) out.v[i] = f(i);
        return out;
    }
    friend Group operator+(const Group& a, const Group& b) {
        return of([&](std::size_t i) { return a.v[i] + b.v[i]; });
    }
    friend Group operator-(const Group& a, const Group& b) {
        return of([&](std::size_t i) { return a.v[i] - b.v[i]; });
    }
    friend Group operator*(const Group& a, const Group& b) {
        return of([&](std::size_t i) { return a.v[i] * b.v[i]; });
    }
};
using Four = Group<4>;
template <class T>
T load(const double* p) {
    return T::of([&](std::size_t i) { return p[i]; });
}
template <class T>
void store(double* p, const T& value) {
    std::copy(value.v.begin(), value.v.end(), p);
}
template <class T>
T fill(double x) {
    return T::of([&](std::size_t) { return x; });
}
inline double lane(const Four& x, int i) { return x.v[static_cast<std::size_t>(i)]; }
#endif
template <>
OBAX_INLINE double load<double>(const double* p) {
    return *p;
}
template <>
OBAX_INLINE void store<double>(double* p, const double& value) {
    *p = value;
}
template <>
OBAX_INLINE double fill<double>(double x) {
    return x;
}

// A number that multiplies others, four times beside each other and by itself.
struct Factor {
    OBAX_INLINE explicit Factor(double x) : four(fill<Four>(x)), one(x) {}

    template <class T>
    OBAX_INLINE T as() const {
        if constexpr (sizeof(T) == sizeof(double))
            return one;
        else
            return four;
    }

    Four four;
    double one;
};

template <class T>
struct Type {
    using type = T;
};

// Call `body` for four numbers at a time, then for single ones. (Eight at a time would be slower
// where a row is written and read again soon: groups of eight would not stand where they stood.)
template <class Body>
OBAX_INLINE void for_groups(std::size_t begin, std::size_t end, Body body) {
    std::size_t i = begin;
    for (; i + 4 <= end; i += 4) body(Type<Four>(), i);
    for (; i < end; ++i) body(Type<double>(), i);
}

// The same where four divides the number of them.
template <class Body>
OBAX_INLINE void for_whole_groups(std::size_t begin, std::size_t end, Body body) {
    for (std::size_t i = begin; i < end; i += 4) body(i);
}

OBAX_INLINE double sum_of(const Four& x) {
    return (lane(x, 0) + lane(x, 1)) + (lane(x, 2) + lane(x, 3));
}

// line[begin, end) += factor * other[begin, end)
OBAX_INLINE void add_to(double* line, std::size_t begin, std::size_t end, double factor,
                        const double* other) {
    const Factor by(factor);
    for_groups(begin, end, [=](auto type, std::size_t i) OBAX_INLINED {
        using T = typename decltype(type)::type;
        store<T>(line + i, load<T>(line + i) + by.template as<T>() * load<T>(other + i));
    });
}

// The same in whole groups of four.
OBAX_INLINE void add_groups_to(double* line, std::size_t begin, std::size_t end, double factor,
                               const double* other) {
    const Four by = fill<Four>(factor);
    for_whole_groups(begin, end, [=](std::size_t i) OBAX_INLINED {
        store<Four>(line + i, load<Four>(line + i) + by * load<Four>(other + i));
    });
}

// line[begin, end) += sum_r factors[r] rows[r][begin, end) for four rows, in whole groups of four.
OBAX_INLINE void add_four(double* line, std::size_t begin, std::size_t end, const double* factors,
                          const double* const* rows) {
    const Four f0 = fill<Four>(factors[0]), f1 = fill<Four>(factors[1]);
    const Four f2 = fill<Four>(factors[2]), f3 = fill<Four>(factors[3]);
    const double *r0 = rows[0], *r1 = rows[1], *r2 = rows[2], *r3 = rows[3];
    for_whole_groups(begin, end, [=](std::size_t i) OBAX_INLINED {
        Four total = load<Four>(line + i) + f0 * load<Four>(r0 + i);
        total = total + f1 * load<Four>(r1 + i);
        total = total + f2 * load<Four>(r2 + i);
        store<Four>(line + i, total + f3 * load<Four>(r3 + i));
    });
}

// The same for two lines: each number of the rows is read once for both.
OBAX_INLINE void add_four_to_two(double* one, double* two, std::size_t begin, std::size_t end,
                                 const double* left, const double* right,
                                 const double* const* rows) {
    const Four f0 = fill<Four>(left[0]), f1 = fill<Four>(left[1]);
    const Four f2 = fill<Four>(left[2]), f3 = fill<Four>(left[3]);
    const Four g0 = fill<Four>(right[0]), g1 = fill<Four>(right[1]);
    const Four g2 = fill<Four>(right[2]), g3 = fill<Four>(right[3]);
    const double *r0 = rows[0], *r1 = rows[1], *r2 = rows[2], *r3 = rows[3];
    for_whole_groups(begin, end, [=](std::size_t i) OBAX_INLINED {
        const Four a = load<Four>(r0 + i), b = load<Four>(r1 + i);
        const Four c = load<Four>(r2 + i), d = load<Four>(r3 + i);
        Four first = load<Four>(one + i) + f0 * a, second = load<Four>(two + i) + g0 * a;
        first = first + f1 * b;
        second = second + g1 * b;
        first = first + f2 * c;
        second = second + g2 * c;
        store<Four>(one + i, first + f3 * d);
        store<Four>(two + i, second + g3 * d);
    });
}

}  // namespace

// ---- vectors ------------------------------------------------------------------------------------

OBAX_CLONES double dot(View a, View b) {
    const std::size_t n = a.size(), whole = n - n % 4;
    const double *x = a.data(), *y = b.data();
    Four total = fill<Four>(0.0);
    for (std::size_t i = 0; i < whole; i += 4)
        total = total + load<Four>(x + i) * load<Four>(y + i);
    double sum = sum_of(total);
    for (std::size_t i = whole; i < n; ++i) sum = sum + x[i] * y[i];
    return sum;
}

OBAX_CLONES double sum_of_scaled(View base, double factor, View source) {
    const std::size_t n = base.size(), whole = n - n % 4;
    const double *x = base.data(), *y = source.data();
    Four total = fill<Four>(0.0);
    for (std::size_t i = 0; i < whole; i += 4)
        total = total + (load<Four>(x + i) + fill<Four>(factor) * load<Four>(y + i));
    double sum = sum_of(total);
    for (std::size_t i = whole; i < n; ++i) sum = sum + (x[i] + factor * y[i]);
    return sum;
}

OBAX_CLONES void scale(View source, double factor, Span out) {
    const double* from = source.data();
    double* to = out.data();
    const Factor by(factor);
    for_groups(0, out.size(), [=](auto type, std::size_t i) OBAX_INLINED {
        using T = typename decltype(type)::type;
        store<T>(to + i, by.template as<T>() * load<T>(from + i));
    });
}

OBAX_CLONES void add_scaled(Span out, double factor, View source) {
    add_to(out.data(), 0, out.size(), factor, source.data());
}

OBAX_CLONES void fade_and_subtract(Span line, double fade, double factor, View source) {
    const double* from = source.data();
    double* to = line.data();
    const Factor by(factor), fading(fade);
    for_groups(0, line.size(), [=](auto type, std::size_t i) OBAX_INLINED {
        using T = typename decltype(type)::type;
        const T left = load<T>(to + i) - by.template as<T>() * load<T>(from + i);
        store<T>(to + i, fading.template as<T>() * left);
    });
}

OBAX_CLONES void add_scaled_to(View base, double factor, View source, Span out) {
    const double *x = base.data(), *y = source.data();
    double* to = out.data();
    const Factor by(factor);
    for_groups(0, out.size(), [=](auto type, std::size_t i) OBAX_INLINED {
        using T = typename decltype(type)::type;
        store<T>(to + i, load<T>(x + i) + by.template as<T>() * load<T>(y + i));
    });
}

OBAX_CLONES void multiply_add(View a, View b, View c, Span out) {
    const double *x = a.data(), *y = b.data(), *z = c.data();
    double* to = out.data();
    for_groups(0, out.size(), [=](auto type, std::size_t i) OBAX_INLINED {
        using T = typename decltype(type)::type;
        store<T>(to + i, load<T>(x + i) * load<T>(y + i) + load<T>(z + i));
    });
}

OBAX_CLONES void shrinkage_slope(View ridge, View s, View diagonal, View y, View u, View tilted,
                                 Span out) {
    const double *r = ridge.data(), *old = s.data(), *by = diagonal.data();
    const double *shrunk = u.data(), *tilt = tilted.data(), *weights = y.data();
    double* to = out.data();
    const bool shrinks = !y.empty();
    for_groups(0, out.size(), [=](auto type, std::size_t i) OBAX_INLINED {
        using T = typename decltype(type)::type;
        const T gap = shrinks ? load<T>(weights + i) - load<T>(shrunk + i)
                              : fill<T>(0.0) - load<T>(shrunk + i);
        store<T>(to + i, load<T>(r + i) * load<T>(old + i) + load<T>(by + i) * gap -
                             load<T>(tilt + i));
    });
}

OBAX_CLONES double sensitivity_step(View old, double factor, View direction, double fading,
                                    Span out) {
    const double *from = old.data(), *along = direction.data();
    double* to = out.data();
    const std::size_t n = out.size(), whole = n - n % 4;
    Four total = fill<Four>(0.0);
    for (std::size_t i = 0; i < whole; i += 4) {
        const Four moved = load<Four>(from + i) - load<Four>(to + i) +
                           fill<Four>(factor) * load<Four>(along + i);
        total = total + moved;
        store<Four>(to + i, fill<Four>(fading) * moved);
    }
    double sum = sum_of(total);
    for (std::size_t i = whole; i < n; ++i) {
        const double moved = from[i] - to[i] + factor * along[i];
        sum = sum + moved;
        to[i] = fading * moved;
    }
    return sum;
}

// ---- symmetric matrices -------------------------------------------------------------------------

OBAX_CLONES void fade_and_add_outer(Matrix& matrix, double fade, double factor, View a) {
    const std::size_t d = matrix.rows();
    const double* x = a.data();
    for (std::size_t i = 0; i < d; ++i) {
        double* line = matrix.data() + i * d;
        const Factor fading(fade), by(factor * x[i]);
        for_groups(0, d, [=](auto type, std::size_t j) OBAX_INLINED {
            using T = typename decltype(type)::type;
            store<T>(line + j, fading.template as<T>() * load<T>(line + j) + by.template as<T>() * load<T>(x + j));
        });
    }
}

OBAX_CLONES void fade_and_add_outer_and_matrix(Matrix& matrix, double fade, double factor, View a,
                                               const Matrix& other) {
    const std::size_t d = matrix.rows();
    const double* x = a.data();
    for (std::size_t i = 0; i < d; ++i) {
        double* line = matrix.data() + i * d;
        const double* more = other.data() + i * d;
        const Factor fading(fade), by(factor * x[i]);
        for_groups(0, d, [=](auto type, std::size_t j) OBAX_INLINED {
            using T = typename decltype(type)::type;
            store<T>(line + j, fading.template as<T>() * load<T>(line + j) + by.template as<T>() * load<T>(x + j) +
                                   load<T>(more + j));
        });
    }
}

OBAX_CLONES void add_symmetric_outer(Matrix& matrix, double factor, View a, View b) {
    const std::size_t d = matrix.rows();
    const double *x = a.data(), *y = b.data();
    for (std::size_t i = 0; i < d; ++i) {
        double* line = matrix.data() + i * d;
        const Factor left(factor * x[i]), right(factor * y[i]);
        for_groups(0, d, [=](auto type, std::size_t j) OBAX_INLINED {
            using T = typename decltype(type)::type;
            store<T>(line + j, load<T>(line + j) + left.template as<T>() * load<T>(y + j) +
                                   right.template as<T>() * load<T>(x + j));
        });
    }
}

namespace {

// The first rows and columns of a system, so many that four divides the number of the others: from
// there on every row is a number of whole groups of four, counted from the right.
OBAX_INLINE std::size_t ahead_of_groups(std::size_t d) { return d % 4; }

// Where the group of four begins that has column i.
OBAX_INLINE std::size_t group_of(std::size_t i, std::size_t first) {
    return i < first ? i : i - (i - first) % 4;
}

// Invert a symmetric matrix in its place, of which only the part above the diagonal is read, by
// sweeping two rows at a time.
OBAX_CLONES bool invert(double* matrix, std::size_t d) {
    const std::size_t first = ahead_of_groups(d);
    std::array<double, LARGEST_INVERSE> one, two;
    for (std::size_t k = 0; k < d; k += 2) {
        const bool pair = k + 1 < d;
        const double pivot = matrix[k * d + k];
        if (!(pivot > 0.0)) return false;
        const double across = pair ? matrix[k * d + k + 1] : 0.0, ratio = across / pivot;
        const double last = pair ? matrix[(k + 1) * d + k + 1] - ratio * across : 1.0;
        if (!(last > 0.0)) return false;
        for (std::size_t j = 0; j < d; ++j) {
            // What the first of the two leaves of the second, so that nothing large cancels.
            double& upper = j < k ? matrix[j * d + k] : matrix[k * d + j];
            one[j] = upper;
            upper = 0.0;
            two[j] = 0.0;
            if (!pair) continue;
            double& lower = j < k + 1 ? matrix[j * d + k + 1] : matrix[(k + 1) * d + j];
            two[j] = (j == k ? across : lower) - ratio * one[j];
            lower = 0.0;
        }
        one[k] = -1.0;
        two[k] = pair ? ratio : 0.0;
        if (pair) {
            one[k + 1] = 0.0;
            two[k + 1] = -1.0;
        }
        const double by_one = -1.0 / pivot, by_two = pair ? -1.0 / last : 0.0;
        const double *x = one.data(), *y = two.data();
        for (std::size_t i = 0; i < d; ++i) {
            double* line = matrix + i * d;
            const double left = by_one * one[i], right = by_two * two[i];
            for (std::size_t j = i; j < first; ++j)
                line[j] = line[j] + left * x[j] + right * y[j];
            const Four lefts = fill<Four>(left), rights = fill<Four>(right);
            for_whole_groups(std::max(group_of(i, first), first), d, [=](std::size_t j) OBAX_INLINED {
                store<Four>(line + j, load<Four>(line + j) + lefts * load<Four>(x + j) +
                                          rights * load<Four>(y + j));
            });
        }
    }
    for (std::size_t i = 0; i < d; ++i)
        for (std::size_t j = i; j < d; ++j)
            matrix[i * d + j] = matrix[j * d + i] = -matrix[i * d + j];
    return true;
}

// Replace a pivot by its inverse; false if it is not positive.
OBAX_INLINE bool invert_pivot(double& pivot) {
    if (!(pivot > 0.0)) return false;
    pivot = 1.0 / pivot;
    return true;
}

// Factorise a symmetric matrix in its place: L = U' D^-1 U with an upper triangle U whose diagonal
// is D, and the inverse of D on the diagonal. Without roots, and without rows that are scaled, the
// next pivot does not wait long. Four rows are taken from those below them at a time, in whole groups
// of four columns: what stands below the diagonal afterwards means nothing.
OBAX_CLONES bool decompose(double* matrix, std::size_t d) {
    const std::size_t first = ahead_of_groups(d);
    for (std::size_t j = 0; j < first; ++j) {
        double* row = matrix + j * d;
        if (!invert_pivot(row[j])) return false;
        for (std::size_t i = j + 1; i < d; ++i)
            add_to(matrix + i * d, group_of(i, first), d, -row[i] * row[j], row);
    }
    for (std::size_t begin = first; begin < d; begin += 4) {
        double* rows[4] = {matrix + begin * d, matrix + (begin + 1) * d, matrix + (begin + 2) * d,
                           matrix + (begin + 3) * d};
        double inverses[4];
        for (std::size_t r = 0; r < 4; ++r) {
            double* row = rows[r];
            if (!invert_pivot(row[begin + r])) return false;
            inverses[r] = -row[begin + r];
            for (std::size_t q = r + 1; q < 4; ++q)
                add_groups_to(rows[q], begin, d, row[begin + q] * inverses[r], row);
        }
        for (std::size_t i = begin + 4; i < d; i += 2) {
            double left[4], right[4];
            for (std::size_t r = 0; r < 4; ++r) {
                left[r] = rows[r][i] * inverses[r];
                right[r] = rows[r][i + 1] * inverses[r];
            }
            add_four_to_two(matrix + i * d, matrix + (i + 1) * d, group_of(i, first), d, left,
                            right, rows);
        }
    }
    return true;
}

// Four numbers of a line, solved with U' D^-1 by their block of the factors. `out` gets them over
// the pivots, with the other sign.
OBAX_INLINE void solve_four_forwards(const double* const* rows, std::size_t j, double* line,
                                     double* out) {
    for (std::size_t r = 0; r < 4; ++r) {
        double value = line[j + r];
        for (std::size_t q = 0; q < r; ++q) value = value + out[q] * rows[q][j + r];
        line[j + r] = value;
        out[r] = -value * rows[r][j + r];
    }
}

// The same four numbers of two lines, solved with U after those behind them.
OBAX_INLINE void solve_four_of_two_backwards(const double* const* rows, std::size_t j,
                                             std::size_t d, double* one, double* two) {
    Four sums[4], others[4];
    for (std::size_t r = 0; r < 4; ++r) sums[r] = others[r] = fill<Four>(0.0);
    for (std::size_t i = j + 4; i < d; i += 4) {
        const Four x = load<Four>(one + i), y = load<Four>(two + i);
        for (std::size_t r = 0; r < 4; ++r) {
            const Four row = load<Four>(rows[r] + i);
            sums[r] = sums[r] + row * x;
            others[r] = others[r] + row * y;
        }
    }
    for (std::size_t r = 4; r-- > 0;) {
        double value = one[j + r] - sum_of(sums[r]), other = two[j + r] - sum_of(others[r]);
        for (std::size_t q = 3; q > r; --q) {
            value = value - rows[r][j + q] * one[j + q];
            other = other - rows[r][j + q] * two[j + q];
        }
        one[j + r] = value * rows[r][j + r];
        two[j + r] = other * rows[r][j + r];
    }
}

// Four numbers of a line, solved with U after those behind them.
OBAX_INLINE void solve_four_backwards(const double* const* rows, std::size_t j, std::size_t d,
                                      double* line) {
    Four a = fill<Four>(0.0), b = a, c = a, e = a;
    const double *r0 = rows[0], *r1 = rows[1], *r2 = rows[2], *r3 = rows[3];
    for (std::size_t i = j + 4; i < d; i += 4) {
        const Four x = load<Four>(line + i);
        a = a + load<Four>(r0 + i) * x;
        b = b + load<Four>(r1 + i) * x;
        c = c + load<Four>(r2 + i) * x;
        e = e + load<Four>(r3 + i) * x;
    }
    const double behind[4] = {sum_of(a), sum_of(b), sum_of(c), sum_of(e)};
    for (std::size_t r = 4; r-- > 0;) {
        double value = line[j + r] - behind[r];
        for (std::size_t q = 3; q > r; --q) value = value - rows[r][j + q] * line[j + q];
        line[j + r] = value * rows[r][j + r];
    }
}

// Solve U' D^-1 U x = line in place of the lines, four rows of the factors at a time.
OBAX_CLONES void substitute(const double* factors, std::size_t d, double* lines,
                            std::size_t count) {
    const std::size_t first = ahead_of_groups(d);
    double left[4], right[4];
    for (std::size_t c = 0; c < count; ++c) {
        double* line = lines + c * d;
        for (std::size_t j = 0; j < first; ++j) {
            add_to(line, j + 1, d, -line[j] * factors[j * d + j], factors + j * d);
        }
    }
    for (std::size_t j = first; j < d; j += 4) {
        const double* rows[4] = {factors + j * d, factors + (j + 1) * d, factors + (j + 2) * d,
                                 factors + (j + 3) * d};
        std::size_t c = 0;
        for (; c + 2 <= count; c += 2) {
            double *one = lines + c * d, *two = one + d;
            solve_four_forwards(rows, j, one, left);
            solve_four_forwards(rows, j, two, right);
            add_four_to_two(one, two, j + 4, d, left, right, rows);
        }
        if (c < count) {
            solve_four_forwards(rows, j, lines + c * d, left);
            add_four(lines + c * d, j + 4, d, left, rows);
        }
    }
    for (std::size_t j = d; j > first; j -= 4) {
        const std::size_t at = j - 4;
        const double* rows[4] = {factors + at * d, factors + (at + 1) * d, factors + (at + 2) * d,
                                 factors + (at + 3) * d};
        std::size_t c = 0;
        for (; c + 2 <= count; c += 2)
            solve_four_of_two_backwards(rows, at, d, lines + c * d, lines + (c + 1) * d);
        if (c < count) solve_four_backwards(rows, at, d, lines + c * d);
    }
    for (std::size_t c = 0; c < count; ++c) {
        double* line = lines + c * d;
        for (std::size_t j = first; j-- > 0;) {
            const double* row = factors + j * d;
            double value = line[j];
            for (std::size_t i = j + 1; i < first; ++i) value = value - row[i] * line[i];
            Four total = fill<Four>(0.0);
            for (std::size_t i = first; i < d; i += 4)
                total = total + load<Four>(row + i) * load<Four>(line + i);
            line[j] = (value - sum_of(total)) * row[j];
        }
    }
}

// Four columns from j on of the products of two lines with a symmetric matrix.
OBAX_INLINE void multiply_four(const double* matrix, std::size_t d, std::size_t j,
                               const double* one, const double* two, double* first,
                               double* second) {
    Four a = fill<Four>(0.0), b = a;
    for (std::size_t i = 0; i < d; ++i) {
        const Four column = load<Four>(matrix + i * d + j);
        a = a + fill<Four>(one[i]) * column;
        b = b + fill<Four>(two[i]) * column;
    }
    store<Four>(first + j, a);
    store<Four>(second + j, b);
}

// The same for eight columns.
OBAX_INLINE void multiply_eight(const double* matrix, std::size_t d, std::size_t j,
                                const double* one, const double* two, double* first,
                                double* second) {
    Four a = fill<Four>(0.0), b = a, c = a, e = a;
    for (std::size_t i = 0; i < d; ++i) {
        const Four left = load<Four>(matrix + i * d + j), right = load<Four>(matrix + i * d + j + 4);
        const Four x = fill<Four>(one[i]), y = fill<Four>(two[i]);
        a = a + x * left;
        b = b + y * left;
        c = c + x * right;
        e = e + y * right;
    }
    store<Four>(first + j, a);
    store<Four>(second + j, b);
    store<Four>(first + j + 4, c);
    store<Four>(second + j + 4, e);
}

// Four times `Count` columns from j on of the product of one line.
template <int Count>
OBAX_INLINE void multiply_one(const double* matrix, std::size_t d, std::size_t j,
                              const double* line, double* out) {
    Four totals[Count];
    for (int c = 0; c < Count; ++c) totals[c] = fill<Four>(0.0);
    for (std::size_t i = 0; i < d; ++i) {
        const Four by = fill<Four>(line[i]);
        for (int c = 0; c < Count; ++c)
            totals[c] = totals[c] + by * load<Four>(matrix + i * d + j + 4 * c);
    }
    for (int c = 0; c < Count; ++c) store<Four>(out + j + 4 * c, totals[c]);
}

// Each column has a sum of its own: where four does not divide their number, the last ones are
// computed again with some before them.
OBAX_CLONES void multiply_lines(const double* matrix, std::size_t d, const double* lines,
                                std::size_t count, double* out) {
    std::size_t c = 0;
    for (; c + 2 <= count && d >= 4; c += 2) {
        const double *one = lines + c * d, *two = one + d;
        double *first = out + c * d, *second = first + d;
        std::size_t j = 0;
        for (; j + 8 <= d; j += 8) multiply_eight(matrix, d, j, one, two, first, second);
        for (; j < d; j += 4)
            multiply_four(matrix, d, std::min(j, d - 4), one, two, first, second);
    }
    for (; c < count; ++c) {
        const double* line = lines + c * d;
        double* target = out + c * d;
        std::size_t j = 0;
        for (; j + 16 <= d; j += 16) multiply_one<4>(matrix, d, j, line, target);
        for (; j + 8 <= d; j += 8) multiply_one<2>(matrix, d, j, line, target);
        for (; j < d && d >= 4; j += 4) multiply_one<1>(matrix, d, std::min(j, d - 4), line, target);
        for (; j < d; ++j) {
            double total = 0.0;
            for (std::size_t i = 0; i < d; ++i) total = total + line[i] * matrix[i * d + j];
            target[j] = total;
        }
    }
}

}  // namespace

OBAX_CLONES void scale_upper(const Matrix& matrix, double factor, Matrix& out) {
    const std::size_t d = matrix.rows(), first = ahead_of_groups(d);
    for (std::size_t i = 0; i < d; ++i) {
        const double* from = matrix.data() + i * d;
        double* to = out.data() + i * d;
        const Factor by(factor);
        for_groups(group_of(i, first), d, [=](auto type, std::size_t j) OBAX_INLINED {
            using T = typename decltype(type)::type;
            store<T>(to + j, by.template as<T>() * load<T>(from + j));
        });
    }
}

bool factorise(Matrix& matrix) {
    const std::size_t d = matrix.rows();
    return d <= LARGEST_INVERSE ? invert(matrix.data(), d) : decompose(matrix.data(), d);
}

void solve(const Matrix& factors, const double* lines, std::size_t count, double* out) {
    const std::size_t d = factors.rows();
    if (d <= LARGEST_INVERSE) {
        multiply(factors, lines, count, out);
        return;
    }
    std::copy(lines, lines + count * d, out);
    substitute(factors.data(), d, out, count);
}

void multiply(const Matrix& matrix, const double* lines, std::size_t count, double* out) {
    multiply_lines(matrix.data(), matrix.rows(), lines, count, out);
}

}  // namespace obax
