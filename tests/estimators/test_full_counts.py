"""Safety at full counts: 500 crafted states, 5,000 interrupts, 5,000 saves beside threads that
learn, 50,000 random sequences of operations against rows learned one at a time, and builds with and
without AVX2.

The slow tests run the whole counts, the others a small part of them.
"""

import copy
import os
import pickle
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from states import same
from test_interrupts import GROWTH, consistent, interrupted, start, whole

from obax.estimators import Pool, StreamingClassifier, StreamingRegressor

ROOT = Path(__file__).parents[2]
counts = pytest.mark.parametrize


def few_and(many, few):
    """A small part of a count, and all of it as a slow test."""
    return [few, pytest.param(many, marks=pytest.mark.slow)]


def saved_and_loaded(model, change=lambda arrays, extra: None):
    """The model after a way through a checkpoint."""
    arrays, extra = copy.deepcopy(model.__obax_save__())
    change(arrays, extra)
    return model.__obax_load__({f"['{path}']": array for path, array in arrays.items()}, extra)


# ---- crafted states ----------------------------------------------------------------------------

COUNTS = ("history.learned", "history.stride", "history.pending", "rows", "intervals.next")
"""Numbers that serve as counts or indices."""


def models_to_craft():
    """Models of several kinds, and the whole numbers in their states."""
    rows = np.random.default_rng(0).normal(size=(40, 3))
    wide = np.random.default_rng(1).normal(size=(40, 70))
    words = StreamingClassifier()
    for i, row in enumerate(rows.tolist()):
        words.learn_one({"city": "abc"[i % 3], "x": row[0]}, i % 2 == 0)
    regressor = StreamingRegressor(lags=1)
    regressor.learn_many(rows, rows[:, 0])
    regressor.predict_interval_one(dict(enumerate(rows[0].tolist())))
    dense, sparse_model = StreamingClassifier(), StreamingClassifier()
    dense.learn_many(rows, [i % 3 for i in range(40)])
    sparse_model.learn_many(wide, [i % 2 for i in range(40)])
    curved = StreamingClassifier(features="fourier")
    curved.learn_many(rows, [i % 2 for i in range(40)])
    return [words, regressor, dense, sparse_model, curved]


def crafted(draw, arrays, extra):
    """Make a state one that cannot be: as a file with a correct checksum may have it."""
    names = [name for name in arrays if name.startswith("state.")]
    name = str(draw.choice(names))
    array = np.array(arrays[name], np.float64)
    kind = int(draw.integers(10))
    if kind in (0, 1):
        if array.size == 0:
            return crafted(draw, arrays, extra)
        array.reshape(-1)[draw.integers(array.size)] = draw.choice([np.inf, -np.inf])
        arrays[name] = array
    elif kind == 2:
        arrays[name] = np.zeros((*array.shape, 2))
    elif kind == 3:
        if array.ndim == 0 or array.size == 0:
            return crafted(draw, arrays, extra)
        arrays[name] = np.concatenate([array, array[:1], np.ones_like(array[:1])])
    elif kind == 4:
        del arrays[name]
    elif kind == 5:
        arrays[name] = array.astype([np.float32, np.int64, np.complex128][draw.integers(3)])
    elif kind == 6:
        count = f"state.{draw.choice(COUNTS)}"
        arrays[count] = np.float64(draw.choice([-1.0, 0.5, 1e300, np.nan, -(2.0**63), 2.0**64]))
    elif kind == 7:
        extra["model"]["names"] = [*extra["model"]["names"], extra["model"]["names"][0]]
    elif kind == 8:
        extra["model"]["rows"] = [-1, "many", None, 0.5, 2**70, []][draw.integers(6)]
    else:
        part = str(draw.choice(["names", "labels", "columns", "pending", "rejected", "sparse"]))
        if part == "labels" and not extra["model"].get("labels"):
            return crafted(draw, arrays, extra)
        extra["model"][part] = [7, "text", [["int", "x"]], {"count": -1}, None][draw.integers(5)]
    return kind


@counts("count", few_and(500, 60))
def test_crafted_states_are_refused_in_words(count):
    models, draw, passed = models_to_craft(), np.random.default_rng(5), []
    for i in range(count):
        kinds = []
        try:
            saved_and_loaded(
                models[i % len(models)], lambda a, e, k=kinds: k.append(crafted(draw, a, e))
            )
        except ValueError as error:
            assert len(str(error)) > 20
            continue
        passed.append((i % len(models), kinds))
    assert not passed


# ---- interrupts and threads --------------------------------------------------------------------


