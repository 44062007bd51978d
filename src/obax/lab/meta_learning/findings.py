"""What the tables of the meta-learning experiments say: claims C6 and C7. Reads tables only."""

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from scipy import stats

from ..kit.statistics import interval
from ..report import Claim, Findings, Table
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
                "On the processor's clock, which other programs disturb least. First and last: "
                f"medians over {ENDS} rounds. The slope is that of a line through the time of each "
                "round (Theil and Sen's, which outliers do not move), with 95% intervals over "
                "seeds. From the round on in which the window or the sample is full.",
                _time_table(config, rows),
            ),
            Table(
                "order",
                "Methods in the order of their test accuracy",
                "Methods that play fewer rounds stand below the others. Differences are paired "
                "over the seeds and rounds that both have; 95% t-intervals.",
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
            "tasks'. The gain is over the untrained network with the same adaptation, paired by "
            "seed. Seconds of all steps, on the wall clock and of the processor, without "
            "compilation, data and evaluation.",
            _summary(config, rows),
        ),
    )


def columns(config: Config, table: pd.DataFrame) -> pd.DataFrame:
    """The table with the methods' names for people, and the data's."""
    names = {method.label(): method.short() for method in config.parsed_methods()}
    data = {label: label.split("; ")[0].removeprefix("data=") for label in table.setting.unique()}
    return table.assign(name=table.method.map(names), data=table.setting.map(data))


def final(rows: pd.DataFrame, name: str, metric: str) -> pd.Series:
    """By seed, the metric at the end of the runs of a method."""
    kept = rows[(rows["name"] == name) & (rows.metric == metric)]
    return kept[kept.t > FINAL * kept.t.max()].groupby("seed").value.mean()


def seconds(rows: pd.DataFrame, name: str, metric: str = "processor_seconds") -> pd.Series:
    """By seed, the seconds of all steps of a method."""
    kept = rows[(rows["name"] == name) & (rows.metric == metric)]
    return kept.groupby("seed").value.max()


def learned(rows: pd.DataFrame, name: str) -> np.ndarray:
    """Points of test accuracy that a method gained over the untrained network, one a seed."""
    before = rows[(rows["name"] == name) & (rows.metric == "test_accuracy") & (rows.t == 0)]
    gain = final(rows, name, "test_accuracy") - before.set_index("seed").value
    return 100 * gain.to_numpy()


def better(rows: pd.DataFrame, one: str, other: str) -> tuple[bool | None, str]:
    """Whether `one` ends above `other` in test accuracy, paired over the seeds and the rounds that
    both have, `None` if that is within noise; and in words."""
    tested = rows[rows.metric == "test_accuracy"]
    shared = set(tested[tested["name"] == one].t) & set(tested[tested["name"] == other].t)
    ours, theirs = (final(tested[tested.t.isin(shared)], n, "test_accuracy") for n in (one, other))
    seeds = ours.index.intersection(theirs.index)
    gain = 100 * (ours[seeds] - theirs[seeds]).to_numpy()
    at = "" if max(shared) == tested.t.max() else f" (at round {max(shared)})"
    return clearly(gain), _points(gain) + at


def clearly(gain: np.ndarray) -> bool | None:
    """Whether a gain is above zero by more than the 95% interval; `None` if it is within that."""
    mean, half = interval(gain)
    return mean > 0 if abs(mean) > half else None


def _points(gain: np.ndarray) -> str:
    mean, half = interval(gain)
    if len(gain) == 1:
        return f"{mean:+.1f} points (1 seed)"
    noise = ", within noise" if clearly(gain) is None else ""
    return f"{mean:+.1f} ± {half:.1f} points{noise}"


