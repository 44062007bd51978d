"""The findings of the experiment, from its table alone: two answers, then claims C1 and C2."""

import itertools
from collections.abc import Hashable, Iterator, Sequence

import pandas as pd

from ..._support.messages import counted
from ..framework.results import Answer, Claim, Figure, Findings, Table
from ..framework.statistics import (
    Gain,
    answer_words,
    chain,
    combined,
    paired,
    plus_minus,
    readable,
    with_interval,
)
from ..framework.table import best_of_grid, select, summary
from . import figures
from .config import (
    CUTS,
    GRID,
    GROUP,
    PENALTIES,
    QUESTION,
    Config,
    as_we_read_the_paper,
    methods_of_questions,
    with_equal_weights,
)

HEADINGS = {"never": "never cut", "changes": "cut at changes", "detected": "cut by detector"}

OPTIONS = ["cut", "u", "normalise", "follower", "curvature"]
READING = (
    "the window ends where a stage ends, equal weights over the rounds seen, the window reaches "
    "the follower: our reading of the sums over t = 1..T_s, chosen after 38 others had been tried"
)
NEAR = 1.0
"""X is an interval of length 10; a tenth of it is our reading of "comparable"."""
NEGLIGIBLE = 1e-3
"""A gain of less than this share of the regret counts as zero."""


def findings(config: Config, table: pd.DataFrame) -> Findings:
    """Return the content of the report."""
    best = best_settings(table)
    order = window_order(config, best)
    chosen = least_regret(best)
    distances = offline_distances(table, chosen)
    memory, *windows = figures.windows(config, best)
    return Findings(
        answers=[tuning_answer(table), memory_answer(config, table, memory)],
        claims=[*order_claims(config, order), offline_claim(distances)],
        figures=[
            *figures.trajectories(config, table, best),
            *figures.regrets(config, table, best),
            *windows,
            figures.distance(table, chosen),
        ],
        tables=[
            Table(
                "order",
                f"C1: does the regret fall with the window ({_order(config)})?",
                "Stage regret at the best grid setting of each method, and gains: paired "
                "differences over seeds, positive where the larger window is better; all with 95% "
                "t-intervals.",
                order,
            ),
            Table(
                "cuts",
                "Where the detector cut",
                "At the best grid setting of each window, means over seeds: cuts in a run, true "
                "changes that were followed by a cut within 100 rounds, and after how many "
                "rounds. The other cuts are false alarms.",
                _cuts(table),
            ),
            Table(
                "definition",
                "Stage regret beside BD-Reg",
                "At the best grid setting of each method: regret of the losses as suffered against "
                "the best pair of each stage, and the paper's BD-Reg, f_t(x_t, y*_t(x_t)) against "
                "the best x of every single round (one penalty only).",
                _both_regrets(table, best),
            ),
            Table(
                "distance",
                "C2: distance of x from the offline solution",
                "Mean over coordinates and seeds, for the OAGD with the least regret on each "
                "stream. The excess loss shows how much the distance matters: the extra loss per "
                "round over the best x of the stage in the later half, if the follower knew the "
                "whole stage.",
                distances,
            ),
            Table(
                "grid",
                "The whole grid",
                "Stage regret at the end for every setting: mean and standard deviation over "
                "seeds. Click a heading to sort.",
                summary(select(table, metric="stage_regret"), [*GROUP, "method", *GRID], "regret"),
            ),
        ],
        paragraphs=_explanation(config, order),
    )


