"""The last targets as features, and when they are suggested."""

import gzip
import io
import math

import numpy as np
import pandas as pd
import pytest
from states import same, state

from obax import datasets
from obax.estimators import StreamingClassifier, StreamingRegressor

SUGGESTION = "alone predicts better than the model"


def sticky(size, classes=2, stay=0.9, seed=0):
    """Labels that mostly repeat, of which the features know nothing."""
    rng = np.random.default_rng(seed)
    labels = [0]
    for jump in rng.random(size - 1):
        labels.append(labels[-1] if jump < stay else int(rng.integers(classes)))
    return rng.standard_normal((size, 3)), np.array(labels)


@pytest.mark.parametrize("classes", [2, 3])
def test_lags_help_where_labels_repeat(classes):
    rows, labels = sticky(2000, classes)
    plain, lagged = StreamingClassifier(), StreamingClassifier(lags=1)
    for model in (plain, lagged):
        model.learn_many(rows, labels)
    assert lagged.mean_loss_ < 0.85 * plain.mean_loss_
    assert SUGGESTION in plain.explain() and "try lags=1" in plain.explain()
    assert SUGGESTION not in lagged.explain() and "the last 1 label" in lagged.explain()


def test_lags_cost_little_where_labels_do_not_repeat():
    rows, _ = sticky(3000)
    noise = np.random.default_rng(1).standard_normal(3000)
    labels = (rows @ [1.0, -1.0, 0.5] + 0.5 * noise > 0).astype(int)
    plain, lagged = StreamingClassifier(), StreamingClassifier(lags=1)
    for model in (plain, lagged):
        model.learn_many(rows, labels)
    assert lagged.mean_loss_ < 1.02 * plain.mean_loss_
    assert SUGGESTION not in plain.explain()


def test_the_last_target_helps_on_a_real_series():
    """Water flow by the hour, of which the clock says little."""
    found = list(pytest.importorskip("river.datasets").WaterFlow())
    rows = [{"hour": row["Time"].hour, "day": row["Time"].weekday()} for row, _ in found]
    targets = [flow for _, flow in found]
    plain, lagged = StreamingRegressor(), StreamingRegressor(lags=1)
    for model in (plain, lagged):
        model.learn_many(rows, targets)
    assert lagged.mean_loss_ < plain.mean_loss_
    assert SUGGESTION in plain.explain()


def test_lags_do_not_hurt_on_elec2():
    """Its labels mostly repeat, but a model with a short memory knows that: no suggestion, and
    nothing gained."""
    path = datasets.find("elec2.csv.gz")
    if path is None:
        pytest.skip("needs OBAX_DATA")
    table = pd.read_csv(io.BytesIO(gzip.decompress(path.read_bytes())))[:10_000]
    rows, labels = table.iloc[:, :-1].to_numpy(float), table.iloc[:, -1].to_numpy(int)
    plain, lagged = StreamingClassifier(), StreamingClassifier(lags=1)
    for model in (plain, lagged):
        model.learn_many(rows, labels)
    assert SUGGESTION not in plain.explain()
    assert lagged.mean_loss_ < 1.03 * plain.mean_loss_


def series(size):
    """An autoregression of order two, whose noise is a fifth of its deviation."""
    rng = np.random.default_rng(0)
    values = [0.0, 0.0]
    for noise in rng.standard_normal(size):
        values.append(1.6 * values[-1] - 0.8 * values[-2] + noise)
    return rng.standard_normal((size, 2)), 100.0 + 10.0 * np.array(values[2:])


def test_a_series_is_predicted_from_its_own_past():
    rows, targets = series(1500)
    errors = {}
    for lags in (0, 1, 2):
        model = StreamingRegressor(lags=lags)
        errors[lags] = np.std((model.progressive(rows, targets) - targets)[500:])
        assert (SUGGESTION in model.explain()) == (lags == 0)
    assert errors[2] < 11.0 < errors[1] < errors[0]


def test_a_row_without_a_target_leaves_the_last_one():
    rows, labels = sticky(200)
    gaps, plain = StreamingClassifier(lags=2), StreamingClassifier(lags=2)
    plain.learn_many(rows, labels)
    targets = [label for known in labels.tolist() for label in (known, None)]
    gaps.play(np.repeat(rows, 2, axis=0), targets)
    same(gaps, plain)
    recent = state(plain)["recent"]
    np.testing.assert_array_equal(recent, labels[:-3:-1])


def test_a_rejected_row_is_not_a_lag():
    rows, labels = sticky(50)
    model = StreamingClassifier(lags=2)
    model.learn_many(rows, labels)
    model.learn_one({0: math.inf, 1: 0.0, 2: 0.0}, int(1 - labels[-1]))
    assert model.rejected_.count == 1
    recent = state(model)["recent"]
    np.testing.assert_array_equal(recent, labels[:-3:-1])


def test_lags_of_late_classes():
    """One at a time, and in one go: the same, with a class that is new in the middle."""
    rows, labels = sticky(150, classes=4)
    whole, one = StreamingClassifier(lags=2), StreamingClassifier(lags=2)
    whole.learn_many(rows, labels)
    for row, label in zip(rows.tolist(), labels.tolist(), strict=True):
        one.learn_one(dict(enumerate(row)), label)
    assert len(whole.classes_) == 4
    same(one, whole)
    found = whole.model_.engine.centre[:, 4 : 4 + 2 * 4]
    assert np.abs(found).min() > 0.0


def test_loss_of_the_last_label_baseline():
    rows, labels = sticky(300, classes=3)
    model = StreamingClassifier()
    model.prepare().model_.add_classes([0, 1, 2])
    losses = model.play(rows, labels).loss
    total, repeats = losses[0], 0
    for t in range(1, 300):
        again = (repeats + 1) / (t - 1 + 2)
        same = labels[t] == labels[t - 1]
        total -= math.log(again if same else (1 - again) / 2)
        repeats += same
    assert model.model_.engine.repeat_loss == pytest.approx(total, rel=1e-12)


def test_loss_of_the_last_target_baseline():
    rows, targets = series(30)
    model = StreamingRegressor()
    total = model.play(rows, targets).loss[0]
    for t in range(2, 30):  # In deviations of the targets before: there are none in the second row.
        past = targets[:t]
        now, last = ((targets[[t, t - 1]] - past.mean()) / past.std()).clip(-10, 10)
        total += 0.5 * (now - last) ** 2
    assert model.model_.engine.repeat_loss == pytest.approx(total, rel=1e-9)
