"""What this room hands back: a comparator with its evidence, and the curve of a regret."""

import dataclasses
import warnings
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._support import drawing, showing, trees
from .._support.counting import counted
from .._support.trees import PyTree
from ..reduced import curvature_noise


class ComparatorWarning(UserWarning):
    """A comparator is less accurate than asked for, or not a minimum; regrets against it are
    wrong by as much."""


class Comparator(eqx.Module):
    r"""Pairs $(x, y^*(x))$, and how exact they are.

    - `outer_var`, `inner_var`: stacked on axis 0, one for each round or stage; the `outer_var` of a
      static comparator is a single x. `inner_var` is `None` without a follower.
    - `residual`: $L |x - \Pi_X(x - \nabla \phi(x) / L)|$, and `inner_residual`: $|\nabla_y g|$,
      each relative to the scale of the loss: the size of the terms that cancel in the gradient or
      $\sqrt{L |\phi|}$. They do not change when a loss is multiplied by a number, and a residual r
      still costs about $r^2 |\phi|$. `residual` is `None` where x was given.
    - `curvature`: the least eigenvalue of $\nabla^2 \phi$ in the directions that the constraints
      leave free, relative to the largest: negative at a saddle or a maximum, 1 in a corner.
    - `beaten`: where a decision that was played is better than the comparator: `None` as long as
      there is no such round.
    - `tolerance`: what was asked for of the residuals; `reached`: the worst of them; `converged`:
      whether nothing speaks against the comparator.
    - `closed_form`: whether x came from the problem's own formula; `inner_closed_form`: y.
    - `kind`: `"given"`, `"rounds"`, `"static"` or `"stages"`; `stage`: the stage of each round.
    """

    outer_var: PyTree
    inner_var: PyTree
    residual: Float[Array, " n"] | None
    inner_residual: Float[Array, " n"]
    curvature: Float[Array, " n"] | None
    stage: Int[Array, " T"] | None
    beaten: Bool[Array, " T"] | None
    kind: str = eqx.field(static=True)
    tolerance: float = eqx.field(static=True)
    closed_form: bool = eqx.field(static=True)
    inner_closed_form: bool = eqx.field(static=True)

    @property
    def reached(self) -> Float[Array, ""]:
        """The worst residual, of leader and follower."""
        parts = [r for r in (self.residual, self.inner_residual) if r is not None]
        return jnp.max(jnp.concatenate([jnp.ravel(part) for part in parts]))

    @property
    def converged(self) -> bool:
        """Whether every residual is within the tolerance, every x has the curvature of a minimum,
        and no decision that was played is better."""
        exact = bool(self.reached <= self.tolerance)
        return exact and not bool(jnp.any(self.not_minimal)) and self.beaten is None

    @property
    def not_minimal(self) -> Bool[Array, " n"]:
        """Where the curvature is negative beyond rounding, or not a number."""
        if self.curvature is None:
            return jnp.zeros(1, bool)
        return ~(self.curvature >= -curvature_noise(self.curvature.dtype))

    @property
    def horizon(self) -> int:
        """How many rounds it belongs to."""
        return self.inner_residual.size if self.stage is None else self.stage.size

    def of_rounds(self, horizon: int) -> tuple[PyTree, PyTree]:
        """x and y, both stacked with one entry for each round."""
        x, y = self.outer_var, self.inner_var
        if self.kind == "static":
            x = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (horizon, *leaf.shape)), x)
        elif self.kind == "stages":
            x, y = jax.tree.map(lambda leaf: leaf[self.stage], (x, y))
        return x, y


KINDS = {
    "rounds": "dynamic regret",
    "static": "static regret",
    "stages": "stage regret",
    None: "local regret",
}


class RegretCurve(eqx.Module):
    """A regret, round by round. It goes wherever an array goes: `np.asarray(curve)`,
    `plt.plot(curve)` and `curve[-1]` see the cumulative curve.

    - `terms`: what each round adds; `cumulative`: their running sum; `total`: its last value.
    - `comparators`: what the decisions were compared with (`None` for the local regret).
    - `decisions`: (x_t, y*_t(x_t)) and how exact y*_t(x_t) is (`None` for losses as suffered).
    - `name`: what a legend calls it, by default what it is; `curve.named("OAGD")` gives it one.

    `curve.plot()` draws it, `(curve + other).plot()` draws both.
    """

    terms: Float[Array, " T"]
    cumulative: Float[Array, " T"]
    comparators: Comparator | None
    decisions: Comparator | None
    name: str = eqx.field(static=True, default="")

    @property
    def total(self) -> Float[Array, ""]:
        """The regret at the end."""
        return self.cumulative[-1]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.cumulative, dtype=dtype)

    def __len__(self) -> int:
        return len(self.cumulative)

    def __getitem__(self, index: Any) -> Array:
        return self.cumulative[index]

    @property
    def label(self) -> str:
        """Its name, or what kind of regret it is."""
        kind = None if self.comparators is None else self.comparators.kind
        return self.name or KINDS.get(kind, "regret")

    def named(self, name: str) -> "RegretCurve":
        """The same curve under another name."""
        return dataclasses.replace(self, name=name)

    def __add__(self, other: "RegretCurve | RegretCurves") -> "RegretCurves":
        return RegretCurves((self,)) + other

    def plot(self, file: str | Path | None = None) -> Any:
        """A matplotlib figure of the regret so far and of its mean over rounds, which falls where
        the regret is sublinear; saved to `file` where one is named."""
        return RegretCurves((self,)).plot(file)

    def __repr__(self) -> str:
        if self.cumulative.ndim != 1 or not trees.is_concrete(self.cumulative):
            return f"RegretCurve({showing.shown(self.cumulative)})"
        words = f"{counted(len(self), 'round')}, total={showing.short(self.total)}"
        if self.comparators is not None and self.comparators.inner_residual.ndim == 1:
            words += f", comparators reached {showing.short(self.comparators.reached)}"
        return f"RegretCurve({self.label!r}, {words})"

    def _repr_html_(self) -> str:
        return showing.table(self.label, [("regret", repr(self))])