def tuning_answer(table: pd.DataFrame) -> Answer:
    """Answer whether a learned penalty is better than a fixed one, and how near to the best."""
    losses = select(table, metric="tuning_loss")
    rows, gains, closed = [], [], []
    for group, _ in table[table.kind == "OAGD"].groupby(GROUP, sort=False):
        of = dict(zip(GROUP, group, strict=True))
        loss = {
            name: select(losses, method=method.label(), **of).set_index("seed").value
            for name, method in PENALTIES.items()
        }
        fixed, learned, known = loss.values()
        gains.append(paired(fixed, learned))
        closed.append((fixed.mean() - learned.mean()) / (fixed.mean() - known.mean()))
        columns = {name: with_interval(values) for name, values in loss.items()}
        rows.append({"stream": stream_name(group)} | columns | {"gain": gains[-1].size})
    lead, first = answer_words([gain.verdict for gain in gains], "stream"), gains[0]
    change = "lowers" if first.mean >= 0 else "raises"
    words = (
        f"{lead}: learning the penalty online {change} the loss per round by "
        f"{plus_minus(abs(first.mean), first.half)} against holding it at its start "
        f"({rows[0]['stream']}; {first.basis})"
    )
    if not gains[0].seeds:
        words = "Not tested here: not all three ways to choose a penalty were run"
    if 0 < closed[0] < 2:
        words += f", which closes {closed[0]:.0%} of the gap to the best penalty known in advance"
    return Answer(
        QUESTION,
        f"{words}.",
        Table(
            "penalties",
            "Loss suffered per round",
            "Mean over seeds with its 95% t-interval, at the best step sizes of the grid; the gain "
            "is that of learned over fixed, paired by seed. S is the number of true models in the "
            "stream. All three train the same ridge regression on one sample in each round.",
            pd.DataFrame(rows),
        ),
        figures.penalties(table),
    )


def memory_answer(config: Config, table: pd.DataFrame, figure: Figure) -> Answer:
    """Answer whether the largest window is better than w = 1, for each way to cut it."""
    largest = max(config.sizes())
    losses, rows, gains = select(table, metric="tuning_loss"), [], {}
    for group, _ in table[table.kind == "OAGD"].groupby(GROUP, sort=False):
        on_stream = select(losses, **dict(zip(GROUP, group, strict=True)))
        loss = {
            method: select(on_stream, method=method.label()).set_index("seed").value
            for method in methods_of_questions(config)
        }
        short, name = loss[with_equal_weights(1, "never")], stream_name(group)
        whole = {cut: loss[with_equal_weights(largest, cut)] for cut in CUTS}
        whole["changes"] = loss[as_we_read_the_paper(largest, group[1])]
        gains[name] = {cut: paired(short, values) for cut, values in whole.items()}
        columns = {HEADINGS[cut]: with_interval(values) for cut, values in whole.items()}
        gain = {"gain": gains[name]["detected"].size}
        rows.append({"stream": name, "w = 1": with_interval(short)} | columns | gain)
    lead = answer_words([each["changes"].verdict for each in gains.values()], "stream")
    first, of = next(iter(gains.items()))
    moved = ", ".join(
        f"{_change(of[cut])} if {CUTS[cut]}" for cut in ("changes", "detected", "never")
    )
    return Answer(
        "Does remembering more help?",
        f"{lead}, if the window ends where the world changes: with a window over "
        f"w = {config.name_of(largest)} rounds instead of 1 the loss per round "
        f"{moved} ({first}; {of['changes'].basis}).",
        Table(
            "memory",
            "Loss suffered per round, for each way to cut the window",
            "Mean over seeds with its 95% t-interval, at the best step sizes of the grid. "
            f"w = {config.name_of(largest)}: equal weights over all rounds since the last cut, on "
            "which the follower trains too. That the window ends with a stage is our reading of "
            "the paper, chosen after 38 others had been tried; the detector "
            "(obax.detectors.ScaleChange) only sees the losses. The gain is that of the detector's "
            "window over w = 1, paired by seed.",
            pd.DataFrame(rows),
        ),
        figure,
    )


def _change(gain: Gain) -> str:
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
    return final.merge(best_of_grid(final, [*GROUP, "method"], GRID))


