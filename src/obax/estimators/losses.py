"""What a row costs, for each kind of target: the loss, its slope, and the proximal step.

A model has K outputs z = (y_k . a)_k: one for two classes and for regression, C for C classes. In
`z` the follower's step on a row is small, whatever the number of features (see `sample`):

    z* = argmin_z  sum_k (z_k - z0_k)^2 / (2 v_k) + weight * loss(z + shift, target).

`shift` is the logit adjustment and `weight` the class weight; both are neutral unless asked for.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

NEWTON_STEPS = 12
LOGIT_VARIANCE = math.pi / 8


class Sigmoid(NamedTuple):
    """Two classes, one logit; the target is 0 or 1."""

    outputs: int = 1
    classify: bool = True

    def loss(self, z: Float[Array, " K"], target: Array) -> Float[Array, ""]:
        return jax.nn.softplus(jnp.where(target > 0, -z[0], z[0]))

    def slope(self, z: Float[Array, " K"], target: Array) -> Float[Array, " K"]:
        """-d loss / dz."""
        return (target > 0).astype(z.dtype) - jax.nn.sigmoid(z)

    def curvature(self, z: Float[Array, " K"], target: Array) -> Float[Array, " K"]:
        return jax.nn.sigmoid(z) * jax.nn.sigmoid(-z)

    def shift(self, by_class: Float[Array, " C"]) -> Float[Array, " K"]:
        """The adjustment of a logit from those of the classes."""
        return by_class[1:2] - by_class[0:1]

    def start(
        self, z0: Array, v: Array, target: Array, weight: Array, shift: Array
    ) -> Float[Array, " K"]:
        """z*, by Newton steps kept inside a bracket that always holds the root."""
        low, high, z = z0 - weight * v, z0 + weight * v, z0
        for _ in range(NEWTON_STEPS):
            p = jax.nn.sigmoid(z + shift)
            error = z - z0 - weight * v * ((target > 0).astype(z.dtype) - p)
            low, high = jnp.where(error < 0, z, low), jnp.where(error < 0, high, z)
            newton = z - error / (1 + weight * v * p * (1 - p))
            inside = (newton >= low) & (newton <= high)
            z = jnp.where(inside, newton, 0.5 * (low + high))
        return z

    def refine(
        self, z: Array, z0: Array, v: Array, target: Array, weight: Array, shift: Array
    ) -> Float[Array, " K"]:
        """One Newton step from z. Taken from the root it does not move, but its derivative is that
        of the root: the implicit function theorem in one line."""
        z = jax.lax.stop_gradient(z)
        error = z - z0 - weight * v * self.slope(z + shift, target)
        gain = jax.lax.stop_gradient(1 + weight * v * self.curvature(z + shift, target))
        return z - error / gain


class Softmax(NamedTuple):
    """C classes, one logit each; the target is the index of the class."""

    outputs: int
    classify: bool = True

    def loss(self, z: Float[Array, " K"], target: Array) -> Float[Array, ""]:
        return -jax.nn.log_softmax(z)[target.astype(jnp.int32)]

    def slope(self, z: Float[Array, " K"], target: Array) -> Float[Array, " K"]:
        mine = jnp.arange(z.shape[0], dtype=jnp.int32) == target.astype(jnp.int32)
        return mine.astype(z.dtype) - jax.nn.softmax(z)

    def curvature(self, z: Float[Array, " K"], target: Array) -> Float[Array, " K"]:
        p = jax.nn.softmax(z)
        return p * (1 - p)

    def shift(self, by_class: Float[Array, " C"]) -> Float[Array, " K"]:
        return by_class

    def start(
        self, z0: Array, v: Array, target: Array, weight: Array, shift: Array
    ) -> Float[Array, " K"]:
        def step(_: Array, z: Array) -> Array:
            move = self._newton(z, z0, v, target, weight, shift)
            # Damped: a full step from far away can overshoot where the softmax is flat.
            return z - move / (1 + 0.5 * jnp.max(jnp.abs(move)))

        return jax.lax.fori_loop(0, NEWTON_STEPS, step, z0)

    def refine(
        self, z: Array, z0: Array, v: Array, target: Array, weight: Array, shift: Array
    ) -> Float[Array, " K"]:
        z = jax.lax.stop_gradient(z)
        return z - self._newton(z, z0, v, target, weight, shift)

    def _newton(
        self, z: Array, z0: Array, v: Array, target: Array, weight: Array, shift: Array
    ) -> Array:
        """J^-1 F for F = (z - z0) / v - weight (e - p), J = diag(1 / v + weight p) - weight p p'.

        Both times v, so that a logit with v = 0 stays where it is.
        """
        p = jax.lax.stop_gradient(jax.nn.softmax(z + shift))
        wv = jax.lax.stop_gradient(weight * v)
        error = z - z0 - weight * v * self.slope(z + shift, target)
        inverse = 1 / (1 + wv * p)
        left, right = inverse * error, inverse * wv * p
        return left + right * jnp.dot(p, left) / (1 - jnp.dot(p, right))


class Squared(NamedTuple):
    """Half the squared error, in deviations of the target."""

    outputs: int = 1
    classify: bool = False

    def loss(self, z: Float[Array, " K"], target: Array) -> Float[Array, ""]:
        return 0.5 * (z[0] - target) ** 2

    def slope(self, z: Float[Array, " K"], target: Array) -> Float[Array, " K"]:
        return target - z

    def curvature(self, z: Float[Array, " K"], target: Array) -> Float[Array, " K"]:
        return jnp.ones_like(z)

    def start(
        self, z0: Array, v: Array, target: Array, weight: Array, shift: Array
    ) -> Float[Array, " K"]:
        return (z0 + v * target) / (1 + v)

    def refine(
        self, z: Array, z0: Array, v: Array, target: Array, weight: Array, shift: Array
    ) -> Float[Array, " K"]:
        return (z0 + v * target) / (1 + v)


class Huber(NamedTuple):
    """Squared up to `delta` deviations of the target, linear beyond."""

    delta: float
    outputs: int = 1
    classify: bool = False

    def loss(self, z: Float[Array, " K"], target: Array) -> Float[Array, ""]:
        error = jnp.abs(z[0] - target)
        inside = jnp.minimum(error, self.delta)
        return inside * (error - 0.5 * inside)

    def slope(self, z: Float[Array, " K"], target: Array) -> Float[Array, " K"]:
        return jnp.clip(target - z, -self.delta, self.delta)

    def curvature(self, z: Float[Array, " K"], target: Array) -> Float[Array, " K"]:
        return (jnp.abs(target - z) < self.delta).astype(z.dtype)

    def start(
        self, z0: Array, v: Array, target: Array, weight: Array, shift: Array
    ) -> Float[Array, " K"]:
        return z0 + v * jnp.clip((target - z0) / (1 + v), -self.delta, self.delta)

    def refine(
        self, z: Array, z0: Array, v: Array, target: Array, weight: Array, shift: Array
    ) -> Float[Array, " K"]:
        return z0 + v * jnp.clip((target - z0) / (1 + v), -self.delta, self.delta)


ClassLoss = Sigmoid | Softmax
Loss = ClassLoss | Squared | Huber
LOSSES = ("logistic", "squared", "huber")


def named(name: str, classes: int, delta: float) -> Loss:
    """The loss of that name; `logistic` with room for at least so many classes."""
    if name == "squared":
        return Squared()
    if name == "huber":
        return Huber(float(delta))
    return Sigmoid() if classes <= 2 else Softmax(1 << (classes - 1).bit_length())


def moderated(loss: Loss, z0: Array, v: Array) -> Array:
    """The outputs that are predicted with: a logit of variance v is drawn towards 0, as if averaged
    over its Gaussian (MacKay 1992); a mean needs no such thing."""
    return z0 / jnp.sqrt(1 + LOGIT_VARIANCE * v) if loss.classify else z0
