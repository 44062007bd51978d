"""The findings of the experiment, from its table alone: two answers, then claims C1 and C2."""

import itertools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..._support.messages import counted
from ..framework import statistics
from ..framework.experiment import Texts
from ..framework.results import Answer, Claim, Figure, Findings, Series
from ..framework.statistics import Gain, mean_over_seeds, paired, readable, select, with_interval
from . import config as settings
from .config import CUTS, GRID, GROUP, PENALTIES, Config, Method, with_equal_weights

HEADINGS = {"never": "never cut", "changes": "cut at changes", "detected": "cut by detector"}
OPTIONS = ["cut", "u", "normalise", "follower", "curvature"]
NEAR = 1.0
"""X is an interval of length 10; a tenth of it is our reading of "comparable"."""
NEGLIGIBLE = 1e-3
"""A gain of less than this share of the regret counts as zero."""
NAMES_OF_CUTS = {"cuts": "cuts", "cuts_found": "changes found", "cuts_delay": "rounds late"}


def findings(config: Config, table: pd.DataFrame) -> Findings:
    """Return the content of the report."""
    texts = Texts(__file__, config=config)
    best = best_settings(table)
    order, chosen = window_order(config, best), least_regret(best)
    distances = offline_distances(table, chosen)
    memory, *windows = window_figures(config, texts, best)
    grid = statistics.summary(
        select(table, metric="stage_regret"), [*GROUP, "method", *GRID], "regret"
    )
    return Findings(
        answers=[tuning_answer(table), memory_answer(config, table, memory)],
        claims=[*order_claims(config, order), offline_claim(distances)],
        figures=[
            *stream_figures("trajectory", config, texts, table, best),
            *stream_figures("regret", config, texts, table, best),
            *windows,
            distance_figure(texts, table, chosen),
        ],
        tables=[
            texts.table("order", order, order=order_in_words(config)),
            texts.table("cuts", where_cut(table)),
            texts.table("definition", both_regrets(table, best)),
            texts.table("distance", distances),
            texts.table("grid", grid),
        ],
        paragraphs=list(explanation(config, texts, order)),
    )


def losses_on_streams(
    table: pd.DataFrame, methods: Mapping[str, Method]
) -> Iterator[tuple[Sequence[Hashable], dict[str, pd.Series]]]:
    """Yield each stream with the loss per round of methods, by seed."""
    losses = select(table, metric="tuning_loss")
    for group, _ in table[table.kind == "OAGD"].groupby(GROUP, sort=False):
        here = select(losses, **dict(zip(GROUP, group, strict=True))).set_index("seed")
        yield group, {name: here[here.method == m.label()].value for name, m in methods.items()}


def tuning_answer(table: pd.DataFrame) -> Answer:
    """Answer whether a learned penalty is better than a fixed one, and how near to the best."""
    texts, rows, gains, closed = Texts(__file__), [], [], []
    for group, loss in losses_on_streams(table, PENALTIES):
        fixed, learned, known = loss.values()
        gains.append(paired(fixed, learned))
        closed.append((fixed.mean() - learned.mean()) / (fixed.mean() - known.mean()))
        columns = {name: with_interval(values) for name, values in loss.items()}
        rows.append({"stream": stream_name(group)} | columns | {"gain": gains[-1].size})
    words = texts(
        "penalty_answer",
        lead=statistics.answer_words([gain.verdict for gain in gains], "stream"),
        gain=gains[0],
        size=statistics.plus_minus(abs(gains[0].mean), gains[0].half),
        stream=rows[0]["stream"],
        closed=closed[0],
    )
    stream = table[GROUP].iloc[0]
    curves = select(table, metric="tuning_regret", **stream)
    series = [
        curve(curves[curves.method == method.label()], name) for name, method in PENALTIES.items()
    ]
    figure = texts.figure("penalties", series, **stream)
    return Answer(
        texts("penalty_question"), words, texts.table("penalties", pd.DataFrame(rows)), figure
    )


