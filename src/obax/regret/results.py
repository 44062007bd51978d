"""Results: a comparator with the evidence for it, and the curve of a regret."""

import dataclasses
import sys
import warnings
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._support import drawing, messages, trees
from .._support.messages import counted
from .._support.trees import PyTree
from ..implicit import Convexity, curvature_noise


class ComparatorWarning(UserWarning):
    """Warning of a comparator that is less accurate than asked for, or not a minimum; so are
    regrets against it."""


class SeveralMinimaWarning(ComparatorWarning):
    """Warning that descents from several starts reached different minima: a lower one may have
    been missed."""


class FollowerWarning(ComparatorWarning):
    """Warning that the follower's loss is not strongly convex, so that y* may be a local
    minimum."""


class Comparator(eqx.Module):
    r"""Pairs $(x, y^*(x))$ and the evidence for them.

    - `outer_var`, `inner_var`: stacked on axis 0, one for each round or stage; the `outer_var` of a
      static comparator is a single x. `inner_var` is `None` without a follower.
    - `residual`: $L |x - \Pi_X(x - \nabla \phi(x) / L)|$, and `inner_residual`: $|\nabla_y g|$,
      each relative to the scale of the loss: the size of the terms that cancel in the gradient or
      $\sqrt{L |\phi|}$. They do not change when a loss is multiplied by a number, and a residual r
      costs about $r^2 |\phi|$. `residual` is `None` where x was given.
    - `curvature`: the least eigenvalue of $\nabla^2 \phi$ in the directions that the constraints
      leave free, relative to the largest: negative at a saddle or a maximum, 1 in a corner.
    - `beaten`: the rounds in which a decision that was played is better than the comparator;
      `None` if there is none.
    - `tolerance`: the largest residual allowed; `reached`: the largest there is; `converged`:
      whether residuals and curvatures are those of a local minimum, and no decision is better.
    - `global_evidence`: in words, what is known of lower minima elsewhere. `descents` is the number
      of descents from other starts, `agreeing` of which reached the value at x. 0 descents: phi is
      convex on the points evaluated; -1: lower minima were not searched for. `resolved`: a grid of
      an interval saw every valley. `lower_estimate`: where descents disagree, so that the true
      minimum may be lower and the regret larger.
    - `above`: where the optimum is at a kink of phi, which an `inner_domain` makes: a bound on how
      far phi is above its minimum, which holds if phi is convex; infinite elsewhere.
    - `convexity`: tests of the strong convexity of the follower's loss, in some of the rounds.
    - `closed_form`, `inner_closed_form`: whether x and y came from the problem's own formulas.
    - `kind`: `"given"`, `"rounds"`, `"static"` or `"stages"`; `stage`: the stage of each round.
    """

    outer_var: PyTree
    inner_var: PyTree
    residual: Float[Array, " n"] | None
    inner_residual: Float[Array, " n"]
    curvature: Float[Array, " n"] | None
    stage: Int[Array, " T"] | None
    beaten: Bool[Array, " T"] | None
    descents: Int[Array, " n"] | None
    agreeing: Int[Array, " n"] | None
    resolved: Bool[Array, " n"] | None
    above: Float[Array, " n"] | None
    convexity: Convexity | None
    kind: str = eqx.field(static=True)
    tolerance: float = eqx.field(static=True)
    closed_form: bool = eqx.field(static=True)
    inner_closed_form: bool = eqx.field(static=True)

    @property
    def reached(self) -> Float[Array, ""]:
        """Largest residual, of leader and follower."""
        parts = [r for r in (self.residual, self.inner_residual) if r is not None]
        return jnp.max(jnp.concatenate([jnp.ravel(part) for part in parts]))

    @property
    def converged(self) -> bool:
        """Whether every residual is within the tolerance, every x has the curvature of a
        minimum, and no decision that was played is better."""
        exact = bool(self.reached <= self.tolerance)
        beaten = self.beaten is not None and bool(jnp.any(self.beaten))
        return exact and not bool(jnp.any(self.not_minimal)) and not beaten

    @property
    def lower_estimate(self) -> Bool[Array, " n"]:
        """Mask of the points whose descents disagree: the regret there is a lower estimate."""
        if self.descents is None or self.agreeing is None or self.resolved is None:
            return jnp.zeros(1, bool)
        return (self.agreeing < self.descents) & ~self.resolved

    @property
    def global_evidence(self) -> str:
        """What is known of lower minima elsewhere, in words, for the worst round."""
        if self.descents is None or self.agreeing is None:
            return "none"
        descents, agreeing = np.ravel(self.descents), np.ravel(self.agreeing)
        if np.any(descents < 0):
            return "none"
        if np.any(self.lower_estimate):
            shares = np.where(np.ravel(self.lower_estimate), agreeing / np.maximum(descents, 1), 2)
            worst = int(np.argmin(shares))
            return f"{agreeing[worst]} of {descents[worst]} descents agree"
        if np.all(descents == 0):
            return "convex on the points seen"
        if np.any(np.ravel(agreeing < descents)):
            return "every valley of a grid"
        return f"{np.max(descents)} of {np.max(descents)} descents agree"

    @property
    def not_minimal(self) -> Bool[Array, " n"]:
        """Mask of the points whose curvature is negative beyond rounding, or not a number."""
        if self.curvature is None:
            return jnp.zeros(1, bool)
        return ~(self.curvature >= -curvature_noise(self.curvature.dtype))

    @property
    def horizon(self) -> int:
        """Number of rounds that the comparator belongs to."""
        return self.inner_residual.size if self.stage is None else self.stage.size

    def of_rounds(self, horizon: int) -> tuple[PyTree, PyTree]:
        """Return x and y, both stacked with one entry for each round."""
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
    """A regret, round by round. It can be used as an array: `np.asarray(curve)`,
    `plt.plot(curve)` and `curve[-1]` use the cumulative curve.

    - `terms`: the regret of each round; `cumulative`: their running sum; `total`: its last value.
    - `comparators`: the decisions compared with (`None` for the local regret).
    - `decisions`: (x_t, y*_t(x_t)) with the residuals of y*_t (`None` for losses as suffered).
    - `name`: its label in a figure, by default its kind; `curve.named("OAGD")` sets it.

    `curve.plot()` draws it, `(curve + other).plot()` draws both.
    """

    terms: Float[Array, " T"]
    cumulative: Float[Array, " T"]
    comparators: Comparator | None
    decisions: Comparator | None
    name: str = eqx.field(static=True, default="")

    @property
    def total(self) -> Float[Array, ""]:
        """The regret after the last round."""
        return self.cumulative[..., -1]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.cumulative, dtype=dtype)

    def __len__(self) -> int:
        return len(self.cumulative)

    def __getitem__(self, index: Any) -> Array:
        return self.cumulative[index]

    @property
    def label(self) -> str:
        """Its name, or the kind of regret."""
        kind = None if self.comparators is None else self.comparators.kind
        return self.name or KINDS.get(kind, "regret")

    def named(self, name: str) -> "RegretCurve":
        """Return the same curve under another name."""
        return dataclasses.replace(self, name=name)

    def __add__(self, other: "RegretCurve | RegretCurves") -> "RegretCurves":
        return RegretCurves((self,)) + other

    def plot(self, file: str | Path | None = None) -> Any:
        """Return a matplotlib figure of the regret so far and of its mean over rounds, which falls
        where the regret is sublinear; `file` saves it."""
        return RegretCurves((self,)).plot(file)

    def __repr__(self) -> str:
        if self.cumulative.ndim != 1 or not trees.is_concrete(self.cumulative):
            return f"RegretCurve({messages.format_value(self.cumulative)})"
        words = f"{counted(len(self), 'round')}, total={messages.format_short(self.total)}"
        if self.comparators is not None and np.any(self.comparators.lower_estimate):
            words += f" (a lower estimate: {self.comparators.global_evidence})"
        if self.comparators is not None and self.comparators.inner_residual.ndim == 1:
            words += f", comparators reached {messages.format_short(self.comparators.reached)}"
        return f"RegretCurve({self.label!r}, {words})"


