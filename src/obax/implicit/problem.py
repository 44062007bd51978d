"""A problem whose variables are plain vectors, the settings of a search, and maps and sums over
rounds that fit into memory: vmapped, a chunk at a time."""

import functools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.custom_batching
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from .._support import compiling, trees
from .._support.checks import Count, NonNegativeInt, Positive, check
from .._support.trees import PyTree
from ..domain import Domain, Face, Unconstrained
from ..problem import Problem
from .minimise import Region, Vector

Total = Callable[[Callable[[PyTree], PyTree]], PyTree]

# A chunk holds at most CHUNK_NUMBERS numbers (32 MiB in float64) and CHUNK_ROUNDS rounds: several
# batched LAPACK calls on thousands of matrices in one compiled function can wait for each other for
# ever on CPU (seen with jaxlib 0.10.2 and 8,000 matrices), and wider chunks are not faster. With
# jaxlib 0.10.2 more than 2^15 outputs at once are wrong on CPU where a leading axis is broadcast
# (docs/jax-versions.md).
CHUNK_NUMBERS = 2**22
CHUNK_ROUNDS = 512
CHUNK_OUTPUTS = 2**15
TOLERANCES = {"float64": 1e-10, "float32": 1e-4}


class Solver(eqx.Module):
    """Settings of the searches for comparators that have no closed form.

    **Arguments:**

    - `tolerance`: largest residual, relative to the scale of the losses; `None`: 1e-10 in float64,
      1e-4 in float32. A search continues to a hundredth of it where rounding allows.
    - `max_steps`: most steps of a search; `None`: 100 Newton or 10,000 gradient steps.
    - `chunk`: number of rounds evaluated at once; `None`: up to 512, as many as fit into 32 MiB.
    - `dense_limit`: longest y for which dense Hessians of g are formed. A longer follower is found
      by Newton steps with conjugate gradients. The Hessian of phi in x is always dense.
    - `starts`: number of points of X, besides those that are given, at which a search looks for a
      lower basin; `None`: 32 where x is one or two numbers (128 where it is two and no numerical
      follower has to answer at each), otherwise four for each coordinate, at most 32. Use 0 where
      phi is known to be convex.

    >>> Solver(tolerance=1e-6).tolerance
    1e-06
    """

    tolerance: float | None = eqx.field(default=None, static=True)
    max_steps: int | None = eqx.field(default=None, static=True)
    chunk: int | None = eqx.field(default=None, static=True)
    dense_limit: int = eqx.field(default=128, static=True)
    starts: int | None = eqx.field(default=None, static=True)

    def __check_init__(self) -> None:
        check(self.tolerance, "Solver.tolerance", Positive | None)
        for name in ("max_steps", "chunk"):
            check(getattr(self, name), f"Solver.{name}", Count | None)
        for name in ("dense_limit", "starts"):
            check(getattr(self, name), f"Solver.{name}", NonNegativeInt | None)

    def tolerance_for(self, dtype: Any) -> float:
        """Return the tolerance asked for, or that of the dtype."""
        if self.tolerance is not None:
            return self.tolerance
        name = jnp.dtype(dtype).name
        return TOLERANCES.get(name, float(jnp.finfo(dtype).eps) ** 0.6)


class FlatDomain(Domain):
    """A set of trees, as a set of vectors."""

    domain: Domain
    unravel: Callable[[Array], PyTree] = eqx.field(static=True)

    def project(self, outer_var: PyTree) -> PyTree:
        """Return the nearest point of the set."""
        return ravel_pytree(self.domain.project(self.unravel(outer_var)))[0]

    def diameter(self, outer_var: PyTree) -> Float[Array, ""]:
        """Return the largest distance of two points."""
        return self.domain.diameter(self.unravel(outer_var))

    def face(self, point: PyTree, slope: PyTree) -> Face:
        """Return the directions in which a minimiser can move."""
        tangent, bend = self.domain.face(self.unravel(point), self.unravel(slope))
        return Face(lambda u: ravel_pytree(tangent(self.unravel(u)))[0], bend)