def memory_answer(config: Config, table: pd.DataFrame, figure: Figure) -> Answer:
    """Answer whether the largest window is better than w = 1, for each way to cut it."""
    rows, gains, largest = [], {}, max(config.sizes())
    texts = Texts(__file__, largest=config.name_of(largest))
    methods = {cut: with_equal_weights(largest, cut) for cut in CUTS}
    for group, loss in losses_on_streams(
        table, methods | {"short": with_equal_weights(1, "never")}
    ):
        name, short = stream_name(group), loss.pop("short")
        if group[1] == 1:
            # One stage has no changes at which a window could be cut.
            loss["changes"] = loss["never"]
        gains[name] = {cut: paired(short, values) for cut, values in loss.items()}
        columns = {HEADINGS[cut]: with_interval(values) for cut, values in loss.items()}
        row = {"stream": name, "w = 1": with_interval(short)} | columns
        rows.append(row | {"gain": gains[name]["detected"].size})
    first, of = next(iter(gains.items()))
    changes = [
        f"{change_in_words(of[cut])} if {CUTS[cut]}" for cut in ("changes", "detected", "never")
    ]
    words = texts(
        "memory_answer",
        lead=statistics.answer_words(
            [each["changes"].verdict for each in gains.values()], "stream"
        ),
        changes=", ".join(changes),
        stream=first,
        basis=of["changes"].basis,
    )
    memory = texts.table("memory", pd.DataFrame(rows))
    return Answer("Does remembering more help?", words, memory, figure)


def change_in_words(gain: Gain) -> str:
    """Return `falls by 1.2 ± 0.3`, and whether that is within noise."""
    if not gain.seeds:
        return "was not measured"
    noise = " (within noise)" if gain.verdict == "within noise" else ""
    if gain.mean < 0:
        return f"rises by {Gain(-gain.mean, gain.half, gain.seeds).size}{noise}"
    return f"falls by {gain.size}{noise}"


def stream_name(group: Sequence[Hashable]) -> str:
    """Return the name of a stream for people, from the values of its columns."""
    scenario, stages, d1 = group
    return f"{scenario}, S = {stages}" + ("" if d1 == 1 else f", {d1} penalties")


def headline(table: pd.DataFrame) -> str:
    """Return the least regret of a part, for the progress bar."""
    regrets = table[table.metric == "stage_regret"]
    if regrets.empty:
        return ""
    least = regrets.groupby(GRID, dropna=False).value.mean().min()
    return f"{regrets.method.iloc[0]}: regret {readable(least)}"


