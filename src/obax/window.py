"""The last w rounds, how much each of them weighs, and the buffer that keeps them.

    F_{t,u}(x, y) = (1/W) sum_{i<w} u_i f_{t-i}(x, y),
    W = sum_{i<w} u_i,    1 = u_0 >= u_1 >= ... > 0

A ring buffer of fixed shape holds the w - 1 rounds before the current one, so that cost and memory
of a round do not depend on t. Rounds before the first one count as zero.
"""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ._support import showing, spread, validation
from ._support.footprint import footprint
from ._support.trees import PyTree, is_concrete

FOLLOWERS = ("current", "window", "each", "average")
CURVATURES = ("own", "current", "window")
NORMALISATIONS = ("full", "seen")
# Bytes for what the terms of a window need at once; rounds of fewer bytes are not looked at.
ROOM, SMALL = 2**28, 2**16


class Window(eqx.Module):
    """How much of the past a round looks at.

    **Arguments:**

    - `size`: w >= 1, how many rounds are kept.
    - `decay`: weights u_i = decay ** i, by default 1; or `weights`: the sequence u_0, ..., u_{w-1}.
    - `follower`: what the follower trains on. `"current"`: K_t steps on g_t (Algorithm 1);
      `"window"`: K_t passes over the rounds of the window, oldest first, one step each (the paper's
      deep experiments); `"each"`: every round of the window gets a follower of its own
      (meta-learning); `"average"`: K_t steps on (1/W) sum_i u_i g_{t-i}.
    - `curvature`: whose inner problem a window term is differentiated through. `"own"`: that of its
      own round (the paper's definition, w linear systems); `"current"`: that of round t (what the
      local regret compares with; one linear system whatever w is); `"window"`: that of the average
      (1/W) sum_i u_i g_{t-i}, which a follower in mode `"average"` minimises (one system, each
      product over the window). All the same when w = 1.
    - `normalise`: divide by the `"full"` weight W from the first round on (the paper's convention;
      the first w rounds take diluted steps) or by the weight of the rounds `"seen"` so far.
    - `chunk`: how many terms are evaluated at once; `None`: all of them, or where they are large as
      many as fit in some 256 MiB. Smaller needs less memory.

    >>> window = Window(3, decay=0.5)
    >>> window
    Window(3 x 0.5)
    >>> print(window.weights)
    [1.   0.5  0.25]
    >>> share, seen = window.shares(jnp.asarray(2))    # one round of the past, none, the current
    >>> print(share * 1.75, seen)
    [0.5 0.  1. ] [ True False  True]
    """

    weights: Float[Array, " w"]
    size: int = eqx.field(static=True)
    follower: str = eqx.field(static=True)
    curvature: str = eqx.field(static=True)
    normalise: str = eqx.field(static=True)
    chunk: int | None = eqx.field(static=True)

    def __init__(
        self,
        size: int = 1,
        decay: float | Array | None = None,
        *,
        weights: Sequence[float] | Array | None = None,
        follower: str = "current",
        curvature: str = "own",
        normalise: str = "full",
        chunk: int | None = None,
    ):
        self.size = validation.count(size, "Window.size")
        self.follower = validation.one_of(follower, FOLLOWERS, "Window.follower")
        self.curvature = validation.one_of(curvature, CURVATURES, "Window.curvature")
        self.normalise = validation.one_of(normalise, NORMALISATIONS, "Window.normalise")
        self.chunk = None if chunk is None else validation.count(chunk, "Window.chunk")
        if follower == "each" and curvature != "own" and self.size > 1:
            raise ValueError(
                f"Window.curvature must be 'own' with follower='each', but got {curvature!r}: "
                f"every round has its own follower, so there is no one point to solve at."
            )
        if weights is not None and decay is not None:
            raise ValueError("Window.decay and Window.weights must not both be given.")
        if weights is None:
            rate = validation.positive_number(1.0 if decay is None else decay, "Window.decay")
            if is_concrete(rate) and not np.all(np.asarray(rate) <= 1):
                raise ValueError(f"Window.decay must be in (0, 1], but got {decay!r}.")
            self.weights = rate ** jnp.arange(self.size, dtype=rate.dtype)
        else:
            self.weights = _explicit_weights(weights, self.size)

    def __repr__(self) -> str:
        names = ("follower", "curvature", "normalise", "chunk")
        usual = ("current", "own", "full", None)
        options = [
            f", {name}={value!r}"
            for name, default in zip(names, usual, strict=True)
            if (value := getattr(self, name)) != default
        ]
        return f"Window({self.words()}{''.join(options)})"

    def words(self) -> str:
        """`20 x 0.9`: so many rounds, each of so much less weight than the one after it."""
        if self.size == 1 or not is_concrete(self.weights) or self.weights.ndim != 1:
            return str(self.size)
        u = np.asarray(self.weights, np.float64)
        if np.allclose(u, u[1] ** np.arange(self.size), rtol=1e-4):
            return str(self.size) if u[1] == 1 else f"{self.size} x {showing.number(u[1])}"
        return f"{self.size}, weights={showing.shown(self.weights)}"

    def shares(self, t: Int[Array, ""]) -> tuple[Float[Array, " w"], Bool[Array, " w"]]:
        """In round t, for each term in the order of `RingBuffer.with_current`: u_i / W, or zero for
        one that is not there yet; and which are there."""
        slots = self.size - 1
        behind = jnp.remainder(t - 2, max(slots, 1)) - jnp.arange(slots, dtype=t.dtype)
        past = 1 + jnp.where(behind < 0, behind + slots, behind)
        age = spread.whole(jnp.append(past, 0))
        seen = spread.whole(age < t)
        weights = spread.whole(jnp.where(seen, self.weights[age], 0))
        total = jnp.sum(self.weights) if self.normalise == "full" else jnp.sum(weights)
        return spread.per_term(weights / total), spread.per_term(seen)

    def position(self, t: Int[Array, ""], age: Int[Array, ""]) -> Int[Array, ""]:
        """Where the round that is `age` rounds old stands in `RingBuffer.with_current`."""
        slots = self.size - 1
        return jnp.where(age == 0, slots, jnp.remainder(t - age - 1, max(slots, 1)))

    def map(self, function: Callable[..., PyTree], *stacked: PyTree) -> PyTree:
        """`function` of every term: all at once, or `chunk` at a time (on each device)."""
        chunk = self.at_once(function, *stacked)
        if chunk >= self.size:
            return jax.vmap(function)(*stacked)
        if not spread.is_spread():
            return jax.lax.map(lambda one: function(*one), stacked, batch_size=chunk)
        chunks = spread.Chunks.of(self.size, chunk)
        some = lambda terms: jax.vmap(function)(*terms)  # noqa: E731
        return chunks.join(jax.lax.map(some, chunks.split(stacked)))

    def at_once(self, function: Callable[..., PyTree], *stacked: PyTree) -> int:
        """How many terms of `function` are evaluated at once: `chunk`, or as many as fit in memory.

        A number that divides the window is taken if one is near: a rest is compiled apart.
        """
        if self.chunk is not None or self.size == 1:
            return min(self.chunk or 1, self.size)
        given = sum(leaf.nbytes for leaf in jax.tree.leaves(stacked))
        if given < SMALL:
            return self.size
        one = jax.eval_shape(lambda: jax.tree.map(lambda leaf: leaf[0], stacked))
        fit = max(1, min(self.size, ROOM // max(1, footprint(function, *one))))
        return next((c for c in range(fit, fit // 2, -1) if self.size % c == 0), fit)

    def past(self, example: PyTree) -> "RingBuffer | None":
        """Room for what is kept of the w - 1 rounds before the current one; `None` if w = 1."""
        return None if self.size == 1 else RingBuffer.like(example, self.size - 1)

    def for_each_past(self, tree: PyTree) -> PyTree:
        """A copy of a tree for each of those rounds."""
        slots = spread.slots_of(self.size - 1)
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (slots, *leaf.shape)), tree)

    def mean(self, stacked: PyTree, t: Int[Array, ""]) -> PyTree:
        """(1/W) sum_i u_i times the term of round t - i, from stacked terms.

        Terms that are not there yet are left out by selection, not by a zero weight: what was
        computed from an empty slot may be NaN.
        """
        share, seen = self.shares(t)

        def leaf_mean(leaf: Array) -> Array:
            present = seen.reshape((-1,) + (1,) * (leaf.ndim - 1))
            return jnp.tensordot(share.astype(leaf.dtype), jnp.where(present, leaf, 0), axes=1)

        return jax.tree.map(leaf_mean, stacked)


class RingBuffer(eqx.Module):
    """The rounds before the current one, each leaf stacked on a leading axis of length w - 1.

    Round t goes into slot (t - 1) mod (w - 1), and only after it has been played: reading the old
    buffer and writing once at the end is what lets XLA update it in place.

    Over the devices of a mesh it has a `spare` slot at its end, where the current round will stand.
    """

    rounds: PyTree
    spare: bool = eqx.field(static=True, default=False)

    @property
    def slots(self) -> int:
        """How many past rounds there is room for."""
        return jax.tree.leaves(self.rounds)[0].shape[0] - self.spare

    @classmethod
    def like(cls, example_round: PyTree, slots: int) -> "RingBuffer":
        """An empty buffer for rounds shaped like this one."""

        def empty(leaf: Array | jax.ShapeDtypeStruct) -> Array:
            return jnp.zeros((spread.slots_of(slots), *leaf.shape), leaf.dtype)

        return cls(jax.tree.map(empty, example_round), spread.is_spread())

    def with_current(self, round: PyTree) -> PyTree:
        """All w rounds stacked: the past by slot, then the current one."""

        def join(past: Array, new: Array) -> Array:
            if self.spare:
                return past.at[-1].set(new)
            return jnp.concatenate([past, jnp.asarray(new)[None]])

        return jax.tree.map(join, self.rounds, round)

    def push(self, t: Int[Array, ""], round: PyTree, accepted: Bool[Array, ""]) -> "RingBuffer":
        """The buffer after round t, or exactly the same one if the round was not accepted."""

        def write(past: Array, new: Array) -> Array:
            slot = (t - 1) % (past.shape[0] - self.spare)
            if self.spare:
                return spread.replace(past, slot, new, accepted)
            before = jax.lax.dynamic_index_in_dim(past, slot, keepdims=False)
            kept = jnp.where(accepted, new, before)
            return jax.lax.dynamic_update_index_in_dim(past, kept, slot, 0)

        return RingBuffer(jax.tree.map(write, self.rounds, round), self.spare)


def _explicit_weights(weights: Sequence[float] | Array, size: int) -> Float[Array, " w"]:
    array = validation.as_number(weights, "Window.weights")
    if array.shape != (size,):
        raise ValueError(
            f"Window.weights must be {size} numbers, one for each round of the window, but has "
            f"shape {array.shape}."
        )
    if is_concrete(array):
        u = np.asarray(array)
        if u[0] != 1 or np.any(u <= 0) or np.any(np.diff(u) > 0):
            raise ValueError(
                f"Window.weights must satisfy 1 = u_0 >= u_1 >= ... > 0, but got {weights!r}."
            )
    return array
