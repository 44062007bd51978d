"""The compiled loop: one compilation, the same answer however the stream is cut, room to grow."""

import numpy as np
import pytest

from obax.estimators import StreamingClassifier, StreamingRegressor, engine
from obax.estimators.history import Record

pytestmark = pytest.mark.usefixtures("quick_compilation")


def stream(n, d=4, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, d))
    drift = np.sin(np.arange(n) / 200)[:, None]
    score = np.sum(rows * (np.arange(1, d + 1) * drift + 1), axis=1)
    return rows, score + 0.3 * rng.standard_normal(n)


def test_the_same_bits_however_the_stream_is_cut_and_one_compilation():
    rows, score = stream(1300)
    labels = (score > 0).tolist()
    whole, parts, single = StreamingClassifier(), StreamingClassifier(), StreamingClassifier()
    whole.learn_many(rows, labels)
    compiled = engine._compiled(whole._core.plan)
    compilations = compiled._cache_size()
    for begin, end in ((0, 1), (1, 8), (8, 520), (520, 1300)):
        parts.learn_many(rows[begin:end], labels[begin:end])
    for row, label in zip(rows[:60].tolist(), labels, strict=False):
        single.learn_one(dict(enumerate(row)), label)
    np.testing.assert_array_equal(whole._core.vector, parts._core.vector)
    assert compiled._cache_size() == compilations
    again = StreamingClassifier()
    again.learn_many(rows[:60], labels[:60])
    np.testing.assert_array_equal(single._core.vector, again._core.vector)


def test_progressive_is_predict_then_learn():
    rows, score = stream(80)
    labels = ["up" if s > 0 else "down" for s in score]
    live, bulk = StreamingClassifier(), StreamingClassifier()
    said = []
    for row, label in zip(rows.tolist(), labels, strict=True):
        found = live.predict_proba_one(dict(enumerate(row)))
        said.append([found.get(name, 0.0) for name in ("down", "up")])
        live.learn_one(dict(enumerate(row)), label)
    np.testing.assert_allclose(bulk.progressive(rows, labels), said, atol=2e-5)


def test_regression_progressive_is_predict_then_learn():
    rows, score = stream(60)
    live, bulk = StreamingRegressor(), StreamingRegressor()
    said = []
    for row, target in zip(rows.tolist(), score.tolist(), strict=True):
        said.append(live.predict_one(dict(enumerate(row))))
        live.learn_one(dict(enumerate(row)), target)
    np.testing.assert_allclose(bulk.progressive(rows, score), said, atol=1e-4)
    assert np.mean((np.array(said)[30:] - score[30:]) ** 2) < 0.5 * np.var(score)


def test_the_future_is_not_seen():
    rows, score = stream(60)
    changed = score.copy()
    changed[40:] = -changed[40:]
    a = StreamingClassifier().progressive(rows, score > 0)
    b = StreamingClassifier().progressive(rows, changed > 0)
    np.testing.assert_array_equal(a[:41], b[:41])
    assert not np.array_equal(a[41:], b[41:])


def test_growing_keeps_what_was_learned():
    """Room for features and classes that come late changes no prediction by itself."""
    rows, score = stream(120)
    model = StreamingClassifier(per_feature=True)
    model.learn_many(rows, score > 0)
    before = model.predict_proba_many(rows[:20]).to_numpy()
    state = engine.unpack(model._core.plan, np.asarray(model._core.vector))
    model._core.names |= {f"late {i}": 4 + i for i in range(5)}
    model._core._fit_plan()
    assert model._core.plan.features == 16
    np.testing.assert_allclose(model.predict_proba_many(rows[:20]).to_numpy(), before, atol=1e-9)
    grown = engine.unpack(model._core.plan, np.asarray(model._core.vector))
    np.testing.assert_array_equal(
        grown.past.sensitivity[:4, :, :4], state.past.sensitivity[:4, :, :4]
    )
    np.testing.assert_array_equal(grown.past.weights[:, -1], state.past.weights[:, -1])
    assert set(model.hyperparameters_["penalty"]) == {0, 1, 2, 3} | {f"late {i}" for i in range(5)}
    two = model.predict_proba_many(rows[:20]).to_numpy()
    model._core.add_classes(["third"])
    three = model.predict_proba_many(rows[:20]).to_numpy()[:, :2]
    # The odds of the two old classes are the same, up to moderation.
    np.testing.assert_array_equal(three.argmax(axis=1), two.argmax(axis=1))


def test_frozen_hyperparameters_stay():
    rows, score = stream(50)
    model = StreamingClassifier(penalty=0.5, memory=20.0, inertia=2.0, learn=())
    model.learn_many(rows, score > 0)
    found = model.hyperparameters_
    expected = {"penalty": 0.5, "memory": 20.0, "inertia": 2.0, "forgetting": 20 / 21}
    assert found == pytest.approx(expected, rel=1e-5)
    only = StreamingClassifier(penalty=0.5, memory=20.0, inertia=2.0, learn=("forgetting",))
    only.learn_many(rows, score > 0)
    assert only.hyperparameters_["memory"] != pytest.approx(20.0)
    assert only.hyperparameters_["penalty"] == pytest.approx(0.5)


def test_the_record_is_bounded_and_true():
    rng = np.random.default_rng(3)
    loss, x = rng.random(5000), rng.random((5000, 2))
    record = Record(2, points=64)
    for begin in range(0, 5000, 7):
        record.add(loss[begin : begin + 7], x[begin : begin + 7])
    rows, means, xs = record.arrays()
    assert len(rows) < 64 and record.stride == 128
    stride = record.stride
    for i, row in enumerate(rows):
        assert means[i] == pytest.approx(loss[row - stride : row].mean())
        np.testing.assert_array_equal(xs[i], x[row - 1])
    assert record.total == pytest.approx(loss.sum())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"penalty": -1.0}, "penalty must be a number from"),
        ({"memory": "long"}, "memory must be a number from"),
        ({"learn": ("speed",)}, "learn must be a tuple of some of"),
        ({"learn": "penalty"}, "learn must be a tuple of some of"),
        ({"solver": "guess"}, "solver must be one of"),
        ({"imbalance": "both"}, "imbalance must be None"),
        ({"horizon": 1}, "horizon must be a number of rows"),
        ({"step_size": 0.0}, "step_size must be a number > 0"),
        ({"max_features": 0}, "max_features must be an integer"),
        ({"dtype": "int8"}, "dtype must be one of"),
    ],
)
def test_arguments_are_checked(changes, message):
    with pytest.raises(ValueError, match=message):
        StreamingClassifier(**changes).learn_one({"a": 1.0}, True)
