"""The model behind both faces: names, classes, growth, rejections and record."""

import dataclasses
import math
from collections.abc import Hashable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from .._support import validation
from . import engine
from .engine import BOUNDS, Plan, Predictor, Tuning
from .history import Record, Rejected
from .losses import LOSSES, named
from .table import LARGEST, Rows, Table, number, short, tables

LEARNABLE = ("penalty", "forgetting", "inertia")
IMBALANCE = (None, "weights", "logits")
SOLVERS = ("auto", "cholesky", "cg", "gradient")
LARGE = 64
"""Features from which `solver="auto"` takes CG instead of Cholesky factors."""

Values = float | np.ndarray
Hyperparameters = dict[str, Values | dict[Hashable, Values]]
"""By name; a dict by feature or class where there is one for each."""


@dataclasses.dataclass(frozen=True)
class Options:
    """What a person chose; see `StreamingClassifier` and `StreamingRegressor`."""

    loss: str
    penalty: float
    memory: float
    inertia: float
    learn: tuple[str, ...]
    per_feature: bool
    imbalance: str | None
    delta: float
    step_size: float
    horizon: float
    solver: str
    solver_steps: int
    scale_memory: float
    max_features: int
    max_classes: int
    dtype: str

    def __post_init__(self) -> None:
        validation.one_of(self.loss, LOSSES, "loss")
        validation.one_of(self.solver, SOLVERS, "solver")
        validation.one_of(self.dtype, ("float32", "float64"), "dtype")
        if self.imbalance not in IMBALANCE:
            raise ValueError(
                f"imbalance must be None, 'weights' or 'logits', but got {self.imbalance!r}."
            )
        if self.dtype == "float64" and not jax.config.read("jax_enable_x64"):
            raise ValueError(
                "dtype='float64' needs jax.config.update('jax_enable_x64', True); float32 does not."
            )
        if isinstance(self.learn, str) or not set(self.learn) <= set(LEARNABLE):
            raise ValueError(
                f"learn must be a tuple of some of {LEARNABLE}, but got {self.learn!r}."
            )
        for name in ("penalty", "memory", "inertia"):
            low, high = BOUNDS[name]
            value = getattr(self, name)
            if not _is_number(value) or not low <= value <= high:
                raise ValueError(
                    f"{name} must be a number from {low:g} to {high:g}, but got {value!r}."
                )
        for name in ("delta", "step_size"):
            if not _is_number(getattr(self, name)) or not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be a number > 0, but got {getattr(self, name)!r}.")
        for name in ("horizon", "scale_memory"):
            if not _is_number(getattr(self, name)) or not getattr(self, name) >= 2:
                raise ValueError(
                    f"{name} must be a number of rows >= 2, but got {getattr(self, name)!r}."
                )
        for name in ("solver_steps", "max_features", "max_classes"):
            validation.count(getattr(self, name), name)

    @property
    def classify(self) -> bool:
        """Whether targets are classes."""
        return self.loss == "logistic"

    def tuning(self) -> Tuning:
        """The numbers of the compiled loop."""
        return Tuning(self.step_size, 1 - 1 / self.horizon, self.scale_memory)

    def plan(self, features: int, classes: int) -> Plan:
        """What to compile for so many features and classes. Sizes go up in powers of two, so that a
        feature or a class that comes late rarely costs a compilation."""
        width = max(4, 1 << max(features - 1, 0).bit_length())
        slots, loss = 0, named(self.loss, classes, self.delta)
        if self.classify:
            slots = max(2, loss.outputs)
        learned = tuple("memory" if name == "forgetting" else name for name in self.learn)
        if self.imbalance is not None:
            learned += ("class_weights" if self.imbalance == "weights" else "logit_shifts",)
        solver = self.solver
        if solver == "auto":
            solver = "cholesky" if width <= LARGE else "cg"
        return Plan(
            features=width,
            loss=loss,
            classes=slots,
            learned=learned,
            penalties=width if self.per_feature else 1,
            solver=solver,
            solver_steps=self.solver_steps,
            balance=self.imbalance is not None,
            dtype=self.dtype,
        )


@dataclasses.dataclass
class Outcome:
    """What was said of each row before it was learned, and what became of it."""

    predictions: np.ndarray
    """Regression: one number per row. Classes: probabilities, a column for each known class."""
    loss: np.ndarray
    x: np.ndarray
    rejected: list[str | None]


