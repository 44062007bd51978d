r"""The leader's optimum over X, from several starts, with second-order evidence.

A search hops. It looks at the value of phi in many places, walks downhill from the lowest by
Newton (`minimise`) or, where x or y is long, by projected gradients (`spectral`), and then looks
around where it came to rest: along the axes, and along the direction of negative curvature if there
is one. If anything is lower it goes on from there. All places are fixed by the problem, so that the
same question has the same answer.

The evidence is the least curvature among the directions that the constraints leave free: with D the
derivative of the projection at $x - \nabla \phi / L$, which is $c$ times a projector,

$$ A = L I - D (L I - \nabla^2 \phi) D / c, $$

whose eigenvalues are those of the Hessian (of the Lagrangian, where the boundary is curved) in the
free directions and L in the others: x is the limit of projected gradient steps if none is negative.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from .._support import trees
from .._support.trees import PyTree
from . import solve
from .flat import Flat, Total, length_of
from .model import Answer, answer, leader_model, leader_products, one_round, solve_follower
from .places import Points, around, places
from .solve import Minimum, Model, Region, Scalar, Vector
from .spectra import extreme_eigenvalues
from .step import newton_point, quadratic_program

HOPS = 6


class Pair(NamedTuple):
    """A leader's optimum with its follower's answer, the relative residuals of both, and the least
    curvature of phi in the free directions, divided by the largest."""

    x: Vector
    y: Vector
    residual: Scalar
    inner_residual: Scalar
    curvature: Scalar


class Task(NamedTuple):
    """What is minimised: `solve(x)` is the follower's answer, `value(x, y)` is phi, `model(x, y)`
    has its derivatives, and `products(x, y)` multiplies by its Hessian."""

    solve: Callable[[Vector], Answer]
    value: Callable[[Vector, Vector], Scalar]
    model: Callable[[Vector, Vector], Model]
    products: Callable[[Vector, Vector], Callable[[Vector], Vector]]

    def evaluate(self, x: Vector) -> Model:
        """The model at the follower's answer, which is its `extra`."""
        found = self.solve(x)
        return self.model(x, found.y)._replace(extra=found)


def solve_round(flat: Flat, round: PyTree, starts: Points) -> Pair:
    """(x*_t, y*_t(x*_t)) of one round, also looking at `starts`."""
    return _search(flat, _summed(flat, one_round(round), lambda x: answer(flat, x, round)), starts)


def check_round(flat: Flat, x: Vector, round: PyTree) -> Pair:
    """The same where x*_t is known: its residuals are measured, not assumed."""
    task = _summed(flat, one_round(round), lambda x: answer(flat, x, round))
    model = task.evaluate(x)
    found = model.extra
    unknown = solve.relative_residual(flat.region, x, model)
    residual, curvature, _ = evidence(flat, task, Minimum(x, model, unknown, jnp.asarray(0)))
    return Pair(x, found.y, residual, found.residual, curvature)


def solve_stage(flat: Flat, rounds: PyTree, weights: Vector, starts: Points) -> Pair:
    """(x_s*, y_s*(x_s*)) of rounds whose losses f and g are both summed, with weights."""

    def total(function: Callable[[PyTree], PyTree]) -> PyTree:
        def weighted(round: PyTree, weight: Scalar) -> PyTree:
            return jax.tree.map(lambda leaf: leaf * weight.astype(leaf.dtype), function(round))

        return flat.sum_rounds(weighted, rounds, weights)

    return _search(flat, _summed(flat, total, lambda x: solve_follower(flat, total, x)), starts)


def solve_static(flat: Flat, rounds: PyTree, starts: Points) -> Pair:
    """x* of the whole horizon, where every round keeps its own follower. `y` and `inner_residual`
    are empty: there is one for each round.

    The mean of the rounds is minimised: the same point, and residuals that do not grow with T.
    """

    def mean(function: Callable[[PyTree], PyTree]) -> PyTree:
        whole = flat.sum_rounds(function, rounds)
        return jax.tree.map(lambda leaf: leaf / length_of(rounds), whole)

    def own(function: Callable[..., PyTree]) -> Callable[[Vector, Vector], PyTree]:
        """The mean of a round's function at the round's own answer."""
        return lambda x, _: mean(lambda r: function(one_round(r), x, answer(flat, x, r).y))

    def products(x: Vector, _: Vector) -> Callable[[Vector], Vector]:
        return lambda u: own(lambda total, x, y: leader_products(flat, total, x, y)(u))(x, _)

    def in_round(total: Total, x: Vector, y: Vector) -> Model:
        # In the mean the gradients of the rounds cancel, be they those of linear losses.
        model = leader_model(flat, total, x, y)
        return model._replace(scale=model.scale + jnp.linalg.norm(model.gradient))

    nothing = Answer(jnp.zeros(0, flat.dtype), jnp.zeros((), flat.dtype))
    task = Task(
        lambda x: nothing,
        own(lambda total, x, y: total(lambda r: flat.outer(x, y, r))),
        own(in_round),
        products,
    )
    return _search(flat, task, starts)


def _summed(flat: Flat, total: Total, answer_of: Callable[[Vector], Answer]) -> Task:
    """One follower for all rounds of the total."""
    return Task(
        answer_of,
        lambda x, y: total(lambda r: flat.outer(x, y, r)),
        lambda x, y: leader_model(flat, total, x, y),
        lambda x, y: leader_products(flat, total, x, y),
    )


