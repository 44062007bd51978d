"""The base classes of estimators of the hypergradient.

With H = grad^2_yy g and J = grad^2_xy g at (x, y), the follower's answer moves as M = -J H^{-1}
(M H + J = 0), and

    hypergradient = grad_x f + M grad_y f = grad_x f - J v    with    H v = grad_y f.

A follower in a convex set moves along the face of the set that it is on. With P the projection
onto the directions of that face and b what the set's own curvature adds (`obax.domain.Face`),

    (P H P + b P + I - P) v = P grad_y f,

whose v lies in the face: a system like the other, definite where H is on the face alone.
"""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._support import messages, trees
from .._support.trees import PyTree
from ..domain import Domain, Face, Unconstrained
from ..problem import Problem

if TYPE_CHECKING:
    import lineax as lx

Inner = Callable[[PyTree, PyTree], Float[Array, ""]]
LinearMap = Callable[[PyTree], PyTree]
OuterGradient = tuple[PyTree, PyTree]


class Estimate(NamedTuple):
    """The result of an estimator for one outer gradient.

    `value` is the hypergradient; `residual` is |H v - grad_y f| / |grad_y f|; `carry` goes into the
    next call; `hvps`, `cross_products` and `gradients` (of f) count the oracle calls.
    """

    value: PyTree
    residual: Float[Array, ""] | float = 0.0
    carry: PyTree = None
    hvps: Int[Array, ""] | int = 0
    cross_products: Int[Array, ""] | int = 0
    gradients: Int[Array, ""] | int = 1


class Remedy(NamedTuple):
    """What a large residual means (`undone`), and what to try then (`cure`), for messages."""

    undone: str
    cure: str


SYSTEM = "the linear system H v = grad_y f was left with"
RIDGE = "a ridge term in the inner loss"


class Pair(NamedTuple):
    """A problem at one x and y (and buffers)."""

    problem: Problem
    outer_var: PyTree
    inner_var: PyTree
    buffers: PyTree = None

    def outer_gradient(self, round: PyTree) -> OuterGradient:
        """Return (grad_x f, grad_y f); the second is `None` without a follower."""
        at = self.outer_var, self.inner_var, round, self.buffers
        if self.inner_var is None:
            return jax.grad(self.problem.outer_loss)(*at), None
        return jax.grad(self.problem.outer_loss, argnums=(0, 1))(*at)

    def inner_of(self, round: PyTree) -> Inner:
        """Return the function (x, y) -> g_t(x, y), its buffers held still."""
        return lambda x, y: self.problem.inner_loss(x, y, round, self.buffers)[0]

    def solve(
        self, estimator: "Hypergradient", inner: Inner, gradient: OuterGradient, carry: PyTree
    ) -> Estimate:
        """Return grad_x f + M grad_y f with the M of this inner loss."""
        # An estimator need not know of a `domain` where there is none.
        constrained = self.problem.constrains_follower
        domain = {"domain": self.problem.inner_domain} if constrained else {}
        return estimator(inner, self.outer_var, self.inner_var, gradient, carry, **domain)


class System(NamedTuple):
    """What an estimator is given: the inner loss at one x and y, and (grad_x f, grad_y f) there."""

    inner: Inner
    outer_var: PyTree
    inner_var: PyTree
    outer_gradient: OuterGradient
    domain: Domain | None = None
    """The set Y; `None` for a free follower."""


class Solution(NamedTuple):
    """v with H v = grad_y f, the carry, and the number of Hessian-vector products taken."""

    v: PyTree
    carry: PyTree
    hvps: Int[Array, ""] | int


class Hypergradient(eqx.Module):
    """An estimator of the hypergradient from an outer gradient and the inner problem."""

    remedy: ClassVar[Remedy] = Remedy(SYSTEM, f"more steps of the estimator, or {RIDGE}")
    """What to try where the residual is large."""

    def __repr__(self) -> str:
        # `CG(5)`: the name of the first field is left out.
        first = next((field.name for field in dataclasses.fields(self)), "")
        return messages.described(self, first)

    def init(self, inner_var: PyTree) -> PyTree:
        """Return what is carried into the first round, or `None`."""
        return None

    def __call__(
        self,
        inner: Inner,
        outer_var: PyTree,
        inner_var: PyTree,
        outer_gradient: OuterGradient,
        carry: PyTree = None,
        domain: Domain | None = None,
    ) -> Estimate:
        """Return the hypergradient, given (grad_x f, grad_y f) at (x, y); `domain` is Y."""
        return self.estimate(System(inner, outer_var, inner_var, outer_gradient, domain), carry)

    def estimate(self, system: System, carry: PyTree) -> Estimate:
        """Return the hypergradient, with what was carried from the last round."""
        raise NotImplementedError

    def at(
        self,
        problem: Problem,
        outer_var: PyTree,
        inner_var: PyTree,
        round: PyTree,
        buffers: PyTree = None,
        carry: PyTree = None,
    ) -> Estimate:
        """Return the hypergradient of one round of a problem at (x, y)."""
        pair = Pair(problem, outer_var, inner_var, buffers)
        return pair.solve(self, pair.inner_of(round), pair.outer_gradient(round), carry)


