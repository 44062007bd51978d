"""Windows that remember more than the last w rounds: w - 1 terms drawn from a bounded reservoir.

In round t the window holds the current round and w - 1 others, drawn without replacement from a
reservoir of C - 1 past rounds. After it round t, the n-th since the last cut, enters the reservoir
with probability

    (C - 1) / min(n, m),        in place of one that is chosen uniformly once there is no room.

Without a recency m this is reservoir sampling: each of the n rounds so far is held with the same
probability (C - 1) / n. With one, from n = m on, each slot forgets its round with probability 1/m
in every round: the age of what it holds is geometric with mean m, and the first m rounds are
remembered alike. Memory is C rounds; a round costs w terms and one random number for each slot.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ._support import spread, trees, validation
from ._support.functions import shared
from ._support.trees import PyTree
from .past import NEVER, Refused, RingBuffer, Terms, room, written

Label = Callable[[PyTree], Float[Array, " classes"]]
# What the random numbers of a round are for.
DRAW, ENTER = 0, 1


class Replay(eqx.Module):
    """A bounded reservoir of past rounds, from which a window draws its terms.

    **Arguments:**

    - `capacity`: C, how many rounds are kept, the current one included; at least the window's size.
    - `recency`: m, the mean age of what is held, in rounds, at least `capacity`; a number, so that
      a sweep may go over it. By default all of the past counts alike.
    - `label`: `round -> how much of each class the round has`, a vector of numbers >= 0, such as
      `jnp.bincount(round["label"], length=10)` or `jax.nn.one_hot(round["task"], 5)`. Then the
      draws are balanced: each is made for one of the classes that are held, each of them in turn,
      in a random order, among the rounds that have it and in proportion to how much they have.
      What is held is not balanced: a class that has become rare is drawn again and again.
    - `seed`: of the draws, which depend on it and on t alone.

    >>> Replay(1000, recency=5000)
    Replay(1000, recency=5000)
    """

    capacity: int = eqx.field(static=True)
    recency: Int[Array, ""] | None
    label: Label | None = eqx.field(static=True)
    seed: int = eqx.field(static=True)

    def __init__(
        self,
        capacity: int,
        *,
        recency: int | Array | None = None,
        label: Label | None = None,
        seed: int = 0,
    ):
        self.capacity = validation.count(capacity, "Replay.capacity")
        self.recency = None if recency is None else self._rounds(recency)
        if label is not None:
            validation.function(label, "Replay.label", "round -> how much of each class it has")
        self.label = shared(label)
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
            raise ValueError(f"Replay.seed must be an integer, but got {seed!r}.")
        self.seed = int(seed)

    def _rounds(self, recency: int | Array) -> Int[Array, ""]:
        array = recency if isinstance(recency, jax.Array) else None
        if array is None:
            array = jnp.asarray(validation.count(recency, "Replay.recency"), jnp.int32)
        if array.shape != () or not jnp.issubdtype(array.dtype, jnp.integer):
            raise ValueError(
                f"Replay.recency must be one integer, but is {array.dtype}{list(array.shape)}."
            )
        if trees.is_concrete(array) and int(array) < self.capacity:
            raise ValueError(
                f"Replay.recency must be at least capacity, {self.capacity}: so many different "
                f"rounds are no younger on average, but got {int(array)}."
            )
        return validation.strong(array.astype(jnp.int32))

    def __repr__(self) -> str:
        words = [str(self.capacity)]
        if self.recency is not None:
            known = trees.is_concrete(self.recency) and self.recency.ndim == 0
            words.append(f"recency={int(self.recency) if known else self.recency}")
        words += [f"label={self.label}"] * (self.label is not None)
        words += [f"seed={self.seed}"] * (self.seed != 0)
        return f"Replay({', '.join(words)})"

    def room(self, example: PyTree) -> "Reservoir":
        """An empty reservoir for rounds shaped like this one."""
        slots, classes = self.capacity - 1, None
        if self.label is not None:
            found = jax.eval_shape(self.label, example)
            if getattr(found, "ndim", None) != 1:
                raise ValueError(
                    f"Replay.label must return how much of each class a round has, a vector such "
                    f"as jax.nn.one_hot(label, classes), but returns {found}."
                )
            classes = jnp.zeros((slots, *found.shape), jnp.float32)
        return Reservoir(
            room(example, slots),
            jnp.zeros(slots, bool),
            jnp.asarray(0, jnp.int32),
            spread.is_spread(),
            jnp.zeros(slots, jnp.int32),
            jnp.asarray(0, jnp.int32),
            classes,
        )

    def key(self, t: Int[Array, ""], purpose: int) -> Array:
        """For the random numbers of round t."""
        return jax.random.fold_in(jax.random.fold_in(jax.random.key(self.seed), t), purpose)


class Reservoir(RingBuffer):
    """A buffer whose slots hold rounds of any age."""

    age: Int[Array, " slots"]
    """Of the rounds in the slots, in the next round: the newest is 1 old."""
    offered: Int[Array, ""]
    """n, how many rounds there were since the last cut."""
    classes: Float[Array, "slots classes"] | None
    """How much of each class the rounds have."""

    def terms(
        self,
        round: PyTree,
        t: Int[Array, ""],
        weights: Float[Array, " w"],
        total: Float[Array, ""] | None,
        replay: Replay | None = None,
    ) -> Terms:
        """The current round and w - 1 draws in the order of their ages: u_1 is the weight of the
        youngest of them."""
        assert replay is not None
        drawn, found = self.draw(replay, t, len(weights) - 1)
        order = jnp.argsort(jnp.where(found, -self.age[drawn], -NEVER))
        drawn, found = drawn[order], found[order]
        slot, enters = self.place(replay, t)
        return Terms(
            rounds=self.stacked(round, drawn),
            past=self,
            current=round,
            there=spread.whole(jnp.append(found, True)),
            number=1 + jnp.minimum(self.held, len(found)),
            weights=weights[::-1],
            total=total,
            oldest_first=jnp.arange(len(weights), dtype=t.dtype),
            slots=drawn,
            newest=jnp.argmin(jnp.where(self.there, self.age, NEVER)).astype(jnp.int32),
            place=jnp.where(enters, slot, self.slots),
        )

    def draw(
        self, replay: Replay, t: Int[Array, ""], count: int
    ) -> tuple[Int[Array, " n"], Bool[Array, " n"]]:
        """`count` different slots, and which of them hold a round that was drawn: all of them, if
        there are so many."""
        key = replay.key(t, DRAW)
        if self.classes is not None:
            return self._balanced(self.classes, key, count)
        best, slots = jax.lax.top_k(self._luck(key, self.there), count)
        return slots, jnp.isfinite(best)

    def _luck(self, key: Array, among: Bool[Array, " slots"], chance: Array | None = None) -> Array:
        """Whose are the largest is drawn, without replacement and with chances in proportion to
        those given: -log(-log u) + log p, u uniform."""
        luck = jax.random.gumbel(key, (self.slots,), jnp.float32)
        luck = luck if chance is None else luck + jnp.log(chance)
        return jnp.where(among, luck, -jnp.inf)

    def _balanced(
        self, classes: Float[Array, "slots classes"], key: Array, count: int
    ) -> tuple[Int[Array, " n"], Bool[Array, " n"]]:
        """One draw after the other, each for the next of the classes that are held."""
        held = jnp.where(self.there[:, None], classes, 0)
        known = jnp.any(held > 0, axis=0)
        turns = jax.random.uniform(jax.random.fold_in(key, count), known.shape, jnp.float32)
        order = jnp.argsort(jnp.where(known, turns, jnp.inf))
        kinds = jnp.maximum(jnp.sum(known), 1)

        def one(left: Bool[Array, " slots"], n: Array) -> tuple[Array, tuple[Array, Array]]:
            chance, there = held[:, order[n % kinds]], left & self.there
            # Where no round of the class is left, any; where none at all is, an empty slot.
            wanted = there & (chance > 0)
            key_n, has, some = jax.random.fold_in(key, n), jnp.any(wanted), jnp.any(there)
            among = jnp.where(has, wanted, jnp.where(some, there, left))
            slot = jnp.argmax(self._luck(key_n, among, jnp.where(has & wanted, chance, 1)))
            return left.at[slot].set(False), (slot.astype(jnp.int32), some)

        return jax.lax.scan(one, jnp.ones(self.slots, bool), jnp.arange(count))[1]

    def place(self, replay: Replay, t: Int[Array, ""]) -> tuple[Int[Array, ""], Bool[Array, ""]]:
        """Where round t goes, and whether it does."""
        offered = self.offered + 1
        if replay.recency is not None:
            offered = jnp.minimum(offered, replay.recency)
        chance = jax.random.randint(replay.key(t, ENTER), (), 0, offered, jnp.int32)
        free = ~self.there
        slot = jnp.where(jnp.any(free), jnp.argmax(free).astype(jnp.int32), chance)
        return slot, chance < self.slots

    def keep(self, t: Int[Array, ""], kept: Int[Array, ""]) -> "Reservoir":
        """Those of the most recent `kept` rounds that are held; the others of them are lost."""
        found = self.only(self.age <= kept)
        offered = jnp.minimum(self.offered, kept.astype(jnp.int32))
        return eqx.tree_at(lambda it: it.offered, found, offered)

    def push(
        self,
        t: Int[Array, ""],
        round: PyTree,
        accepted: Bool[Array, ""],
        before: RingBuffer | None = None,
        refused: Refused | None = None,
        replay: Replay | None = None,
    ) -> "Reservoir":
        """The reservoir after round t, without what it `refused`; or exactly the one `before` it if
        it was not accepted."""
        assert replay is not None
        slot, enters = self.place(replay, t)
        writes = accepted & enters
        # Counts stop where 32 bits end: such an age, and such a chance, are as good as any beyond.
        older = jnp.minimum(self.age, NEVER - 1) + 1
        # Where the round does not enter, the slot may be any: what is not refused stays.
        nowhere = jnp.asarray(self.slots, slot.dtype)
        there, held = self.filled(jnp.where(enters, slot, nowhere), refused)
        age = jnp.where(enters & (jnp.arange(self.slots, dtype=slot.dtype) == slot), 1, older)
        known = there, held, age, jnp.minimum(self.offered, NEVER - 2) + 1
        kept = before if isinstance(before, Reservoir) else self
        old = kept.there, kept.held, kept.age, kept.offered
        there, held, age, offered = trees.select(accepted, known, old)
        rounds = written(self.rounds, slot, round, writes, self.spare)
        classes = self.classes
        if classes is not None and replay.label is not None:
            amounts = replay.label(round).astype(classes.dtype)
            classes = written(classes, slot, amounts, writes, False)
        return Reservoir(rounds, there, held, self.spare, age, offered, classes)
