"""Linear algebra of a row: Cholesky factors, conjugate gradients and what both are used through.

Inner loops run along rows of a matrix, so that they vectorise without reordering any sum.
"""

import math

import numpy as np
from numba import njit

TINY = float(np.finfo(np.float64).tiny)
ONE = np.uint64(1)
"""Indices that cannot be negative, so that no loop has to look: it is then twice as fast."""
CONVERGED = 1e-30
"""A squared residual of this share of the first one is rounding."""


@njit
def dot(a: np.ndarray, b: np.ndarray) -> float:
    """a . b."""
    total = 0.0
    for i in range(a.shape[0]):
        total += a[i] * b[i]
    return total


@njit
def factorise(matrix: np.ndarray, upper: np.ndarray) -> bool:
    """Cholesky factors of a symmetric matrix, both ways round, with the *inverse* of the diagonal
    in place of the diagonal; False where the matrix is not definite.

    The upper triangle of `matrix` is read and used up; the lower one gets the other factor.
    """
    d = np.uint64(matrix.shape[0])
    for j in range(d):
        if not matrix[j, j] > 0.0:
            return False
        inverse = 1.0 / math.sqrt(matrix[j, j])
        upper[j, j] = inverse
        for i in range(j + ONE, d):
            upper[j, i] = matrix[j, i] * inverse
        for i in range(j + ONE, d):
            scale = upper[j, i]
            for k in range(i, d):
                matrix[i, k] -= scale * upper[j, k]
    for j in range(d):
        for i in range(j, d):
            matrix[i, j] = upper[j, i]
    return True


@njit
def substitute(lower: np.ndarray, upper: np.ndarray, b: np.ndarray) -> None:
    """The solution u of the system that `factorise` has factorised, in place of b."""
    d = np.uint64(b.shape[0])
    for j in range(d):
        value = b[j] * upper[j, j]
        b[j] = value
        for i in range(j + ONE, d):
            b[i] -= value * upper[j, i]
    for back in range(d):
        at = d - ONE - back
        value = b[at] * lower[at, at]
        b[at] = value
        for i in range(at):
            b[i] -= value * lower[at, i]


@njit
def conjugate_gradients(matrix: np.ndarray, lines: np.ndarray, steps: int) -> None:
    """The solutions of matrix u = line for each line, in place, all side by side.

    Preconditioned by the diagonal; `steps` steps, fewer where nothing is left to do.
    """
    count, d = lines.shape
    left, inverse = lines.copy(), np.empty(d)
    direction, product = np.empty((count, d)), np.empty((count, d))
    size, enough = np.zeros(count), np.empty(count)
    for i in range(d):
        inverse[i] = 1.0 / matrix[i, i]
    for c in range(count):
        for i in range(d):
            direction[c, i] = left[c, i] * inverse[i]
            size[c] += left[c, i] * direction[c, i]
            lines[c, i] = 0.0
        enough[c] = max(CONVERGED * size[c], TINY)
    for _ in range(steps):
        busy = False
        for c in range(count):
            busy = busy or size[c] > enough[c]
        if not busy:
            return
        multiply_lines(matrix, direction, product)
        for c in range(count):
            along = dot(direction[c], product[c])
            if not (size[c] > enough[c] and along > TINY):
                continue
            move, new = size[c] / along, 0.0
            for i in range(d):
                lines[c, i] += move * direction[c, i]
                left[c, i] -= move * product[c, i]
                new += left[c, i] * left[c, i] * inverse[i]
            keep = new / size[c]
            for i in range(d):
                direction[c, i] = left[c, i] * inverse[i] + keep * direction[c, i]
            size[c] = new


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
def solve(first: np.ndarray, second: np.ndarray, lines: np.ndarray, steps: int) -> None:
    """L^-1 of each line, in place: by factors `first` and `second`, or, with `steps`, by conjugate
    gradients on `first`."""
    if steps > 0:
        conjugate_gradients(first, lines, steps)
        return
    for c in range(lines.shape[0]):
        substitute(first, second, lines[c])
