"""A pool of models in a Bytewax dataflow: `pip install 'obax[bytewax]'`.

Keys are spread over shards, which are what the flow keeps state of: a shard is learned by one
worker, and workers are as many as you start. At the end of an epoch the state of every shard that
had rows goes into Bytewax's recovery store, as the bytes of an obax checkpoint: arrays and plain
values with their checksums. (Bytewax itself pickles what it stores, here nothing but bytes, so that
its recovery folder must be trusted like code, as ever with Bytewax.)
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
"""So many workers can take part."""


class Learner(StatefulBatchLogic[Row, tuple[Row, Result], bytes]):
    """The pool of one shard: test and train on what comes, and its state as bytes. Where there is
    no state yet, `begin` makes the pool from a first row, which tells the shard."""

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
        """Each row with what was said of it before it was learned."""
        if self.pool is None:
            self.pool = self._begin(values[0])
        rows = [{n: v for n, v in row.items() if n not in self._left_out} for row in values]
        targets = [row.get(self._target) for row in values]
        keys = [row.get(self.pool.key) for row in values]
        played = self.pool.play(keys, rows, targets)
        batch = Batch(list(rows), targets, [None] * len(rows), keys)
        score = Score(isinstance(self.pool.model, StreamingRegressor))
        found = zip(values, results(played, batch, score), strict=True)
        return list(found), StatefulBatchLogic.RETAIN

    def snapshot(self) -> bytes:
        """All models of the shard."""
        assert self.pool is not None  # Bytewax asks after rows have come.
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
    """Learn rows as they come, and say of each what was predicted before it was learned.

    **Arguments:**

    - `step_id`: of the step; unique in the flow.
    - `stream`: of rows, dicts with the column `pool.key`. Its other columns are features, but
      `target` and those to `drop`. A row without a target is predicted alone; one whose key is
      missing or cannot be one is rejected, and the result says why.
    - `pool`: where it begins. It stays as it is: the flow works on copies of its models, a shard
      each.
    - `shards`: in how many parts the flow keeps its state. A flow that is taken up again must have
      as many as before.

    Downstream get `(shard, (row, result))`; a result is a line of `obax stream --key`:
    `prediction`, for classes its `probability`, `loss`, `hyperparameters`, or `rejected`.
    """
    if not isinstance(shards, int) or shards < 1:
        raise ValueError(f"shards must be an integer >= 1, but got {shards!r}.")
    left_out = {pool.key, target, *drop}

    def shard(row: Row) -> int:
        try:
            return spread(row.get(pool.key)) % shards
        except TypeError:  # Not hashable: any shard can say so.
            return 0

    def build(state: bytes | None) -> Learner:
        like = Pool(pool.model, folder=pool.folder, shards=1)
        known = None if state is None else (state, like)
        return Learner(lambda row: pool.part(shard(row), shards), known, target, left_out)

    keyed = op.key_on(f"{step_id}_shard", stream, lambda row: str(shard(row)))
    return op.stateful_batch(step_id, keyed, build)
