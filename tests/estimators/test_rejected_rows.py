"""Faulty data: the model stays finite, rows are rejected by the stated rule, counted, kept."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from states import same_numbers, state

from obax.estimators import Pool, StreamingClassifier, StreamingRegressor


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((n, 3))
    return a, a @ [1.0, -1.0, 0.5] + 0.5 * rng.standard_normal(n)


def log_loss(model, a, score):
    labels = (score > 0).astype(int)
    found = model.progressive(a, labels, classes=[0, 1])
    return -np.log(np.clip(found[np.arange(len(a)), labels], 1e-15, 1))


BAD = {
    "infinite": ({"a": math.inf, "b": 1.0}, True, "'a' is inf"),
    "absurd": ({"a": 1.0, "b": -1e300}, True, "beyond 1e+15"),
    "huge integer": ({"a": 10**400}, True, "'a' is inf"),
    "a word": ({"a": 1.0, "b": "three"}, True, "'b' is 'three', not a number"),
    "a list": ({"a": [1.0]}, True, "not a number"),
    "complex": ({"a": 1j}, True, "not a number"),
    "no label": ({"a": 1.0}, None, "no target"),
    "label NaN": ({"a": 1.0}, math.nan, "no target"),
    "label a list": ({"a": 1.0}, ["x"], "not hashable"),
    "one class too many": ({"a": 1.0}, "third", "would be class 3"),
}


@pytest.mark.parametrize("name", BAD)
def test_rejected_rows_are_counted_and_kept(name):
    row, label, reason = BAD[name]
    model = StreamingClassifier(max_classes=2, max_features=4)
    for i in range(6):
        model.learn_one({"a": float(i % 2), "b": float(i)}, bool(i % 2))
    before = state(model)
    model.learn_one(row, label)
    same_numbers(state(model), before)
    assert model.rejected_.count == 1
    assert model.rejected_[-1]["row"] == 7 and reason in model.rejected_[-1]["reason"]
    assert all(math.isfinite(p) for p in model.predict_proba_one(row).values())
    assert reason in model.explain()


def test_a_regression_target_must_be_a_number():
    model = StreamingRegressor()
    for target in (1.0, "x", math.nan, math.inf, 1e200, True):
        model.learn_one({"a": 1.0}, target)
    assert model.rejected_.count == 4


def test_kept_rejected_rows_are_bounded():
    model = StreamingClassifier()
    with pytest.warns(UserWarning, match="none was learned"):
        model.learn_many([{"a": math.inf}] * 500, [True] * 500)
    assert model.rejected_.count == 500 and len(model.rejected_) == 100
    assert model.rejected_[0]["row"] == 401


def test_one_warning_when_every_row_is_rejected():
    model = StreamingClassifier()
    for i in range(99):
        model.learn_one({"a": math.inf if i % 10 else [i]}, True)
    reason = r"most often \(90 of the last 100\) because feature 'a' is inf"
    with pytest.warns(UserWarning, match=f"100 rows were rejected and none was learned, {reason}"):
        model.learn_one({"a": math.inf}, True)
    for _ in range(150):
        model.learn_one({"a": math.inf}, True)
    assert "No row has been learned yet. 250 rejected, most often (100 of" in model.explain()


def test_no_warning_while_other_rows_are_learned():
    model = StreamingClassifier()
    for _ in range(4):
        model.learn_one({"a": 1.0}, True)
        model.learn_many([{"a": math.inf}] * 99, [True] * 99)
    assert model.rejected_.count == 396


@pytest.mark.parametrize("pooled", [False, True])
def test_warning_when_a_bad_first_row_rejects_all_later_rows(pooled):
    model = StreamingClassifier()
    learn = Pool(model).learn_many if pooled else model.learn_many
    who = (["ann"] * 101,) if pooled else ()
    rows = [{"a": "n.a."}] + [{"a": 1.0 + i} for i in range(100)]
    reason = "the last 100 rows were all rejected, most often .* not a word as before"
    with pytest.warns(UserWarning, match=reason):
        learn(*who, rows, [True, False] * 50 + [True])


def test_loss_recovers_after_a_burst_of_outliers():
    """Label noise, absurd magnitudes just below the limit, duplicates and shuffled rows."""
    a, score = rows(3000)
    rng = np.random.default_rng(1)
    b, poisoned = a.copy(), score.copy()
    burst = slice(1500, 1700)
    b[burst][::2] *= 1e9
    poisoned[burst] = rng.permutation(poisoned[burst])
    b[1600:1700] = b[1600]
    clean = log_loss(StreamingClassifier(), a, score)
    model = StreamingClassifier()
    dirty = log_loss(model, b, poisoned)
    assert np.isfinite(dirty).all()
    assert dirty[burst].mean() > 1.5 * clean[burst].mean()
    assert dirty[2600:].mean() < clean[2600:].mean() + 0.03
    before = log_loss(StreamingClassifier(), b[:1500], poisoned[:1500])[700:].mean()
    assert dirty[2600:].mean() < before + 0.05


def test_a_feature_that_becomes_constant_and_comes_back():
    a, score = rows(1500)
    b = a.copy()
    b[400:900, 1] = 0.0
    found = log_loss(StreamingClassifier(), b, score)
    assert np.isfinite(found).all()
    assert found[1200:].mean() < log_loss(StreamingClassifier(), a, score)[1200:].mean() + 0.05


def test_duplicated_and_swapped_rows():
    a, score = rows(1200)
    order = np.arange(1200)
    np.random.default_rng(2).shuffle(order[300:600])
    order = np.repeat(order, np.where(np.arange(1200) % 5 == 0, 2, 1))
    found = log_loss(StreamingClassifier(), a[order], score[order])
    assert found[600:].mean() < log_loss(StreamingClassifier(), a, score)[300:].mean() + 0.05


NUMBER = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True, width=64),
    st.integers(-(10**400), 10**400),
    st.booleans(),
    st.none(),
    st.sampled_from([0.0, 1e15, -1e15, 1e-320, 5e-324, 3.4e38]),
)
ROW = st.dictionaries(
    st.sampled_from(["a", "b", "c", "d", 1]), st.one_of(NUMBER, st.text(max_size=3)), max_size=5
)
LABEL = st.one_of(st.booleans(), st.sampled_from(["x", "y"]), st.none(), st.lists(st.integers()))
BATCH = st.lists(st.tuples(ROW, LABEL, NUMBER), min_size=20, max_size=60)


def fuzz(batch):
    classifier, regressor = StreamingClassifier(max_classes=4), StreamingRegressor()
    features = [row for row, _, _ in batch]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "feature .* holds texts such as")
        classifier.learn_many(features, [label for _, label, _ in batch])
        regressor.learn_many(features, [target for _, _, target in batch])
    for model in (classifier, regressor):
        assert all(np.isfinite(model.model_.engine.x))
    for row in features[-5:]:
        said = classifier.predict_proba_one(row)
        assert all(0 <= p <= 1 for p in said.values())
        assert not said or sum(said.values()) == pytest.approx(1)
        assert math.isfinite(regressor.predict_one(row))


calm = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


@pytest.mark.filterwarnings("ignore:the values of:UserWarning")
@settings(calm, max_examples=8)
@given(batch=BATCH)
def test_fuzzed_rows(batch):
    fuzz(batch)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the values of:UserWarning")
@settings(calm, max_examples=500)
@given(batch=BATCH)
def test_ten_thousand_fuzzed_rows(batch):
    """500 batches of 20 to 60 rows: at least 10,000 rows."""
    fuzz(batch)
