"""Checkpoints of estimators: they come back, what does not fit is named, and numbers that cannot be
right get an error in words before any of them is used."""

import copy

import numpy as np
import pytest
from states import same

from obax.estimators import StreamingClassifier, StreamingRegressor


def learned(kind, width=2):
    rows = np.random.default_rng(0).normal(size=(60, width))
    model = kind(lags=1) if width == 2 else kind()
    targets = rows[:, 0] if kind is StreamingRegressor else (rows[:, 0] > 0).astype(int)
    model.learn_many(rows, targets)
    if kind is StreamingRegressor:
        model.predict_interval_one(dict(enumerate(rows[0])))
    model.learn_many(rows, targets)
    return model


@pytest.fixture(scope="module")
def files():
    """Arrays and plain values of a dense model of each kind, a sparse one and one with words."""
    words = StreamingClassifier()
    for i in range(20):
        words.predict_one({"city": "ab"[i % 2], "a": float(i)}, id=i)
        words.learn_one({"city": "ab"[i % 2], "a": float(i)}, ["no", "yes"][i % 2])
    models = {
        "regressor": learned(StreamingRegressor),
        "classifier": learned(StreamingClassifier),
        "sparse": learned(StreamingClassifier, 70),
        "words": words,
    }
    return {name: (model, *model.__obax_save__()) for name, model in models.items()}


def load(files, name, change):
    model, arrays, extra = files[name]
    arrays, extra = copy.deepcopy(arrays), copy.deepcopy(extra)
    change(arrays, extra)
    # As `obax.load` hands them over.
    return model.__obax_load__({f"['{path}']": array for path, array in arrays.items()}, extra)


@pytest.mark.parametrize("name", ["regressor", "classifier", "sparse", "words"])
def test_loaded_model_equals_the_saved_one(files, name):
    found = load(files, name, lambda *_: None)
    same(found, files[name][0])
    assert found.explain() == files[name][0].explain()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_checkpoint_of_an_older_version_raises(files, version):
    def older(_, extra):
        extra["version"] = version

    message = f"estimator of version {version}, but this obax reads version 4.*Learn the stream"
    with pytest.raises(ValueError, match=message):
        load(files, "classifier", older)
    with pytest.raises(ValueError, match="estimator of version 1,"):
        load(files, "classifier", lambda _, extra: extra.pop("version"))


def put(path, at, value):
    """A change of one number of an array."""

    def change(arrays, _):
        array = np.array(arrays[path], np.float64)
        array[at] = value
        arrays[path] = array

    return change


def plain(**values):
    """A change of what stands beside the arrays."""
    return lambda _, extra: extra["model"].update(values)


