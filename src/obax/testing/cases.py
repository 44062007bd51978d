"""Problems with known answers, on which algorithms are checked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._support.trees import PyTree
from ..algorithms import Algorithm
from ..domain import Ball, Box, Simplex
from ..problem import Problem

HORIZON = 3


@dataclass(frozen=True)
class Case:
    """A problem with its rounds, its start, and step sizes with which OAGD converges."""

    problem: Problem
    rounds: PyTree
    outer_var: PyTree
    inner_var: PyTree
    outer_step: float = 0.1
    inner_step: float = 0.1
    buffers: PyTree = None
    overflow: Callable[[PyTree], PyTree] | None = None
    """Makes a finite round that sends the follower to infinity from another round."""

    @property
    def example_round(self) -> PyTree:
        """The first round."""
        return round_at(self.rounds, 0)

    def start(self, algorithm: Algorithm) -> Any:
        """Return the state before the first round."""
        return algorithm.init(
            self.outer_var, self.inner_var, self.example_round, buffers=self.buffers
        )


def round_at(rounds: PyTree, index: Any) -> PyTree:
    """Return one or several of stacked rounds."""
    return jax.tree.map(lambda leaf: leaf[index], rounds)


def stack(rounds: Sequence[PyTree]) -> PyTree:
    """Stack rounds along a new first axis, on the host."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *rounds)


def huge(round: PyTree) -> PyTree:
    """Return a round whose numbers are finite and whose squares are not."""

    def enlarge(leaf: Any) -> Any:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf
        # In double precision 1e200, in single 1e25.
        return leaf * np.asarray(jnp.finfo(leaf.dtype).max ** 0.65, leaf.dtype)

    return jax.tree.map(enlarge, round)


def named_leaves() -> Case:
    """Make a problem with named leaves on both levels, and y* and x* in closed form."""
    rng = np.random.default_rng(3)
    scale = rng.uniform(1.0, 2.0, (HORIZON, 3))
    target = rng.standard_normal((HORIZON, 2))
    rounds = ({"scale": jnp.asarray(scale)}, jnp.asarray(target))

    def answer(x: PyTree, round: PyTree) -> PyTree:
        return {"head": round[0]["scale"] * x["b"], "tail": (x["a"],)}

    def inner(x: PyTree, y: PyTree, round: PyTree) -> Any:
        best = answer(x, round)
        head, tail = y["head"] - best["head"], y["tail"][0] - best["tail"][0]
        return jnp.sum(round[0]["scale"] * head**2) + 0.5 * jnp.sum(tail**2)

    def outer(x: PyTree, y: PyTree, round: PyTree) -> Any:
        return 0.5 * jnp.sum((y["tail"][0] - round[1]) ** 2) + 0.5 * jnp.sum((y["head"] - 1.0) ** 2)

    def outer_argmin(round: PyTree) -> PyTree:
        s = round[0]["scale"]
        return {"a": round[1], "b": jnp.sum(s) / jnp.sum(s**2)}

    problem = Problem(outer, inner, Ball(10.0), answer, outer_argmin)
    x = {"a": jnp.zeros(2), "b": jnp.asarray(0.1)}
    y = {"head": jnp.zeros(3), "tail": (jnp.ones(2),)}
    return Case(problem, rounds, x, y, 0.1, 0.2, overflow=huge)


def running_mean() -> Case:
    """Make a problem with buffers like those of BatchNorm, which are not differentiated."""
    rng = np.random.default_rng(4)
    rounds = {
        "inputs": jnp.asarray(rng.standard_normal((HORIZON, 4, 2)) + 1.0),
        "count": jnp.arange(HORIZON, dtype=jnp.int32),
    }

    def inner(x: PyTree, y: PyTree, round: PyTree, buffers: PyTree) -> Any:
        mean = 0.5 * buffers["mean"] + 0.5 * jnp.mean(round["inputs"], axis=0)
        centred = round["inputs"] - jax.lax.stop_gradient(mean)
        loss = 0.5 * jnp.mean((centred @ y - 1.0) ** 2) + 0.5 * jnp.exp(x) * jnp.sum(y**2)
        return loss, {"mean": mean, "seen": buffers["seen"] + 1}

    def outer(x: PyTree, y: PyTree, round: PyTree, buffers: PyTree) -> Any:
        return 0.5 * jnp.mean(((round["inputs"] - buffers["mean"]) @ y + 1.0) ** 2)

    problem = Problem(outer, inner, Box(-3.0, 3.0), has_buffers=True)
    start = {"mean": jnp.zeros(2), "seen": jnp.zeros((), jnp.int32)}
    x, y = jnp.zeros(()), jnp.ones(2)
    return Case(problem, rounds, x, y, 0.1, 0.2, buffers=start, overflow=huge)


def no_follower() -> Case:
    """Make a problem without a follower, on the simplex."""
    rng = np.random.default_rng(5)
    rounds = jnp.asarray(rng.uniform(0.0, 1.0, (HORIZON, 3)))
    rounds = rounds / jnp.sum(rounds, axis=1, keepdims=True)
    problem = Problem(
        lambda x, y, round: 0.5 * jnp.sum((x - round) ** 2),
        domain=Simplex(),
        outer_argmin=lambda round: round,
    )
    return Case(problem, rounds, jnp.array([1.0, 0.0, 0.0]), None, 0.3, 0.1)


CASES: dict[str, Callable[[], Case]] = {
    "named leaves": named_leaves,
    "buffers": running_mean,
    "no follower": no_follower,
}