class FlatProblem:
    """A problem whose x and y are vectors; `outer_start` and `inner_start` give their shapes."""

    def __init__(
        self,
        problem: Problem,
        outer_start: PyTree,
        inner_start: PyTree,
        solver: Solver | None = None,
    ) -> None:
        self.solver = solver = solver or Solver()
        self.problem = problem
        self.start, self.unravel_x = ravel_pytree(outer_start)
        self.dtype = self.start.dtype
        self.has_follower = problem.inner is not None
        self.inner_start, self.unravel_y = ravel_pytree(inner_start)
        if not self.has_follower:
            self.inner_start = jnp.zeros(0, self.dtype)
        self.closed = problem.inner_argmin is not None
        self.outer_dim, self.inner_dim = self.start.size, self.inner_start.size
        self.unconstrained = isinstance(problem.domain, Unconstrained)
        self.inner_set = None
        if problem.constrains_follower:
            self.inner_set = FlatDomain(problem.inner_domain, self.unravel_y)
        self.dense = max(self.outer_dim, self.inner_dim) <= solver.dense_limit
        self.dense_inner = self.inner_dim <= solver.dense_limit
        self.tolerance = solver.tolerance_for(self.dtype)
        # Newton's last step is cheap, so a search goes beyond the tolerance it is judged by.
        self.goal = max(0.01 * self.tolerance, 8 * float(jnp.finfo(self.dtype).eps))
        self.newton_steps = int(solver.max_steps or 100)
        self.gradient_steps = int(solver.max_steps or 10_000)

    @property
    def starts(self) -> int:
        """Number of points of X that are looked at, by default more where they cost little."""
        if self.solver.starts is not None:
            return self.solver.starts
        if self.outer_dim == 2 and (self.closed or not self.has_follower):
            return 128
        return 32 if self.outer_dim <= 2 else 4 * min(self.outer_dim, 8)

    @property
    def region(self) -> Region | None:
        """X as a region to search, or `None` where it is all of R^d."""
        if self.unconstrained:
            return None
        diameter = jnp.asarray(self.problem.domain.diameter(self.unravel_x(self.start)))
        return Region(self.project, diameter.astype(self.dtype))

    @property
    def inner_region(self) -> Region | None:
        """Y as a region to search, or `None` where it is all of R^d."""
        if self.inner_set is None:
            return None
        diameter = jnp.asarray(self.inner_set.diameter(self.inner_start))
        return Region(self.inner_set.project, diameter.astype(self.dtype))

    def outer(self, x: Vector, y: Vector, round: PyTree) -> Float[Array, ""]:
        """Return f(x, y, round)."""
        return self.problem.outer(self.unravel_x(x), self.tree_y(y), round)

    def inner(self, x: Vector, y: Vector, round: PyTree) -> Float[Array, ""]:
        """Return g(x, y, round)."""
        assert self.problem.inner is not None
        return self.problem.inner(self.unravel_x(x), self.tree_y(y), round)

    def closed_answer(self, x: Vector, round: PyTree) -> Vector:
        """Return the problem's own y*(x)."""
        assert self.problem.inner_argmin is not None
        return ravel_pytree(self.problem.inner_argmin(self.unravel_x(x), round))[0]

    def first_answer(self, x: Vector) -> Vector:
        """Return the y at which the search for y*(x) starts."""
        if self.problem.inner_start is not None:
            return ravel_pytree(self.problem.inner_start(self.unravel_x(x)))[0]
        return self.inner_start

    def project(self, x: Vector) -> Vector:
        """Return the nearest point of X."""
        if self.unconstrained:
            return x
        return ravel_pytree(self.problem.domain.project(self.unravel_x(x)))[0]

    def tree_y(self, y: Vector) -> PyTree:
        """Return y as the problem's own tree; `None` without a follower."""
        return self.unravel_y(y) if self.has_follower else None

    def chunk_of(self, rounds: PyTree, copies: int = 1) -> int:
        """Return how many rounds to evaluate at once if each is held `copies` times."""
        if self.solver.chunk is not None:
            return int(self.solver.chunk)
        data = sum(math.prod(leaf.shape[1:]) for leaf in jax.tree.leaves(rounds))
        both = self.outer_dim + self.inner_dim
        work = data + (4 * both**2 if self.dense else 16 * both)
        most = min(CHUNK_ROUNDS, CHUNK_OUTPUTS // copies)
        return max(1, min(most, CHUNK_NUMBERS // max(1, work * copies)))

    def map_rounds(
        self, function: Callable[..., PyTree], rounds: PyTree, *stacked: PyTree, copies: int = 1
    ) -> PyTree:
        """Evaluate `function(round, ...)` for all rounds: vmapped, a chunk at a time."""
        stacks, length = (rounds, *stacked), length_of(rounds)
        chunk = self.chunk_of(rounds, copies)
        if chunk >= length:
            return jax.vmap(function)(*stacks)
        starts, overlap = _chunk_starts(length, chunk)

        def part(start: Array) -> PyTree:
            return jax.vmap(function)(*_slice(stacks, start, chunk))

        def joined(leaf: Array) -> Array:
            # Not -1: without a follower there are leaves of size zero.
            whole = leaf[:-1].reshape((len(starts) - 1) * chunk, *leaf.shape[2:])
            return jnp.concatenate([whole, leaf[-1, overlap:]])

        return jax.tree.map(joined, jax.lax.map(part, starts))

    def sum_rounds(
        self, function: Callable[..., PyTree], rounds: PyTree, *stacked: PyTree
    ) -> PyTree:
        """Sum `function(round, ...)` over all rounds, holding one chunk at a time."""
        stacks, length = (rounds, *stacked), length_of(rounds)
        chunk = self.chunk_of(rounds)

        def sum_of(part: PyTree, mask: Array | None) -> PyTree:
            def total(leaf: Array) -> Array:
                if mask is not None:
                    leaf = jnp.where(mask.reshape(-1, *(1,) * (leaf.ndim - 1)), leaf, 0)
                return jnp.sum(leaf, axis=0)

            return jax.tree.map(total, jax.vmap(function)(*part))

        if chunk >= length:
            return sum_of(stacks, None)
        starts, overlap = _chunk_starts(length, chunk)

        def part(start: Array) -> PyTree:
            mask = (start < length - chunk) | (jnp.arange(chunk) >= overlap)
            return sum_of(_slice(stacks, start, chunk), mask)

        return jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), jax.lax.map(part, starts))


def length_of(tree: PyTree) -> int:
    """Return T, the length of the leading axis."""
    return jax.tree.leaves(tree)[0].shape[0]


def norms(tree: PyTree) -> Float[Array, " T"]:
    """Return the Euclidean norm of each entry of a stacked tree."""
    return jax.vmap(trees.norm)(tree)


def _chunk_starts(length: int, chunk: int) -> tuple[Array, int]:
    """Return the starts of chunks of one size, and by how much the last overlaps the one before:
    it is moved back to end with the rounds, so that one shape is compiled."""
    starts = np.minimum(np.arange(0, length, chunk), length - chunk)
    return jnp.asarray(starts), -length % chunk


def _slice(tree: PyTree, start: Array, size: int) -> PyTree:
    return jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, size), tree)


def compiled(function: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """Compile a function that, under `vmap`, computes one entry after the other.

    With jaxlib 0.10.2 a batch that shares its rounds is silently wrong from output 32,768 on
    (docs/jax-versions.md). The rounds make these functions wide enough to be fast all the same.
    """

    @compiling.compiled
    @functools.wraps(function)
    def run(*arguments: PyTree) -> PyTree:
        arrays, rest = eqx.partition(arguments, eqx.is_array)
        one = jax.custom_batching.sequential_vmap(
            lambda arrays: function(*eqx.combine(arrays, rest))
        )
        return one(arrays)

    return run
