"""What a pool has learned, to look at."""

import threading
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._support.counting import counted
from ..._support.errors import nearest
from ..classifier import as_array, ranked
from ..history import Rejected
from ..options import Options
from .keys import Keys
from .reading import Reader
from .shard import Shard
from .tenant import Tenant

if TYPE_CHECKING:
    import pandas as pd


class Look:
    """All of a pool that reads."""

    _lock: threading.RLock
    model: Any
    key: str
    _options: Options
    _reader: Reader
    _keys: Keys
    _shards: list[Shard]
    _rejected: Rejected

    def __len__(self) -> int:
        return len(self._keys.names)

    def __bool__(self) -> bool:
        return True  # A pool that has no keys yet is a model, not nothing.

    def __iter__(self) -> Iterator[Hashable]:
        return iter(list(self._keys.names))

    def __contains__(self, key: object) -> bool:
        try:
            return key in self._keys.index
        except TypeError:
            return False

    def __getitem__(self, key: Hashable) -> Tenant:
        """The model of a key, to look at."""
        if key not in self:
            words = nearest(str(key), [str(name) for name in self._keys.names])
            raise KeyError(f"the pool has no key {key!r}.{words}")
        shard, number = self._keys.places[self._keys.index[key]]
        return Tenant(key, self, self._shards[shard], int(number))

    @property
    def classes_(self) -> np.ndarray:
        """The classes that any key has met, sorted."""
        self._check_classes("classes_")
        return as_array([self._reader.classes[i] for i in ranked(self._reader.classes)])

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
        return int(sum(shard.table["seen"].sum() for shard in self._shards))

    @property
    def mean_loss_(self) -> float:
        """The mean loss of predicting a row before it was learned, over all keys."""
        total: float = sum(shard.table["total"].sum() for shard in self._shards)
        return float(total) / max(self.learned_, 1)

    @property
    def in_memory_(self) -> int:
        """Models that are in memory; the others are in files."""
        return sum(shard.warm for shard in self._shards)

    @property
    def bytes_per_key_(self) -> int:
        """Of a model in memory, with its history."""
        return max(shard.bytes_per_key() for shard in self._shards)

    def tenants(self, most: int | None = None) -> "pd.DataFrame":
        """A line for each key, the worst mean loss first: rows learned and rejected, loss and
        hyperparameters; the first `most` of them."""
        import pandas as pd

        places, names = self._keys.places, self._keys.names
        lines = np.zeros(len(places), self._shards[0].table.dtype)
        for i, shard in enumerate(self._shards):
            mine = np.flatnonzero(places[:, 0] == i)
            with shard._lock:
                lines[mine] = shard.table[places[mine, 1]]
        loss = lines["total"] / np.maximum(lines["seen"], 1)
        worst = np.argsort(-loss, kind="stable")[:most]
        keys = np.empty(len(worst), object)
        keys[:] = [names[i] for i in worst]
        found = {"key": keys, "rows": lines["seen"][worst].astype(np.int64), "loss": loss[worst]}
        found |= {name: np.exp(lines[name][worst]) for name in ("penalty", "memory", "inertia")}
        return pd.DataFrame(found | {"rejected": lines["rejected"][worst]})

    def explain(self) -> str:
        """How many, how well, the hyperparameters in the middle, the worst key, what was
        rejected."""
        table = self.tenants()
        table = table[table["rows"] > 0]
        text = "No row has been learned yet."
        if len(table):
            what = "log loss" if self._options.classify else "loss (in deviations of the target)"
            middle, worst = table[["memory", "penalty", "inertia"]].median(), table.iloc[0]
            text = (
                f"{counted(len(self), 'key')}, {counted(self.learned_, 'row')} learned, mean "
                f"{what} {self.mean_loss_:.4f}. In the middle a model looks back "
                f"{middle['memory']:.0f} rows (from {table['memory'].min():.0f} to "
                f"{table['memory'].max():.0f}), penalty {middle['penalty']:.3g}, "
                f"inertia {middle['inertia']:.3g}. The worst is {worst['key']}: "
                f"{worst['loss']:.4f} over {counted(worst['rows'], 'row')}."
            )
        if self.in_memory_ < len(self):
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
