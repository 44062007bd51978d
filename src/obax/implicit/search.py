r"""The leader's optimum over X, from several starts, with evidence that it is the global minimum.

A search evaluates phi at many points, descends from the lowest by Newton (`minimise`), and then
evaluates phi around the point that it reached. If anything is lower it continues from there.
Otherwise the values show whether phi is convex along the segments between these points. Where it
is not, phi is scanned at many more points, and a descent starts from each that is lower than its
neighbours. How many of the descents reached the lowest value is part of the result. All points are
determined by the problem, so that the same question has the same answer.

The evidence for a local minimum is the least curvature among the directions that the constraints
leave free: with D the derivative of the projection at $x - \nabla \phi / L$, which is $c$ times a
projector,

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
from .kinks import descend_to_kink
from .minimise import (
    Minimum,
    Model,
    Scalar,
    Vector,
    firmness,
    minimise,
    relative_residual,
)
from .newton import newton_point, quadratic_program
from .places import Grid, Points, Probes, first_points, region_of, targets
from .point import Answer, Point, answer, one_round, solve_follower
from .problem import FlatProblem, Total, length_of

HOPS = 6
# A Hessian of phi with so many columns takes 128 MiB in float64.
LONGEST = 4096


class Pair(NamedTuple):
    """The leader's optimum with the follower's answer, the relative residuals of both, and the
    least curvature of phi in the free directions, divided by the largest.

    `descents` is the number of descents from other starts: 0 where phi is convex on the points
    evaluated, -1 where there was no search for other minima. `agreeing` of them reached the value
    at x, and `resolved` says whether a grid of an interval saw every valley. `above` bounds how far
    phi is above its minimum where x is at a kink and phi is convex; otherwise it is infinite.
    """

    x: Vector
    y: Vector
    residual: Scalar
    inner_residual: Scalar
    curvature: Scalar
    descents: Int[Array, ""] | None = None
    agreeing: Int[Array, ""] | None = None
    resolved: Bool[Array, ""] | None = None
    above: Scalar | None = None


class Objective(NamedTuple):
    """The function that is minimised: `solve(x)` is the follower's answer, and
    `measure(function, x, y)` is a function of the point (x, y), such as phi, over the rounds."""

    solve: Callable[[Vector], Answer]
    measure: Callable[[Callable[[Point], PyTree], Vector, Vector], PyTree]

    def evaluate(self, x: Vector) -> Model:
        """Return the model at the follower's answer, which is its `extra`."""
        answered = self.solve(x)
        return self.measure(Point.model, x, answered.y)._replace(extra=answered)

    def value_at(self, x: Vector) -> Scalar:
        """Return phi at x, infinite where it is not a number."""
        value = self.measure(Point.value, x, self.solve(x).y)
        return jnp.where(jnp.isnan(value), jnp.inf, value)

    def slope_at(self, x: Vector) -> tuple[Scalar, Vector]:
        """Return phi and its gradient."""
        pair = x, self.solve(x).y
        value, slope = self.measure(lambda point: (point.value(), point.gradient()), *pair)
        return value.astype(x.dtype), slope


def solve_round(flat: FlatProblem, round: PyTree, starts: Points) -> Pair:
    """Return (x*_t, y*_t(x*_t)) of one round; `starts` are evaluated too."""
    starts = jnp.concatenate([starts, targets(flat, round)])
    return _search(flat, _of_round(flat, round), starts)


def check_round(flat: FlatProblem, x: Vector, round: PyTree) -> Pair:
    """Return the same where x*_t is known: its residuals are measured, not assumed."""
    _check_size(flat)
    model = _of_round(flat, round).evaluate(x)
    unknown = relative_residual(flat.region, x, model)
    residual, curvature, _ = evidence(flat, Minimum(x, model, unknown, jnp.asarray(0)))
    none = jnp.asarray(0)
    return Pair(
        x, model.extra.y, residual, model.extra.residual, curvature, none - 1, none, none > 0
    )


