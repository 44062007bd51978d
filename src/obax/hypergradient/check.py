"""Is the hypergradient right? Finite differences of x -> f(x, y*(x)), and the reason in words."""

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from .._support import trees
from .._support.checks import Arrays, checked
from .._support.compiling import compiled
from .._support.trees import PyTree, as_variable
from ..domain import Unconstrained
from ..problem import Problem
from .base import Hypergradient
from .differences import derivatives
from .solvers import CG, Dense
from .unrolled import Unrolled

DENSE_SIZE = 512
DIRECTIONS = 16
# The relative error of finite differences up to which they say something.
KNOWN = 1e-3
Verdict = Literal["ok", "wrong", "cannot tell"]
THROUGH_STEPS = (
    "Use a method that differentiates the follower's steps: OAGD with hypergradient=Unrolled(), "
    "obax.RTHO or obax.ITD; see docs/leaders.md."
)


@dataclasses.dataclass(frozen=True)
class HypergradientCheck:
    """The result of `check_hypergradient`. Print it.

    `verdict` is "ok", "wrong" or "cannot tell"; `messages` give the reasons. `relative_error`
    compares `estimate` with finite differences at the follower's answer y*(x), which are known to
    `uncertainty` themselves; `residual` is that of the estimator's linear system; `distance` is
    |y - y*(x)| / (1 + |y*(x)|); `smallest_eigenvalue` is that of the inner Hessian.
    """

    verdict: Verdict
    relative_error: float
    uncertainty: float
    estimate: PyTree
    residual: float
    distance: float
    smallest_eigenvalue: float
    messages: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the hypergradient was found to be right."""
        return self.verdict == "ok"

    def __str__(self) -> str:
        words = {"ok": "OK", "wrong": "NOT OK", "cannot tell": "NOT KNOWN"}[self.verdict]
        known = "" if self.uncertainty <= KNOWN else f", which are known to {self.uncertainty:.1e}"
        lines = [
            f"hypergradient {words}: relative error {self.relative_error:.1e} against finite "
            f"differences{known}"
        ]
        return "\n".join(lines + [f"- {message}" for message in self.messages])


@checked
def check_hypergradient(
    problem: Problem,
    outer_var: PyTree,
    inner_var: PyTree,
    round: Arrays,
    *,
    estimator: Hypergradient | None = None,
    buffers: Arrays = None,
    tolerance: float = 1e-4,
    seed: int = 0,
) -> HypergradientCheck:
    """Compare an estimator with finite differences of x -> f(x, y*(x)), in float64.

    **Arguments:**

    - `problem`, `outer_var`, `inner_var`, `round`, `buffers`: the point to check at; y*(x) is the
      problem's `inner_argmin`, or is solved for from `inner_var`.
    - `estimator`: `Dense()` for small y and `CG()` otherwise, unless given.
    - `tolerance`: the relative error up to which the check is passed, along each direction.
    - `seed`: of the random directions (all coordinates where x has at most 16).

    Differences stay inside X. Each has an error estimate: the truncation of its formula and the
    noise of the losses, which is measured. Where that is too large for a verdict, or x is at a kink
    of f(x, y*(x)), the answer is "cannot tell". That y*(x) minimises g is checked by values of g.

    >>> problem = Problem(
    ...     outer=lambda x, y, round: (y - round) ** 2,
    ...     inner=lambda x, y, round: (y - 3.0) ** 2,
    ... )
    >>> print(check_hypergradient(problem, 0.0, 1.0, jnp.asarray(2.0)))
    hypergradient NOT OK: relative error 0.0e+00 against finite differences
    - outer_var does not reach the inner loss: its cross derivative is exactly zero. It does not \
