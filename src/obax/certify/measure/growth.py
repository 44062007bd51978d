r"""How quantities grow with T: fitted exponents, and the comparability example.

A quantity q of order $T^p$ is a line of slope p over $(\log T, \log q)$. One of order $\log T$ is
not: its slope there is about $1 / \log T$, which tends to zero so slowly that no T in reach tells
it from a small power. It *is* a line over $(\log T, q)$, so for it the coefficient of that line is
reported, with the share of variance that the line explains (R squared).
"""

import dataclasses

import jax
import numpy as np
from jaxtyping import ArrayLike

from ... import regret
from ...problems import comparability
from ..families.ingredients import Numbers
from .evidence import SOLVER

EXAMPLE_HORIZON = 2**14
# Deterministic sequences at a fixed T: what is left is the lower-order term.
EXPONENT_TOLERANCE = 0.02
LEAST_R_SQUARED = 0.999


def exponent(T: ArrayLike, values: ArrayLike) -> float | None:
    """Return the slope of log(values) over log(T), or `None` where a value is not positive.

    >>> round(exponent([10, 20, 40], [3.0, 6.0, 12.0]), 6)
    1.0
    """
    points, heights = np.asarray(T, np.float64), np.asarray(values, np.float64)
    if not np.all(heights > 0.0) or len(np.unique(points)) < 2:
        return None
    return float(np.polyfit(np.log(points), np.log(heights), 1)[0])


def logarithmic(T: ArrayLike, values: Numbers) -> tuple[float, float]:
    """Return the coefficient of log T in a linear fit, and its R squared.

    >>> coefficient, r_squared = logarithmic(np.array([1, 2, 4]), 3 * np.log([1, 2, 4]) + 1)
    >>> round(coefficient, 6), round(r_squared, 6)
    (3.0, 1.0)
    """
    slope = np.polyfit(np.log(T), values, 1)[0]
    return float(slope), float(np.corrcoef(np.log(T), values)[0, 1] ** 2)


@dataclasses.dataclass(frozen=True)
class ExampleRow:
    """One path length of the example: the order that the paper claims, and the fit."""

    sequence: str
    quantity: str
    claimed: str
    total: float
    exponent: float | None = None
    coefficient: float | None = None
    r_squared: float | None = None

    @property
    def violated(self) -> bool:
        """Whether the measured growth differs from the claimed one."""
        if self.claimed == "0":
            return not self.total < 1e-12
        if self.claimed == "sqrt(T)":
            return self.exponent is None or not abs(self.exponent - 0.5) <= EXPONENT_TOLERANCE
        return self.r_squared is None or not self.r_squared >= LEAST_R_SQUARED


# Example 1. |b_t - b_{t-1}| is about 2 / sqrt(t), hence 4 sqrt(T) and 4 log T.
CLAIMS = {
    "inner": {"P": ("0", "0"), "Y": ("sqrt(T)", "log T"), "Y_bar": ("sqrt(T)", "log T")},
    "outer": {"P": ("sqrt(T)", "log T"), "Y": ("0", "0"), "Y_bar": ("sqrt(T)", "log T")},
}


def example(horizon: int = EXAMPLE_HORIZON) -> list[ExampleRow]:
    """Return path lengths of both sequences, fitted over the last six doublings of T."""
    rows = []
    at = np.unique(np.maximum(horizon // 2 ** np.arange(7), 1))
    for sequence, claims in CLAIMS.items():
        with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
            instance = comparability(horizon, sequence)
            stated = instance.problem, instance.rounds
            first = regret.path_lengths(*stated, order=1, with_H=False, solver=SOLVER)
            second = regret.path_lengths(
                *stated, order=2, with_H=False, comparators=first.comparators, static=first.static
            )
        for name, orders in claims.items():
            for order, claimed, lengths in zip((1, 2), orders, (first, second), strict=True):
                # y*_t(x) = x - b_t: Y_bar does not depend on which x is best for a horizon.
                curve = np.asarray(getattr(lengths, name))
                fit: dict[str, float | None] = {}
                if claimed == "sqrt(T)":
                    fit["exponent"] = exponent(at, curve[at - 1])
                elif claimed == "log T":
                    fit["coefficient"], fit["r_squared"] = logarithmic(at, curve[at - 1])
                total = float(curve[-1])
                rows.append(ExampleRow(sequence, f"{name}_{order}", claimed, total, **fit))
    return rows