def _search(flat: Flat, task: Task, starts: Points) -> Pair:
    class State(NamedTuple):
        best: Vector
        model: Model
        residual: Scalar
        direction: Vector
        curvature: Scalar
        hops: Int[Array, ""]
        moving: Bool[Array, ""]

    def value_at(x: Vector) -> Scalar:
        value = task.value(x, task.solve(x).y)
        return jnp.where(jnp.isnan(value), jnp.inf, value)

    everywhere, reach = places(flat, starts)

    def hop(s: State) -> State:
        first = s.hops == 0
        tried = jnp.where(first, everywhere, around(flat, s.best, s.direction, reach, everywhere))
        values = jax.lax.map(value_at, tried)
        lowest = jnp.argmin(values)
        noise = 64 * jnp.finfo(values.dtype).eps * jnp.abs(s.model.value)
        lower = first | (values[lowest] < s.model.value - noise)
        found = descend(flat, task, tried[lowest], lower)
        residual, curvature, direction = evidence(flat, task, found)
        new = State(
            found.point, found.model, residual, direction, curvature, s.hops + 1, jnp.asarray(True)
        )
        # A walk may end above where it started, in NaN or by the rounding of its values.
        kept = lower & (first | (found.model.value < s.model.value))
        old = s._replace(hops=s.hops + 1, moving=jnp.asarray(False))
        return trees.select(kept, new, old)

    blank = jax.tree.map(jnp.zeros_like, jax.eval_shape(task.evaluate, flat.start))
    none, still, yes = jnp.zeros((), flat.dtype), jnp.zeros_like(flat.start), jnp.asarray(True)
    start = State(flat.start, blank, none, still, none, jnp.asarray(0), moving=yes)
    last = jax.lax.while_loop(lambda s: s.moving & (s.hops < HOPS), hop, start)
    found = last.model.extra
    return Pair(last.best, found.y, last.residual, found.residual, last.curvature)


def descend(flat: Flat, task: Task, start: Vector, active: Bool[Array, ""]) -> Minimum:
    """A local minimum over X downhill of `start`."""
    if not flat.dense:
        region = flat.region or Region(flat.project, jnp.asarray(jnp.inf, flat.dtype))
        return solve.spectral(
            task.evaluate,
            start,
            region=region,
            tolerance=flat.tolerance,
            max_steps=flat.gradient_steps,
            active=active,
        )

    def propose(x: Vector, model: Model, damping: Scalar) -> Vector:
        assert model.hessian is not None
        if flat.unconstrained:
            return newton_point(x, model.gradient, model.hessian, damping)
        return quadratic_program(flat.project, x, model.gradient, model.hessian, damping)

    return solve.minimise(
        task.evaluate,
        propose,
        start,
        region=flat.region,
        tolerance=flat.goal,
        max_steps=flat.newton_steps,
        active=active,
    )


def evidence(flat: Flat, task: Task, found: Minimum) -> tuple[Scalar, Scalar, Vector]:
    """The residual; the least eigenvalue of A relative to L; and its direction in the free space,
    zero where there is no negative curvature."""
    x, model, region = found.point, found.model, flat.region
    noise = jnp.asarray(np.random.default_rng(0).standard_normal(x.size), flat.dtype)
    residual = found.residual
    if model.hessian is not None:
        bend = jnp.linalg.norm(model.hessian)
    else:
        products = task.products(x, model.extra.y)
        least, most, _ = extreme_eigenvalues(products, noise)
        bend = jnp.maximum(jnp.abs(least), jnp.abs(most))
        residual = solve.relative_residual(region, x, model, bend)
    firm = solve.firmness(region, bend, jnp.linalg.norm(model.gradient))
    at = x - model.gradient / firm

    if model.hessian is not None:
        matrix, free = model.hessian, None
        if region is not None:
            free = jax.jacfwd(region.project)(at)
            free = free / jnp.sqrt(_share(jnp.vdot(free, free), jnp.trace(free)))
            identity = jnp.eye(x.size, dtype=flat.dtype)
            matrix = firm * identity - free @ (firm * identity - matrix) @ free
        values, vectors = jnp.linalg.eigh((matrix + matrix.T) / 2)
        least, direction = values[0], vectors[:, 0]
        direction = direction if free is None else free @ direction
    else:

        def pushed(u: Vector) -> Vector:
            return u if region is None else jax.jvp(region.project, (at,), (u,))[1]

        once = pushed(noise)
        share = _share(jnp.linalg.norm(pushed(once)), jnp.linalg.norm(once))

        def curved(u: Vector) -> Vector:
            inside = pushed(u)
            return firm * u - pushed(firm * inside - products(inside)) / share

        least, _, direction = extreme_eigenvalues(curved, noise)
        direction = pushed(direction)
    curvature = least / firm
    direction = jnp.where(curvature < -curvature_noise(flat.dtype), direction, 0)
    return residual, curvature, direction / _share(jnp.linalg.norm(direction), 1)


def _share(part: Scalar, whole: Scalar | float) -> Scalar:
    """part / whole, and 1 where that is nothing: c, where D has it, without a division by zero."""
    return jnp.where(part > 0, part / jnp.where(part > 0, whole, 1), 1)


def curvature_noise(dtype: np.dtype) -> float:
    """What a relative curvature may be below zero by rounding."""
    return float(jnp.finfo(dtype).eps) ** 0.5