reach the outer loss either, so its hypergradient is always zero; let inner depend on it.
    - inner_var is not the follower's answer: |y - y*(x)| = 2.0e+00, |grad_y g| = 4.0e+00. There \
the hypergradient is off by 0.0e+00 relative; more inner steps bring it closer.
    """
    if isinstance(estimator, Unrolled):
        raise ValueError(
            "estimator must be one that can be evaluated at a point, but got Unrolled(), which "
            "differentiates an algorithm's steps; check with Dense() or CG()."
        )
    trees.check_has_values(round)
    with jax.enable_x64(True), np.errstate(all="ignore"):
        x = as_variable(outer_var, "outer_var")
        y = None if inner_var is None else as_variable(inner_var, "inner_var")
        x, y, round, buffers = jax.tree.map(_as_double, (x, y, round, buffers))
        problem.check(x, y, round, buffers)
        if estimator is None and y is not None:
            small = sum(leaf.size for leaf in jax.tree.leaves(y)) <= DENSE_SIZE
            estimator = Dense() if small else CG()
        given = _Given(problem, x, y, round, buffers)
        return _Judge(given, estimator, tolerance, seed).result()


def _as_double(leaf: PyTree) -> Array:
    leaf = jnp.asarray(leaf)
    return leaf.astype(jnp.float64) if trees.is_float(leaf) else leaf


class _Given(NamedTuple):
    """The point to check at."""

    problem: Problem
    outer_var: PyTree
    inner_var: PyTree
    round: PyTree
    buffers: PyTree

    def flat(self) -> Any:
        """Return the problem of vectors, without buffers; `start` and `inner_start` are x and y."""
        # Loaded by those who check, not by everybody who imports an algorithm.
        from ..implicit import FlatProblem

        problem, y = self.problem, self.inner_var

        def outer(x: PyTree, y: PyTree, round: PyTree) -> Array:
            return problem.outer_loss(x, y, round, self.buffers).astype(float)

        def inner(x: PyTree, y: PyTree, round: PyTree) -> Array:
            return problem.inner_loss(x, y, round, self.buffers)[0].astype(float)

        bare = Problem(
            outer,
            None if y is None else inner,
            problem.domain,
            problem.inner_argmin,
            inner_domain=problem.inner_domain,
        )
        return FlatProblem(bare, self.outer_var, y)


class _Findings(NamedTuple):
    """What was measured at y*(x), of length `size`. Without a follower only the first two say
    anything."""

    value: Array
    """The estimate."""
    direct: Array
    """grad_x f."""
    residual: Array | float = 0.0
    """The residual of the estimator's linear system."""
    eigenvalues: Array | tuple[float, float] = (np.inf, np.inf)
    """The smallest and the largest of H."""
    slope: Array | float = 0.0
    """|grad_y g|, in a set Y the length of a projected step of size 1."""
    slopes: Array | float = 0.0
    """grad_y g."""
    cross: Array | float = 0.0
    """J^T times a random vector."""
    beside: Array | float = 0.0
    """The same at an x some way off."""
    rates: Array | float = 0.0
    """At some y elsewhere, J^T grad_y g / |grad_y g|^2: alike if x only multiplies g."""
    size: Array | float = 0.0
    gap: Array | float = 0.0
    """|y - y*(x)| of the y that was given."""
    value_there: Array | float = 0.0
    slope_there: Array | float = 0.0
    """The estimate and |grad_y g| at that y."""

    @property
    def distance(self) -> float:
        return float(self.gap / (1 + self.size))


def _directions(size: int, seed: int) -> np.ndarray:
    """Return all coordinates where they are few, and random directions otherwise."""
    if size <= DIRECTIONS:
        return np.eye(size)
    rows = np.random.default_rng(seed).standard_normal((DIRECTIONS, size))
    return rows / np.max(np.abs(rows), axis=1, keepdims=True)


