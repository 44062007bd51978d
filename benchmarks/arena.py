"""StreamArena's protocol on local files: losses, ranks and microseconds of obax and of rivals.

    python -m benchmarks.arena [--data FOLDER] [--seeds 3] [--only NAME ...] [--rivals NAME ...]

Full streams in their order, predict then learn, one configuration for all; classes by log loss with
probabilities floored at 1e-7, numbers by RMSE. The board's published figures (board.csv) stand
beside ours. Rivals are CapyMOA's learners (`pip install -e ".[arena]"`, Java 11 or newer), on the
same rows in the same run. For each data set, learner and seed a JSON file in the format of the
board's submissions is written.
"""

import argparse
import csv
import dataclasses
import importlib
import importlib.metadata
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from obax.estimators import StreamingClassifier, StreamingRegressor

FLOOR = 1e-7
BOARD = (
    "adult", "airlines", "electricity", "weather",
    "MetroTraffic", "bike", "california_housing", "elevators",
)  # fmt: skip
DEVELOPMENT = (
    "shuttle", "synth_agrawal", "moving_squares", "diamonds", "House8L", "cps88wages",
)  # fmt: skip
RIVALS = {
    "ARF": ("AdaptiveRandomForestClassifier", "AdaptiveRandomForestRegressor"),
    "SRP": ("StreamingRandomPatches", None),
    "SGBT": ("StreamingGradientBoostedTrees", "StreamingGradientBoostedRegression"),
    "SOKNL": (None, "SOKNL"),
    "Hoeffding tree": ("HoeffdingTree", None),
}
"""CapyMOA's classes by the name in our table: for classes and for numbers."""


@dataclasses.dataclass(frozen=True)
class Stream:
    """A data set of the board: rows in their order, labels as 0, 1, ... or numbers."""

    name: str
    X: np.ndarray
    y: np.ndarray
    classes: int
    """0 for regression."""


def load(folder: Path, name: str) -> Stream:
    """Read a data set of the folder; weather is a file of the folder above it."""
    if (folder / f"{name}.npz").exists():
        with np.load(folder / f"{name}.npz") as file:
            X, y = file["X"].astype(np.float64), file["y"]
    else:
        table = np.loadtxt(folder.parent / f"{name}.csv.gz", delimiter=",", skiprows=1)
        X, y = table[:, :-1], table[:, -1].astype(int)
    if y.dtype.kind == "f":
        return Stream(name, X, y.astype(np.float64), 0)
    labels, codes = np.unique(y, return_inverse=True)
    return Stream(name, X, codes, len(labels))


def ours(stream: Stream, seed: int) -> np.ndarray:
    """Return obax's predictions of rows before they were learned."""
    if not stream.classes:
        model = StreamingRegressor(features="auto", seed=seed)
        return model.play(stream.X, stream.y).predictions
    played = StreamingClassifier(features="auto", seed=seed).play(stream.X, stream.y.tolist())
    found = np.zeros((len(stream.y), stream.classes))
    found[:, [int(str(label)) for label in played.classes]] = played.predictions
    return found


def capymoa(name: str, stream: Stream, seed: int) -> np.ndarray:
    """Return the predictions of one of CapyMOA's learners, asked and taught row by row."""
    from capymoa.stream import NumpyStream  # type: ignore[import-not-found]

    kind = RIVALS[name][0 if stream.classes else 1]
    assert kind is not None
    module = importlib.import_module(f"capymoa.{'classifier' if stream.classes else 'regressor'}")
    rows = NumpyStream(
        stream.X, stream.y, target_type="categorical" if stream.classes else "numeric"
    )
    learner = getattr(module, kind)(schema=rows.get_schema(), random_seed=seed)
    found = np.zeros((len(stream.y), max(stream.classes, 1)))
    for i in range(len(stream.y)):
        instance = rows.next_instance()
        if stream.classes:
            said = learner.predict_proba(instance)
            if said is not None:
                found[i, : len(said)] = said
        else:
            found[i] = learner.predict(instance) or 0.0
        learner.train(instance)
    return found if stream.classes else found[:, 0]


