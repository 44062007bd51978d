"""What the tables of the meta-learning experiments say: claims C6 and C7. Reads tables only."""

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from scipy import stats

from ...report import Claim, Findings, Table
from . import figures
from .config import ADAPTATIONS, BASELINES, Config, Method

FINAL = 0.75
"""Final accuracies are means over the evaluations after this share of the rounds."""
ENDS = 5
"""The time of the first and of the last round is a median over so many."""
CONSTANT = 0.2
"""How much longer the last round may take than the first and still be constant."""

Claims = Callable[[Config, pd.DataFrame], list[Claim]]
RUN = ["name", "seed"]


def findings(claims: Claims, config: Config, table: pd.DataFrame) -> Findings:
    """Everything that the report shows."""
    rows = columns(config, table)
    return Findings(
        claims=claims(config, rows),
        figures=figures.all_figures(config, rows),
        tables=[
            Table(
                "time",
                "Time of a round as a function of t",
                f"First and last: medians over {ENDS} rounds. The slope is that of a line through "
                "the seconds of each round (Theil and Sen's, which outliers do not move), in ms a "
                "round with 95% intervals over seeds, on the wall clock and on the processor's. "
                "For sampled tasks from the round on in which there are enough of them.",
                _time_table(config, rows),
            ),
            Table(
                "order",
                "Methods in the order of their test accuracy",
                "Paired over the seeds and rounds that a method and the best one share; "
                "95% t-intervals.",
                _order(config, rows),
            ),
        ],
        paragraphs=_explanation(config, rows),
        summary=Table(
            "summary",
            "Accuracy on held-out tasks, and time",
            f"Query accuracy in per cent after the method's own adaptation, on tasks of unseen "
            f"(test) and seen (training) classes, mean over the evaluations after {FINAL:.0%} of "
            "the rounds; ± is the 95% interval over seeds, and over tasks of one seed in 'over "
            "tasks'. Seconds of all steps without compilation, data and evaluation.",
            _summary(config, rows),
        ),
    )


def headline(table: pd.DataFrame) -> str:
    """The figure to show while running."""
    found = table[table.metric == "test_accuracy"].sort_values("t")
    seconds = table[table.metric == "seconds"].value.max()
    return f"{found.method.iloc[0]}: {found.value.iloc[-1]:.1%}, {seconds:.3g} s"


def columns(config: Config, table: pd.DataFrame) -> pd.DataFrame:
    """The table with the methods' names for people, and the data's."""
    names = {method.label(): method.short() for method in config.parsed_methods()}
    data = {label: label.split("; ")[0].removeprefix("data=") for label in table.setting.unique()}
    return table.assign(name=table.method.map(names), data=table.setting.map(data))


def final(rows: pd.DataFrame, name: str, metric: str) -> pd.Series:
    """By seed, the metric at the end of the runs of a method."""
    kept = rows[(rows["name"] == name) & (rows.metric == metric)]
    return kept[kept.t > FINAL * kept.t.max()].groupby("seed").value.mean()


def seconds(rows: pd.DataFrame, name: str) -> pd.Series:
    """By seed, the seconds of all steps of a method."""
    kept = rows[(rows["name"] == name) & (rows.metric == "seconds")]
    return kept.groupby("seed").value.max()


def half_interval(values: np.ndarray) -> float:
    """Half of the 95% t-interval of a mean; NaN for a single value."""
    if len(values) < 2:
        return float("nan")
    return float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))


def better(rows: pd.DataFrame, one: str, other: str) -> tuple[float, float, str]:
    """How many points `one` is above `other` in final test accuracy, paired over seeds and over the
    rounds that both have; half of the 95% interval; and in words."""
    tested = rows[rows.metric == "test_accuracy"]
    shared = set(tested[tested["name"] == one].t) & set(tested[tested["name"] == other].t)
    ours, theirs = (final(tested[tested.t.isin(shared)], n, "test_accuracy") for n in (one, other))
    seeds = ours.index.intersection(theirs.index)
    gain = 100 * (ours[seeds] - theirs[seeds]).to_numpy()
    half = half_interval(gain)
    if np.isnan(half):
        return float(gain.mean()), half, f"{gain.mean():+.1f} points (1 seed)"
    noise = ", within noise" if abs(gain.mean()) <= half else ""
    return float(gain.mean()), half, f"{gain.mean():+.1f} ± {half:.1f} points{noise}"


