"""What the families draw from: drifts, random matrices, the minimiser of a quadratic on a ball."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


class Draws(NamedTuple):
    """Random draws of a family: a generator of its own, and the number of rounds."""

    generator: np.random.Generator
    horizon: int

    def walk(self, size: int, length: float) -> Numbers:
        """Return a random walk: path lengths of order T."""
        return np.cumsum(self.scatter(size, length), axis=0)

    def scatter(self, size: int, length: float) -> Numbers:
        """Return independent points. Under such drift OAGD beats any fixed x, and static regret
        is negative."""
        return length * self.generator.normal(size=(self.horizon, size))

    def settle(self, size: int, length: float) -> Numbers:
        """Return a walk whose step in round t is of length about 1/t: path lengths of order log
        T."""
        rounds = np.arange(1, self.horizon + 1)[:, None]
        return np.asarray(np.cumsum(self.scatter(size, length) / rounds, axis=0))

    def jump(self, size: int, length: float) -> Numbers:
        """Return eight points, each for an eighth of the rounds."""
        stages = np.minimum(np.arange(self.horizon) * 8 // self.horizon, 7)
        return np.asarray(length * self.generator.normal(size=(8, size))[stages])

    def signs(self) -> Numbers:
        """Return +1, -1, +1, ... as a column."""
        return np.asarray((-1.0) ** np.arange(self.horizon), np.float64)[:, None]

    def unit(self, size: int) -> Numbers:
        """Return a random direction."""
        vector = self.generator.normal(size=size)
        return np.asarray(vector / np.linalg.norm(vector))

    def curvature(self, size: int, most: float) -> Numbers:
        """Return a symmetric matrix with eigenvalues from 1 to `most`."""
        basis = np.linalg.qr(self.generator.normal(size=(size, size)))[0]
        return np.asarray(basis @ np.diag(np.linspace(1.0, most, size)) @ basis.T)

    def turning(self, shape: tuple[int, int]) -> Numbers:
        """Return matrices that turn from one random matrix to another and back, a little each
        round."""
        start, end = self.generator.normal(size=(2, *shape)) / np.sqrt(shape[1])
        angle = np.cumsum(0.05 * self.generator.normal(size=self.horizon))[:, None, None]
        return np.asarray(np.cos(angle) * start + np.sin(angle) * end)


def spectral(matrices: Numbers) -> Numbers:
    """Return the largest singular value of each matrix."""
    return np.asarray(np.linalg.norm(matrices, 2, axis=(-2, -1)))


def ball_minimiser(hessians: Numbers, slopes: Numbers, radius: float) -> Numbers:
    """Return argmin of x'Sx/2 - slope'x on a ball: (S + m I) x = slope with m >= 0 found by
    bisection."""
    values, vectors = np.linalg.eigh(hessians)
    rotated = np.einsum("tij,ti->tj", vectors, slopes)
    low, high = np.zeros(len(slopes)), np.linalg.norm(slopes, axis=1) / radius
    inside = np.linalg.norm(rotated / values, axis=1) <= radius
    for _ in range(100):
        middle = 0.5 * (low + high)
        outside = np.linalg.norm(rotated / (values + middle[:, None]), axis=1) > radius
        low, high = np.where(outside, middle, low), np.where(outside, high, middle)
    shift = np.where(inside, 0.0, high)[:, None]
    return np.asarray(np.einsum("tij,tj->ti", vectors, rotated / (values + shift)))
