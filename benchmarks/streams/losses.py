"""Losses: the default model beside its untuned start and all rivals; and from sixteen starts."""

import itertools

import numpy as np

from obax.estimators import StreamingClassifier, StreamingRegressor

from . import kept
from .data import Stream
from .report import MET, Table, judged, verdict
from .sources import TEXTS
from .work import here, in_parallel

PENALTIES, MEMORIES = (1e-4, 1e-3, 1.0, 100.0), (30.0, 100.0, 1000.0, 10_000.0)
STARTS = list(itertools.product(PENALTIES, MEMORIES))
LIMIT = 1.01
UNTUNED = {"learn": (), "members": "tuned"}
"""One model, whose hyperparameters stay where they start."""
COLUMNS = {
    "Vowpal Wabbit": "Vowpal Wabbit",
    "PA, Bayesian, scikit-learn": ("River PA", "River Bayesian", "scikit-learn"),
    "HAT": "River HAT",
    "ARF(10)": "River ARF",
}
"""Column of the table and how the names of its rivals begin; the best of them is shown."""


def ours(data: Stream, **options) -> np.ndarray:
    """What our model says of each row before it learns it."""
    kind = StreamingClassifier if data.kind == "classes" else StreamingRegressor
    return kind(**options).progressive(data.data, data.y)


def losses(name: str, limit: int, options: dict) -> tuple[float, float]:
    """The loss of the model from a start, and of the same start untuned."""
    data = here(name, limit)
    tuned = data.score(ours(data, **options))["loss"]
    return tuned, data.score(ours(data, **options, **UNTUNED))["loss"]


def reference(data: Stream, results: dict[str, dict]) -> dict[str, dict]:
    """The rivals' results on this stream: those kept, or those of River's linear model now."""
    known = kept.of(results, data)
    return known or kept.one(data.name, len(data.y), [*kept.linear(data.kind)])["rivals"]


def ratio(tuned: float, untuned: float, best: float) -> float:
    """To the better of the untuned start and River's best setting in hindsight."""
    return tuned / min(untuned, best)


def table_row(data: Stream, tuned: float, untuned: float, rivals: dict[str, dict]) -> list:
    """Losses of one stream: log loss, or squared error in units of the target's variance."""
    unit = 1.0 if data.kind == "classes" else float(data.y.var())
    best = kept.river_best(rivals)
    found = {
        "ours": tuned,
        "untuned": untuned,
        "River's best": best,
        "River default": rivals["River default"]["loss"],
    }
    for column, begin in COLUMNS.items():
        some = [r["loss"] for name, r in rivals.items() if name.startswith(begin)]
        found[column] = min(some, default=None)
    winner = min((k for k, v in found.items() if v is not None), key=found.__getitem__)
    cells = [None if v is None else v / unit for v in found.values()]
    against = ratio(tuned, untuned, best)
    # Text has a goal of its own: no worse than River.
    own = 1.0 if data.name in TEXTS else None
    limits = judged((against, LIMIT), (tuned / best, own))
    return [data.name, len(data.y), *cells, winner, tuned / best, against, limits]


def part_table(names: list[str], limit: int, results: dict) -> Table:
    columns = ["stream", "rows", "ours", "untuned", "River's best", "River default", *COLUMNS]
    columns += ["best of all", "ours / River's best", "ours / better of it and untuned", "verdict"]
    rows = {name: [name, *[None] * (len(columns) - 2), "not here"] for name in names}
    tasks = [(name, limit, {}) for name in names if here(name, limit) is not None]
    for (name, _, _), (tuned, untuned) in in_parallel(losses, tasks):
        data = here(name, limit)
        rows[name] = table_row(data, tuned, untuned, reference(data, results))
        print(f"{name}: {tuned:.4g}", flush=True)
    return Table("Every stream, default settings", columns, list(rows.values()), answer(rows))


def answer(rows: dict[str, list]) -> str:
    """The table in a sentence."""
    played = [row for row in rows.values() if row[-1] != "not here"]
    ratios = [row[-3] for row in played]
    forest = 6 + list(COLUMNS).index("ARF(10)")
    beaten = sum(row[forest] is not None and row[forest] < row[2] for row in played)
    return (
        f"Of {len(played)} streams the default model is within 1% of the best of nine River "
        f"settings in hindsight on {sum(r <= LIMIT for r in ratios)} and better on "
        f"{sum(r < 1 for r in ratios)}; it is the best of all on "
        f"{sum(row[-4] == 'ours' for row in played)}; a forest of 10 trees beats it on {beaten}."
    )


def starts_row(name: str, found: dict[tuple, tuple[float, float]], best: float) -> list:
    """The worst of the starts of a stream."""
    ratios = {start: ratio(*pair, best) for start, pair in found.items()}
    # A loss that is not a number is the worst there is.
    worst = max(ratios, key=lambda start: (not ratios[start] <= np.inf, ratios[start]))
    penalty, memory = worst
    tuned, untuned = found[worst]
    fine = sum(value <= LIMIT for value in ratios.values())
    place = f"penalty {penalty:g}, memory {memory:g}"
    met = f"{fine} of {len(ratios)}", verdict(ratios[worst], LIMIT)
    return [name, ratios[worst], place, tuned, untuned, best, *met]


def part_starts(names: list[str], limit: int, results: dict) -> Table:
    names = [name for name in names if here(name, limit) is not None]
    tasks = [(n, limit, {"penalty": p, "memory": m}) for n in names for p, m in STARTS]
    found: dict[str, dict] = {name: {} for name in names}
    rows = {}
    for (name, _, start), pair in in_parallel(losses, tasks):
        found[name][tuple(start.values())] = pair
        if len(found[name]) == len(STARTS):
            best = kept.river_best(reference(here(name, limit), results))
            rows[name] = starts_row(name, found[name], best)
            print(f"{name}: worst ratio {rows[name][1]:.4f}", flush=True)
    columns = ["stream", "worst ratio", "at", "ours", "untuned", "River's best", "starts met"]
    met = sum(row[-1] == MET for row in rows.values())
    return Table(
        f"From {len(STARTS)} starts: loss / the better of that start untuned and River's best",
        [*columns, "verdict"],
        [rows[name] for name in names],
        f"At most {LIMIT:g} from every start on {met} of {len(rows)} streams.",
    )
