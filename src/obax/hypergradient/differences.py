"""Derivatives of a function from its values alone, each with an estimate of its error.

A direction is probed at six points, on both sides of x where the set X allows it and on one side
where it does not. Formulas of order 2, 4 and 6 are compared: how far they disagree is the error of
truncation. Fourth differences along a short line give the noise of the values. Steps of several
sizes are tried until the error is small, because no single size suits every function.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import ArrayLike

Values = Callable[[np.ndarray], ArrayLike]
Project = Callable[[Any], Any] | None

TWO_SIDED = np.array([1, -1, 1 / 2, -1 / 2, 1 / 4, -1 / 4])
ONE_SIDED = np.array([1, 1 / 2, 1 / 4, 3 / 4, 1 / 8, 3 / 8])
LINE = np.arange(1, 10) / 64
# Sizes of steps, relative to max(1, |x_i|) and to |x_i|; no round numbers, which a periodic
# function might have as a period.
SIZES = ((9.7e-3, None), (None, 9.3e-2), (1.03e-4, None), (None, 1.07e-3), (0.97e-6, None),
         (0.093, None), (1.1e-8, None), (None, 0.97e-5), (9.4, None), (930.0, None))  # fmt: skip
SETTLED = 1e-4
"""The error, relative to the derivative, at which no further size of steps is tried."""


class Derivatives(NamedTuple):
    """Derivatives along some moves, in units of the moves."""

    moves: np.ndarray
    value: np.ndarray
    error: np.ndarray
    size: np.ndarray
    """The largest change of the function, divided by the share of the move that made it."""
    kink: np.ndarray
    """Whether the derivatives to the two sides differ."""
    sides: np.ndarray

    @property
    def relative_error(self) -> np.ndarray:
        """Return the error relative to the derivative, or where that vanishes to its changes."""
        scale = np.maximum(np.abs(self.value), 1e-2 * self.size)
        with np.errstate(all="ignore"):
            relative = np.where(self.error <= 0, 0.0, self.error / scale)
        return np.where(np.isnan(relative), np.inf, relative)

    def better(self, other: "Derivatives") -> "Derivatives":
        """Return for each move whichever is known better. A function that does not change at all
        over steps of one size, and does over others, is known better from those."""
        a, b = (one.relative_error + 10.0 * one.kink for one in (self, other))
        a, b = (np.where(~(one.size > 0), np.inf, r) for one, r in ((self, a), (other, b)))
        take = b < a
        pick = lambda x, y: np.where(take.reshape(-1, *[1] * (x.ndim - 1)), y, x)  # noqa: E731
        return Derivatives(*(pick(mine, its) for mine, its in zip(self, other, strict=True)))


def derivatives(
    values: Values, x: np.ndarray, directions: np.ndarray, project: Project, rounding: float
) -> Derivatives:
    """Return the derivatives of a function at x along directions.

    `values` takes stacked points, the first of which is x. `project` is onto X; `rounding` is the
    machine epsilon in which the function is computed.
    """
    best = None
    for tried, scale in enumerate(_scales(x)):
        moves, both = _inside(project, x, directions * scale)
        shares = np.where(both[:, None], TWO_SIDED, ONE_SIDED)
        probes = x + shares[:, :, None] * moves[:, None, :]
        weights = np.random.default_rng(0).uniform(0.5, 1.5, len(moves))
        line = x + LINE[:, None] * (weights / weights.sum() @ moves)
        computed = np.asarray(values(np.concatenate([x[None], probes.reshape(-1, x.size), line])))
        ahead, along = np.split(computed[1:], [shares.size])
        noise = _noise(np.append(computed[0], along), rounding)
        new = _differentiated(ahead.reshape(shares.shape) - computed[0], moves, both, noise)
        best = new if best is None else best.better(new)
        settled = (best.relative_error <= SETTLED) & ~best.kink
        if np.all(settled | ((best.size == 0) & (tried > 1))):
            break
    assert best is not None
    return best


def _scales(x: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the sizes of steps of each entry of x."""
    magnitude = np.abs(x)
    for absolute, relative in SIZES:
        if absolute is not None:
            yield absolute * np.maximum(1, magnitude)
        elif np.any((magnitude > 0) & (magnitude < 0.1)):
            yield relative * np.where(magnitude > 0, magnitude, 1)


