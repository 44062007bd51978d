"""One self-tuning model for each customer, sensor or shop."""

import functools
import math
import os
import warnings
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..._support import typed
from .. import forks
from ..classifier import StreamingClassifier, as_array, ranked
from ..estimator import Played
from ..given import Targets, as_dict, index_of, targets_of
from ..history import Rejected
from ..model import NOT_FINITE
from ..options import integer, one_of
from ..outcome import named
from ..regressor import StreamingRegressor
from ..table import Features, Rows
from ..weights import Weights, many_weights
from . import state
from .cold import Cold
from .crew import Crew, cores
from .keys import Keys
from .look import Look
from .models import TUNED
from .reading import Batch, Reader, split
from .rows import Lines, Said
from .shard import Shard

if TYPE_CHECKING:
    import pandas as pd

FEW = 64
"""Rows for which other threads are not worth waking."""
EXPERIENCED, ENOUGH_KEYS = 100, 10
"""Rows after which a key's hyperparameters count in the medians, and keys before there are any."""


class Pool(Look):
    """A `StreamingClassifier` or `StreamingRegressor` for each key, in one stacked state.

    Rows of many keys are learned in one compiled call, on all cores; those of one key in their
    order. Every model says what a model of its own, given the rows of its key alone, would have
    said.

    **Arguments:**

    - `model`: a fresh estimator, whose options hold for every key.
    - `key`: the column that tells whose row it is, where rows bring it along. It is no feature.
    - `start`: where the hyperparameters of a new key begin: `"default"`, as the options of `model`
      say; `"pooled"`, at the medians of the keys that have learned 100 rows.
    - `max_keys`: models in memory; those that were needed least recently are kept in a file, and
      come back with the next row of their key. `None` for all. `folder`: where the file is, by
      default among the temporary ones.
    - `shards`: into how many parts the keys are spread; each has a lock, and a thread. By default
      as many as there are cores.

    A row whose key is missing or cannot be one is *rejected*: counted and kept in `rejected_`. All
    keys share features and classes by name; there are at most 64 features, those beyond it are
    ignored and counted in `ignored_`. Threads may use a pool at the same time.

    >>> pool = Pool(StreamingClassifier(), key="shop")
    >>> shops, rows = ["north", "south"] * 40, [[float(i % 7)] for i in range(80)]
    >>> pool.learn_many(shops, rows, [(i % 7 > 3) == (i % 2 == 0) for i in range(80)])
    >>> pool.predict_many(["north", "south"], [[6.0], [6.0]]).to_list()
    [True, False]
    """

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
        typed.check(key, "key", str)
        typed.check(folder, "folder", str | os.PathLike | None)
        if "_core" in model.__dict__:
            raise ValueError(
                f"model must be fresh, because every key begins anew, but this "
                f"{type(model).__name__} has learned rows already; pass a new one."
            )
        checks = {"max_keys": (max_keys, integer), "shards": (shards, integer)}
        for name, (value, check) in checks.items():
            expected = None if value is None else check(value)
            if expected is not None:
                raise ValueError(f"{name} must be {expected} or None, but got {value!r}.")
        expected = one_of("default", "pooled")(start)
        if expected is not None:
            raise ValueError(f"start must be {expected}, but got {start!r}.")
        self.model, self.key, self.start, self.max_keys = model, key, start, max_keys
        self.folder = None if folder is None else Path(folder)
        wanted = cores() if shards is None else shards
        self.shards = wanted if max_keys is None else min(wanted, max_keys)
        self._options = model.checked()
        self._reader, self._keys = Reader(self._options), Keys(self.shards)
        limit = None if max_keys is None else max_keys // self.shards
        colds = (None if limit is None else Cold(self.folder) for _ in range(self.shards))
        self._shards = [Shard(self._options, limit, cold) for cold in colds]
        self._crew = Crew(self.shards)
        self._rejected, self._warned = Rejected(), False
        self.rows = 0
        self._starts, self._renewal = self._options.starts, state.RENEW
        forks.lock(self)

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
        said, _ = self._learn(keys, rows, targets)
        return self._ordered(said.predictions)

    def play(self, keys: Any, rows: Rows, targets: Targets) -> Played:
        """The same for a stream in which targets may be missing, with all that is known of each
        row. This is what `obax stream --key` writes."""
        said, rejected = self._learn(keys, rows, targets, unlabelled="predict", trace=True)
        assert said.x is not None
        # Those that were known then: other threads may have brought more.
        names = dict(list(self._reader.names.items())[: said.plan.features])
        classes = tuple(self._reader.classes[: said.plan.classes])
        index = {label: i for i, label in enumerate(classes)}
        return Played(
            said.predictions,
            classes,
            said.loss,
            named(self._options, said.plan, said.x, names, index),
            [rejected.get(i) for i in range(len(said.loss))],
        )

    def predict_many(self, keys: Any, rows: Rows) -> "pd.Series":
        """The prediction for each row by the model of its key, as a pandas series; `None`, or 0 for
        numbers, where that has learned nothing yet."""
        import pandas as pd

        said = self._predict(keys, rows)
        if not self._options.classify:
            return pd.Series(said, index=index_of(rows))
        labels = np.empty(len(said), object)
        known = said.any(axis=1)
        best = np.argmax(said[known], axis=1) if known.any() else []
        labels[known] = as_array(self._reader.classes)[best] if known.any() else None
        return pd.Series(labels, index=index_of(rows)).infer_objects()

    def predict_proba_many(self, keys: Any, rows: Rows) -> "pd.DataFrame":
        """Probabilities as a pandas frame with one column for each class that the pool knows; 0 in
        all of them where the model of a row's key has learned nothing yet."""
        import pandas as pd

        self._check_classes("predict_proba_many")
        said = self._predict(keys, rows)
        classes = self._reader.classes[: said.shape[1]]
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
        """As an estimator has it; a pool is ready when it is made."""
        return self

    def _learn(
        self,
        keys: Any,
        rows: Rows,
        targets: Targets,
        weights: Weights = None,
        unlabelled: str = "reject",
        trace: bool = False,
    ) -> tuple[Said, dict[int, str]]:
        given, rows = split(self.key, keys, rows)
        goals = targets_of(targets)
        heavy = many_weights(weights, len(goals))
        with self._lock:
            before = self._keys.counts()
            batch = self._reader.learnable(self._keys, given, rows, goals, heavy, unlabelled)
            for shard, old, new in zip(self._shards, before, self._keys.counts(), strict=True):
                shard.add(new - old)
            first, self.rows = self.rows, self.rows + len(given)
        said = self._said(batch, trace)
        for begin, end in self._stretches(first, len(given)):
            self._run(batch, said, slice(begin, end), count=True)
        rejected = batch.rejected | dict.fromkeys(np.flatnonzero(said.lost).tolist(), NOT_FINITE)
        if rejected:
            self._reject(batch, rejected, first)
        return said, rejected

    def _predict(self, keys: Any, rows: Rows) -> np.ndarray:
        given, rows = split(self.key, keys, rows)
        with self._lock:
            batch = self._reader.known(self._keys, given, rows)
        said = self._said(batch, False)
        self._run(batch, said, slice(0, len(given)), count=False)
        return said.predictions

    def _said(self, batch: Batch, trace: bool) -> Said:
        return Said.empty(self._options, len(batch.numbers), *batch.shape, trace)

    def _run(self, batch: Batch, said: Said, span: slice, count: bool) -> None:
        """Rows by the shards of their keys."""
        numbers = batch.numbers[span]
        if not len(self):
            return
        # Those without a key, whose number is -1, are of no shard.
        shards, theirs = self._keys.places[numbers].T
        shards = np.where(numbers < 0, -1, shards)
        refused = np.zeros(len(batch.numbers), bool)
        refused[list(batch.rejected)] = True
        jobs = []
        for i, shard in enumerate(self._shards):
            at = np.flatnonzero(shards == i)
            if not len(at):
                continue
            rows = at + span.start
            lines = Lines(
                theirs[at],
                batch.values[rows],
                batch.targets[rows],
                batch.labelled[rows],
                batch.weights[rows],
                refused[rows],
                batch.classes,
            )
            jobs.append(functools.partial(self._job, shard, lines, rows, said, count))
        if len(numbers) < FEW:
            for job in jobs:
                job()
        else:
            self._crew.run(jobs)

    def _job(self, shard: Shard, lines: Lines, rows: np.ndarray, said: Said, count: bool) -> None:
        said.fill(rows, shard.play(lines, self._starts, said.x is not None, count))

    def _stretches(self, first: int, size: int) -> Iterator[tuple[int, int]]:
        """Of a batch, between two of which the medians are taken again. Where that is depends on
        rows alone and not on how they are cut into batches."""
        begin = 0
        while self.start == "pooled" and first + size >= self._renewal:
            end = max(begin, self._renewal - first)
            yield begin, end
            begin = end
            self._pool_starts()
        if begin < size:
            yield begin, size

    def _pool_starts(self) -> None:
        tables = [shard.table[: shard.count] for shard in self._shards]
        wise = np.concatenate([table[table["seen"] >= EXPERIENCED] for table in tables])
        if len(wise) >= ENOUGH_KEYS:
            self._starts = {name: math.exp(np.median(wise[name])) for name in TUNED}
        self._renewal += max(state.RENEW, len(self._keys.names))

    def _reject(self, batch: Batch, rejected: dict[int, str], first: int) -> None:
        """Count and keep rejected rows; a warning, once, if nothing else comes."""
        with self._lock:
            for i in sorted(rejected):
                values = {self.key: batch.keys[i], **batch.row(i)}
                self._rejected.add(first + i + 1, rejected[i], values)
            words = None if self._warned else self._rejected.alarm(bool(self.learned_))
            self._warned = self._warned or words is not None
        if words is not None:
            warnings.warn(words, stacklevel=4)

    def _ordered(self, predictions: np.ndarray) -> np.ndarray:
        if not self._options.classify:
            return predictions
        order = ranked(self._reader.classes)
        return np.pad(predictions, ((0, 0), (0, len(order) - predictions.shape[1])))[:, order]

    def part(self, index: int, of: int) -> "Pool":
        """A new pool, of one shard, with copies of the models of part `index`, if keys are spread
        over so many parts."""
        return state.part(self, index, of)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The options of the pool, and those of its models with `model__` before them."""
        own = {"key": self.key, "start": self.start, "max_keys": self.max_keys}
        if not deep:
            return own | {"model": self.model}
        params = self.model.get_params(deep=False)
        return own | {f"model__{name}": value for name, value in params.items()}

    def __repr__(self) -> str:
        return f"Pool({self.model!r}, key={self.key!r}): {len(self):,} keys"

    def __obax_save__(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and plain values for `obax.save`."""
        return state.to_plain(self)

    def __obax_load__(self, arrays: dict[str, np.ndarray], extra: dict[str, Any]) -> "Pool":
        """A new pool from what `__obax_save__` gave, with the shards and folder of this one."""
        return state.from_plain(self, arrays, extra)
