"""AutoBalance in the online setting: offline bilevel descent on all data seen so far.

Li, Zhang, Thrampoulidis, Chen, Oymak: *AutoBalance: Optimized Loss Functions for Imbalanced Data*,
NeurIPS 2021, as the paper's experiments use it: when round t arrives the follower goes on from
where it is and makes a pass over the rounds 1..t in random order,

    z <- z - beta_t grad_z g_s(x, z)    for s in a random order of 1..t,

and after every E-th of its steps, counted from the first round on, the leader takes one step

    x <- projection on X of  x - alpha_t (grad_x F + M grad_y F)(x, z),

with F and G the means of f and g over the B rounds visited last and M that of G. The cost of a
round grows with t: that is what the online methods are compared with.

| symbol | name | symbol | name |
|---|---|---|---|
| alpha_t, beta_t | `outer_step_size`, `inner_step_size` | E | `outer_every` |
| passes | `inner_steps` | B | `outer_rounds` |
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int

from .._support import validation
from .._support.trees import PyTree
from ..hypergradient import CG, Hypergradient
from ..hypergradient.average import outer_gradient
from ..problem import Problem
from ..rounds import RoundSpec
from ..window import RingBuffer
from .base import Algorithm, State
from .descent import Descent, Number, When, checked_when
from .follower import Follower, start_of
from .oracles import pointwise, with_follower
from .record import Info, record


class AutoBalanceState(State):
    """The pair, the optimisers, how many follower steps there were, and every round so far."""

    outer_optimiser: PyTree
    inner_optimiser: PyTree
    buffers: PyTree
    steps: Int[Array, ""]
    memory: RingBuffer
    carry: PyTree


class _Now(NamedTuple):
    """What moves within a round."""

    x: PyTree
    outer_optimiser: PyTree
    follower: Follower
    steps: Int[Array, ""]
    direction: PyTree
    residual: Array
    carry: PyTree
    counts: Int[Array, "3"]


class AutoBalance(Algorithm):
    """Bilevel descent on all rounds so far, from where the last round left it.

    **Arguments:**

    - `problem`: with a follower.
    - `outer_step_size`, `inner_step_size`, `outer_optimiser`, `inner_optimiser`, `hypergradient`,
      `outer_when`: as in `obax.OAGD`.
    - `capacity`: how many rounds are kept, the current one included. Give the horizon; beyond it
      the oldest are forgotten. Memory is `capacity` rounds from the start.
    - `outer_every`: follower steps between two steps of the leader.
    - `outer_rounds`: rounds that a step of the leader looks at.
    - `passes`: passes over the rounds so far, in each round.
    - `seed`: of the random orders.

    Time and memory of a round are *not* bounded as those of the online methods are.
    """

    problem: Problem
    outer: Descent
    inner: Descent
    hypergradient: Hypergradient
    outer_when: When | None
    capacity: int = eqx.field(static=True)
    outer_every: int = eqx.field(static=True)
    outer_rounds: int = eqx.field(static=True)
    passes: int = eqx.field(static=True)
    seed: int = eqx.field(static=True)

    def __init__(
        self,
        problem: Problem,
        outer_step_size: Number | None = None,
        inner_step_size: Number | None = None,
        *,
        capacity: int,
        outer_every: int = 20,
        outer_rounds: int = 10,
        passes: int = 1,
        seed: int = 0,
        hypergradient: Hypergradient | None = None,
        outer_optimiser: optax.GradientTransformation | None = None,
        inner_optimiser: optax.GradientTransformation | None = None,
        outer_when: When | None = None,
    ):
        self.problem = with_follower(problem, "AutoBalance")
        self.outer = Descent(outer_step_size, outer_optimiser, "outer")
        self.inner = Descent(inner_step_size, inner_optimiser, "inner")
        self.outer.check("outer_step_size")
        self.inner.check("inner_step_size")
        self.outer_when = checked_when(outer_when)
        self.hypergradient = pointwise(
            CG() if hypergradient is None else hypergradient, "AutoBalance"
        )
        self.capacity = validation.count(capacity, "capacity")
        if self.capacity < 2:
            raise ValueError(f"capacity must be at least 2 rounds, but got {capacity!r}.")
        self.outer_every = validation.count(outer_every, "outer_every")
        self.outer_rounds = validation.count(outer_rounds, "outer_rounds")
        self.passes = validation.count(passes, "passes")
        self.seed = seed

    def fresh_state(
        self, outer_var: PyTree, inner_var: PyTree, buffers: PyTree, round_spec: RoundSpec
    ) -> AutoBalanceState:
        return AutoBalanceState(
            t=jnp.asarray(1, jnp.int32),
            outer_var=outer_var,
            inner_var=inner_var,
            round_spec=round_spec,
            outer_optimiser=self.outer.init(outer_var),
            inner_optimiser=self.inner.init(inner_var),
            buffers=buffers,
            steps=jnp.asarray(0, jnp.int32),
            memory=RingBuffer.like(round_spec.example(), self.capacity - 1),
            carry=self.hypergradient.init(inner_var),
        )

    def update(self, state: AutoBalanceState, round: PyTree) -> tuple[AutoBalanceState, Info]:
        t, x = state.t, state.outer_var
        held = Follower(state.inner_var, state.inner_optimiser, state.buffers)
        start = start_of(self.problem, x, held, self.inner)
        count = jnp.minimum(t, self.capacity)
        order = self._order(t, count)
        moves = jnp.asarray(True) if self.outer_when is None else self.outer_when(t)
        rates = self.outer.rate(t), self.inner.rate(t)

        def visited(k: Array) -> PyTree:
            """The round at step k of the passes."""
            slot = order[k % count]

            def pick(past: Array, new: Array) -> Array:
                return jnp.where(slot == self.capacity - 1, new, past[slot])

            return jax.tree.map(pick, state.memory.rounds, round)

        last = jnp.arange(self.outer_rounds, dtype=jnp.int32)
        differentiate = jax.grad(self.problem.inner_loss, argnums=1, has_aux=True)

        def one_step(k: Array, now: _Now) -> _Now:
            follower = now.follower
            slope, buffers = differentiate(now.x, follower.inner_var, visited(k), follower.buffers)
            y, optimiser = self.inner.apply(follower.inner_var, slope, follower.optimiser, rates[1])
            steps = now.steps + 1
            now = now._replace(follower=Follower(y, optimiser, buffers), steps=steps)
            return jax.lax.cond(
                moves & (steps % self.outer_every == 0),
                lambda: self._lead(now, jax.vmap(visited)(k - last), rates[0]),
                lambda: now,
            )

        nothing = jax.tree.map(jnp.zeros_like, x), jnp.zeros(()), state.carry
        counts = jnp.zeros(3, jnp.int32)
        begin = _Now(x, state.outer_optimiser, start, state.steps, *nothing, counts)
        length = self.passes * count
        end = jax.lax.fori_loop(0, length, one_step, begin)
        new = AutoBalanceState(
            t=t + 1,
            outer_var=end.x,
            inner_var=end.follower.inner_var,
            round_spec=state.round_spec,
            outer_optimiser=end.outer_optimiser,
            inner_optimiser=end.follower.optimiser,
            buffers=end.follower.buffers,
            steps=end.steps,
            memory=state.memory,
            carry=end.carry,
        )
        gradients, hvps, cross_products = end.counts
        info = record(
            self.problem,
            t,
            x,
            start,
            end.follower,
            round,
            hypergradient=end.direction,
            residual=end.residual,
            gradients=gradients + length,
            hvps=hvps,
            cross_products=cross_products,
        )
        return new, info

    def _order(self, t: Int[Array, ""], count: Int[Array, ""]) -> Int[Array, " capacity"]:
        """A random order of the rounds in memory: its first `count` entries are their slots, the
        current round being the last slot."""
        slots = jnp.arange(self.capacity, dtype=jnp.int32)
        there = (slots < t - 1) | (slots == self.capacity - 1)
        key = jax.random.fold_in(jax.random.key(self.seed), t)
        draw = jax.random.uniform(key, (self.capacity,), jnp.float32)
        return jnp.argsort(jnp.where(there, draw, jnp.inf)).astype(jnp.int32)

    def _lead(self, now: _Now, rounds: PyTree, rate: Array) -> _Now:
        """One step of the leader on these rounds, one at a time to bound the memory."""
        x, (y, _, buffers) = now.x, now.follower
        slopes = jax.lax.map(lambda one: outer_gradient(self.problem, x, y, one, buffers), rounds)
        gradient = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), slopes)

        def inner(x: PyTree, y: PyTree) -> Array:
            loss = lambda one: self.problem.inner_loss(x, y, one, buffers)[0]  # noqa: E731
            return jnp.mean(jax.lax.map(loss, rounds))

        estimate = self.hypergradient(inner, x, y, gradient, now.carry)
        moved, optimiser = self.outer.apply(x, estimate.value, now.outer_optimiser, rate)
        one = jnp.ones((), jnp.int32)
        calls = jnp.stack([one, estimate.hvps, estimate.cross_products])
        return now._replace(
            x=self.problem.domain.project(moved),
            outer_optimiser=optimiser,
            direction=estimate.value,
            residual=estimate.residual.astype(now.residual.dtype),
            carry=estimate.carry,
            counts=now.counts + self.outer_rounds * calls,
        )
