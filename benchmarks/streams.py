"""Progressive validation on real streams, against River and scikit-learn; a million drifting rows.

    python -m benchmarks.streams                     # all of it
    python -m benchmarks.streams --quick             # the first 3,000 rows, a smoke run
    python -m benchmarks.streams --only starts --only million --json out.json

Every model is tested on a row and then trained on it, in the order of the stream. Needs OBAX_DATA,
`pip install -e '.[river,sklearn]'`. Log losses clip probabilities at 1e-15.
"""

import argparse
import gzip
import io
import itertools
import json
import os
import platform
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from obax import datasets
from obax.estimators import StreamingClassifier

STREAMS = ("elec2", "weather")
PENALTIES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
MEMORIES = (10.0, 100.0, 1000.0)
INERTIAS = (0.01, 0.1, 10.0, 100.0)
RATES, RIDGES = (0.01, 0.1, 0.3, 1.0), (0.0, 1e-4, 1e-3, 1e-2)
PARTS = ("river", "selectors", "sklearn", "starts", "inertia", "ablation", "speed", "million")


def load(name, limit):
    path = datasets.find(f"{name}.csv.gz")
    if path is None:
        sys.exit(f"{name}.csv.gz was not found: set OBAX_DATA, see `obax data`.")
    table = pd.read_csv(io.BytesIO(gzip.decompress(path.read_bytes())))[:limit]
    return table.iloc[:, :-1].astype(float), table.iloc[:, -1].to_numpy(int)


def scores(probability, labels):
    """Log loss and accuracy of the probabilities of class 1."""
    p = np.clip(np.where(labels == 1, probability, 1 - probability), 1e-15, 1)
    return float(-np.log(p).mean()), float(np.mean((probability > 0.5) == labels))


def ours(frame, labels, **options):
    model = StreamingClassifier(**options)
    begin = time.perf_counter()
    said = model.progressive(frame, labels, classes=[0, 1])[:, 1]
    return *scores(said, labels), 1e6 * (time.perf_counter() - begin) / len(labels), model


def river_stream(model, rows, labels):
    """River's own loop: predict, then learn, one row at a time."""
    said = np.empty(len(labels))
    begin = time.perf_counter()
    for i, (row, label) in enumerate(zip(rows, labels, strict=True)):
        said[i] = model.predict_proba_one(row).get(True, 0.5)
        model.learn_one(row, label)
    seconds = time.perf_counter() - begin
    return *scores(said, np.array(labels, int)), 1e6 * seconds / len(labels)


def logistic(rate, ridge):
    from river import linear_model, optim

    return linear_model.LogisticRegression(optimizer=optim.SGD(rate), l2=ridge)


def scaled(model):
    from river import preprocessing

    return preprocessing.StandardScaler() | model


def grid():
    return itertools.product(RATES, RIDGES)


class Report:
    """Tables as they are found, on screen and for --json."""

    def __init__(self):
        self.tables = {}

    def table(self, title, columns, rows):
        print(f"\n**{title}**\n")
        print("| " + " | ".join(columns) + " |")
        print("|" + "---|" * len(columns))
        for row in rows:
            print("| " + " | ".join(_shown(value) for value in row) + " |", flush=True)
        self.tables[title] = {"columns": columns, "rows": rows}


def _shown(value):
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def best_of(results):
    """The lowest log loss and the highest accuracy, each with its setting."""
    low = min(results, key=lambda r: r[1])
    high = max(results, key=lambda r: r[2])
    return low, high


def part_river(report, data):
    rows = []
    for name, (frame, labels) in data.items():
        dicts, truth = frame.to_dict("records"), (labels == 1).tolist()
        results = [
            (
                f"rate {rate:g}, l2 {ridge:g}",
                *river_stream(scaled(logistic(rate, ridge)), dicts, truth),
            )
            for rate, ridge in grid()
        ]
        low, high = best_of(results)
        for setting, loss, accuracy, micro in results:
            mark = " (best loss)" * (setting == low[0]) + " (best accuracy)" * (setting == high[0])
            rows.append((name, setting + mark, loss, accuracy, micro))
    report.table(
        "River LogisticRegression, 16 settings",
        ("stream", "setting", "log loss", "accuracy", "us per row"),
        rows,
    )