def _precision(given: _Given) -> float:
    """Return the machine epsilon of the least precise number that a loss computes from x or y."""
    problem, *pair, round, buffers = given

    def losses(x: PyTree, y: PyTree) -> Any:
        inner = None if y is None else problem.inner_loss(x, y, round, buffers)
        return problem.outer_loss(x, y, round, buffers), inner

    def worst(program: Any) -> float:
        moving, coarsest = set(map(id, program.invars)), float(jnp.finfo(jnp.float64).eps)
        for line in program.eqns:
            if moving.isdisjoint(map(id, line.invars)):
                continue
            moving.update(map(id, line.outvars))
            dtypes = [getattr(out.aval, "dtype", jnp.float64) for out in line.outvars]
            floats = [dtype for dtype in dtypes if jnp.issubdtype(dtype, jnp.floating)]
            parts = [getattr(part, "jaxpr", part) for part in jax.tree.leaves(line.params)]
            inside = [worst(part) for part in parts if hasattr(part, "eqns")]
            coarsest = max([coarsest, *(float(jnp.finfo(dtype).eps) for dtype in floats), *inside])
        return coarsest

    return worst(jax.make_jaxpr(losses)(*pair).jaxpr)


@compiled
def _answers(given: _Given, points: Array, start: Array) -> tuple[Array, Array, Array]:
    """Return y*(x), f(x, y*(x)) and the residual of y*(x) at stacked points. Every search starts at
    one y, so that all are in one basin."""
    from ..implicit import answer

    flat = given.flat()
    flat.inner_start = start

    def one(x: Array) -> tuple[Array, Array, Array]:
        solution = answer(flat, x, given.round)
        return solution.y, flat.outer(x, solution.y, given.round), solution.residual

    return jax.lax.map(one, points)


@compiled
def _inner_values(given: _Given, points: Array) -> Array:
    """Return g(x, y) at stacked y."""
    flat = given.flat()
    return jax.lax.map(lambda y: flat.inner(flat.start, y, given.round), points)


@compiled
def _measure(given: _Given, estimator: Hypergradient, best: Array) -> _Findings:
    """Measure everything at y*(x), and the estimate at y."""
    from ..implicit import extreme_eigenvalues

    flat, round = given.flat(), given.round
    x, y = flat.start, flat.inner_start
    if not flat.has_follower:
        direct = jax.grad(flat.outer)(x, y, round)
        return _Findings(direct, direct)

    def inner(x: Array, y: Array) -> Array:
        return flat.inner(x, y, round)

    def estimate(y: Array) -> tuple[Array, Array]:
        gradient = jax.grad(flat.outer, (0, 1))(x, y, round)
        within = {} if flat.inner_set is None else {"domain": flat.inner_set}
        result = estimator(inner, x, y, gradient, estimator.init(y), **within)
        return result.value, jnp.asarray(result.residual)

    slope_of = jax.grad(inner, 1)
    noise = jnp.asarray(np.random.default_rng(0).standard_normal((4, y.size)))
    domain = Unconstrained() if flat.inner_set is None else flat.inner_set

    def effects(point: tuple[Array, Array]) -> tuple[Array, Array, Array]:
        """Return grad_y g, J^T times a random vector, and the rates at which x multiplies g."""
        slopes, pull = jax.vjp(lambda x: slope_of(x, point[1]), point[0])
        return slopes, pull(noise[0])[0], pull(slopes)[0] / jnp.sum(slopes**2)

    # Several points at once: one copy of what has to be compiled.
    estimates, solved = jax.lax.map(estimate, jnp.stack([best, y]))
    elsewhere = jax.vmap(domain.project)(best + (1 + jnp.linalg.norm(best)) * noise[1:])
    random = np.random.default_rng(1).uniform(0.01, 0.1, x.size)
    beside = flat.project(x + random * (1 + jnp.abs(x)))
    points = jnp.stack([x, x, x, x, x, beside]), jnp.stack([best, y, *elsewhere, best])
    slopes, crosses, rates = jax.lax.map(effects, points)
    face = domain.face(best, slopes[0])
    along = jax.linearize(lambda y: slope_of(x, y), best)[1]

    def on_face(u: Array) -> Array:
        """Return P H P u + b P u, the curvature of g where the answer can move."""
        inside = face.tangent(u)
        return face.tangent(along(inside)) + face.bend * inside

    # Directions in which it cannot move get a curvature between the smallest and the largest.
    free = jnp.sum(face.tangent(noise[0]) ** 2)
    level = jnp.where(free > 0, jnp.abs(noise[0] @ on_face(noise[0])) / free, 1.0)

    def hvp(u: Array) -> Array:
        return on_face(u) + level * (u - face.tangent(u))

    if y.size <= DENSE_SIZE:
        eigenvalues = jnp.linalg.eigvalsh(jax.vmap(hvp)(jnp.eye(y.size)))[jnp.array([0, -1])]
    else:
        eigenvalues = jnp.stack(extreme_eigenvalues(hvp, noise[0], 64)[:2])
    return _Findings(
        value=estimates[0],
        direct=jax.grad(flat.outer)(x, best, round),
        residual=solved[0],
        eigenvalues=eigenvalues,
        slope=domain.gradient_norm(best, slopes[0]),
        slopes=slopes[0],
        cross=crosses[0],
        beside=crosses[5],
        rates=rates[2:5],
        size=jnp.linalg.norm(best),
        gap=jnp.linalg.norm(y - best),
        value_there=estimates[1],
        slope_there=domain.gradient_norm(y, slopes[1]),
    )