# ---- scores -------------------------------------------------------------------------------------


def metrics(stream: Stream, said: np.ndarray) -> dict[str, float]:
    """Return the board's measures of predictions."""
    y = stream.y
    if not stream.classes:
        error = np.where(np.isfinite(said), said, np.inf) - y
        square = float(np.mean(error**2))
        return {
            "rmse": square**0.5,
            "mae": float(np.mean(np.abs(error))),
            "r2": 1.0 - square / float(np.var(y)),
        }
    total = said.sum(axis=1, keepdims=True)
    p = np.where(total > 0, said / np.where(total > 0, total, 1.0), 1.0 / stream.classes)
    chosen = p.argmax(axis=1)
    accuracy = float(np.mean(chosen == y))
    shares = np.bincount(y, minlength=stream.classes) / len(y)
    guessed = np.bincount(chosen, minlength=stream.classes) / len(y)
    repeated = float(np.mean(y[1:] == y[:-1]))
    curves = [ranked(y == k, p[:, k]) for k in range(stream.classes) if 0 < shares[k] < 1]
    if stream.classes == 2:
        curves = curves[-1:]
    roc, precision = np.mean(curves, axis=0) if curves else (np.nan, np.nan)
    return {
        "accuracy": accuracy,
        "kappa": above(accuracy, float(shares @ guessed)),
        "kappa_t": above(accuracy, repeated),
        "kappa_m": above(accuracy, float(shares.max())),
        "log_loss": float(-np.log(np.clip(p[np.arange(len(y)), y], FLOOR, 1.0)).mean()),
        "roc_auc": float(roc),
        "pr_auc": float(precision),
    }


def above(accuracy: float, chance: float) -> float:
    """Return accuracy above chance, 1 at best."""
    return (accuracy - chance) / (1.0 - chance) if chance < 1.0 else 0.0


def ranked(positive: np.ndarray, score: np.ndarray) -> tuple[float, float]:
    """Return the area under the ROC curve and the average precision of scores."""
    order = np.argsort(-score, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(score[order])), len(score) - 1)
    hits = np.cumsum(positive[order])[ends]
    found, false = hits / hits[-1], (ends + 1 - hits) / (len(score) - hits[-1])
    roc = np.trapezoid(np.append(0.0, found), np.append(0.0, false))
    return float(roc), float(np.sum(np.diff(found, prepend=0.0) * hits / (ends + 1)))


def main_measure(stream: Stream) -> str:
    """Return the measure by which the board ranks."""
    return "log_loss" if stream.classes else "rmse"


# ---- a run ---------------------------------------------------------------------------------


def submission(
    stream: Stream, learner: str, seed: int, play: Callable[[], np.ndarray]
) -> dict[str, Any]:
    """Play a stream and return the record of it in the board's format."""
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        said = play()
        status, found = "ok", metrics(stream, said)
    except Exception as error:
        status, found = f"failed: {type(error).__name__}: {error}", {}
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    options: dict[str, Any] = {}
    if learner == "obax":
        kind = StreamingClassifier if stream.classes else StreamingRegressor
        options = kind(features="auto", seed=seed).get_params(deep=False)
    return {
        "task": "classification" if stream.classes else "regression",
        "algorithm": learner,
        "dataset": stream.name,
        "seed": seed,
        "status": status,
        "metrics": found,
        "wallclock_s": wall,
        "cpu_time_s": cpu,
        "hyperparameters": {name: plain(value) for name, value in options.items()},
        "submission": {
            "author": "obax",
            "contact_or_repo": "obax",
            "library_versions": versions(),
            "dataset_revision": f"{len(stream.y)} rows, {stream.X.shape[1]} features",
            "notes": "one configuration for all data sets",
        },
    }


def plain(value: object) -> object:
    """Return an option as JSON has it."""
    return list(value) if isinstance(value, tuple) else value


