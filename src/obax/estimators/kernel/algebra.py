"""Linear algebra of a row: inverses, factors, and products with them.

Inner loops run along rows of a matrix, so that they vectorise without reordering any sum.
"""

import math

import numpy as np
from numba import njit

ONE, TWO, FOUR = np.uint64(1), np.uint64(2), np.uint64(4)
"""Indices that cannot be negative, so that no loop has to look: it is then twice as fast."""
SMALL = 32
"""Up to it an inverse is kept, beyond it factors."""


@njit
def dot(a: np.ndarray, b: np.ndarray) -> float:
    """a . b."""
    total = 0.0
    for i in range(a.shape[0]):
        total += a[i] * b[i]
    return total


@njit
def take_line(matrix: np.ndarray, k: np.uint64, line: np.ndarray) -> None:
    """Row k of a symmetric matrix of which the upper triangle counts; zeros are left in it."""
    for j in range(k):
        line[j] = matrix[j, k]
        matrix[j, k] = 0.0
    for j in range(k, np.uint64(line.shape[0])):
        line[j] = matrix[k, j]
        matrix[k, j] = 0.0


@njit
def invert(matrix: np.ndarray, one: np.ndarray, two: np.ndarray) -> bool:
    """The inverse of a symmetric matrix in its place, by sweeps over the upper triangle, two rows
    at a time; False where the matrix is not definite. `one` and `two` are room for a line each.

    Small systems are solved so often that one inverse and products with it cost less than factors,
    whose substitutions wait for one number after the other. An inverse takes three times as many
    operations, which is what counts when they are large.
    """
    d = np.uint64(matrix.shape[0])
    for pair in range(d // TWO):
        k = TWO * pair
        first, across = matrix[k, k], matrix[k, k + ONE]
        if not first > 0.0:
            return False
        ratio = across / first
        last = matrix[k + ONE, k + ONE] - ratio * across
        if not last > 0.0:
            return False
        take_line(matrix, k, one)
        take_line(matrix, k + ONE, two)
        one[k], one[k + ONE], two[k], two[k + ONE] = -1.0, 0.0, 0.0, -1.0
        # What the first of the two leaves of the second, so that nothing large cancels.
        for j in range(d):
            two[j] -= ratio * one[j]
        for i in range(d):
            by_one, by_two = one[i] / first, two[i] / last
            for j in range(i, d):
                matrix[i, j] -= by_one * one[j] + by_two * two[j]
    if d % TWO == ONE:
        k = d - ONE
        if not matrix[k, k] > 0.0:
            return False
        first = 1.0 / matrix[k, k]
        take_line(matrix, k, one)
        one[k] = -1.0
        for i in range(d):
            by_one = first * one[i]
            for j in range(i, d):
                matrix[i, j] -= by_one * one[j]
    for i in range(d):
        for j in range(i, d):
            matrix[i, j] = matrix[j, i] = -matrix[i, j]
    return True


@njit
def factorise(matrix: np.ndarray) -> bool:
    """Cholesky factors of a symmetric matrix in its place, one above the diagonal and one below,
    with the *inverse* of their diagonal on it; False where the matrix is not definite.

    Rows are taken from those below them four at a time, which are then read and written once.
    """
    d = np.uint64(matrix.shape[0])
    for block in range((d + FOUR - ONE) // FOUR):
        begin, end = FOUR * block, min(FOUR * block + FOUR, d)
        for j in range(begin, end):
            if not matrix[j, j] > 0.0:
                return False
            inverse = 1.0 / math.sqrt(matrix[j, j])
            matrix[j, j] = inverse
            for i in range(j + ONE, d):
                matrix[j, i] *= inverse
            for i in range(j + ONE, end):
                scale = matrix[j, i]
                for k in range(i, d):
                    matrix[i, k] -= scale * matrix[j, k]
        if end == d:
            break
        one, two = matrix[begin], matrix[begin + ONE]
        three, four = matrix[begin + ONE + ONE], matrix[end - ONE]
        for i in range(end, d):
            a, b, c, e, line = one[i], two[i], three[i], four[i], matrix[i]
            for k in range(i, d):
                line[k] -= a * one[k] + b * two[k] + c * three[k] + e * four[k]
    for j in range(d):
        for i in range(j + ONE, d):
            matrix[i, j] = matrix[j, i]
    return True


@njit
def substitute(factors: np.ndarray, lines: np.ndarray) -> None:
    """The solutions of the system that `factorise` has factorised, in place of the lines."""
    count, d = lines.shape[0], np.uint64(lines.shape[1])
    for j in range(d):
        row = factors[j]
        for c in range(count):
            b = lines[c]
            value = b[j] * row[j]
            b[j] = value
            for i in range(j + ONE, d):
                b[i] -= value * row[i]
    for back in range(d):
        at = d - ONE - back
        row = factors[at]
        for c in range(count):
            b = lines[c]
            value = b[at] * row[at]
            b[at] = value
            for i in range(at):
                b[i] -= value * row[i]


@njit
def multiply_lines(matrix: np.ndarray, lines: np.ndarray, out: np.ndarray) -> None:
    """out = matrix line for each line and a symmetric matrix, which, being what does not fit into
    the processor's cache, is read once for all of them; two rows go together."""
    count, d = lines.shape
    for c in range(count):
        for j in range(d):
            out[c, j] = 0.0 if d % 2 == 0 else lines[c, d - 1] * matrix[d - 1, j]
    for half in range(d // 2):
        one, two = matrix[2 * half], matrix[2 * half + 1]
        for c in range(count):
            first, second, target = lines[c, 2 * half], lines[c, 2 * half + 1], out[c]
            for j in range(d):
                target[j] += first * one[j] + second * two[j]


@njit
def solve(matrix: np.ndarray, lines: np.ndarray, out: np.ndarray) -> None:
    """L^-1 of each line: `matrix` is L^-1 itself or, if it is larger than SMALL, has factors."""
    if matrix.shape[0] <= SMALL:
        multiply_lines(matrix, lines, out)
        return
    for c in range(lines.shape[0]):
        for i in range(lines.shape[1]):
            out[c, i] = lines[c, i]
    substitute(matrix, out)