def lines(config: Config, rows: pd.DataFrame, metric: str = "processor_seconds") -> pd.DataFrame:
    """Of each method and seed the seconds of the first and the last rounds, and a line through all
    of them, from the round on in which the window or the sample is full."""
    found = []
    for method in config.parsed_methods():
        kept = rows[(rows["name"] == method.short()) & (rows.metric == metric)]
        for seed, run in kept.sort_values("t").groupby("seed"):
            t, spent = run.t.to_numpy(), np.diff(run.value.to_numpy(), prepend=0.0)
            full = t >= (config.sampled_tasks if method.sampled else method.window)
            if full.sum() < 3:
                full = t >= 1
            slope, intercept, *_ = stats.theilslopes(spent[full], t[full])
            ends = np.median(spent[full][:ENDS]), np.median(spent[-ENDS:])
            found.append((method.short(), seed, *ends, slope, intercept, t[-1]))
    names = ["name", "seed", "first", "last", "slope", "intercept", "rounds"]
    return pd.DataFrame(found, columns=names)


def grows(of_method: pd.DataFrame) -> bool:
    """Whether the last rounds take longer by more than `CONSTANT`, and the line goes up clearly."""
    slope, half = interval(of_method.slope.to_numpy())
    clear = np.isinf(half) or slope > half
    return bool(clear and of_method["last"].mean() > (1 + CONSTANT) * of_method["first"].mean())


def _time_table(config: Config, rows: pd.DataFrame) -> pd.DataFrame:
    wall, processor = lines(config, rows, "seconds"), lines(config, rows)
    found = []
    for name, runs in processor.groupby("name", sort=False):
        found.append(
            {
                "method": name,
                "first round, ms": round(1e3 * runs["first"].mean(), 1),
                "last round, ms": round(1e3 * runs["last"].mean(), 1),
                "slope, ms": _with_half(1e3 * runs.slope),
                "slope (wall clock), ms": _with_half(1e3 * wall[wall["name"] == name].slope),
                "a round takes": "longer with t" if grows(runs) else "the same",
                "rounds": int(runs.rounds.max()),
                "seeds": len(runs),
            }
        )
    return pd.DataFrame(found)


def _with_half(values: pd.Series, form: str = ".3g") -> str:
    mean, half = interval(values.to_numpy())
    return f"{mean:{form}}" + ("" if np.isinf(half) else f" ± {half:{form}}")


def _summary(config: Config, rows: pd.DataFrame) -> pd.DataFrame:
    found = []
    for method in config.parsed_methods():
        name = method.short()
        test = final(rows, name, "test_accuracy")
        error = final(rows, name, "test_accuracy_error").mean()
        found.append(
            {
                "method": name,
                "test": _percent(test),
                "over tasks": f"± {100 * 1.96 * error:.1f}",
                "gain": _with_half(pd.Series(learned(rows, name)), ".1f"),
                "training": _percent(final(rows, name, "train_accuracy")),
                "test loss": f"{final(rows, name, 'test_loss').mean():.3f}",
                "seconds": f"{seconds(rows, name, 'seconds').mean():.3g}",
                "processor": f"{seconds(rows, name).mean():.3g}",
                "rounds": config.rounds_of(method),
                "seeds": len(test),
            }
        )
    return pd.DataFrame(found)


def _percent(values: pd.Series) -> str:
    return _with_half(100 * values, ".1f")


def _order(config: Config, rows: pd.DataFrame) -> pd.DataFrame:
    methods = config.parsed_methods()
    mean = {m: final(rows, m.short(), "test_accuracy").mean() for m in methods}
    methods.sort(key=lambda method: (-config.rounds_of(method), -mean[method]))
    best = methods[0].short()
    return pd.DataFrame(
        {
            "method": method.short(),
            "test": f"{100 * mean[method]:.1f}",
            "rounds": config.rounds_of(method),
            f"against {best}": "" if i == 0 else better(rows, method.short(), best)[1],
        }
        for i, method in enumerate(methods)
    )


