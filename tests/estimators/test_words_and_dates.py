"""Words and dates as columns: the stated rule, however rows come; and what is not taken."""

import datetime
import math
import os
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from states import same

import obax
from obax.estimators import StreamingClassifier, StreamingRegressor, Table
from obax.estimators.inputs.columns import bucket

CITIES = ["Paris", "Rome", "Oslo", "Lima"]


def stream(n, seed=0):
    """Rows whose target depends on a word, the time of day and a number."""
    rng = np.random.default_rng(seed)
    begin = datetime.datetime(2024, 1, 1)
    rows, targets = [], []
    for i in range(n):
        city = CITIES[rng.integers(0, min(4, 2 + i // 40))]
        when = begin + datetime.timedelta(hours=float(i % 500), minutes=int(rng.integers(60)))
        number = float(rng.standard_normal())
        rows.append({"city": city, "when": when, "a": number, "flag": bool(i % 2)})
        day = 2 * math.pi * (when.hour * 60 + when.minute) / 1440
        targets.append(2 * CITIES.index(city) + math.sin(day) + 0.5 * number)
    return rows, targets


def test_words_and_dates_are_learned():
    rows, targets = stream(600)
    model = StreamingRegressor()
    said = model.progressive(rows, targets)
    assert model.rejected_.count == 0
    assert set(model.feature_names_) == {
        *(f"city={city}" for city in CITIES),
        *(f"when.{part}" for part in ("days", "day_sin", "day_cos", "week_sin", "week_cos")),
        *("a", "flag"),
    }
    error = np.array(said[300:]) - targets[300:]
    assert np.sqrt(np.mean(error**2)) < 0.2 < np.std(targets)


@pytest.mark.parametrize("most", [32, 2], ids=["one-hot", "hashed"])
def test_words_and_dates_in_every_input_form(most):
    """One by one (the quick way once words are known), in pieces, in one piece, as frames."""
    rows, targets = stream(200)
    rows[3]["city"] = rows[50]["when"] = rows[70]["a"] = None
    rows[60]["city"] = 5.0  # rejected
    rows[61]["a"] = "word"  # rejected
    rows[0]["a"] = rows[1]["a"] = None  # a column that comes late
    whole, parts, single, pandas, polars = (
        StreamingRegressor(max_categories=most) for _ in range(5)
    )
    whole.learn_many(rows, targets)
    for begin, end in ((0, 1), (1, 60), (60, 61), (61, 200)):
        parts.learn_many(rows[begin:end], targets[begin:end])
    for row, target in zip(rows, targets, strict=True):
        single.predict_one(row)
        single.learn_one(row, target)
    frame = pd.DataFrame(rows)[sorted(rows[0])]
    frame["when"] = pd.to_datetime(frame["when"])
    assert frame["when"].dtype.kind == "M"
    pandas.learn_many(frame, targets)
    easy = [row for i, row in enumerate(rows) if i not in (60, 61)]
    polars.learn_many(pl.DataFrame(easy)[sorted(rows[0])], targets[:60] + targets[62:])
    for model in (parts, single, pandas):
        assert model.feature_names_ == whole.feature_names_
        assert str(list(model.rejected_)) == str(list(whole.rejected_))
    for model in (parts, single, pandas, polars):
        same(model, whole)
        assert model.predict_one(rows[-1]) == whole.predict_one(rows[-1])
    assert polars.rejected_.count == 0 and whole.rejected_.count == 2
    assert "feature 'city' is 5.0, not a word as before" in whole.rejected_[0]["reason"]
    assert whole.rejected_[0]["values"]["city"] == 5.0
    assert whole.rejected_[1]["values"] == rows[61] | {"when": str(rows[61]["when"])}


def test_fast_path_of_known_words():
    rows, targets = stream(100)
    rows = [{name: row[name] for name in ("city", "a", "when")} for row in rows]
    model = StreamingRegressor(max_categories=3)
    model.learn_many(rows, targets)
    engine, columns = model.model_.engine, model.model_.columns

    def quick(row):
        plain = columns.plain(row)
        return plain is not None and engine.predict(plain) is not None

    assert quick({"city": "Rome", "a": 1.0}) and quick({"city": "Lima"})
    assert quick({"city": None, "a": 1.0}) and quick({"a": 1.0})
    assert quick({"city": "Atlantis"})  # among those that share
    assert quick({"when": rows[0]["when"]}) and quick({"when": None})
    for odd in (
        {"when": 5.0},
        {"city": 5.0},
        {"city": ["Rome"]},
        {"city": "x" * 101},
        {"a": "Rome"},
    ):
        assert not quick(odd)


def test_words_beyond_max_categories_share_fixed_columns():
    model = StreamingRegressor(max_categories=3)
    words = [f"w{i}" for i in range(40)]
    model.learn_many([{"w": word} for word in words], [float(i % 2) for i in range(40)])
    own, shared = [f"w={word}" for word in words[:3]], [f"w#{i}" for i in range(16)]
    assert model.feature_names_ == own + shared
    placed = model.model_.columns.plain({"w": "w30"})
    assert placed == dict.fromkeys(own + shared, 0.0) | {f"w#{bucket('w30')}": 1.0}
    code = (
        "from obax.estimators.inputs.columns import bucket as b\nprint([*map(b, ('w30', 'é', ''))])"
    )
    env = os.environ | {"PYTHONHASHSEED": "77"}
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
    )
    assert found.stdout.strip() == str([bucket(w) for w in ("w30", "é", "")]) == "[11, 14, 0]"


def test_unknown_word_in_a_prediction_is_missing():
    rows, targets = stream(100)
    model = StreamingRegressor()
    model.learn_many(rows, targets)
    before = list(model.feature_names_)
    bare = {name: value for name, value in rows[-1].items() if name != "city"}
    unknown = model.predict_one(bare | {"city": "Atlantis"})
    assert unknown == model.predict_one(bare) == model.predict_one(bare | {"city": None})
    assert unknown == model.predict_one(bare | {"city": ""}) != model.predict_one(rows[-1])
    assert unknown == model.predict_many([bare | {"city": "Atlantis"}])[0]
    assert model.feature_names_ == before


def test_dates_of_every_type_are_the_same():
    moment = datetime.datetime(2024, 2, 29, 18, 0)  # a Thursday
    away = moment.astimezone(datetime.timezone(datetime.timedelta(hours=5)))
    utc = away.replace(tzinfo=None) - datetime.timedelta(hours=5)
    model = StreamingRegressor()
    model.learn_one({"t": moment}, 1.0)

    def placed(value):
        return model.model_.columns.known(Table(["t"], np.array([[value]], object)), {}).values[0]

    expected = [19782.75, -1.0, 0.0, *(f(2 * np.pi * 3.75 / 7) for f in (np.sin, np.cos))]
    for value in (moment, pd.Timestamp(moment), np.datetime64(moment), np.datetime64(moment, "ns")):
        np.testing.assert_allclose(placed(value), expected, atol=1e-9)
    np.testing.assert_array_equal(placed(away), placed(utc))
    np.testing.assert_allclose(placed(datetime.date(2024, 2, 29))[:3], [19782, 0, 1], atol=1e-12)
    for missing in (None, pd.NaT, np.datetime64("NaT")):
        assert np.isnan(placed(missing)).all()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ([1.0], "feature 'a' is [1.0], not a number, word or date but a list"),
        (b"x", "feature 'a' is b'x', not a number, word or date but a bytes"),
        (1j, "feature 'a' is 1j, not a number, word or date but a complex"),
        (datetime.timedelta(1), "not a number, word or date but a timedelta"),
        (np.timedelta64(1, "ns"), "not a number, word or date but a timedelta64"),
        ("x" * 101, "not a number, word or date but a longer text"),
    ],
)
def test_values_of_other_types_are_rejected(value, reason):
    model = StreamingClassifier()
    model.learn_one({"a": value, "b": 1.0}, True)
    assert reason in model.rejected_[0]["reason"]
    assert model.feature_names_ == []
    model.learn_one({"a": "x" * 100, "b": 1.0}, True)
    assert model.rejected_.count == 1