class Direct(Hypergradient):
    """The hypergradient of a problem without a follower, grad_x f."""

    def estimate(self, system: System, carry: PyTree) -> Estimate:
        zero = jnp.zeros((), jnp.int32)
        return Estimate(system.outer_gradient[0], jnp.zeros(()), carry, zero, zero)


class Implicit(Hypergradient):
    """An estimator that solves H v = grad_y f and subtracts J v. Subclasses write `solve`."""

    def solve(self, hvp: LinearMap, gradient: PyTree, carry: PyTree) -> Solution:
        """Return v with H v = gradient."""
        raise NotImplementedError

    def estimate(self, system: System, carry: PyTree) -> Estimate:
        gradient_x, gradient_y = system.outer_gradient
        slope, products = linearize(system.inner, system.outer_var, system.inner_var)
        pull = gradient_y
        if not isinstance(system.domain, Unconstrained | None):
            face = system.domain.face(system.inner_var, slope)
            products, pull = _on_face(products, face), face.tangent(gradient_y)
        v, carry, hvps = self.solve(lambda u: products(u)[1], pull, carry)
        cross, hessian_v = products(v)
        return Estimate(
            value=trees.difference(gradient_x, cross),
            residual=relative(trees.difference(hessian_v, pull), gradient_y),
            carry=carry,
            hvps=jnp.asarray(hvps, jnp.int32),
            cross_products=jnp.asarray(1, jnp.int32),
        )


def _on_face(
    products: Callable[[PyTree], tuple[PyTree, PyTree]], face: Face
) -> Callable[[PyTree], tuple[PyTree, PyTree]]:
    """Return the map u -> (J P u, (P H P + b P + I - P) u)."""

    def restricted(u: PyTree) -> tuple[PyTree, PyTree]:
        inside = face.tangent(u)
        cross, curved = products(inside)
        along = trees.scaled_add(face.tangent(curved), face.bend, inside)
        return cross, jax.tree.map(lambda a, b, c: a + (b - c), along, u, inside)

    return restricted


def linearize(
    inner: Inner, outer_var: PyTree, inner_var: PyTree
) -> tuple[PyTree, Callable[[PyTree], tuple[PyTree, PyTree]]]:
    """Return grad_y g and the map u -> (J u, H u) at (x, y): the derivative of (grad_x g, grad_y g)
    along u in y.

    The gradient is evaluated once, and what its derivative needs is kept. A product, also one
    inside the loop of a solver, is then a forward pass: on networks about the price of a gradient.
    XLA drops J u where it is not used, and where x enters late, as hyperparameters of a loss do, it
    costs next to nothing beside H u.
    """
    slopes, products = jax.linearize(lambda y: jax.grad(inner, (0, 1))(outer_var, y), inner_var)
    return slopes[1], products


def relative(error: PyTree, reference: PyTree) -> Float[Array, ""]:
    """Return |error| / |reference|, and zero where both are zero."""
    scale = trees.norm(reference)
    return trees.norm(error) / jnp.maximum(scale, jnp.finfo(scale.dtype).tiny)


def rounding(tree: PyTree) -> float:
    """Return the machine epsilon of the least precise leaf of a tree."""
    return max(float(jnp.finfo(leaf.dtype).eps) for leaf in jax.tree.leaves(tree))


def check_factors(estimator: Hypergradient, gradient: PyTree) -> None:
    """Raise a `ValueError` if y has a precision in which JAX cannot factorise matrices."""
    for leaf in jax.tree.leaves(gradient):
        if leaf.dtype not in (jnp.float32, jnp.float64):
            raise ValueError(
                f"{type(estimator).__name__} factorises matrices, which JAX does in float32 and "
                f"float64 only, but inner_var has {leaf.dtype}; use CG() or Neumann(), or keep "
                f"inner_var in float32 and cast it inside the losses, y.astype('{leaf.dtype}')."
            )


def solve_with(
    solver: "lx.AbstractLinearSolver", hvp: LinearMap, gradient: PyTree
) -> "lx.Solution":
    """Solve one linear system with lineax.

    A failure shows in the residual and not as an exception, so that one bad round, or one bad seed
    of a sweep, does not end the others.
    """
    # Slow to import, and not needed by CG, the default.
    import lineax as lx

    structure = jax.eval_shape(lambda: gradient)
    operator = lx.FunctionLinearOperator(hvp, structure)
    return lx.linear_solve(operator, gradient, solver, throw=False)
