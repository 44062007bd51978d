"""What the table of the experiment says: claims C1 and C2, figures, words. Reads the table only."""

import itertools

import numpy as np
import pandas as pd

from ..kit.statistics import interval
from ..report import Claim, Findings, Table
from . import figures
from .config import Config

OPTIONS = ["u", "normalise", "follower", "curvature"]
GROUP = figures.GROUP


def findings(config: Config, table: pd.DataFrame) -> Findings:
    """Everything that the report shows."""
    rows = _columns(table)
    best = best_settings(rows)
    order = window_order(config, best)
    distances = offline_distances(rows, best)
    return Findings(
        claims=[*_order_claims(config, order), _offline_claim(distances)],
        figures=[
            *figures.regrets(config, rows, best),
            *figures.trajectories(config, rows, best),
            *figures.windows(config, best),
            figures.distance(rows, least_regret(best)),
        ],
        tables=[
            Table(
                "gains",
                "C1: gains from a larger window",
                "Paired differences of the stage regret over seeds with 95% t-intervals; positive "
                "means that the larger window is better.",
                order,
            ),
            Table(
                "definition",
                "Stage regret beside BD-Reg",
                "At the best grid setting of each method: regret of the losses as suffered against "
                "the best pair of each stage, and the paper's BD-Reg, f_t(x_t, y*_t(x_t)) against "
                "the best x of every single round (one penalty only).",
                _both_regrets(rows, best),
            ),
            Table(
                "distance",
                "C2: distance of x from the offline solution",
                "Mean over coordinates and seeds, for the OAGD with least regret in each group. "
                "The excess loss is what x costs a round over the best x of the stage, if the "
                "follower knew the whole stage, over the later half: how much the distance "
                "matters.",
                distances,
            ),
            Table(
                "grid",
                "The whole grid",
                "Stage regret at the end for every setting: mean and standard deviation over "
                "seeds. Click a heading to sort.",
                _grid(rows),
            ),
        ],
        paragraphs=_explanation(config, order),
        summary=Table(
            "order",
            "C1: does the regret fall with the window?",
            "Stage regret at the best grid setting of each method: mean ± standard deviation over "
            "seeds. Clearly: the 95% t-intervals of the paired differences leave no doubt.",
            _compact(order),
        ),
    )


def headline(table: pd.DataFrame) -> str:
    """The figure to show while running: the least regret of the part just done."""
    regrets = table[table.metric == "stage_regret"]
    if regrets.empty:
        return ""
    least = regrets.groupby("setting").value.mean().min()
    return f"{regrets.method.iloc[0].split('; curvature')[0]}: regret {least:.4g}"


def _columns(table: pd.DataFrame) -> pd.DataFrame:
    """The `key=value; ...` labels as columns."""
    unique = table[["method", "setting"]].drop_duplicates()
    parsed = [
        {"method": method, "setting": setting}
        | dict(item.split("=", 1) for item in (method + "; " + setting).split("; ") if "=" in item)
        | {"kind": method.split("; ")[0]}
        for method, setting in unique.itertuples(index=False)
    ]
    return table.merge(pd.DataFrame(parsed), on=["method", "setting"])


def best_settings(rows: pd.DataFrame) -> pd.DataFrame:
    """For each group and method the setting with the least mean regret; one row for each seed."""
    final = rows[rows.metric == "stage_regret"]
    mean = final.groupby(["method", "setting"], sort=False).value.mean()
    chosen = mean.groupby(
        [mean.index.get_level_values("method"), _group_of(mean.index.get_level_values("setting"))]
    ).idxmin()
    keep = pd.DataFrame(list(chosen), columns=["method", "setting"])
    return final.merge(keep, on=["method", "setting"])


def _group_of(settings: pd.Index) -> pd.Index:
    return settings.str.replace(r"; K=.*", "", regex=True)


def window_order(config: Config, best: pd.DataFrame) -> pd.DataFrame:
    """For each combination of options: regret for each window, gains, whether the order holds."""
    oagd = best[(best.kind == "OAGD") & best.w.isin(config.windows)]
    rows = []
    for group, in_group in oagd.groupby(GROUP, sort=False):
        single = in_group[in_group.w == "1"].sort_values("seed").value.to_numpy()
        for options, chosen in in_group[in_group.w != "1"].groupby(OPTIONS, sort=False):
            regrets = {"1": single} | {
                w: one.sort_values("seed").value.to_numpy() for w, one in chosen.groupby("w")
            }
            sizes = sorted((w for w in config.windows if w in regrets), key=config.size)
            row = dict(zip(GROUP, group, strict=True)) | dict(zip(OPTIONS, options, strict=True))
            for w in sizes:
                row[f"regret w={w}"] = _mean_and_deviation(regrets[w])
            gains = []
            for small, large in itertools.pairwise(sizes):
                mean, half = interval(regrets[small] - regrets[large])
                # Less than a thousandth of the regret itself is no difference.
                tie = abs(mean) < 1e-3 * abs(float(np.mean(regrets[large])))
                gains.append((0.0, 0.0) if tie else (mean, half))
                row[f"gain {small} to {large}"] = f"{_readable(mean)} ± {_readable(half)}"
            row["order holds"] = _verdict(gains)
            rows.append(row)
    return pd.DataFrame(rows)