def solve_stage(flat: FlatProblem, rounds: PyTree, weights: Vector, starts: Points) -> Pair:
    """Return (x_s*, y_s*(x_s*)) of rounds whose losses f and g are both summed, with weights."""

    def total(function: Callable[[PyTree], PyTree]) -> PyTree:
        def weighted(round: PyTree, weight: Scalar) -> PyTree:
            return jax.tree.map(lambda leaf: leaf * weight.astype(leaf.dtype), function(round))

        return flat.sum_rounds(weighted, rounds, weights)

    return _search(flat, _of_total(flat, total, lambda x: solve_follower(flat, total, x)), starts)


def solve_static(flat: FlatProblem, rounds: PyTree, starts: Points) -> Pair:
    """Return x* of the whole horizon, where every round has its own follower: `y` is empty.

    The mean of the rounds is minimised: the same point, and residuals that do not grow with T.
    """

    def mean(function: Callable[[Point], PyTree], x: Vector, _: Vector) -> PyTree:
        """Average a function of the points (x, y*_t(x)) over the rounds."""

        def of_round(round: PyTree) -> PyTree:
            result = function(Point(flat, one_round(round), x, answer(flat, x, round).y))
            if isinstance(result, Model):
                # In the mean the gradients of the rounds cancel, those of linear losses too.
                scale = result.scale + jnp.linalg.norm(result.gradient)
                result = result._replace(scale=scale)
            return result

        whole = flat.sum_rounds(of_round, rounds)
        return jax.tree.map(lambda leaf: leaf / length_of(rounds), whole)

    empty = Answer(jnp.zeros(0, flat.dtype), jnp.zeros((), flat.dtype))
    return _search(flat, Objective(lambda x: empty, mean), starts)


def _of_total(flat: FlatProblem, total: Total, solve: Callable[[Vector], Answer]) -> Objective:
    return Objective(solve, lambda function, x, y: function(Point(flat, total, x, y)))


def _of_round(flat: FlatProblem, round: PyTree) -> Objective:
    return _of_total(flat, one_round(round), lambda x: answer(flat, x, round))


def _check_size(flat: FlatProblem) -> None:
    if flat.outer_dim > LONGEST:
        raise ValueError(
            f"x must have at most {LONGEST} numbers for a comparator, whose search and check use "
            f"the dense Hessian of phi, but has {flat.outer_dim}. regret.local needs none."
        )


class _Descents(NamedTuple):
    """Starts of further descents where phi is not convex, and the values that they reached."""

    starts: Points
    number: Int[Array, ""]
    done: Int[Array, ""]
    reached: Array
    resolved: Bool[Array, ""]


class _State(NamedTuple):
    """Best point so far with its evidence, and the next phase: see `_search`. `unfinished` is the
    largest residual at the end of a descent."""

    best: Vector
    model: Model
    residual: Scalar
    curvature: Scalar
    direction: Vector
    unfinished: Scalar
    first_values: Array
    descents: _Descents
    phase: Int[Array, ""]
    hops: Int[Array, ""]


HOPPING, DESCENDING, DONE = range(3)