def _explanation(config: Config, rows: pd.DataFrame) -> list[str]:
    data = rows.data.iloc[0]
    papers = (config.blocks, config.filters) == (4, 64)
    size = "the paper's" if papers else "the paper's: 4 blocks, 64 filters"
    adam = config.outer_optimiser == "adam"
    methods = config.parsed_methods()
    maml = f" (MAML {min(config.rounds, config.maml_rounds)})"
    taken = _steps(config)
    found = [
        f"Data: {data}, {config.ways}-way {config.shots}-shot with {config.queries} queries a "
        f"class. The network has up to {config.blocks} blocks of {config.filters} filters ({size}),"
        f" stride 1 and 2 x 2 pooling; BatchNorm uses the statistics of each batch. "
        f"{config.rounds} rounds{maml if any(m.kind == 'maml' for m in methods) else ''}, one new "
        f"task in each; the leader takes one step of {'Adam' if adam else 'SGD'} a round with "
        f"alpha = {config.outer_step_size:g}.",
        f"Followers: prox is one step of beta = {config.inner_step_size:g} in closed form, with "
        f"its exact derivative; implicit takes K = {taken} steps on the loss plus "
        f"{config.proximity:g}/2 |y - x|^2 and solves with {config.solver} in at most "
        f"{config.solver_steps} steps, head does so with the head alone inside; MAML, ANIL and "
        f"ITD-BiO unroll K = {taken} steps, on all tasks so far or on "
        f"{config.sampled_tasks} of them. All methods see the "
        f"same tasks, and are evaluated on the same {config.test_tasks} test and "
        f"{config.train_tasks} training tasks, each with its own adaptation.",
    ]
    if "(synthetic)" in data:
        found.insert(0, "The data is synthetic: these figures say nothing about the real data set.")
    rejected = rows[rows.metric == "rejected"].groupby(RUN).value.max()
    if rejected.sum():
        listed = rejected.groupby("name").sum()
        words = ", ".join(f"{name} {int(n)}" for name, n in listed.items() if n)
        found.append(f"Rounds that the guard rejected, over all seeds: {words}.")
    return found


# Claims.


def _verdict(held: Sequence[bool | None]) -> str:
    """`None` is what the noise leaves open, and makes it "partly"."""
    if all(held):
        return "reproduced"
    return "partly" if any(part is None or part for part in held) else "not reproduced"


def _steps(config: Config) -> str:
    """K, or all of them where methods differ."""
    named = {config.steps_of(m) for m in config.parsed_methods() if m.adaptation != "prox"}
    baselines = {config.steps_of(m) for m in config.parsed_methods() if m.kind in BASELINES}
    return ", ".join(map(str, sorted(named | baselines))) or "1"


def _setting(config: Config, rows: pd.DataFrame) -> str:
    maml = ""
    if any(method.kind == "maml" for method in config.parsed_methods()):
        shorter = min(config.rounds, config.maml_rounds), min(config.seeds, config.maml_seeds)
        maml = f" (MAML {shorter[0]} and {shorter[1]})"
    return (
        f"{rows.data.iloc[0]}, {config.blocks} x {config.filters} filters, {config.rounds} rounds "
        f"and {config.seeds} seeds{maml}, alpha {config.outer_step_size:g} "
        f"({config.outer_optimiser}), beta {config.inner_step_size:g}, K {_steps(config)}"
    )


