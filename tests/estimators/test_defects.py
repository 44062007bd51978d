"""Streams on which version 0.2 was wrong, with the losses that it had."""

import numpy as np
import pytest

from obax.estimators import StreamingClassifier, StreamingRegressor


def root_mean_square(model, rows, targets):
    """The error of predictions that are made before their rows are learned."""
    errors = []
    for row, target in zip(rows, targets, strict=True):
        errors.append(model.predict_one(row) - target)
        model.learn_one(row, target)
    return float(np.sqrt(np.mean(np.square(errors))))


@pytest.fixture(scope="module")
def chicks():
    """River's ChickWeights with words for chicks and diets, and the same as columns of 0 and 1."""
    datasets = pytest.importorskip("river.datasets")
    words, targets = [], []
    for x, y in datasets.ChickWeights():
        words.append({"time": float(x["time"]), "chick": f"c{x['chick']}", "diet": f"d{x['diet']}"})
        targets.append(y)
    names = sorted({f"{k}={row[k]}" for row in words for k in ("chick", "diet")})
    columns = [
        {"time": row["time"]}
        | dict.fromkeys(names, 0.0)
        | {f"{k}={row[k]}": 1.0 for k in ("chick", "diet")}
        for row in words
    ]
    return words, columns, targets


def test_chicks_as_columns_and_as_words(chicks):
    """17.0 as columns, whose rare ones were taken for a new level; 33.5 as words: a new one
    did not count the rows before it and 18 chicks of 50 shared columns. River's best is 8.4."""
    words, columns, targets = chicks
    by_columns = root_mean_square(StreamingRegressor(), columns, targets)
    assert by_columns < 8.8
    assert root_mean_square(StreamingRegressor(), words, targets) == pytest.approx(by_columns, 0.01)


def test_words_are_columns_that_were_zero_before_they_came(chicks):
    words, columns, targets = chicks
    by_words, by_columns = (StreamingRegressor(members="tuned") for _ in range(2))
    by_words.learn_many(words[:120], targets[:120])
    by_columns.learn_many(columns[:120], targets[:120])
    ours, theirs = (
        dict(zip(m.feature_names_, m.model_.engine.state()["moments"], strict=False))
        for m in (by_words, by_columns)
    )
    for name in ours:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-9, atol=1e-12)
    # The mutant: the word's own rows alone.
    (place,) = [i for i, name in enumerate(by_words.feature_names_) if name == "chick=c30"]
    engine = by_words.model_.engine
    alone = len(engine.names)
    engine.grow(["chick=c99"], siblings=[])
    assert engine.state()["moments"][alone][0] == 0 < engine.state()["moments"][place][0]


def test_a_column_that_is_one_in_ten_thousand_rows_is_learned():
    """Its targets, far from all others, were taken for glitches, and nothing was learned of them in
    200,000 rows."""
    draw = np.random.default_rng(0)
    rows = np.column_stack([draw.standard_normal(200_000), np.zeros(200_000)])
    rows[draw.permutation(200_000)[:20], 1] = 1.0
    targets = rows[:, 0] + 20.0 * rows[:, 1] + 0.1 * draw.standard_normal(200_000)
    model = StreamingRegressor()
    model.learn_many(rows, targets)
    lift = model.predict_one({0: 0.0, 1: 1.0}) - model.predict_one({0: 0.0, 1: 0.0})
    assert 5.0 < lift < 25.0


def test_one_class_alone_leaves_probability_for_others_and_its_loss_says_so():
    """It had probability 1.0, and the first row of another class a loss that did not fit."""
    model, draw = StreamingClassifier(), np.random.default_rng(0)
    for _ in range(50):
        row = {"a": float(draw.standard_normal())}
        model.learn_one(row, "only")
        probabilities = model.predict_proba_one(row)
        # No less than the rows so far say, so that the loss of a long start is small.
        n = model.learned_
        assert (n + 0.5) / (n + 1) <= probabilities["only"] + 1e-12 < 1.0
        assert probabilities[None] == pytest.approx(1.0 - probabilities["only"])
    row = {"a": 0.3}
    left = model.predict_proba_one(row)[None]
    before = model.mean_loss_ * model.learned_
    model.learn_one(row, "other")
    assert model.mean_loss_ * model.learned_ - before == pytest.approx(-np.log(left))
