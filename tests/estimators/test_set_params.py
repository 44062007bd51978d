"""`set_params` in mid-stream: what can take effect does; of the rest it says that it does not."""

import warnings

import numpy as np
import pytest
import sklearn.base
from states import same, same_numbers, state

import obax
from obax.estimators import StreamingClassifier, StreamingRegressor


def data(n=400):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((n, 3))
    return rows, rows @ [1.0, -1.0, 0.5] + 0.3 * rng.standard_normal(n)


def learned(make=StreamingRegressor, **options):
    rows, score = data()
    model = make(**options)
    model.learn_many(rows[:200], score[:200] if make is StreamingRegressor else score[:200] > 0)
    return model


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("step_size", 0.1),
        ("horizon", 20.0),
        ("scale_memory", 5.0),
        ("delta", 0.1),
        ("learn", ()),
        ("learn", ("penalty",)),
        ("share", 0.5),
    ],
)
def test_live_options_take_effect(name, value):
    """The rows that follow are learned otherwise than without it, and the rows before are kept."""
    rows, score = data()
    members = ("tuned", "start", "short") if name == "share" else "tuned"
    changed, same = (learned(loss="huber", members=members) for _ in range(2))
    before = changed.predict_many(rows[:5])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert changed.set_params(**{name: value}) is changed
    np.testing.assert_array_equal(changed.predict_many(rows[:5]), before)
    for model in (changed, same):
        model.learn_many(rows[200:], score[200:])
    assert not np.array_equal(changed.predict_many(rows[:5]), same.predict_many(rows[:5]))


def test_learn_can_be_changed_back():
    rows, score = data()
    model = learned()
    at = model.hyperparameters_
    model.set_params(learn=("forgetting",))
    assert model.hyperparameters_ == at
    model.learn_many(rows[200:300], score[200:300])
    now = model.hyperparameters_
    assert now["penalty"] == at["penalty"] and now["memory"] != at["memory"]
    model.set_params(learn=("penalty", "inertia"))
    model.learn_many(rows[300:], score[300:])
    after = model.hyperparameters_
    assert after["memory"] == now["memory"]
    assert after["penalty"] != at["penalty"] and after["inertia"] != at["inertia"]
    model.set_params(learn=["penalty", "forgetting", "inertia"])
    model.learn_many(rows, score)
    assert all(np.isfinite(model.model_.engine.x)) and model.rejected_.count == 0


def test_members_stay_when_learn_changes():
    """Whom "auto" stands for depends on it: a frozen start is no news beside one that stands."""
    for first, then in (((), ("penalty",)), (("penalty",), ())):
        model = learned(learn=first)
        names = list(model.hyperparameters_["members"])
        model.set_params(learn=then)
        rows, score = data()
        model.learn_many(rows, score)
        assert list(model.hyperparameters_["members"]) == names
        model.fit(rows, score)
        assert ("start" in model.hyperparameters_["members"]) == bool(then)


def test_limits_take_effect():
    model = StreamingClassifier(max_categories=5)
    for i in range(4):
        model.predict_one({"a": f"w{i}"}, id=i)
        model.learn_one({"a": f"w{i}"}, i % 3)
    model.set_params(max_pending=2, max_classes=3, max_features=4, max_categories=2)
    assert list(model.pending_) == [2, 3]
    model.learn_one({"a": "w0"}, "a fourth class")
    model.learn_one({"a": "w9"}, 1)
    reasons = [one["reason"] for one in model.rejected_]
    assert len(reasons) == 1 and "one too many" in reasons[0] and model.ignored_ == 1
    model.set_params(max_features=100, class_weight={0: 2.0})
    model.learn_one({"a": "w9"}, 0)
    assert model.rejected_.count == 1 and "a#0" in model.feature_names_
    assert model.model_.options.class_weight == {0: 2.0}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"penalty": 0.5}, r"penalty \(it stays 0.001\)"),
        ({"memory": 7.0, "step_size": 0.02}, r"memory \(it stays 100.0\)"),
        ({"per_feature": True}, r"per_feature \(it stays False\)"),
        ({"members": ("tuned", "start")}, r"members \(it stays 'auto'\)"),
    ],
)
def test_fixed_options_warn_that_they_wait_for_fit(changes, words, tmp_path):
    rows, score = data()
    model = learned()
    with pytest.warns(UserWarning, match=f"no effect on a model that has begun.*{words}"):
        model.set_params(**changes)
    assert model.model_.options.step_size == changes.get("step_size", 0.01)
    model.learn_many(rows[200:], score[200:])
    # A checkpoint goes on as the model would.
    obax.save(tmp_path / "model", model)
    found = obax.load(tmp_path / "model", like=StreamingRegressor())
    same(found, model)
    assert found.get_params() == model.get_params()
    # And the next fit has all of it.
    fresh = StreamingRegressor(**changes).fit(rows, score)
    same(model.fit(rows, score), fresh)


def test_no_warning_for_unchanged_options_or_before_learning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learned().set_params(penalty=1e-3)
        model = StreamingRegressor().set_params(penalty=0.5)
        assert sklearn.base.clone(learned().set_params(horizon=30.0)).horizon == 30.0
    model.prepare()
    assert model.model_.options.penalty == 0.5


def test_invalid_value_changes_nothing():
    model = learned()
    before, numbers = model.get_params(), state(model)
    with pytest.raises(ValueError, match="step_size must be a number > 0"):
        model.set_params(step_size=-1.0, horizon=30.0)
    with pytest.raises(ValueError, match=r"(nvalid|no) parameter 'stepsize'"):
        model.set_params(stepsize=1.0)
    assert model.get_params() == before
    same_numbers(state(model), numbers)
