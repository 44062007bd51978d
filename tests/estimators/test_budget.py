"""What a model takes is known before it is taken, and `max_memory` holds: features and classes that
do not fit are refused in words."""

import math
import os
import subprocess
import sys
import tracemalloc
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from states import same_numbers, state

import obax
from obax import cli
from obax.estimators import Pool, StreamingClassifier, StreamingRegressor, budget

SIZES = [
    (StreamingClassifier, {}, 60, 10),
    (StreamingClassifier, {}, 200, 5),
    (StreamingClassifier, {}, 1024, 100),
    (StreamingClassifier, {"per_feature": True}, 100, 20),
    (StreamingClassifier, {"features": "fourier"}, 30, 3),
    (StreamingClassifier, {"features": "interactions", "lags": 2}, 19, 4),
    (StreamingClassifier, {"imbalance": "weights"}, 30, 40),
    (StreamingClassifier, {"members": ("tuned", "short", "long")}, 50, 2),
    (StreamingRegressor, {}, 64, 0),
    (StreamingRegressor, {"lags": 5}, 300, 0),
]


def grown(kind, options, features, classes):
    """A model that has met so many."""
    model = kind(**options).prepare().model_
    model.grow(list(range(features)), list(range(classes)))
    return model


@pytest.mark.parametrize(("kind", "options", "features", "classes"), SIZES)
def test_estimated_bytes_equal_bytes_of_the_model(kind, options, features, classes):
    model = grown(kind, options, features, classes)
    assert budget.taken(model.options, features, classes) == model.engine.bytes


RESIDENT = """
import ctypes
import gc
import sys
from obax.estimators import StreamingClassifier, budget

def resident():
    # Pages that are free but not returned yet would hide a part of the model, or count as one.
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return 4096 * int(open("/proc/self/statm").read().split()[1])

def grown(options, features, classes):
    model = StreamingClassifier(**options).prepare().model_
    model.grow(list(range(features)), list(range(classes)))
    return model

options, features, classes = eval(sys.argv[1])
rows = [{i % features: 1.0, (i + 1) % features: 2.0} for i in range(1030)]
for row in rows[:50]:  # What the first rows of any model take.
    grown(options, 20, 2).learn_one({0: 1.0}, 0)
before = resident()
model = grown(options, features, classes)
for i, row in enumerate(rows):  # Until the history is full.
    model.learn_one(row, i % classes)
taken = resident() - before
print(taken / budget.taken(model.options, features, classes), taken)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("options", "features", "classes"), [({}, 3000, 20), ({"per_feature": True}, 120, 12)]
)
def test_estimated_bytes_equal_memory_of_the_process(options, features, classes):
    """By the system's own count, within 5%: nothing else of the model grows like this."""
    command = [sys.executable, "-c", RESIDENT, repr((options, features, classes))]
    # Memory that is free goes back to the system, so that its count is ours.
    exact = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    environment = os.environ | exact
    found = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    ratio, taken = map(float, found.stdout.split())
    assert ratio == pytest.approx(1, rel=0.05)
    assert taken > 5e6


def test_size_of_a_huge_model_is_estimated_without_building_it():
    """1,024 features, a penalty each, and 100 classes: said from the sizes alone."""
    tracemalloc.start()
    options = StreamingClassifier(per_feature=True).checked()
    words = budget.too_much(options, 1024, 100)
    most = budget.most_classes(options, 1024)
    assert tracemalloc.get_traced_memory()[1] < 5e6
    tracemalloc.stop()
    assert words.startswith("a model with 1,024 features and 100 classes takes 2.43 GiB, and")
    assert "max_memory is 1 GiB; raise it, or lower" in words
    assert "max_features, max_classes, per_feature=False" in words
    assert budget.taken(options, 1024, most) <= 2**30 < budget.taken(options, 1024, most + 1)


def test_features_that_do_not_fit_are_ignored_with_a_warning():
    limit = budget.taken(StreamingRegressor(lags=1).checked(), 20, 0)
    model = StreamingRegressor(lags=1, max_memory=limit)
    rows = np.random.default_rng(0).standard_normal((30, 30))
    with pytest.warns(UserWarning, match=r"beyond the first 20 are ignored: a model with 21 feat"):
        model.learn_many(rows, rows[:, 0])
    inner = model.model_
    assert len(inner.names) == 20 and model.ignored_ == 300
    assert inner.engine.bytes <= limit
    assert "(max_memory) were ignored" in model.explain()
    with warnings.catch_warnings():  # Said once.
        warnings.simplefilter("error")
        model.learn_many(rows, rows[:, 0])
        model.learn_one(dict(enumerate(rows[0])), 1.0)
    assert model.learned_ == 61
    model.set_params(max_memory=2 * limit)
    model.learn_many(rows, rows[:, 0])
    assert len(inner.names) == 30


def test_wide_model_does_not_grow_beyond_max_memory():
    limit = budget.taken(StreamingClassifier().checked(), 200, 2)
    model = StreamingClassifier(max_memory=limit)
    model.learn_many(np.random.default_rng(0).standard_normal((4, 200)), [0, 1, 0, 1])
    with pytest.warns(UserWarning, match="are ignored: a model with 256 features and 2 classes"):
        for i in range(120):
            model.learn_one({f"word {i}": 1.0, 0: 0.5}, i % 2)
    assert len(model.model_.names) == 255
    assert model.model_.engine.bytes <= limit


