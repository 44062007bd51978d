"""The last w rounds, how much each of them weighs, and the buffer that keeps them.

    F_{t,u}(x, y) = (1/W) sum_{i<w} u_i f_{t-i}(x, y),
    W = sum_{i<w} u_i,    1 = u_0 >= u_1 >= ... > 0

A ring buffer of fixed shape holds the w - 1 rounds before the current one, so that cost and memory
of a round do not depend on t. Rounds before the first one, and those that were cut off or refused,
count as zero.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ._support import messages, sharding, trees
from ._support.checks import Count, check, instance_of
from ._support.compiling import footprint
from ._support.trees import PyTree, is_concrete
from .replay import Replay
from .round_buffer import NEVER, RingBuffer, Terms

FOLLOWERS = Literal["current", "window", "each", "average"]
CURVATURES = Literal["own", "current", "window"]
NORMALISATIONS = Literal["full", "seen"]
# Bytes of memory for the terms that are evaluated at once. Windows of fewer than SMALL bytes are
# evaluated at once without a look at what their terms need.
ROOM, SMALL = 2**28, 2**16


class Window(eqx.Module):
    """The past rounds that a round learns from, and their weights.

    **Arguments:**

    - `size`: w >= 1, the number of rounds, the current one included.
    - `decay`: weights u_i = decay ** i, by default 1; or `weights`: the sequence u_0, ..., u_{w-1}.
    - `follower`: what the follower trains on. `"current"`: K_t steps on g_t (Algorithm 1);
      `"window"`: K_t passes over the rounds of the window, oldest first, one step each (the paper's
      deep experiments); `"each"`: every round of the window gets a follower of its own
      (meta-learning); `"average"`: K_t steps on (1/W) sum_i u_i g_{t-i}.
    - `curvature`: the inner problem that a term of the window is differentiated through. `"own"`:
      that of its own round (the paper's definition, w linear systems); `"current"`: that of round t
      (what the local regret compares with; one linear system whatever w is); `"window"`: that of
      the average (1/W) sum_i u_i g_{t-i}, for a follower that trains on the window (one system,
      each product over the window). They agree when w = 1.
    - `normalise`: divide by the `"full"` weight W from the first round on (the paper's convention;
      the first w rounds take diluted steps) or by the weight of the rounds `"seen"` so far.
    - `chunk`: how many terms are evaluated at once; `None`: all of them, or if they are large as
      many as fit in some 256 MiB. A smaller chunk needs less memory.
    - `cut`: when to drop rounds before they are w rounds old. `"reset"`: the round, a dict, has a
      boolean scalar `"reset"`; where it is True a new regime begins, and all rounds before this one
      are dropped before anything is learned. A detector (`obax.detectors`): an `equinox.Module`
      with `init() -> memory` and `observe(memory, loss) -> (memory, kept)`, which gets the loss
      suffered f_t(x_t, y_t); only the `kept` most recent rounds before the current one stay. x and
      y are not reset.
    - `replay`: an `obax.Replay`, a reservoir of past rounds. The window is then the current round
      and w - 1 rounds drawn from the reservoir, and u_i the weight of the i-th youngest of them.

    >>> window = Window(3, decay=0.5)
    >>> window
    Window(3 x 0.5)
    >>> print(window.weights)
    [1.   0.5  0.25]
    >>> past = window.past(jnp.asarray(7.0))           # room for two rounds
    >>> past = past.push(jnp.asarray(1), jnp.asarray(7.0), jnp.asarray(True))
    >>> terms = window.terms(past, jnp.asarray(8.0), jnp.asarray(2))
    >>> print(terms.rounds, terms.present, terms.shares() * 1.75)
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
        self.size = check(size, "Window.size", Count)
        self.follower = check(follower, "Window.follower", FOLLOWERS)
        self.curvature = check(curvature, "Window.curvature", CURVATURES)
        self.normalise = check(normalise, "Window.normalise", NORMALISATIONS)
        self.chunk = None if chunk is None else check(chunk, "Window.chunk", Count)
        self.cut, self.replay = _cut(cut), replay
        if replay is not None:
            self._check_replay(replay)
        if follower == "each" and curvature != "own" and self.size > 1:
            raise ValueError(
                f"Window.curvature must be 'own' with follower='each', but got {curvature!r}: "
                f"every round has its own follower, so there is no one point to solve at."
            )
        if follower == "current" and curvature == "window" and self.size > 1:
            raise ValueError(
                "Window.curvature must be 'own' or 'current' with follower='current', but got "
                "'window': the average of the window is the inner problem of a follower that "
                "trains on it (follower='average' or 'window')."
            )
        if weights is not None and decay is not None:
            raise ValueError("Window.decay and Window.weights must not both be given.")
        if weights is None:
            rate = trees.positive_array(1.0 if decay is None else decay, "Window.decay")
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
        return f"Window({self.summary()}{''.join(options)})"

    def summary(self) -> str:
        """Return size and weights in short: `20 x 0.9` for 20 rounds with decay 0.9."""
        if self.size == 1 or not is_concrete(self.weights) or self.weights.ndim != 1:
            return str(self.size)
        u = np.asarray(self.weights, np.float64)
        if np.allclose(u, u[1] ** np.arange(self.size), rtol=1e-4):
            return str(self.size) if u[1] == 1 else f"{self.size} x {messages.format_number(u[1])}"
        return f"{self.size}, weights={messages.format_value(self.weights)}"

    @property
    def total(self) -> Float[Array, ""] | None:
        """W, or `None` for the weight of the rounds seen so far."""
        return jnp.sum(self.weights) if self.normalise == "full" else None

    def terms(self, past: RingBuffer, round: PyTree, t: Int[Array, ""]) -> Terms:
        """Return the terms of round t, with their weights and which of them count."""
        return past.terms(round, t, self)

    def map(self, function: Callable[..., PyTree], *stacked: PyTree) -> PyTree:
        """Return `function` of every term: all at once, or `chunk` at a time (on each device)."""
        chunk = self.chunk_for(function, *stacked)
        if chunk >= self.size:
            return jax.vmap(function)(*stacked)
        if not sharding.is_sharded():
            return jax.lax.map(lambda one: function(*one), stacked, batch_size=chunk)
        chunks = sharding.Chunks.of(self.size, chunk)
        some = lambda terms: jax.vmap(function)(*terms)  # noqa: E731
        return chunks.join(jax.lax.map(some, chunks.split(stacked)))

    def chunk_for(self, function: Callable[..., PyTree], *stacked: PyTree) -> int:
        """Return how many terms of `function` to evaluate at once: `chunk`, or as many as fit in
        memory.

        A number that divides the window is preferred: a remainder is compiled separately.
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
        """Return an empty buffer for past rounds like the example; `None` if w = 1."""
        if self.size == 1:
            return None
        if self.replay is not None:
            return self.replay.reservoir(example)
        return RingBuffer.like(example, self.size - 1)

    def for_each_past(self, tree: PyTree) -> PyTree:
        """Return a copy of a tree for each slot of that buffer."""
        kept = self.size if self.replay is None else self.replay.capacity
        slots = sharding.slots_of(kept - 1)
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (slots, *leaf.shape)), tree)

    def check_round(self, example: PyTree) -> None:
        """Raise a `ValueError` if `cut="reset"` finds no "reset" in rounds like this one."""
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
        kind = instance_of(Replay, "an obax.Replay such as Replay(1000)")
        check(replay, "Window.replay", Annotated[Any, kind])
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

    def init_detector(self) -> PyTree:
        """Return the memory of the detector before the first round; `None` without a cut."""
        return None if self.cut is None else self.cut.init()

    def detect(
        self, memory: PyTree, round: PyTree, loss: Float[Array, ""]
    ) -> tuple[PyTree, Int[Array, ""]]:
        """Return the detector's memory after the loss suffered in this round, and how many of the
        rounds before it still count."""
        if isinstance(self.cut, AtReset):
            return memory, jnp.where(round["reset"], 0, NEVER)
        after, kept = self.cut.observe(memory, loss)
        # A loss that is not finite is no evidence, and would stay in the detector's memory.
        finite = jnp.isfinite(loss)
        return trees.select(finite, after, memory), jnp.where(finite, kept, NEVER).astype(jnp.int32)


class AtReset(eqx.Module):
    """The detector of `cut="reset"`: a flag in the round says where to cut."""

    def __repr__(self) -> str:
        return "'reset'"

    def init(self) -> None:
        """Return no memory."""


def _cut(value: object) -> eqx.Module | None:
    if value is None or isinstance(value, AtReset):
        return value
    if isinstance(value, str) and value == "reset":
        return AtReset()
    methods = (getattr(value, name, None) for name in ("init", "observe"))
    if not isinstance(value, eqx.Module) or not all(map(callable, methods)):
        raise ValueError(
            f"Window.cut must be 'reset', or a detector such as those of obax.detectors (an "
            f"equinox.Module with init and observe), but got {value!r}."
        )
    return value


def _explicit_weights(weights: Sequence[float] | Array, size: int) -> Float[Array, " w"]:
    array = trees.float_array(weights, "Window.weights")
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