def _search(flat: FlatProblem, objective: Objective, starts: Points) -> Pair:
    """Return the best pair that is found: hop downhill; if phi is then seen not to be convex,
    descend from every valley of a grid and hop once more. All rounds of a `vmap` take as many
    turns as the slowest."""
    _check_size(flat)
    given = jax.vmap(flat.project)(starts)
    region = region_of(flat, given)
    initial = first_points(flat, given, region)
    probes, grid = Probes(initial, region), Grid.of(flat, region)
    looks = flat.solver.starts != 0

    def values_if(wanted: Bool[Array, ""], points: Points) -> Array:
        """Evaluate phi at the points if wanted. A loop, because a `vmap` takes every branch."""

        def evaluate(_: tuple) -> tuple:
            return jnp.asarray(False), jax.lax.map(objective.value_at, points)

        blank = jnp.full(len(points), jnp.inf, value_dtype)
        return jax.lax.while_loop(lambda state: state[0], evaluate, (wanted, blank))[1]

    def scan_if(wanted: Bool[Array, ""], descents: _Descents) -> _Descents:
        """Scan the grid if wanted, and return the descents from its valleys.

        The points are shifted by a zero that the loop changes: XLA moves what a loop does not
        change in front of it, where the scan would be made whether it is wanted or not.
        """

        def scan(state: tuple) -> tuple:
            _, descents, shift = state
            values = jax.lax.map(lambda x: objective.value_at(x + shift), grid.points)
            starts, number, resolved = grid.valleys(values)
            new = descents._replace(starts=starts, number=number, resolved=resolved)
            return jnp.asarray(False), new, shift + 1

        start = (wanted, descents, jnp.zeros((), flat.dtype))
        return jax.lax.while_loop(lambda state: state[0], scan, start)[1]

    def turn(s: _State) -> _State:
        first, hopping, d = s.hops == 0, s.phase == HOPPING, s.descents
        points = jnp.where(first, initial, probes.around(flat, s.best, s.direction))
        values = values_if(hopping, points)
        lowest = jnp.argmin(values)
        noise = 64 * jnp.finfo(values.dtype).eps * jnp.abs(s.model.value)
        lower = hopping & (first | (values[lowest] < s.model.value - noise))
        descending = s.phase == DESCENDING
        start = jnp.where(hopping, points[lowest], d.starts[d.done])
        reached = descend(flat, objective, start, lower | descending)
        residual, curvature, direction = evidence(flat, reached)
        # A descent may end above its start, in NaN or by the rounding of its values.
        better = (lower | descending) & (first | (reached.model.value < s.model.value))
        s = trees.select(
            better,
            s._replace(
                best=reached.point, model=reached.model, residual=residual, curvature=curvature,
                direction=direction, unfinished=jnp.maximum(s.unfinished, residual),
            ),
            s,
        )  # fmt: skip
        first_values = jnp.where(first, values, s.first_values)
        ended = d._replace(reached=d.reached.at[d.done].set(reached.model.value), done=d.done + 1)
        d = trees.select(descending, ended, d)
        hops = s.hops + jnp.where(hopping, 1, 0)
        settled = hopping & (~better | (hops >= HOPS))
        convex = probes.convex(s.model.value, s.direction, first_values, values, flat.tolerance)
        scanned = settled & (d.number == 0) & ~(convex & ~lower) & looks
        d = scan_if(scanned, d) if looks else d
        over = descending & (d.done >= d.number)
        phase = jnp.where(scanned, DESCENDING, jnp.where(settled, DONE, s.phase))
        # After the descents there is room for two more hops from the best of them.
        phase, hops = jnp.where(over, HOPPING, phase), jnp.where(over, HOPS - 2, hops)
        return s._replace(first_values=first_values, descents=d, phase=phase, hops=hops)

    blank = jax.tree.map(jnp.zeros_like, jax.eval_shape(objective.evaluate, flat.start))
    value_dtype = blank.value.dtype
    zero, still, none = jnp.zeros((), flat.dtype), jnp.zeros_like(flat.start), jnp.asarray(0)
    nowhere = jnp.broadcast_to(still, (grid.most, still.size))
    unreached = jnp.full(grid.most, jnp.inf, value_dtype)
    start = _State(
        flat.start, blank, zero, zero, still, zero,
        jnp.zeros(len(initial), value_dtype),
        _Descents(nowhere, none, none, unreached, jnp.asarray(False)),
        jnp.asarray(HOPPING), none,
    )  # fmt: skip
    last = jax.lax.while_loop(lambda s: s.phase != DONE, turn, start)
    pair = _judged(flat, last, looks)
    return pair if flat.inner_set is None else _at_kink(flat, objective, pair, region.reach)