def window_order(config: Config, best: pd.DataFrame) -> pd.DataFrame:
    """Return regrets, gains and the verdict on the order for each combination of options."""
    oagd = best[(best.kind == "OAGD") & best.w.isin(config.sizes())]
    rows = []
    for group, in_group in oagd.groupby(GROUP, sort=False):
        several = in_group[in_group.w != 1]
        for options, chosen in several.groupby(OPTIONS, sort=False):
            # w = 1 has no options and belongs to every combination.
            of = {w: select(in_group if w == 1 else chosen, w=w) for w in config.sizes()}
            regrets = {w: one.set_index("seed").value for w, one in of.items()}
            row = dict(zip(GROUP, group, strict=True)) | dict(zip(OPTIONS, options, strict=True))
            for w, values in regrets.items():
                row[f"regret w={config.name_of(w)}"] = with_interval(values)
            steps = []
            for small, large in itertools.pairwise(regrets):
                gain = paired(regrets[small], regrets[large])
                row[f"gain {config.name_of(small)} to {config.name_of(large)}"] = gain.words()
                if abs(gain.mean) < NEGLIGIBLE * abs(regrets[large].mean()):
                    gain = Gain(0.0, 0.0, gain.seeds)
                steps.append(gain.verdict)
            rows.append(row | {"order": chain(steps)})
    return pd.DataFrame(rows)


def _order(config: Config) -> str:
    """Return `w = T best, then 100, then 1` for the windows that were run."""
    largest, *others = map(config.name_of, reversed(config.sizes()))
    return ", ".join([f"w = {largest} best", *(f"then {w}" for w in others)])


def order_claims(config: Config, order: pd.DataFrame) -> Iterator[Claim]:
    """Yield claim C1 on each stream: in our reading of the paper, and for windows never cut.

    On a stream without changes, our reading is one of the windows that are never cut.
    """
    for (scenario, stages, d1), rows in order.groupby(GROUP, sort=False):
        group = "" if (scenario, d1) == ("paper", 1) else f" ({scenario}, d1={d1})"
        reading = as_we_read_the_paper(max(config.sizes()), stages).options()
        ours = select(rows, **{name: reading[name] for name in OPTIONS})
        never = rows[(rows.cut == "never") & ~rows.index.isin(ours.index)]
        fall = f"S={stages}: regret falls with the window, {_order(config)}"
        about = ("OAGD",)
        setting = (
            f"{scenario} scenario, S={stages}, d1={d1}, T={config.horizon}, best of the grid, "
            f"{counted(config.seeds, 'seed')}"
        )
        for _, row in ours.iterrows():
            measured = row[rows.columns.str.startswith(("regret", "gain"))]
            words = ", ".join(f"{name}: {value}" for name, value in measured.items())
            yield Claim(
                f"C1, S={stages}{group}", fall, words, row.order, f"{setting}; {READING}", about
            )
        counts = never.order.value_counts()
        named = "; ".join(
            f"u={r.u:g}, {r.normalise}, follower {r.follower}, {r.curvature}"
            for _, r in never[never.order == "reproduced"].iterrows()
        )
        if len(never):
            yield Claim(
                f"C1, S={stages}{group}, never cut",
                fall,
                f"of {counted(len(never), 'combination')} of options: "
                + ", ".join(f"{verdict} in {n}" for verdict, n in counts.items())
                + (f". Reproduced: {named}" if named else ""),
                combined(list(never.order)),
                setting,
                about,
            )


def least_regret(best: pd.DataFrame) -> pd.DataFrame:
    """Return the OAGD with the least mean regret on each stream: its method and setting."""
    return best_of_grid(best[best.kind == "OAGD"], GROUP, ["method", *GRID])