def _order(config: Config) -> str:
    """`w = T best, then 100, then 1`, for the windows that were run."""
    largest, *others = sorted(config.windows, key=config.size, reverse=True)
    return ", ".join([f"w = {largest} best", *(f"then {w}" for w in others)])


def _compact(order: pd.DataFrame) -> pd.DataFrame:
    """The order in few columns, for a screen."""
    short = pd.DataFrame(
        {
            "stream": order.scenario + " S=" + order.stages + " d1=" + order.d1,
            "u": order.u,
            "divided by": order.normalise,
            "follower": order.follower,
            "curvature": order.curvature,
        }
    )
    regrets = order.filter(like="regret w=").rename(columns=lambda name: name[len("regret ") :])
    return pd.concat([short, regrets, order["order holds"]], axis=1)


def _verdict(gains: list[tuple[float, float]]) -> str:
    if all(mean > half for mean, half in gains):
        return "yes, clearly"
    if all(mean > 0 for mean, _ in gains):
        return "yes, within noise"
    if any(mean < -half for mean, half in gains):
        return "no, clearly"
    return "no, a tie" if any(mean == 0 for mean, _ in gains) else "no, within noise"


def _mean_and_deviation(values: np.ndarray) -> str:
    if not np.all(np.isfinite(values)):
        return "diverged"
    deviation = np.std(values, ddof=1) if len(values) > 1 else 0.0
    return f"{_readable(float(np.mean(values)))} ± {_readable(float(deviation))}"


def _readable(value: float) -> str:
    """Three digits, and no powers of ten for what fits without."""
    return f"{value:.0f}" if 100 <= abs(value) < 1e6 else f"{value:.3g}"


def _order_claims(config: Config, order: pd.DataFrame) -> list[Claim]:
    claims = []
    for (scenario, stages, d1), rows in order.groupby(GROUP, sort=False):
        as_printed = (scenario, d1) == ("paper", "1")
        holds = rows["order holds"]
        yes, clear = holds.str.startswith("yes").sum(), (holds == "yes, clearly").sum()
        where = rows[holds.str.startswith("yes")]
        named = "; ".join(
            f"u={r.u}, {r.normalise}, follower {r.follower}, {r.curvature} ({r['order holds']})"
            for _, r in where.iterrows()
        )
        verdict = "reproduced" if clear == len(rows) else "partly" if yes else "not reproduced"
        claims.append(
            Claim(
                f"C1, S={stages}" + ("" if as_printed else f" ({scenario}, d1={d1})"),
                f"S={stages}: regret falls with the window, {_order(config)}",
                f"holds in {yes} of {len(rows)} combinations of options, clearly in {clear}"
                + (f": {named}" if named else ""),
                verdict,
                f"{scenario} scenario, S={stages}, d1={d1}, T={config.horizon}, best of the grid, "
                f"{config.seeds} seeds",
            )
        )
    return claims


def least_regret(best: pd.DataFrame) -> pd.DataFrame:
    """For each group the OAGD with least mean regret: its method and setting."""
    oagd = best[best.kind == "OAGD"]
    mean = oagd.groupby([*GROUP, "method", "setting"], sort=False).value.mean().reset_index()
    return mean.loc[mean.groupby(GROUP, sort=False).value.idxmin()]


def offline_distances(rows: pd.DataFrame, best: pd.DataFrame) -> pd.DataFrame:
    """How far the learned x is from the offline one."""
    is_x = rows.metric.str.startswith("x_")
    offline = rows[(rows.kind == "offline") & is_x]
    result = []
    for _, chosen in least_regret(best).iterrows():
        ours = rows[(rows.method == chosen.method) & (rows.setting == chosen.setting) & is_x]
        gap = np.mean(list(figures.gaps(ours, offline[_same_group(offline, chosen)])), axis=0)
        half = len(gap) // 2
        ours = rows[(rows.method == chosen.method) & (rows.setting == chosen.setting)]
        theirs = rows[(rows.kind == "offline") & _same_group(rows, chosen)]
        result.append(
            {key: chosen[key] for key in GROUP}
            | {
                "method": chosen.method,
                "distance, first half": float(np.mean(gap[:half])) if half else float(gap[0]),
                "distance, later half": float(np.mean(gap[half:])),
                "distance at the end": float(gap[-1]),
                "excess loss": _later_excess(ours),
                "excess loss, offline": _later_excess(theirs),
            }
        )
    return pd.DataFrame(result)