def comparison_claims(config: Config, rows: pd.DataFrame) -> list[Claim]:
    """C6: time, and accuracy against the baselines."""
    methods = config.parsed_methods()
    ours = [method for method in methods if method.kind == "oagd"]
    theirs = [method for method in methods if method.kind in BASELINES]
    found = own_claims(config, rows)
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
            f"{method.short()} {first:.0f} to {last:.0f} ms ({_with_half(1e3 * of_method.slope)} "
            f"ms more a round: {'grows' if longer else 'constant'})"
        )
    return [
        Claim(
            "C6 (time)",
            "the time of OAGD is linear in the rounds (a round takes the same throughout), that of "
            "the baselines on all tasks so far superlinear",
            "processor time of a round, first to last: " + "; ".join(words),
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
            at = rows[(rows.metric == "processor_seconds") & (rows.t == both)]
            total = [at[at["name"] == m.short()].value.mean() for m in (method, other)]
            held.append(total[0] < total[1])
            word = f"{method.short()} {total[0]:.3g} s, {other.short()} {total[1]:.3g} s"
            if both < config.rounds:
                word += f" (both after {both} rounds)"
            if not other.sampled and grows(line):
                meets = (one - line.intercept.mean()) / line.slope.mean()
                since = f"round {meets:.0f}" if meets > 1 else "the first"
                word += f" (by the fitted lines its rounds take longer from {since} on)"
            words.append(word)
    return [
        Claim(
            "C6 (least time)",
            "OAGD needs the least time",
            "processor time of all rounds: " + "; ".join(words),
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
            above, said = better(rows, method.short(), other.short())
            held.append(above)
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


def own_claims(config: Config, rows: pd.DataFrame) -> list[Claim]:
    """Ours: without these, no order of methods means anything."""
    names = [method.short() for method in config.parsed_methods()]
    above, chances, gained, gains = [], [], [], []
    for name in names:
        test = final(rows, name, "test_accuracy").to_numpy()
        half = interval(test)[1]
        if np.isinf(half):
            half = 1.96 * final(rows, name, "test_accuracy_error").mean()
        above.append(bool(test.mean() - half > 1 / config.ways))
        chances.append(f"{name} {100 * test.mean():.1f} ± {100 * half:.1f}")
        gain = learned(rows, name)
        gained.append(clearly(gain))
        gains.append(f"{name} {_points(gain)}")
    return [
        Claim(
            "chance",
            f"ours: the test accuracy has left chance ({100 / config.ways:.0f}%)",
            "; ".join(chances),
            _verdict(above),
            _setting(config, rows),
        ),
        Claim(
            "learned",
            "ours: the test accuracy is above that of the untrained network with the same "
            "adaptation, which is above chance already",
            "; ".join(gains),
            _verdict(gained),
            _setting(config, rows),
        ),
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
        above, said = better(rows, greater, lesser)
        held.append(above)
        slower.append(seconds(rows, greater).mean() > seconds(rows, lesser).mean())
        words.append(f"{symbol}={large} over {symbol}={small}: {said}")
    return Claim(
        id,
        f"the larger {symbol}, the better the accuracy and the longer the runtime",
        "; ".join(words) + ("; slower each time" if all(slower) else "; not always slower"),
        "not reproduced" if _verdict(held) == "not reproduced" else _verdict([*held, *slower]),
        _setting(config, rows),
    )


def window_claims(config: Config, rows: pd.DataFrame) -> list[Claim]:
    """C7 for w, for each follower."""
    found = []
    for follower in ADAPTATIONS:
        ladder = _ladder(config, follower, lambda method: method.window)
        if len(ladder) > 1:
            found.append(_ladder_claim(config, rows, f"C7 (window, {follower})", "w", ladder))
    return [*found, *own_claims(config, rows)]


def steps_claims(config: Config, rows: pd.DataFrame) -> list[Claim]:
    """C7 for K, for each follower that takes steps."""
    found = []
    for follower in ("implicit", "head"):
        ladder = _ladder(config, follower, config.steps_of)
        if len(ladder) < 2:
            continue
        name = f"C7 (inner steps, {follower})"
        found.append(_ladder_claim(config, rows, name, "K", ladder))
        deviation = [final(rows, name, "test_accuracy").std() for _, name in ladder]
        if not np.isnan(deviation).any():
            falls = all(b < a for a, b in itertools.pairwise(deviation))
            runs = [final(rows, name, "test_accuracy") for _, name in ladder]
            with np.errstate(invalid="ignore", divide="ignore"):
                p = float(stats.levene(*runs).pvalue)
            found.append(
                Claim(
                    f"C7 (steadier, {follower})",
                    "a larger K is steadier",
                    "deviation of the final test accuracy over seeds, in points: "
                    + "; ".join(
                        f"K={k}: {100 * d:.2f}" for (k, _), d in zip(ladder, deviation, strict=True)
                    )
                    + f"; p = {p:.2f} that they do not differ (Levene)",
                    _verdict([falls and (p < 0.05 or None)]),
                    _setting(config, rows),
                )
            )
    return [*found, *own_claims(config, rows)]


def _ladder(
    config: Config, follower: str, number: Callable[[Method], int]
) -> list[tuple[int, str]]:
    """OAGD's methods with a follower, in the order of a number of theirs."""
    return sorted(
        (number(method), method.short())
        for method in config.parsed_methods()
        if method.kind == "oagd" and method.adaptation == follower
    )
