"""What is kept of past rounds, and what a round looks at of it.

A `RingBuffer` of fixed shape holds rounds, or what was computed from them, in slots, and says of
each slot whether what it holds is *there*: a slot that was never filled, one that lies before a
cut and one whose round was refused count for nothing. `Terms` are the w rounds of a window, taken
from a buffer and the current round.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ._support import spread, trees
from ._support.trees import PyTree

NEVER = 2**31 - 1
"""So many rounds that all of the past is among them: what a detector says where nothing changed."""


class Refused(NamedTuple):
    """Slots of a buffer whose rounds are not finite at today's pair, and how many they are."""

    slots: Bool[Array, " slots"]
    count: Int[Array, ""]  # type: ignore[assignment]


class Terms(NamedTuple):
    """The w rounds that a window looks at, the current one in the last place."""

    rounds: PyTree
    """Stacked."""
    past: "RingBuffer"
    """Where the past ones come from."""
    current: PyTree
    there: Bool[Array, " w"]
    number: Int[Array, ""]
    """How many are there, the current one among them."""
    weights: Float[Array, " w"]
    """u_i of each, whether it is there or not."""
    total: Float[Array, ""] | None
    """What the sum is divided by; `None`: the weight of those that are there."""
    oldest_first: Int[Array, " w"]
    """Their places from the oldest to the current one."""
    slots: Int[Array, " past"] | None
    """Where in the buffer the past ones are; `None`: in the order of its slots."""
    newest: Int[Array, ""]
    """Where in the buffer the newest past round is."""
    place: Int[Array, ""]
    """Where the current round will go; beyond the last slot if nowhere."""

    @property
    def weight(self) -> Float[Array, ""]:
        """What the sum of the terms is divided by."""
        return jnp.sum(self._counted) if self.total is None else self.total

    @property
    def _counted(self) -> Float[Array, " w"]:
        return spread.whole(jnp.where(self.there, self.weights, 0))

    def shares(self) -> Float[Array, " w"]:
        """u_i / W of each; zero for one that is not there."""
        return spread.per_term(self._counted / self.weight)

    def mean(self, stacked: PyTree) -> PyTree:
        """(1/W) sum_i u_i times the term of round t - i, from stacked terms.

        Terms that are not there are left out by selection, not by a zero weight: what was computed
        from an empty slot may be NaN.
        """
        share, there = self.shares(), spread.per_term(self.there)

        def leaf_mean(leaf: Array) -> Array:
            present = along(there, leaf)
            return jnp.tensordot(share.astype(leaf.dtype), jnp.where(present, leaf, 0), axes=1)

        return jax.tree.map(leaf_mean, stacked)

    def without(self, bad: Bool[Array, " w"]) -> "Terms":
        """Without those that are bad; the current round stays, and is the guard's to judge."""
        kept = jnp.append(~spread.whole(bad)[:-1], True)
        return self.only(spread.whole(self.there & kept))

    def only(self, there: Bool[Array, " w"]) -> "Terms":
        """With these that are there."""
        return self._replace(there=there, number=jnp.sum(there, dtype=jnp.int32))

    def lost(self, left: "Terms", past: "RingBuffer") -> Refused:
        """The slots of the buffer whose rounds are in these terms and not among those `left`."""
        gone = (self.there & ~left.there)[:-1]
        if self.slots is not None:
            gone = jnp.zeros_like(past.there).at[self.slots].set(gone)
        return Refused(gone, self.number - left.number)

    def afresh(self) -> "Terms":
        """The same, with rounds that are stacked again: for a loop that is seldom entered. It would
        have all that it may need laid out before it, and what is taken from the buffer inside it
        costs nothing where it is not."""
        return self._replace(rounds=self.past.stacked(self.current, self.slots))

    def filled(self) -> PyTree:
        """The rounds, with copies of the current one in place of those that are not there: a NaN
        behind a zero weight would still reach the derivatives."""
        there = spread.per_term(self.there)
        return jax.tree.map(
            lambda stacked, current: jnp.where(along(there, stacked), stacked, current),
            self.rounds,
            self.current,
        )


def along(mask: Bool[Array, " n"], stacked: Array) -> Array:
    """A mask with as many axes as the stacked entries that it is one of."""
    return mask.reshape((-1,) + (1,) * (stacked.ndim - 1))


def with_current(stacked: PyTree, current: PyTree, spare: bool) -> PyTree:
    """Entries of a buffer, by slot, then the current one."""

    def join(past: Array, new: Array) -> Array:
        if spare:
            return past.at[-1].set(new)
        return jnp.concatenate([past, jnp.asarray(new)[None]])

    return jax.tree.map(join, stacked, current)