@counts("count", few_and(5000, 100))
@pytest.mark.filterwarnings("ignore")
def test_interrupts_leave_whole_models(count):
    bases = {name: start(features) for name, (features, _) in GROWTH.items()}
    step = max(1, 5000 // count)
    left, at = count, 1
    while left > 0:
        for name, (_, call) in GROWTH.items():
            model = copy.deepcopy(bases[name])
            if interrupted(lambda m=model, c=call: c(m), at % 700 + 1):
                left -= 1
            whole(model)
        at += step
    assert left <= 0


@counts("count", few_and(5000, 60))
def test_saves_beside_threads_that_learn_are_whole(count):
    model = StreamingClassifier(max_features=12)
    done, failed = threading.Event(), []

    def learn(offset):
        draw = np.random.default_rng(offset)
        try:
            while not done.is_set():
                row = {f"f{draw.integers(12)}": 1.0, "x": float(draw.normal())}
                model.learn_one(row, int(draw.integers(3)))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=learn, args=(i,)) for i in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for thread in threads:
            thread.start()
        try:
            for i in range(count):
                way = (saved_and_loaded, lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy)
                found = way[i % 3](model)
                consistent(found)
                assert found.learned_ == int(found.model_.engine.state()["rows"])
        finally:
            done.set()
            for thread in threads:
                thread.join()
    assert not failed


# ---- random sequences --------------------------------------------------------------------------


def drawn_row(draw, names):
    """A row of some features: numbers, booleans, missing ones, and seldom one that is rejected."""
    row = {}
    for name in names:
        kind = draw.integers(14)
        value = float(np.round(draw.normal(), 2))
        row[name] = None if kind == 0 else float("nan") if kind == 1 else value
        if kind == 2:
            row[name] = bool(value > 0)
        if kind == 3 and draw.integers(4) == 0:
            row[name] = 1e18
    return row


def in_some_form(draw, rows):
    """Rows in another form that means the same."""
    kind = draw.integers(4)
    if kind == 0:
        return rows
    frame = pd.DataFrame(
        [{k: np.nan if v is None else float(v) for k, v in r.items()} for r in rows]
    )
    return frame if kind == 1 else frame.to_dict("records") if kind == 2 else tuple(rows)


def play(draw, regression):
    """One sequence: a model that lives through operations of all kinds, and one that learns the
    same rows one at a time."""
    kind = StreamingRegressor if regression else StreamingClassifier
    options = [{}, {"lags": 1}, {"members": "tuned"}, {"max_features": 3}][draw.integers(4)]
    model, plain = kind(**options), kind(**options)
    names = ["a", "b", "c", "d"]
    for turn in range(int(draw.integers(2, 6))):
        known = names[: 1 + int(draw.integers(len(names)))]
        rows = [drawn_row(draw, known) for _ in range(int(draw.integers(1, 5)))]
        labels = ["x", "y", "z"][: 2 + int(draw.integers(2))] if draw.integers(4) else [True, False]
        targets = [
            float(draw.normal()) if regression else labels[draw.integers(len(labels))] for _ in rows
        ]
        weights = draw.choice([0.0, 0.5, 1.0, 2.0], len(rows)) if draw.integers(4) == 0 else None
        heavy = np.ones(len(rows)) if weights is None else weights
        for row, target, weight in zip(rows, targets, heavy, strict=True):
            plain.learn_one(row, target, w=float(weight))
        operation = draw.integers(5)
        if operation == 0 and weights is None:
            for i, (row, target) in enumerate(zip(rows, targets, strict=True)):
                model.predict_one(row, id=(turn, i))
                model.learn_one(y=target, id=(turn, i))
        elif operation == 1:
            for row, target, weight in zip(rows, targets, heavy, strict=True):
                model.learn_one(row, target, w=float(weight))
        elif operation == 2 and weights is None:
            model.progressive(in_some_form(draw, rows), targets)
        else:
            model.learn_many(in_some_form(draw, rows), targets, w=weights)
        between = draw.integers(7)
        if between == 0:
            model = saved_and_loaded(model)
        elif between == 1:
            model = pickle.loads(pickle.dumps(model))
        elif between == 2:
            model = copy.deepcopy(model)
        elif between == 3 and regression:
            for one in (model, plain):
                one.predict_interval_one({"a": 0.5})
        elif between == 4:
            # Interrupted before a row with a new feature is learned, and played again.
            row, target = {f"new {turn}": 1.0}, targets[0]
            before = model.learned_
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                came = interrupted(
                    lambda m=model, r=row, t=target: m.learn_one(r, t), int(draw.integers(1, 60))
                )
                if came and model.learned_ == before:
                    model.learn_one(row, target)
            plain.learn_one(row, target)
        model.predict_one(rows[0])
    return model, plain


@counts("count", few_and(50_000, 150))
@pytest.mark.filterwarnings("ignore")
def test_sequences_of_operations_are_rows_one_at_a_time(count):
    for seed in range(count):
        model, plain = play(np.random.default_rng(seed), regression=seed % 2 == 0)
        try:
            same(model, plain)
        except AssertionError as error:
            raise AssertionError(f"sequence {seed}: {error}") from None


def test_the_comparison_notices_a_row_that_is_left_out():
    """The mutant: one row fewer."""
    model, plain = play(np.random.default_rng(3), regression=True)
    plain.learn_one({"a": 0.3}, 1.0)
    with pytest.raises(AssertionError):
        same(model, plain)


# ---- builds ------------------------------------------------------------------------------------