def offline_distances(table: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
    """Return how far the learned x is from the offline one, and whether that is near."""
    result = []
    for one, ours, offline, gap in figures.beside_offline(table, chosen):
        later = gap[gap.t > gap.t.median()] if gap.t.nunique() > 1 else gap
        by_seed = later.groupby("seed").value.mean()
        result.append(
            {key: one[key] for key in [*GROUP, "method"]}
            | {
                "distance, first half": gap[~gap.index.isin(later.index)].value.mean(),
                "distance, later half": later.value.mean(),
                "distance at the end": gap[gap.t == gap.t.max()].value.mean(),
                "excess loss": _later_excess(ours),
                "excess loss, offline": _later_excess(offline),
                "near": Gain.of((NEAR - by_seed).to_numpy()).verdict,
            }
        )
    return pd.DataFrame(result)


def _later_excess(rows: pd.DataFrame) -> float:
    """Return the mean excess loss over the later half of the rounds."""
    excess = rows[rows.metric == "excess"]
    return float(excess[excess.t > excess.t.max() / 2].value.mean())


def offline_claim(distances: pd.DataFrame) -> Claim:
    """Return claim C2 over all streams."""
    measured = "; ".join(
        f"{stream_name(list(r[GROUP]))}: {readable(r['distance, later half'])} "
        f"({r.near}), with excess loss {readable(r['excess loss'])} against "
        f"{readable(r['excess loss, offline'])}"
        for _, r in distances.iterrows()
    )
    return Claim(
        "C2",
        "the learned x_1 is close to offline hyperparameter optimisation",
        f"mean |x - x_offline| over the later half: {measured}",
        combined(list(distances.near)),
        f"OAGD with the least regret on each stream; close: within {NEAR:g}, where X is an "
        "interval of length 10",
        ("OAGD", "offline"),
    )


COMPARISONS = (
    ("changes", 1.0, "seen", "average", 3, "the window ends where the model changes"),
    ("detected", 1.0, "seen", "average", 3, "it ends where a detector says, which nobody tells"),
    ("never", 1.0, "seen", "average", 3, "it never ends: old models are averaged in"),
    ("never", 0.9, "seen", "average", 3, "the same, weights 0.9^i: 0.9^100 = 3e-5, w = T is 100"),
    ("never", 1.0, "seen", "average", 1, "no change, window reaches the follower"),
    ("detected", 1.0, "seen", "average", 1, "no change, but a detector that might see one"),
    ("never", 1.0, "full", "average", 1, "divided by the full weight: early steps are diluted"),
    ("never", 1.0, "seen", "current", 1, "no change, window reaches only the leader"),
)


def _explanation(config: Config, order: pd.DataFrame) -> list[str]:
    """Return where the order holds, and the comparisons that show why."""
    held = order[order.order == "reproduced"]
    counts = [
        f"S={stages}: {(held.stages == stages).sum()} of {(order.stages == stages).sum()}"
        for stages in sorted(order.stages.unique(), reverse=True)
    ]
    words = [
        f"The paper's order ({_order(config)}) holds beyond noise in these combinations of "
        f"options: {', '.join(counts)}. What the options do, by stage regret:"
    ]
    for cut, u, normalise, follower, stages, what in COMPARISONS:
        options = {"cut": cut, "u": u, "normalise": normalise, "follower": follower}
        chosen = select(order, stages=stages, d1=1, **options)
        regrets = chosen.filter(like="regret w=").columns
        for _, row in chosen[chosen.curvature != "own"].iterrows():
            numbers = ", ".join(f"{name[len('regret ') :]} {row[name]}" for name in regrets)
            words.append(f"{what} (S={stages}, {row.scenario}): {numbers}.")
    return words


def _both_regrets(table: pd.DataFrame, best: pd.DataFrame) -> pd.DataFrame:
    keys = [*GROUP, "method"]
    last = table[(table.metric == "bilevel_dynamic_regret") & (table.t == table.t.max())]
    stage = best.groupby(keys, sort=False).value.apply(with_interval).rename("stage regret")
    definition = last.groupby(keys, sort=False).value.apply(with_interval).rename("BD-Reg")
    return stage.to_frame().join(definition).fillna("-").reset_index()


def _cuts(table: pd.DataFrame) -> pd.DataFrame:
    """Return the cuts of each window. The table is empty if no detector was run."""
    names = {"cuts": "cuts", "cuts_found": "changes found", "cuts_delay": "rounds late"}
    rows = table[table.metric.isin(names)]
    keys = [*GROUP, "w"]
    means = rows.groupby([*keys, "metric"], sort=False).value.mean().unstack()
    return means.rename(columns=names).reindex(columns=[*names.values()]).reset_index()
