"""Minimisers of smooth functions of a vector, as loops that can be compiled and vmapped.

- `minimise`: damped Newton. The step comes from a model (value, gradient, Hessian). A step that
  does not lower the value enough is taken back and the damping grows, so that an iteration costs
  one evaluation. A quadratic needs one step.
- `spectral`: spectral projected gradient, which needs no Hessian.

A function and a million times the function take the same steps, and residuals are relative to the
scale of the function.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._support import trees
from .._support.trees import PyTree

Vector = Float[Array, " d"]
Matrix = Float[Array, "d d"]
Scalar = Float[Array, ""]
Project = Callable[[Vector], Vector]


class Model(NamedTuple):
    """A function at a point: value, gradient, Hessian (`None` where it is not formed), and the size
    of the terms that cancel in the gradient. `extra` is any other result of the evaluation."""

    value: Scalar
    gradient: Vector
    hessian: Matrix | None
    scale: Scalar
    extra: PyTree = None


class Minimum(NamedTuple):
    """Last point of a search, with the model and the residual there."""

    point: Vector
    model: Model
    residual: Scalar
    steps: Int[Array, ""]


class Region(NamedTuple):
    """Convex set, by its projection and its diameter (infinite where it is unbounded)."""

    project: Project
    diameter: Scalar


def firmness(region: Region | None, bend: Scalar, size: Scalar) -> Scalar:
    """Return the L of a projected step of length 1/L: the curvature, and at least so much that a
    step along a gradient of that size is no longer than the diameter of X. The projection would
    hide the length of a longer one."""
    firm = bend if region is None else jnp.maximum(bend, size / region.diameter)
    return jnp.where(firm > 0, firm, 1)


def relative_residual(
    region: Region | None, point: Vector, model: Model, bend: Scalar | None = None
) -> Scalar:
    """Return L |x - project(x - grad / L)| / scale: zero exactly at the stationary points of X, at
    most 1.

    `scale` is the largest of: the terms that cancel in the gradient; |grad|, which does not vanish
    where a constraint is active; and sqrt(L |value|), so that a residual r costs about r^2 times
    the value, whatever the units are. L (`bend`) is the norm of the Hessian unless it is given.
    """
    gradient = model.gradient
    size = jnp.linalg.norm(gradient)
    if bend is None:
        bend = jnp.zeros_like(size)
        if model.hessian is not None:
            bend = jnp.linalg.norm(model.hessian)
    missing = size
    if region is not None:
        firm = firmness(region, bend, size)
        missing = firm * jnp.linalg.norm(point - region.project(point - gradient / firm))
    cost = jnp.sqrt(bend * jnp.abs(model.value).astype(size.dtype))
    scale = jnp.maximum(jnp.maximum(model.scale, size), cost)
    # Zero over zero is zero; NaN stays NaN.
    return jnp.where(missing > 0, missing / jnp.where(scale > 0, scale, 1), missing)


def minimise(
    evaluate: Callable[[Vector], Model],
    propose: Callable[[Vector, Model, Scalar], Vector],
    start: Vector,
    *,
    tolerance: float,
    max_steps: int,
    region: Region | None = None,
    bend: Callable[[Vector, Model], Scalar] | None = None,
    active: Bool[Array, ""] | bool = True,
) -> Minimum:
    """Minimise by damped Newton from `start`; `propose(z, model, damping)` minimises the damped
    model. If `active` is false nothing is evaluated and the result is meaningless.
    """
    eps = jnp.finfo(start.dtype).eps

    class State(NamedTuple):
        point: Vector
        model: Model
        residual: Scalar
        damping: Scalar
        highest: Scalar
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
        residual = relative_residual(region, point, model, bend and bend(point, model))
        promised = -jnp.vdot(s.model.gradient, move)
        gained = s.model.value - model.value
        highest = jnp.maximum(s.highest, jnp.abs(model.value))
        noise = 16 * eps * jnp.where(jnp.isfinite(highest), highest, s.highest)
        # Close to the optimum the values agree to rounding, and the residual has to decide.
        paid = (gained >= 1e-4 * promised) & (promised > 0)
        level = (jnp.abs(gained) <= noise) & (residual < s.residual)
        good = usable & jnp.all(jnp.isfinite(model.gradient)) & (paid | level)
        length = jnp.linalg.norm(move)
        # Gradients per length, as the Hessian is.
        size = jnp.linalg.norm(s.model.gradient)
        needed = jnp.where(usable & (length > 0), size / jnp.where(length > 0, length, 1), 0)
        if s.model.hessian is not None:
            needed = jnp.where(usable, needed, 1e-3 * jnp.linalg.norm(s.model.hessian))
        firmer = jnp.maximum(4 * s.damping, jnp.where(needed > 0, needed, size))
        softer = jnp.where(s.damping > 1e-6 * needed, s.damping / 8, 0)
        softer, never = jnp.where(first, 0, softer), jnp.asarray(False)
        new = State(point, model, residual, softer, highest, s.steps + 1, stalled=never)
        stuck = usable & (jnp.abs(promised) <= noise)
        old = s._replace(damping=firmer, steps=s.steps + 1, stalled=stuck)
        return trees.select(good | first, new, old)

    blank = jax.tree.map(jnp.zeros_like, jax.eval_shape(evaluate, start))
    last = jax.lax.while_loop(
        unfinished,
        iterate,
        State(
            start,
            blank,
            residual=jnp.where(active, jnp.inf, 0).astype(start.dtype),
            damping=jnp.zeros((), start.dtype),
            highest=jnp.zeros_like(blank.value),
            steps=jnp.full((), -1, jnp.int32),
            stalled=jnp.asarray(False),
        ),
    )
    return Minimum(last.point, last.model, last.residual, last.steps)


def spectral(
    evaluate: Callable[[Vector], Model],
    start: Vector,
    *,
    region: Region,
    tolerance: float,
    max_steps: int,
) -> Minimum:
    """Minimise by spectral projected gradient steps (Birgin, Martinez and Raydan, 2000).

    Steps have the Barzilai-Borwein length, an estimate of the inverse curvature, and the line
    search lets the value rise up to the highest of the last ten.
    """
    eps = jnp.finfo(start.dtype).eps

    class State(NamedTuple):
        point: Vector
        model: Model
        direction: Vector
        share: Scalar
        length: Scalar
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
        noise = 16 * eps * jnp.max(jnp.abs(s.highest))
        good = model.value <= top + 1e-4 * slope + noise
        good = first | (good & jnp.all(jnp.isfinite(model.gradient)))
        move, turn = point - s.point, model.gradient - s.model.gradient
        bend = jnp.vdot(move, turn)
        square = jnp.vdot(move, move)
        length = jnp.where(bend > 0, square / jnp.where(bend > 0, bend, 1), 10 * s.length)
        # The first step is as long as the point, or of length 1: no curvature has been met.
        reach, size = jnp.linalg.norm(point), jnp.linalg.norm(model.gradient)
        opening = jnp.where(reach > 0, reach, 1) / jnp.where(size > 0, size, 1)
        length = jnp.where(first, opening, length)
        met = jnp.where((bend > 0) & (square > 0), bend / jnp.where(square > 0, square, 1), 0)
        new = State(
            point,
            model,
            region.project(point - length * model.gradient) - point,
            jnp.ones_like(s.share),
            length,
            jnp.where(first, model.value, jnp.roll(s.highest, 1).at[0].set(model.value)),
            relative_residual(region, point, model, met),
            s.steps + 1,
        )
        old = s._replace(share=0.3 * s.share, steps=s.steps + 1)
        return trees.select(good, new, old)

    blank = jax.tree.map(jnp.zeros_like, jax.eval_shape(evaluate, start))
    last = jax.lax.while_loop(
        unfinished,
        iterate,
        State(
            start,
            blank,
            jnp.zeros_like(start),
            jnp.ones((), start.dtype),
            jnp.ones((), start.dtype),
            jnp.zeros(10, blank.value.dtype),
            residual=jnp.full((), jnp.inf, start.dtype),
            steps=jnp.full((), -1, jnp.int32),
        ),
    )
    return Minimum(last.point, last.model, last.residual, last.steps)