def lines(config: Config, rows: pd.DataFrame, metric: str = "seconds") -> pd.DataFrame:
    """Of each method and seed the seconds of the first and the last rounds, and the slope of a line
    through all of them."""
    found = []
    for method in config.parsed_methods():
        kept = rows[(rows["name"] == method.short()) & (rows.metric == metric)]
        for seed, run in kept.sort_values("t").groupby("seed"):
            t, spent = run.t.to_numpy(), np.diff(run.value.to_numpy(), prepend=0.0)
            full = t >= config.sampled_tasks if method.sampled else t >= 1
            if full.sum() < 3:
                full = t >= 1
            slope, *_ = stats.theilslopes(spent[full], t[full])
            ends = np.median(spent[full][:ENDS]), np.median(spent[-ENDS:])
            found.append((method.short(), seed, *ends, slope, t[-1]))
    return pd.DataFrame(found, columns=["name", "seed", "first", "last", "slope", "rounds"])


def grows(of_method: pd.DataFrame) -> bool:
    """Whether the last rounds take longer by more than `CONSTANT`, and the line goes up clearly."""
    slope, half = of_method.slope.mean(), half_interval(of_method.slope.to_numpy())
    clear = np.isnan(half) or slope > half
    return bool(clear and of_method["last"].mean() > (1 + CONSTANT) * of_method["first"].mean())


def _time_table(config: Config, rows: pd.DataFrame) -> pd.DataFrame:
    wall, processor = lines(config, rows), lines(config, rows, "processor_seconds")
    found = []
    for name, runs in wall.groupby("name", sort=False):
        busy = processor[processor["name"] == name]
        found.append(
            {
                "method": name,
                "first round, ms": round(1e3 * runs["first"].mean(), 1),
                "last round, ms": round(1e3 * runs["last"].mean(), 1),
                "slope": _with_half(1e3 * runs.slope),
                "slope (processor)": _with_half(1e3 * busy.slope),
                "a round takes": "longer with t" if grows(runs) else "the same",
                "rounds": int(runs.rounds.max()),
                "seeds": len(runs),
            }
        )
    return pd.DataFrame(found)


def _with_half(values: pd.Series) -> str:
    half = half_interval(values.to_numpy())
    return f"{values.mean():.3g}" + ("" if np.isnan(half) else f" ± {half:.2g}")


def _summary(config: Config, rows: pd.DataFrame) -> pd.DataFrame:
    found = []
    for method in config.parsed_methods():
        name = method.short()
        test = final(rows, name, "test_accuracy")
        before = rows[(rows["name"] == name) & (rows.metric == "test_accuracy") & (rows.t == 0)]
        error = final(rows, name, "test_accuracy_error").mean()
        found.append(
            {
                "method": name,
                "test": _percent(test),
                "over tasks": f"± {100 * 1.96 * error:.1f}",
                "before": f"{100 * before.value.mean():.1f}",
                "training": _percent(final(rows, name, "train_accuracy")),
                "test loss": f"{final(rows, name, 'test_loss').mean():.3f}",
                "seconds": f"{seconds(rows, name).mean():.3g}",
                "rounds": config.rounds_of(method),
                "seeds": len(test),
            }
        )
    return pd.DataFrame(found)


def _percent(values: pd.Series) -> str:
    half = half_interval(100 * values.to_numpy())
    return f"{100 * values.mean():.1f}" + ("" if np.isnan(half) else f" ± {half:.1f}")


def _order(config: Config, rows: pd.DataFrame) -> pd.DataFrame:
    names = [method.short() for method in config.parsed_methods()]
    mean = {name: final(rows, name, "test_accuracy").mean() for name in names}
    names.sort(key=lambda name: -mean[name])
    return pd.DataFrame(
        {
            "method": name,
            "test": f"{100 * mean[name]:.1f}",
            "against the best": "" if name == names[0] else better(rows, name, names[0])[2],
        }
        for name in names
    )


