"""ITD, iterative differentiation on the tasks seen so far: MAML, ANIL and ITD-BiO online.

Finn, Abbeel, Levine: *Model-Agnostic Meta-Learning*, ICML 2017; Raghu et al.: *Rapid Learning or
Feature Reuse?*, ICLR 2020 (ANIL); Ji, Yang, Liang: *Bilevel Optimization: Convergence Analysis and
Enhanced Design*, ICML 2021 (ITD-BiO). The three are one algorithm on three problems, see
`obax.problems.meta_learning`. In round t, for each task s of a set S_t of those seen,

    z_s^1 = start(x_t),  z_s^{k+1} = z_s^k - beta_t grad_z g_s(x_t, z_s^k)  for k = 1..K,
    x_{t+1} = projection on X of  x_t - alpha_t (1/|S_t|) sum_s d/dx f_s(x_t, z_s^{K+1}(x_t)),

where d/dx goes through all K steps and the start. S_t is all of 1..t, or t and a random B - 1 of
the others. With all of them the cost of a round grows with t: that is what the online methods are
compared with.

| symbol | name | symbol | name |
|---|---|---|---|
| alpha_t, beta_t | `outer_step_size`, `inner_step_size` | K | `inner_steps` |
| S_t | `tasks` | start | `problem.inner_start` |
"""

import dataclasses
from collections.abc import Callable
from typing import Annotated, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from .._support import sharding, trees
from .._support.checks import Count, Seed, function_of
from .._support.trees import PyTree
from ..hypergradient import Estimate
from ..round_buffer import RingBuffer, RoundsBySlot, expand, random_order
from .arguments import Capacity
from .base import State, TwoLevels
from .descent import Follower
from .record import Move

Prepare = Annotated[Callable[[PyTree, PyTree], PyTree], function_of("(x, round) -> round")]


class ITDState(State):
    """The pair, the optimisers, and the tasks so far in `past`."""