def _inside(project: Project, x: np.ndarray, moves: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return moves that end in X, which is convex, and which of them can be made both ways."""
    if project is None:
        return moves, np.ones(len(moves), bool)
    onto = jax.vmap(project)
    length = lambda rows: np.linalg.norm(rows, axis=1, keepdims=True)  # noqa: E731
    ahead, behind = (np.asarray(onto(x + sign * moves)) - x for sign in (1, -1))
    chosen = np.where(length(behind) > 1.01 * length(ahead), behind, ahead)
    whole = length(ahead - moves) <= 1e-9 * length(moves)
    chosen = np.where(whole, moves, chosen)
    back = x - chosen
    outside = length(np.asarray(onto(back)) - back)
    return chosen, (outside <= 1e-9 * length(chosen))[:, 0]


def _noise(values: np.ndarray, rounding: float) -> float:
    """Return the noise of values at evenly spaced points, from their fourth differences; at least
    the rounding of the first of them."""
    fourth = np.diff(values, 4)
    return max(float(np.sqrt(np.mean(fourth**2) / 70)), 0.5 * rounding * abs(float(values[0])))


def _differentiated(
    changes: np.ndarray, moves: np.ndarray, both: np.ndarray, noise: float
) -> Derivatives:
    """Return the derivatives from the changes of the function at the probes."""

    def by_formula(shares: np.ndarray, columns: list[int]) -> tuple[np.ndarray, float]:
        # Changes are c d + c^2 d_2 + ... at the share c of a move: the weights leave d alone.
        powers = shares[columns][None, :] ** np.arange(1, len(columns) + 1)[:, None]
        weights = np.linalg.solve(powers, np.eye(len(columns))[0])
        spread = 4 * noise * np.sqrt(np.sum(weights**2) + np.sum(weights) ** 2)
        return changes[:, columns] @ weights, float(spread)

    def best_formula(shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        low, middle, high = (by_formula(shares, list(range(n))) for n in (2, 4, 6))
        fine = high[0], 2 * np.abs(high[0] - middle[0]) + high[1]
        rough = middle[0], 2 * np.abs(middle[0] - low[0]) + middle[1]
        take = rough[1] < fine[1]
        return np.where(take, rough[0], fine[0]), np.where(take, rough[1], fine[1])

    (two, two_error), (one, one_error) = best_formula(TWO_SIDED), best_formula(ONE_SIDED)
    sides, unsure = [], np.zeros(len(moves))
    for columns in ([0, 2, 4], [1, 3, 5]):
        cubic, spread = by_formula(TWO_SIDED, columns)
        sides.append(cubic)
        unsure += 2 * np.abs(cubic - by_formula(TWO_SIDED, columns[1:])[0]) + spread
    right, left = sides
    gap = np.abs(right - left)
    kink = both & (gap > 4 * unsure + 1e-3 * np.maximum(np.abs(right), np.abs(left)))
    shares = np.abs(np.where(both[:, None], TWO_SIDED, ONE_SIDED))
    with np.errstate(all="ignore"):
        size = np.max(np.abs(changes) / shares, axis=1)
    error = np.where(both, two_error, one_error)
    finite = np.isfinite(changes).all(axis=1)
    return Derivatives(
        moves,
        np.where(finite, np.where(both, two, one), 0.0),
        np.where(finite & np.isfinite(noise), error, np.inf),
        np.where(finite, size, 0.0),
        kink & finite,
        np.stack([left, right], axis=1),
    )
