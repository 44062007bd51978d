"""One self-tuning model for each customer, sensor or shop."""

import os
import warnings
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..._support import native
from ..._support.checks import check
from ..._support.messages import counted, nearest
from .. import locks
from ..classifier import StreamingClassifier, as_array, ranked, sorted_labels
from ..estimator import Played
from ..inputs.table import Features, Rows, as_dict, index_of
from ..inputs.targets import Targets, Weights, many_weights, targets_of
from ..model import LEARNED, NOT_FINITE, Outcome
from ..options import integer, one_of
from ..regressor import StreamingRegressor
from ..rejected import Rejected
from ..report import named
from . import serialise
from .keys import Keys, split
from .reading import Batch, Reader
from .store import Place, Store
from .tenant import Tenant

if TYPE_CHECKING:
    import pandas as pd

POINTS = 24
"""Points of the history of a key. A model on its own has 1,024, which for ten thousand keys would
be a gigabyte."""
EXPERIENCED, ENOUGH_KEYS = 100, 10
"""Rows after which a key's hyperparameters count in the medians, and keys before there are any."""
TUNED = ("penalty", "inertia", "memory")


class Pool:
    """A `StreamingClassifier` or `StreamingRegressor` for each key.

    Rows of many keys are learned in one compiled call, on all cores; those of one key in their
    order. Every model predicts what a model of its own, given the rows of its key alone, would have
    predicted.

    **Arguments:**

    - `model`: a fresh estimator, whose options hold for every key.
    - `key`: the column that tells whose row it is, where rows bring it along. It is no feature.
    - `start`: where the hyperparameters of a new key begin: `"default"`, as the options of `model`
      say; `"pooled"`, at the medians of the keys that have learned 100 rows.
    - `max_keys`: models in memory; those that were needed least recently are kept in a file, and
      come back with the next row of their key. `None` for all. `folder`: where the file is, by
      default among the temporary ones.
    - `shards`: the number of threads that a call is spread over, by default one for each core.

    A row whose key is missing or cannot be one is *rejected*: counted and kept in `rejected_`. All
    keys share the names of features and classes; there are at most 64 features, those beyond it are
    ignored and counted in `ignored_`. Threads may use a pool at the same time.

    >>> pool = Pool(StreamingClassifier(), key="shop")
    >>> shops, rows = ["north", "south"] * 40, [[float(i % 7)] for i in range(80)]
    >>> pool.learn_many(shops, rows, [(i % 7 > 3) == (i % 2 == 0) for i in range(80)])
    >>> pool.predict_many(["north", "south"], [[6.0], [6.0]]).to_list()
    [True, False]
    """

    _lock: Any

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
        check(key, "key", str)
        check(folder, "folder", str | os.PathLike | None)
        if "_model" in model.__dict__:
            raise ValueError(
                f"model must be fresh, because every key begins anew, but this "
                f"{type(model).__name__} has learned rows already; pass a new one."
            )
        for name, value in {"max_keys": max_keys, "shards": shards}.items():
            expected = None if value is None else integer(value)
            if expected is not None:
                raise ValueError(f"{name} must be {expected} or None, but got {value!r}.")
        expected = one_of("default", "pooled")(start)
        if expected is not None:
            raise ValueError(f"start must be {expected}, but got {start!r}.")
        self.model, self.key, self.start, self.max_keys = model, key, start, max_keys
        self.folder = None if folder is None else Path(folder)
        self.shards = cores() if shards is None else shards
        self._options = model.checked()
        self._reader, self._keys = Reader(self._options), Keys()
        spec = self._options.spec(0, 0, history_points=POINTS).replace(intervals=False)
        self._engine = native.loaded().Pool(spec)
        self._store = None if max_keys is None else Store(self.folder)
        self._places: dict[int, Place] = {}
        self._rejected, self._warned = Rejected(), False
        self.rows = 0
        self._starts: dict[str, float] | None = None
        self._renewal = serialise.RENEW
        locks.add_lock(self)

    # ---- learn and predict -------------------------------------------------------------------

    def learn_many(self, keys: Any, rows: Rows, targets: Targets, w: Weights = None) -> None:
        """Learn rows, those of each key in their order. `keys`: one for each row, or `None` where
        rows have the column `key`; rows, targets and weights as in the estimator's
        `learn_many`."""
        self._learn(keys, rows, targets, w)

    def progressive(self, keys: Any, rows: Rows, targets: Targets) -> np.ndarray:
        """The same, and what was predicted for each row *before* it was learned: numbers, or
        probabilities with a column for each of `classes_`, 0 for a class that the row's key has not
        met."""
        with self._lock:
            predictions = self._learn(keys, rows, targets).predictions
            if not self._options.classify:
                return predictions
            order = ranked(self._reader.labels)
        return np.pad(predictions, ((0, 0), (0, len(order) - predictions.shape[1])))[:, order]

    def play(self, keys: Any, rows: Rows, targets: Targets) -> Played:
        """The same for a stream in which targets may be missing, with all that is known of each
        row. This is what `obax stream --key` writes."""
        with self._lock:
            found = self._learn(keys, rows, targets, reject_missing=False, trace=True)
            names, labels = self._reader.names, self._reader.index
            return Played(
                found.predictions,
                tuple(labels),
                found.loss,
                named(self._options, found.spec, found.x, names, labels),
                [found.rejected.get(i) for i in range(len(found.loss))],
            )

    def predict_many(self, keys: Any, rows: Rows) -> "pd.Series":
        """The prediction for each row by the model of its key, as a pandas series; `None`, or 0 for
        numbers, where that has learned nothing yet."""
        import pandas as pd

        said, classes = self._predict(keys, rows)
        if not self._options.classify:
            return pd.Series(said, index=index_of(rows))
        labels = np.empty(len(said), object)
        known = said.any(axis=1)
        best = np.argmax(said[known], axis=1) if known.any() else []
        labels[known] = as_array(classes)[best] if known.any() else None
        return pd.Series(labels, index=index_of(rows)).infer_objects()

    def predict_proba_many(self, keys: Any, rows: Rows) -> "pd.DataFrame":
        """Probabilities as a pandas frame with one column for each class that the pool knows; 0 in
        all of them where the model of a row's key has learned nothing yet."""
        import pandas as pd

        self._check_classes("predict_proba_many")
        said, classes = self._predict(keys, rows)
        return pd.DataFrame(said, columns=classes, index=index_of(rows))

    def learn_one(self, x: Features, y: object) -> None:
        """Learn one row, a dict of features in which `key` is the key."""
        self._learn(None, [as_dict(x)], [y])

    def predict_one(self, x: Features) -> Any:
        """The prediction for one row, a dict of features in which `key` is the key."""
        return self.predict_many(None, [as_dict(x)]).iloc[0]

    def predict_proba_one(self, x: Features) -> dict[Hashable, float]:
        """The probability of each class that the key of the row has met."""
        found = self.predict_proba_many(None, [as_dict(x)]).iloc[0]
        return {label: float(p) for label, p in found.items() if p > 0}

    def prepare(self) -> Self:
        """Return the pool, which is ready when it is made; an estimator has this method too."""
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
        given, rows = split(self.key, keys, rows)
        goals = targets_of(targets)
        heavy = many_weights(weights, len(goals))
        with self._lock:
            batch = self._reader.learnable(self._keys, given, rows, goals, heavy, reject_missing)
            self._engine.add(len(self) - len(self._engine))
            first, self.rows = self.rows, self.rows + len(given)
            found = self._empty(batch, trace)
            for begin, end in self._stretches(first, len(given)):
                self._play(batch, found, begin, end)
            with_key = [i for i in batch.rejected if batch.numbers[i] >= 0]
            self._engine.count_rejected(batch.numbers[with_key])
            found.rejected = batch.rejected | found.rejected
            for i in sorted(found.rejected):
                values = {self.key: batch.keys[i], **batch.row(i)}
                self._rejected.add(first + i + 1, found.rejected[i], values)
            words = None if self._warned else self._rejected.alarm(bool(self.learned_))
            self._warned = self._warned or words is not None
        if words is not None:
            warnings.warn(words, stacklevel=3)
        return found

    def _empty(self, batch: Batch, trace: bool) -> Outcome:
        size, classify = len(batch.numbers), self._options.classify
        spec = self._engine.spec.replace(features=batch.values.shape[1], classes=batch.classes)
        predictions = np.zeros((size, batch.classes) if classify else size)
        x = np.full((size if trace else 0, spec.trail), np.nan)
        return Outcome(predictions, np.zeros(size), np.zeros(size), x, {}, spec)

    def _play(self, batch: Batch, found: Outcome, begin: int, end: int) -> None:
        """Play some rows by the models of their keys."""
        columns, trace = list(range(batch.values.shape[1])), len(found.x) > 0
        for rows in self._in_memory(batch, begin, end):
            status, loss, _, predictions, x = self._engine.play(
                batch.numbers[rows], batch.values[rows], columns, batch.targets[rows],
                batch.weights[rows], batch.classes, self.shards, trace, self._reader.implied,
                self._reader.siblings,
            )  # fmt: skip
            found.predictions[rows] = self._columns(predictions)
            found.loss[rows] = loss
            if trace:
                found.x[rows] = x
            lost = rows[(batch.weights[rows] > 0) & (status != LEARNED)]
            found.rejected |= dict.fromkeys(lost.tolist(), NOT_FINITE)

    def _predict(self, keys: Any, rows: Rows) -> tuple[np.ndarray, list[Hashable]]:
        given, rows = split(self.key, keys, rows)
        with self._lock:
            batch = self._reader.known(self._keys, given, rows)
            found, labels = self._empty(batch, False).predictions, self._reader.labels
            columns = list(range(batch.values.shape[1]))
            for some in self._in_memory(batch, 0, len(given)):
                predictions = self._engine.predict(
                    batch.numbers[some], batch.values[some], columns, batch.classes, self.shards
                )
                found[some] = self._columns(predictions)
        return found, labels

    def _columns(self, predictions: np.ndarray) -> np.ndarray:
        return predictions if self._options.classify else predictions[:, 0]

    # ---- models in memory and on disk ----------------------------------------------------------

    def _in_memory(self, batch: Batch, begin: int, end: int) -> Iterator[np.ndarray]:
        """Yield rows that have a key, as many as there may be models in memory, which then are."""
        rows = begin + np.flatnonzero(batch.numbers[begin:end] >= 0)
        step = max(1, len(rows) if self.max_keys is None else min(self.max_keys, len(rows)))
        for i in range(0, len(rows), step):
            some = rows[i : i + step]
            if self._store is not None:
                self._bring(np.unique(batch.numbers[some]))
            yield some

    def _bring(self, numbers: np.ndarray) -> None:
        """Have the models of these keys in memory, and others on disk where these are too many."""
        assert self.max_keys is not None
        table = self._engine.summary()
        there = table[:, 5] > 0
        absent = numbers[~there[numbers]]
        there[numbers] = False
        others = np.flatnonzero(there)
        surplus = len(others) + len(numbers) - self.max_keys
        if surplus > 0:
            for number in others[np.argsort(table[others, 2], kind="stable")[:surplus]].tolist():
                self._put_away(number)
        for number in absent.tolist():
            if number in self._places:
                self._take_back(number)

    def _put_away(self, number: int) -> None:
        assert self._store is not None
        info = self._engine.info(number)
        kept = {name: info[name] for name in ("learned", "total_loss", "x")}
        self._places[number] = self._store.put(self._engine.state(number), kept)
        self._engine.release(number)

    def _take_back(self, number: int) -> None:
        assert self._store is not None
        place, info = self._places[number], self._engine.info(number)
        counts = (info["given"], info["rejected"], info["used"])
        state = self._store.get(place)
        self._engine.restore(number, info["features"], info["labels"], *counts, state)
        del self._places[number]
        self._store.free(place)

    def _info(self, number: int) -> dict[str, Any]:
        """Return what is known of a key, wherever its model is."""
        info: dict[str, Any] = self._engine.info(number)
        return info | (self._places[number].info if number in self._places else {})

    def _state(self, number: int) -> dict[str, Any] | None:
        """Return the numbers of a model; `None` before its first row."""
        if number in self._places:
            assert self._store is not None
            return self._store.get(self._places[number])
        return self._engine.state(number) if self._engine.info(number)["in_memory"] else None

    def _summary(self) -> np.ndarray:
        """Return a line for each key: rows given, rejected, learned, their total loss, and the
        logarithms of penalty, inertia and memory."""
        table = np.zeros((len(self), 7))
        table[:, :4] = self._engine.summary()[:, [0, 1, 3, 4]]
        spec, spans = self._engine.spec, {}
        for number in range(len(self)):
            info = self._info(number)
            if "x" not in info:
                continue
            size = len(info["features"])
            if size not in spans:
                found = spec.replace(features=size, classes=len(info["labels"])).spans
                spans[size] = [slice(*found[name]) for name in TUNED]
            table[number, 2:4] = info["learned"], info["total_loss"]
            table[number, 4:] = [info["x"][span].mean() for span in spans[size]]
        return table

    # ---- where new keys begin ------------------------------------------------------------------

    def _stretches(self, first: int, size: int) -> Iterator[tuple[int, int]]:
        """Cut a batch where the medians are computed again. Where that is depends on rows alone and
        not on how they are cut into batches."""
        begin = 0
        while self.start == "pooled" and first + size >= self._renewal:
            end = max(begin, self._renewal - first)
            yield begin, end
            begin = end
            self._pool_starts()
        if begin < size:
            yield begin, size

    def _pool_starts(self) -> None:
        table = self._summary()
        wise = table[table[:, 2] >= EXPERIENCED, 4:]
        if len(wise) >= ENOUGH_KEYS:
            medians = dict(zip(TUNED, np.exp(np.median(wise, axis=0)).tolist(), strict=True))
            bounds = native.loaded().BOUNDS
            self._begin_at({name: float(np.clip(m, *bounds[name])) for name, m in medians.items()})
        self._renewal += max(serialise.RENEW, len(self))

    def _begin_at(self, starts: dict[str, float] | None) -> None:
        """Let the hyperparameters of new keys begin there."""
        self._starts = starts
        if starts is not None:
            order = tuple(starts[name] for name in ("penalty", "memory", "inertia"))
            self._engine.change(self._engine.spec.replace(starts=order))

    # ---- what was learned ----------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._keys.index)

    def __bool__(self) -> bool:
        return True  # A pool that has no keys yet is a model, not nothing.

    def __iter__(self) -> Iterator[Hashable]:
        return iter(list(self._keys.index))

    def __contains__(self, key: object) -> bool:
        try:
            return key in self._keys.index
        except TypeError:
            return False

    def __getitem__(self, key: Hashable) -> Tenant:
        """The model of a key, to look at."""
        if key not in self:
            words = nearest(str(key), [str(name) for name in self])
            raise KeyError(f"the pool has no key {key!r}.{words}")
        return Tenant(key, self, self._keys.index[key])

    @property
    def classes_(self) -> np.ndarray:
        """The classes that any key has met, sorted."""
        self._check_classes("classes_")
        return sorted_labels(self._reader.labels)

    @property
    def feature_names_(self) -> list[Hashable]:
        """The features seen so far, in the order of their first appearance."""
        return list(self._reader.names)

    @property
    def rejected_(self) -> Rejected:
        """Rows that were rejected: `rejected_.count`, and the last 100 with their reasons."""
        return self._rejected

    @property
    def ignored_(self) -> int:
        """Values of features beyond those that there is room for, in rows that were learned."""
        return self._reader.ignored

    @property
    def learned_(self) -> int:
        """Rows learned by all keys."""
        return int(self._totals()[0])

    @property
    def mean_loss_(self) -> float:
        """The mean loss of predicting a row before it was learned, over all keys."""
        learned, loss = self._totals()
        return loss / max(learned, 1)

    @property
    def in_memory_(self) -> int:
        """Models that are in memory; the others are in files."""
        with self._lock:
            return int(self._engine.summary()[:, 5].sum())

    @property
    def bytes_per_key_(self) -> int:
        """The bytes of a model in memory, with its history."""
        with self._lock:
            return int(self._engine.bytes_per_key)

    def _totals(self) -> tuple[float, float]:
        """Return rows learned and their total loss, over all keys."""
        with self._lock:
            learned, loss = self._engine.summary()[:, 3:5].sum(axis=0).tolist()
            away = [place.info for place in self._places.values()]
            learned += sum(info["learned"] for info in away)
            return learned, loss + sum(info["total_loss"] for info in away)

    def tenants(self, most: int | None = None) -> "pd.DataFrame":
        """A line for each key, the worst mean loss first: rows learned and rejected, loss and
        hyperparameters; the first `most` of them."""
        import pandas as pd

        with self._lock:
            table, names = self._summary(), list(self)
        learned = table[:, 2]
        loss = table[:, 3] / np.maximum(learned, 1)
        worst = np.argsort(-loss, kind="stable")[:most]
        keys = np.empty(len(worst), object)
        keys[:] = [names[i] for i in worst]
        found = {"key": keys, "rows": learned[worst].astype(np.int64), "loss": loss[worst]}
        columns = {"penalty": 4, "memory": 6, "inertia": 5}
        found |= {name: np.exp(table[worst, j]) for name, j in columns.items()}
        return pd.DataFrame(found | {"rejected": table[worst, 1].astype(np.int64)})

    def explain(self) -> str:
        """How many, how well, the hyperparameters in the middle, the worst key, what was
        rejected."""
        with self._lock:
            table = self.tenants()
            table = table[table["rows"] > 0]
            text = "No row has been learned yet."
            if len(table):
                what = (
                    "log loss" if self._options.classify else "loss (in deviations of the target)"
                )
                middle, worst = table[["memory", "penalty", "inertia"]].median(), table.iloc[0]
                text = (
                    f"{counted(len(self), 'key')}, {counted(self.learned_, 'row')} learned, mean "
                    f"{what} {self.mean_loss_:.4f}. In the middle a model looks back "
                    f"{middle['memory']:.0f} rows (from {table['memory'].min():.0f} to "
                    f"{table['memory'].max():.0f}), penalty {middle['penalty']:.3g}, "
                    f"inertia {middle['inertia']:.3g}. The worst is {worst['key']}: "
                    f"{worst['loss']:.4f} over {counted(worst['rows'], 'row')}."
                )
            if self._places:
                are = "models are" if self.in_memory_ != 1 else "model is"
                text += f" {self.in_memory_:,} {are} in memory, the others on disk."
            if self._rejected.count:
                were = "rows were" if self._rejected.count > 1 else "row was"
                text += f" {self._rejected.count:,} {were} rejected, {self._rejected.most_often()}."
            if self.ignored_:
                text += (
                    f" {counted(self.ignored_, 'value')} of features beyond the first "
                    f"{len(self.feature_names_)} {'was' if self.ignored_ == 1 else 'were'} ignored."
                )
            return text

    def _check_classes(self, method: str) -> None:
        if not self._options.classify:
            raise AttributeError(f"{method} is for classes; this is a pool of regressors.")

    # ---- copies --------------------------------------------------------------------------------

    def part(self, index: int, of: int) -> "Pool":
        """Return a new pool, for one thread, with copies of the models of part `index`, if keys are
        spread over so many parts."""
        return serialise.part(self, index, of)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The options of the pool, and those of its models with `model__` before them."""
        own = {"key": self.key, "start": self.start, "max_keys": self.max_keys}
        if not deep:
            return own | {"model": self.model}
        params = self.model.get_params(deep=False)
        return own | {f"model__{name}": value for name, value in params.items()}

    def __repr__(self) -> str:
        return f"Pool({self.model!r}, key={self.key!r}): {counted(len(self), 'key')}"

    def __getstate__(self) -> dict[str, Any]:
        """Return a copy that other threads, which may go on learning, cannot change."""
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
