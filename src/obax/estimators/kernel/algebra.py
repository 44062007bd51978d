"""Linear algebra of a row: inverses and products with them.

Inner loops run along rows of a matrix, so that they vectorise without reordering any sum.
"""

import numpy as np
from numba import njit

ONE = np.uint64(1)
"""Indices that cannot be negative, so that no loop has to look: it is then twice as fast."""


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
