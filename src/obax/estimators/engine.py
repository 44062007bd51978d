"""One compiled loop over rows, whatever their number: standardise, test, train, tune.

The loop runs over a block of fixed size up to a row count that is *traced*: one row, a thousand
rows and the last odd block all use the same code, so a row gets the same answer, bit for bit,
however the stream was cut.
"""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from . import losses
from .losses import Loss
from .sample import Hyper, Past, Sample, sample_step

BLOCK = 512
CLIP = 10.0
"""Standardised features and targets are cut off at this many deviations."""
STATISTICS_CLIP = 4.0
"""What a row can do to the running mean and variance, in deviations."""
STATISTICS_ROWS = 30
"""So many rows enter the statistics as they are."""
WARM_UP, WARM_UP_ROWS = 10.0, 100.0
"""The leader's first steps are 1 + WARM_UP times as long, falling to plain ones."""
MEAN_DECAY, SQUARE_DECAY = 0.9, 0.99
"""Of the running means of the hypergradient and of its square."""

Number = float | Array
Vector = np.ndarray | Array
"""Of NumPy, or of JAX on a device or inside compiled code."""

BOUNDS = {
    "penalty": (1e-7, 1e3),
    "inertia": (1e-3, 1e4),
    "memory": (1.0, 1e4),
    "class_weights": (1e-3, 1e3),
    "logit_shifts": (math.exp(-10), math.exp(10)),
}


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is compiled in: shapes, loss, what is learned and how systems are solved."""

    features: int
    loss: Loss
    classes: int = 0
    learned: tuple[str, ...] = ("penalty", "inertia", "memory")
    penalties: int = 1
    solver: str = "cholesky"
    solver_steps: int = 20
    balance: bool = False
    dtype: str = "float32"

    @functools.cached_property
    def layout(self) -> dict[str, tuple[int, int]]:
        """Where in x each hyperparameter stands. x holds logarithms."""
        sizes = {"penalty": self.penalties, "inertia": 1, "memory": 1}
        sizes |= {"class_weights": self.classes, "logit_shifts": self.classes}
        ends = np.cumsum(list(sizes.values())).tolist()
        return {n: (end - size, end) for (n, size), end in zip(sizes.items(), ends, strict=True)}

    @functools.cached_property
    def entries(self) -> np.ndarray:
        """Indices into x of what is learned."""
        spans = [self.layout[name] for name in self.layout if name in self.learned]
        indices = [np.arange(*span) for span in spans]
        # int32, whatever JAX's x64 says: positions must not change type with it.
        return np.concatenate([np.zeros(0, np.int32), *indices]).astype(np.int32)

    @functools.cached_property
    def bounds(self) -> np.ndarray:
        """Of x, as two rows."""
        columns = [
            np.tile(np.log(BOUNDS[name])[:, None], stop - start)
            for name, (start, stop) in self.layout.items()
        ]
        return np.concatenate(columns, axis=1).astype(self.dtype)

    def hyper(self, x: Float[Array, " n"]) -> Hyper:
        """The hyperparameters that x stands for."""
        part = {name: x[start:stop] for name, (start, stop) in self.layout.items()}
        width = self.features + 1
        penalty = jnp.exp(part["penalty"])
        if self.penalties == 1:
            penalty = jnp.broadcast_to(penalty, (width,))
        else:
            penalty = jnp.append(penalty, jnp.ones_like(penalty[:1]))
        return Hyper(
            penalty,
            jnp.exp(part["inertia"][0]),
            # A memory of m rows: weights 1, m/(m+1), ... whose sum is m + 1.
            jax.nn.sigmoid(part["memory"][0]),
            jnp.exp(part["class_weights"]),
            part["logit_shifts"],
        )


class Scale(NamedTuple):
    """Running mean and variance of each column, and of how many rows, up to a memory."""

    rows: Float[Array, " d"]
    mean: Float[Array, " d"]
    variance: Float[Array, " d"]


class State(NamedTuple):
    """All that the next row needs."""

    t: Float[Array, ""]
    """Rows learned. A float: beyond 2^24 it stands still, where nothing looks at it any more."""
    x: Float[Array, " n"]
    mean: Float[Array, " n"]
    square: Float[Array, " n"]
    past: Past
    # Checkpoints know these two by their names.
    moments: Scale
    target_moments: Scale
    frequency: Float[Array, " C"]


class Tuning(NamedTuple):
    """How the leader moves, in numbers that may change without compiling again."""

    step_size: Number
    horizon: Number
    scale_memory: Number


def start(plan: Plan, hyperparameters: dict[str, float]) -> State:
    """The state before the first row, in NumPy."""
    width, outputs, dtype = plan.features + 1, plan.loss.outputs, np.dtype(plan.dtype)
    x: Any = np.zeros(plan.bounds.shape[1], dtype)
    for name, value in hyperparameters.items():
        x[slice(*plan.layout[name])] = math.log(value)
    n = len(plan.entries)
    square = (outputs, width, width)
    # NumPy here, JAX inside the loop.
    zeros: Any = lambda *shape: np.zeros(shape, dtype)  # noqa: E731
    past = Past(zeros(outputs, width), zeros(*square), zeros(*square), zeros(n, outputs, width))
    scale = Scale(*(zeros(plan.features) for _ in range(3)))
    target = Scale(*(zeros(1) for _ in range(3)))
    return State(zeros(), x, zeros(n), zeros(n), past, scale, target, zeros(plan.classes))


def grown(
    old_plan: Plan, plan: Plan, old: State, hyperparameters: dict[str, float]
) -> tuple[State, np.ndarray]:
    """The same state with room for more features or classes, and where in x the old entries went.

    The weights of new features are 0. Two classes with one logit z become logits (-z/2, z/2).
    """
    new: Any = start(plan, hyperparameters)
    columns = np.append(np.arange(old_plan.features), plan.features)
    where = np.concatenate(
        [
            plan.layout[name][0] + np.arange(end - begin)
            for name, (begin, end) in old_plan.layout.items()
        ]
    )
    new.x[where] = old.x
    learned = np.searchsorted(plan.entries, where[old_plan.entries])
    new.mean[learned], new.square[learned] = old.mean, old.square
    split = old_plan.loss.outputs == 1 and plan.loss.outputs > 1
    share = np.array([-0.5, 0.5]) if split else np.ones(old_plan.loss.outputs)
    rows = np.arange(len(share))
    both = np.ix_(rows, columns, columns)
    new.past.weights[np.ix_(rows, columns)] = share[:, None] * old.past.weights
    new.past.curvature[both] = old.past.curvature
    new.past.curvature_slope[both] = old.past.curvature_slope
    sensitivity = share[:, None] * old.past.sensitivity
    new.past.sensitivity[np.ix_(learned, rows, columns)] = sensitivity
    for mine, theirs in zip(new.moments, old.moments, strict=True):
        mine[: old_plan.features] = theirs
    new.frequency[: old_plan.classes] = old.frequency
    return new._replace(t=old.t, target_moments=old.target_moments), where


class BlockResult(NamedTuple):
    """What came of the rows of a block: one entry per row, before the row was learned."""

    outputs: np.ndarray
    loss: np.ndarray
    x: np.ndarray
    accepted: np.ndarray


def shape_of(plan: Plan) -> tuple[list[tuple[int, ...]], Any]:
    """Shapes and structure of a state, for packing."""
    leaves, treedef = jax.tree.flatten(start(plan, {}))
    return [leaf.shape for leaf in leaves], treedef


def pack(state: State) -> np.ndarray:
    """A state as one vector: what crosses into compiled code is then one array, not twenty."""
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(state)])


def unpack(plan: Plan, vector: Vector) -> State:
    """The state again, from NumPy or inside compiled code."""
    shapes, treedef = shape_of(plan)
    leaves, offset = [], 0
    for shape in shapes:
        size = math.prod(shape)
        leaves.append(vector[offset : offset + size].reshape(shape))
        offset += size
    return jax.tree.unflatten(treedef, leaves)


def advance(
    plan: Plan,
    vector: Vector,
    rows: np.ndarray,
    targets: np.ndarray,
    teach: np.ndarray,
    present: np.ndarray,
    tuning: Tuning,
) -> tuple[Vector, BlockResult]:
    """Test on every row, train on those with `teach`; any number of rows.

    `rows` has NaN where a feature is missing.
    """
    count = len(rows)
    run = _compiled(plan)
    # Always a JAX array: NumPy's would be another signature to compile for.
    vector = jnp.asarray(vector)
    numbers = np.asarray(tuning, plan.dtype)
    parts = []
    for begin in range(0, count, BLOCK):
        size = min(BLOCK, count - begin)
        block = np.zeros((BLOCK, plan.features + 2), plan.dtype)
        block[:size, : plan.features] = rows[begin : begin + size]
        block[:size, -2] = targets[begin : begin + size]
        block[:size, -1] = teach[begin : begin + size]
        vector, out = run(vector, block, present, numbers, np.int32(size))
        parts.append((out, size))
    played = [np.asarray(out)[:size] for out, size in parts]
    found = np.concatenate(played) if played else np.zeros((0, _width(plan)), plan.dtype)
    k = plan.loss.outputs
    return vector, BlockResult(found[:, 2 : 2 + k], found[:, 0], found[:, 2 + k :], found[:, 1] > 0)


def _width(plan: Plan) -> int:
    return 2 + plan.loss.outputs + plan.bounds.shape[1]


@functools.lru_cache(maxsize=64)
def _compiled(plan: Plan) -> Any:
    def run(
        vector: Array, block: Array, present: Array, numbers: Array, count: Array
    ) -> tuple[Array, Array]:
        tuning = Tuning(*numbers)

        def body(i: Array, carry: tuple) -> tuple:
            state, out = carry
            state, played = play_row(plan, tuning, state, block[i], present)
            return state, jax.lax.dynamic_update_index_in_dim(out, played, i, 0)

        out = jnp.zeros((block.shape[0], _width(plan)), plan.dtype)
        with jax.numpy_dtype_promotion("standard"):
            state, out = jax.lax.fori_loop(np.int32(0), count, body, (unpack(plan, vector), out))
        return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(state)]), out

    return jax.jit(run)


def play_row(
    plan: Plan, tuning: Tuning, state: State, line: Array, present: Array
) -> tuple[State, Array]:
    """One row: the state after it, and [loss, accepted, outputs, x] before it."""
    raw, target, teach = line[:-2], line[-2], line[-1]
    missing = jnp.isnan(raw)
    a = jnp.where(missing, 0, standardise(state.moments, raw))
    if not plan.loss.classify:
        target = standardise(state.target_moments, target[None])[0]
    importance = jnp.ones_like(target)
    if plan.balance:
        share = state.frequency[target.astype(jnp.int32)] / jnp.sum(state.frequency)
        classes = jnp.sum((state.frequency > 0).astype(target.dtype))
        importance = jnp.where(share > 0, 1 / jnp.maximum(share * classes, 0.01), 1)

    entries = plan.entries
    learned = sample_step(
        plan.loss,
        plan.solver,
        plan.solver_steps,
        lambda u: plan.hyper(state.x.at[entries].set(u)),
        state.x[entries],
        state.past,
        Sample(jnp.append(a, jnp.ones_like(a[:1])), target, importance, present),
        tuning.horizon,
    )
    x, mean, square = tune(plan, tuning, state, learned.hypergradient)
    new = State(
        state.t + 1,
        x,
        mean,
        square,
        learned.past,
        renewed(state.moments, raw, ~missing, tuning.scale_memory),
        state.target_moments
        if plan.loss.classify
        else renewed(state.target_moments, line[-2:-1], True, tuning.scale_memory),
        _counted(plan, state.frequency, target, tuning.scale_memory),
    )
    outputs = learned.outputs
    if not plan.loss.classify:
        outputs = state.target_moments.mean + jnp.sqrt(state.target_moments.variance) * outputs
    # The guard: a row that would leave anything NaN or Inf leaves everything as it was.
    sums = [jnp.sum(leaf) for leaf in jax.tree.leaves(new)]
    accepted = jnp.isfinite(sum(sums[1:], sums[0]) + learned.loss)
    keep = accepted & (teach > 0)
    state = jax.tree.map(lambda new, old: jnp.where(keep, new, old), new, state)
    outputs = jnp.where(jnp.isfinite(outputs), outputs, 0)
    head = jnp.stack([jnp.where(accepted, learned.loss, 0), accepted.astype(a.dtype)])
    return state, jnp.concatenate([head, outputs, state.x])


def tune(plan: Plan, tuning: Tuning, state: State, slope: Array) -> tuple[Array, Array, Array]:
    """The leader's step: along the running mean of the hypergradient, in units of its running size,
    so that a start that is five orders of magnitude off is left as fast as any other."""
    t = state.t + 1
    mean = MEAN_DECAY * state.mean + (1 - MEAN_DECAY) * slope
    square = SQUARE_DECAY * state.square + (1 - SQUARE_DECAY) * slope**2
    size = jnp.sqrt(square / (1 - SQUARE_DECAY**t)) + 1e-12
    rate = tuning.step_size * (1 + WARM_UP / (1 + state.t / WARM_UP_ROWS))
    moved = state.x.at[plan.entries].add(-rate * mean / (1 - MEAN_DECAY**t) / size)
    low, high = plan.bounds
    return jnp.clip(moved, low, high), mean, square


def standardise(scale: Scale, value: Array) -> Array:
    """In deviations from the running mean, cut off at CLIP. A constant column is 0."""
    eps = float(jnp.finfo(value.dtype).eps)
    floor = (eps * scale.mean) ** 2
    varies = scale.variance > floor
    deviation = jnp.sqrt(jnp.where(varies, scale.variance, 1))
    return jnp.where(varies, jnp.clip((value - scale.mean) / deviation, -CLIP, CLIP), 0)


def renewed(scale: Scale, value: Array, seen: bool | Array, memory: Number) -> Scale:
    """With one more row. Values far out move the statistics no further than STATISTICS_CLIP
    deviations would, once there are some rows to judge them by."""
    count = jnp.minimum(scale.rows, memory - 1) + 1
    gap = value - scale.mean
    limit = STATISTICS_CLIP * jnp.sqrt(scale.variance)
    judged = (scale.rows >= STATISTICS_ROWS) & (scale.variance > 0)
    gap = jnp.where(judged, jnp.clip(gap, -limit, limit), gap)
    mean = scale.mean + gap / count
    variance = (1 - 1 / count) * (scale.variance + gap**2 / count)
    new = Scale(count, mean, variance)
    return jax.tree.map(lambda new, old: jnp.where(seen, new, old), new, scale)


def _counted(plan: Plan, frequency: Array, target: Array, memory: Number) -> Array:
    if not plan.classes:
        return frequency
    mine = jnp.arange(plan.classes, dtype=jnp.int32) == target.astype(jnp.int32)
    total = jnp.sum(frequency)
    # Beyond the memory, counts fade: 1 in, 1 out.
    fade = jnp.where(total >= memory, 1 - 1 / memory, 1)
    return fade * frequency + mine.astype(frequency.dtype)


class Predictor(NamedTuple):
    """What predictions need of a state, in NumPy: no compiled code, whatever the number of rows."""

    scale: Scale
    centre: np.ndarray
    spread: np.ndarray
    target_mean: float
    target_deviation: float

    @classmethod
    def of(cls, plan: Plan, vector: Vector) -> "Predictor":
        """The minimiser before the next row, and the inverse of its curvature."""
        state = unpack(plan, np.asarray(vector, np.float64))
        x, past = state.x, state.past
        part = {name: np.exp(x[slice(*span)]) for name, span in plan.layout.items()}
        width = plan.features + 1
        ridge = np.append(np.broadcast_to(part["penalty"], (width - 1,)), 0.0)
        memory = part["memory"][0]
        matrix = memory / (1 + memory) * past.curvature
        matrix = matrix + np.diag(part["inertia"][0] + ridge)
        inverse = np.linalg.inv(matrix)
        centre = past.weights - np.einsum("kij,kj->ki", inverse, ridge * past.weights)
        target = state.target_moments
        deviation = math.sqrt(target.variance[0]) if target.variance[0] > 0 else 0.0
        return cls(state.moments, centre, inverse, float(target.mean[0]), deviation)

    def outputs(self, loss: Loss, rows: np.ndarray) -> np.ndarray:
        """Moderated outputs of raw rows, NaN where a feature is missing."""
        scale = self.scale
        with np.errstate(invalid="ignore", over="ignore"):
            varies = scale.variance > (np.finfo(np.float32).eps * scale.mean) ** 2
            deviation = np.sqrt(np.where(varies, scale.variance, 1))
            a = np.clip((rows - scale.mean) / deviation, -CLIP, CLIP)
        a = np.where(varies & ~np.isnan(a), a, 0.0)
        a = np.concatenate([a, np.ones((len(a), 1))], axis=1)
        z = a @ self.centre.T
        if not loss.classify:
            return self.target_mean + self.target_deviation * z
        v = np.einsum("ni,kij,nj->nk", a, self.spread, a)
        return z / np.sqrt(1 + losses.LOGIT_VARIANCE * v)