def part_selectors(report, data):
    from river import bandit, metrics, model_selection

    rows = []
    for name, (frame, labels) in data.items():
        dicts, truth = frame.to_dict("records"), (labels == 1).tolist()
        models = [scaled(logistic(rate, ridge)) for rate, ridge in grid()]
        halving = model_selection.SuccessiveHalvingClassifier(
            [model.clone() for model in models],
            metric=metrics.Accuracy(),
            budget=len(truth),
            eta=2,
        )
        arms = model_selection.BanditClassifier(
            [model.clone() for model in models],
            metric=metrics.Accuracy(),
            policy=bandit.EpsilonGreedy(epsilon=0.1, decay=0.001, burn_in=100, seed=0),
        )
        for label, model in (("SuccessiveHalvingClassifier", halving), ("BanditClassifier", arms)):
            rows.append((name, label, *river_stream(model, dicts, truth)))
    report.table(
        "River's selectors over the 16",
        ("stream", "selector", "log loss", "accuracy", "us per row"),
        rows,
    )


def part_sklearn(report, data):
    from sklearn.linear_model import SGDClassifier
    from sklearn.preprocessing import StandardScaler

    rows, batch = [], 16
    for name, (frame, labels) in data.items():
        array = frame.to_numpy()
        for rate in (None, 0.01, 0.1, 1.0):
            options = {} if rate is None else {"learning_rate": "constant", "eta0": rate}
            model, scaler = (
                SGDClassifier(loss="log_loss", random_state=0, **options),
                StandardScaler(),
            )
            said = np.full(len(labels), 0.5)
            begin = time.perf_counter()
            for i in range(0, len(labels), batch):
                part = slice(i, i + batch)
                if i:
                    with np.errstate(over="ignore"), warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        said[part] = model.predict_proba(scaler.transform(array[part]))[:, 1]
                scaler.partial_fit(array[part])
                model.partial_fit(scaler.transform(array[part]), labels[part], classes=[0, 1])
            micro = 1e6 * (time.perf_counter() - begin) / len(labels)
            setting = "default schedule" if rate is None else f"constant rate {rate:g}"
            rows.append((name, setting, *scores(np.nan_to_num(said, nan=0.5), labels), micro))
    report.table(
        f"scikit-learn SGDClassifier.partial_fit, {batch} rows at a time",
        ("stream", "setting", "log loss", "accuracy", "us per row"),
        rows,
    )


def part_starts(report, data):
    rows = []
    for name, (frame, labels) in data.items():
        for memory, penalty in itertools.product(MEMORIES, PENALTIES):
            *found, model = ours(frame, labels, penalty=penalty, memory=memory)
            now = model.hyperparameters_
            ends = f"{now['penalty']:.1e}, {now['memory']:.0f}, {now['inertia']:.2g}"
            rows.append((name, f"{penalty:g}", f"{memory:g}", *found, ends))
    columns = ("stream", "penalty", "memory", "log loss", "accuracy", "us per row")
    report.table("StreamingClassifier from 18 starts", (*columns, "ended at"), rows)


def part_inertia(report, data):
    rows = []
    for name, (frame, labels) in data.items():
        for inertia, penalty in itertools.product(INERTIAS, (PENALTIES[0], PENALTIES[-1])):
            for memory in (MEMORIES[0], MEMORIES[-1]):
                found = ours(frame, labels, penalty=penalty, memory=memory, inertia=inertia)[:2]
                rows.append((name, f"{inertia:g}", f"{penalty:g}", f"{memory:g}", *found))
    report.table(
        "The same from other starting inertias",
        ("stream", "inertia", "penalty", "memory", "log loss", "accuracy"),
        rows,
    )


def part_ablation(report, data):
    kinds = {
        "all three": ("penalty", "forgetting", "inertia"),
        "penalty and forgetting": ("penalty", "forgetting"),
        "penalty only": ("penalty",),
        "forgetting only": ("forgetting",),
        "inertia only": ("inertia",),
        "none: frozen at the start": (),
    }
    begins = {
        "default start": {},
        "poor start (penalty 1, memory 1000)": {"penalty": 1.0, "memory": 1000.0},
    }
    rows = []
    for name, (frame, labels) in data.items():
        for begin, options in begins.items():
            for kind, learn in kinds.items():
                rows.append((name, begin, kind, *ours(frame, labels, learn=learn, **options)[:2]))
    report.table("Ablation", ("stream", "start", "learned", "log loss", "accuracy"), rows)


