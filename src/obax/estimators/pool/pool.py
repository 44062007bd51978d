"""One self-tuning model for each customer, sensor or shop."""

import os
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from ..._support import native
from ..._support.checks import Count, check
from ..._support.messages import counted, nearest
from .. import locks
from ..classifier import StreamingClassifier, as_array, ranked, sorted_labels
from ..estimator import Played
from ..inputs.table import Features, Rows, as_dict, to_frame, to_series
from ..inputs.targets import Targets, Weights, is_hashable, many_weights, targets_of
from ..model import LEARNED, NOT_FINITE, Outcome
from ..regressor import StreamingRegressor
from ..rejected import Rejected, warn_caller
from ..report import named
from ..serialise import Saved
from . import serialise
from .reading import Reader, split, spread
from .store import TUNED, Models
from .tenant import Tenant

if TYPE_CHECKING:
    import pandas as pd

POINTS = 24
"""Points of the history of a key. A model on its own has 1,024, which for ten thousand keys would
be a gigabyte."""
EXPERIENCED, ENOUGH_KEYS = 100, 10
"""Rows after which a key's hyperparameters count in the medians, and keys before there are any."""
COLUMNS = {"penalty": 4, "memory": 6, "inertia": 5}
"""Where the table of all keys has the logarithms of hyperparameters."""
RENEW = 1024
"""Rows, at least, after which the medians of a pooled start are computed again; as many as there
are keys, if these are more."""


