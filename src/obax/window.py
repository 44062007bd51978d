"""The last w rounds, how much each of them weighs, and the buffer that keeps them.

    F_{t,u}(x, y) = (1/W) sum_{i<w} u_i f_{t-i}(x, y),
    W = sum_{i<w} u_i,    1 = u_0 >= u_1 >= ... > 0

A ring buffer of fixed shape holds the w - 1 rounds before the current one, so that cost and memory
of a round do not depend on t. Rounds before the first one, and those that a cut or a refusal took
out of the window, count as zero.
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ._support import showing, spread, trees, validation
from ._support.footprint import footprint
from ._support.trees import PyTree, is_concrete
from .past import NEVER, RingBuffer, Terms
from .replay import Replay

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
    - `cut`: where the window ends early. `"reset"`: the round, a dict, has a boolean scalar
      `"reset"`, and True says that a new regime begins with it: all rounds before it are dropped
      before anything is learned. A detector (`obax.detectors`): an `equinox.Module` with
      `init() -> memory` and `observe(memory, loss) -> (memory, kept)`, told the loss suffered
      f_t(x_t, y_t); only the `kept` most recent rounds before the current one stay. x and y go on.
    - `replay`: an `obax.Replay`, a reservoir of past rounds. The window is then the current round
      and w - 1 drawn from the reservoir, and u_i the weight of the i-th youngest of them.

    >>> window = Window(3, decay=0.5)
    >>> window
    Window(3 x 0.5)
    >>> print(window.weights)
    [1.   0.5  0.25]
    >>> past = window.past(jnp.asarray(7.0))           # room for two rounds
    >>> past = past.push(jnp.asarray(1), jnp.asarray(7.0), jnp.asarray(True))
    >>> terms = window.terms(past, jnp.asarray(8.0), jnp.asarray(2))
    >>> print(terms.rounds, terms.there, terms.shares() * 1.75)
    [7. 0. 8.] [ True False  True] [0.5 0.  1. ]
    """

    weights: Float[Array, " w"]
    size: int = eqx.field(static=True)
    follower: str = eqx.field(static=True)
    curvature: str = eqx.field(static=True)
    normalise: str = eqx.field(static=True)
    chunk: int | None = eqx.field(static=True)
    cut: Any
    replay: Replay | None

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
        cut: str | eqx.Module | None = None,
        replay: Replay | None = None,
    ):
        self.size = validation.count(size, "Window.size")
        self.follower = validation.one_of(follower, FOLLOWERS, "Window.follower")
        self.curvature = validation.one_of(curvature, CURVATURES, "Window.curvature")
        self.normalise = validation.one_of(normalise, NORMALISATIONS, "Window.normalise")
        self.chunk = None if chunk is None else validation.count(chunk, "Window.chunk")
        self.cut, self.replay = _cut(cut), replay
        if replay is not None:
            self._check_replay(replay)
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
        names = ("follower", "curvature", "normalise", "chunk", "cut", "replay")
        usual = ("current", "own", "full", None, None, None)
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

    def terms(self, past: RingBuffer, round: PyTree, t: Int[Array, ""]) -> Terms:
        """What round t looks at: rounds, which of them are there, and their weights."""
        total = jnp.sum(self.weights) if self.normalise == "full" else None
        return past.terms(round, t, self.weights, total, self.replay)

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

    def past(self, example: PyTree) -> RingBuffer | None:
        """Room for the past rounds that are kept; `None` if w = 1."""
        if self.size == 1:
            return None
        if self.replay is not None:
            return self.replay.room(example)
        return RingBuffer.like(example, self.size - 1)

    def for_each_past(self, tree: PyTree) -> PyTree:
        """A copy of a tree for each of those rounds."""
        kept = self.size if self.replay is None else self.replay.capacity
        slots = spread.slots_of(kept - 1)
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (slots, *leaf.shape)), tree)

    def check_round(self, example: PyTree) -> None:
        """Raise a `ValueError` if rounds like this one cannot say what the window asks of them."""
        if not isinstance(self.cut, AtReset):
            return
        leaf = example.get("reset") if isinstance(example, dict) else None
        if leaf is None or leaf.shape != () or leaf.dtype != jnp.bool_:
            came = "no such leaf" if leaf is None else f"{leaf.dtype}{list(leaf.shape)}"
            raise ValueError(
                f"example_round must be a dict with a boolean scalar 'reset', which says that a "
                f"new regime begins with the round, for Window(cut='reset'), but has {came}."
            )

    def _check_replay(self, replay: Replay) -> None:
        validation.instance(replay, Replay, "Window.replay", "an obax.Replay such as Replay(1000)")
        if self.size == 1:
            raise ValueError(
                "Window.size must be at least 2 with replay, for the current round and those that "
                "are drawn, but is 1."
            )
        if replay.capacity < self.size:
            raise ValueError(
                f"Window.replay must keep at least as many rounds as the window has, {self.size}, "
                f"but its capacity is {replay.capacity}."
            )

    def watch(self) -> PyTree:
        """What the detector of `cut` remembers before the first round; `None` without one."""
        return None if self.cut is None else self.cut.init()

    def kept(
        self, memory: PyTree, round: PyTree, loss: Float[Array, ""]
    ) -> tuple[PyTree, Int[Array, ""]]:
        """What the detector remembers after the loss suffered in this round, and how many of the
        rounds before it still count."""
        if isinstance(self.cut, AtReset):
            return memory, jnp.where(round["reset"], 0, NEVER)
        after, kept = self.cut.observe(memory, loss)
        # A loss that is not finite is no evidence, and would stay in the detector's memory.
        fine = jnp.isfinite(loss)
        return trees.select(fine, after, memory), jnp.where(fine, kept, NEVER).astype(jnp.int32)


class AtReset(eqx.Module):
    """`cut="reset"`: the rounds say it themselves."""

    def __repr__(self) -> str:
        return "'reset'"

    def init(self) -> None:
        """Nothing to remember."""


def _cut(value: object) -> eqx.Module | None:
    if value is None or isinstance(value, AtReset):
        return value
    if isinstance(value, str) and value == "reset":
        return AtReset()
    asked = (getattr(value, name, None) for name in ("init", "observe"))
    if not isinstance(value, eqx.Module) or not all(map(callable, asked)):
        raise ValueError(
            f"Window.cut must be 'reset', or a detector such as those of obax.detectors (an "
            f"equinox.Module with init and observe), but got {value!r}."
        )
    return value


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
