"""Minimisers of smooth functions of a vector, as loops that can be compiled and vmapped.

- `minimise`: damped Newton. The step comes from a model (value, gradient, Hessian); a step that
  does not pay is taken back and the damping grows, so that an iteration costs one evaluation. For a
  quadratic the first step is the last.
- `spectral`: spectral projected gradient, for functions whose Hessian is too large to form.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

Vector = Float[Array, " d"]
Matrix = Float[Array, "d d"]
Scalar = Float[Array, ""]
Project = Callable[[Vector], Vector]


class Model(NamedTuple):
    """A function at a point: value, gradient, Hessian (or `None` where it is never formed), and how
    large the terms are that cancel in the gradient. `extra` is what else the evaluation found."""

    value: Scalar
    gradient: Vector
    hessian: Matrix | None
    scale: Scalar
    extra: Any = None


class Minimum(NamedTuple):
    """Where a loop stopped, with the model there and its residual."""

    point: Vector
    model: Model
    residual: Scalar
    steps: Int[Array, ""]


def fixed_point_residual(project: Project, point: Vector, model: Model) -> Scalar:
    """|x - project(x - grad)| / max(1, scale): zero exactly at the stationary points of X."""
    moved = point - project(point - model.gradient)
    return jnp.linalg.norm(moved) / jnp.maximum(1, model.scale)


def minimise(
    evaluate: Callable[[Vector], Model],
    propose: Callable[[Vector, Model, Scalar], Vector],
    start: Vector,
    *,
    project: Project = lambda point: point,
    tolerance: float,
    max_steps: int,
) -> Minimum:
    """Damped Newton from `start`; `propose(z, model, damping)` minimises the damped model."""
    eps = jnp.finfo(start.dtype).eps

    class State(NamedTuple):
        point: Vector
        model: Model
        residual: Scalar
        damping: Scalar
        steps: Int[Array, ""]
        stalled: Bool[Array, ""]

    def unfinished(s: State) -> Bool[Array, ""]:
        return ~(s.residual <= tolerance) & (s.steps < max_steps) & ~s.stalled

    def iterate(s: State) -> State:
        # The start is evaluated in the loop, too: one copy of `evaluate` to compile, not two.
        first = s.steps < 0
        point = jnp.where(first, start, propose(s.point, s.model, s.damping))
        move = point - s.point
        # A failed factorisation gives NaN; evaluate somewhere finite and reject it below.
        usable = jnp.all(jnp.isfinite(move))
        point = jnp.where(usable, point, s.point)
        model = evaluate(point)
        residual = fixed_point_residual(project, point, model)
        promised = -jnp.vdot(s.model.gradient, move)
        gained = s.model.value - model.value
        noise = 16 * eps * jnp.maximum(1, jnp.abs(s.model.value))
        # Close to the optimum the values agree to rounding, and the residual has to decide.
        paid = (gained >= 1e-4 * promised) & (promised > 0)
        level = (jnp.abs(gained) <= noise) & (residual < s.residual)
        good = usable & jnp.all(jnp.isfinite(model.gradient)) & (paid | level)
        length = jnp.linalg.norm(move)
        size = jnp.linalg.norm(s.model.gradient)
        firmer = jnp.maximum(4 * s.damping, jnp.where(usable & (length > 0), size / length, size))
        softer = jnp.where(s.damping > 1e-6 * size, s.damping / 8, 0)
        kept = jax.tree.map(
            lambda a, b: jnp.where(good | first, a, b), (point, model), (s.point, s.model)
        )
        return State(
            point=kept[0],
            model=kept[1],
            residual=jnp.where(good | first, residual, s.residual),
            damping=jnp.where(first, 0, jnp.where(good, softer, firmer)),
            steps=s.steps + 1,
            stalled=~first & ~good & usable & (jnp.abs(promised) <= noise),
        )

    last = jax.lax.while_loop(
        unfinished,
        iterate,
        State(
            start,
            _blank(evaluate, start),
            residual=jnp.full((), jnp.inf, start.dtype),
            damping=jnp.zeros((), start.dtype),
            steps=jnp.full((), -1, jnp.int32),
            stalled=jnp.asarray(False),
        ),
    )
    return Minimum(last.point, last.model, last.residual, last.steps)


def spectral(
    evaluate: Callable[[Vector], Model],
    start: Vector,
    *,
    project: Project,
    tolerance: float,
    max_steps: int,
) -> Minimum:
    """Spectral projected gradient (Birgin, Martinez and Raydan, 2000).

    Steps have the Barzilai-Borwein length, which follows the curvature met, and the line search
    lets the value rise up to the highest of the last ten.
    """
    eps = jnp.finfo(start.dtype).eps

    class State(NamedTuple):
        point: Vector
        model: Model
        direction: Vector
        share: Scalar
        highest: Float[Array, " 10"]
        residual: Scalar
        steps: Int[Array, ""]

    def unfinished(s: State) -> Bool[Array, ""]:
        return ~(s.residual <= tolerance) & (s.steps < max_steps)

    def iterate(s: State) -> State:
        first = s.steps < 0
        point = s.point + s.share * s.direction
        model = evaluate(point)
        top = jnp.max(s.highest)
        slope = s.share * jnp.vdot(s.model.gradient, s.direction)
        noise = 16 * eps * jnp.maximum(1, jnp.abs(top))
        good = model.value <= top + 1e-4 * slope + noise
        good = first | (good & jnp.all(jnp.isfinite(model.gradient)))
        move, turn = point - s.point, model.gradient - s.model.gradient
        bend = jnp.vdot(move, turn)
        length = jnp.where(bend > 0, jnp.vdot(move, move) / jnp.where(bend > 0, bend, 1), 1e3)
        length = jnp.where(first, 1 / jnp.maximum(1, jnp.linalg.norm(model.gradient)), length)
        new = State(
            point,
            model,
            project(point - length * model.gradient) - point,
            jnp.ones_like(s.share),
            jnp.where(first, model.value, jnp.roll(s.highest, 1).at[0].set(model.value)),
            fixed_point_residual(project, point, model),
            s.steps + 1,
        )
        old = s._replace(share=0.3 * s.share, steps=s.steps + 1)
        return jax.tree.map(lambda a, b: jnp.where(good, a, b), new, old)

    blank = _blank(evaluate, start)
    last = jax.lax.while_loop(
        unfinished,
        iterate,
        State(
            start,
            blank,
            jnp.zeros_like(start),
            jnp.ones((), start.dtype),
            jnp.zeros(10, blank.value.dtype),
            residual=jnp.full((), jnp.inf, start.dtype),
            steps=jnp.full((), -1, jnp.int32),
        ),
    )
    return Minimum(last.point, last.model, last.residual, last.steps)


def _blank(evaluate: Callable[[Vector], Model], start: Vector) -> Model:
    shapes = jax.eval_shape(evaluate, start)
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