def _explanation(config: Config, rows: pd.DataFrame) -> list[str]:
    data = rows.data.iloc[0]
    papers = (config.blocks, config.filters) == (4, 64)
    size = "the paper's" if papers else "the paper's: 4 blocks, 64 filters"
    adam = config.outer_optimiser == "adam"
    found = [
        f"Data: {data}, {config.ways}-way {config.shots}-shot with {config.queries} queries a "
        f"class. The network has up to {config.blocks} blocks of {config.filters} filters ({size}),"
        f" stride 1 and 2 x 2 pooling; BatchNorm uses the statistics of each batch. "
        f"{config.rounds} rounds (MAML {min(config.rounds, config.maml_rounds)}), one new task in "
        f"each; the leader takes one step of {'Adam' if adam else 'SGD'} a round with alpha = "
        f"{config.outer_step_size:g}.",
        f"Followers: prox is one step of beta = {config.inner_step_size:g} in closed form, with "
        f"its exact derivative; implicit takes K = {config.inner_steps} steps on the loss plus "
        f"{config.proximity:g}/2 |y - x|^2 and solves with {config.solver} in at most "
        f"{config.solver_steps} steps, head does so with the head alone inside; MAML, ANIL and "
        f"ITD-BiO unroll K = {config.inner_steps} steps, on all tasks so far or on "
        f"{config.sampled_tasks} of them. All methods see the "
        f"same tasks, and are evaluated on the same {config.test_tasks} test and "
        f"{config.train_tasks} training tasks, each with its own adaptation.",
    ]
    if "(synthetic)" in data:
        found.insert(0, "The data is synthetic: these figures say nothing about the real data set.")
    refused = rows[rows.metric == "refused"].groupby(RUN).value.max()
    if refused.sum():
        listed = refused.groupby("name").sum()
        words = ", ".join(f"{name} {int(n)}" for name, n in listed.items() if n)
        found.append(f"Rounds that the guard refused, over all seeds: {words}.")
    return found


# Claims.


def _verdict(held: Sequence[bool]) -> str:
    return "reproduced" if all(held) else "partly" if any(held) else "not reproduced"


def _setting(config: Config, rows: pd.DataFrame) -> str:
    maml = ""
    if any(method.kind == "maml" for method in config.parsed_methods()):
        shorter = min(config.rounds, config.maml_rounds), min(config.seeds, config.maml_seeds)
        maml = f" (MAML {shorter[0]} and {shorter[1]})"
    return (
        f"{rows.data.iloc[0]}, {config.blocks} x {config.filters} filters, {config.rounds} rounds "
        f"and {config.seeds} seeds{maml}, alpha {config.outer_step_size:g} "
        f"({config.outer_optimiser}), beta {config.inner_step_size:g}, K {config.inner_steps}"
    )


def comparison_claims(config: Config, rows: pd.DataFrame) -> list[Claim]:
    """C6: time, and accuracy against the baselines."""
    methods = config.parsed_methods()
    ours = [method for method in methods if method.kind == "oagd"]
    theirs = [method for method in methods if method.kind in BASELINES]
    found = chance_claim(config, rows)
    if not ours or not theirs:
        return found
    return [
        *_growth_claim(config, rows, ours, theirs),
        *_least_time_claim(config, rows, ours, theirs),
        *_accuracy_claims(config, rows, ours, theirs),
        *found,
    ]


def _growth_claim(
    config: Config, rows: pd.DataFrame, ours: list[Method], theirs: list[Method]
) -> list[Claim]:
    fitted = lines(config, rows)
    held, words = [], []
    for method in [*ours, *theirs]:
        of_method = fitted[fitted["name"] == method.short()]
        longer = grows(of_method)
        if not method.sampled:
            held.append(longer == (method.kind != "oagd"))
        first, last = 1e3 * of_method["first"].mean(), 1e3 * of_method["last"].mean()
        words.append(
            f"{method.short()} {first:.3g} to {last:.3g} ms a round "
            f"({_with_half(1e3 * of_method.slope)} ms a round: {'grows' if longer else 'constant'})"
        )
    return [
        Claim(
            "C6 (time)",
            "the time of OAGD is linear in the rounds (a round takes the same throughout), that of "
            "the baselines on all tasks so far superlinear",
            "; ".join(words),
            _verdict(held),
            _setting(config, rows),
        )
    ]


def _least_time_claim(
    config: Config, rows: pd.DataFrame, ours: list[Method], theirs: list[Method]
) -> list[Claim]:
    fitted = lines(config, rows)
    held, words = [], []
    for method in ours:
        one = fitted[fitted["name"] == method.short()]["last"].mean()
        for other in theirs:
            line = fitted[fitted["name"] == other.short()]
            both = min(config.rounds_of(method), config.rounds_of(other))
            at = rows[(rows.metric == "seconds") & (rows.t == both)]
            total = [at[at["name"] == m.short()].value.mean() for m in (method, other)]
            held.append(total[0] < total[1])
            word = f"{method.short()} {total[0]:.3g} s, {other.short()} {total[1]:.3g} s"
            if both < config.rounds:
                word += f" (both after {both} rounds)"
            if not other.sampled and grows(line) and line["last"].mean() < one:
                slope = line.slope.mean()
                meets = line.rounds.max() + (one - line["last"].mean()) / slope
                word += f" (by the fitted lines its rounds take longer from round {meets:.0f} on)"
            words.append(word)
    return [
        Claim(
            "C6 (least time)",
            "OAGD needs the least time",
            "; ".join(words),
            _verdict(held),
            _setting(config, rows),
        )
    ]


