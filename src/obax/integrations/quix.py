"""A model for each key of a Kafka topic, with Quix Streams: `pip install 'obax[quix]'`.

Quix Streams calls a function with each message and the state of the message's key, which it keeps
in RocksDB and, with a changelog topic, in Kafka. The state is the bytes of an obax checkpoint.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..checkpoint import from_bytes, to_bytes
from ..estimators import StreamingClassifier, StreamingRegressor
from ..streaming.results import results
from ..streaming.score import Score
from ..streaming.source import Batch

STATE = "obax"
"""The name under which the state of a key has its model."""
Row = Mapping[str, Any]


def learner(
    model: StreamingClassifier | StreamingRegressor,
    *,
    target: str = "target",
    drop: Iterable[str] = (),
) -> Callable[[Row, Any], dict[str, Any]]:
    """Return a function for `sdf.apply(function, stateful=True)`: predict a row, then learn it.

    **Arguments:**

    - `model`: the initial model of each key, which is not changed.
    - `target`: the name of the label. A message without it is only predicted.
    - `drop`: names that are no features. All others are.

    The function returns the message with what `obax stream` writes of a row: `prediction`, for
    classes its `probability`, `loss`, `hyperparameters`, or `rejected`.
    """
    begin, left_out = to_bytes(model.prepare()), {target, *drop}
    numbers = isinstance(model, StreamingRegressor)

    def learn(row: Row, state: Any) -> dict[str, Any]:
        data = state.get_bytes(STATE, default=begin)
        now = from_bytes(data, type(model)(), "the state of the key")
        features = {name: value for name, value in row.items() if name not in left_out}
        label = row.get(target)
        played = now.play([features], [label])
        state.set_bytes(STATE, to_bytes(now))
        batch = Batch([features], [label], [None], [None])
        return {**row, **next(iter(results(played, batch, Score(numbers))))}

    return learn