@dataclasses.dataclass(frozen=True)
class RegretCurves:
    """Several regrets to be drawn in one figure: `(one + other).plot()`."""

    curves: tuple[RegretCurve, ...]

    def __add__(self, other: "RegretCurve | RegretCurves") -> "RegretCurves":
        if isinstance(other, RegretCurve):
            return RegretCurves((*self.curves, other))
        if isinstance(other, RegretCurves):
            return RegretCurves((*self.curves, *other.curves))
        return NotImplemented

    def plot(self, file: str | Path | None = None) -> Any:
        """A matplotlib figure: the regrets so far, and their means over rounds."""
        total: dict[str, list[np.ndarray]] = {}
        for number, curve in enumerate(self.curves, 1):
            name = curve.label if curve.label not in total else f"{curve.label} ({number})"
            total[name] = [np.asarray(curve, np.float64)]
        mean = {
            name: [line / np.arange(1, len(line) + 1) for line in lines]
            for name, lines in total.items()
        }
        what = next(iter(total)) if len(total) == 1 else "regret"
        panels = [
            drawing.Panel(f"{what} so far", total),
            drawing.Panel(f"{what}, mean over rounds", mean),
        ]
        return drawing.figure(panels, "round", file)


def warn_if_missed(found: Comparator) -> None:
    """Say how far a comparator is off, and what to do about it."""
    if not trees.is_concrete((found.residual, found.inner_residual, found.curvature)):
        return
    for who, formula, residual, closed in (
        ("leader", "outer_argmin", found.residual, found.closed_form),
        ("follower", "inner_argmin", found.inner_residual, found.inner_closed_form),
    ):
        if residual is None:
            continue
        reached = np.atleast_1d(np.asarray(residual))
        missed = ~(reached <= found.tolerance)
        if not np.any(missed):
            continue
        worst = int(np.argmax(np.where(np.isnan(reached), np.inf, reached)))
        if closed:
            advice = (
                f"Problem.{formula} does not minimise the loss there: correct it, or leave it out "
                "to solve numerically, or pass solver=Solver(tolerance=...) if rounding explains it"
            )
        else:
            advice = (
                "Pass solver=Solver(max_steps=...) for more steps, Solver(tolerance=...) if this "
                "is near enough, or outer_start and inner_start nearer to the solution; check that "
                "the loss is convex, bounded below and, for 1e-10, in float64"
            )
        _warn(
            f"The {who}'s optimum was not reached: residual {reached[worst]:.3g} in "
            f"{_place(found, residual, worst)}, tolerance {found.tolerance:.3g} "
            f"({int(missed.sum())} of {reached.size} missed). {advice}."
        )
    bad = np.atleast_1d(np.asarray(found.not_minimal))
    if found.curvature is not None and np.any(bad):
        curvature = np.atleast_1d(np.asarray(found.curvature))
        worst = int(np.argmin(np.where(np.isnan(curvature), -np.inf, curvature)))
        advice = "Pass starts= nearer to the minimum, or Solver(starts=...) to look at more points"
        if found.closed_form:
            advice = "Problem.outer_argmin does not minimise the loss there: correct it"
        _warn(
            f"The leader's point is not a minimum: in {_place(found, found.curvature, worst)} the "
            f"loss has curvature {curvature[worst]:.3g} of its largest along a free direction "
            f"({int(bad.sum())} of {bad.size} points are a saddle or a maximum). {advice}."
        )


def _place(found: Comparator, values: Array, index: int) -> str:
    unit = "stage" if found.kind == "stages" else "round"
    return "the whole horizon" if np.ndim(values) == 0 else f"{unit} {index + 1}"


def _warn(message: str) -> None:
    warnings.warn(message, ComparatorWarning, stacklevel=5)
