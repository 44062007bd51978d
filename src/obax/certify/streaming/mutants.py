"""Mutants of the streaming settings: faults made on purpose, to see which claims notice them.

The estimators have other options than those in the bound; the bounds lose a factor or a term; a
mixture weighs the real members in a wrong way; a real model predicts something else than the mean
of its members under their shares.
"""

from typing import Any

import numpy as np

from .settings import STREAMING, Mutation
from .watch import predict


def predict_half(model: Any, row: dict[Any, float]) -> Any:
    """Return half of the model's prediction."""
    prediction = predict(model, row)
    if isinstance(prediction, dict):
        return {label: 0.5 * probability for label, probability in prediction.items()}
    return 0.5 * prediction


def predict_with_equal_shares(model: Any, row: dict[Any, float]) -> Any:
    """Return what the model predicts while all of its members have the same share."""
    inner = model.prepare().model_
    kept = inner.engine
    count = len(kept.spec.members)
    state = kept.state() | {"shares": np.full(count, 1.0 / count)}
    inner.engine = type(kept).restore(kept.spec, kept.names, kept.labels, state)
    prediction = predict(model, row)
    inner.engine = kept
    return prediction


_BOUND = Mutation("bound / 10", bound=0.1)
_PREDICTIONS = (
    Mutation("predictions halved", predict=predict_half),
    Mutation("equal shares", predict=predict_with_equal_shares),
)
_MIXTURES = (
    *(
        Mutation(name, mixture=name)
        for name in (
            "wrong sign", "best member dropped", "never renewed", "rate 1/2", "no share",
            "share x 100",
        )
    ),
    *_PREDICTIONS,
    _BOUND,
)  # fmt: skip
MUTANTS: dict[str, tuple[Mutation, ...]] = {
    STREAMING[0]: (
        Mutation("no discount", lambda stream: {"memory": 1e6}),
        Mutation("memory x 10", lambda stream: {"memory": 10.0 * stream.memory}),
        Mutation("memory / 5", lambda stream: {"memory": 0.2 * stream.memory}),
        Mutation("no ridge", lambda stream: {"penalty": 1e-7}),
        Mutation("inertia x 10", lambda stream: {"inertia": 10.0 * stream.inertia}),
        Mutation("another loss", lambda stream: {"loss": "huber", "delta": 0.5}),
        *_PREDICTIONS,
        Mutation("no path", without="path"),
        Mutation("no volume", without="volume"),
        _BOUND,
    ),
    STREAMING[1]: _MIXTURES,
    STREAMING[2]: _MIXTURES,
}
PROBLEMS = {STREAMING[0]: 6, STREAMING[1]: 12, STREAMING[2]: 18}
"""One stream of each family, of mixtures for each share."""