class ITD(TwoLevels):
    """One step of the leader per round, through K unrolled steps on each of the tasks so far.

    **Arguments:**

    - `problem`: with a follower; each task's follower starts from `problem.inner_start(x)`, or
      without that from the last round's.
    - `outer_step_size`, `inner_step_size`, `outer_optimiser`, `inner_optimiser`: as in `obax.OAGD`.
    - `inner_steps`: K, a fixed `int`.
    - `tasks`: `"all"` so far, or how many: the current one and others drawn without replacement.
    - `capacity`: how many rounds are kept, the current one included. Give the horizon; beyond it
      the oldest are forgotten. Memory is `capacity` rounds from the start.
    - `first_order`: leave the derivative of the inner gradients out (first-order MAML).
    - `prepare`: `(x, round) -> round`, what does not change while the follower learns and is to be
      computed once for a task, such as the features of a network whose head alone adapts
      (`obax.problems.embed_task`). It is differentiated.
    - `chunk`: how many tasks are evaluated at once. More needs more memory.
    - `rematerialise`: compute the inner steps again on the way back, so that memory holds only the
      K iterates. Without it what a derivative needs of each step is kept, as PyTorch does: on the
      paper's network with K = 20 some 540 MiB for each task of a chunk, in half of the time.
    - `seed`: of the draws.

    Time and memory of a round are *not* bounded as those of the online methods are.

    >>> import jax.numpy as jnp
    >>> import obax
    >>> problem = obax.Problem(
    ...     outer=lambda x, y, round: 0.5 * (y - round) ** 2,
    ...     inner=lambda x, y, round: 0.5 * (y - 2 * round) ** 2,
    ...     inner_start=lambda x: x,
    ... )
    >>> algorithm = obax.ITD(problem, 1.0, 0.5, capacity=8)
    >>> state = algorithm.init(1.0, 1.0, jnp.zeros(()))
    >>> for target in (1.0, 2.0, 3.0):
    ...     state, info = algorithm.step(state, jnp.asarray(target))
    ...     print(f"{state.outer_var:.4f} {state.inner_var:.4f} {info.gradients}")
    0.7500 1.5000 2
    0.5625 2.3750 4
    0.4219 3.2812 6
    """

    inner_steps: Count = 1
    capacity: Capacity = eqx.field(kw_only=True)
    tasks: Literal["all"] | Count = eqx.field(default="all", kw_only=True)
    first_order: bool = eqx.field(default=False, kw_only=True)
    prepare: Prepare | None = eqx.field(default=None, static=True, kw_only=True)
    chunk: Count = eqx.field(default=1, kw_only=True)
    rematerialise: bool = eqx.field(default=False, kw_only=True)
    seed: Seed = eqx.field(default=0, kw_only=True)

    def remember(self, start: State) -> State:
        past = RingBuffer.like(start.round_spec.example(), self.capacity - 1)
        return ITDState(**vars(start) | {"past": past})

    def update(self, state: State, round: PyTree) -> Move:
        assert state.past is not None
        start, tasks = self.start(state), RoundsBySlot(state.past, round)
        order, count = self.chosen(state.t, state.past.present)

        def one(task: PyTree) -> tuple[PyTree, Follower]:
            differentiate = jax.grad(self._adapted_loss, has_aux=True)
            return differentiate(state.outer_var, state, task)

        def some(
            index: Array, now: tuple[PyTree, Follower, Array]
        ) -> tuple[PyTree, Follower, Array]:
            places = index * self.chunk + jnp.arange(self.chunk, dtype=jnp.int32)
            slots = order[jnp.minimum(places, self.capacity - 1)]
            if self.chunk > 1:
                gradients, followers = jax.vmap(one)(tasks.some(slots))
            else:
                alone = one(tasks.at(slots[0]))
                gradients, followers = jax.tree.map(lambda leaf: leaf[None], alone)

            # A past task that is not finite at the present x is dropped; the guard of `step` judges
            # the current one.
            counted = places < count
            bad = counted & ~trees.finite_entries(gradients) & (slots < self.capacity - 1)

            def add_present(total: Array, terms: Array) -> Array:
                present = expand(counted & ~bad, terms)
                return total + jnp.sum(jnp.where(present, terms, 0), axis=0)

            total = jax.tree.map(add_present, now[0], gradients)
            # The current task is the first.
            own = sharding.entry(followers, 0)
            refused = now[2].at[slots].max(sharding.replicate(bad))
            return total, trees.select(index == 0, own, now[1]), refused

        nothing = jax.tree.map(jnp.zeros_like, state.outer_var), start, jnp.zeros(len(order), bool)
        chunks = (count + self.chunk - 1) // self.chunk
        total, follower, refused = jax.lax.fori_loop(0, chunks, some, nothing)
        left = count - jnp.sum(refused, dtype=jnp.int32)
        gradient = jax.tree.map(lambda leaf: leaf / left.astype(leaf.dtype), total)
        products = 0 if self.first_order else count * self.inner_steps
        estimate = Estimate(gradient, 0.0, None, products, products, count)
        move = Move(self.lead(state, gradient), follower, estimate, count * self.inner_steps)
        return move._replace(terms=left, refused=refused[:-1])

    def _adapted_loss(self, x: PyTree, state: State, round: PyTree) -> tuple[Array, Follower]:
        """Return f_s(x, z_s^{K+1}(x)) and the follower."""
        task = round if self.prepare is None else self.prepare(x, round)
        start = self.start(dataclasses.replace(state, outer_var=x))
        stop = jax.lax.stop_gradient if self.first_order else lambda it: it
        fixed_x, fixed, fixed_task = stop((x, start, task))
        again = self.rematerialise and not self.first_order
        follower = self.learn(fixed_x, fixed, fixed_task, state.t, self.inner_steps, again)
        if self.first_order:
            # z^{K+1} = start(x) minus gradients that are not differentiated.
            moved = trees.difference(follower.inner_var, fixed.inner_var)
            inner_var = jax.tree.map(jnp.add, start.inner_var, moved)
            follower = follower._replace(inner_var=inner_var)
        loss = self.problem.outer_loss(x, follower.inner_var, task, follower.buffers)
        return loss, follower

    def chosen(
        self, t: Int[Array, ""], present: Bool[Array, " past"]
    ) -> tuple[Int[Array, " capacity"], Int[Array, ""]]:
        """Return slots, and how many of them, from the first on, hold the tasks of round t. The
        current round comes first; its slot is the last, behind those of the buffer."""
        seen = jnp.sum(present, dtype=jnp.int32) + 1
        if not isinstance(self.tasks, int):
            # Those that count, in the order of their slots.
            past = jnp.argsort(~present, stable=True).astype(jnp.int32)
            return jnp.concatenate([jnp.full(1, len(present), jnp.int32), past]), seen
        order = random_order(self.seed, t, present, current_first=True)
        return order, jnp.minimum(seen, self.tasks)
