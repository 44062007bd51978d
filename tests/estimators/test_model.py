"""The model around the engine: the same answer however rows come, growth, options, threads."""

import copy
import inspect
import math
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest
from states import same, same_numbers, state

from obax.estimators import StreamingClassifier, StreamingRegressor


def stream(n, d=4, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, d))
    drift = np.sin(np.arange(n) / 200)[:, None]
    score = np.sum(rows * (np.arange(1, d + 1) * drift + 1), axis=1)
    return rows, score + 0.3 * rng.standard_normal(n)


@pytest.mark.parametrize("kind", ["two", "four", "numbers"])
def test_batches_of_any_size_give_the_same_bits(kind):
    """In one piece, in parts, one row at a time with predictions between; state and record."""
    rows, score = stream(1300)
    targets = {
        "two": (score > 0).tolist(),
        "four": np.digitize(score, [-3, 0, 3]).tolist(),
        "numbers": score.tolist(),
    }[kind]
    make = StreamingRegressor if kind == "numbers" else StreamingClassifier
    whole, parts, single = make(), make(), make()
    whole.learn_many(rows, targets)
    for begin, end in ((0, 1), (1, 8), (8, 520), (520, 1300)):
        parts.learn_many(rows[begin:end], targets[begin:end])
    for row, target in zip(rows.tolist(), targets, strict=True):
        single.predict_one(dict(enumerate(row)))
        single.learn_one(dict(enumerate(row)), target)
    same(whole, parts)
    same(whole, single)


