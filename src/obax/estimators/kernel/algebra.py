"""Linear algebra of a row: inverses, factors, and products with them.

Inner loops run along rows of a matrix, four numbers at a time (see `lanes`).
"""

import math

import numpy as np
from numba import njit

from .lanes import fill, load, more, store, times
from .views import shaped

ONE, TWO, FOUR, EIGHT = np.uint64(1), np.uint64(2), np.uint64(4), np.uint64(8)
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
def lay(source: np.ndarray, by: float, out: np.ndarray) -> None:
    """out = by source, as many numbers as there are in `out`."""
    n = np.uint64(out.size)
    flat, target, factor = shaped(source, (out.size,)), shaped(out, (out.size,)), fill(by)
    for block in range(n // FOUR):
        store(target, FOUR * block, times(factor, load(flat, FOUR * block)))
    for i in range(n // FOUR * FOUR, n):
        target[i] = by * flat[i]


@njit
def add(out: np.ndarray, more_of: np.ndarray) -> None:
    """out <- out + more_of."""
    n, one = np.uint64(out.size), fill(1.0)
    flat, target = shaped(more_of, (out.size,)), shaped(out, (out.size,))
    for block in range(n // FOUR):
        at = FOUR * block
        store(target, at, more(load(target, at), one, load(flat, at)))
    for i in range(n // FOUR * FOUR, n):
        target[i] += flat[i]


@njit
def lift(matrix: np.ndarray, fade: float, by: float, a: np.ndarray) -> None:
    """matrix <- fade matrix + by a a'."""
    d, factor = np.uint64(matrix.shape[0]), fill(fade)
    for i in range(d):
        line, one = matrix[i], by * a[i]
        step = fill(one)
        for block in range(d // FOUR):
            at = FOUR * block
            store(line, at, more(times(factor, load(line, at)), step, load(a, at)))
        for j in range(d // FOUR * FOUR, d):
            line[j] = fade * line[j] + one * a[j]


@njit
def invert(matrix: np.ndarray, one: np.ndarray, two: np.ndarray) -> bool:
    """The inverse of a symmetric matrix in its place, by sweeps, two rows at a time; False where
    the matrix is not definite. `one` and `two` are room for a line each.

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
        for j in range(d):
            # What the first of the two leaves of the second, so that nothing large cancels.
            one[j], two[j] = matrix[k, j], matrix[k + ONE, j] - ratio * matrix[k, j]
            matrix[k, j] = matrix[k + ONE, j] = matrix[j, k] = matrix[j, k + ONE] = 0.0
        one[k], one[k + ONE], two[k], two[k + ONE] = -1.0, 0.0, ratio, -1.0
        sweep(matrix, one, -1.0 / first, two, -1.0 / last)
    if d % TWO == ONE:
        k = d - ONE
        if not matrix[k, k] > 0.0:
            return False
        by = -1.0 / matrix[k, k]
        for j in range(d):
            one[j], two[j] = matrix[k, j], 0.0
            matrix[k, j] = matrix[j, k] = 0.0
        one[k] = -1.0
        sweep(matrix, one, by, two, 0.0)
    for i in range(d):
        for j in range(i, d):
            matrix[i, j] = matrix[j, i] = -matrix[i, j]
    return True


@njit
def sweep(
    matrix: np.ndarray, one: np.ndarray, by_one: float, two: np.ndarray, by_two: float
) -> None:
    """matrix <- matrix + by_one one one' + by_two two two'."""
    d = np.uint64(matrix.shape[0])
    for i in range(d):
        line, a, b = matrix[i], by_one * one[i], by_two * two[i]
        left, right = fill(a), fill(b)
        for block in range(d // FOUR):
            at = FOUR * block
            swept = more(load(line, at), left, load(one, at))
            store(line, at, more(swept, right, load(two, at)))
        for j in range(d // FOUR * FOUR, d):
            line[j] += a * one[j] + b * two[j]


@njit
def take(line: np.ndarray, begin: int, end: int, by: float, other: np.ndarray) -> None:
    """line <- line - by other, from `begin` to `end`."""
    factor, pairs = fill(-by), (end - begin) // EIGHT
    for pair in range(pairs):
        at = begin + EIGHT * pair
        left = more(load(line, at), factor, load(other, at))
        right = more(load(line, at + FOUR), factor, load(other, at + FOUR))
        store(line, at, left)
        store(line, at + FOUR, right)
    for i in range(begin + EIGHT * pairs, end):
        line[i] -= by * other[i]


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
                take(matrix[i], i, d, matrix[j, i], matrix[j])
        if end == d:
            break
        one, two = matrix[begin], matrix[begin + ONE]
        three, four = matrix[begin + ONE + ONE], matrix[end - ONE]
        for i in range(end, d):
            take_four(matrix[i], i, one, two, three, four)
    for j in range(d):
        for i in range(j + ONE, d):
            matrix[i, j] = matrix[j, i]
    return True


@njit
def take_four(
    line: np.ndarray,
    begin: int,
    one: np.ndarray,
    two: np.ndarray,
    three: np.ndarray,
    four: np.ndarray,
) -> None:
    """line <- line - (one one' + two two' + three three' + four four'), its row `begin`, from there
    on."""
    d = np.uint64(line.shape[0])
    a, b, c, e = -one[begin], -two[begin], -three[begin], -four[begin]
    first, second, third, fourth = fill(a), fill(b), fill(c), fill(e)
    pairs = (d - begin) // EIGHT
    for pair in range(pairs):
        at = begin + EIGHT * pair
        on = at + FOUR
        left = more(load(line, at), first, load(one, at))
        right = more(load(line, on), first, load(one, on))
        left = more(left, second, load(two, at))
        right = more(right, second, load(two, on))
        left = more(left, third, load(three, at))
        right = more(right, third, load(three, on))
        store(line, at, more(left, fourth, load(four, at)))
        store(line, on, more(right, fourth, load(four, on)))
    for k in range(begin + EIGHT * pairs, d):
        line[k] += a * one[k] + b * two[k] + c * three[k] + e * four[k]


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
            take(b, j + ONE, d, value, row)
    for back in range(d):
        at = d - ONE - back
        row = factors[at]
        for c in range(count):
            b = lines[c]
            value = b[at] * row[at]
            b[at] = value
            take(b, np.uint64(0), at, value, row)


@njit
def multiply_lines(matrix: np.ndarray, lines: np.ndarray, out: np.ndarray) -> None:
    """out = matrix line for each line and a symmetric matrix."""
    if matrix.shape[0] > SMALL:
        multiply_large(matrix, lines, out)
        return
    d = np.uint64(matrix.shape[0])
    flat = shaped(matrix, (matrix.size,))
    for c in range(lines.shape[0]):
        line, target = lines[c], out[c]
        for block in range(d // FOUR):
            total = fill(0.0)
            for i in range(d):
                total = more(total, fill(line[i]), load(flat, i * d + FOUR * block))
            store(target, FOUR * block, total)
        for j in range(d // FOUR * FOUR, d):
            target[j] = dot(matrix[j], line)


@njit
def multiply_large(matrix: np.ndarray, lines: np.ndarray, out: np.ndarray) -> None:
    """The same for one that does not fit into the processor's cache: it is read once for all of
    the lines, two of its rows together."""
    count, d = lines.shape[0], np.uint64(lines.shape[1])
    for c in range(count):
        lay(matrix[d - ONE], lines[c, d - ONE] if d % TWO == ONE else 0.0, out[c])
    for half in range(d // TWO):
        one, two = matrix[TWO * half], matrix[TWO * half + ONE]
        for c in range(count):
            first, second, target = lines[c, TWO * half], lines[c, TWO * half + ONE], out[c]
            left, right = fill(first), fill(second)
            for pair in range(d // EIGHT):
                at = EIGHT * pair
                on = at + FOUR
                total = more(load(target, at), left, load(one, at))
                other = more(load(target, on), left, load(one, on))
                store(target, at, more(total, right, load(two, at)))
                store(target, on, more(other, right, load(two, on)))
            for j in range(d // EIGHT * EIGHT, d):
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
