"""Rows of every form, one at a time or many, give the same model."""

import contextlib
import math
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from states import same, same_numbers, state

from obax._support import native
from obax.estimators import StreamingClassifier, StreamingRegressor, Table
from obax.estimators.inputs.table import LARGEST
from obax.estimators.model import EXTREME, LEARNED, REJECTED, UNREADABLE
from obax.streaming.parquet import ParquetSource
from obax.streaming.source import Input, Source


def one_by_one(model, rows, targets):
    for row, target in zip(rows, targets, strict=True):
        model.learn_one(row, target)
    return model


def from_file(path, kind, kind_of_source=Source):
    """Rows as `obax stream` reads them."""
    source = kind_of_source(Input(path, "y", kind), numeric=True)
    with contextlib.closing(source):
        batch = source.take(1000)
    return batch.rows, batch.targets


@pytest.mark.parametrize("width", [8, 70])
@pytest.mark.parametrize(
    "options", [{"lags": 1}, {"features": "fourier"}, {"features": "interactions"}, {}], ids=str
)
def test_all_input_forms_give_the_same_model(options, width, tmp_path):
    """With 70 features, lags, waves and products were dropped in silence where rows were dicts."""
    rng = np.random.default_rng(0)
    values = np.round(rng.standard_normal((25, width)), 3)
    targets = np.round(values[:, 0] + np.roll(values[:, 0], 1), 3)
    frame = pd.DataFrame(values, columns=[f"f{i:02}" for i in range(width)])
    dicts = frame.to_dict("records")
    csv, jsonl, parquet = (tmp_path / f"rows.{kind}" for kind in ("csv", "jsonl", "parquet"))
    with_targets = frame.assign(y=targets)
    with_targets.to_csv(csv, index=False)
    with_targets.to_parquet(parquet)
    with_targets.to_json(jsonl, orient="records", lines=True)
    forms = {
        "pandas": (frame, targets),
        "polars": (pl.from_pandas(frame), pl.Series(targets)),
        "csv": from_file(csv, "csv"),
        "json": from_file(jsonl, "jsonl"),
        "parquet": from_file(parquet, "parquet", ParquetSource),
        "list": (dicts, targets),
        "table": (Table(list(frame), values), targets),
    }
    expected = one_by_one(StreamingRegressor(**options), dicts, targets.tolist())
    assert expected.model_.sparse == (width > 64 and not options)
    if "lags" in options:
        assert len(state(expected)["recent"]) == 1
    for rows, those in forms.values():
        model = StreamingRegressor(**options)
        model.learn_many(rows, those)
        same(model, expected)
    for matrix in (values, scipy.sparse.csr_array(values), values.tolist()):
        model = StreamingRegressor(**options)
        model.learn_many(matrix, targets)
        same_numbers(state(model), state(expected))


@pytest.mark.parametrize("options", [{}, {"lags": 1}], ids=str)
def test_missing_values_in_batches_equal_single_rows(options):
    """`learn_many` and `learn_one` differed when NaN and None mixed beyond 64 keys."""
    rng = np.random.default_rng(1)
    rows = []
    for _ in range(60):
        keys = rng.choice(200, 30, replace=False).tolist()
        rows.append({f"w{k}": float(rng.poisson(1.0)) for k in keys})
        for odd, k in zip((None, math.nan, None, math.nan), keys, strict=False):
            rows[-1][f"w{k}"] = odd
    targets = rng.standard_normal(60).tolist()
    rows[30]["w1"] = math.inf  # rejected: the keys that it brings are not known by it
    many, single = StreamingRegressor(**options), StreamingRegressor(**options)
    many.learn_many(rows, targets)
    one_by_one(single, rows, targets)
    same(many, single)
    assert many.rejected_.count == 1 and len(many.feature_names_) > 64
    assert many.ignored_ == single.ignored_


def test_features_beyond_max_features_do_not_reject_rows():
    """With `max_features=2` a third feature that was a word once made 1 of 3 rows learned."""
    rows = [{"a": 1.0, "b": 2.0, "c": "word"}, {"a": 2.0, "b": 1.0, "c": 3.0}]
    rows.append({"a": 0.0, "b": 1.0, "c": None})
    many, single = (StreamingRegressor(max_features=2) for _ in range(2))
    many.learn_many(rows, [1.0, 2.0, 3.0])
    one_by_one(single, rows, [1.0, 2.0, 3.0])
    assert many.learned_ == single.learned_ == 3
    assert many.ignored_ == single.ignored_ == 2
    same(many, single)


