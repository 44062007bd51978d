"""A model for each key in Quix Streams: the state of a key is its model.

Quix Streams itself is not needed: it calls a function with a message and a state.
"""

import numpy as np
import pytest

from obax.estimators import StreamingClassifier, StreamingRegressor
from obax.integrations.quix import learner
from obax.streaming.results import rounded


class State(dict):
    """The state of a key, as Quix Streams gives it."""

    def get_bytes(self, name, default=None):
        return self.get(name, default)

    def set_bytes(self, name, value):
        assert type(value) is bytes
        self[name] = value


def test_each_key_has_the_model_of_its_rows():
    draw = np.random.default_rng(0)
    rows = [
        {"t": t, "a": a, "b": b, "y": None if t % 9 == 0 else "up" if a > b else "down"}
        for t, (a, b) in enumerate(draw.standard_normal((120, 2)).tolist())
    ]
    initial = StreamingClassifier()
    learn, states = learner(initial, target="y", drop=["t"]), [State(), State()]
    found = [learn(row, states[row["t"] % 2]) for row in rows]
    for key in range(2):
        own, alone = rows[key::2], StreamingClassifier()
        features = [{"a": row["a"], "b": row["b"]} for row in own]
        played = alone.play(features, [row["y"] for row in own])
        expected = [rounded(loss) for row, loss in zip(own, played.loss, strict=True) if row["y"]]
        assert [line["loss"] for line in found[key::2] if "loss" in line] == expected
        assert len(expected) > 10
    assert found[5]["t"] == 5 and initial.learned_ == 0


def test_numbers_and_rejected_rows():
    learn, state = learner(StreamingRegressor()), State()
    for t in range(50):
        line = learn({"a": float(t), "target": 2.0 * t}, state)
    assert line["prediction"] == pytest.approx(98, abs=5)
    line = learn({"a": [1], "target": 1.0}, state)
    assert "not a number" in line["rejected"]
