"""Intervals, whose coverage is counted, and features beyond linear, against a forest."""

import time

import numpy as np

from obax.estimators import StreamingClassifier, StreamingRegressor

from .data import Stream
from .losses import ours, reference
from .report import Table, judged, verdict
from .rivals import OTHERS, play
from .work import here, in_parallel

COVERAGE, WINDOW, OFF = 0.9, 2000, 0.02
CURVED = ("bananas", "rbf", "planes", "mv", "friedman")
FEATURES = ("fourier", "interactions")
FOREST = "River ARF(10)"
LOSS_LIMIT, TIME_LIMIT, TIMED = 1.1, 0.1, 3000


# ---- intervals -------------------------------------------------------------------------------


def covered(data: Stream, coverage: float = COVERAGE) -> np.ndarray:
    """Whether each row's target was in the interval or set that was given before it was learned.
    Nothing holds the first row of a class; those count as misses all the same."""
    if data.kind == "regression":
        found = StreamingRegressor().progressive_interval(data.data, data.y, coverage)
        low, high = np.asarray(found).T
        return (low <= data.y) & (data.y <= high)
    found = StreamingClassifier().progressive_set(data.data, data.y, coverage)
    return np.array([label in some for label, some in zip(data.y.tolist(), found, strict=True)])


def windows(hits: np.ndarray) -> np.ndarray:
    """Coverage of every 2,000 rows in a row, wherever they begin; of all, if there are fewer."""
    size = min(WINDOW, len(hits))
    total = np.concatenate([[0], np.cumsum(hits)])
    return (total[size:] - total[:-size]) / size


def interval_row(name: str, hits: np.ndarray) -> list:
    """The coverage of all rows and of the worst windows."""
    found = windows(hits)
    off = float(np.abs(found - COVERAGE).max())
    cells = float(hits.mean()), float(found.min()), float(found.max()), off
    return [name, len(hits), *cells, verdict(off, OFF)]


def _interval_row(name: str, limit: int) -> list:
    return interval_row(name, covered(here(name, limit)))


def part_intervals(names: list[str], limit: int, _: dict) -> Table:
    tasks = [(name, limit) for name in names if here(name, limit) is not None]
    rows = {name: row for (name, _), row in in_parallel(_interval_row, tasks)}
    columns = ["stream", "rows", "coverage", "least", "most", "furthest off", "verdict"]
    return Table(
        f"Coverage of intervals and sets, nominal {COVERAGE:g}, over every {WINDOW:,} rows",
        columns,
        [rows[name] for name, _ in tasks],
        f"Limit: {OFF:g} from nominal in every window.",
    )


# ---- features --------------------------------------------------------------------------------


def curved_row(data: Stream, losses: dict, forest: float, times: dict) -> list:
    """The better of our features, in hindsight, against the forest. Regression: root mean squares,
    which are in the units of the target."""
    better = min(FEATURES, key=losses.__getitem__)
    against, pace = losses[better] / forest, times[better] / times[FOREST]
    cells = [losses["linear"], *(losses[name] for name in FEATURES), forest, against, pace]
    return [data.name, *cells, judged((against, LOSS_LIMIT), (pace, TIME_LIMIT))]


def _curved_row(name: str, limit: int, results: dict) -> list:
    data = here(name, limit)
    measure = "loss" if data.kind == "classes" else "rmse"
    losses = {
        kind: data.score(ours(data, features=kind))[measure] for kind in ("linear", *FEATURES)
    }
    short = here(name, TIMED)
    times = {FOREST: play(short, OTHERS[FOREST])["microseconds"]}
    for kind in FEATURES:
        begin = time.process_time()
        ours(short, features=kind)
        times[kind] = 1e6 * (time.process_time() - begin) / len(short.y)
    known = reference(data, results)
    forests = [known[name][measure] for name in known if name.startswith(FOREST)]
    if not forests:
        forests = [play(data, OTHERS[FOREST])[measure]]
    return curved_row(data, losses, min(forests), times)


def part_features(names: list[str], limit: int, results: dict) -> Table:
    tasks = [(name, limit, results) for name in CURVED if name in names]
    rows = {name: row for (name, *_), row in in_parallel(_curved_row, tasks)}
    columns = ["stream", "linear", *FEATURES, "forest of 10", "better / forest", "time / forest"]
    return Table(
        "Beyond linear: log loss, or root mean squared error, against River's ARF(10)",
        [*columns, "verdict"],
        [rows[name] for name, *_ in tasks],
        f"Limits: loss {LOSS_LIMIT:g}, time {TIME_LIMIT:g} (over {TIMED:,} rows, processor time).",
    )
