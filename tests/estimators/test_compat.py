"""Use with River and scikit-learn: their own checks, pipelines, rows of every kind."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import river.checks
import river.compose
import river.metrics
import river.preprocessing
import sklearn.base
import sklearn.pipeline
import sklearn.preprocessing
from sklearn.utils.estimator_checks import estimator_checks_generator
from states import same, same_numbers, state

from obax.estimators import StreamingClassifier, StreamingRegressor

MODELS = {"classifier": StreamingClassifier, "regressor": StreamingRegressor}
LONG = {"check_bounded_memory_growth"}
LEFT_OUT = {
    # Needs an environment variable of SciPy that must be set before it is imported.
    "check_array_api_input",
    # A row of weight 2 is one step of twice the loss, not two rows of a stream that forgets.
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
}


def names(check):
    return getattr(check, "__name__", None) or check.func.__name__


@pytest.mark.parametrize("kind", MODELS)
def test_rivers_estimator_checks(kind):
    model = MODELS[kind]()
    done = [c(model.clone()) for c in river.checks.yield_checks(model) if names(c) not in LONG]
    assert len(done) > 25


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
def test_rivers_estimator_checks_on_all_their_streams(kind):
    river.checks.check_estimator(MODELS[kind]())


@pytest.mark.filterwarnings("ignore:labels arrive in .* blocks")
@pytest.mark.parametrize("kind", MODELS)
def test_scikit_learns_estimator_checks(kind):
    done = set()
    for estimator, check in estimator_checks_generator(MODELS[kind]()):
        if names(check) not in LEFT_OUT:
            check(estimator)
            done.add(names(check))
    assert len(done) > 40
    assert {"check_sample_weights_list", "check_all_zero_sample_weights_error"} <= done


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((200, 3)) * [1.0, 100.0, 0.01] + [5.0, 0.0, -1.0]
    score = (rows - [5.0, 0.0, -1.0]) / [1.0, 100.0, 0.01] @ [1.0, -1.0, 0.5]
    return pd.DataFrame(rows, columns=["a", "b", "c"]), score


def test_every_kind_of_row_gives_the_same_model(table):
    frame, score = table
    labels = np.where(score > 0, "yes", "no")
    models = [StreamingClassifier() for _ in range(4)]
    models[0].learn_many(frame, pd.Series(labels))
    models[1].learn_many(pl.from_pandas(frame), pl.Series(labels.tolist()))
    models[2].learn_many(frame.to_dict("records"), labels.tolist())
    models[3].partial_fit(frame, labels)
    for model in models[1:]:
        same(model, models[0])
        assert model.feature_names_ == ["a", "b", "c"]
    bare = StreamingClassifier().fit(frame.to_numpy(), labels)
    same_numbers(state(bare), state(models[0]))
    assert bare.score(frame.to_numpy(), labels) > 0.9
    assert bare.predict(frame.to_numpy()[:5]).tolist() == models[0].predict_many(frame[:5]).tolist()


def test_absent_none_and_nan_values_are_equivalent(table):
    frame, score = table
    absent, none, nan = (StreamingRegressor() for _ in range(3))
    for i, row in enumerate(frame[:60].to_dict("records")):
        gone = {name: value for name, value in row.items() if name != "b" or i % 3}
        absent.learn_one(gone, score[i])
        none.learn_one({name: gone.get(name) for name in row}, score[i])
        nan.learn_one({name: gone.get(name, float("nan")) for name in row}, score[i])
    x = {"a": 5.5, "c": -1.0}
    assert absent.rejected_.count == 0
    assert absent.predict_one(x) == pytest.approx(none.predict_one(x), rel=1e-5)
    assert none.predict_one(x) == nan.predict_one(x)


def test_late_features_are_learned(table):
    frame, score = table
    model = StreamingRegressor()
    for i, row in enumerate(frame.to_dict("records")):
        model.learn_one(row if i > 50 else {"a": row["a"]}, score[i])
    assert model.feature_names_ == ["a", "b", "c"]
    found = [model.predict_one(row) for row in frame.to_dict("records")[100:]]
    assert np.corrcoef(found, score[100:])[0, 1] > 0.95


def test_late_classes_are_learned():
    rng = np.random.default_rng(1)
    centres = {"red": (0.0, 4.0), "green": (4.0, 0.0), "blue": (-4.0, -4.0), 7: (8.0, 8.0)}
    model = StreamingClassifier()
    for i in range(260):
        label = list(centres)[rng.integers(0, min(4, 1 + i // 40))]
        a, b = rng.standard_normal(2) + centres[label]
        model.learn_one({"a": a, "b": b}, label)
    assert set(model.classes_.tolist()) == set(centres)
    for label, (a, b) in centres.items():
        assert model.predict_one({"a": a, "b": b}) == label
    said = model.predict_proba_one({"a": 0.0, "b": 4.0})
    assert sum(said.values()) == pytest.approx(1.0)


def test_pipelines_of_river_and_scikit_learn(table):
    frame, score = table
    pipeline = river.preprocessing.MinMaxScaler() | StreamingClassifier()
    metric = river.metrics.Accuracy()
    for row, label in zip(frame.to_dict("records"), (score > 0).tolist(), strict=True):
        if (said := pipeline.predict_one(row)) is not None:
            metric.update(label, said)
        pipeline.learn_one(row, label)
    assert metric.get() > 0.85
    assert isinstance(pipeline.clone(), river.compose.Pipeline)
    steps = sklearn.pipeline.make_pipeline(
        sklearn.preprocessing.PolynomialFeatures(2), StreamingRegressor(memory=500.0)
    )
    assert steps.fit(frame, score).score(frame, score) > 0.9
    assert isinstance(sklearn.base.clone(steps)[-1], StreamingRegressor)


def test_attributes_before_learning_raise_not_fitted_error(table):
    frame, _ = table
    assert StreamingClassifier().predict_one({"a": 1.0}) is None
    assert StreamingRegressor().predict_one({"a": 1.0}) == 0.0
    for read in ("hyperparameters_", "rejected_", "hyperparameter_history_"):
        assert not hasattr(StreamingClassifier(), read)
    with pytest.raises(ValueError, match="x must be a dict"):
        StreamingClassifier().learn_one([1.0], True)
    with pytest.raises(ValueError, match="targets must be as many as rows"):
        StreamingClassifier().learn_many(frame[:3], [True])


def test_predict_takes_lists_of_dicts(table):
    """A list has an `index` of its own, a method."""
    frame, score = table
    rows = frame.to_dict("records")
    classifier, regressor = StreamingClassifier(), StreamingRegressor()
    classifier.learn_many(rows, (score > 0).tolist())
    regressor.learn_many(rows, score.tolist())
    late = frame.set_index(np.arange(200) + 7)
    for some in (rows, tuple(rows)):
        said = classifier.predict_proba_many(some)
        np.testing.assert_array_equal(said, classifier.predict_proba_many(late))
        assert classifier.predict_many(some).tolist() == classifier.predict_many(late).tolist()
        assert regressor.predict_many(some).tolist() == regressor.predict_many(late).tolist()
    assert regressor.predict_many(late).index.tolist() == late.index.tolist()
    assert classifier.predict_many([{"a": 1.0}]).tolist() == [classifier.predict_one({"a": 1.0})]


def test_decision_function_is_the_log_odds_of_predict_proba(table):
    frame, score = table
    rows = frame.to_numpy()
    two = StreamingClassifier().fit(rows, np.where(score > 0, "yes", "no"))
    odds, said = two.decision_function(rows), two.predict_proba(rows)
    assert odds.shape == (200,)
    np.testing.assert_allclose(odds, np.log(said[:, 1] / said[:, 0]), rtol=1e-9)
    assert (two.predict(rows) == two.classes_[(odds > 0).astype(int)]).all()
    many = StreamingClassifier().fit(rows, np.digitize(score, [-1, 1]))
    odds, said = many.decision_function(rows), many.predict_proba(rows)
    np.testing.assert_allclose(odds, np.log(said / (1 - said)), rtol=1e-9, atol=1e-9)
    assert (many.predict(rows) == many.classes_[odds.argmax(axis=1)]).all()
    one = StreamingClassifier()
    one.learn_many(rows, ["yes"] * 200)
    one.n_features_in_ = 3
    assert (
        np.isfinite(one.decision_function(rows)).all() and (one.decision_function(rows) < 0).all()
    )