def best_settings(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows, one for each seed, of the best setting of each method on each stream."""
    final = table[table.metric == "stage_regret"]
    return final.merge(statistics.best_of_grid(final, [*GROUP, "method"], GRID))


def least_regret(best: pd.DataFrame) -> pd.DataFrame:
    """Return the OAGD with the least mean regret on each stream: its method and setting."""
    return statistics.best_of_grid(best[best.kind == "OAGD"], GROUP, ["method", *GRID])


def window_order(config: Config, best: pd.DataFrame) -> pd.DataFrame:
    """Return regrets, gains and the verdict on the order for each combination of options."""
    oagd, rows = best[(best.kind == "OAGD") & best.w.isin(config.sizes())], []
    for group, in_group in oagd.groupby(GROUP, sort=False):
        several = in_group[in_group.w != 1]
        for options, chosen in several.groupby(OPTIONS, sort=False):
            # w = 1 has no options and belongs to every combination.
            of = {w: select(in_group if w == 1 else chosen, w=w) for w in config.sizes()}
            regrets = {config.name_of(w): one.set_index("seed").value for w, one in of.items()}
            row = dict(zip([*GROUP, *OPTIONS], [*group, *options], strict=True))
            row |= {f"regret w={w}": with_interval(values) for w, values in regrets.items()}
            steps = []
            for small, large in itertools.pairwise(regrets):
                gain = paired(regrets[small], regrets[large])
                row[f"gain {small} to {large}"] = gain.words()
                if abs(gain.mean) < NEGLIGIBLE * abs(regrets[large].mean()):
                    gain = Gain(0.0, 0.0, gain.seeds)
                steps.append(gain.verdict)
            rows.append(row | {"order": statistics.chain(steps)})
    return pd.DataFrame(rows)


def order_in_words(config: Config) -> str:
    """Return `w = T best, then 100, then 1` for the windows that were run."""
    sizes = ", then ".join(map(config.name_of, reversed(config.sizes())))
    return f"w = {sizes.replace(',', ' best,', 1)}"


def order_claims(config: Config, order: pd.DataFrame) -> Iterator[Claim]:
    """Yield claim C1 on every stream: for our reading of the paper, and for windows never cut."""
    texts = Texts(__file__, config=config, seeds=counted(config.seeds, "seed"))
    for group, rows in order.groupby(GROUP, sort=False):
        stream = dict(zip(GROUP, group, strict=True)) | {"order": order_in_words(config)}
        setting = texts("order_setting", **stream)
        reading = settings.as_we_read_the_paper(max(config.sizes()), group[1]).options()
        ours = select(rows, **{name: reading[name] for name in OPTIONS})
        never = select(rows.drop(ours.index), cut="never")
        for _, row in ours.iterrows():
            measured = row[rows.columns.str.startswith(("regret", "gain"))]
            words = ", ".join(f"{name}: {value}" for name, value in measured.items())
            yield texts.claim("order", words, row.order, f"{setting}; {texts('reading')}", **stream)
        if never.empty:
            continue
        named = "; ".join(
            f"u={r.u:g}, {r.normalise}, follower {r.follower}, {r.curvature}"
            for _, r in select(never, order="reproduced").iterrows()
        )
        counts = ", ".join(f"{verdict} in {n}" for verdict, n in never.order.value_counts().items())
        words = f"of {counted(len(never), 'combination')} of options: {counts}"
        words += f". Reproduced: {named}" if named else ""
        verdict, cut = statistics.combined(list(never.order)), ", never cut"
        yield texts.claim("order", words, verdict, setting, **stream, cut=cut)


def beside_offline(
    table: pd.DataFrame, chosen: pd.DataFrame
) -> Iterator[tuple[pd.Series, pd.DataFrame, pd.DataFrame, pd.DataFrame]]:
    """Yield each chosen method with its rows, those of the offline solution, and the gaps.

    The gaps are |x - x_offline| at the rounds of the offline solution, by seed and coordinate.
    """
    for _, one in chosen.iterrows():
        ours = table.merge(one.to_frame().T.astype(table[one.index].dtypes))
        offline = select(table, kind="offline", **one[GROUP])
        theirs = offline[offline.metric.str.startswith("x_")]
        gaps = [theirs[["seed", "t", "value"]].head(0)]
        for (seed, metric), rows in theirs.groupby(["seed", "metric"]):
            learned = select(ours, seed=seed, metric=metric).sort_values("t")
            gap = np.abs(np.interp(rows.t, learned.t, learned.value) - rows.value)
            gaps.append(rows[["seed", "t"]].assign(value=gap))
        yield one, ours, offline, pd.concat(gaps, ignore_index=True)


def offline_distances(table: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
    """Return how far the learned x is from the offline one, and whether that is near."""
    result = []
    for one, ours, offline, gap in beside_offline(table, chosen):
        later = gap[gap.t > gap.t.median()] if gap.t.nunique() > 1 else gap
        by_seed = later.groupby("seed").value.mean()
        result.append(
            {key: one[key] for key in [*GROUP, "method"]}
            | {
                "distance, first half": gap[~gap.index.isin(later.index)].value.mean(),
                "distance, later half": later.value.mean(),
                "distance at the end": gap[gap.t == gap.t.max()].value.mean(),
                "excess loss": later_excess(ours),
                "excess loss, offline": later_excess(offline),
                "near": Gain.of((NEAR - by_seed).to_numpy()).verdict,
            }
        )
    return pd.DataFrame(result)


def later_excess(rows: pd.DataFrame) -> float:
    """Return the mean excess loss over the later half of the rounds."""
    excess = rows[rows.metric == "excess"]
    return float(excess[excess.t > excess.t.max() / 2].value.mean())


def offline_claim(distances: pd.DataFrame) -> Claim:
    """Return claim C2 over all streams."""
    texts = Texts(__file__, near=NEAR)
    measured = "; ".join(
        f"{stream_name(list(r[GROUP]))}: {readable(r['distance, later half'])} "
        f"({r.near}), with excess loss {readable(r['excess loss'])} against "
        f"{readable(r['excess loss, offline'])}"
        for _, r in distances.iterrows()
    )
    measured = f"mean |x - x_offline| over the later half: {measured}"
    verdict = statistics.combined(list(distances.near))
    return texts.claim("offline", measured, verdict, texts("offline_setting"))


def explanation(config: Config, texts: Texts, order: pd.DataFrame) -> Iterator[str]:
    """Yield where the order holds, and the comparisons that show why."""
    holds, every = (
        rows.stages.value_counts() for rows in (order[order.order == "reproduced"], order)
    )
    counts = [f"S={s}: {holds.get(s, 0)} of {every[s]}" for s in sorted(every.index, reverse=True)]
    yield texts("order_holds", order=order_in_words(config), counts=", ".join(counts))
    for comparison in texts.templates["comparisons"]:
        chosen = select(order[order.curvature != "own"], d1=1, **comparison["options"])
        for _, row in chosen.iterrows():
            regrets = row.filter(like="regret w=").items()
            numbers = ", ".join(
                f"{str(name).removeprefix('regret ')} {value}" for name, value in regrets
            )
            yield f"{comparison['text']} (S={row.stages}, {row.scenario}): {numbers}."


def both_regrets(table: pd.DataFrame, best: pd.DataFrame) -> pd.DataFrame:
    """Return the stage regret of each method beside BD-Reg."""
    keys = [*GROUP, "method"]
    last = table[(table.metric == "bilevel_dynamic_regret") & (table.t == table.t.max())]
    stage = best.groupby(keys, sort=False).value.apply(with_interval).rename("stage regret")
    definition = last.groupby(keys, sort=False).value.apply(with_interval).rename("BD-Reg")
    return stage.to_frame().join(definition).fillna("-").reset_index()


def where_cut(table: pd.DataFrame) -> pd.DataFrame:
    """Return the cuts of each window. The table is empty if no detector was run."""
    rows = table[table.metric.isin(NAMES_OF_CUTS)]
    means = rows.groupby([*GROUP, "w", "metric"], sort=False).value.mean().unstack()
    columns = list(NAMES_OF_CUTS.values())
    return means.rename(columns=NAMES_OF_CUTS).reindex(columns=columns).reset_index()


def curve(rows: pd.DataFrame, label: str, **more: Any) -> Series:
    """Return the curve of a method. The oracle has the colour of the comparators that it plays."""
    kind, x, w = rows[["kind", "x", "w"]].iloc[0] if len(rows) else ("", None, None)
    kind = "comparators" if x == "oracle" else kind
    return mean_over_seeds(rows, label, kind=kind, w=None if pd.isna(w) else int(w), **more)


def best_curves(table: pd.DataFrame, metric: str, in_group: pd.DataFrame) -> list[Series]:
    """Return the curve of each method, with the setting that it was best with in its details."""
    chosen = statistics.best_of_grid(in_group, ["method"], [*GROUP, *GRID])
    every, curves = select(table, metric=metric).merge(chosen), []
    for label, setting in chosen.set_index("method").iterrows():
        alpha = "" if pd.isna(setting.alpha) else f", alpha = {setting.alpha:g}"
        details = f"{label}: K = {setting.K}{alpha}, beta = {setting.beta:g}"
        curves.append(curve(every[every.method == label], str(label), details=details))
    return curves


def stream_figures(
    name: str, config: Config, texts: Texts, table: pd.DataFrame, best: pd.DataFrame
) -> Iterator[Figure]:
    """Yield the paper's panels on every stream with one penalty: `regret`, or `trajectory` of x_1.

    The windows are those of our reading of the paper and the largest one cut by a detector: the
    regrets of windows that are never cut are so large that they would hide the others.
    """
    about = texts.templates["curves"][name]
    baselines = settings.BASELINES if name == "regret" else ()
    for group, in_group in best[best.d1 == 1].groupby(GROUP, sort=False):
        scenario, stages, _ = group
        windows = [settings.as_we_read_the_paper(size, stages) for size in config.sizes()]
        methods = [*baselines, *windows, with_equal_weights(max(config.sizes()), "detected")]
        shown = in_group[in_group.method.isin([method.label() for method in methods])]
        series = best_curves(table, about["metric"], shown)
        here = select(table, **dict(zip(GROUP, group, strict=True)))
        for kind, metric, label in about["others"]:
            rows = select(here, kind=kind, metric=metric)
            series.append(curve(rows, label, steps=kind == "comparators"))
        own_name = f"{name}-{scenario}-S{stages}"
        yield texts.figure(name, series, own_name, scenario=scenario, stages=stages)


def distance_figure(texts: Texts, table: pd.DataFrame, chosen: pd.DataFrame) -> Figure:
    """Return how far the learned x is from the offline one, over time, on every stream."""
    series = []
    for one, _, _, gap in beside_offline(table, chosen):
        label = f"{one.scenario}, S = {one.stages}, d1 = {one.d1}"
        series.append(mean_over_seeds(gap, label, details=f"{label}: {one.method}"))
    return texts.figure("distance", series)


def window_figures(config: Config, texts: Texts, best: pd.DataFrame) -> Iterator[Figure]:
    """Yield the regret against the size of the window, for each way to cut it."""
    sizes = sorted({config.size(window) for window in config.window_sizes})
    for scenario, in_scenario in best[best.d1 == 1].groupby("scenario", sort=False):
        series = []
        every = in_scenario.groupby("stages", sort=False)
        for (stages, in_group), (cut, words) in itertools.product(every, CUTS.items()):
            labels = [with_equal_weights(size, cut).label() for size in sizes]
            kept = in_group[in_group.method.isin(labels)]
            if set(kept.w) == set(sizes) and np.isfinite(kept.value).all():
                label = f"S = {stages}, {words}"
                series.append(mean_over_seeds(kept.assign(t=kept.w), label))
        yield texts.figure("windows", series, f"windows-{scenario}", scenario=scenario)