class Pool(Saved):
    """A `StreamingClassifier` or `StreamingRegressor` for each key.

    Rows of many keys are learned in one compiled call, on all cores; those of one key in their
    order. Every model predicts what a model of its own, given the rows of its key alone, would have
    predicted.

    **Arguments:**

    - `model`: a fresh estimator, whose options hold for every key.
    - `key`: the column with the key of a row, if the rows have one. It is not a feature.
    - `start`: the hyperparameters with which a new key starts: `"default"`, those of `model`;
      `"pooled"`, the medians over the keys that have learned 100 rows.
    - `max_keys`: the number of models in memory, by default all. The least recently used ones are
      moved to a file and come back with the next row of their key: with random keys, a tenth of
      them in memory, a row takes about 30 times as long as with all of them. `folder`: the folder
      of that file, by default the one for temporary files. It is scratch space; use `obax.save`
      for checkpoints.
    - `shards`: the number of threads that a call uses, by default one for each core.

    A row whose key is missing or cannot be one is *rejected*: counted and kept in `rejected_`. All
    keys share the names of features and classes; there are at most 64 features, those beyond it are
    ignored and counted in `ignored_`. Threads may use a pool at the same time.

    >>> pool = Pool(StreamingClassifier(), key="shop")
    >>> shops, rows = ["north", "south"] * 40, [[float(i % 7)] for i in range(80)]
    >>> pool.learn_many(shops, rows, [(i % 7 > 3) == (i % 2 == 0) for i in range(80)])
    >>> pool.predict_many(["north", "south"], [[6.0], [6.0]]).to_list()
    [True, False]
    """

    lock: Any

    def __init__(
        self,
        model: StreamingClassifier | StreamingRegressor,
        key: str = "key",
        *,
        start: str = "default",
        max_keys: int | None = None,
        folder: str | os.PathLike[str] | None = None,
        shards: int | None = None,
    ):
        if not isinstance(model, StreamingClassifier | StreamingRegressor):
            raise ValueError(
                f"model must be a StreamingClassifier or StreamingRegressor, but is "
                f"{type(model).__name__}."
            )
        if "model_" in model.__dict__:
            raise ValueError(
                f"model must be fresh, because every key begins anew, but this "
                f"{type(model).__name__} has learned rows already; pass a new one."
            )
        self.model, self.key = model, check(key, "key", str)
        self.start = check(start, "start", Literal["default", "pooled"])
        self.max_keys = check(max_keys, "max_keys", Count | None)
        check(folder, "folder", str | os.PathLike | None)
        self.folder = None if folder is None else Path(folder)
        self.shards = check(shards, "shards", Count | None) or cores()
        options = model.checked()
        spec = options.spec(0, 0, history_points=POINTS).replace(intervals=False)
        self.reader, self.models = Reader(options), Models(spec, max_keys, self.folder)
        self.rejected_ = Rejected()
        """Rows that were rejected: `rejected_.count`, and the last 100 with their reasons."""
        self.warned, self.rows = False, 0
        self.starts: dict[str, float] | None = None
        self.renewal = RENEW
        locks.add_lock(self)

    # ---- learn and predict -------------------------------------------------------------------

    def learn_many(self, keys: Any, rows: Rows, targets: Targets, w: Weights = None) -> None:
        """Learn rows, those of each key in their order. `keys`: one for each row, or `None` where
        rows have the column `key`; rows, targets and weights as in the estimator's
        `learn_many`."""
        self._learn(keys, rows, targets, w)

    def progressive(self, keys: Any, rows: Rows, targets: Targets) -> np.ndarray:
        """Learn rows and return the prediction for each, made before it was learned: numbers, or
        probabilities with a column for each of `classes_`, 0 for a class that the row's key has not
        met."""
        with self.lock:
            predictions = self._learn(keys, rows, targets).predictions
            if not self.reader.options.classify:
                return predictions
            return predictions[:, ranked(list(self.reader.labels))]

    def play(self, keys: Any, rows: Rows, targets: Targets) -> Played:
        """Predict each row in order, then learn it if it has a target; return all that is known of
        each row. This is what `obax stream --key` writes."""
        with self.lock:
            outcome = self._learn(keys, rows, targets, reject_missing=False, trace=True)
            return Played(
                outcome.predictions,
                tuple(self.reader.labels),
                outcome.loss,
                outcome.hyperparameters,
                [outcome.rejected.get(i) for i in range(len(outcome.loss))],
            )

    def predict_many(self, keys: Any, rows: Rows) -> Any:
        """Return the prediction of the model of its key for each row, as a series; `None`,
        or 0 in regression, if that model has learned nothing yet."""
        predictions, classes = self._predict(keys, rows)
        if not self.reader.options.classify:
            return to_series(predictions, rows)
        labels = np.empty(len(predictions), object)
        known = predictions.any(axis=1)
        if known.any():
            labels[known] = as_array(classes)[np.argmax(predictions[known], axis=1)]
        return to_series(labels.tolist(), rows)

    def predict_proba_many(self, keys: Any, rows: Rows) -> Any:
        """Return probabilities as a frame with one column for each class that the pool
        knows. All are 0 if the model of a row's key has learned nothing yet."""
        self._check_classes("predict_proba_many")
        predictions, classes = self._predict(keys, rows)
        return to_frame(predictions, classes, rows)

    def learn_one(self, x: Features, y: object) -> None:
        """Learn one row, a dict of features in which `key` is the key."""
        self._learn(None, [as_dict(x)], [y])

    def predict_one(self, x: Features) -> Any:
        """Return the prediction for one row, a dict of features in which `key` is the key."""
        return self.predict_many(None, [as_dict(x)])[0]

    def predict_proba_one(self, x: Features) -> dict[Hashable, float]:
        """Return the probability of each class that the key of the row has met."""
        self._check_classes("predict_proba_one")
        predictions, classes = self._predict(None, [as_dict(x)])
        return {label: p for label, p in zip(classes, predictions[0].tolist(), strict=True) if p}

    def prepare(self) -> Self:
        """Return the pool itself. Estimators have this method too, which checks their options."""
        return self

    def _learn(
        self,
        keys: Any,
        rows: Rows,
        targets: Targets,
        weights: Weights = None,
        reject_missing: bool = True,
        trace: bool = False,
    ) -> Outcome:
        keys, rows = split(self.key, keys, rows)
        goals = targets_of(targets)
        heavy = many_weights(weights, len(goals))
        with self.lock:
            reader, engine, size = self.reader, self.models.engine, len(keys)
            batch = reader.learnable(keys, rows, goals, heavy, reject_missing)
            engine.add(len(self) - len(engine))
            first, self.rows = self.rows, self.rows + size
            columns, classes = list(range(len(reader.names))), len(reader.labels)
            spec = engine.spec.replace(features=len(columns), classes=classes)
            predictions, loss = self._no_predictions(size), np.zeros(size)
            x = np.full((size if trace else 0, spec.trail), np.nan)
            lost: list[int] = []
            for begin, end in self._stretches(first, size):
                for some in self.models.in_memory(batch.numbers, begin, end):
                    status, loss[some], _, found, now = engine.play(
                        batch.numbers[some], batch.values[some], columns, batch.targets[some],
                        batch.weights[some], classes, self.shards, trace, reader.implied,
                        reader.siblings,
                    )  # fmt: skip
                    predictions[some] = found if self.reader.options.classify else found[:, 0]
                    if trace:
                        x[some] = now
                    lost += some[(batch.weights[some] > 0) & (status != LEARNED)].tolist()
            with_key = [i for i in batch.rejected if batch.numbers[i] >= 0]
            engine.count_rejected(batch.numbers[with_key])
            rejected = batch.rejected | dict.fromkeys(lost, NOT_FINITE)
            for i in sorted(rejected):
                self.rejected_.add(first + i + 1, rejected[i], {self.key: keys[i], **batch.row(i)})
            words = None if self.warned else self.rejected_.alarm(bool(self.learned_))
            self.warned = self.warned or words is not None
            trail = named(reader.options, spec, x, reader.names, reader.labels) if trace else {}
        if words is not None:
            warn_caller(words)
        return Outcome(predictions, loss, np.zeros(size), trail, rejected)

    def _predict(self, keys: Any, rows: Rows) -> tuple[np.ndarray, list[Hashable]]:
        keys, rows = split(self.key, keys, rows)
        with self.lock:
            batch, labels = self.reader.known(keys, rows), list(self.reader.labels)
            predictions, columns = (
                self._no_predictions(len(keys)),
                list(range(batch.values.shape[1])),
            )
            for some in self.models.in_memory(batch.numbers, 0, len(keys)):
                found = self.models.engine.predict(
                    batch.numbers[some], batch.values[some], columns, len(labels), self.shards
                )
                predictions[some] = found if self.reader.options.classify else found[:, 0]
        return predictions, labels

    def _no_predictions(self, size: int) -> np.ndarray:
        classify = self.reader.options.classify
        return np.zeros((size, len(self.reader.labels)) if classify else size)

    # ---- where new keys begin ------------------------------------------------------------------

    def _stretches(self, first: int, size: int) -> Iterator[tuple[int, int]]:
        """Cut a batch where the medians are computed again. Where that is depends on rows alone and
        not on how they are cut into batches."""
        begin = 0
        while self.start == "pooled" and first + size >= self.renewal:
            end = max(begin, self.renewal - first)
            yield begin, end
            begin = end
            self._pool_starts()
        if begin < size:
            yield begin, size

    def _pool_starts(self) -> None:
        table = self.models.summary()
        experienced = table[table[:, 2] >= EXPERIENCED, 4:]
        if len(experienced) >= ENOUGH_KEYS:
            medians = zip(TUNED, np.exp(np.median(experienced, axis=0)).tolist(), strict=True)
            bounds = native.loaded().BOUNDS
            self.begin_at({name: float(np.clip(m, *bounds[name])) for name, m in medians})
        self.renewal += max(RENEW, len(self))

    def begin_at(self, starts: dict[str, float] | None) -> None:
        """Set the hyperparameters with which new keys start."""
        self.starts = starts
        if starts is not None:
            engine = self.models.engine
            order = tuple(starts[name] for name in ("penalty", "memory", "inertia"))
            engine.change(engine.spec.replace(starts=order))

    # ---- what was learned ----------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.reader.keys)

    def __bool__(self) -> bool:
        return True  # A pool that has no keys yet is a model, not nothing.

    def __iter__(self) -> Iterator[Hashable]:
        return iter(list(self.reader.keys))

    def __contains__(self, key: object) -> bool:
        return is_hashable(key) and key in self.reader.keys

    def __getitem__(self, key: Hashable) -> Tenant:
        """Return the model of a key, for inspection."""
        if key not in self:
            words = nearest(str(key), [str(name) for name in self])
            raise KeyError(f"the pool has no key {key!r}.{words}")
        return Tenant(key, self, self.reader.keys[key])

    @property
    def classes_(self) -> np.ndarray:
        """The classes that any key has met, sorted."""
        self._check_classes("classes_")
        return sorted_labels(list(self.reader.labels))

    @property
    def feature_names_(self) -> list[Hashable]:
        """The features seen so far, in the order of their first appearance."""
        return list(self.reader.names)

    @property
    def ignored_(self) -> int:
        """Values of features beyond those that there is room for, in rows that were learned."""
        return self.reader.ignored

    @property
    def learned_(self) -> int:
        """Rows learned by all keys."""
        with self.lock:
            return int(self.models.totals()[0])

    @property
    def mean_loss_(self) -> float:
        """The mean loss of predicting a row before it was learned, over all keys."""
        with self.lock:
            learned, loss = self.models.totals()
        return loss / max(learned, 1)

    @property
    def in_memory_(self) -> int:
        """Models that are in memory; the others are in files."""
        with self.lock:
            return int(self.models.engine.summary()[:, 5].sum())

    @property
    def bytes_per_key_(self) -> int:
        """The bytes of a model in memory, with its history."""
        with self.lock:
            return int(self.models.engine.bytes_per_key)

    def tenants(self, most: int | None = None) -> "pd.DataFrame":
        """Return a frame with a line for each key, the worst mean loss first: rows learned and
        rejected, loss and hyperparameters. `most` limits the number of lines."""
        import pandas as pd

        with self.lock:
            table, keys = self.models.summary(), list(self)
        loss = table[:, 3] / np.maximum(table[:, 2], 1)
        worst = np.argsort(-loss, kind="stable")[:most]
        rejected, learned = table[worst, 1:3].astype(np.int64).T
        columns = {name: np.exp(table[worst, j]) for name, j in COLUMNS.items()}
        # A series of objects holds tuples too, as they are.
        found = {"key": pd.Series([keys[i] for i in worst], dtype=object), "rows": learned}
        return pd.DataFrame(found | {"loss": loss[worst]} | columns | {"rejected": rejected})

    def explain(self) -> str:
        """Return a few sentences about the pool: keys, rows, loss, the medians of the
        hyperparameters, the worst key and rejected rows."""
        with self.lock:
            table = self.tenants()
            table = table[table["rows"] > 0]
            text = "No row has been learned yet."
            if len(table):
                classify = self.reader.options.classify
                what = "log loss" if classify else "loss (in deviations of the target)"
                middle, worst = table[["memory", "penalty", "inertia"]].median(), table.iloc[0]
                text = (
                    f"{counted(len(self), 'key')}, {counted(self.learned_, 'row')} learned, mean "
                    f"{what} {self.mean_loss_:.4f}. In the middle a model looks back "
                    f"{middle['memory']:.0f} rows (from {table['memory'].min():.0f} to "
                    f"{table['memory'].max():.0f}), penalty {middle['penalty']:.3g}, "
                    f"inertia {middle['inertia']:.3g}. The worst is {worst['key']}: "
                    f"{worst['loss']:.4f} over {counted(worst['rows'], 'row')}."
                )
            if self.models.places:
                are = "models are" if self.in_memory_ != 1 else "model is"
                text += f" {self.in_memory_:,} {are} in memory, the others on disk."
            if self.rejected_.count:
                were = "rows were" if self.rejected_.count > 1 else "row was"
                often = self.rejected_.most_often()
                text += f" {self.rejected_.count:,} {were} rejected, {often}."
            if self.ignored_:
                text += (
                    f" {counted(self.ignored_, 'value')} of features beyond the first "
                    f"{len(self.feature_names_)} {'was' if self.ignored_ == 1 else 'were'} ignored."
                )
            return text

    def _check_classes(self, method: str) -> None:
        if not self.reader.options.classify:
            raise AttributeError(f"{method} is for classes; this is a pool of regressors.")

    # ---- copies --------------------------------------------------------------------------------

    def part(self, index: int, of: int) -> "Pool":
        """Return a new pool, for one thread, with copies of the models of part `index`, if keys are
        spread over so many parts."""
        with self.lock:
            own = [i for key, i in self.reader.keys.items() if spread(key) % of == index]
            arrays, extra = serialise.to_plain(self, own)
        most = self.max_keys and max(1, self.max_keys // of)
        extra |= {"rows": 0, "max_keys": most, "renewal": RENEW, "rejected": Rejected().to_plain()}
        like = type(self)(self.model, folder=self.folder, shards=1)
        return serialise.from_plain(like, arrays, extra)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the options of the pool, and those of its models with the prefix `model__`."""
        own = {"key": self.key, "start": self.start, "max_keys": self.max_keys}
        if not deep:
            return own | {"model": self.model}
        params = self.model.get_params(deep=False)
        return own | {f"model__{name}": value for name, value in params.items()}

    def __repr__(self) -> str:
        return f"Pool({self.model!r}, key={self.key!r}): {counted(len(self), 'key')}"

    def __getstate__(self) -> dict[str, Any]:
        """Return a copy of the state, which other threads that go on learning do not change."""
        model = type(self.model)(**self.model.get_params(deep=False))
        return {"like": (model, self.folder, self.shards), "saved": serialise.to_plain(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        model, folder, shards = state["like"]
        like = type(self)(model, folder=folder, shards=shards)
        self.__dict__.update(serialise.from_plain(like, *state["saved"]).__dict__)
        locks.add_lock(self)

    def __obax_save__(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return arrays and plain values for `obax.save`."""
        return serialise.to_plain(self)

    def __obax_load__(self, arrays: dict[str, np.ndarray], extra: dict[str, Any]) -> "Pool":
        """Return a new pool from what `__obax_save__` gave, with the shards and folder of this
        one."""
        return serialise.from_plain(self, arrays, extra)


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
