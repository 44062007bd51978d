"""The findings of the comparison, from its table alone."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import pandas as pd

from ..._support.messages import counted
from ..framework import statistics
from ..framework.experiment import Texts
from ..framework.results import Answer, Figure, Findings, Series, Table
from .config import BUDGETS, FIXED, METHODS, REFERENCE, Config

OVER = 1.5
"""A method whose single step spends more than this many budgets is shown but not ranked."""
CASE, RUN, GRID = ["problem", "budget"], ["problem", "budget", "method"], ["alpha", "beta"]
TITLES = {"rounds": "One step per round, whatever it costs", "calls": "Equal oracle calls"}
AXES = {"rounds": "round t", "calls": "oracle calls, in gradients"}
SHOWN = 8
"""The number of methods in a figure: as many as can be told apart."""


def findings(config: Config, table: pd.DataFrame) -> Findings:
    """Return the content of the report."""
    texts = Texts(__file__, config=config, titles=TITLES, seeds=counted(config.seeds, "seed"))
    result = results(config, table)
    leading, *others = figures(config, texts, table, result)
    grid = statistics.summary(table[table.metric == "score"], [*RUN, *GRID], "score")
    return Findings(
        answers=[answer(config, texts, result, leading)],
        claims=[],
        figures=others,
        tables=[
            texts.table("ranks", ranks(result)),
            *(budget_table(b, texts, result) for b in BUDGETS if b in config.budgets),
            texts.table("grid", grid),
        ],
        paragraphs=[*texts.paragraphs(), *left_out(config, texts, result)],
    )


def answer(config: Config, texts: Texts, result: pd.DataFrame, figure: Figure) -> Answer:
    """Answer which method is best on each problem, by how much, and which others are as good."""
    rows, sentences = [], []
    budget_of_answer = "calls" if "calls" in config.budgets else config.budgets[0]
    for (problem, budget), group in result[result.within].groupby(CASE, sort=False):
        first = group.iloc[int(group.score.argmin())]
        fixed = group[group.method == FIXED]["values"]
        gain = statistics.Gain.of(fixed.iloc[0] - first["values"] if len(fixed) else [])
        ties = group[group.ties & (group.method != first.method)].method
        named = ", ".join(ties) if len(ties) < 4 else f"{len(ties)} others"
        rows.append(
            {
                "problem": problem,
                "budget": budget,
                "best": first.method,
                "score": statistics.plus_minus(first.score, first.half),
                "gain over a fixed x": gain.words(),
                "as good": named or "none",
            }
        )
        if budget == budget_of_answer:
            also = f" (as good: {named})" if named else ""
            noise = ", within noise" if gain.verdict == "within noise" else ""
            ahead = f", {gain.size} below a fixed x{noise}" if len(fixed) else ""
            sentences.append(f"on {problem} {first.method}{also}{ahead}")
    words = texts("answer", budget=budget_of_answer, sentences="; ".join(sentences))
    problems, measures = list(dict.fromkeys(result.problem)), texts.templates["measures"]
    best = texts.table("best", pd.DataFrame(rows), problems=problems, measures=measures)
    return Answer(texts("question"), words, best, figure)


def headline(table: pd.DataFrame) -> str:
    """Return the least score of a part, for the progress bar."""
    last = table[table.budget == table.budget.iloc[-1]]
    least = last[last.metric == "score"].groupby(GRID, dropna=False).value.mean().min()
    return f"{table.problem.iloc[0]}, {table.method.iloc[0]}: {statistics.readable(least)}"


def results(config: Config, table: pd.DataFrame) -> pd.DataFrame:
    """Return the best setting of each method on each problem and budget: its score and cost."""
    rows = []
    best = statistics.best_of_grid(table[table.metric == "score"], RUN, GRID)
    for run, own in table.merge(best).groupby(RUN, sort=False):
        end = own[own.t == own.t.max()].groupby("metric").value
        last, values = end.mean(), own[own.metric == "score"].sort_values("seed").value.to_numpy()
        calls = last["calls_curve"] / own.t.max()
        rows.append(
            dict(own.iloc[0][[*RUN, *GRID]])
            | dict(zip(("score", "half"), statistics.interval(values), strict=True))
            | {
                "values": values,
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
    for _, group in result.groupby(CASE, sort=False):
        within = ~(group.share > OVER)
        inside = group[within]
        best = inside["values"].iloc[int(inside.score.argmin())]
        gains = [statistics.Gain.of(own - best) for own in group["values"]]
        ties = [np.isfinite(gain.mean) and gain.verdict == "within noise" for gain in gains]
        rank = inside.score.rank(method="min")
        parts.append(group.assign(within=within, rank=rank, ties=within & np.asarray(ties)))
    return pd.concat(parts, ignore_index=True)


def ranks(result: pd.DataFrame) -> pd.DataFrame:
    """Return the ranks of methods by problem and budget, with the mean rank for each budget."""
    table: dict[str, dict[str, object]] = {}
    for row in result.itertuples():
        mark = "-" if not row.within else f"{row.rank:.0f}" + (" =" if row.ties else "")
        table.setdefault(str(row.method), {})[f"{row.problem}, {row.budget}"] = mark
    frame = pd.DataFrame.from_dict(table, orient="index")
    for budget, group in result.groupby("budget", sort=False):
        frame[f"mean rank, {budget}"] = group.groupby("method")["rank"].mean().round(2)
    return frame.rename_axis("method").reset_index()


def budget_table(budget: str, texts: Texts, result: pd.DataFrame) -> Table:
    """Return the score and cost of every method under a budget."""
    group = result[result.budget == budget]
    frame = pd.DataFrame(
        {
            "problem": group.problem,
            "method": group.method,
            "measure": group.problem.map(texts.templates["measures"]),
            "score": list(map(statistics.plus_minus, group.score, group.half)),
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
    caption = texts("budget_caption", stationarity=texts.templates["stationarity"])
    frame = frame.sort_values(["problem", "rank"], kind="stable")
    return texts.table(budget, frame, budget_caption=caption)


def left_out(config: Config, texts: Texts, result: pd.DataFrame) -> Iterator[str]:
    """Yield which problems, methods and rounds do not count."""
    missing = [name for name in config.problems if name not in set(result.problem)]
    if missing:
        yield texts("left_out", missing=", ".join(missing))
    for (problem, budget), group in result[~result.within].groupby(CASE, sort=False):
        yield texts("over", problem=problem, budget=budget, methods=", ".join(group.method))
    rejected = result[result.rejected > 0].itertuples()
    listed = [f"{r.method} on {r.problem} ({r.budget}, {r.rejected})" for r in rejected]
    if listed:
        yield texts("rejected", listed=", ".join(listed))


def figures(
    config: Config, texts: Texts, table: pd.DataFrame, result: pd.DataFrame
) -> Iterator[Figure]:
    """Yield scores and local regrets against oracle calls, then scores against rounds."""
    # Equal work comes first, because the question is about it.
    fair = result.sort_values("budget", key=lambda column: column != "calls", kind="stable")
    for (problem, budget), group in fair.groupby(CASE, sort=False):
        has_both = budget == "calls" and group.stationarity.notna().any()
        for name in ("score", "stationarity") if has_both else ("score",):
            best = group[group.within].nsmallest(SHOWN, name)
            series = [curve(config, table, one, f"{name}_curve") for _, one in best.iterrows()]
            yield texts.figure(
                name,
                series,
                f"{name}-{problem}-{budget}",
                problem=problem,
                budget_title=TITLES[str(budget)].partition(",")[0].lower(),
                axis=AXES[str(budget)],
                count=len(series),
                log="yes" if all(min(one.mean) > 0 for one in series) else "",
            )


def curve(config: Config, table: pd.DataFrame, chosen: pd.Series, metric: str) -> Series:
    """Return the curve of a method over rounds or oracle calls."""
    own = statistics.select(table, **{name: chosen[name] for name in RUN})
    alpha = "" if pd.isna(chosen.alpha) else f"alpha = {chosen.alpha:g}, "
    over_rounds = statistics.mean_over_seeds(
        own[own.metric == metric],
        chosen.method,
        kind=METHODS[chosen.method],
        w=1 if chosen.method == REFERENCE else config.window,
        details=f"{chosen.method}: {alpha}beta = {chosen.beta:g}, {chosen.repeats} x per round",
    )
    if chosen.budget == "rounds":
        return over_rounds
    spent = own[own.metric == "calls_curve"].groupby("t").value.mean()
    return dataclasses.replace(over_rounds, x=spent.loc[list(over_rounds.x)].tolist())