LEARN = """
import sys, numpy as np
sys.path.insert(0, sys.argv[2])
import obax
if sys.argv[1]:
    import importlib.util, pathlib
    (path,) = pathlib.Path(sys.argv[1]).glob("_engine*")
    spec = importlib.util.spec_from_file_location("obax._engine", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules["obax._engine"] = module
from obax._support import native
if sys.argv[1]:
    assert native.loaded().__file__.startswith(sys.argv[1])
from obax.estimators import StreamingClassifier, StreamingRegressor
draw = np.random.default_rng(0)
found = {}
for width in (2, 5, 18, 33, 54, 90):
    rows = draw.normal(size=(150, width))
    for model, targets in (
        (StreamingClassifier(), draw.integers(0, 2, 150)),
        (StreamingClassifier(), draw.integers(0, 5, 150)),
        (StreamingRegressor(features="fourier" if width < 20 else "linear"), rows @ np.ones(width)),
    ):
        model.learn_many(rows, targets)
        for name, array in model.model_.engine.state().items():
            found[f"{len(found)} {name}"] = np.asarray(array)
np.savez(sys.argv[3], **found)
"""


@pytest.mark.slow
def test_builds_with_and_without_avx2_give_the_same_bits(tmp_path):
    build = [sys.executable, ROOT / "build_backend/obax_build.py", "--into", tmp_path / "plain"]
    done = subprocess.run(
        [*build, "-D", "OBAX_NO_CLONES=ON"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    states = []
    for engine in ("", str(tmp_path / "plain")):
        out = tmp_path / f"{len(states)}.npz"
        words = [sys.executable, "-W", "ignore", "-c", LEARN, engine, str(ROOT / "src"), str(out)]
        subprocess.run(words, check=True)
        states.append(np.load(out))
    assert states[0].files == states[1].files
    for name in states[0].files:
        assert states[0][name].tobytes() == states[1][name].tobytes(), name


# ---- Ctrl-C ------------------------------------------------------------------------------------

INTERRUPT = """
import signal, sys, time
import numpy as np
from obax.estimators import Pool, StreamingClassifier
draw = np.random.default_rng(0)
which = sys.argv[1]
width, count, after = {
    "dense": (40, 30_000, 0.1),
    "classes": (30, 30_000, 0.1),
    "predictions": (60, 60_000, 0.1),
    "sparse": (100, 40_000, 0.3),
    "pool": (8, 600_000, 0.4),
}[which]
rows = draw.normal(size=(count, width))
targets = draw.integers(0, 20 if which == "classes" else 2, count)
if which == "pool":
    pool = Pool(StreamingClassifier(), shards=2)
    keys = np.arange(count) % 40
    pool.learn_many(keys[:400], rows[:400], targets[:400])
    # Of the keys with odd numbers alone: the calling thread has none of these rows.
    keys = 2 * (keys // 2) + 1
    model, call = pool, lambda: pool.learn_many(keys, rows, targets)
else:
    model = StreamingClassifier()
    model.learn_many(rows[:50], targets[:50])
    call = lambda: model.learn_many(rows, targets)
    if which == "predictions":
        call = lambda: model.predict_many(rows)
before = model.learned_
begin = time.process_time()
signal.signal(signal.SIGPROF, signal.default_int_handler)
signal.setitimer(signal.ITIMER_PROF, after)
try:
    call()
except KeyboardInterrupt:
    late = time.process_time() - begin - after
    signal.setitimer(signal.ITIMER_PROF, 0)
    learned = model.learned_ - before
    assert which == "predictions" or 0 < learned < count, (learned, late)
    if which != "pool" and which != "predictions":
        # Row by row: the model of the first rows alone.
        again = StreamingClassifier()
        again.learn_many(rows[:50], targets[:50])
        again.learn_many(rows[:learned], targets[:learned])
        a, b = (m.model_.engine.state() for m in (model, again))
        assert all(np.array_equal(a[name], b[name], equal_nan=True) for name in a)
    print(late)
else:
    print("never")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no such timers")
@pytest.mark.parametrize("which", ["dense", "classes", "predictions", "sparse", "pool"])
def test_a_bulk_call_notices_an_interrupt_within_a_fifth_of_a_second(which):
    """In processor time, which a busy machine does not stretch."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    words = [sys.executable, "-c", INTERRUPT, which]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.strip().splitlines()[-1]) < 0.2


def test_a_pool_knows_the_other_boolean_as_separate_models_do():
    """Keys that meet one boolean know the other one, in the bits of separate models."""
    draw = np.random.default_rng(2)
    keys, rows = draw.integers(0, 6, 300), draw.normal(size=(300, 2))
    targets = (rows[:, 0] > 0.7 * (keys % 3)).tolist()
    pool, alone = Pool(StreamingClassifier()), {}
    found = pool.progressive(keys, rows, targets)
    place = pool.classes_.tolist().index(True)
    for i, (key, target) in enumerate(zip(keys.tolist(), targets, strict=True)):
        model = alone.setdefault(key, StreamingClassifier())
        row = dict(enumerate(rows[i].tolist()))
        assert model.predict_proba_one(row).get(True, 0.0) == found[i, place]
        model.learn_one(row, target)