def _judged(flat: FlatProblem, last: _State, looks: bool) -> Pair:
    """Return the pair that a search ended at, with the evidence that it is the global minimum."""
    d, answered, value = last.descents, last.model.extra, last.model.value
    # Descents that reach the same value have found the same minimum, or as good a one. A minimum
    # of zero is reached to the rounding of the other values.
    gaps = jnp.abs(last.first_values - value)
    rounding = 64 * jnp.finfo(value.dtype).eps * jnp.median(jnp.where(jnp.isfinite(gaps), gaps, 0))
    close = 10 * flat.tolerance * (jnp.abs(d.reached) + jnp.abs(value)) + rounding
    started = jnp.arange(len(d.reached)) < d.number
    agreeing = jnp.sum(started & (d.reached <= value + close))
    # A gradient that is zero by underflow follows descents that were never finished: the infimum
    # is not attained.
    model = last.model
    flattened = jnp.all(model.hessian == 0) & jnp.all(model.gradient == 0)
    residual = jnp.where(flattened, last.unfinished, last.residual)
    return Pair(
        last.best, answered.y, residual, answered.residual, last.curvature,
        d.number if looks else jnp.asarray(-1), agreeing, d.resolved,
    )  # fmt: skip


def _at_kink(flat: FlatProblem, objective: Objective, pair: Pair, reach: Vector) -> Pair:
    """Return the pair after a search for a minimum at a kink, where Newton stopped beside one."""
    missed = ~(pair.residual <= flat.tolerance)
    extent = jnp.linalg.norm(reach)
    kink = descend_to_kink(objective.slope_at, flat.project, pair.x, extent, missed)
    model = objective.evaluate(kink.point)
    unknown = relative_residual(flat.region, kink.point, model)
    here = Minimum(kink.point, model, unknown, jnp.asarray(0))
    residual, curvature, _ = evidence(flat, here)
    size = jnp.maximum(jnp.abs(model.value).astype(flat.dtype), jnp.finfo(flat.dtype).tiny)
    above = kink.above / size
    # A loss that is the least one to the tolerance is reached, whatever its gradient is.
    residual = jnp.where(above <= flat.tolerance, above, residual)
    new = pair._replace(
        x=kink.point, y=model.extra.y, residual=residual, inner_residual=model.extra.residual,
        curvature=curvature, above=kink.above,
    )  # fmt: skip
    return trees.select(missed, new, pair._replace(above=jnp.full_like(kink.above, jnp.inf)))


def descend(
    flat: FlatProblem, objective: Objective, start: Vector, active: Bool[Array, ""]
) -> Minimum:
    """Return a local minimum over X, downhill of `start`."""

    def propose(x: Vector, model: Model, damping: Scalar) -> Vector:
        assert model.hessian is not None
        if flat.unconstrained:
            return newton_point(x, model.gradient, model.hessian, damping)
        return quadratic_program(flat.project, x, model.gradient, model.hessian, damping)

    return minimise(
        objective.evaluate,
        propose,
        start,
        region=flat.region,
        tolerance=flat.goal,
        max_steps=flat.newton_steps,
        active=active,
    )


def evidence(flat: FlatProblem, reached: Minimum) -> tuple[Scalar, Scalar, Vector]:
    """Return the residual, the least eigenvalue of A relative to L, and its direction in the free
    space, which is zero where no curvature is negative."""
    x, model, region = reached.point, reached.model, flat.region
    matrix = model.hessian
    assert matrix is not None
    firm = firmness(region, jnp.linalg.norm(matrix), jnp.linalg.norm(model.gradient))
    free = None
    if region is not None:
        free = jax.jacfwd(region.project)(x - model.gradient / firm)
        free = free / jnp.sqrt(_share(jnp.vdot(free, free), jnp.trace(free)))
        identity = jnp.eye(x.size, dtype=flat.dtype)
        matrix = firm * identity - free @ (firm * identity - matrix) @ free
    values, vectors = jnp.linalg.eigh((matrix + matrix.T) / 2)
    direction = vectors[:, 0] if free is None else free @ vectors[:, 0]
    curvature = values[0] / firm
    direction = jnp.where(curvature < -curvature_noise(flat.dtype), direction, 0)
    return reached.residual, curvature, direction / _share(jnp.linalg.norm(direction), 1)


def _share(part: Scalar, whole: Scalar | float) -> Scalar:
    """Return part / whole, or 1 where part is zero."""
    return jnp.where(part > 0, part / jnp.where(part > 0, whole, 1), 1)


def curvature_noise(dtype: np.dtype) -> float:
    """Return how far rounding may push a relative curvature below zero."""
    return float(jnp.finfo(dtype).eps) ** 0.5
