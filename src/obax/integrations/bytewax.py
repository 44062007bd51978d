"""A pool of models in a Bytewax dataflow: `pip install 'obax[bytewax]'`.

Keys are spread over shards, and the flow keeps one state for each shard; a shard is learned by one
worker, and you choose the number of workers. At the end of an epoch the state of every shard that
had rows goes into Bytewax's recovery store, as the bytes of an obax checkpoint: arrays and plain
values with their checksums. Bytewax itself pickles what it stores, here nothing but bytes, so its
recovery folder must be trusted like code, as always with Bytewax.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

try:
    import bytewax.operators as op
    from bytewax.dataflow import Stream
    from bytewax.operators import KeyedStream, StatefulBatchLogic
except ImportError as error:
    raise ImportError(
        "obax.integrations.bytewax needs Bytewax: pip install 'obax[bytewax]'."
    ) from error

from ..checkpoint import from_bytes, to_bytes
from ..estimators import Pool, StreamingRegressor
from ..estimators.pool.keys import spread
from ..streaming.results import Result, results
from ..streaming.score import Score
from ..streaming.source import Batch

Row = Mapping[str, Any]
SHARDS = 16
"""The default number of shards, and so the largest number of workers."""


class Learner(StatefulBatchLogic[Row, tuple[Row, Result], bytes]):
    """The pool of one shard, which predicts and learns rows, and its state as bytes.

    Without a state, `begin` makes the pool from the first row, which determines the shard.
    """

    def __init__(
        self,
        begin: Callable[[Row], Pool],
        state: tuple[bytes, Pool] | None,
        target: str,
        left_out: set[str],
    ):
        self._begin, self._target, self._left_out = begin, target, left_out
        self.pool: Pool | None = None
        if state is not None:
            self.pool = from_bytes(*state, "the snapshot in Bytewax's recovery store")

    def on_batch(self, values: list[Row]) -> tuple[Iterable[tuple[Row, Result]], bool]:
        """Return each row with what was predicted before it was learned."""
        if self.pool is None:
            self.pool = self._begin(values[0])
        rows = [{n: v for n, v in row.items() if n not in self._left_out} for row in values]
        targets = [row.get(self._target) for row in values]
        keys = [row.get(self.pool.key) for row in values]
        played = self.pool.play(keys, rows, targets)
        batch = Batch(list(rows), targets, [None] * len(rows), keys)
        score = Score(isinstance(self.pool.model, StreamingRegressor))
        pairs = zip(values, results(played, batch, score), strict=True)
        return list(pairs), StatefulBatchLogic.RETAIN

    def snapshot(self) -> bytes:
        """Return all models of the shard as bytes."""
        assert self.pool is not None  # Bytewax asks only after rows have come.
        return to_bytes(self.pool)


def learn(
    step_id: str,
    stream: "Stream[Row]",
    pool: Pool,
    *,
    target: str = "target",
    drop: Iterable[str] = (),
    shards: int = SHARDS,
) -> "KeyedStream[tuple[Row, Result]]":
    """Learn rows as they come, and return what was predicted for each before it was learned.

    **Arguments:**

    - `step_id`: the id of the step, unique in the flow.
    - `stream`: rows as dicts with the column `pool.key`. All other columns are features, except
      `target` and those in `drop`. A row without a target is only predicted. A row whose key is
      missing or invalid is rejected, and the result says why.
    - `pool`: the initial models. It is not changed: each shard of the flow works on a copy.
    - `shards`: the number of parts in which the flow keeps its state. A flow that is resumed must
      have the same number as before.

    The step emits `(shard, (row, result))`; a result is a line of `obax stream --key`:
    `prediction`, for classes its `probability`, `loss`, `hyperparameters`, or `rejected`.
    """
    if not isinstance(shards, int) or shards < 1:
        raise ValueError(f"shards must be an integer >= 1, but got {shards!r}.")
    left_out = {pool.key, target, *drop}

    def shard(row: Row) -> int:
        try:
            return spread(row.get(pool.key)) % shards
        except TypeError:  # Not hashable: any shard can reject it.
            return 0

    def build(state: bytes | None) -> Learner:
        like = Pool(pool.model, folder=pool.folder, shards=1)
        snapshot = None if state is None else (state, like)
        return Learner(lambda row: pool.part(shard(row), shards), snapshot, target, left_out)

    keyed = op.key_on(f"{step_id}_shard", stream, lambda row: str(shard(row)))
    return op.stateful_batch(step_id, keyed, build)
