"""Is the hypergradient right? Finite differences of x -> f(x, y*(x)), and the reason in words."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple

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
from .solvers import CG, Dense
from .unrolled import Unrolled

DENSE_SIZE = 512
DIRECTIONS = 16
# Central differences of fourth order at x + k h d: error h^4, so a step that rounding does not see.
STENCIL = (1, -1, 2, -2)


@dataclasses.dataclass(frozen=True)
class HypergradientCheck:
    """The result of `check_hypergradient`. Print it.

    `relative_error` compares `estimate` with finite differences at the follower's answer y*(x);
    `residual` is that of the estimator's linear system; `distance` is |y - y*(x)| / (1 + |y*(x)|);
    `smallest_eigenvalue` is that of the inner Hessian; `messages` say what is wrong, `ok` whether
    nothing is.
    """

    ok: bool
    relative_error: float
    estimate: PyTree
    residual: float
    distance: float
    smallest_eigenvalue: float
    messages: tuple[str, ...]

    def __str__(self) -> str:
        verdict = "hypergradient OK" if self.ok else "hypergradient NOT OK"
        lines = [f"{verdict}: relative error {self.relative_error:.1e} against finite differences"]
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
    - `tolerance`: the relative error up to which the check is passed.
    - `seed`: of the random directions (all coordinates where x has at most 16).

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
    with jax.enable_x64(True):
        x = as_variable(outer_var, "outer_var")
        y = None if inner_var is None else as_variable(inner_var, "inner_var")
        x, y, round, buffers = jax.tree.map(_as_double, (x, y, round, buffers))
        problem.check(x, y, round, buffers)
        if estimator is None and y is not None:
            small = sum(leaf.size for leaf in jax.tree.leaves(y)) <= DENSE_SIZE
            estimator = Dense() if small else CG()
        size = sum(leaf.size for leaf in jax.tree.leaves(x))
        rng = np.random.default_rng(seed)
        directions = np.eye(size) if size <= DIRECTIONS else rng.standard_normal((DIRECTIONS, size))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        found = _measure(problem, x, y, round, buffers, estimator, jnp.asarray(directions))
        with np.errstate(all="ignore"):
            return _judge(problem, x, y is None, estimator, tolerance, directions, found)


def _as_double(leaf: PyTree) -> Array:
    leaf = jnp.asarray(leaf)
    return leaf.astype(jnp.float64) if trees.is_float(leaf) else leaf


class _Findings(NamedTuple):
    """The numbers measured at a point.

    `values` are phi at x, then at the points of the differences, which reach as far as `step`. At
    the follower's answer y*(x), of size `size`: the estimate `value` and its `residual`, grad_x f
    (`direct`), |grad_y g| (`slope`) and what it is relative to its terms (`inner_residual`), the
    least `eigenvalue` of H, and J^T times a random vector (`cross`). At y, which is `gap` away: the
    estimate `value_there` and |grad_y g|. Without a follower only the first four say anything.
    """

    step: Array
    values: Array
    value: Array
    direct: Array
    residual: Array | float = 0.0
    eigenvalue: Array | float = np.inf
    inner_residual: Array | float = 0.0
    slope: Array | float = 0.0
    gap: Array | float = 0.0
    size: Array | float = 0.0
    value_there: Array | float = 0.0
    slope_there: Array | float = 0.0
    cross: Array | float = 0.0

    @property
    def distance(self) -> float:
        return float(self.gap / (1 + self.size))


@compiled
def _measure(
    problem: Problem,
    x: PyTree,
    y: PyTree,
    round: PyTree,
    buffers: PyTree,
    estimator: Hypergradient | None,
    directions: Array,
) -> _Findings:
    """Measure everything in one compiled function: compilation takes most of the time of a
    check."""
    # Loaded by those who check, not by everybody who imports an algorithm.
    from ..implicit import FlatProblem as Flat, Scalar, Vector, answer, extreme_eigenvalues

    bare = Problem(
        lambda x, y, r: problem.outer_loss(x, y, r, buffers),
        None if y is None else lambda x, y, r: problem.inner_loss(x, y, r, buffers)[0],
        problem.domain,
        problem.inner_argmin,
        inner_domain=problem.inner_domain,
    )
    flat = Flat(bare, x, y)
    x, y = flat.start, flat.inner_start
    step = 1e-3 * jnp.maximum(1.0, jnp.max(jnp.abs(x)))
    moves = jnp.concatenate([k * directions for k in STENCIL])
    points = jnp.concatenate([x[None], x + step * moves])

    def phi(start: Vector, x: Vector) -> tuple[Vector, tuple[Scalar, Vector, Scalar]]:
        """Return f(x, y*(x)) and y*(x). Each search starts where the last one ended, so that all
        are in one basin."""
        flat.inner_start = start
        found = answer(flat, x, round)
        return found.y, (flat.outer(x, found.y, round), found.y, found.residual)

    _, (values, answers, residuals) = jax.lax.scan(phi, y, points)
    best = answers[0]
    flat.inner_start = y
    direct = jax.grad(flat.outer)(x, best, round)
    if estimator is None or not flat.has_follower:
        return _Findings(step, values, direct, direct)

    def inner(x: Vector, y: Vector) -> Scalar:
        return flat.inner(x, y, round)

    def estimate(y: Vector) -> tuple[Vector, Scalar]:
        gradient = jax.grad(flat.outer, (0, 1))(x, y, round)
        within = {} if flat.inner_set is None else {"domain": flat.inner_set}
        found = estimator(inner, x, y, gradient, estimator.init(y), **within)
        return found.value, jnp.asarray(found.residual)

    # Both at once: one copy of the estimator to compile.
    estimates, solved = jax.lax.map(estimate, jnp.stack([best, y]))
    noise = jnp.asarray(np.random.default_rng(0).standard_normal(y.size))
    slope_of = jax.grad(inner, 1)
    _, pull = jax.vjp(lambda x: slope_of(x, best), x)
    face, size = Unconstrained().face(best, best), Unconstrained().gradient_norm
    if flat.inner_set is not None:
        face, size = flat.inner_set.face(best, slope_of(x, best)), flat.inner_set.gradient_norm
    along = jax.linearize(lambda y: slope_of(x, y), best)[1]

    def hvp(u: Vector) -> Vector:
        """Return H u on the face of Y that the answer is on."""
        inside = face.tangent(u)
        return face.tangent(along(inside)) + face.bend * inside + (u - inside)

    if y.size <= DENSE_SIZE:
        eigenvalue = jnp.linalg.eigvalsh(jax.vmap(hvp)(jnp.eye(y.size)))[0]
    else:
        eigenvalue = extreme_eigenvalues(hvp, noise, 64)[0]
    return _Findings(
        step=step,
        values=values,
        value=estimates[0],
        direct=direct,
        residual=solved[0],
        eigenvalue=eigenvalue,
        inner_residual=residuals[0],
        slope=size(best, slope_of(x, best)),
        gap=jnp.linalg.norm(y - best),
        size=jnp.linalg.norm(best),
        value_there=estimates[1],
        slope_there=size(y, slope_of(x, y)),
        cross=pull(noise)[0],
    )


def _judge(
    problem: Problem,
    x: PyTree,
    alone: bool,
    estimator: Hypergradient | None,
    tolerance: float,
    directions: np.ndarray,
    found: _Findings,
) -> HypergradientCheck:
    """Return the result of a check, with messages."""
    found = jax.tree.map(np.asarray, found)
    unravel = ravel_pytree(x)[1]
    differences, error = _compare(found, directions)
    messages: list[str] = []
    if not alone:
        messages += _explain_zero(unravel, found, differences)
        messages += _explain_numbers(problem, estimator, found)
    if not np.isfinite(found.values[0]):
        messages.append("the outer loss is not finite at this point.")
    elif not np.any(differences) and not np.any(found.value) and not messages:
        messages.append(
            "estimate and finite differences are both exactly zero: the outer loss does not "
            "depend on outer_var, neither directly nor through the follower. Is it constant, "
            "or piecewise constant (rounding, a comparison)?"
        )
    fatal = [m for m in messages if not m.startswith(("inner_var is not", "note: "))]
    if not error <= tolerance and not fatal:
        messages.append(
            "estimate and finite differences disagree although nothing else is wrong: is a "
            "loss not smooth here (abs, max, rounding), or is a gradient stopped?"
        )
    return HypergradientCheck(
        ok=bool(error <= tolerance and not fatal),
        relative_error=error,
        estimate=unravel(jnp.asarray(found.value)),
        residual=float(found.residual),
        distance=found.distance,
        smallest_eigenvalue=float(found.eigenvalue),
        messages=tuple(messages),
    )


def _compare(found: _Findings, directions: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the directional differences, and how far the estimate is from them. Differences are
    known up to the rounding of the loss divided by the step, so smaller errors count as none."""
    ahead, behind, far_ahead, far_behind = found.values[1:].reshape(len(STENCIL), -1)
    differences = (8 * (ahead - behind) - (far_ahead - far_behind)) / (12 * found.step)
    noise = 1e-14 * max(1.0, abs(float(found.values[0]))) / float(found.step)
    gap = float(np.linalg.norm(directions @ found.value - differences))
    if gap <= 10 * noise * np.sqrt(len(differences)):
        return differences, 0.0
    return differences, gap / max(float(np.linalg.norm(differences)), noise)


