"""How a level moves: step sizes, schedules, numbers of steps, optax transformations."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Int

from .._support import trees, validation
from .._support.trees import PyTree

Schedule = Callable[[Int[Array, ""]], Any]
Number = float | Array | Schedule
Steps = int | Array | Schedule
When = Callable[[Int[Array, ""]], Any]


class Descent(eqx.Module):
    """How a level moves: var + rate_t * u, with u = -gradient or what an optax transformation says.

    The step size is a number or a schedule of t; with an optimiser it scales the optimiser's own
    update and is 1 unless given.
    """

    step_size: Array | Schedule
    optimiser: optax.GradientTransformation | None

    def __init__(
        self, step_size: Number | None, optimiser: optax.GradientTransformation | None, level: str
    ):
        name = f"{level}_step_size"
        if optimiser is not None and not isinstance(optimiser, optax.GradientTransformation):
            raise ValueError(
                f"{level}_optimiser must be an optax.GradientTransformation such as "
                f"optax.adam(1e-3), but got {optimiser!r}."
            )
        if step_size is None and optimiser is None:
            raise ValueError(f"{name} must be a number > 0 or a schedule t -> number; got None.")
        if step_size is None:
            step_size = 1.0
        self.step_size = (
            step_size if callable(step_size) else validation.positive_number(step_size, name)
        )
        self.optimiser = optimiser

    def check(self, name: str) -> None:
        """Evaluate a schedule at t = 1: one finite number >= 0 (0 holds the level still)."""
        if not callable(self.step_size):
            return
        first = self.step_size(jnp.asarray(1, jnp.int32))
        array = validation.as_number(first, f"{name}(1)")
        if array.shape != () or (trees.is_concrete(array) and float(array) < 0):
            raise ValueError(f"{name}(t) must be one number >= 0, but at t = 1 it is {first!r}.")

    def init(self, var: PyTree) -> PyTree:
        """The optimiser's state, empty for plain gradient steps."""
        return () if self.optimiser is None else self.optimiser.init(var)

    def rate(self, t: Int[Array, ""]) -> Array:
        """The step size of round t."""
        return jnp.asarray(self.step_size(t) if callable(self.step_size) else self.step_size)

    def apply(
        self, var: PyTree, gradient: PyTree, optimiser_state: PyTree, rate: Array
    ) -> tuple[PyTree, PyTree]:
        """One step."""
        if self.optimiser is None:
            return trees.scaled_add(var, -rate, gradient), optimiser_state
        with trees.standard_promotion():
            update, optimiser_state = self.optimiser.update(gradient, optimiser_state, var)
        return trees.scaled_add(var, rate, update), optimiser_state


def checked_when(when: When | None) -> When | None:
    """Evaluate at t = 1 the rule that says in which rounds the leader moves: one bool."""
    if when is None:
        return None
    validation.function(when, "outer_when", "t -> bool")
    first = jax.eval_shape(when, jnp.asarray(1, jnp.int32))
    if getattr(first, "shape", None) != () or first.dtype != jnp.bool_:
        raise ValueError(
            f"outer_when(t) must return one bool, such as t >= 80, but returns {first}."
        )
    return when


def checked_steps(inner_steps: Steps) -> Steps:
    """K: an int >= 1 (fixed), an integer array (traced: can be swept) or a schedule of t."""
    if callable(inner_steps) or isinstance(inner_steps, jax.Array):
        if isinstance(inner_steps, jax.Array):
            if not jnp.issubdtype(inner_steps.dtype, jnp.integer):
                raise ValueError(
                    f"inner_steps must be an integer >= 1, but its dtype is {inner_steps.dtype}."
                )
            if inner_steps.shape != ():
                raise ValueError(
                    f"inner_steps must be one integer, but has shape {inner_steps.shape}."
                )
            if trees.is_concrete(inner_steps) and not np.all(np.asarray(inner_steps) >= 1):
                raise ValueError(f"inner_steps must be an integer >= 1, but got {inner_steps}.")
        return inner_steps
    return validation.count(inner_steps, "inner_steps")


def check_steps(inner_steps: Steps) -> None:
    """Evaluate a schedule at t = 1: one integer >= 1."""
    if callable(inner_steps):
        steps = steps_at(inner_steps, jnp.asarray(1, jnp.int32))
        if trees.is_concrete(steps) and int(steps) < 1:
            raise ValueError(f"inner_steps(t) must be >= 1, but at t = 1 it is {int(steps)}.")


def steps_at(inner_steps: Steps, t: Int[Array, ""]) -> int | Array:
    """K_t, an `int` if it is fixed and int32 if it is traced."""
    if isinstance(inner_steps, int):
        return inner_steps
    steps = jnp.asarray(inner_steps(t) if callable(inner_steps) else inner_steps)
    if not jnp.issubdtype(steps.dtype, jnp.integer) or steps.shape != ():
        raise ValueError(
            f"inner_steps(t) must return one integer, but returns {steps.dtype}"
            f"{list(steps.shape)}; wrap it in jnp.ceil(...).astype(int)."
        )
    return steps.astype(jnp.int32)