def test_datetime64_ns_is_a_date():
    frame = pd.DataFrame({"long": pd.to_timedelta([1, 2], "s"), "a": [1.0, 2.0]})
    model = StreamingRegressor()
    model.learn_many(frame, [1.0, 2.0])
    assert model.rejected_.count == 2 and "timedelta" in model.rejected_[0]["reason"]


def test_numeric_texts_warn():
    model = StreamingClassifier()
    with pytest.warns(UserWarning, match=r"feature 'a' holds texts such as '1.5'.*float\(\)"):
        model.learn_one({"a": "1.5"}, True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.learn_one({"a": "2.5"}, False)  # once


def test_rejected_row_does_not_decide_the_kind():
    """Neither what a feature is nor which words there are."""
    model = StreamingClassifier()
    bad = {"a": "typo", "b": math.inf}
    good = {"a": 1.0, "b": 1.0}
    model.learn_many([bad, good, bad | {"b": 1.0}], [True, False, True])
    assert model.feature_names_ == ["a", "b"]
    assert "'a' is 'typo', not a number as before" in model.rejected_[1]["reason"]


def test_words_without_room_are_ignored():
    model = StreamingClassifier(max_features=2, max_categories=1)
    model.learn_many([{"c": w, "a": 1.0} for w in ("x", "y", "x", "z")], [True, False, True, True])
    assert model.feature_names_ == ["a", "c=x"] and model.rejected_.count == 0
    assert model.ignored_ == 2 and "2 values of features beyond" in model.explain()
    assert model.model_.engine.given == 4


def test_clash_of_a_feature_and_a_word_column():
    model = StreamingClassifier()
    model.learn_one({"c": "x"}, True)
    model.learn_one({"c": "x", "c=x": 3.0}, False)
    assert "feature 'c=x' has the name of a column" in model.rejected_[0]["reason"]
    model.learn_one({"c=x": 0.0}, False)  # in place of the word: the same as any other word
    assert model.rejected_.count == 1 and model.feature_names_ == ["c=x"]


def test_models_do_not_change_tables():
    table = Table(["a"], np.array([[1.0], ["x"]], object))
    StreamingClassifier().learn_many(table, [True, False])
    assert table.rejected == {}
    model = StreamingClassifier()
    model.learn_many(Table(["a"], np.array([["x"], ["y"]], object)), [True, False])
    model.learn_many(table, [True, False])
    assert [one["values"] for one in model.rejected_] == [{"a": 1.0}]


def test_frames_with_words_in_fit_and_predict():
    rows, targets = stream(150)
    frame = pd.DataFrame(rows)
    river = StreamingRegressor()
    river.learn_many(frame, targets)
    model = StreamingRegressor().fit(frame, targets)
    same(model, river)
    np.testing.assert_array_equal(model.predict(frame[:9]), river.predict_many(frame[:9]))
    assert model.feature_names_in_.tolist() == list(frame.columns)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"city": "town"}))


def test_words_and_dates_are_saved(tmp_path):
    rows, targets = stream(200)
    model = StreamingRegressor(max_categories=2)
    model.learn_many(rows[:120], targets[:120])
    obax.save(tmp_path / "model", model)
    found = obax.load(tmp_path / "model", like=StreamingRegressor())
    for one in (model, found):
        one.learn_one(rows[120], targets[120])
        one.learn_many(rows[121:], targets[121:])
    same(found, model)
    assert found.feature_names_ == model.feature_names_
    assert found.rejected_.count == 0