def versions() -> dict[str, str]:
    """Return the versions of what predicts."""
    found = {"python": platform.python_version(), "numpy": np.__version__}
    for name in ("obax", "capymoa"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def published(file: Path) -> dict[str, dict[str, float]]:
    """Return the board's figures by data set and learner."""
    board: dict[str, dict[str, float]] = {}
    with file.open(newline="") as lines:
        for line in csv.DictReader(lines):
            name = line["dataset"].split("/")[-1]
            board.setdefault(name, {})[line["algorithm"]] = float(line["value"])
    return board


def rank(own: float, others: list[float]) -> int:
    """Return the place of a loss among others, 1 for the best."""
    return 1 + sum(other < own for other in others)


def table(records: list[dict[str, Any]], board: dict[str, dict[str, float]]) -> Iterator[str]:
    """Yield the lines of a table: losses, ranks and microseconds, the mean over seeds."""
    learners = list(dict.fromkeys(record["algorithm"] for record in records))
    yield "| data set | " + " | ".join(f"{name} (us)" for name in learners) + " | board | rank |"
    yield "| --- |" + " --- |" * (len(learners) + 2)
    for name in dict.fromkeys(record["dataset"] for record in records):
        cells, losses = [], {}
        for learner in learners:
            own = [r for r in records if (r["dataset"], r["algorithm"]) == (name, learner)]
            good = [r for r in own if r["status"] == "ok"]
            if not good:
                cells.append("-" if not own else own[0]["status"])
                continue
            measure = "rmse" if "rmse" in good[0]["metrics"] else "log_loss"
            losses[learner] = float(np.mean([r["metrics"][measure] for r in good]))
            rows = int(good[0]["submission"]["dataset_revision"].split()[0])
            speed = 1e6 * np.mean([r["wallclock_s"] for r in good]) / rows
            cells.append(f"{losses[learner]:.5g} ({speed:.3g})")
        theirs = board.get(name, {})
        best = min(theirs, key=theirs.__getitem__) if theirs else None
        others = [*theirs.values(), *(v for k, v in losses.items() if k != learners[0])]
        place = rank(losses[learners[0]], others) if learners[0] in losses else "-"
        known = "-" if best is None else f"{theirs[best]:.5g} {best}"
        yield f"| {name} | " + " | ".join(cells) + f" | {known} | {place} |"


def main(words: list[str] | None = None) -> list[dict[str, Any]]:
    """Play the streams; print the table and write the records."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.arena", description=__doc__)
    data = Path(os.environ.get("OBAX_DATA", "data")) / "arena"
    parser.add_argument("--data", type=Path, default=data)
    parser.add_argument("--out", type=Path, default=Path("arena-results"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[*BOARD, *DEVELOPMENT])
    parser.add_argument("--rivals", nargs="*", default=[], choices=[*RIVALS])
    parser.add_argument(
        "--rows", type=int, default=None, help="the first rows of each stream alone"
    )
    asked = parser.parse_args(words)
    asked.out.mkdir(parents=True, exist_ok=True)
    records = []
    for name in asked.only:
        stream = load(asked.data, name)
        if asked.rows:
            stream = dataclasses.replace(stream, X=stream.X[: asked.rows], y=stream.y[: asked.rows])
        for seed in range(asked.seeds):
            plays = {"obax": lambda stream=stream, seed=seed: ours(stream, seed)}
            for rival in asked.rivals:
                if RIVALS[rival][0 if stream.classes else 1] is not None:
                    plays[rival] = lambda rival=rival, stream=stream, seed=seed: capymoa(
                        rival, stream, seed
                    )
            for learner, play in plays.items():
                record = submission(stream, learner, seed, play)
                records.append(record)
                file = asked.out / f"{stream.name}-{learner.replace(' ', '-')}-{seed}.json"
                file.write_text(json.dumps(record, indent=1))
    board = published(asked.data / "board.csv") if (asked.data / "board.csv").exists() else {}
    print("\n".join(table(records, board)))
    return records


if __name__ == "__main__":
    main()