class _Judge:
    """What the numbers of a check mean."""

    def __init__(
        self, given: _Given, estimator: Hypergradient | None, tolerance: float, seed: int
    ) -> None:
        flat = given.flat()
        x = np.asarray(flat.start)
        self.given, self.estimator, self.rounding = given, estimator, _precision(given)
        best, value, residual = (part[0] for part in _answers(given, x[None], flat.inner_start))
        self.value, self.residual = float(value), float(residual)
        self.findings = jax.tree.map(np.asarray, _measure(given, estimator, best))
        self.outer = derivatives(
            lambda points: _answers(given, points, best)[1],
            x, _directions(x.size, seed),
            None if flat.unconstrained else flat.project, self.rounding,
        )  # fmt: skip
        self.inner = None if not flat.has_follower else derivatives(
            lambda points: _inner_values(given, points),
            np.asarray(best), _directions(best.size, seed)[:8],
            None if flat.inner_set is None else flat.inner_set.project, self.rounding,
        )  # fmt: skip
        least, largest = np.asarray(self.findings.eigenvalues)
        condition = float(largest / least) if least > 0 and np.isfinite(largest) else 1.0
        # What the losses' own rounding leaves of a solution, however it is found.
        self.tolerance = max(tolerance, 10 * self.rounding * max(condition, 1.0))
        self._compare()

    def _compare(self) -> None:
        """Compare estimate and differences along each direction."""
        outer, findings = self.outer, self.findings
        self.along = outer.moves @ findings.value
        lengths = np.linalg.norm(outer.moves, axis=1)
        lengths = np.where(lengths > 0, lengths, 1.0)
        gap = np.abs(self.along - outer.value)
        scale = np.maximum(np.abs(self.along), np.abs(outer.value))
        # As far as the whole variable goes, relative to the size of its entries.
        whole = np.abs(outer.moves) @ np.maximum(1, np.abs(ravel_pytree(self.given.outer_var)[0]))
        units = np.where(whole > 0, lengths / np.where(whole > 0, whole, 1), 1) / lengths
        units = units / units.max(initial=1e-300)
        largest = np.max(scale * units, initial=0.0) / units
        unsure = outer.error + 1e-6 * outer.size + 1e-8 * largest
        unsure += 100 * self.rounding * np.abs(outer.moves @ findings.direct)
        weak = outer.error > 1e-2 * outer.size
        weak |= outer.error > KNOWN * np.maximum(scale, 1e-2 * outer.size)
        self.unknown = weak & (outer.error > 0.1 * KNOWN * largest)
        self.unknown &= (outer.size > 0) | (self.along != 0)
        # Where differences are rough, only what is far beyond their error counts.
        unsure = np.where(self.unknown, 10 * unsure, unsure)
        self.disagree = (gap > self.tolerance * scale + unsure) & ~outer.kink
        seen = np.abs(outer.value) > outer.error
        total = np.linalg.norm(np.maximum(scale, np.where(seen, 0, outer.error)) / lengths)
        off = np.linalg.norm(np.where(seen | self.disagree, gap, 0) / lengths)
        self.relative_error = float(off / total) if total > 0 else 0.0
        errors = np.linalg.norm(np.where(outer.size > 0, outer.error, 0) / lengths)
        self.uncertainty = float(errors / total) if total > 0 else 0.0

    def result(self) -> HypergradientCheck:
        """Return the verdict and its reasons."""
        wrong: list[str] = []
        unclear, notes = list(self._unclear()), list[str]()
        if self.inner is not None:
            for message in self._without_effect():
                (notes if message.startswith("note: ") else wrong).append(message)
            wrong += [*self._inner_faults(), *self._system_faults()]
            notes += self._distant()
        if not np.isfinite(self.value):
            wrong.append("the outer loss is not finite at this point.")
        elif np.any(self.outer.size) or np.any(self.findings.value) or wrong:
            pass
        elif self.given.problem.constrains_follower and np.any(self.findings.cross):
            notes.append(
                "note: the hypergradient is zero: the constraints of inner_domain hold the "
                "follower where it is."
            )
        else:
            wrong.append(
                "estimate and finite differences are both exactly zero: the outer loss does not "
                "depend on outer_var, neither directly nor through the follower. Is it constant, "
                "or piecewise constant (rounding, a comparison)?"
            )
        if np.any(self.disagree) and not wrong:
            wrong.append(
                "estimate and finite differences disagree although nothing else is wrong: is a "
                "loss not smooth here (abs, max, rounding), or is a gradient stopped?"
            )
        verdict: Verdict = "wrong" if wrong else "cannot tell" if unclear else "ok"
        return HypergradientCheck(
            verdict=verdict,
            relative_error=self.relative_error,
            uncertainty=self.uncertainty,
            estimate=ravel_pytree(self.given.outer_var)[1](jnp.asarray(self.findings.value)),
            residual=float(self.findings.residual),
            distance=self.findings.distance,
            smallest_eigenvalue=float(self.findings.eigenvalues[0]),
            messages=(*wrong, *unclear, *notes),
        )

    def _unclear(self) -> Iterator[str]:
        """Yield why there can be no verdict."""
        if np.any(self.outer.kink):
            left, right = self.outer.sides[np.argmax(self.outer.kink)]
            why = "is a loss not smooth here (abs, max)?"
            if self.given.problem.constrains_follower:
                why = "a constraint of inner_domain begins or ceases to hold the follower here."
            yield (
                f"outer_var is at a kink of f(x, y*(x)), whose derivatives to the two sides are "
                f"{left:.2e} and {right:.2e} (times the step): {why} Check at a point beside it."
            )
        elif np.any(self.unknown):
            precise = self.rounding < 1e-10
            cure = "the losses change too fast or too little here." if precise else (
                "the losses are computed in less than float64; compute them in float64."
            )  # fmt: skip
            yield (
                f"finite differences are known to {self.uncertainty:.1e} only, relative to the "
                f"hypergradient: {cure}"
            )
        elif self.tolerance > 100 * KNOWN:
            yield (
                "the inner Hessian is too ill-conditioned for the precision in which the losses "
                "are computed; compute them in float64, or add a ridge term."
            )

    def _without_effect(self) -> Iterator[str]:
        """Yield a message for each leaf of x that does not move the follower's answer anywhere."""
        findings, tolerance = self.findings, max(1e-6, 1e3 * self.rounding)
        spread = np.max(np.abs(findings.rates - findings.rates[0]), axis=0)
        scales = (spread <= tolerance * np.abs(findings.rates[0])) & (findings.rates[0] != 0)
        # One difference for each coordinate, where x is small enough for that.
        differences = self.outer.value if len(scales) == len(self.outer.value) else 0 * scales
        unravel = ravel_pytree(self.given.outer_var)[1]
        reached = (
            (findings.cross != 0) | (findings.beside != 0) | np.any(findings.rates != 0, axis=0)
        )
        parts = [reached, scales, findings.direct, differences]
        parts = [unravel(jnp.asarray(part, float)) for part in parts]
        named = jax.tree_util.tree_leaves_with_path(parts[0])
        rest = map(jax.tree.leaves, parts[1:])
        for (path, reach), every, direct, moved in zip(named, *rest, strict=True):
            multiplies = np.all(every)
            if np.any(reach) and not multiplies:
                continue
            name = trees.leaf_name(path, "outer_var")
            why = f"{name} does not reach the inner loss: its cross derivative is exactly zero."
            if np.any(reach):
                why = (
                    f"{name} only multiplies the inner loss, as a learning rate does: the "
                    f"follower's optimum does not depend on it. {THROUGH_STEPS}"
                )
            if np.any(direct):
                yield f"note: {why} Only its direct effect on the outer loss moves it."
            elif np.any(reach):
                yield why
            elif np.any(moved):
                yield (
                    f"{why} But the outer loss does change with {name}: a gradient is stopped "
                    f"somewhere (stop_gradient, rounding, a conversion to NumPy)."
                )
            elif self.given.problem.inner_start is not None:
                yield (
                    f"{why} If it reaches the follower by inner_start, the follower's optimum does "
                    f"not depend on it. {THROUGH_STEPS}"
                )
            else:
                yield (
                    f"{why} It does not reach the outer loss either, so its hypergradient is "
                    f"always zero; let inner depend on it."
                )

    def _inner_faults(self) -> Iterator[str]:
        """Yield what is wrong with the inner problem."""
        findings, inner = self.findings, self.inner
        assert inner is not None
        if not self.residual <= max(1e-6, 1e3 * self.rounding):
            cure = "Is it bounded below, smooth and finite? An inner_argmin would help."
            if self.given.problem.inner_argmin is not None:
                cure = "It is the problem's inner_argmin that says so: its formula is wrong."
            yield (
                f"the inner problem could not be solved: |grad_y g| = {findings.slope:.1e} at the "
                f"best y found. {cure}"
            )
        off = np.abs(inner.value - inner.moves @ findings.slopes)
        # A noise that was measured at few points may be larger at others.
        unsure = (1 if self.rounding < 1e-10 else 10) * inner.error + 1e-3 * inner.size
        if np.any((off > unsure) & ~inner.kink):
            yield (
                "the y at which grad_y g is zero does not minimise g: the values of g change "
                "around it, and not as grad_y g says. A gradient is stopped in the inner loss "
                "(stop_gradient, a custom derivative, rounding)."
            )
        least, largest = findings.eigenvalues
        # What is zero to rounding is not positive; with coarse rounding it may be.
        limit = 10 * self.rounding * max(float(largest), 0.0)
        if not least > (limit if self.rounding < 1e-10 else -limit):
            yield (
                f"the inner problem is not strongly convex at its solution: the smallest "
                f"eigenvalue of its Hessian is {least:.1e}. y*(x) is then not unique or not a "
                f"minimum; add a ridge term, or use GMRES() if it is a saddle on purpose."
            )

    def _system_faults(self) -> Iterator[str]:
        """Yield whether the linear system was left unsolved."""
        if not self.findings.residual <= 1e-3:
            cure = f"Give {type(self.estimator).__name__} more steps or terms, or use Dense()."
            if isinstance(self.estimator, Dense):
                cure = "The inner Hessian is singular: add a ridge term to the inner loss."
            yield (
                f"the linear system H v = grad_y f is not solved: relative residual "
                f"{self.findings.residual:.1e}. {cure}"
            )

    def _distant(self) -> Iterator[str]:
        """Yield how far the given y is from the follower's answer."""
        findings = self.findings
        if findings.distance > 1e-3:
            off = np.linalg.norm(findings.value_there - findings.value)
            length = float(np.linalg.norm(findings.value))
            yield (
                f"inner_var is not the follower's answer: |y - y*(x)| = {findings.gap:.1e}, "
                f"|grad_y g| = {findings.slope_there:.1e}. There the hypergradient is off by "
                f"{off / length if length > 0 else off:.1e} relative; more inner steps bring it "
                f"closer."
            )
