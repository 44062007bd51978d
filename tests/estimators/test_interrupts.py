"""An interrupt at any line, and other threads at any time, leave a model whole."""

import copy
import pickle
import sys
import threading

import numpy as np
import pytest

from obax.estimators import StreamingClassifier, StreamingRegressor
from obax.estimators.model import Model

FOLDER = "obax/estimators"


def interrupted(call, at):
    """Call, with a KeyboardInterrupt before line `at` of the package; whether it came to that."""
    lines = 0

    def trace(frame, event, _):
        nonlocal lines
        if FOLDER not in frame.f_code.co_filename:
            return None
        if event == "line":
            lines += 1
            if lines == at:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def load(model, saved):
    arrays, extra = saved
    return model.__obax_load__({f"['{path}']": array for path, array in arrays.items()}, extra)


def consistent(model):
    """Engine, options and the rest say the same of features, classes and members."""
    inner = model.model_
    engine, options = inner.engine, inner.options
    assert list(inner.names) == engine.names and len(engine.names) == engine.spec.features
    assert list(inner.labels) == engine.labels and len(engine.labels) == engine.spec.classes
    spec = options.spec(len(engine.names), len(engine.labels), inner.sparse)
    assert spec.members == engine.spec.members and spec.learned == engine.spec.learned
    assert len(inner.pending) <= options.max_pending == inner.pending.most


def whole(model):
    """The model is consistent, can be saved and loaded, and learns on."""
    consistent(model)
    load(model, model.__obax_save__())
    for i in range(3):
        names, labels = model.feature_names_[:5], model.model_.engine.labels
        model.learn_one({name: float(i) for name in names}, labels[0])


def start(features):
    model = StreamingClassifier(max_features=700)
    rows = np.random.default_rng(0).normal(size=(30, features))
    model.learn_many(rows, [i % 2 for i in range(30)])
    return model


GROWTH = {
    "a feature": (3, lambda m: m.learn_one({0: 1.0, "new": 2.0}, 1)),
    "a class": (3, lambda m: m.learn_one({0: 1.0}, "third")),
    "a feature and a class": (3, lambda m: m.learn_one({0: 1.0, "new": 2.0}, "third")),
    "the wide engine": (63, lambda m: m.learn_one({f"n{i}": 1.0 for i in range(4)}, 1)),
    "a class of a wide model": (80, lambda m: m.learn_one({0: 1.0}, "third")),
    "features of a wide model": (80, lambda m: m.learn_one({f"n{i}": 1.0 for i in range(99)}, 1)),
    "other options": (3, lambda m: m.set_params(learn=("penalty",), max_pending=3)),
}


@pytest.mark.parametrize("name", GROWTH)
@pytest.mark.filterwarnings("ignore")
def test_interrupt_at_any_line_leaves_a_valid_model(name):
    features, call = GROWTH[name]
    base = start(features)
    at, step = 1, 3 if features < 60 else 17
    while True:
        model = copy.deepcopy(base)
        came = interrupted(lambda m=model: call(m), at)
        whole(model)
        if not came:
            break
        at += step
    assert at > 30


def test_interrupt_check_notices_options_changed_in_two_steps(monkeypatch):
    """The mutant: the options first, then the engine."""

    def in_place(self, options, asked):
        self.options = options
        self.pending.bound(options.max_pending)
        self.engine.change(options.spec(len(self.names), len(self.labels), self.sparse))
        return {}

    base, found = start(3), 0
    monkeypatch.setattr(Model, "take", in_place)
    for at in range(1, 3000, 2):
        model = copy.deepcopy(base)
        call = GROWTH["other options"][1]
        if not interrupted(lambda m=model, change=call: change(m), at):
            break
        try:
            consistent(model)
        except AssertionError:
            found += 1
    assert found > 0


def test_saves_and_pickles_beside_a_learning_thread_are_consistent():
    model = StreamingRegressor()
    rows = np.random.default_rng(0).normal(size=(300, 3))
    model.learn_many(rows[:50], rows[:50, 0])
    done, failed = threading.Event(), []

    def learn():
        try:
            for i, row in enumerate(rows.tolist()):
                extra = {f"f{i // 30}": 1.0}
                model.learn_one({0: row[0], 1: row[1], 2: row[2]} | extra, row[0])
        except BaseException as error:
            failed.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=learn)
    thread.start()
    count = 0
    while not done.is_set() or count < 5:
        for found in (
            load(model, model.__obax_save__()),
            pickle.loads(pickle.dumps(model)),
            copy.deepcopy(model),
        ):
            consistent(found)
            assert found.learned_ == int(found.model_.engine.state()["rows"])
            assert np.isfinite(found.predict_one({0: 1.0}))
        assert "rows learned" in model.explain()
        history, names = model.hyperparameter_history_, model.feature_names_
        assert len(history["row"]) == len(history["loss"]) == len(history["memory"])
        assert names[:3] == [0, 1, 2] and np.isfinite(model.coef_).all()
        assert model.coef_.shape[1] >= len(names) and np.isfinite(model.intercept_).all()
        assert np.isfinite([model.mean_loss_, model.hyperparameters_["memory"]]).all()
        if count < 2:
            assert len(model.plot().axes) == 6
        count += 1
    thread.join()
    assert not failed and count >= 5


def test_consistency_check_notices_a_torn_pickle():
    """The mutant: the state itself in place of a copy of it."""
    model = StreamingRegressor()
    model.learn_one({0: 1.0}, 1.0)
    state = model.model_.__getstate__()
    model.learn_one({0: 2.0, "new": 1.0}, 1.0)
    model.predict_one({0: 1.0}, id="a")
    names, _, numbers, _ = state["engine"]
    assert names == [0] and numbers["rows"] == numbers["given"] == 1
    assert len(state["pending"]) == 0
    for part in ("columns", "pending", "rejected"):
        assert state[part] is not getattr(model.model_, part)
