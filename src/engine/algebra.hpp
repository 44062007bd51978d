// Linear algebra of small symmetric systems.
//
// Every sum has a fixed order, written down here in groups of four numbers, and products are never
// contracted with sums: builds with and without AVX2 give the same bits.
#pragma once

#include "matrix.hpp"

// Hot functions are compiled twice, and the version for the processor at hand is chosen when
// the library is loaded.
#if defined(__GNUC__) && defined(__x86_64__) && defined(__linux__) && !defined(OBAX_NO_CLONES)
#define OBAX_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define OBAX_CLONES
#endif

namespace obax {

// Systems of at most this size keep an inverse, larger ones triangular factors: products with an
// inverse do not wait for one number after the other as substitutions do.
inline constexpr std::size_t LARGEST_INVERSE = 20;

// a . b
double dot(View a, View b);

// out = factor * source
void scale(View source, double factor, Span out);

// out += factor * source
void add_scaled(Span out, double factor, View source);

// line = fade * (line - factor * source)
void fade_and_subtract(Span line, double fade, double factor, View source);

// out = base + factor * source
void add_scaled_to(View base, double factor, View source, Span out);

// The sum of base + factor * source, which is finite if every term is.
double sum_of_scaled(View base, double factor, View source);

// out = a * b + c, entry by entry
void multiply_add(View a, View b, View c, Span out);

// out = ridge * s + diagonal * (y - u) - tilted, entry by entry; an empty y counts as zero
void shrinkage_slope(View ridge, View s, View diagonal, View y, View u, View tilted, Span out);

// out = fading * (old - out + factor * direction); returns the sum of what is in the brackets
double sensitivity_step(View old, double factor, View direction, double fading, Span out);

// matrix = fade * matrix + factor * a a' + other
void fade_and_add_outer_and_matrix(Matrix& matrix, double fade, double factor, View a,
                                   const Matrix& other);

// matrix += factor * (a b' + b a')
void add_symmetric_outer(Matrix& matrix, double factor, View a, View b);

// matrix = fade * matrix + factor * a a'
void fade_and_add_outer(Matrix& matrix, double fade, double factor, View a);

// out = factor * matrix, as much of a symmetric matrix as `factorise` reads
void scale_upper(const Matrix& matrix, double factor, Matrix& out);

// Replace a symmetric matrix by what `solve` needs; false if it is not positive definite. Only what
// is on and above the diagonal is read.
bool factorise(Matrix& matrix);

// Write L^-1 line into `out` for each of `count` lines, which follow one another in memory.
void solve(const Matrix& factors, const double* lines, std::size_t count, double* out);

// Write matrix line into `out` for each of `count` lines and a symmetric matrix.
void multiply(const Matrix& matrix, const double* lines, std::size_t count, double* out);

}  // namespace obax