class Core:
    """A model that learns from rows and keeps its hyperparameters in tune."""

    def __init__(self, options: Options):
        self.options = options
        self.names: dict[Hashable, int] = {}
        self.classes: list[Hashable] = []
        self.index: dict[Hashable, int] = {}
        self.rejected = Rejected()
        self.rows = 0
        self.plan = options.plan(0, 0)
        self.vector: Array | np.ndarray = engine.pack(engine.start(self.plan, self._starts()))
        self.record = Record(self.plan.bounds.shape[1])
        self._predictor: Predictor | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"vector": np.asarray(self.vector), "_predictor": None}

    def play(
        self, rows: Rows, targets: Sequence[object] | None, *, unlabelled: str = "reject"
    ) -> Outcome:
        """Test on every row, then train on it. Without `targets`, or where one is missing and
        `unlabelled` is `"predict"`, only test."""
        parts = list(tables(rows))
        total = sum(len(table) for table in parts)
        if targets is not None and len(targets) != total:
            raise ValueError(
                f"targets must be as many as rows, {total}, but there are {len(targets)}."
            )
        played: list[Outcome] = []
        begin = 0
        for table in parts:
            theirs = None if targets is None else targets[begin : begin + len(table)]
            played += self._play_table(table, theirs, unlabelled)
            begin += len(table)
        return self._joined(played)

    def predict(self, rows: Rows) -> np.ndarray:
        """Predictions as in `Outcome`, for rows that are not learned. Values that would have a row
        rejected count as missing."""
        found = []
        for table in tables(rows):
            wide = self._placed(table)
            wide[np.abs(wide) > LARGEST] = np.nan
            found.append(self._predictions(self.predictor.outputs(self.plan.loss, wide)))
        width = (len(self.classes),) if self.options.classify else ()
        return np.concatenate(found) if found else np.zeros((0, *width))

    @property
    def predictor(self) -> Predictor:
        """What predictions need, computed once for each state."""
        if self._predictor is None:
            self._predictor = Predictor.of(self.plan, self.vector)
        return self._predictor

    def add_classes(self, labels: Sequence[Hashable]) -> None:
        """Know these classes, in this order, before any row of them has come."""
        new = [label for label in labels if label not in self.index]
        for label in new:
            self.index[label] = len(self.classes)
            self.classes.append(label)
        self._fit_plan()

    def hyperparameters(self, x: np.ndarray | None = None) -> Hyperparameters:
        """As people read them. `x` defaults to now."""
        if x is None:
            x = np.asarray(engine.unpack(self.plan, np.asarray(self.vector)).x, np.float64)
        part = {name: x[..., slice(*span)] for name, span in self.plan.layout.items()}
        penalty = np.exp(part["penalty"])
        found: Hyperparameters = {"penalty": _plain(penalty[..., 0])}
        if self.options.per_feature:
            found["penalty"] = {name: _plain(penalty[..., j]) for name, j in self.names.items()}
        memory = np.exp(part["memory"][..., 0])
        found["forgetting"] = _plain(memory / (1 + memory))
        found["memory"] = _plain(memory)
        found["inertia"] = _plain(np.exp(part["inertia"][..., 0]))
        if self.options.imbalance == "weights":
            by_class = np.exp(part["class_weights"])
            found["class_weights"] = {c: _plain(by_class[..., i]) for c, i in self.index.items()}
        if self.options.imbalance == "logits":
            by_class = part["logit_shifts"]
            found["logit_shifts"] = {c: _plain(by_class[..., i]) for c, i in self.index.items()}
        return found

    def _starts(self) -> dict[str, float]:
        options = self.options
        return {
            "penalty": options.penalty,
            "memory": options.memory,
            "inertia": options.inertia,
        }

    def _placed(self, table: Table) -> np.ndarray:
        """The values where the model has them, NaN for what it does not know or does not get."""
        wide = np.full((len(table), self.plan.features), np.nan)
        for j, name in enumerate(table.names):
            if name in self.names:
                wide[:, self.names[name]] = table.values[:, j]
        return wide

    def _play_table(
        self, table: Table, targets: Sequence[object] | None, unlabelled: str
    ) -> list[Outcome]:
        """A table, in stretches between which classes are added."""
        size = len(table)
        rejected: list[str | None] = [table.rejected.get(i) for i in range(size)]
        if not self._make_room(table):
            rejected = [f"more than max_features = {self.options.max_features} features"] * size
        values, teach, cuts = self._targets(targets, rejected, unlabelled)
        wide = self._placed(table)
        wide[[reason is not None for reason in rejected]] = np.nan
        parts, first, said = [], 0, None
        for cut, label in [*cuts, (size, None)]:
            if cut > first:
                parts.append(self._play_stretch(wide, values, teach, rejected, first, cut, said))
            if cut < size:
                # That the class exists is news of the very row that is to be predicted.
                outputs = self.predictor.outputs(self.plan.loss, wide[cut : cut + 1])
                said = self._predictions(outputs)[0]
                self.add_classes([label])
            first = cut
        for i, reason in enumerate(rejected):
            if reason is not None:
                self.rejected.add(self.rows + i + 1, reason, table.row(i))
        self.rows += size
        return parts

    def _play_stretch(
        self,
        wide: np.ndarray,
        values: np.ndarray,
        teach: np.ndarray,
        rejected: list[str | None],
        begin: int,
        end: int,
        said: np.ndarray | None,
    ) -> Outcome:
        """Rows without a new class but perhaps the first, for which `said` was predicted."""
        part = slice(begin, end)
        outputs = self.plan.loss.outputs
        present = np.ones(outputs, self.plan.dtype)
        if outputs > 1:
            present[len(self.classes) :] = 0
        self.vector, played = engine.advance(
            self.plan,
            self.vector,
            wide[part],
            values[part],
            teach[part],
            present,
            self.options.tuning(),
        )
        self._predictor = None
        learned = teach[part] & played.accepted
        for i in np.flatnonzero(teach[part] & ~played.accepted).tolist():
            rejected[begin + i] = "learning it would have made the model NaN or Inf"
        self.record.add(played.loss[learned], played.x[learned])
        predictions = self._predictions(played.outputs)
        if said is not None:
            predictions[0] = 0
            predictions[0, : len(said)] = said
        return Outcome(predictions, played.loss, played.x, rejected[part])

    def _targets(
        self, targets: Sequence[object] | None, rejected: list[str | None], unlabelled: str
    ) -> tuple[np.ndarray, np.ndarray, list[tuple[int, Hashable]]]:
        """Targets as numbers, which rows to learn, and where a class appears for the first time."""
        size = len(rejected)
        values, teach = np.zeros(size), np.zeros(size, bool)
        cuts: list[tuple[int, Hashable]] = []
        known = dict(self.index)
        for i in range(0 if targets is None else size):
            if rejected[i] is not None:
                continue
            target = targets[i]  # type: ignore[index]
            if _is_missing(target):
                rejected[i] = None if unlabelled == "predict" else "no target"
                continue
            if self.options.classify:
                rejected[i] = self._learn_label(label := _label(target), known, cuts, i)
                values[i] = known.get(label, 0) if rejected[i] is None else 0
            else:
                value = number(target)
                if value is None or not abs(value) <= LARGEST:
                    rejected[i] = f"target {short(target)} is not a number up to {LARGEST:g}"
                else:
                    values[i] = value
            teach[i] = rejected[i] is None
        return values, teach, cuts

    def _learn_label(
        self,
        label: Hashable,
        known: dict[Hashable, int],
        cuts: list[tuple[int, Hashable]],
        row: int,
    ) -> str | None:
        """Note a class that is new; or the reason why it cannot be one."""
        try:
            if label in known:
                return None
        except TypeError:
            return f"target {short(label)} cannot be a class: it is not hashable"
        if len(known) == self.options.max_classes:
            return f"target {short(label)} would be class {len(known) + 1}, one too many"
        known[label] = len(known)
        cuts.append((row, label))
        return None

    def _make_room(self, table: Table) -> bool:
        """Columns for features that are new; whether there is room."""
        if len(table.rejected) == len(table):
            return True
        new = [name for name in table.names if name not in self.names]
        if len(self.names) + len(new) > self.options.max_features:
            return False
        for name in new:
            self.names[name] = len(self.names)
        self._fit_plan()
        return True

    def _fit_plan(self) -> None:
        """A larger plan where the names or classes have outgrown this one."""
        plan = self.options.plan(len(self.names), len(self.classes))
        if (plan.features, plan.loss) == (self.plan.features, self.plan.loss):
            return
        before = engine.unpack(self.plan, np.asarray(self.vector))
        state, where = engine.grown(self.plan, plan, before, self._starts())
        self.vector, self.plan = engine.pack(state), plan
        self.record.widen(plan.bounds.shape[1], where)
        self._predictor = None

    def _predictions(self, outputs: np.ndarray) -> np.ndarray:
        """Outputs as predictions: numbers, or probabilities of the known classes."""
        z = np.asarray(outputs, np.float64)
        if not self.options.classify:
            return z[:, 0]
        known = len(self.classes)
        if known < 2:
            return np.ones((len(z), known))
        if known == 2:
            z = np.concatenate([-z, z], axis=1) / 2
        z = z[:, :known] - z[:, :known].max(axis=1, keepdims=True)
        weights = np.exp(z)
        return weights / weights.sum(axis=1, keepdims=True)

    def _joined(self, parts: list[Outcome]) -> Outcome:
        rejected = [reason for part in parts for reason in part.rejected]
        width = self.plan.bounds.shape[1]
        x = [_padded(part.x, width) for part in parts]
        predictions = [part.predictions for part in parts]
        if self.options.classify:
            predictions = [_padded(p, len(self.classes), 0.0) for p in predictions]
        if not parts:
            shape = (0, len(self.classes)) if self.options.classify else (0,)
            return Outcome(np.zeros(shape), np.zeros(0), np.zeros((0, width)), [])
        loss = np.concatenate([part.loss for part in parts])
        return Outcome(np.concatenate(predictions), loss, np.concatenate(x), rejected)


def _padded(array: np.ndarray, width: int, fill: float = np.nan) -> np.ndarray:
    """With columns added on the right."""
    gap = width - array.shape[1]
    return array if not gap else np.pad(array, ((0, 0), (0, gap)), constant_values=fill)


def _plain(value: np.ndarray) -> Values:
    return float(value) if np.ndim(value) == 0 else np.asarray(value)


def _label(target: object) -> Hashable:
    """NumPy scalars as Python's."""
    return target.item() if isinstance(target, np.generic) else target


def _is_missing(target: object) -> bool:
    if target is None or type(target).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(target, float | np.floating) and math.isnan(target)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)
