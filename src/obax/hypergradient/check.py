"""Is the hypergradient right? Finite differences of x -> f(x, y*(x)), and the reason in words."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from .._support import trees, validation
from .._support.trees import PyTree
from ..problem import Problem
from .base import Hypergradient
from .solvers import CG, Dense
from .unrolled import Unrolled

DENSE_SIZE = 512
DIRECTIONS = 16
Flat = Float[Array, " d"]


@dataclasses.dataclass(frozen=True)
class HypergradientCheck:
    """What `check_hypergradient` found. Print it.

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


def check_hypergradient(
    problem: Problem,
    outer_var: PyTree,
    inner_var: PyTree,
    round: PyTree,
    *,
    estimator: Hypergradient | None = None,
    buffers: PyTree = None,
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
    with jax.enable_x64(True):
        to_double = lambda tree: jax.tree.map(_as_double, tree)  # noqa: E731
        x = to_double(validation.variable(outer_var, "outer_var"))
        y = None if inner_var is None else to_double(validation.variable(inner_var, "inner_var"))
        case = _Case(problem, x, y, to_double(round), to_double(buffers))
        problem.check(x, y, case.round, case.buffers)
        return case.check(estimator, tolerance, np.random.default_rng(seed))


def _as_double(leaf: Any) -> Any:
    leaf = jnp.asarray(leaf)
    return leaf.astype(jnp.float64) if trees.is_float(leaf) else leaf


class _Case:
    """One point of one problem, with x and y as flat vectors."""

    def __init__(self, problem: Problem, x: PyTree, y: PyTree, round: PyTree, buffers: PyTree):
        self.problem, self.round, self.buffers = problem, round, buffers
        self.tree_x = x
        self.x, self.unravel_x = ravel_pytree(x)
        self.y: Any = None
        self.unravel_y: Any = None
        if y is not None:
            self.y, self.unravel_y = ravel_pytree(y)

    def outer(self, x: Flat, y: Flat | None) -> Array:
        tree_y = None if y is None else self.unravel_y(y)
        return self.problem.outer_loss(self.unravel_x(x), tree_y, self.round, self.buffers)

    def inner(self, x: Flat, y: Flat) -> Array:
        return self.problem.inner_loss(
            self.unravel_x(x), self.unravel_y(y), self.round, self.buffers
        )[0]

    def answer(self, x: Flat, start: Flat) -> Flat:
        """y*(x): the closed form, or a descent polished by Newton."""
        if self.problem.inner_argmin is not None:
            return ravel_pytree(self.problem.inner_argmin(self.unravel_x(x), self.round))[0]
        loss = lambda y, _: self.inner(x, y)  # noqa: E731
        solver: Any = (
            optx.BFGS(rtol=1e-9, atol=1e-9)
            if start.size <= DENSE_SIZE
            else optx.NonlinearCG(1e-9, 1e-9)
        )
        y = optx.minimise(loss, solver, start, max_steps=10_000, throw=False).value
        slope, bend = jax.grad(self.inner, 1), jax.hessian(self.inner, 1)
        if start.size <= DENSE_SIZE:
            for _ in range(3):
                step = jnp.linalg.solve(bend(x, y), slope(x, y))
                better = trees.norm(slope(x, y - step)) <= trees.norm(slope(x, y))
                y = jnp.where(better, y - step, y)
        return y

    def estimate(self, estimator: Hypergradient, x: Flat, y: Flat) -> tuple[Flat, float]:
        gradient = jax.grad(self.outer, (0, 1))(x, y)
        found = estimator(self.inner, x, y, gradient, estimator.init(y))
        return found.value, float(found.residual)

    def check(
        self, estimator: Hypergradient | None, tolerance: float, rng: np.random.Generator
    ) -> HypergradientCheck:
        messages: list[str] = []
        if self.y is None:
            value, residual, distance, eigenvalue = (
                jax.grad(self.outer)(self.x, None),
                0.0,
                0.0,
                np.inf,
            )
            loss: Callable[[Flat], Array] = lambda x: self.outer(x, None)  # noqa: E731
        else:
            if estimator is None:
                estimator = Dense() if self.y.size <= DENSE_SIZE else CG()
            best = jax.jit(self.answer)(self.x, self.y)
            value, residual = self.estimate(estimator, self.x, best)
            loss = jax.jit(lambda x: self.outer(x, self.answer(x, best)))
            eigenvalue = self._smallest_eigenvalue(best, rng)
            distance = float(trees.norm(self.y - best) / (1 + trees.norm(best)))
            self._explain_inner(best, eigenvalue, messages)
            if not residual <= 1e-3:
                cure = f"Give {type(estimator).__name__} more steps or terms, or use Dense()."
                if isinstance(estimator, Dense):
                    cure = "The inner Hessian is singular: add a ridge term to the inner loss."
                messages.append(
                    f"the linear system H v = grad_y f is not solved: relative residual "
                    f"{residual:.1e}. {cure}"
                )
            if distance > 1e-3:
                there, _ = self.estimate(estimator, self.x, self.y)
                slope = trees.norm(jax.grad(self.inner, 1)(self.x, self.y))
                messages.append(
                    f"inner_var is not the follower's answer: |y - y*(x)| = "
                    f"{float(trees.norm(self.y - best)):.1e}, |grad_y g| = {float(slope):.1e}. "
                    f"There the hypergradient is off by {_relative(there, value):.1e} relative; "
                    f"more inner steps bring it closer."
                )
        differences, error = self._compare(loss, value, rng)
        if self.y is not None:
            messages[:0] = self._explain_zero(best, differences, rng)
        if not np.isfinite(float(loss(self.x))):
            messages.append("the outer loss is not finite at this point.")
        elif not np.any(differences) and not np.any(np.asarray(value)) and not messages:
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
            estimate=self.unravel_x(value),
            residual=residual,
            distance=distance,
            smallest_eigenvalue=float(eigenvalue),
            messages=tuple(messages),
        )

    def _compare(
        self, loss: Callable[[Flat], Array], value: Flat, rng: np.random.Generator
    ) -> tuple[np.ndarray, float]:
        """Directional differences, and how far the estimate is from them. Differences are known up
        to the rounding of the loss divided by the step, so errors below that count as none."""
        size = self.x.size
        directions = np.eye(size) if size <= DIRECTIONS else rng.standard_normal((DIRECTIONS, size))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        # Central differences of fourth order: error h^4, so a step that rounding does not see.
        step = 1e-3 * max(1.0, float(jnp.max(jnp.abs(self.x))))
        differences = []
        for direction in directions:
            move = lambda k, d=direction: float(loss(self.x + k * step * d))  # noqa: E731
            differences.append((8 * (move(1) - move(-1)) - (move(2) - move(-2))) / (12 * step))
        found = np.asarray(differences)
        noise = 1e-14 * max(1.0, abs(float(loss(self.x)))) / step
        gap = float(np.linalg.norm(directions @ np.asarray(value) - found))
        if gap <= 10 * noise * np.sqrt(len(found)):
            return found, 0.0
        return found, gap / max(float(np.linalg.norm(found)), noise)

    def _smallest_eigenvalue(self, y: Flat, rng: np.random.Generator) -> float:
        if y.size <= DENSE_SIZE:
            return float(jnp.linalg.eigvalsh(jax.hessian(self.inner, 1)(self.x, y))[0])
        # Power iteration on |H| I - H: its largest eigenvalue is |H| minus the smallest of H.
        _, hvp = jax.linearize(lambda z: jax.grad(self.inner, 1)(self.x, z), y)
        start = jnp.asarray(rng.standard_normal(y.size))

        def rayleigh(shift: Array, v: Array) -> tuple[Array, Array]:
            for _ in range(60):
                v = hvp(v) - shift * v
                v = v / jnp.linalg.norm(v)
            return v @ hvp(v), v

        largest, _ = rayleigh(jnp.zeros(()), start)
        return float(rayleigh(jnp.abs(largest), start)[0])

    def _explain_zero(
        self, y: Flat, differences: np.ndarray, rng: np.random.Generator
    ) -> list[str]:
        """Leaves of x whose cross derivative is exactly zero."""
        messages = []
        # One difference for each coordinate, where x is small enough for that.
        known = differences if len(differences) == self.x.size else np.zeros(self.x.size)
        moves = jax.tree.leaves(self.unravel_x(jnp.asarray(known)))
        _, pull = jax.vjp(lambda x: jax.grad(self.inner, 1)(x, y), self.x)
        covector = jnp.asarray(rng.standard_normal(y.size))
        cross = self.unravel_x(pull(covector)[0])
        direct = self.unravel_x(jax.grad(self.outer)(self.x, y))
        leaves = jax.tree_util.tree_leaves_with_path(cross)
        for (path, leaf), own, moved in zip(leaves, jax.tree.leaves(direct), moves, strict=True):
            if np.any(np.asarray(leaf) != 0):
                continue
            name = trees.leaf_name(path, "outer_var")
            zero = f"{name} does not reach the inner loss: its cross derivative is exactly zero."
            if np.any(np.asarray(moved)) and not np.any(np.asarray(own)):
                messages.append(
                    f"{zero} But the outer loss does change with {name}: a gradient is stopped "
                    f"somewhere (stop_gradient, rounding, a conversion to NumPy)."
                )
            elif np.any(np.asarray(own) != 0):
                messages.append(f"note: {zero} Only its direct effect on the outer loss moves it.")
            else:
                messages.append(
                    f"{zero} It does not reach the outer loss either, so its hypergradient is "
                    f"always zero; let inner depend on it."
                )
        return messages

    def _explain_inner(self, y: Flat, eigenvalue: float, messages: list[str]) -> None:
        slope = float(trees.norm(jax.grad(self.inner, 1)(self.x, y)))
        if not slope <= 1e-6 * (1 + float(trees.norm(y))):
            cure = "Is it bounded below, smooth and finite? An inner_argmin would help."
            if self.problem.inner_argmin is not None:
                cure = "It is the problem's inner_argmin that says so: its formula is wrong."
            messages.append(
                f"the inner problem could not be solved: |grad_y g| = {slope:.1e} at the best y "
                f"found. {cure}"
            )
        if not eigenvalue > 0:
            messages.append(
                f"the inner problem is not strongly convex at its solution: the smallest "
                f"eigenvalue of its Hessian is {eigenvalue:.1e}. y*(x) is then not unique or not "
                f"a minimum; add a ridge term, or use GMRES() if it is a saddle on purpose."
            )


def _relative(left: Array, right: Array) -> float:
    scale = max(float(trees.norm(right)), 1e-12)
    return float(trees.norm(left - right)) / scale
