"""A pool of models in Spark Structured Streaming: `pip install 'obax[spark]'`, and Java 17.

Keys are spread over shards, and Spark keeps one state for each shard in its state store
(`transformWithState`, RocksDB), with the checkpoints of the query. A state is the bytes of an obax
checkpoint: arrays and plain values with their checksums. After a kill, Spark repeats the batch that
was in progress from the states before it; a sink that writes each batch once, such as files, then
has each row once.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

try:
    from pyspark.sql import functions
    from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
    from pyspark.sql.types import DoubleType, StringType, StructField, StructType
except ImportError as error:
    raise ImportError("obax.integrations.spark needs Spark: pip install 'obax[spark]'.") from error

from ..checkpoint import from_bytes, to_bytes
from ..estimators import Played, Pool, StreamingRegressor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHARDS = 16
"""The default number of shards, and so the largest number of tasks."""
SHARD = "obax_shard"
"""The column with the number of the shard, while rows are on their way."""
STATE = "models"
STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Learner(StatefulProcessor):
    """What Spark runs for each shard and batch: predict rows, then learn them."""

    def __init__(
        self, pool: Pool, shards: int, target: str, drop: frozenset[str], order: str | None
    ):
        self._pool, self._shards, self._target = pool, shards, target
        self._drop, self._order = drop | {pool.key, target, SHARD}, order

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state of the shards."""
        self._state = handle.getValueState(STATE, f"{STATE} binary")

    def handleInputRows(
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,
    ) -> Iterator[pd.DataFrame]:
        """Yield the rows of a batch with what was predicted before each was learned."""
        frame = pd.concat(list(rows), ignore_index=True)
        if self._order is not None:
            frame = frame.sort_values(self._order, kind="stable", ignore_index=True)
        if self._state.exists():
            (models,) = self._state.get()
            pool = from_bytes(bytes(models), self._pool, "the state in Spark's state store")
        else:
            pool = self._pool.part(int(key[0]), self._shards)
        features = frame[[name for name in frame.columns if name not in self._drop]]
        keys, targets = frame[pool.key].tolist(), frame[self._target]
        missing = targets.isna()
        played = pool.play(keys, features, targets.astype(object).where(~missing, None).tolist())
        self._state.update((to_bytes(pool),))
        yield frame.drop(columns=SHARD).assign(**_predicted(played, missing.to_numpy()))


def learn(
    stream: "DataFrame",
    pool: Pool,
    *,
    target: str = "target",
    drop: Iterable[str] = (),
    order: str | None = None,
    shards: int = SHARDS,
) -> "DataFrame":
    """Learn rows as they come, and return what was predicted for each before it was learned.

    **Arguments:**

    - `stream`: a streaming frame with the column `pool.key`, of strings. All other columns are
      features, except `target` and those in `drop`. A row without a target is only predicted.
    - `pool`: the initial models. It is not changed: each shard works on a copy of its keys.
    - `order`: the column by which the rows of a batch are sorted, such as a time. Without it they
      come in the order in which Spark hands them out, which is not always that of the source.
    - `shards`: the number of parts in which Spark keeps the state. A query that is resumed must
      have the same number as before.

    The rows come back with the columns `prediction` (for classes their text), `probability` (of
    that class; null for numbers), `loss`, and `rejected`, the reason why a row was not learned.
    """
    if not isinstance(shards, int) or shards < 1:
        raise ValueError(f"shards must be an integer >= 1, but got {shards!r}.")
    for name in (pool.key, target, *([] if order is None else [order])):
        if name not in stream.columns:
            raise ValueError(f"the stream has no column {name!r}; it has {stream.columns}.")
    kind = stream.schema[pool.key].dataType
    if not isinstance(kind, StringType):
        raise ValueError(
            f"the column {pool.key!r} must hold strings, but is {kind.simpleString()}; cast it."
        )
    stream.sparkSession.conf.set(STORE, ROCKSDB)
    numbers = isinstance(pool.model, StreamingRegressor)
    kind = DoubleType() if numbers else StringType()
    added = {"prediction": kind, "probability": DoubleType(), "loss": DoubleType()}
    added["rejected"] = StringType()
    output = StructType([*stream.schema.fields, *(StructField(*one) for one in added.items())])
    # The same number as `pool.part` has for a word.
    shard = functions.crc32(functions.coalesce(functions.col(pool.key), functions.lit(""))) % shards
    learner = Learner(pool, shards, target, frozenset(drop), order)
    groups = stream.withColumn(SHARD, shard).groupBy(SHARD)
    return groups.transformWithStateInPandas(learner, output, "Append", "None")


def read(spark: "SparkSession", checkpoint: str, pool: Pool) -> list[Pool]:
    """Return the pools of all shards as the last complete batch left them.

    `checkpoint` is the folder of the query, `pool` the initial models that it began with.
    """
    spark.conf.set(STORE, ROCKSDB)
    states = spark.read.format("statestore").option("stateVarName", STATE).load(checkpoint)
    return [
        from_bytes(bytes(row.value[STATE]), pool, checkpoint)
        for row in sorted(states.collect(), key=lambda row: int(row.key[SHARD]))
    ]


def _predicted(played: Played, missing: np.ndarray) -> dict[str, Any]:
    """Return the columns that are added to the rows."""
    predictions = played.predictions
    columns: dict[str, Any] = {"prediction": predictions, "probability": np.nan}
    if predictions.ndim == 2:
        known = np.any(predictions, axis=1).tolist()
        best = predictions.argmax(axis=1) if predictions.shape[1] else [0] * len(known)
        words = [str(played.classes[i]) if k else None for i, k in zip(best, known, strict=True)]
        chances = predictions.max(axis=1, initial=0.0)
        columns = {"prediction": words, "probability": np.where(known, chances, np.nan)}
    accepted = np.array([reason is None for reason in played.rejected]) & ~missing
    return columns | {"loss": np.where(accepted, played.loss, np.nan), "rejected": played.rejected}