@dataclasses.dataclass(frozen=True)
class RegretCurves:
    """Several regrets that are drawn in one figure: `(one + other).plot()`."""

    curves: tuple[RegretCurve, ...]

    def __add__(self, other: "RegretCurve | RegretCurves") -> "RegretCurves":
        if isinstance(other, RegretCurve):
            return RegretCurves((*self.curves, other))
        if isinstance(other, RegretCurves):
            return RegretCurves((*self.curves, *other.curves))
        return NotImplemented

    def plot(self, file: str | Path | None = None) -> Any:
        """Return a matplotlib figure of the regrets so far and of their means over rounds."""
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


Result = TypeVar("Result", RegretCurve, Comparator)


def check(result: Result) -> Result:
    """Warn where a regret or a comparator cannot be trusted, and return it.

    The functions of `obax.regret` do this themselves, but nothing can be warned of while they are
    compiled. Call it on what comes out of `jax.vmap` or `jax.jit`.

    >>> import obax
    >>> problem = obax.Problem(lambda x, y, r: (x - r) ** 2, outer_argmin=lambda r: r)
    >>> curves = jax.vmap(lambda x: obax.regret.dynamic(problem, x, jnp.ones(3)))(jnp.zeros((2, 3)))
    >>> print(check(curves).total)
    [3. 3.]
    """
    if isinstance(result, Comparator):
        _check_comparator(result)
        return result
    if not isinstance(result, RegretCurve):
        raise ValueError(f"result must be a RegretCurve or a Comparator, but got {result!r}.")
    for one in (result.decisions, result.comparators):
        if one is not None:
            _check_comparator(one)
    if result.comparators is not None and result.comparators.beaten is not None:
        warn_if_beaten(result.terms, result.comparators)
    return result


