"""Has the world changed? Answers from the losses suffered alone, for windows that end at a change.

A detector sees l_t = f_t(x_t, y_t), the loss suffered before round t is learned from, and says how
many of the rounds before t still belong to the present regime.

`ScaleChange` compares the n_1 rounds since a split, of mean loss m_1, with the n_0 rounds before
it, of mean m_0, by the likelihood ratio of two gamma laws of shape a against one (of mean m):

    E = a (n_0 log(m / m_0) + n_1 log(m / m_1)).

It does not depend on the scale of the losses. If nothing changed and they are independent with one
gamma law of that shape, whatever its mean, then P(E >= h and m_1 > m_0) <= exp(-h) for all n_0 and
n_1 (n_1 m_1 / (n m) is a Beta variable, and this is Chernoff's bound on its tail). Squared errors
of one Gaussian target have shape 1/2.

Three things make it a detector:

- The splits lie some powers of two back, as ADWIN's do (Bifet and Gavaldà, 2007): memory and work
  of a round do not depend on t.
- The largest loss since the split is left out of m_1, which can only lower E: one outlier, however
  large, is no change.
- Only a *rise* is a change of the world. A follower that learns makes its losses fall: then the
  detector forgets what was before the fall, so that a later rise is held against what the follower
  has come to, and says that nothing changed.
"""

import abc
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ._support import messages, trees
from ._support.trees import PyTree, is_concrete
from .round_buffer import NEVER as NEVER

LEVELS, EACH = 16, 4
"""Blocks of 1, 2, 4, ..., 2**15 rounds, up to four of each. What is older than some 2**17 rounds
is no longer compared with."""


class Detector(eqx.Module):
    """The base class of detectors for `obax.Window(cut=...)`. Derive your own from it."""

    @abc.abstractmethod
    def init(self) -> PyTree:
        """Return the memory before the first round: arrays."""

    @abc.abstractmethod
    def observe(self, memory: PyTree, loss: Float[Array, ""]) -> tuple[PyTree, Int[Array, ""]]:
        """Return the memory after a round with this loss, and how many of the most recent rounds
        *before* it belong to the same regime: 0 for none, `NEVER` for all."""


class Blocks(NamedTuple):
    """The past in blocks of rounds, newest first: those of one round, of two, of four, ...

    Each field is [LEVELS, EACH], zero where there is no block.
    """

    rounds: Float[Array, "levels each"]
    largest: Float[Array, "levels each"]
    """The largest loss of a block."""
    rest: Float[Array, "levels each"]
    """The sum of the others. Kept apart, so that no difference has to recover it."""

    def push(self, loss: Float[Array, ""]) -> "Blocks":
        """Return the blocks with one more round. Where a level is full its two oldest blocks become
        one of the next level, and so on while levels are full."""
        full = self.rounds[:, -1] > 0
        grows = _before(~full) == 0
        older, oldest = (Blocks(*(field[:, i] for field in self)) for i in (-2, -1))
        smaller = jnp.minimum(older.largest, oldest.largest)
        pairs = Blocks(
            older.rounds + oldest.rounds,
            jnp.maximum(older.largest, oldest.largest),
            older.rest + oldest.rest + smaller,
        )
        gone = full[:, None] & (jnp.arange(EACH) == EACH - 1)

        def place(field: Array, new: Array, pair: Array) -> Array:
            comes = jnp.concatenate([new[None], pair[:-1]])
            moved = jnp.concatenate([comes[:, None], field[:, :-1]], axis=1)
            return jnp.where(grows[:, None], jnp.where(gone, 0, moved), field)

        one = Blocks(jnp.ones_like(loss), loss, jnp.zeros_like(loss))
        return Blocks(*map(place, self, one, pairs))

    def keep(self, newest: Bool[Array, " blocks"]) -> "Blocks":
        """Return the blocks without the others."""
        return Blocks(*(jnp.where(newest.reshape(LEVELS, EACH), field, 0) for field in self))


def _number(name: str, default: float, below: float = math.inf) -> Any:
    """Return a field that is a number > 0."""

    def convert(value: float | Array) -> Array:
        array = trees.positive_array(value, name)
        if is_concrete(array) and not np.all(np.asarray(array) < below):
            raise ValueError(f"{name} must be in (0, {below:g}), but got {value!r}.")
        return array

    return eqx.field(default=default, converter=convert)