@pytest.mark.parametrize("one_by_one", [True, False])
def test_rows_of_a_class_beyond_max_memory_are_rejected_with_a_reason(one_by_one):
    limit = budget.taken(StreamingClassifier(per_feature=True).checked(), 6, 4)
    model = StreamingClassifier(per_feature=True, max_memory=limit)
    rows, labels = np.random.default_rng(0).standard_normal((60, 6)), [i % 6 for i in range(60)]
    if one_by_one:
        for row, label in zip(rows, labels, strict=True):
            model.learn_one(dict(enumerate(row)), label)
    else:
        model.learn_many(rows, labels)
    assert model.model_.engine.labels == [0, 1, 2, 3]
    assert model.rejected_.count == 20 and model.learned_ == 40
    reason = model.rejected_[0]["reason"]
    assert reason.startswith("target 4 would be class 5, a model with 6 features and 5 classes tak")
    assert "and max_memory is" in reason and "per_feature=False" in reason
    assert model.model_.engine.bytes <= limit


def test_classes_argument_beyond_max_memory_raises():
    limit = budget.taken(StreamingClassifier(per_feature=True).checked(), 3, 4)
    model = StreamingClassifier(per_feature=True, max_memory=limit)
    rows = np.random.default_rng(0).standard_normal((4, 3))
    model.partial_fit(rows, [0, 1, 0, 1], classes=[0, 1, 2])
    before = state(model)
    with pytest.raises(ValueError, match="a model with 3 features and 50 classes takes"):
        model.partial_fit(rows, [0, 1, 0, 1], classes=range(50))
    same_numbers(state(model), before)
    assert model.model_.engine.labels == [0, 1, 2]


def test_every_model_of_a_pool_stays_within_max_memory():
    limit = budget.taken(StreamingClassifier().checked(), 5, 3)
    pool = Pool(StreamingClassifier(max_memory=limit), shards=1)
    rows = np.random.default_rng(0).standard_normal((40, 60))
    pool.learn_many([i % 4 for i in range(40)], rows, [i % 5 for i in range(40)])
    assert len(pool.reader.names) < 60 and pool.ignored_ > 0
    assert (
        budget.taken(pool.reader.options, len(pool.reader.names), len(pool.reader.labels)) <= limit
    )
    reasons = {one["reason"] for one in pool.rejected_}
    assert any("and max_memory is" in reason for reason in reasons)


@pytest.mark.parametrize("kind", [StreamingClassifier, StreamingRegressor])
@pytest.mark.parametrize("wrong", [0, -1, math.nan, math.inf, "1 GB", None, True])
def test_max_memory_must_be_a_positive_number(kind, wrong):
    with pytest.raises(ValueError, match=r"max_memory must be a number > 0, but got"):
        kind(max_memory=wrong).prepare()


def test_max_memory_below_an_empty_model_raises_at_once():
    with pytest.raises(ValueError, match=r"max_memory must be at least [\d,]+ bytes, .* got 1000"):
        StreamingClassifier(max_memory=1000).prepare()


def test_max_memory_is_saved_and_can_be_changed(tmp_path):
    model = StreamingRegressor(max_memory=5e6)
    assert clone(model).get_params()["max_memory"] == 5e6
    assert model.set_params(max_memory=6e6).max_memory == 6e6
    model.learn_one({"a": 1.0}, 2.0)
    obax.save(tmp_path / "model", model)
    again = obax.load(tmp_path / "model", like=StreamingRegressor())
    assert again.max_memory == 6e6 and again.model_.options.max_memory == 6e6
    # In mid-stream it holds at once, for what is still to come.
    again.set_params(max_memory=budget.taken(again.model_.options, 1, 0))
    with pytest.warns(UserWarning, match="beyond the first 1 are ignored"):
        again.learn_one({"a": 1.0, "b": 2.0}, 2.0)
    assert again.feature_names_ == ["a"]


def test_stream_command_checks_max_memory(tmp_path, monkeypatch, capsys):
    """A feature that does not fit is told in one line; what is no number too."""
    limit = budget.taken(StreamingRegressor().checked(), 1, 0)
    rows = tmp_path / "rows.csv"
    rows.write_text("a,b,y\n" + "1,2,3\n4,5,6\n" * 20)

    def stream(*words):
        given = ["obax", "stream", str(rows), "--target", "y", "--task", "regress", *words]
        monkeypatch.setattr(sys, "argv", given)
        with pytest.raises(SystemExit) as stop:
            cli.main()
            raise SystemExit(0)
        return stop.value.code or 0, capsys.readouterr().err

    out = ("--out", str(tmp_path / "out.jsonl"))
    code, said = stream(*out, "--max-memory", str(limit))
    assert code == 0
    assert "obax: warning: features beyond the first 1 are ignored: a model with 2 features" in said
    assert said.count("warning") == 1 and ".py" not in said
    for wrong, message in (
        ("much", "max_memory must be a number, but is 'much'"),
        ("nan", "max_memory must be a number > 0, but got nan"),
        ("10", "max_memory must be at least"),
    ):
        code, said = stream("--max-memory", wrong)
        assert code == 2 and said.startswith(f"obax: {message}"), said
