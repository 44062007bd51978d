"""Replay: windows whose past rounds are drawn from a bounded reservoir.

In round t the window holds the current round and w - 1 others, drawn without replacement from the
C - 1 past rounds of the reservoir. After it round t, the n-th since the last cut, enters the
reservoir with probability

    (C - 1) / min(n, m),

and replaces a round chosen uniformly once there is no room. Without a recency m this is reservoir
sampling: each of the n rounds so far is held with the same probability (C - 1) / n. With one, from
n = m on, each slot loses its round with probability 1/m in every round: the age of a round that is
held is geometric with mean m, and the first m rounds are held alike. Memory is C rounds. A round
costs w terms and one random number for each slot.
"""

from collections.abc import Callable
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ._support import messages, sharding, trees
from ._support.checks import Checked, Count, Kind, at_least, is_integer
from ._support.function_identity import interned
from ._support.trees import PyTree
from .round_buffer import NEVER, RingBuffer, Terms, written, zeros_for

COUNT = at_least(1)


class _RecencyKind(Kind):
    def fault(self, value: Any) -> str | None:
        if not isinstance(value, jax.Array):
            return COUNT.fault(value)
        if value.shape != () or not jnp.issubdtype(value.dtype, jnp.integer):
            return f"must be one integer, but is {value.dtype}{list(value.shape)}"
        return None


Label = Annotated[
    Callable[[PyTree], Float[Array, " classes"]],
    Kind("a function round -> how much of each class it has", callable, interned),
]
Recency = Annotated[
    Int[Array, ""],
    _RecencyKind(
        "an integer", is_integer, lambda value: trees.strong(jnp.asarray(value, jnp.int32))
    ),
]
# What the random numbers of a round are used for.
DRAW, ENTER = 0, 1


class Replay(Checked, eqx.Module, prefix="Replay."):
    """A bounded reservoir of past rounds, from which a window draws its terms.

    **Arguments:**

    - `capacity`: C, how many rounds are kept, the current one included; at least the window's size.
    - `recency`: m, the mean age of a round that is held, in rounds, at least `capacity`; a number,
      so that a sweep may go over it. By default all of the past is held alike.
    - `label`: `round -> how much of each class the round has`, a vector of numbers >= 0, such as
      `jnp.bincount(round["label"], length=10)` or `jax.nn.one_hot(round["task"], 5)`. Then the
      draws are balanced: each is made for one of the classes that are held, each of them in turn,
      in a random order, among the rounds that have it and in proportion to how much they have.
      The reservoir itself is not balanced: a class that has become rare is drawn again and again.
    - `seed`: the seed of the draws, which depend on it and on t alone.

    >>> Replay(1000, recency=5000)
    Replay(1000, recency=5000)
    """

    capacity: Count
    recency: Recency | None = eqx.field(default=None, kw_only=True)
    label: Label | None = eqx.field(default=None, static=True, kw_only=True)
    seed: int = eqx.field(default=0, kw_only=True)

    def __check_init__(self) -> None:
        if self.recency is None or not trees.is_concrete(self.recency):
            return
        if int(self.recency) < self.capacity:
            raise ValueError(
                f"Replay.recency must be at least capacity, {self.capacity}: so many different "
                f"rounds are no younger on average, but got {int(self.recency)}."
            )

    def __repr__(self) -> str:
        return messages.described(self, "capacity")

    def reservoir(self, example: PyTree) -> "Reservoir":
        """Return an empty reservoir for rounds shaped like the example."""
        slots, classes = self.capacity - 1, None
        if self.label is not None:
            amounts = jax.eval_shape(self.label, example)
            if getattr(amounts, "ndim", None) != 1:
                raise ValueError(
                    f"Replay.label must return how much of each class a round has, a vector such "
                    f"as jax.nn.one_hot(label, classes), but returns {amounts}."
                )
            classes = jnp.zeros((slots, *amounts.shape), jnp.float32)
        empty = zeros_for(example, slots), jnp.zeros(slots, bool)
        return Reservoir(*empty, jnp.zeros(slots, jnp.int32), jnp.asarray(0, jnp.int32), classes)

    def key(self, t: Int[Array, ""], purpose: int) -> Array:
        """Return the key of the random numbers of round t."""
        return jax.random.fold_in(jax.random.fold_in(jax.random.key(self.seed), t), purpose)