def _accuracy_claims(
    config: Config, rows: pd.DataFrame, ours: list[Method], theirs: list[Method]
) -> list[Claim]:
    found = []
    for method in ours:
        held, words = [], []
        for other in theirs:
            gain, _, said = better(rows, method.short(), other.short())
            held.append(gain >= 0)
            words.append(f"over {other.short()}: {said}")
        accuracy = 100 * final(rows, method.short(), "test_accuracy").mean()
        found.append(
            Claim(
                f"C6 (accuracy, {method.short()})",
                "the test accuracy of OAGD is at least that of the baselines",
                f"{method.short()} {accuracy:.1f}; " + "; ".join(words),
                _verdict(held),
                _setting(config, rows),
            )
        )
    return found


def chance_claim(config: Config, rows: pd.DataFrame) -> list[Claim]:
    """Ours: without this, no order of methods means anything."""
    held, words = [], []
    for method in config.parsed_methods():
        name = method.short()
        test = final(rows, name, "test_accuracy").to_numpy()
        half = half_interval(test)
        if np.isnan(half):
            half = 1.96 * final(rows, name, "test_accuracy_error").mean()
        before = rows[(rows["name"] == name) & (rows.metric == "test_accuracy") & (rows.t == 0)]
        held.append(bool(test.mean() - half > 1 / config.ways))
        words.append(
            f"{name} {100 * test.mean():.1f} ± {100 * half:.1f} "
            f"(untrained {100 * before.value.mean():.1f})"
        )
    return [
        Claim(
            "chance",
            f"ours: the test accuracy has left chance ({100 / config.ways:.0f}%)",
            "; ".join(words),
            _verdict(held),
            _setting(config, rows),
        )
    ]


def _ladder_claim(
    config: Config, rows: pd.DataFrame, id: str, symbol: str, ladder: list[tuple[int, str]]
) -> Claim:
    """Larger is better and slower, rung by rung."""
    held, slower, words = [], [], []
    for number, name in ladder:
        accuracy = 100 * final(rows, name, "test_accuracy")
        spread = f", deviation over seeds {accuracy.std():.1f}" if len(accuracy) > 1 else ""
        words.append(
            f"{symbol}={number}: {accuracy.mean():.1f}{spread}, {seconds(rows, name).mean():.3g} s"
        )
    for (small, lesser), (large, greater) in itertools.pairwise(ladder):
        gain, _, said = better(rows, greater, lesser)
        held.append(gain > 0)
        slower.append(seconds(rows, greater).mean() > seconds(rows, lesser).mean())
        words.append(f"{symbol}={large} over {symbol}={small}: {said}")
    return Claim(
        id,
        f"the larger {symbol}, the better the accuracy and the longer the runtime",
        "; ".join(words) + ("; slower each time" if all(slower) else "; not always slower"),
        _verdict([*held, *slower]) if any(held) else "not reproduced",
        _setting(config, rows),
    )


def window_claims(config: Config, rows: pd.DataFrame) -> list[Claim]:
    """C7 for w, for each follower."""
    found = []
    for adaptation in ADAPTATIONS:
        ladder = sorted(
            (method.window, method.short())
            for method in config.parsed_methods()
            if method.kind == "oagd" and method.adaptation == adaptation
        )
        if len(ladder) > 1:
            found.append(_ladder_claim(config, rows, f"C7 (window, {adaptation})", "w", ladder))
    return [*found, *chance_claim(config, rows)]


def steps_claims(config: Config, rows: pd.DataFrame) -> list[Claim]:
    """C7 for K."""
    ladder = sorted(
        (config.steps_of(method), method.short())
        for method in config.parsed_methods()
        if method.kind == "oagd" and method.adaptation == "implicit"
    )
    found = []
    if len(ladder) > 1:
        claim = _ladder_claim(config, rows, "C7 (inner steps)", "K", ladder)
        deviation = [final(rows, name, "test_accuracy").std() for _, name in ladder]
        if not np.isnan(deviation).any():
            falls = all(b < a for a, b in itertools.pairwise(deviation))
            found.append(
                Claim(
                    "C7 (steadier)",
                    "a larger K is steadier",
                    "deviation of the final test accuracy over seeds, in points: "
                    + "; ".join(
                        f"K={k}: {100 * d:.2f}" for (k, _), d in zip(ladder, deviation, strict=True)
                    ),
                    _verdict([falls]),
                    _setting(config, rows),
                )
            )
        found.insert(0, claim)
    return [*found, *chance_claim(config, rows)]
