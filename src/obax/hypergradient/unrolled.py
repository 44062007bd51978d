"""Reverse-mode differentiation through the follower's own steps."""

from collections.abc import Callable
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._support.checks import Checked
from .._support.trees import PyTree
from .base import Estimate, Hypergradient, Remedy, System, relative


class Unrolled(Checked, Hypergradient, prefix="Unrolled."):
    """An estimator that differentiates the K steps that made y_{t+1}, and not a solution.

    hypergradient = grad_x f + (d y_{t+1} / dx)^T grad_y f, exact for that finite loop. Its length
    must be fixed, so K_t may not vary with t. With `rematerialise` (the default) the steps are
    computed again on the way back and memory holds only the K iterates.

    The residual is |d f / d y_t| / |grad_y f|: how much y_{t+1} still depends on y_t. For a
    quadratic g it is |H v - grad_y f| / |grad_y f|, as for the other estimators.
    """

    remedy: ClassVar[Remedy] = Remedy(
        "the derivative through the follower's steps still depends on their start, with",
        "more inner_steps, an inner_step_size below 2 / |H|, or CG(), which needs no steps",
    )
    rematerialise: bool = True

    def estimate(self, system: System, carry: PyTree) -> Estimate:
        raise ValueError(
            "Unrolled differentiates the follower's steps and cannot be evaluated at a point "
            "(x, y); use Dense() or CG() there."
        )


class ThroughSteps(Hypergradient):
    """The estimator of `Unrolled` in one round, made from the steps that the follower took.

    `pull` is the pullback of (x, y_t) -> y_{t+1}, `steps` the number of steps: each costs a product
    of each kind.
    """

    pull: Callable[[PyTree], tuple[PyTree, PyTree]]
    steps: int | Array

    def estimate(self, system: System, carry: PyTree) -> Estimate:
        gradient_x, gradient_y = system.outer_gradient
        pulled_x, pulled_start = self.pull(gradient_y)
        return Estimate(
            value=jax.tree.map(jnp.add, gradient_x, pulled_x),
            residual=relative(pulled_start, gradient_y),
            carry=carry,
            hvps=jnp.asarray(self.steps, jnp.int32),
            cross_products=jnp.asarray(self.steps, jnp.int32),
        )
