"""What the families draw from: drifts, random matrices, the minimiser of a quadratic on a ball."""

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Generator = np.random.Generator


def walk(generator: Generator, horizon: int, size: int, length: float) -> Numbers:
    """A random walk: path lengths of order T."""
    return np.cumsum(length * generator.normal(size=(horizon, size)), axis=0)


def scatter(generator: Generator, horizon: int, size: int, length: float) -> Numbers:
    """Independent points. Under drift OAGD beats every fixed x and a static regret is negative."""
    return length * generator.normal(size=(horizon, size))


def settle(generator: Generator, horizon: int, size: int, length: float) -> Numbers:
    """A walk whose step in round t is of length about 1/t: path lengths of order log T."""
    steps = length * generator.normal(size=(horizon, size)) / np.arange(1, horizon + 1)[:, None]
    return np.asarray(np.cumsum(steps, axis=0))


def jump(generator: Generator, horizon: int, size: int, length: float) -> Numbers:
    """Eight points, each held for an eighth of the rounds."""
    stages = np.minimum(np.arange(horizon) * 8 // horizon, 7)
    return np.asarray(length * generator.normal(size=(8, size))[stages])


def signs(horizon: int) -> Numbers:
    """+1, -1, +1, ... as a column."""
    return np.asarray((-1.0) ** np.arange(horizon), np.float64)[:, None]


def spectral(matrices: Numbers) -> Numbers:
    """The largest singular value of each matrix."""
    return np.asarray(np.linalg.norm(matrices, 2, axis=(-2, -1)))


def unit(generator: Generator, size: int) -> Numbers:
    """A direction."""
    vector = generator.normal(size=size)
    return np.asarray(vector / np.linalg.norm(vector))


def curvature(generator: Generator, size: int, most: float) -> Numbers:
    """A symmetric matrix with eigenvalues from 1 to `most`."""
    basis = np.linalg.qr(generator.normal(size=(size, size)))[0]
    return np.asarray(basis @ np.diag(np.linspace(1.0, most, size)) @ basis.T)


def turning(generator: Generator, horizon: int, shape: tuple[int, int]) -> Numbers:
    """Matrices that turn from one random matrix towards another and back, a little each round."""
    start, end = generator.normal(size=(2, *shape)) / np.sqrt(shape[1])
    angle = np.cumsum(0.05 * generator.normal(size=horizon))[:, None, None]
    return np.asarray(np.cos(angle) * start + np.sin(angle) * end)


def ball_minimiser(hessians: Numbers, slopes: Numbers, radius: float) -> Numbers:
    """argmin of x'Sx/2 - slope'x on a ball: (S + m I) x = slope with m >= 0 found by bisection."""
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