def test_fast_path_of_a_row_equals_the_table_path():
    """Keys in any order, some not there, None, NaN, words, booleans, huge integers and values: the
    quick way gives the same model, the same reasons and the same counts as a table."""
    rng = np.random.default_rng(0)
    odd = [None, math.nan, "x", True, 10**400, 1e16, math.inf, np.float32(0.5), [1.0], np.int64(2)]
    rows, targets = [], []
    for i in range(400):
        row = dict(zip("abcd", rng.standard_normal(4).tolist(), strict=True))
        targets.append(row["a"] > 0)
        if i % 3 == 0:
            row = dict(reversed(row.items()))
        if i % 5 == 0:
            del row["b"]
        if i % 7 == 0:
            row["c"] = odd[i // 7 % len(odd)]
        if i % 50 == 0:
            row[f"late {i}"] = 1.0
        rows.append(row)
    quick, table = StreamingClassifier(), StreamingClassifier()
    for row, target in zip(rows, targets, strict=True):
        said = quick.predict_proba_one(row)
        if said:
            np.testing.assert_array_equal(list(said.values()), quick.model_.predict(row)[0])
        quick.learn_one(row, target)
        table.learn_many([row], [target])
    same(quick, table)
    assert quick.rejected_.count == table.rejected_.count > 20
    assert str(list(quick.rejected_)) == str(list(table.rejected_))


def test_progressive_is_predict_then_learn():
    rows, score = stream(80)
    labels = ["up" if s > 0 else "down" for s in score]
    live, bulk = StreamingClassifier(), StreamingClassifier()
    said = []
    for row, label in zip(rows.tolist(), labels, strict=True):
        found = live.predict_proba_one(dict(enumerate(row)))
        said.append([found.get(name, 0.0) for name in ("down", "up")])
        live.learn_one(dict(enumerate(row)), label)
    np.testing.assert_allclose(bulk.progressive(rows, labels), said, rtol=0, atol=0)


def test_regression_progressive_is_predict_then_learn():
    rows, score = stream(60)
    live, bulk = StreamingRegressor(), StreamingRegressor()
    said = []
    for row, target in zip(rows.tolist(), score.tolist(), strict=True):
        said.append(live.predict_one(dict(enumerate(row))))
        live.learn_one(dict(enumerate(row)), target)
    np.testing.assert_allclose(bulk.progressive(rows, score), said, rtol=0, atol=0)
    assert np.mean((np.array(said)[30:] - score[30:]) ** 2) < 0.5 * np.var(score)


def test_predictions_do_not_depend_on_later_rows():
    rows, score = stream(60)
    changed = score.copy()
    changed[40:] = -changed[40:]
    a = StreamingClassifier().progressive(rows, score > 0)
    b = StreamingClassifier().progressive(rows, changed > 0)
    np.testing.assert_array_equal(a[:41], b[:41])
    assert not np.array_equal(a[41:], b[41:])


def test_growth_keeps_the_state():
    """Room for features and classes that come late changes no prediction by itself."""
    rows, score = stream(120)
    model = StreamingClassifier(per_feature=True)
    model.learn_many(rows, score > 0)
    before = model.predict_proba_many(rows[:20]).to_numpy()
    weights, shares = model.coef_, model.hyperparameters_["members"]
    model.model_.grow([f"late {i}" for i in range(5)], [])
    assert model.model_.engine.spec.features == 9
    np.testing.assert_allclose(model.predict_proba_many(rows[:20]).to_numpy(), before, atol=1e-12)
    np.testing.assert_allclose(model.coef_[:, :4], weights, atol=1e-12)
    assert not model.coef_[:, 4:].any()
    assert model.hyperparameters_["members"] == shares
    assert set(model.hyperparameters_["penalty"]) == {0, 1, 2, 3} | {f"late {i}" for i in range(5)}
    two = model.predict_proba_many(rows[:20]).to_numpy()
    model.model_.add_classes(["third"])
    three = model.predict_proba_many(rows[:20]).to_numpy()[:, :2]
    # The odds of the two old classes are the same, up to moderation.
    np.testing.assert_array_equal(three.argmax(axis=1), two.argmax(axis=1))


def test_frozen_hyperparameters_stay():
    rows, score = stream(50)
    model = StreamingClassifier(penalty=0.5, memory=20.0, inertia=2.0, learn=())
    model.learn_many(rows, score > 0)
    found = model.hyperparameters_
    assert sum(found.pop("members").values()) == pytest.approx(1)
    expected = {"penalty": 0.5, "memory": 20.0, "inertia": 2.0, "forgetting": 20 / 21}
    assert found == pytest.approx(expected, rel=1e-5)
    only = StreamingClassifier(penalty=0.5, memory=20.0, inertia=2.0, learn=("forgetting",))
    only.learn_many(rows, score > 0)
    assert only.hyperparameters_["memory"] != pytest.approx(20.0)
    assert only.hyperparameters_["penalty"] == pytest.approx(0.5)


def test_history_is_bounded_and_correct():
    """Every point is the mean loss of the rows since the point before, and x after the last one."""
    rows, score = stream(3000)
    model = StreamingRegressor()
    played = model.play(rows, score)
    history = model.hyperparameter_history_
    at, stride = history["row"], int(model.model_.engine.stride)
    assert 512 <= len(at) <= 1024 and stride == 4
    for i, row in enumerate(at):
        assert history["loss"][i] == pytest.approx(played.loss[row - stride : row].mean())
    np.testing.assert_array_equal(history["memory"], played.hyperparameters["memory"][at - 1])
    assert model.mean_loss_ == pytest.approx(played.loss.mean())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"penalty": -1.0}, "penalty must be a number from"),
        ({"memory": "long"}, "memory must be a number from"),
        ({"learn": ("speed",)}, "learn must be a tuple of some of"),
        ({"learn": "penalty"}, "learn must be a tuple of some of"),
        ({"imbalance": "both"}, "imbalance must be one of None, 'weights', 'logits'"),
        ({"horizon": 1}, "horizon must be a number of rows"),
        ({"step_size": 0.0}, "step_size must be a number > 0"),
        ({"max_features": 0}, "max_features must be an integer"),
        ({"max_features": 1.5}, "max_features must be an integer >= 1"),
        ({"learn": None}, r"learn must be a tuple of some of .*, \(\) for none, but got None"),
    ],
)
def test_invalid_arguments_raise(changes, message):
    with pytest.raises(ValueError, match=message):
        StreamingClassifier(**changes).learn_one({"a": 1.0}, True)