def test_random_rows_in_batches_equal_single_rows():
    """Numbers, words, dates, missing values and rubbish, with limits that are soon reached."""
    rng = np.random.default_rng(2)
    when = np.datetime64("2024-01-01T12:00")
    pool = [1.0, 2.5, "x", "y", "z", None, math.nan, when, [1], 1e16, True, ""]
    for _ in range(30):
        rows = [
            {name: pool[rng.integers(len(pool))] for name in "abcdefg" if rng.random() < 0.7}
            for _ in range(40)
        ]
        targets = rng.integers(0, 4, 40).tolist()
        options = {"max_features": int(rng.integers(1, 12)), "max_categories": 2}
        many, parts, single = (StreamingClassifier(**options) for _ in range(3))
        many.learn_many(rows, targets)
        parts.learn_many(rows[:13], targets[:13])
        parts.learn_many(rows[13:], targets[13:])
        one_by_one(single, rows, targets)
        for model in (parts, single):
            same(model, many)
            assert model.ignored_ == many.ignored_
            assert str(list(model.rejected_)) == str(list(many.rejected_))


def test_unseen_class_keeps_some_probability():
    """After one class alone 1.0 was said for it: infinite log loss for the row that follows."""
    model = StreamingClassifier()
    model.learn_one({"a": 1.0}, "x")
    said = model.predict_proba_one({"a": 1.0})
    assert 0.5 <= said["x"] < 1 and sum(said.values()) == pytest.approx(1)
    assert model.predict_one({"a": 1.0}) == "x" and model.predict_many([{"a": 1.0}])[0] == "x"
    assert model.predict_proba_many([{"a": 1.0}]).loc[0, "x"] == said["x"]


@pytest.mark.parametrize("first", [True, False, np.True_])
def test_boolean_target_implies_both_classes(first):
    rows = [{"a": float(i % 3)} for i in range(9)]
    targets = [first] * 4 + [not first] * 5
    single, many = StreamingClassifier(), StreamingClassifier()
    said = [single.predict_proba_one(rows[0])]
    for row, target in zip(rows, targets, strict=True):
        single.learn_one(row, target)
        said.append(single.predict_proba_one(row))
    assert said[0] == {} and all(one.keys() == {True, False} for one in said[1:])
    assert all(sum(one.values()) == pytest.approx(1) for one in said[1:])
    many.learn_many(rows, targets)
    same(many, single)
    assert single.classes_.tolist() == [False, True]
    columns = StreamingClassifier().progressive(rows, targets)
    assert columns[0].tolist() == [0, 0]
    np.testing.assert_allclose(columns[1:].sum(axis=1), 1)
    named = StreamingClassifier(max_classes=1)
    named.learn_one({"a": 1.0}, True)
    assert named.classes_.tolist() == [True]


def test_explain_without_features():
    """With a penalty for each feature and none of these it was an IndexError."""
    model = StreamingRegressor(per_feature=True)
    model.learn_one({}, 1.0)
    assert "1 row learned" in model.explain() and model.hyperparameters_["penalty"] == {}
    for i in range(3):
        model.learn_one({"a": float(i)}, i % 2)
    assert len(model.plot().axes) > 3


@pytest.mark.parametrize("which", ["feature", "target"])
@pytest.mark.parametrize("many", [False, True])
def test_underflow_warns_once(which, many):
    rng = np.random.default_rng(0)
    rows, targets = rng.standard_normal((40, 2)), rng.standard_normal(40)
    if which == "feature":
        rows[:, 1] *= 1e-170
    else:
        targets *= 1e-170
    model, dicts = (
        StreamingRegressor(),
        [dict(zip("ab", row, strict=True)) for row in rows.tolist()],
    )
    what = "feature 'b'" if which == "feature" else "the target"
    with pytest.warns(UserWarning, match=f"values of {what} are so small.*other units") as caught:
        if many:
            model.learn_many(dicts, targets)
            model.learn_many(dicts, targets)
        else:
            one_by_one(model, dicts, targets.tolist())
            one_by_one(model, dicts, targets.tolist())
    assert len(caught) == 1 and "too small" in model.explain()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        StreamingRegressor().learn_many(
            rows * [1.0, 1e170 if which == "feature" else 1.0], rows[:, 0]
        )


def test_constants_equal_those_of_the_engine():
    engine = native.loaded()
    assert engine.LARGEST == LARGEST
    found = engine.REJECTED, engine.LEARNED, engine.EXTREME, engine.UNREADABLE
    assert found == (REJECTED, LEARNED, EXTREME, UNREADABLE)