class RingBuffer(eqx.Module):
    """The rounds before the current one, each leaf stacked on a leading axis of length w - 1.

    Round t goes into slot (t - 1) mod (w - 1), and only after it has been played: reading the old
    buffer and writing once at the end is what lets XLA update it in place.

    Over the devices of a mesh it has a `spare` slot at its end, where the current round will stand;
    which slots are `there` is then known on every device.
    """

    rounds: PyTree
    there: Bool[Array, " slots"]
    held: Int[Array, ""]
    """How many are there: a sum over the slots in every round would be seen in small ones."""
    spare: bool = eqx.field(static=True)

    @property
    def slots(self) -> int:
        """How many past rounds there is room for."""
        return self.there.shape[0]

    @classmethod
    def like(cls, example_round: PyTree, slots: int) -> "RingBuffer":
        """An empty buffer for rounds shaped like this one."""
        none = jnp.zeros(slots, bool), jnp.asarray(0, jnp.int32)
        return cls(room(example_round, slots), *none, spread.is_spread())

    def with_current(self, round: PyTree) -> PyTree:
        """All w rounds stacked: the past by slot, then the current one."""
        return with_current(self.rounds, round, self.spare)

    def stacked(self, round: PyTree, slots: Int[Array, " past"] | None = None) -> PyTree:
        """The rounds in these slots, or in all of them, and then the current one."""
        if slots is None:
            return self.with_current(round)
        last = jnp.full(1, self.slots, slots.dtype)
        return Tasks(self, round).some(jnp.concatenate([slots, last]))

    def ages(self, t: Int[Array, ""]) -> Int[Array, " slots"]:
        """How many rounds before round t the one in each slot came; the newest is 1 old."""
        behind = jnp.remainder(t - 2, max(self.slots, 1)) - jnp.arange(self.slots, dtype=t.dtype)
        return 1 + jnp.where(behind < 0, behind + self.slots, behind)

    def terms(
        self,
        round: PyTree,
        t: Int[Array, ""],
        weights: Float[Array, " w"],
        total: Float[Array, ""] | None,
        replay: Any = None,
    ) -> Terms:
        """What round t looks at with the weights u_i."""
        slots = max(self.slots, 1)
        age = spread.whole(jnp.append(self.ages(t), 0))
        older = t - 1 - jnp.arange(self.slots, 0, -1, dtype=t.dtype)
        return Terms(
            rounds=self.stacked(round),
            past=self,
            current=round,
            there=spread.whole(jnp.append(self.there, True)),
            number=self.held + 1,
            weights=weights[age],
            total=total,
            oldest_first=jnp.append(jnp.remainder(older, slots), self.slots),
            slots=None,
            newest=(t - 2) % slots,
            place=(t - 1) % slots,
        )

    def keep(self, t: Int[Array, ""], kept: Int[Array, ""]) -> "RingBuffer":
        """Without all but the most recent `kept` of the rounds before round t."""
        return self.only(self.ages(t) <= kept)

    def only(self, kept: Bool[Array, " slots"]) -> "RingBuffer":
        """Without the rounds in the other slots."""
        there = self.there & kept
        known = there, jnp.sum(there, dtype=jnp.int32)
        return eqx.tree_at(lambda buffer: (buffer.there, buffer.held), self, known)

    def push(
        self,
        t: Int[Array, ""],
        round: PyTree,
        accepted: Bool[Array, ""],
        before: "RingBuffer | None" = None,
        refused: Refused | None = None,
        replay: Any = None,
    ) -> "RingBuffer":
        """The buffer after round t, without what it `refused`; or if the round was not accepted
        exactly the one that there was `before` it."""
        slot = (t - 1) % max(self.slots, 1)
        known, old = self.filled(slot, refused), before or self
        there, held = trees.select(accepted, known, (old.there, old.held))
        rounds = written(self.rounds, slot, round, accepted, self.spare)
        return RingBuffer(rounds, there, held, self.spare)

    def filled(
        self, slot: Int[Array, ""], refused: Refused | None
    ) -> tuple[Bool[Array, " slots"], Int[Array, ""]]:
        """Which are there, and how many, without those refused and with one in this slot."""
        left, held = self.there, self.held
        if refused is not None:
            left, held = left & ~refused.slots, held - refused.count
        was = jax.lax.dynamic_index_in_dim(left, slot, keepdims=False)
        # A mask, because a scatter would be a loop on the CPU.
        here = jnp.arange(self.slots, dtype=slot.dtype) == slot
        return left | here, held + jnp.where(was, 0, 1)


def room(example: PyTree, slots: int) -> PyTree:
    """Zeros for so many things shaped like this one, and over a mesh for a spare one."""

    def empty(leaf: Array | jax.ShapeDtypeStruct) -> Array:
        return jnp.zeros((spread.slots_of(slots), *leaf.shape), leaf.dtype)

    return jax.tree.map(empty, example)


def written(
    stacked: PyTree, slot: Int[Array, ""], new: PyTree, where: Bool[Array, ""], spare: bool
) -> PyTree:
    """The entries of a buffer with that of one slot replaced, if `where`."""

    def write(past: Array, new: Array) -> Array:
        if spare:
            return spread.replace(past, slot, new, where)
        before = jax.lax.dynamic_index_in_dim(past, slot, keepdims=False)
        kept = jnp.where(where, new, before)
        return jax.lax.dynamic_update_index_in_dim(past, kept, slot, 0)

    return jax.tree.map(write, stacked, new)


class Tasks(NamedTuple):
    """The rounds so far by slot: those of a buffer, and behind them the current one."""

    past: RingBuffer
    current: PyTree

    def at(self, slot: Int[Array, ""]) -> PyTree:
        """The round in a slot."""
        past = spread.pick(self.past.rounds, slot)
        return trees.select(slot == self.past.slots, self.current, past)

    def some(self, slots: Int[Array, " n"]) -> PyTree:
        """The rounds in some slots, stacked; over several devices, each has its part of them."""
        return spread.per_term(spread.whole(jax.vmap(self.at)(spread.whole(slots))))
