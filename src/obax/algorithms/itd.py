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

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Int

from .._support import trees, validation
from .._support.trees import PyTree
from ..problem import Problem
from ..rounds import RoundSpec
from ..window import RingBuffer, Window
from .base import Algorithm, State
from .descent import Descent, Number, Schedule
from .follower import Follower, learn, start_of
from .record import Info, record

Prepare = Callable[[PyTree, PyTree], PyTree]


class ITDState(State):
    """The pair, the optimisers, and the tasks so far."""

    outer_optimiser: PyTree
    inner_optimiser: PyTree
    buffers: PyTree
    memory: RingBuffer


class ITD(Algorithm):
    """One step of the leader a round, through K unrolled steps on each of the tasks so far.

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

    >>> problem = Problem(
    ...     outer=lambda x, y, round: 0.5 * (y - round) ** 2,
    ...     inner=lambda x, y, round: 0.5 * (y - 2 * round) ** 2,
    ...     inner_start=lambda x: x,
    ... )
    >>> algorithm = ITD(problem, 1.0, 0.5, capacity=8)
    >>> state = algorithm.init(1.0, 1.0, jnp.zeros(()))
    >>> for target in (1.0, 2.0, 3.0):
    ...     state, info = algorithm.step(state, jnp.asarray(target))
    ...     print(f"{state.outer_var:.4f} {state.inner_var:.4f} {info.gradients}")
    0.7500 1.5000 2
    0.5625 2.3750 4
    0.4219 3.2812 6
    """

    problem: Problem
    outer: Descent
    inner: Descent
    inner_steps: int = eqx.field(static=True)
    tasks: int | None = eqx.field(static=True)
    capacity: int = eqx.field(static=True)
    first_order: bool = eqx.field(static=True)
    prepare: Prepare | None = eqx.field(static=True)
    chunk: int = eqx.field(static=True)
    rematerialise: bool = eqx.field(static=True)
    seed: int = eqx.field(static=True)

    def __init__(
        self,
        problem: Problem,
        outer_step_size: Number | None = None,
        inner_step_size: Number | None = None,
        inner_steps: int = 1,
        *,
        capacity: int,
        tasks: str | int = "all",
        first_order: bool = False,
        prepare: Prepare | None = None,
        chunk: int = 1,
        rematerialise: bool = False,
        seed: int = 0,
        outer_optimiser: optax.GradientTransformation | None = None,
        inner_optimiser: optax.GradientTransformation | None = None,
    ):
        validation.instance(problem, Problem, "problem", "an obax.Problem")
        if problem.inner is None:
            raise ValueError("problem must have a follower for ITD, but inner is None.")
        self.problem = problem
        self.outer = Descent(outer_step_size, outer_optimiser, "outer")
        self.inner = Descent(inner_step_size, inner_optimiser, "inner")
        self.outer.check("outer_step_size")
        self.inner.check("inner_step_size")
        self.inner_steps = validation.count(inner_steps, "inner_steps")
        if isinstance(tasks, str) and tasks != "all":
            raise ValueError(f"tasks must be 'all' or an integer >= 1, but got {tasks!r}.")
        self.tasks = None if isinstance(tasks, str) else validation.count(tasks, "tasks")
        self.capacity = validation.count(capacity, "capacity")
        if self.capacity < 2:
            raise ValueError(f"capacity must be at least 2 rounds, but got {capacity!r}.")
        if prepare is not None:
            validation.function(prepare, "prepare", "(x, round) -> round")
        self.first_order = bool(first_order)
        self.prepare = prepare
        self.chunk = validation.count(chunk, "chunk")
        self.rematerialise = bool(rematerialise)
        self.seed = seed

    @property
    def outer_step_size(self) -> Array | Schedule:
        """alpha_t, as given."""
        return self.outer.step_size

    @property
    def inner_step_size(self) -> Array | Schedule:
        """beta_t, as given."""
        return self.inner.step_size

    def fresh_state(
        self, outer_var: PyTree, inner_var: PyTree, buffers: PyTree, round_spec: RoundSpec
    ) -> ITDState:
        return ITDState(
            t=jnp.asarray(1, jnp.int32),
            outer_var=outer_var,
            inner_var=inner_var,
            round_spec=round_spec,
            outer_optimiser=self.outer.init(outer_var),
            inner_optimiser=self.inner.init(inner_var),
            buffers=buffers,
            memory=RingBuffer.like(round_spec.example(), self.capacity - 1),
        )

    def update(self, state: ITDState, round: PyTree) -> tuple[ITDState, Info]:
        t, x = state.t, state.outer_var
        held = Follower(state.inner_var, state.inner_optimiser, state.buffers)
        order, count = self._chosen(t)

        def task(slot: Array) -> PyTree:
            def pick(past: Array, new: Array) -> Array:
                return jnp.where(slot == self.capacity - 1, new, past[slot])

            return jax.tree.map(pick, state.memory.rounds, round)

        def one(slot: Array) -> tuple[PyTree, Follower]:
            return jax.grad(self._adapted_loss, has_aux=True)(x, held, task(slot), t)

        def some(index: Array, now: tuple[PyTree, Follower]) -> tuple[PyTree, Follower]:
            places = index * self.chunk + jnp.arange(self.chunk, dtype=jnp.int32)
            gradients, followers = self._map(one, order[jnp.minimum(places, self.capacity - 1)])
            total = jax.tree.map(_add_present(places < count), now[0], gradients)
            # The current task is the first.
            own = jax.tree.map(lambda leaf: leaf[0], followers)
            return total, trees.select(index == 0, own, now[1])

        start = start_of(self.problem, x, held, self.inner)
        nothing = jax.tree.map(jnp.zeros_like, x), start
        chunks = (count + self.chunk - 1) // self.chunk
        total, follower = jax.lax.fori_loop(0, chunks, some, nothing)
        gradient = jax.tree.map(lambda leaf: leaf / count.astype(leaf.dtype), total)
        moved, optimiser = self.outer.apply(x, gradient, state.outer_optimiser, self.outer.rate(t))
        new = ITDState(
            t=t + 1,
            outer_var=self.problem.domain.project(moved),
            inner_var=follower.inner_var,
            round_spec=state.round_spec,
            outer_optimiser=optimiser,
            inner_optimiser=follower.optimiser,
            buffers=follower.buffers,
            memory=state.memory,
        )
        products = 0 if self.first_order else count * self.inner_steps
        info = record(
            self.problem,
            t,
            x,
            start,
            follower,
            round,
            hypergradient=gradient,
            gradients=count * (self.inner_steps + 1),
            hvps=products,
            cross_products=products,
        )
        return new, info

    def _adapted_loss(
        self, x: PyTree, held: Follower, round: PyTree, t: Int[Array, ""]
    ) -> tuple[Array, Follower]:
        """f_s(x, z_s^{K+1}(x)) and the follower."""
        task = round if self.prepare is None else self.prepare(x, round)
        start = start_of(self.problem, x, held, self.inner)
        held_still = (x, start, task)
        if self.first_order:
            held_still = jax.lax.stop_gradient(held_still)
        follower = learn(
            self.problem,
            held_still[0],
            held_still[1],
            self.inner,
            self.inner_steps,
            t,
            held_still[2],
            Window(),
            fixed_length=True,
            rematerialise=self.rematerialise and not self.first_order,
        )
        if self.first_order:
            # z^{K+1} = start(x) minus gradients that are not differentiated.
            moved = trees.difference(follower.inner_var, held_still[1].inner_var)
            inner_var = jax.tree.map(jnp.add, start.inner_var, moved)
            follower = follower._replace(inner_var=inner_var)
        loss = self.problem.outer_loss(x, follower.inner_var, task, follower.buffers)
        return loss, follower

    def _map(
        self, one: Callable[[Array], tuple[PyTree, Follower]], slots: Array
    ) -> tuple[PyTree, Follower]:
        if self.chunk > 1:
            return jax.vmap(one)(slots)
        return jax.tree.map(lambda leaf: leaf[None], one(slots[0]))

    def _chosen(self, t: Int[Array, ""]) -> tuple[Int[Array, " capacity"], Int[Array, ""]]:
        """Slots of the tasks of round t, of which the first `count` are meant. The current round
        stands first; its slot is the last, behind those of the memory."""
        seen = jnp.minimum(t, self.capacity)
        slots = jnp.arange(self.capacity, dtype=jnp.int32)
        if self.tasks is None:
            return jnp.roll(slots, 1), seen
        key = jax.random.fold_in(jax.random.key(self.seed), t)
        draw = jax.random.uniform(key, (self.capacity,), jnp.float32)
        draw = jnp.where(slots < t - 1, draw, jnp.inf).at[-1].set(-1.0)
        return jnp.argsort(draw).astype(jnp.int32), jnp.minimum(seen, self.tasks)


def _add_present(present: Bool[Array, " chunk"]) -> Callable[[Array, Array], Array]:
    def add(total: Array, terms: Array) -> Array:
        mask = present.reshape((-1,) + (1,) * (terms.ndim - 1))
        return total + jnp.sum(jnp.where(mask, terms, 0), axis=0)

    return add
