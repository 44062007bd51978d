"""Buffers of past rounds, and the terms of a window taken from them.

A `RingBuffer` has a fixed number of slots. Each slot holds a round, or what was computed from it,
and `present` says which slots count: a slot that was never filled, one that lies before a cut and
one whose round was refused do not.
`Terms` are the w rounds of a window: some of a buffer, and the current round.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ._support import sharding, trees
from ._support.trees import PyTree

NEVER = 2**31 - 1
"""A number of rounds larger than any past: what a detector returns where nothing changed."""


class Terms(NamedTuple):
    """The w rounds of a window, the current round last."""

    rounds: PyTree
    """The rounds, stacked."""
    past: "RingBuffer"
    """The buffer that holds the past rounds."""
    current: PyTree
    """The current round."""
    present: Bool[Array, " w"]
    """Which terms count."""
    weights: Float[Array, " w"]
    """The weight u_i of each term, whether it counts or not."""
    total: Float[Array, ""] | None
    """What the weighted sum is divided by; `None` for the weight of the terms that count."""
    oldest_first: Int[Array, " w"]
    """The indices of the terms, from the oldest round to the current one."""
    slots: Int[Array, " past"] | None
    """The slots of the past rounds; `None` if they are in the order of the slots."""
    newest: Int[Array, ""]
    """The slot of the newest past round."""
    slot: Int[Array, ""]
    """The slot that the current round will be written to; beyond the last one for none."""

    @property
    def number(self) -> Int[Array, ""]:
        """The number of terms that count, the current round included."""
        return jnp.sum(self.present, dtype=jnp.int32)

    @property
    def weight(self) -> Float[Array, ""]:
        """What the weighted sum of the terms is divided by."""
        return jnp.sum(self._present_weights) if self.total is None else self.total

    @property
    def _present_weights(self) -> Float[Array, " w"]:
        return sharding.replicate(jnp.where(self.present, self.weights, 0))

    def shares(self) -> Float[Array, " w"]:
        """Return u_i / W of each term, zero for one that does not count."""
        return sharding.shard_terms(self._present_weights / self.weight)

    def mean(self, stacked: PyTree) -> PyTree:
        """Return (1/W) sum_i u_i times the i-th of the stacked terms.

        Terms that do not count are removed by a selection and not by a zero weight, because what
        was computed from an empty slot may be NaN.
        """
        share, present = self.shares(), sharding.shard_terms(self.present)

        def leaf_mean(leaf: Array) -> Array:
            kept = jnp.where(expand(present, leaf), leaf, 0)
            return jnp.tensordot(share.astype(leaf.dtype), kept, axes=1)

        return jax.tree.map(leaf_mean, stacked)

    def without(self, bad: Bool[Array, " w"]) -> "Terms":
        """Return the terms without the bad ones. The current round always stays: the guard of
        `step` judges it."""
        kept = jnp.append(~sharding.replicate(bad)[:-1], True)
        return self._replace(present=sharding.replicate(self.present & kept))

    def refused(self, left: "Terms") -> Bool[Array, " slots"]:
        """Return the slots whose rounds count here and no longer count in `left`."""
        gone = (self.present & ~left.present)[:-1]
        if self.slots is not None:
            gone = jnp.zeros_like(self.past.present).at[self.slots].set(gone)
        return gone

    def restacked(self) -> "Terms":
        """Return the same terms with rounds that are stacked again.

        Used inside a branch that is seldom taken: rounds that were stacked outside would be copied
        for it in every round.
        """
        return self._replace(rounds=self.past.stacked(self.current, self.slots))

    def filled(self) -> PyTree:
        """Return the rounds, with the current one in place of those that do not count: a NaN behind
        a zero weight would still reach the derivatives."""
        present = sharding.shard_terms(self.present)
        return jax.tree.map(
            lambda stacked, current: jnp.where(expand(present, stacked), stacked, current),
            self.rounds,
            self.current,
        )


def expand(mask: Bool[Array, " n"], stacked: Array) -> Array:
    """Return a mask with axes of length 1 behind, to broadcast against stacked entries."""
    return mask.reshape((-1,) + (1,) * (stacked.ndim - 1))


def with_current(stacked: PyTree, current: PyTree) -> PyTree:
    """Return the entries of a buffer by slot, followed by the current one."""

    def join(past: Array, new: Array) -> Array:
        if sharding.is_sharded():
            return past.at[-1].set(new)
        return jnp.concatenate([past, jnp.asarray(new)[None]])

    return jax.tree.map(join, stacked, current)


def zeros_for(example: PyTree, slots: int) -> PyTree:
    """Return zeros for `slots` entries shaped like the example, and one more over a mesh."""

    def empty(leaf: Array | jax.ShapeDtypeStruct) -> Array:
        return jnp.zeros((sharding.slots_of(slots), *leaf.shape), leaf.dtype)

    return jax.tree.map(empty, example)


def written(stacked: PyTree, slot: Int[Array, ""], new: PyTree, where: Bool[Array, ""]) -> PyTree:
    """Return the entries of a buffer with that of one slot replaced, if `where` is true."""

    def write(past: Array, new: Array) -> Array:
        if sharding.is_sharded():
            return sharding.replace_entry(past, slot, new, where)
        before = jax.lax.dynamic_index_in_dim(past, slot, keepdims=False)
        kept = jnp.where(where, new, before)
        return jax.lax.dynamic_update_index_in_dim(past, kept, slot, 0)

    return jax.tree.map(write, stacked, new)


class RingBuffer(eqx.Module):
    """The rounds before the current one, stacked on a leading axis with one slot for each.

    Round t is written to slot (t - 1) mod `slots`, after it has been played: reading the old buffer
    and writing once at the end lets XLA update it in place. Over a mesh the rounds have one entry
    more, in which the current round is put, so that w terms are divided among the devices.
    """

    rounds: PyTree
    present: Bool[Array, " slots"]
    """Which slots count."""

    @property
    def slots(self) -> int:
        """The number of past rounds that there is room for."""
        return self.present.shape[0]

    @property
    def lies_over_mesh(self) -> bool:
        """Whether the rounds have the entry more that a mesh needs."""
        return any(len(leaf) > self.slots for leaf in jax.tree.leaves(self.rounds))

    @classmethod
    def like(cls, example_round: PyTree, slots: int) -> "RingBuffer":
        """Return an empty buffer for rounds shaped like the example."""
        return cls(zeros_for(example_round, slots), jnp.zeros(slots, bool))

    def slot_of(self, t: Int[Array, ""]) -> Int[Array, ""]:
        """Return the slot of round t."""
        return (t - 1) % max(self.slots, 1)

    def stacked(self, round: PyTree, slots: Int[Array, " past"] | None = None) -> PyTree:
        """Return the rounds in these slots (by default in all), followed by the current one."""
        if slots is None:
            return with_current(self.rounds, round)
        last = jnp.full(1, self.slots, slots.dtype)
        return RoundsBySlot(self, round).some(jnp.concatenate([slots, last]))

    def ages(self, t: Int[Array, ""]) -> Int[Array, " slots"]:
        """Return how many rounds before round t the one in each slot was played."""
        behind = self.slot_of(t - 1) - jnp.arange(self.slots, dtype=t.dtype)
        return 1 + jnp.where(behind < 0, behind + self.slots, behind)

    def terms(self, round: PyTree, t: Int[Array, ""], window: Any) -> Terms:
        """Return the terms of round t in an `obax.Window`, with the weights u_i."""
        age = sharding.replicate(jnp.append(self.ages(t), 0))
        older = t - jnp.arange(self.slots, 0, -1, dtype=t.dtype)
        return Terms(
            rounds=self.stacked(round),
            past=self,
            current=round,
            present=sharding.replicate(jnp.append(self.present, True)),
            weights=window.weights[age],
            total=window.total,
            oldest_first=jnp.append(self.slot_of(older), self.slots),
            slots=None,
            newest=self.slot_of(t - 1),
            slot=self.slot_of(t),
        )

    def keep_recent(self, t: Int[Array, ""], count: Int[Array, ""]) -> "RingBuffer":
        """Return the buffer with the `count` most recent rounds before round t."""
        return self.only(self.ages(t) <= count)

    def only(self, kept: Bool[Array, " slots"]) -> "RingBuffer":
        """Return the buffer with the rounds in these slots."""
        return eqx.tree_at(lambda buffer: buffer.present, self, self.present & kept)

    def push(
        self,
        t: Int[Array, ""],
        round: PyTree,
        accepted: Bool[Array, ""],
        before: "RingBuffer | None" = None,
        refused: Bool[Array, " slots"] | None = None,
        replay: Any = None,
    ) -> "RingBuffer":
        """Return the buffer with round t in it and without the slots that round `refused`. If the
        round was not accepted, return `before`, the buffer as it was."""
        slot, old = self.slot_of(t), self if before is None else before
        present = jnp.where(accepted, self._present_after(slot, refused), old.present)
        return RingBuffer(written(self.rounds, slot, round, accepted), present)

    def _present_after(
        self, slot: Int[Array, ""], refused: Bool[Array, " slots"] | None
    ) -> Bool[Array, " slots"]:
        """Return which slots count without those refused and with this one."""
        left = self.present if refused is None else self.present & ~refused
        # A mask, because a scatter would be a loop on the CPU.
        return left | (jnp.arange(self.slots, dtype=slot.dtype) == slot)


class RoundsBySlot(NamedTuple):
    """The rounds of a buffer by slot, and the current round behind the last slot."""

    past: RingBuffer
    current: PyTree

    def at(self, slot: Int[Array, ""]) -> PyTree:
        """Return the round in a slot."""
        past = sharding.entry(self.past.rounds, slot)
        return trees.select(slot == self.past.slots, self.current, past)

    def some(self, slots: Int[Array, " n"]) -> PyTree:
        """Return the rounds in some slots, stacked; over several devices each has a part."""
        return sharding.shard_terms(
            sharding.replicate(jax.vmap(self.at)(sharding.replicate(slots)))
        )


def random_order(
    seed: int, t: Int[Array, ""], present: Bool[Array, " slots"], *, current_first: bool = False
) -> Int[Array, " capacity"]:
    """Return the slots of `RoundsBySlot` in a random order that is new in every round, with the
    slots that do not count last."""
    capacity = len(present) + 1
    key = jax.random.fold_in(jax.random.key(seed), t)
    draw = jax.random.uniform(key, (capacity,), jnp.float32)
    current = -1.0 if current_first else draw[-1]
    last = jnp.where(jnp.append(present, True), draw, jnp.inf).at[-1].set(current)
    return jnp.argsort(last).astype(jnp.int32)
