"""How a level moves: step sizes, schedules, numbers of steps, optax transformations; and the
follower, which moves along the gradient of its loss."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Int

from .._support import trees
from .._support.trees import PyTree
from ..steps import CurvatureStep

Schedule = Callable[[Int[Array, ""]], Any]
Number = float | Array | Schedule

Slope = Callable[[Array, PyTree, PyTree], tuple[PyTree, PyTree]]
"""(k, z^k, buffers) -> the gradient of step k and the buffers after it."""


class Descent(NamedTuple):
    """The rule by which a level moves: var + rate_t * u, with u = -gradient or what an optax
    transformation returns.

    The step size is a number or a schedule of t; with an optimiser it scales the optimiser's own
    update and is 1 unless given. A level with neither stays where it is.
    """

    step_size: Number | CurvatureStep | None = None
    optimiser: optax.GradientTransformation | None = None
    project: Callable[[PyTree], PyTree] | None = None
    """Onto the set that the level is kept in, after each step."""

    @property
    def moves(self) -> bool:
        """True if the level has a step size or an optimiser."""
        return self.step_size is not None or self.optimiser is not None

    def check_left_out(self, level: str, why: str) -> None:
        """Raise a `ValueError` if a level that does not move has a step size or an optimiser."""
        if self.moves:
            raise ValueError(
                f"{level}_step_size and {level}_optimiser must be left out, because the problem "
                f"{why}."
            )

    def init(self, var: PyTree) -> PyTree:
        """Return the state of the optimiser or of the adaptive step; empty for other gradient
        steps."""
        if isinstance(self.step_size, CurvatureStep):
            return () if var is None else self.step_size.init(var)
        return () if self.optimiser is None else self.optimiser.init(var)

    def rate(self, t: Int[Array, ""]) -> Array:
        """Return the step size of round t."""
        step_size = 1.0 if self.step_size is None else self.step_size
        return jnp.asarray(step_size(t) if callable(step_size) else step_size)

    def apply(
        self, var: PyTree, gradient: PyTree, optimiser_state: PyTree, rate: Array
    ) -> tuple[PyTree, PyTree]:
        """Return the variable and the optimiser's state after one step."""
        if self.optimiser is None:
            new = trees.scaled_add(var, -rate, gradient)
        else:
            with trees.standard_promotion():
                update, optimiser_state = self.optimiser.update(gradient, optimiser_state, var)
            new = trees.scaled_add(var, rate, update)
        return new if self.project is None else self.project(new), optimiser_state


class Steps(NamedTuple):
    """The number of steps K_t: an `int` >= 1 (compiled in), an integer array (traced, so that it
    can be swept over) or a schedule of t."""

    given: int | Array | Schedule

    def at(self, t: Int[Array, ""]) -> int | Array:
        """Return K_t, an `int` if it is fixed and int32 if it is traced."""
        if isinstance(self.given, int):
            return self.given
        return jnp.asarray(self.given(t) if callable(self.given) else self.given).astype(jnp.int32)


class Follower(NamedTuple):
    """What moves while the follower learns."""

    inner_var: PyTree
    optimiser: PyTree
    buffers: PyTree


def descending(
    slope: Slope, descent: Descent, t: Int[Array, ""]
) -> Callable[[Array, Follower], Follower]:
    """Return the body of a loop: one step of the follower along `slope`."""
    rate = descent.rate(t)

    def one_step(k: Array, now: Follower) -> Follower:
        gradient, buffers = slope(k, now.inner_var, now.buffers)
        inner_var, optimiser = descent.apply(now.inner_var, gradient, now.optimiser, rate)
        return Follower(inner_var, optimiser, buffers)

    return one_step


def settled(
    slope: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]],
    start: Follower,
    *,
    descent: Descent,
    t: Int[Array, ""],
    size: Callable[[PyTree, PyTree], Array],
    tolerance: Array | float,
    most: int,
) -> tuple[Follower, Int[Array, ""], Array]:
    """Return a follower after as many steps as bring `size(y, gradient)` down to the tolerance, at
    most `most`; how many those were; and the size that is left. `slope(y, buffers)` returns the
    gradient and the buffers after it. It is called once more than there are steps."""
    rate = descent.rate(t)

    def look(y: PyTree, buffers: PyTree) -> tuple[PyTree, PyTree, PyTree, Array]:
        gradient, buffers = slope(y, buffers)
        return y, gradient, buffers, size(y, gradient)

    def unfinished(now: tuple) -> Bool[Array, ""]:
        steps, (*_, left) = now
        # Not near, rather than far: a NaN goes on into y, where the guard sees it.
        return (steps < most) & ~(left <= jnp.asarray(tolerance, left.dtype))

    def one(now: tuple) -> tuple:
        steps, (y, gradient, buffers, _) = now
        y, _ = descent.apply(y, gradient, (), rate)
        return steps + 1, look(y, buffers)

    first = jnp.asarray(0, jnp.int32), look(start.inner_var, start.buffers)
    steps, (y, _, buffers, left) = jax.lax.while_loop(unfinished, one, first)
    return Follower(y, (), buffers), steps, left