def drawn(features, classes, count):
    """Rows as an array and as dicts, and labels of a linear truth with noise."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((count, features))
    score = rows @ rng.standard_normal((features, classes))
    labels = (score + rng.standard_normal((count, classes))).argmax(axis=1)
    names = [f"feature {i}" for i in range(features)]
    return rows, [dict(zip(names, row, strict=True)) for row in rows.tolist()], labels


def one_by_one(model, rows, labels):
    for row, label in zip(rows, labels, strict=True):
        model.predict_proba_one(row)
        model.learn_one(row, label)


def floor(model, calls=2000):
    """Microseconds for a call of the kernel without a row in it."""
    core = model.prepare()._core
    rows, out = np.zeros((0, core.plan.features + 2)), np.zeros((0, 4))
    arguments = (core.vector, core.record.data, core._work, core.plan.sizes, rows, out)
    begin = time.process_time()
    for _ in range(calls):
        core._play(*arguments)
    return 1e6 * (time.process_time() - begin) / calls


def part_speed(report, data, repetitions=7):
    """Ours and River's in turn, so that both see the same machine; the least processor time of some
    repetitions. The goals are ratios to River's own linear model behind its scaler."""
    from river import linear_model

    del data
    rows = []
    for features, classes, count, goals in (
        (8, 2, 5000, (1.5, 0.4)),
        (54, 2, 1500, (2.0, 1.0)),
        (18, 7, 1000, (0.5, None)),
    ):
        array, dicts, labels = drawn(features, classes, count)
        truth = [bool(label) if classes == 2 else int(label) for label in labels]
        theirs = linear_model.LogisticRegression if classes == 2 else linear_model.SoftmaxRegression
        runs = {
            "River": lambda: one_by_one(scaled(theirs()), dicts, truth),  # noqa: B023
            "one": lambda: one_by_one(StreamingClassifier(), dicts, truth),  # noqa: B023
            "many": lambda: StreamingClassifier().learn_many(array, labels),  # noqa: B023
            "progressive": lambda: StreamingClassifier().progressive(array, labels),  # noqa: B023
        }
        least = dict.fromkeys(runs, np.inf)
        for _ in range(repetitions):
            for name, run in runs.items():
                begin = time.process_time()
                run()
                least[name] = min(least[name], 1e6 * (time.process_time() - begin) / count)
        ratios = {name: least[name] / least["River"] for name in runs}
        bulk = max(ratios["many"], ratios["progressive"])
        missed = ratios["one"] > goals[0] or (goals[1] is not None and bulk > goals[1])
        goal = " / ".join("-" if goal is None else f"{goal:g}" for goal in goals)
        verdict = f"{goal}: {'missed' if missed else 'met'}"
        shown = [f"{least[name]:.1f} ({ratios[name]:.2f}x)" for name in list(runs)[1:]]
        name = f"{features} features, {classes} classes"
        empty = floor(StreamingClassifier())
        rows.append((name, round(least["River"], 1), *shown, round(empty, 2), verdict))
    report.table(
        "Time per row, us: River's linear model (predict, learn), ours and its ratio to that",
        ("stream", "River", "one at a time", "learn_many", "progressive", "floor", "goals"),
        rows,
    )


def memory_now():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return float("nan")


def part_million(report, _, total=1_000_000, block=10_000):
    """Rows from a generator whose truth turns all the time and jumps now and then."""
    rng = np.random.default_rng(0)
    model = StreamingClassifier()
    truth = rng.standard_normal(10)
    rows, error, times = [], [], []
    for number in range(total // block):
        if number % 20 == 19:
            truth = rng.standard_normal(10)
        a = rng.standard_normal((block, 10))
        path = truth + 0.3 * np.cumsum(rng.standard_normal((block, 10)), axis=0) / np.sqrt(block)
        truth = path[-1] / max(1.0, np.linalg.norm(path[-1]) / 3)
        labels = (np.sum(a * path, axis=1) + rng.logistic(size=block) > 0).astype(int)
        begin = time.perf_counter()
        said = model.progressive(a, labels, classes=[0, 1])[:, 1]
        times.append(1e6 * (time.perf_counter() - begin) / block)
        error.append(scores(said, labels)[0])
        if (number + 1) % (total // block // 10) == 0:
            rows.append(
                (
                    f"{(number + 1) * block:,}",
                    float(np.median(times)),
                    memory_now(),
                    float(np.mean(error)),
                )
            )
            times, error = [], []
    report.table(
        f"{total:,} rows of a drifting generator, 10 features",
        ("rows", "us per row, median", "memory, MiB", "log loss"),
        rows,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=PARTS)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    parts = arguments.only or PARTS
    # Speed and the million rows make their own.
    needed = STREAMS if set(parts) - {"speed", "million"} else ()
    data = {name: load(name, 3000 if arguments.quick else None) for name in needed}
    report = Report()
    for part in parts:
        if part == "million":
            part_million(
                report,
                data,
                50_000 if arguments.quick else 1_000_000,
                1000 if arguments.quick else 10_000,
            )
        else:
            globals()[f"part_{part}"](report, data)
    load_now = os.getloadavg()[0]
    print(f"\n{platform.machine()}, {os.cpu_count()} cores, load {load_now:.1f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(report.tables, indent=1))


if __name__ == "__main__":
    main()