def _later_excess(rows: pd.DataFrame) -> float:
    """Mean over the later half of the rounds."""
    excess = rows[rows.metric == "excess"]
    return float(excess[excess.t > excess.t.max() / 2].value.mean())


def _same_group(rows: pd.DataFrame, chosen: pd.Series) -> pd.Series:
    return (rows[GROUP] == chosen[GROUP]).all(axis=1)


def _offline_claim(distances: pd.DataFrame) -> Claim:
    # X is ten wide; a tenth of it is our reading of "comparable".
    near = distances["distance, later half"] < 1.0
    measured = "; ".join(
        f"{r.scenario} S={r.stages} d1={r.d1}: {r['distance, later half']:.2g}, with excess loss "
        f"{r['excess loss']:.2g} against {r['excess loss, offline']:.2g}"
        for _, r in distances.iterrows()
    )
    return Claim(
        "C2",
        "the learned x_1 is close to offline hyperparameter optimisation",
        f"mean |x - x_offline| over the later half: {measured}",
        "reproduced" if near.all() else "partly" if near.any() else "not reproduced",
        "OAGD with least regret of each group; close: within 1 of an interval that is 10 wide",
    )


COMPARISONS = (
    ("1", "seen", "average", "1", "no change, window reaches the follower, divided by weight seen"),
    ("1", "full", "average", "1", "the same, divided by the full weight: early steps are diluted"),
    ("1", "seen", "current", "1", "no change, window reaches only the leader"),
    ("1", "seen", "average", "3", "the model changes, equal weights: old models are averaged in"),
    (
        "0.9",
        "seen",
        "average",
        "3",
        "the model changes, weights 0.9^i: 0.9^100 = 3e-5, w = T is 100",
    ),
)


def _explanation(config: Config, order: pd.DataFrame) -> list[str]:
    """Where the order holds, and the comparisons that show why."""
    yes = order["order holds"].str.startswith("yes")
    counts = []
    for stages in sorted(order.stages.unique(), reverse=True):
        here = order.stages == stages
        counts.append(f"S={stages}: {int((yes & here).sum())} of {int(here.sum())}")
    words = [
        f"The paper's order ({_order(config)}) holds in these combinations of options: "
        f"{', '.join(counts)}. What the options do, by stage regret:"
    ]
    for u, normalise, follower, stages, what in COMPARISONS:
        chosen = order[(order.stages == stages) & (order.d1 == "1") & (order.curvature != "own")]
        chosen = chosen[(chosen.u == u) & (chosen.normalise == normalise)]
        chosen = chosen[chosen.follower == follower]
        regrets = chosen.filter(like="regret w=").columns
        for _, row in chosen.iterrows():
            numbers = ", ".join(f"{name[len('regret ') :]} {row[name]}" for name in regrets)
            words.append(f"{what} (S={stages}, {row.scenario}): {numbers}.")
    return words


def _both_regrets(rows: pd.DataFrame, best: pd.DataFrame) -> pd.DataFrame:
    keys = [*GROUP, "method"]
    last = rows[(rows.metric == "bilevel_dynamic_regret") & (rows.t == rows.t.max())]
    stage = best.groupby(keys, sort=False).value.agg(["mean", "std"])
    definition = last.groupby(keys, sort=False).value.agg(["mean", "std"])
    named = stage.add_prefix("stage regret, "), definition.add_prefix("BD-Reg, ")
    both = named[0].join(named[1]).reset_index()
    both["method"] = both.method.str.replace("; ", ", ")
    return both.replace(np.inf, np.nan)


def _grid(rows: pd.DataFrame) -> pd.DataFrame:
    final = rows[rows.metric == "stage_regret"].fillna({"alpha": "-"})
    keys = [*GROUP, "method", "K", "alpha", "beta"]
    summary = final.groupby(keys, sort=False).value.agg(["mean", "std"]).reset_index()
    summary["method"] = summary.method.str.replace("; ", ", ")
    for column in ("K", "alpha", "beta"):
        summary[column] = pd.to_numeric(summary[column], errors="coerce")
    summary["mean"] = summary["mean"].replace(np.inf, np.nan)
    return summary.rename(columns={"mean": "regret", "std": "deviation"})