DENSE = {
    "a count below its range": put("state.moments", (0, 3), -50.0),
    "a count beyond its range": put("state.moments", (0, 3), 1e9),
    "a count that is NaN": put("state.moments", (0, 3), np.nan),
    "a count of half a value": put("state.moments", (0, 3), 0.5),
    "a negative weight of the statistics": put("state.moments", (0, 0), -1.0),
    "a weight that is infinite": put("state.member.tuned.weights", (0, 0), np.inf),
    "a hyperparameter that is NaN": put("state.tuned.x", 0, np.nan),
    "shares that are all zero": put("state.shares", slice(None), 0.0),
    "a stride of zero": put("state.history.stride", (), 0.0),
    "a stride that is NaN": put("state.history.stride", (), np.nan),
    "more rows pending than the stride": put("state.history.pending", (), 9.0),
    "the next score outside": put("state.intervals.next", (), -7.0),
    "a row of the history after the last one": put("state.history.rows", 0, 1e9),
    "weights of another shape": lambda a, _: a.update({"state.shares": np.ones(3)}),
    "weights of another type": lambda a, _: a.update({"state.shares": np.ones(6, np.int32)}),
    "a part that is missing": lambda a, _: a.pop("state.frequencies"),
    "fewer points than counted": lambda a, _: a.update(
        {"state.history.rows": a["state.history.rows"][:-1]}
    ),
    "a name twice": lambda _, extra: extra["model"].update(names=2 * extra["model"]["names"][:1]),
    "a missing entry": lambda _, extra: extra["model"].pop("columns"),
    "an unknown option": lambda _, extra: extra["params"].update(colour="red"),
    "names of no list": plain(names=7),
    "a name of another type": plain(names=[["int", "zero"], ["int", 1]]),
    "rows that are no number": plain(rows="many"),
    "fewer rows than were learned": plain(rows=1),
    "ignored values below zero": plain(ignored=-1),
    "a sparse model with lags": plain(sparse=True),
    "sparse of no boolean": plain(sparse=0),
    "fewer rejected rows than kept": plain(rejected={"count": -1, "kept": []}),
    "words that are numbers": plain(columns={"words": [[["str", "a"], [1], False]], "dates": []}),
    "a word twice": plain(columns={"words": [[["str", "a"], ["x", "x"], False]], "dates": []}),
    "no words": plain(columns={"words": [[["str", "a"], [], False]], "dates": []}),
    "a feature of words and dates": plain(
        columns={"words": [[["str", "a"], ["x"], False]], "dates": [["str", "a"]]}
    ),
    "a feature of dates twice": plain(columns={"words": [], "dates": 2 * [["str", "a"]]}),
    "pending ids twice": plain(pending={"rows": 2 * [[["int", 1], []]], "gone": [], "dropped": 0}),
    "a negative count of dropped rows": plain(pending={"rows": [], "gone": [], "dropped": -1}),
    "more pending rows than max_pending": plain(
        pending={"rows": [[["int", i], []] for i in range(10_001)], "gone": [], "dropped": 0}
    ),
}


@pytest.mark.parametrize("change", DENSE)
@pytest.mark.parametrize("name", ["regressor", "classifier"])
def test_crafted_states_raise(files, name, change):
    with pytest.raises(
        ValueError, match=r"of the checkpoint|does not describe|is damaged|in the file"
    ):
        load(files, name, DENSE[change])


REGRESSOR = {
    "a level that is NaN": put("state.intervals.coverages", 1, np.nan),
    "a coverage above 1": put("state.intervals.coverages", 0, 1.5),
    "more rows covered than learned": put("state.intervals.coverages", 3, 1e9),
    "too many coverages": lambda a, _: a.update(
        {"state.intervals.coverages": np.tile(a["state.intervals.coverages"], 17)}
    ),
}


@pytest.mark.parametrize("change", REGRESSOR)
def test_crafted_scores_raise(files, change):
    with pytest.raises(ValueError, match="file is damaged"):
        load(files, "regressor", REGRESSOR[change])


SPARSE = {
    "a weight that is NaN": put("state.cells", (1, 6), np.nan),
    "shares that are NaN": put("state.shares", slice(None), np.nan),
    "a covariance that is infinite": put("state.member.long.covariance", (0, 0), np.inf),
    "a dense model": plain(sparse=False),
}


@pytest.mark.parametrize("change", SPARSE)
def test_crafted_sparse_states_raise(files, change):
    with pytest.raises(ValueError, match="file is damaged"):
        load(files, "sparse", SPARSE[change])


@pytest.mark.parametrize("name", ["regressor", "classifier", "sparse"])
def test_random_states_raise_or_work(files, name):
    """Whatever is accepted can go on learning: a fault here would end the process."""
    draw, refused = np.random.default_rng(1), 0
    odd = [np.nan, np.inf, -1.0, 0.5, 1e6, 1e18, -1e300]
    for _ in range(60):

        def change(arrays, _):
            path = draw.choice([path for path in arrays if np.size(arrays[path])])
            array = np.array(arrays[path], np.float64)
            array.reshape(-1)[draw.integers(min(array.size, 40))] = draw.choice(odd)
            arrays[path] = array

        try:
            with np.errstate(invalid="ignore"):
                model = load(files, name, change)
        except ValueError:
            refused += 1
            continue
        for i in range(40):
            model.learn_one({0: float(i), 1: 1.0}, i % 2)
    assert refused > 10
