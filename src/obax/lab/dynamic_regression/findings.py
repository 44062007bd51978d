"""What the table of the experiment says: two answers, then claims C1 and C2, figures, words. Reads
the table only."""

import itertools
from collections.abc import Iterator

import pandas as pd

from ..._support.counting import counted
from ..kit.numbers import readable
from ..kit.table import best_of_grid, select, summary
from ..kit.verdict import Gain, chain, combined, paired, with_interval
from ..report import Claim, Findings, Table
from . import figures
from .answers import remembering, stream_name, tuning
from .config import GRID, GROUP, Config, as_read

OPTIONS = ["cut", "u", "normalise", "follower", "curvature"]
READING = (
    "the window ends where a stage ends, equal weights over the rounds seen, the window reaches "
    "the follower: our reading of the sums over t = 1..T_s, chosen after 38 others had been tried"
)
NEAR = 1.0
"""X is ten wide; a tenth of it is our reading of "comparable"."""
NEGLIGIBLE = 1e-3
"""A gain of less than this share of the regret itself is none."""


def findings(config: Config, table: pd.DataFrame) -> Findings:
    """Everything that the report shows."""
    best = best_settings(table)
    order = window_order(config, best)
    chosen = least_regret(best)
    distances = offline_distances(table, chosen)
    memory, *windows = figures.windows(config, best)
    return Findings(
        answers=[tuning(table), remembering(config, table, memory)],
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
                "At the best grid setting of each window, means over seeds: cuts in a run, how "
                "many of the true changes one followed within 100 rounds, and after how many "
                "rounds; the other cuts are false alarms.",
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
                "Mean over coordinates and seeds, for the OAGD with least regret in each group. "
                "The excess loss is what x costs per round over the best x of the stage, if the "
                "follower knew the whole stage, over the later half: how much the distance "
                "matters.",
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


def headline(table: pd.DataFrame) -> str:
    """The figure to show while running: the least regret of the part just done."""
    regrets = table[table.metric == "stage_regret"]
    if regrets.empty:
        return ""
    least = regrets.groupby(GRID, dropna=False).value.mean().min()
    return f"{regrets.method.iloc[0]}: regret {readable(least)}"


def best_settings(table: pd.DataFrame) -> pd.DataFrame:
    """For each group and method the setting with the least mean regret; one row for each seed."""
    final = table[table.metric == "stage_regret"]
    return final.merge(best_of_grid(final, [*GROUP, "method"], GRID))


def window_order(config: Config, best: pd.DataFrame) -> pd.DataFrame:
    """For each combination of options: regret for each window, gains, whether the order holds."""
    oagd = best[(best.kind == "OAGD") & best.w.isin(config.sizes())]
    rows = []
    for group, in_group in oagd.groupby(GROUP, sort=False):
        several = in_group[in_group.w != 1]
        for options, chosen in several.groupby(OPTIONS, sort=False):
            # w = 1 has no options and stands in every combination.
            of = {w: select(in_group if w == 1 else chosen, w=w) for w in config.sizes()}
            regrets = {w: one.set_index("seed").value for w, one in of.items()}
            row = dict(zip(GROUP, group, strict=True)) | dict(zip(OPTIONS, options, strict=True))
            for w, values in regrets.items():
                row[f"regret w={config.named(w)}"] = with_interval(values)
            steps = []
            for small, large in itertools.pairwise(regrets):
                gain = paired(regrets[small], regrets[large])
                row[f"gain {config.named(small)} to {config.named(large)}"] = gain.words()
                if abs(gain.mean) < NEGLIGIBLE * abs(regrets[large].mean()):
                    gain = Gain(0.0, 0.0, gain.seeds)
                steps.append(gain.verdict)
            rows.append(row | {"order": chain(steps)})
    return pd.DataFrame(rows)


def _order(config: Config) -> str:
    """`w = T best, then 100, then 1`, for the windows that were run."""
    largest, *others = map(config.named, reversed(config.sizes()))
    return ", ".join([f"w = {largest} best", *(f"then {w}" for w in others)])


def order_claims(config: Config, order: pd.DataFrame) -> Iterator[Claim]:
    """C1 in each group: in our reading of the paper, and without its cut over all combinations of
    options. Where nothing changes, the reading is one of those."""
    for (scenario, stages, d1), rows in order.groupby(GROUP, sort=False):
        group = "" if (scenario, d1) == ("paper", 1) else f" ({scenario}, d1={d1})"
        reading = as_read(max(config.sizes()), stages).settings()
        ours = select(rows, **{name: reading[name] for name in OPTIONS})
        never = rows[(rows.cut == "never") & ~rows.index.isin(ours.index)]
        fall = f"S={stages}: regret falls with the window, {_order(config)}"
        setting = (
            f"{scenario} scenario, S={stages}, d1={d1}, T={config.horizon}, best of the grid, "
            f"{counted(config.seeds, 'seed')}"
        )
        for _, row in ours.iterrows():
            measured = row[rows.columns.str.startswith(("regret", "gain"))]
            said = ", ".join(f"{name}: {value}" for name, value in measured.items())
            yield Claim(f"C1, S={stages}{group}", fall, said, row.order, f"{setting}; {READING}")
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
            )


def least_regret(best: pd.DataFrame) -> pd.DataFrame:
    """For each group the OAGD with least mean regret: its method and setting."""
    return best_of_grid(best[best.kind == "OAGD"], GROUP, ["method", *GRID])


def offline_distances(table: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
    """How far the learned x is from the offline one, and whether that is near."""
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
    """Mean over the later half of the rounds."""
    excess = rows[rows.metric == "excess"]
    return float(excess[excess.t > excess.t.max() / 2].value.mean())


def offline_claim(distances: pd.DataFrame) -> Claim:
    """C2 over all groups."""
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
        f"OAGD with least regret of each group; close: within {NEAR:g} of an interval that is 10 "
        "wide",
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
    """Where the order holds, and the comparisons that show why."""
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
    """Empty where no detector was run."""
    names = {"cuts": "cuts", "cuts_found": "changes found", "cuts_delay": "rounds late"}
    rows = table[table.metric.isin(names)]
    keys = [*GROUP, "w"]
    found = rows.groupby([*keys, "metric"], sort=False).value.mean().unstack()
    return found.rename(columns=names).reindex(columns=[*names.values()]).reset_index()
