"""Linear algebra of a row: inverses, conjugate gradients and what both are used through.

Inner loops run along rows of a matrix, so that they vectorise without reordering any sum.
"""

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
def multiply(
    one: np.ndarray, share: float, two: np.ndarray, b: np.ndarray, out: np.ndarray
) -> None:
    """out = (one + share two) b, for symmetric matrices."""
    for i in range(b.shape[0]):
        out[i] = 0.0
    for i in range(b.shape[0]):
        scale = b[i]
        for j in range(b.shape[0]):
            out[j] += scale * (one[i, j] + share * two[i, j])


@njit
def invert(matrix: np.ndarray, line: np.ndarray) -> bool:
    """The inverse of a symmetric matrix in its place, by sweeps over the upper triangle; False
    where the matrix is not definite. `line` is room.

    Small systems are solved so often that one inverse and products with it cost less than factors,
    whose substitutions wait for one number after the other.
    """
    d = np.uint64(matrix.shape[0])
    for k in range(d):
        if not matrix[k, k] > 0.0:
            return False
        inverse = 1.0 / matrix[k, k]
        for j in range(k):
            line[j] = matrix[j, k]
            matrix[j, k] = 0.0
        for j in range(k, d):
            line[j] = matrix[k, j]
            matrix[k, j] = 0.0
        line[k] = -1.0
        for i in range(d):
            scale = line[i] * inverse
            for j in range(i, d):
                matrix[i, j] -= scale * line[j]
    for i in range(d):
        for j in range(i, d):
            matrix[i, j] = matrix[j, i] = -matrix[i, j]
    return True


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
def solve(matrix: np.ndarray, lines: np.ndarray, out: np.ndarray, steps: int) -> None:
    """L^-1 of each line: `matrix` is L^-1 itself or, with `steps`, L, for conjugate gradients."""
    if steps == 0:
        multiply_lines(matrix, lines, out)
        return
    for c in range(lines.shape[0]):
        for i in range(lines.shape[1]):
            out[c, i] = lines[c, i]
    conjugate_gradients(matrix, out, steps)
