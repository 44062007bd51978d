"""Time and memory of a row, against River in the same process, and of a fresh process.

Ours and River's run in turn, so that both see the same machine; the least processor time of some
repetitions counts. Limits are ratios to River's own linear model behind its scaler, which predicts
and learns.
"""

import json
import os
import subprocess
import sys
import time
from itertools import islice

import numpy as np

from obax.estimators import StreamingClassifier

from .report import Table, judged, verdict
from .sources import zipf_words

SHAPES = (
    # features, classes, rows, limit one at a time, limit in bulk
    (2, 2, 5000, 0.35, None),
    (8, 2, 5000, 0.3, 0.15),
    (54, 2, 1500, 0.4, 0.3),
    (18, 7, 1000, 0.5, None),
    (118, 23, 400, None, 0.08),
    (500, 2, 300, 2.0, 2.0),
)
WORDS, WORDS_LIMIT = 10_000, 1.0


def drawn(features: int, classes: int, count: int) -> tuple[np.ndarray, list[dict], list]:
    """Rows as an array and as dicts, and labels of a linear truth with noise."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((count, features))
    score = rows @ rng.standard_normal((features, classes))
    labels = (score + rng.standard_normal((count, classes))).argmax(axis=1)
    names = [f"feature {i}" for i in range(features)]
    dicts = [dict(zip(names, row, strict=True)) for row in rows.tolist()]
    return rows, dicts, [bool(k) if classes == 2 else int(k) for k in labels]


def river(classes: int, scaled: bool = True):
    from river import linear_model, preprocessing

    kind = linear_model.LogisticRegression if classes == 2 else linear_model.SoftmaxRegression
    return preprocessing.StandardScaler() | kind() if scaled else kind()


def one_by_one(model, rows: list[dict], labels: list) -> None:
    for row, label in zip(rows, labels, strict=True):
        model.predict_proba_one(row)
        model.learn_one(row, label)


def least(runs: dict, count: int, repetitions: int) -> dict[str, float]:
    """Microseconds per row of each run: the least of some, taken in turn."""
    found = dict.fromkeys(runs, np.inf)
    for _ in range(repetitions):
        for name, run in runs.items():
            begin = time.process_time()
            run()
            found[name] = min(found[name], 1e6 * (time.process_time() - begin) / count)
    return found


def row_of(name: str, found: dict[str, float], one: float | None, bulk: float | None) -> list:
    """Times, their ratios to River's and whether both limits are met."""
    cells: list = [name, round(found["River"], 1)]
    ratios = {key: value / found["River"] for key, value in found.items()}
    for key in ("one", "many", "progressive"):
        cells.append(f"{found[key]:.1f} ({ratios[key]:.2f}x)" if key in found else None)
    slowest = max((ratios[key] for key in ("many", "progressive") if key in ratios), default=None)
    shown = " / ".join("-" if goal is None else f"{goal:g}" for goal in (one, bulk))
    return [*cells, shown, judged((ratios["one"], one), (slowest, bulk))]


def shape_row(features, classes, count, one, bulk, repetitions) -> list:
    array, dicts, labels = drawn(features, classes, count)
    runs = {
        "River": lambda: one_by_one(river(classes), dicts, labels),
        "one": lambda: one_by_one(StreamingClassifier(), dicts, labels),
        "many": lambda: StreamingClassifier().learn_many(array, labels),
        "progressive": lambda: StreamingClassifier().progressive(array, labels),
    }
    name = f"{features} features, {classes} classes"
    return row_of(name, least(runs, count, repetitions), one, bulk)


def words_row(repetitions: int, count: int) -> list:
    """Bags of words: the rows after those that made both models know the words."""
    pairs = list(islice(zipf_words(), WORDS))
    known, rest = pairs[:-count], pairs[-count:]
    runs = {}
    for name, model in (("River", river(2, scaled=False)), ("one", StreamingClassifier())):
        one_by_one(model, *map(list, zip(*known, strict=True)))
        rows, labels = map(list, zip(*rest, strict=True))
        runs[name] = lambda m=model, rows=rows, labels=labels: one_by_one(m, rows, labels)
    words = len(set().union(*(row for row, _ in pairs)))
    return row_of(f"bags of {words:,} words", least(runs, count, repetitions), WORDS_LIMIT, None)


def floor(calls: int = 2000) -> float:
    """Microseconds for a call of the engine without a row in it."""
    engine = StreamingClassifier().prepare().model_.engine
    rows, none = np.zeros((0, 0)), np.zeros(0)
    begin = time.process_time()
    for _ in range(calls):
        engine.play(rows, none, none)
    return 1e6 * (time.process_time() - begin) / calls


def part_speed(quick: bool) -> Table:
    repetitions = 2 if quick else 7
    rows = []
    for shape in SHAPES:
        rows.append(shape_row(*shape, repetitions))
        print(f"{rows[-1][0]}: {rows[-1][-1]}", flush=True)
    rows.append(words_row(repetitions, 1000))
    return Table(
        "Time per row, us: River's linear model (predict, learn), ours and its ratio to that",
        ("stream", "River", "one at a time", "learn_many", "progressive", "limits", "verdict"),
        rows,
        f"A call of the engine without a row in it takes {floor():.2f} us.",
    )


# ---- a fresh process -------------------------------------------------------------------------

PROBE = """
import json, sys, time
def resident():
    line = next(l for l in open("/proc/self/status") if l.startswith("VmRSS"))
    return int(line.split()[1]) / 1024
begin = time.process_time()
import obax.estimators
model = obax.estimators.StreamingClassifier()
imported = time.process_time() - begin
model.learn_one({"a": 1.0, "b": 2.0}, True)
first = time.process_time() - begin - imported
for i in range(50):
    model.predict_proba_one({"a": i % 7.0, "b": 1.0})
    model.learn_one({"a": i % 7.0, "b": 1.0}, i % 7 > 3)
print(json.dumps([imported, first, resident()]))
"""
LIMITS = {"import, s": 0.3, "first row, s": 0.1, "memory, MiB": 60.0}


def probed() -> list[float]:
    """Processor seconds of the import with NumPy's, and of the first row; MiB of the process."""
    command = [sys.executable, "-c", PROBE]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(run.stdout)


def part_process(quick: bool) -> Table:
    runs = np.array([probed() for _ in range(2 if quick else 5)])
    rows = [
        [name, value, limit, verdict(value, limit)]
        for (name, limit), value in zip(LIMITS.items(), runs.min(axis=0), strict=True)
    ]
    load = os.getloadavg()[0]
    return Table(
        "A fresh process, processor seconds, the least of some runs",
        ("what", "ours", "limit", "verdict"),
        rows,
        f"NumPy is part of it; load {load:.1f}.",
    )
