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
| passes over 1..t | `passes` | B | `outer_rounds` |
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from .._support.checks import Count, Seed
from .._support.trees import PyTree
from ..hypergradient import CG, Estimate, Hypergradient
from ..hypergradient.base import Pair
from ..round_buffer import RingBuffer, RoundsBySlot, random_order
from .arguments import Capacity, When, any_estimator
from .base import State, TwoLevels
from .descent import Follower, descending
from .record import Leader, Move


class AutoBalanceState(State):
    """The pair, the optimisers, and every round so far in `past`."""

    steps: Int[Array, ""]
    """How many steps the follower has taken."""


class _Now(NamedTuple):
    """The leader, the follower and the counts within a round."""

    leader: Leader
    follower: Follower
    steps: Int[Array, ""]
    estimate: Estimate
    """The last estimate, with the oracle calls of all of them."""


class AutoBalance(TwoLevels):
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

    capacity: Capacity = eqx.field(kw_only=True)
    outer_every: Count = eqx.field(default=20, kw_only=True)
    outer_rounds: Count = eqx.field(default=10, kw_only=True)
    passes: Count = eqx.field(default=1, kw_only=True)
    seed: Seed = eqx.field(default=0, kw_only=True)
    hypergradient: Hypergradient = any_estimator(CG(), kw_only=True)
    outer_when: When | None = eqx.field(default=None, kw_only=True)

    def remember(self, start: State) -> AutoBalanceState:
        past = RingBuffer.like(start.round_spec.example(), self.capacity - 1)
        steps = jnp.asarray(0, jnp.int32)
        return AutoBalanceState(**vars(start) | {"past": past}, steps=steps)

    def update(self, state: AutoBalanceState, round: PyTree) -> Move:
        return self._passes(state, round, leads=True)

    def hold(self, state: AutoBalanceState, round: PyTree) -> Move:
        return self._passes(state, round, leads=False)

    def _passes(self, state: AutoBalanceState, round: PyTree, leads: bool) -> Move:
        """Return the move after the passes over all rounds so far; the leader moves if `leads`."""
        assert state.past is not None
        t, rounds, start = state.t, RoundsBySlot(state.past, round), self.start(state)
        count = jnp.sum(state.past.present, dtype=jnp.int32) + 1
        order = random_order(self.seed, t, state.past.present)
        last = jnp.arange(self.outer_rounds, dtype=jnp.int32)

        def visited(k: Array) -> PyTree:
            """Return the round at step k of the passes."""
            return rounds.at(order[k % count])

        def one_step(k: Array, now: _Now) -> _Now:
            x = now.leader.outer_var
            slope = lambda k, z, b: self.problem.inner_slope(x, z, visited(k), b)  # noqa: E731
            follower = descending(slope, self.inner, t)(k, now.follower)
            now = now._replace(follower=follower, steps=now.steps + 1)
            if not leads:
                return now
            return jax.lax.cond(
                now.steps % self.outer_every == 0,
                lambda: self._lead(now, jax.vmap(visited)(k - last), t),
                lambda: now,
            )

        leader, zero = Leader(state.outer_var, state.outer_optimiser), jnp.zeros((), jnp.int32)
        still = jax.tree.map(jnp.zeros_like, state.outer_var)
        nothing = Estimate(still, jnp.zeros(()), state.carry, zero, zero, zero)
        begin, length = _Now(leader, start, state.steps, nothing), self.passes * count
        end = jax.lax.fori_loop(0, length, one_step, begin)
        memory = {"steps": end.steps}
        return Move(end.leader, end.follower, end.estimate, length, terms=count, memory=memory)

    def _lead(self, now: _Now, rounds: PyTree, t: Int[Array, ""]) -> _Now:
        """Return what follows a step of the leader on these rounds, evaluated one at a time to
        bound the memory."""
        (x, optimiser), (y, _, buffers) = now.leader, now.follower
        pair = Pair(self.problem, x, y, buffers)
        gradients = jax.lax.map(pair.outer_gradient, rounds)
        gradient = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), gradients)

        def inner(x: PyTree, y: PyTree) -> Array:
            loss = lambda one: self.problem.inner_loss(x, y, one, buffers)[0]  # noqa: E731
            return jnp.mean(jax.lax.map(loss, rounds))

        before = now.estimate
        new = pair.solve(self.hypergradient, inner, gradient, before.carry)
        moved, optimiser = self.outer.apply(x, new.value, optimiser, self.outer.rate(t))
        calls = self.outer_rounds
        return now._replace(
            leader=Leader(self.problem.domain.project(moved), optimiser),
            estimate=new._replace(
                residual=jnp.asarray(new.residual, jnp.result_type(before.residual)),
                hvps=before.hvps + calls * new.hvps,
                cross_products=before.cross_products + calls * new.cross_products,
                gradients=before.gradients + calls,
            ),
        )