def _check_comparator(c: Comparator) -> None:
    if not trees.is_concrete(c):
        return
    _warn_of_residual(c, "leader", "outer_argmin", c.residual, c.closed_form)
    _warn_of_residual(c, "follower", "inner_argmin", c.inner_residual, c.inner_closed_form)
    if c.curvature is not None and np.any(c.not_minimal):
        curvature = np.asarray(c.curvature)
        worst = int(np.argmin(np.where(np.isnan(curvature), -np.inf, curvature)))
        advice = "Pass starts= nearer to the minimum, or Solver(starts=...) to look at more points"
        if c.closed_form:
            advice = "Problem.outer_argmin does not minimise the loss there: correct it"
        warn(
            f"The leader's point is not a minimum: in {_place(c, curvature, worst)} the loss has "
            f"curvature {curvature.flat[worst]:.3g} of its largest along a free direction "
            f"({int(np.sum(c.not_minimal))} of {curvature.size} points are a saddle or a maximum). "
            f"{advice}."
        )
    if np.any(c.lower_estimate):
        mask, unit = np.asarray(c.lower_estimate), "stages" if c.kind == "stages" else "rounds"
        share = f"{int(mask.sum())} of {mask.size} {unit}" if mask.ndim else "the whole horizon"
        warn(
            f"The leader's loss has several minima: in {share} descents from several starts "
            f"disagree, at worst {c.global_evidence}, so that the lowest may have been missed and "
            f"the regret is a lower estimate. Pass starts= nearer to the minimum or "
            f"Solver(starts=...) for more points, or give the problem an outer_argmin.",
            SeveralMinimaWarning,
        )
    # A follower that was not reached has been warned of already.
    if c.convexity is not None and np.all(np.asarray(c.inner_residual) <= c.tolerance):
        _warn_of_convexity(c.convexity, c.tolerance)


def _warn_of_convexity(convexity: Convexity, tolerance: float) -> None:
    at_answer, around, lower = (np.asarray(part) for part in convexity)
    eps = np.finfo(at_answer.dtype).eps
    advice = (
        "The paper assumes a g that is strongly convex in y; without it y* may be a local minimum, "
        "and the regret is that of the minimum found. Start the follower in the right well with "
        "inner_start, or add a ridge to g"
    )
    if np.any(lower > 100 * tolerance):
        warn(
            "The follower's loss has a lower value than at y*(x): a search from another start "
            f"found one in {int(np.sum(lower > 100 * tolerance))} of {lower.size} rounds tested. "
            f"{advice}.",
            FollowerWarning,
        )
    elif np.any(at_answer < 8 * eps) or np.any(around < -(eps**0.5)):
        least = min(float(np.min(at_answer)), float(np.min(around)))
        warn(
            "The follower's loss is not strongly convex in y: its Hessian has an eigenvalue of "
            f"{least:.3g} of the largest at or around y*(x). {advice}.",
            FollowerWarning,
        )


def _warn_of_residual(
    c: Comparator, player: str, formula: str, residual: Array | None, closed: bool
) -> None:
    if residual is None:
        return
    reached = np.asarray(residual)
    missed = ~(reached <= c.tolerance)
    if not np.any(missed):
        return
    worst = int(np.argmax(np.where(np.isnan(reached), np.inf, reached)))
    bound = ""
    if player == "leader" and c.above is not None:
        above = np.asarray(c.above)[missed]
        bound = (
            f" If the loss is convex, it is at most {np.max(above):.3g} above its minimum in each "
            f"of these rounds, and {np.sum(above):.3g} in all."
        )
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
    warn(
        f"The {player}'s optimum was not reached: residual {reached.flat[worst]:.3g} in "
        f"{_place(c, reached, worst)}, tolerance {c.tolerance:.3g} "
        f"({int(missed.sum())} of {reached.size} missed).{bound} {advice}."
    )


def warn_if_beaten(terms: Array, comparators: Comparator) -> None:
    """Warn that decisions are better than the comparators of their rounds."""
    if not trees.is_concrete(comparators.beaten) or not np.any(comparators.beaten):
        return
    beaten = np.asarray(comparators.beaten)
    worst = int(jnp.argmin(terms))
    warn(
        f"The comparator is not the best: in {_place(comparators, beaten, worst)} the decision "
        f"that was played is better by {-float(np.ravel(terms)[worst]):.3g} ({int(beaten.sum())} "
        f"of {beaten.size} rounds have a negative regret, which proves it). Let it be solved for "
        "instead of passing it, or correct the problem's outer_argmin and inner_argmin; "
        "Solver(starts=...) looks at more points."
    )


def _place(c: Comparator, values: np.ndarray, index: int) -> str:
    """Return the round or stage of an entry, with the settings of a sweep before it."""
    where = [int(one) + 1 for one in np.unravel_index(index, values.shape)]
    single = c.kind == "static" and values.ndim == np.ndim(np.asarray(c.descents))
    own = "the whole horizon" if single else ("stage" if c.kind == "stages" else "round")
    if not single:
        own += f" {where.pop()}"
    return own + "".join(f" of setting {one}" for one in where)


def warn(message: str, category: type[UserWarning] = ComparatorWarning) -> None:
    """Warn at the line that called the library."""
    level, frame = 1, sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("obax."):
        level, frame = level + 1, frame.f_back  # type: ignore[assignment]
    warnings.warn(message, category, stacklevel=level)
