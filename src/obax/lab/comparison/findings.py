"""The findings of the comparison, from its table alone."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import pandas as pd

from ..._support.messages import counted
from ..framework.results import Answer, Figure, Findings, Series, Table
from ..framework.statistics import Gain, interval, mean_over_seeds, plus_minus, readable
from ..framework.table import best_of_grid, select, summary
from .config import BUDGETS, FIXED, METHODS, QUESTION, READY, REFERENCE, Config

OVER = 1.5
"""A method whose single step spends more than this many budgets is shown but not ranked."""
RUN, GRID = ["problem", "budget", "method"], ["alpha", "beta"]
TITLES = {"rounds": "One step per round, whatever it costs", "calls": "Equal oracle calls"}
AXES = {"rounds": "round t", "calls": "oracle calls, in gradients"}
SHOWN = 8
"""The number of methods in a figure: as many as can be told apart."""
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
    """Return the content of the report."""
    result = results(config, table)
    leading, *others = figures(config, table, result)
    return Findings(
        answers=[answer(config, result, leading)],
        claims=[],
        figures=others,
        tables=[
            Table(
                "ranks",
                "Ranks",
                "Rank by mean score over seeds among the methods within the budget; = marks a "
                "method whose 95% t-interval of the paired difference from the best contains "
                "zero; - marks one over the budget.",
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
        paragraphs=_explanation(config, result),
    )


def answer(config: Config, result: pd.DataFrame, figure: Figure) -> Answer:
    """Answer which method is best on each problem, by how much, and which others are as good."""
    rows, sentences = [], []
    asked_of = "calls" if "calls" in config.budgets else config.budgets[0]
    for (problem, budget), group in result[result.within].groupby(
        ["problem", "budget"], sort=False
    ):
        first = group.iloc[int(group.score.argmin())]
        fixed = group[group.method == FIXED]["values"]
        gain = Gain.of(fixed.iloc[0] - first["values"] if len(fixed) else [])
        ties = group[group.ties & (group.method != first.method)].method
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
            sentences.append(f"on {problem} {first.method}{also}{ahead}")
    return Answer(
        QUESTION,
        f"{TITLES[asked_of]}: "
        f"{'; '.join(sentences)} (95% intervals over {counted(config.seeds, 'seed')}).",
        Table(
            "best",
            "The best of each",
            "By score at the end; the least is best: "
            + "; ".join(f"{MEASURES[name]} ({name})" for name in dict.fromkeys(result.problem))
            + ". Mean over seeds with its 95% t-interval; as good: the interval of the paired "
            "difference contains zero.",
            pd.DataFrame(rows),
        ),
        figure,
    )


def headline(table: pd.DataFrame) -> str:
    """Return the least score of a part, for the progress bar."""
    last = table[table.budget == table.budget.iloc[-1]]
    least = last[last.metric == "score"].groupby(GRID, dropna=False).value.mean().min()
    return f"{table.problem.iloc[0]}, {table.method.iloc[0]}: {readable(least)}"


def results(config: Config, table: pd.DataFrame) -> pd.DataFrame:
    """Return the best setting of each method on each problem and budget: its score and cost."""
    rows = []
    best = best_of_grid(table[table.metric == "score"], RUN, GRID)
    for run, own in table.merge(best).groupby(RUN, sort=False):
        end = own[own.t == own.t.max()].groupby("metric").value
        last = end.mean()
        values = own[own.metric == "score"].sort_values("seed").value.to_numpy()
        mean, half = interval(values)
        calls = last["calls_curve"] / own.t.max()
        rows.append(
            dict(zip(RUN, run, strict=True))
            | {key: own[key].iloc[0] for key in GRID}
            | {
                "values": values,
                "score": mean,
                "half": half,
                "stationarity": last.get("stationarity_curve", np.nan),
                "repeats": int(last["repeats"]),
                "calls": calls,
                "seconds": last["seconds_per_round"],
                "share": calls / config.calls if run[1] == "calls" else np.nan,
                "rejected": int(end.sum()["rejected"]),
            }
        )
    return ranked(pd.DataFrame(rows))


def ranked(result: pd.DataFrame) -> pd.DataFrame:
    """Return the results with ranks, and whether a method is as good as the best."""
    parts = []
    for _, group in result.groupby(["problem", "budget"], sort=False):
        group = group.copy()
        group["within"] = ~(group.share > OVER)
        inside = group[group.within]
        group["rank"] = inside.score.rank(method="min")
        best = inside["values"].iloc[int(inside.score.argmin())]
        gains = [Gain.of(own - best) for own in group["values"]]
        ties = [np.isfinite(gain.mean) and gain.verdict == "within noise" for gain in gains]
        group["ties"] = group.within & np.asarray(ties)
        parts.append(group)
    return pd.concat(parts, ignore_index=True)


def ranks(result: pd.DataFrame) -> pd.DataFrame:
    """Return the ranks of methods by problem and budget, with the mean rank for each budget."""
    table: dict[str, dict[str, object]] = {}
    for row in result.itertuples():
        mark = "-" if not row.within else f"{row.rank:.0f}" + (" =" if row.ties else "")
        table.setdefault(str(row.method), {})[f"{row.problem}, {row.budget}"] = mark
    frame = pd.DataFrame.from_dict(table, orient="index")
    for budget in dict.fromkeys(result.budget):
        group = result[result.budget == budget]
        frame[f"mean rank, {budget}"] = group.groupby("method")["rank"].mean().round(2)
    return frame.rename_axis("method").reset_index()


def _budget_table(budget: str, result: pd.DataFrame) -> Table:
    group = result[result.budget == budget]
    frame = pd.DataFrame(
        {
            "problem": group.problem,
            "method": group.method,
            "measure": group.problem.map(MEASURES),
            "score": [plus_minus(*pair) for pair in zip(group.score, group.half, strict=True)],
            "rank": group["rank"],
            "as good as the best": group.ties,
            "stationarity": group.stationarity,
            "alpha": group.alpha,
            "beta": group.beta,
            "times per round": group.repeats,
            "calls per round": group.calls.round(1),
            "us per round": 1e6 * group.seconds,
            "of the budget": group.share,
            "rounds rejected": group.rejected,
        }
    )
    return Table(
        budget,
        TITLES[budget],
        "Best setting of the grid for each method; mean over seeds with the half-width of its 95% "
        "t-interval. Stationarity is the "
        + "; ".join(f"{measure} ({problem})" for problem, measure in STATIONARITY.items())
        + " of the same run. Step sizes are multiplied by the problem's own scale.",
        frame.sort_values(["problem", "rank"], kind="stable"),
    )


def _explanation(config: Config, result: pd.DataFrame) -> list[str]:
    words = [
        "A budget is spent by playing a round again: a method whose step costs c calls plays each "
        f"round the nearest whole number to {config.calls:g} / c times, at least once and at most "
        f"{config.max_repeats}. A Hessian-vector product counts {config.hvp_cost:g} gradients, a "
        f"cross product {config.cross_cost:g}, a function value {config.evaluation_cost:g}. Times "
        "are those of the compiled scan of one run. Regrets are those of the decisions when a "
        "round arrives for the first time.",
        f"Windows have {config.window} steps with weights {config.decay:g}^i, divided by the "
        "weight seen; they were not tuned. OGD holds x at its start and is a baseline, not a "
        "competitor.",
    ]
    missing = [name for name in config.problems if name not in set(result.problem)]
    if missing:
        words.append(
            f"Left out, because the data is not on this machine: {', '.join(missing)}. Set "
            "OBAX_DATA to the folder with its files."
        )
    for (problem, budget), group in result[~result.within].groupby(
        ["problem", "budget"], sort=False
    ):
        words.append(f"{problem}, {budget}: over the budget are {', '.join(group.method)}.")
    rejected = result[result.rejected > 0]
    if len(rejected):
        listed = ", ".join(
            f"{r.method} on {r.problem} ({r.budget}, {r.rejected})" for r in rejected.itertuples()
        )
        words.append(
            f"Rounds rejected because they were not finite, at the best setting: {listed}."
        )
    return words


def figures(config: Config, table: pd.DataFrame, result: pd.DataFrame) -> Iterator[Figure]:
    """Yield scores and local regrets against oracle calls, then scores against rounds."""
    # Equal work comes first, because the question is about it.
    fair = result.sort_values("budget", key=lambda column: column != "calls", kind="stable")
    for (problem, budget), group in fair.groupby(["problem", "budget"], sort=False):
        yield _figure(config, table, group, str(problem), str(budget), "score")
        if budget == "calls" and group.stationarity.notna().any():
            yield _figure(config, table, group, str(problem), "calls", "stationarity")


def _figure(
    config: Config, table: pd.DataFrame, group: pd.DataFrame, problem: str, budget: str, name: str
) -> Figure:
    best, title = group.nsmallest(SHOWN, name), TITLES[budget].partition(",")[0].lower()
    series = [
        _series(config, table, chosen, f"{name}_curve", budget) for _, chosen in best.iterrows()
    ]
    return Figure(
        f"{name}-{problem}-{budget}",
        f"{problem}: {'stationarity, ' if name == 'stationarity' else ''}{title}",
        AXES[budget],
        f"cumulative {name}",
        series,
        f"The {len(series)} methods with the lowest ends, at the best setting of each.",
        log_y=all(min(one.mean) > 0 for one in series),
    )


def _series(
    config: Config, table: pd.DataFrame, chosen: pd.Series, metric: str, budget: str
) -> Series:
    """Return the curve of a method over rounds or oracle calls."""
    names = ("problem", "budget", "method")
    own = select(table, **{name: chosen[name] for name in names})
    alpha = "" if pd.isna(chosen.alpha) else f"alpha = {chosen.alpha:g}, "
    details = f"{chosen.method}: {alpha}beta = {chosen.beta:g}, {chosen.repeats} x per round"
    curve = mean_over_seeds(
        own[own.metric == metric],
        chosen.method,
        kind=METHODS[chosen.method],
        w=1 if chosen.method == REFERENCE else config.window,
        details=details,
    )
    if budget == "calls":
        spent = own[own.metric == "calls_curve"].groupby("t").value.mean()
        return dataclasses.replace(curve, x=spent.loc[list(curve.x)].tolist())
    return curve
