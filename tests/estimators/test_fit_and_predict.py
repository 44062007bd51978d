"""`fit` and `predict` on data as it comes, files of models, and what options are called."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import sklearn.datasets
import sklearn.exceptions
import sklearn.model_selection

import obax
from obax.estimators import Pool, StreamingClassifier, StreamingRegressor


@pytest.fixture(scope="module")
def iris():
    return sklearn.datasets.load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def fares():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"km": rng.uniform(0, 9, 120), "city": rng.choice(["a", "b"], 120)})
    return frame, 3 * frame["km"] + 5 * (frame["city"] == "a")


def test_fit_warns_when_labels_arrive_in_blocks(iris):
    rows, labels = iris
    with pytest.warns(UserWarning, match=r"labels arrive in 3 blocks.*shuffle=True") as caught:
        StreamingClassifier().fit(rows, labels)
    assert caught[0].filename == __file__
    order = np.random.default_rng(0).permutation(len(rows))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        StreamingClassifier().fit(rows[order], labels[order])
        StreamingClassifier(shuffle=True).fit(rows, labels)
        StreamingClassifier().fit(rows[:60:5], labels[:60:5])  # too few rows to say


def test_shuffle_and_passes_learn_sorted_labels(iris):
    rows, labels = iris
    model = StreamingClassifier(shuffle=True, passes=3)
    scores = sklearn.model_selection.cross_val_score(model, rows, labels, cv=5)
    assert scores.mean() > 0.95
    assert model.fit(rows, labels).learned_ == 450
    again = StreamingClassifier(shuffle=True, passes=3).fit(rows, labels)
    np.testing.assert_array_equal(model.predict_proba(rows), again.predict_proba(rows))


@pytest.mark.parametrize("form", ["frame", "frame with inf", "sparse"])
def test_shuffled_rows_keep_their_targets_and_weights(fares, form):
    frame, target = fares
    rows = {
        "frame": frame,
        "frame with inf": frame.assign(km=frame["km"].where(frame.index > 0, np.inf)),
        "sparse": scipy.sparse.csr_array(np.stack([frame["km"], frame["city"] == "a"], axis=1)),
    }[form]
    weights = np.where(np.arange(120) < 60, 1.0, 0.0)
    model = StreamingRegressor(shuffle=True, passes=4).fit(rows, target, sample_weight=weights)
    rejected = int(form == "frame with inf")
    assert model.learned_ == 4 * (60 - rejected) and model.rejected_.count == 4 * rejected
    assert np.abs(model.predict(rows)[1:] - target[1:]).max() < 1.0


def test_fit_that_learned_nothing_raises():
    rows = np.full((20, 2), np.inf)
    with pytest.raises(ValueError, match=r"fit learned none of 20 rows, most often .* is inf"):
        StreamingRegressor().fit(rows, np.arange(20.0))


def test_predict_before_learning_raises_not_fitted_error():
    rows = np.ones((3, 2))
    unlearned = StreamingClassifier()
    with pytest.raises(sklearn.exceptions.NotFittedError, match="has not learned from any row"):
        unlearned.predict(rows)
    unlearned.learn_one({"a": float("inf")}, True)
    with pytest.raises(sklearn.exceptions.NotFittedError, match="not learned any row, most often"):
        unlearned.predict_proba(rows)


def test_arrays_with_fewer_columns_raise():
    model = StreamingRegressor()
    model.learn_many(np.eye(4), [1.0, 2.0, 3.0, 4.0])
    for call in (model.predict_many, lambda rows: model.learn_many(rows, [1.0, 1.0])):
        with pytest.raises(ValueError, match=r"rows have 3 columns, .* arrays of 4"):
            call(np.ones((2, 3)))
    assert model.learned_ == 4
    model.learn_many(np.ones((1, 5)), [1.0])
    model.learn_many([{0: 1.0}], [1.0])


def test_polars_in_polars_out(fares):
    frame, target = fares
    rows = pl.from_pandas(frame)
    classifier, regressor = StreamingClassifier(), StreamingRegressor()
    classifier.learn_many(rows.lazy(), pl.Series((target > 15).tolist()))
    regressor.learn_many(rows, pl.Series(target.tolist()))
    pool = Pool(StreamingClassifier(), key="city")
    pool.learn_many(None, rows, (target > 15).tolist())
    for polars, pandas in (
        (classifier.predict_many(rows), classifier.predict_many(frame)),
        (regressor.predict_many(rows), regressor.predict_many(frame)),
        (pool.predict_many(None, rows), pool.predict_many(None, frame)),
    ):
        assert isinstance(polars, pl.Series) and isinstance(pandas, pd.Series)
        assert polars.to_list() == pandas.to_list()
    for polars, pandas in (
        (classifier.predict_proba_many(rows), classifier.predict_proba_many(frame)),
        (regressor.predict_interval_many(rows), regressor.predict_interval_many(frame)),
        (pool.predict_proba_many(None, rows), pool.predict_proba_many(None, frame)),
    ):
        assert isinstance(polars, pl.DataFrame) and polars.columns == list(map(str, pandas))
        np.testing.assert_array_equal(polars.to_numpy(), pandas)


def test_quantiles_are_ends_of_intervals():
    rng = np.random.default_rng(0)
    rows, noise = rng.standard_normal((3000, 2)), rng.standard_normal(3000)
    model, below = StreamingRegressor(), np.zeros(3)
    for i, row in enumerate(rows):
        x, y = dict(enumerate(row.tolist())), float(row[0] + noise[i])
        quantiles = model.predict_quantiles_one(x, (0.1, 0.5, 0.8))
        below += [y <= end for end in quantiles.values()]
        model.learn_one(x, y)
    np.testing.assert_allclose(below / 3000, [0.1, 0.5, 0.8], atol=0.03)
    low, high = model.predict_interval_one({0: 1.0}, 0.8)
    assert model.predict_quantiles_one({0: 1.0}, (0.1, 0.9)) == pytest.approx({0.1: low, 0.9: high})


def test_models_and_pools_save_and_load(tmp_path, fares):
    frame, target = fares
    model, pool = StreamingRegressor(memory=30.0), Pool(StreamingRegressor(), key="city")
    model.learn_many(frame, target)
    pool.learn_many(None, frame, target)
    model.save(tmp_path / "model.obax")
    pool.save(tmp_path / "pool.obax")
    loaded = StreamingRegressor.load(tmp_path / "model.obax")
    assert loaded.memory == 30.0
    np.testing.assert_array_equal(loaded.predict_many(frame), model.predict_many(frame))
    both = Pool.load(tmp_path / "pool.obax"), obax.load(tmp_path / "pool.obax")
    for again in both:
        assert again.explain() == pool.explain()
    with pytest.raises(ValueError, match="holds a Pool, not a StreamingRegressor"):
        StreamingRegressor.load(tmp_path / "pool.obax")


@pytest.mark.parametrize(
    ("name", "meant"), [("l2", "penalty"), ("learning_rate", "step_size"), ("memry", "memory")]
)
def test_unknown_options_suggest_the_right_one(name, meant):
    with pytest.raises(TypeError, match=rf"no option '{name}'\. Did you mean '{meant}'\?"):
        StreamingClassifier(**{name: 0.1})


def test_learn_takes_memory_for_forgetting(fares):
    frame, target = fares
    models = [StreamingRegressor(learn=("penalty", word)) for word in ("memory", "forgetting")]
    for model in models:
        model.learn_many(frame, target)
    assert models[0].hyperparameters_ == models[1].hyperparameters_
    assert "memory" in models[0].learn  # as it was given


def test_repr_and_dir_are_short():
    model = StreamingClassifier(memory=50.0)
    assert repr(model) == "StreamingClassifier(memory=50.0)"
    assert {"learn_one", "penalty", "fit", "save"} <= set(dir(model))
    assert not [name for name in dir(model) if name.startswith("_")]
    assert not {"spec", "checked", "followed_by"} & set(dir(model))