def test_options_match_constructor_and_get_params():
    """Signature, attributes, parameters and copies all come from the fields of one class."""
    for make in (StreamingClassifier, StreamingRegressor):
        model = make(memory=50.0, learn=["penalty"])
        names = list(inspect.signature(make).parameters)
        assert names[:3] == ["penalty", "memory", "inertia"]
        assert set(model.get_params()) == set(names)
        assert model.clone().get_params() == model.get_params()
        assert make(0.5, 20.0).memory == 20.0
        with pytest.raises(TypeError):
            make(0.5, 20.0, 1.0, ("penalty",))
        model.prepare()
        model.memory = 7.0  # after the first row it does not count any more
        assert model.model_.options.memory == 50.0 and model.model_.options.learn == ("penalty",)
    assert "imbalance" not in StreamingRegressor().get_params()
    assert "delta" not in StreamingClassifier().get_params()


def test_traced_hyperparameters_keep_their_names_through_growth():
    """With a penalty for each feature, memory and inertia move in x as features are added."""
    rows = [{"a": 1.0}] * 3 + [{"a": 1.0, "b": 2.0}] * 3
    model = StreamingRegressor(per_feature=True, learn=())
    played = model.play(rows, [1.0] * 6)
    np.testing.assert_allclose(played.hyperparameters["memory"], 100.0)
    np.testing.assert_allclose(played.hyperparameters["inertia"], 1.0)
    assert np.isnan(played.hyperparameters["penalty"]["b"]).tolist() == [True] * 3 + [False] * 3


def test_copies_are_independent():
    rows, score = stream(60)
    model = StreamingClassifier()
    model.learn_many(rows[:40], score[:40] > 0)
    before = state(model)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        same(model, other)
        other.learn_many(rows[40:], score[40:] > 0)
        same_numbers(state(model), before)
    model.learn_many(rows[40:], score[40:] > 0)
    same(model, other)


def test_concurrent_predictions_agree():
    rows, score = stream(300)
    model = StreamingRegressor()
    model.learn_many(rows, score)
    dicts = [dict(enumerate(row)) for row in rows.tolist()]
    expected = [model.predict_one(row) for row in dicts]
    wrong = []

    def predict(part):
        for _ in range(20):
            wrong.extend(i for i in part if model.predict_one(dicts[i]) != expected[i])

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        workers = [threading.Thread(target=predict, args=(range(k, 300, 3),)) for k in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        sys.setswitchinterval(before)
    assert not wrong


def test_large_feature_offsets_keep_precision():
    """A feature around 1e7 with deviations of 1: single precision had nothing left of it."""
    rows, score = stream(400)
    far = rows + 1e7
    near, away = StreamingRegressor(), StreamingRegressor()
    a, b = near.progressive(rows, score), away.progressive(far, score)
    np.testing.assert_allclose(b[100:], a[100:], atol=1e-4)


def test_import_loads_no_jax_and_no_scikit_learn():
    """Their rooms import nothing of it, nor pandas, nor scikit-learn, whose base classes they get
    when it is there. What `import obax` itself loads is another matter."""
    code = """
import sys, types, pathlib
folder = pathlib.Path(sys.argv[1])
package = types.ModuleType("obax")
package.__path__ = [str(folder)]
sys.modules["obax"] = package
from obax.estimators import StreamingClassifier
model = StreamingClassifier()
for i in range(20):
    model.predict_proba_one({"a": float(i % 3)})
    model.learn_one({"a": float(i % 3)}, i % 3 > 1)
print(sorted({"jax", "equinox", "pandas", "matplotlib", "sklearn"} & set(sys.modules)))
try:
    import sklearn.base
except ImportError:
    print("True True True")
else:
    tagged = sklearn.base.is_classifier(model)  # made before
    kinds = sklearn.base.ClassifierMixin, sklearn.base.BaseEstimator
    print(tagged, isinstance(model, kinds[0]), isinstance(StreamingClassifier(), kinds[1]))
"""
    folder = inspect.getfile(StreamingClassifier).rsplit("/", 2)[0]
    found = subprocess.run(
        [sys.executable, "-c", code, folder], capture_output=True, text=True, check=True
    )
    assert found.stdout.split("\n")[:2] == ["[]", "True True True"]