class Reservoir(RingBuffer):
    """A buffer whose slots hold rounds of any age."""

    age: Int[Array, " slots"]
    """The age of the round in each slot, in the next round; the newest is 1 old."""
    offered: Int[Array, ""]
    """The number n of rounds since the last cut."""
    classes: Float[Array, "slots classes"] | None
    """How much of each class the round in each slot has."""

    def terms(self, round: PyTree, t: Int[Array, ""], window: Any) -> Terms:
        """Return the current round and w - 1 draws, ordered by their ages: u_1 is the weight of the
        youngest of them."""
        replay, weights = window.replay, window.weights
        drawn, known = self.draw(replay, t, len(weights) - 1)
        order = jnp.argsort(jnp.where(known, -self.age[drawn], -NEVER))
        drawn, known = drawn[order], known[order]
        slot, enters = self.place(replay, t)
        return Terms(
            rounds=self.stacked(round, drawn),
            past=self,
            current=round,
            present=sharding.replicate(jnp.append(known, True)),
            weights=weights[::-1],
            total=window.total,
            oldest_first=jnp.arange(len(weights), dtype=t.dtype),
            slots=drawn,
            newest=jnp.argmin(jnp.where(self.present, self.age, NEVER)).astype(jnp.int32),
            slot=jnp.where(enters, slot, self.slots),
        )

    def draw(
        self, replay: Replay, t: Int[Array, ""], count: int
    ) -> tuple[Int[Array, " n"], Bool[Array, " n"]]:
        """Return `count` different slots, and which of them hold a round."""
        key = replay.key(t, DRAW)
        if self.classes is not None:
            return self._balanced_draw(self.classes, key, count)
        best, slots = jax.lax.top_k(self._scores(key, self.present), count)
        return slots, jnp.isfinite(best)

    def _scores(
        self, key: Array, among: Bool[Array, " slots"], chance: Array | None = None
    ) -> Array:
        """Return random scores, -log(-log u) + log p with u uniform. The slots with the largest
        scores are a draw without replacement, with chances in proportion to p."""
        scores = jax.random.gumbel(key, (self.slots,), jnp.float32)
        scores = scores if chance is None else scores + jnp.log(chance)
        return jnp.where(among, scores, -jnp.inf)

    def _balanced_draw(
        self, classes: Float[Array, "slots classes"], key: Array, count: int
    ) -> tuple[Int[Array, " n"], Bool[Array, " n"]]:
        """Draw one slot after the other, each for the next of the classes that are held."""
        amounts = jnp.where(self.present[:, None], classes, 0)
        held = jnp.any(amounts > 0, axis=0)
        turns = jax.random.uniform(jax.random.fold_in(key, count), held.shape, jnp.float32)
        order = jnp.argsort(jnp.where(held, turns, jnp.inf))
        kinds = jnp.maximum(jnp.sum(held), 1)

        def one(left: Bool[Array, " slots"], n: Array) -> tuple[Array, tuple[Array, Array]]:
            chance, present = amounts[:, order[n % kinds]], left & self.present
            # Where no round of the class is left, any round; where none at all is, an empty slot.
            wanted = present & (chance > 0)
            key_n, has, some = jax.random.fold_in(key, n), jnp.any(wanted), jnp.any(present)
            among = jnp.where(has, wanted, jnp.where(some, present, left))
            slot = jnp.argmax(self._scores(key_n, among, jnp.where(has & wanted, chance, 1)))
            return left.at[slot].set(False), (slot.astype(jnp.int32), some)

        return jax.lax.scan(one, jnp.ones(self.slots, bool), jnp.arange(count))[1]

    def place(self, replay: Replay, t: Int[Array, ""]) -> tuple[Int[Array, ""], Bool[Array, ""]]:
        """Return the slot of round t, and whether the round enters the reservoir."""
        offered = self.offered + 1
        if replay.recency is not None:
            offered = jnp.minimum(offered, replay.recency)
        chance = jax.random.randint(replay.key(t, ENTER), (), 0, offered, jnp.int32)
        free = ~self.present
        slot = jnp.where(jnp.any(free), jnp.argmax(free).astype(jnp.int32), chance)
        return slot, chance < self.slots

    def keep_recent(self, t: Int[Array, ""], count: Int[Array, ""]) -> "Reservoir":
        """Return the reservoir with those of the `count` most recent rounds that it holds."""
        kept = self.only(self.age <= count)
        offered = jnp.minimum(self.offered, count.astype(jnp.int32))
        return eqx.tree_at(lambda reservoir: reservoir.offered, kept, offered)

    def push(
        self,
        t: Int[Array, ""],
        round: PyTree,
        accepted: Bool[Array, ""],
        before: RingBuffer | None = None,
        refused: Bool[Array, " slots"] | None = None,
        replay: Replay | None = None,
    ) -> "Reservoir":
        """Return the reservoir after round t; see `RingBuffer.push`."""
        assert replay is not None
        slot, enters = self.place(replay, t)
        writes = accepted & enters
        # Counts stop at the end of 32 bits, where they no longer matter.
        older = jnp.minimum(self.age, NEVER - 1) + 1
        # Where the round does not enter, no slot changes but those refused.
        nowhere = jnp.asarray(self.slots, slot.dtype)
        present = self._present_after(jnp.where(enters, slot, nowhere), refused)
        age = jnp.where(enters & (jnp.arange(self.slots, dtype=slot.dtype) == slot), 1, older)
        new = present, age, jnp.minimum(self.offered, NEVER - 2) + 1
        kept = before if isinstance(before, Reservoir) else self
        old = kept.present, kept.age, kept.offered
        present, age, offered = trees.select(accepted, new, old)
        classes = self.classes
        if classes is not None and replay.label is not None:
            amounts = replay.label(round).astype(classes.dtype)
            classes = written(classes, slot, amounts, writes)
        rounds = written(self.rounds, slot, round, writes)
        return Reservoir(rounds, present, age, offered, classes)
