"""What the table of the comparison says. Reads the table only."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import pandas as pd

from ..._support.counting import counted
from ..kit.curves import band
from ..kit.numbers import plus_minus, readable
from ..kit.table import best_of_grid, select, summary
from ..kit.verdict import Gain, interval
from ..report import Answer, Figure, Findings, Series, Table
from .config import BUDGETS, FIXED, QUESTION, READY, REFERENCE, Config

OVER = 1.5
"""A method that cannot help spending more than this many budgets is shown but not ranked."""
RUN, GRID = ["problem", "budget", "method"], ["alpha", "beta"]
TITLES = {
    "rounds": "One step per round, whatever it costs",
    "calls": "Equal oracle calls",
    "seconds": "Equal wall-clock",
}
SHOWN = 8
"""Of methods in a figure: as many as can be told apart."""
AXES = {"rounds": "round t", "calls": "oracle calls, in gradients", "seconds": "seconds"}
MEASURES = {
    "quadratic": "BD-Reg, exact",
    "constrained": "BD-Reg, exact",
    "regression": "stage regret of the losses suffered",
    "network": "loss suffered, summed",
    "adult": "balanced loss suffered, summed",
} | dict.fromkeys(READY, "loss of the decisions once the follower has answered, summed")
STATIONARITY = {
    "quadratic": "local regret",
    "constrained": "projected-gradient regret",
    "network": "local regret",
}


def findings(config: Config, table: pd.DataFrame) -> Findings:
    """Everything that the report shows."""
    result = results(config, table)
    leading, *others = figures(table, result)
    return Findings(
        answers=[answer(config, result, leading)],
        claims=[],
        figures=others,
        tables=[
            Table(
                "ranks",
                "Ranks",
                "Rank by mean score over seeds, of those within the budget; = marks a method whose "
                "95% t-interval of the paired difference from the best holds zero; - one over "
                "budget.",
                ranks(result),
            ),
            *(_budget_table(budget, result) for budget in BUDGETS if budget in config.budgets),
            Table(
                "grid",
                "The whole grid",
                "Score at the end for every setting: mean and standard deviation over seeds.",
                summary(table[table.metric == "score"], [*RUN, *GRID], "score"),
            ),
        ],
        paragraphs=_words(config, result),
    )


def answer(config: Config, result: pd.DataFrame, figure: Figure) -> Answer:
    """Who is best on each problem, how far ahead of learning nothing, and who is as good."""
    rows, said = [], []
    asked_of = "calls" if "calls" in config.budgets else config.budgets[0]
    for (problem, budget), here in result[result.within].groupby(["problem", "budget"], sort=False):
        first = here.iloc[int(here.score.argmin())]
        fixed = here[here.method == FIXED]["values"]
        gain = Gain.of(fixed.iloc[0] - first["values"] if len(fixed) else [])
        ties = here[here.ties & (here.method != first.method)].method
        named = ", ".join(ties) if len(ties) < 4 else f"{len(ties)} others"
        rows.append(
            {
                "problem": problem,
                "budget": budget,
                "best": first.method,
                "score": plus_minus(first.score, first.half),
                "gain over a fixed x": gain.words(),
                "as good": named or "none",
            }
        )
        if budget == asked_of:
            also = f" (as good: {named})" if named else ""
            noise = ", within noise" if gain.verdict == "within noise" else ""
            ahead = f", {gain.size} below a fixed x{noise}" if len(fixed) else ""
            said.append(f"on {problem} {first.method}{also}{ahead}")
    return Answer(
        QUESTION,
        f"{TITLES[asked_of]}: "
        f"{'; '.join(said)} (95% intervals over {counted(config.seeds, 'seed')}).",
        Table(
            "best",
            "The best of each",
            "By score at the end, least is best: "
            + "; ".join(f"{MEASURES[name]} ({name})" for name in dict.fromkeys(result.problem))
            + ". Mean over seeds with its 95% t-interval; as good: the interval of the paired "
            "difference holds zero.",
            pd.DataFrame(rows),
        ),
        figure,
    )


def headline(table: pd.DataFrame) -> str:
    """The figure to show while running: what the method just done has reached."""
    last = table[table.budget == table.budget.iloc[-1]]
    least = last[last.metric == "score"].groupby(GRID, dropna=False).value.mean().min()
    return f"{table.problem.iloc[0]}, {table.method.iloc[0]}: {readable(least)}"


def results(config: Config, table: pd.DataFrame) -> pd.DataFrame:
    """One row for each problem, budget and method: its best setting, what it reached and spent."""
    found = []
    best = best_of_grid(table[table.metric == "score"], RUN, GRID)
    for run, mine in table.merge(best).groupby(RUN, sort=False):
        end = mine[mine.t == mine.t.max()].groupby("metric").value
        last = end.mean()
        values = mine[mine.metric == "score"].sort_values("seed").value.to_numpy()
        mean, half = interval(values)
        calls = last["calls_curve"] / mine.t.max()
        # Of the budget, whichever it is.
        share = {"calls": calls / config.calls, "seconds": last["seconds_share"]}
        found.append(
            dict(zip(RUN, run, strict=True))
            | {key: mine[key].iloc[0] for key in GRID}
            | {
                "values": values,
                "score": mean,
                "half": half,
                "stationarity": last.get("stationarity_curve", np.nan),
                "repeats": int(last["repeats"]),
                "calls": calls,
                "seconds": last["seconds_per_round"],
                "share": share.get(str(run[1]), np.nan),
                "rejected": int(end.sum()["rejected"]),
            }
        )
    return _ranked(pd.DataFrame(found))


def _ranked(result: pd.DataFrame) -> pd.DataFrame:
    """With ranks, and whether a method is as good as the best."""
    parts = []
    for _, here in result.groupby(["problem", "budget"], sort=False):
        here = here.copy()
        here["within"] = ~(here.share > OVER)
        inside = here[here.within]
        here["rank"] = inside.score.rank(method="min")
        best = inside["values"].iloc[int(inside.score.argmin())]
        gains = [Gain.of(mine - best) for mine in here["values"]]
        ties = [np.isfinite(gain.mean) and gain.verdict == "within noise" for gain in gains]
        here["ties"] = here.within & np.asarray(ties)
        parts.append(here)
    return pd.concat(parts, ignore_index=True)


def ranks(result: pd.DataFrame) -> pd.DataFrame:
    """Methods against problems and budgets, and the mean rank under each budget."""
    table: dict[str, dict[str, object]] = {}
    for row in result.itertuples():
        mark = "-" if not row.within else f"{row.rank:.0f}" + (" =" if row.ties else "")
        table.setdefault(str(row.method), {})[f"{row.problem}, {row.budget}"] = mark
    frame = pd.DataFrame.from_dict(table, orient="index")
    for budget in dict.fromkeys(result.budget):
        here = result[result.budget == budget]
        frame[f"mean rank, {budget}"] = here.groupby("method")["rank"].mean().round(2)
    return frame.rename_axis("method").reset_index()


def _budget_table(budget: str, result: pd.DataFrame) -> Table:
    here = result[result.budget == budget]
    frame = pd.DataFrame(
        {
            "problem": here.problem,
            "method": here.method,
            "measure": here.problem.map(MEASURES),
            "score": [plus_minus(*pair) for pair in zip(here.score, here.half, strict=True)],
            "rank": here["rank"],
            "as good as the best": here.ties,
            "stationarity": here.stationarity,
            "alpha": here.alpha,
            "beta": here.beta,
            "times per round": here.repeats,
            "calls per round": here.calls.round(1),
            "us per round": 1e6 * here.seconds,
            "of the budget": here.share,
            "rounds rejected": here.rejected,
        }
    )
    return Table(
        budget,
        TITLES[budget],
        "Best setting of the grid for each method; mean over seeds with the half-width of its 95% "
        "t-interval. Stationarity is the "
        + "; ".join(f"{measure} ({problem})" for problem, measure in STATIONARITY.items())
        + " of the same run. Step sizes before the problem's own scale.",
        frame.sort_values(["problem", "rank"], kind="stable"),
    )


def _words(config: Config, result: pd.DataFrame) -> list[str]:
    words = [
        "A budget is spent by playing a round again: a method whose step costs c calls plays each "
        f"round the nearest whole number to {config.calls:g} / c times, at least once and at most "
        f"{config.max_repeats}. A Hessian-vector product counts {config.hvp_cost:g} gradients, a "
        f"cross product {config.cross_cost:g}, a function value {config.evaluation_cost:g}. Equal "
        f"seconds: as long as {REFERENCE} takes for {config.calls:g} calls, measured on the "
        "compiled scan of one run, each method beside the reference; timings, and with them the "
        "number of repeats, differ from machine to machine. Regrets are of the decisions as they "
        "stood when a round arrived for the first time.",
        f"Windows are of {config.window} steps, weights {config.decay:g}^i, divided by the weight "
        "seen; they were not tuned. OGD holds x at its start and is no rival but a base line.",
    ]
    missing = [name for name in config.problems if name not in set(result.problem)]
    if missing:
        words.append(
            f"Left out, because the data is not at hand: {', '.join(missing)}. Set OBAX_DATA to "
            "the folder with its files."
        )
    for (problem, budget), here in result[~result.within].groupby(
        ["problem", "budget"], sort=False
    ):
        words.append(f"{problem}, {budget}: over the budget are {', '.join(here.method)}.")
    rejected = result[result.rejected > 0]
    if len(rejected):
        listed = ", ".join(
            f"{r.method} on {r.problem} ({r.budget}, {r.rejected})" for r in rejected.itertuples()
        )
        words.append(f"Rounds rejected by the guard at the best setting: {listed}.")
    return words


def figures(table: pd.DataFrame, result: pd.DataFrame) -> Iterator[Figure]:
    """Scores against calls, rounds and seconds; local regrets where there are any."""
    # Equal work is what is asked about: it comes first.
    fair = result.sort_values("budget", key=lambda column: column != "calls", kind="stable")
    for (problem, budget), here in fair.groupby(["problem", "budget"], sort=False):
        yield _figure(table, here, str(problem), str(budget), "score")
        # Local regrets once, under the budget of equal calls.
        if budget == "calls" and here.stationarity.notna().any():
            yield _figure(table, here, str(problem), "calls", "stationarity")


def _figure(
    table: pd.DataFrame, here: pd.DataFrame, problem: str, budget: str, name: str
) -> Figure:
    best, title = here.nsmallest(SHOWN, name), TITLES[budget].partition(",")[0].lower()
    series = [_series(table, chosen, f"{name}_curve", budget) for _, chosen in best.iterrows()]
    return Figure(
        f"{name}-{problem}-{budget}",
        f"{problem}: {'stationarity, ' if name == 'stationarity' else ''}{title}",
        AXES[budget],
        f"cumulative {name}",
        series,
        f"The {len(series)} methods that end lowest, at the best setting of each.",
        log_y=all(min(one.mean) > 0 for one in series),
    )


def _series(table: pd.DataFrame, chosen: pd.Series, metric: str, budget: str) -> Series:
    """A curve over what the budget counts."""
    names = ("problem", "budget", "method")
    mine = select(table, **{name: chosen[name] for name in names})
    alpha = "" if pd.isna(chosen.alpha) else f"alpha = {chosen.alpha:g}, "
    hover = f"{chosen.method}: {alpha}beta = {chosen.beta:g}, {chosen.repeats} x per round"
    curve = band(mine[mine.metric == metric], chosen.method, hover=hover)
    if budget == "calls":
        spent = mine[mine.metric == "calls_curve"].groupby("t").value.mean()
        return dataclasses.replace(curve, x=spent.loc[list(curve.x)].tolist())
    if budget == "seconds":
        return dataclasses.replace(curve, x=[t * chosen.seconds for t in curve.x])
    return curve