class ScaleChange(Detector):
    """A detector that cuts where positive losses, such as squared errors, have risen by a factor.

    **Arguments:**

    - `false_alarms`: how many changes per round it may see where there are none; the threshold is
      h = log(1 / false_alarms). For a single split this is a bound, for all of them together it is
      what simulations show: 0.3 to 0.8 of it, with independent losses of the shape given.
    - `shape`: a of the gamma law. The mean of n squared errors of Gaussian targets has n / 2.
      Smoother losses are cut less often than promised; heavier tails more often, unless a is less.
    - `floor`: smaller losses count as this. Below it, where rounding is all there is, nothing
      changes. Losses that are negative count as it too: shift them, or derive a `Detector`. So do
      zeros, after which any loss is a rise beyond measure: not for losses that are 0 or 1.

    A change by a factor r is found after some h / (a (r - 1 - log r)) rounds, and one more. A loss
    that is not a number is no evidence: `obax.Window` leaves it out.

    >>> detector = ScaleChange()
    >>> memory = detector.init()
    >>> for t in range(40):
    ...     memory, kept = detector.observe(memory, jnp.asarray(1.0 if t < 37 else 50.0))
    ...     if kept < NEVER:
    ...         print(f"round {t}: {kept} round before it is like it")
    round 38: 1 round before it is like it
    """

    false_alarms: Float[Array, ""] = _number("false_alarms", 1e-4, below=1)
    shape: Float[Array, ""] = _number("shape", 0.5)
    floor: Float[Array, ""] = _number("floor", 1e-12)

    def __repr__(self) -> str:
        return messages.described(self)

    def init(self) -> Blocks:
        """Return blocks without rounds."""
        nothing = jnp.zeros((LEVELS, EACH))
        return Blocks(nothing, nothing, nothing)

    def observe(self, memory: Blocks, loss: Float[Array, ""]) -> tuple[Blocks, Int[Array, ""]]:
        """Return the rounds that the detector compares with, and how many before this one belong to
        the same regime: `NEVER`, or those since the split with the most evidence."""
        past = memory.push(self._within(loss.astype(memory.rest.dtype)))
        rounds, largest, rest = map(jnp.ravel, past)
        # Since the split behind each block: the largest, and the sum of all others.
        top = jax.lax.cummax(largest)
        second = jnp.minimum(largest, jnp.concatenate([jnp.zeros(1, top.dtype), top[:-1]]))
        n, others = _up_to(rounds), _up_to(rest + second)
        # Before it.
        n_0, before = _after(rounds), _after(rest + largest)
        rises = (n_0 > 0) & (n > 1) & (others * n_0 > before * (n - 1))
        falls = (n_0 > 0) & (rounds > 0) & ((others + top) * n_0 < before * n)
        n_1, since = jnp.where(rises, n - 1, n), jnp.where(rises, others, others + top)
        evidence = jnp.where(rises | falls, self.shape * _ratio(n_0, before, n_1, since), 0)
        most = jnp.max(evidence)
        split = jnp.min(jnp.where(evidence == most, n, jnp.inf))
        changed = most > -jnp.log(self.false_alarms)
        cut = changed & jnp.any(rises & (n == split))
        kept = jnp.where(cut, split.astype(jnp.int32) - 1, NEVER)
        return past.keep(~changed | (n <= split)), kept

    def _within(self, loss: Float[Array, ""]) -> Float[Array, ""]:
        """Return a loss that is clipped so that sums stay finite."""
        most = jnp.finfo(loss.dtype).max / 2 ** (LEVELS + 2)
        return jnp.clip(loss, jnp.asarray(self.floor, loss.dtype), most)


def _ratio(n_0: Array, before: Array, n_1: Array, since: Array) -> Array:
    """Return n_0 log(m / m_0) + n_1 log(m / m_1), as sums of n (r - 1 - log r) with r = m_0 / m and
    m_1 / m, whose linear parts add up to zero: nothing large is subtracted."""
    mean = (before + since) / (n_0 + n_1)

    def part(n: Array, total: Array) -> Array:
        r = total / (n * mean)
        return n * (r - 1 - jnp.log(r))

    return part(n_0, before) + part(n_1, since)


# Sums by a product with a triangle: several times as fast as `jnp.cumsum` in a batch on a CPU.
def _up_to(terms: Array) -> Array:
    return terms @ jnp.asarray(np.triu(np.ones(2 * terms.shape)), terms.dtype)


def _after(terms: Array) -> Array:
    return terms @ jnp.asarray(np.tril(np.ones(2 * terms.shape), -1), terms.dtype)


def _before(flags: Bool[Array, " n"]) -> Float[Array, " n"]:
    return flags.astype(float) @ jnp.asarray(np.triu(np.ones(2 * flags.shape), 1), float)
