"""What all estimators share.

With H = grad^2_yy g and J = grad^2_xy g at (x, y), the follower's answer moves as M = -J H^{-1}
(M H + J = 0), and

    hypergradient = grad_x f + M grad_y f = grad_x f - J v    with    H v = grad_y f.

A follower that is kept in a convex set moves along the face that it is on. With P the projection
onto the directions of that face and b what the set's own curvature adds (`obax.domain.Face`),

    (P H P + b P + I - P) v = P grad_y f,

whose v lies in the face: a system like the other, definite where H is on the face alone.
"""

import dataclasses
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, Float, Int

from .._support import showing, trees
from .._support.trees import PyTree
from ..domain import Domain, Face, Unconstrained
from ..problem import Problem

Inner = Callable[[PyTree, PyTree], Float[Array, ""]]
LinearMap = Callable[[PyTree], PyTree]
OuterGradient = tuple[PyTree, PyTree]


class Estimate(NamedTuple):
    """What an estimator returns for one outer gradient.

    `value` is the hypergradient; `residual` is |H v - grad_y f| / |grad_y f|; `carry` goes into the
    next call; `hvps` and `cross_products` count the oracle calls.
    """

    value: PyTree
    residual: Float[Array, ""] | float = 0.0
    carry: PyTree = None
    hvps: Int[Array, ""] | int = 0
    cross_products: Int[Array, ""] | int = 0


class Remedy(NamedTuple):
    """A residual in words, for people: what it says was left undone, and what to try then."""

    undone: str
    cure: str


SYSTEM = "the linear system H v = grad_y f was left with"
RIDGE = "a ridge term in the inner loss"


class Solution(NamedTuple):
    """v with H v = grad_y f, the carry, and the number of Hessian-vector products taken."""

    v: PyTree
    carry: PyTree
    hvps: Int[Array, ""] | int


class Hypergradient(eqx.Module):
    """A way to get the hypergradient from an outer gradient and the inner problem."""

    remedy: ClassVar[Remedy] = Remedy(SYSTEM, f"more steps of the estimator, or {RIDGE}")
    """What to try where the residual is large."""

    def __repr__(self) -> str:
        # `CG(5)`: the first field by its place where it is the one that matters.
        words = [f"{name}={showing.shown(value)}" for name, value in showing.changed(self)]
        first = next((field.name for field in dataclasses.fields(self)), "")
        return f"{type(self).__name__}({', '.join(words).removeprefix(f'{first}=')})"

    def init(self, inner_var: PyTree) -> PyTree:
        """What is carried from one round to the next, or `None`."""
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
        """The hypergradient, given (grad_x f, grad_y f) at (x, y); `domain` is Y."""
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
        """The hypergradient of one round of a problem at (x, y)."""
        slopes = outer_gradient(problem, outer_var, inner_var, round, buffers)
        inner = inner_at(problem, round, buffers)
        return self(inner, outer_var, inner_var, slopes, carry, **kept(problem))


class Implicit(Hypergradient):
    """Solve H v = grad_y f, then subtract J v. Subclasses say how to solve."""

    def solve(self, hvp: LinearMap, gradient: PyTree, carry: PyTree) -> Solution:
        """v with H v = gradient."""
        raise NotImplementedError

    def __call__(
        self,
        inner: Inner,
        outer_var: PyTree,
        inner_var: PyTree,
        outer_gradient: OuterGradient,
        carry: PyTree = None,
        domain: Domain | None = None,
    ) -> Estimate:
        gradient_x, gradient_y = outer_gradient
        slope, products = linearised(inner, outer_var, inner_var)
        pull = gradient_y
        if domain is not None and not isinstance(domain, Unconstrained):
            face = domain.face(inner_var, slope)
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


def kept(problem: Problem) -> dict[str, Domain]:
    """The `domain` of an estimator's call, only where there is one: own estimators need not know
    of it."""
    return {"domain": problem.inner_domain} if problem.constrains_follower else {}


def outer_gradient(
    problem: Problem, outer_var: PyTree, inner_var: PyTree, round: PyTree, buffers: PyTree
) -> OuterGradient:
    """(grad_x f, grad_y f); the second is `None` without a follower."""
    if inner_var is None:
        return jax.grad(problem.outer_loss)(outer_var, None, round, buffers), None
    return jax.grad(problem.outer_loss, argnums=(0, 1))(outer_var, inner_var, round, buffers)


def inner_at(problem: Problem, round: PyTree, buffers: PyTree) -> Inner:
    """(x, y) -> g_t(x, y), its buffers held still."""
    return lambda outer_var, inner_var: problem.inner_loss(outer_var, inner_var, round, buffers)[0]


def _on_face(
    products: Callable[[PyTree], tuple[PyTree, PyTree]], face: Face
) -> Callable[[PyTree], tuple[PyTree, PyTree]]:
    """u -> (J P u, (P H P + b P + I - P) u)."""

    def restricted(u: PyTree) -> tuple[PyTree, PyTree]:
        inside = face.tangent(u)
        cross, curved = products(inside)
        along = trees.scaled_add(face.tangent(curved), face.bend, inside)
        return cross, jax.tree.map(lambda a, b, c: a + (b - c), along, u, inside)

    return restricted


def linearised(
    inner: Inner, outer_var: PyTree, inner_var: PyTree
) -> tuple[PyTree, Callable[[PyTree], tuple[PyTree, PyTree]]]:
    """grad_y g, and u -> (J u, H u) at (x, y): the derivative of (grad_x g, grad_y g) along u in y.

    The gradient is evaluated once and what its derivative needs is kept, so that a product, also
    one inside the loop of a solver, is a forward pass through that: on networks about the price of
    a gradient. XLA drops J u where it is not asked for, and where x enters late, as
    hyperparameters of a loss do, it costs next to nothing beside H u.
    """
    slopes, products = jax.linearize(lambda y: jax.grad(inner, (0, 1))(outer_var, y), inner_var)
    return slopes[1], products


def relative(error: PyTree, reference: PyTree) -> Float[Array, ""]:
    """|error| / |reference|, and zero where both are."""
    scale = trees.norm(reference)
    return trees.norm(error) / jnp.maximum(scale, jnp.finfo(scale.dtype).tiny)


def rounding(tree: PyTree) -> float:
    """The machine epsilon of a tree: that of its least precise leaf."""
    return max(float(jnp.finfo(leaf.dtype).eps) for leaf in jax.tree.leaves(tree))


def check_factors(estimator: Hypergradient, gradient: PyTree) -> None:
    """Raise a `ValueError` if y has a precision in which nothing can be factorised."""
    for leaf in jax.tree.leaves(gradient):
        if leaf.dtype not in (jnp.float32, jnp.float64):
            raise ValueError(
                f"{type(estimator).__name__} factorises matrices, which JAX does in float32 and "
                f"float64 only, but inner_var has {leaf.dtype}; use CG() or Neumann(), or keep "
                f"inner_var in float32 and cast it inside the losses, y.astype('{leaf.dtype}')."
            )


def solve_with(solver: lx.AbstractLinearSolver, hvp: LinearMap, gradient: PyTree) -> lx.Solution:
    """One linear system through lineax. A failure shows in the residual, not as an exception, so
    that one bad round or one bad seed of a sweep does not end the others."""
    structure = jax.eval_shape(lambda: gradient)
    operator = lx.FunctionLinearOperator(hvp, structure)
    return lx.linear_solve(operator, gradient, solver, throw=False)