def _explain_zero(
    unravel: Callable[[Array], PyTree], found: _Findings, differences: np.ndarray
) -> Iterator[str]:
    """Yield a message for each leaf of x whose cross derivative is exactly zero."""
    # One difference for each coordinate, where x is small enough for that.
    whole = len(differences) == found.value.size
    known = differences if whole else np.zeros(found.value.size)
    cross, direct, moves = (
        jax.tree_util.tree_leaves_with_path(unravel(jnp.asarray(part)))
        for part in (found.cross, found.direct, known)
    )
    for (path, leaf), (_, own), (_, moved) in zip(cross, direct, moves, strict=True):
        if np.any(np.asarray(leaf) != 0):
            continue
        name = trees.leaf_name(path, "outer_var")
        zero = f"{name} does not reach the inner loss: its cross derivative is exactly zero."
        if np.any(np.asarray(own)):
            yield f"note: {zero} Only its direct effect on the outer loss moves it."
        elif np.any(np.asarray(moved)):
            yield (
                f"{zero} But the outer loss does change with {name}: a gradient is stopped "
                f"somewhere (stop_gradient, rounding, a conversion to NumPy)."
            )
        else:
            yield (
                f"{zero} It does not reach the outer loss either, so its hypergradient is "
                f"always zero; let inner depend on it."
            )


def _explain_numbers(
    problem: Problem, estimator: Hypergradient | None, found: _Findings
) -> Iterator[str]:
    """Yield what is wrong with the inner problem, its linear system and the y that was given."""
    if not found.inner_residual <= 1e-6:
        cure = "Is it bounded below, smooth and finite? An inner_argmin would help."
        if problem.inner_argmin is not None:
            cure = "It is the problem's inner_argmin that says so: its formula is wrong."
        yield (
            f"the inner problem could not be solved: |grad_y g| = {found.slope:.1e} at the best y "
            f"found. {cure}"
        )
    if not found.eigenvalue > 0:
        yield (
            f"the inner problem is not strongly convex at its solution: the smallest "
            f"eigenvalue of its Hessian is {found.eigenvalue:.1e}. y*(x) is then not unique or not "
            f"a minimum; add a ridge term, or use GMRES() if it is a saddle on purpose."
        )
    if not found.residual <= 1e-3:
        cure = f"Give {type(estimator).__name__} more steps or terms, or use Dense()."
        if isinstance(estimator, Dense):
            cure = "The inner Hessian is singular: add a ridge term to the inner loss."
        yield (
            f"the linear system H v = grad_y f is not solved: relative residual "
            f"{found.residual:.1e}. {cure}"
        )
    if found.distance > 1e-3:
        off = np.linalg.norm(found.value_there - found.value)
        off /= max(float(np.linalg.norm(found.value)), 1e-12)
        yield (
            f"inner_var is not the follower's answer: |y - y*(x)| = {found.gap:.1e}, "
            f"|grad_y g| = {found.slope_there:.1e}. There the hypergradient is off by {off:.1e} "
            f"relative; more inner steps bring it closer."
        )
