"""The findings of the meta-learning experiments, from their tables alone: answer, claims, tables.

The claims are C6 and C7 of the paper, and ours. Each compares methods on the seeds and rounds that
both have, by the rule in `framework.statistics`.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd

from ..._support.messages import counted
from ..framework import learning
from ..framework.experiment import Texts
from ..framework.learning import CLOCK, Panel, Runs, accuracy_headline as headline, piece
from ..framework.results import Claim, Findings
from ..framework.statistics import Gain, paired, with_interval
from .config import ADAPTATIONS, Config, Method

__all__ = ["findings", "headline"]
FINAL = 0.75
"""Final accuracies are means over the evaluations after this share of the rounds."""
ENDS = 5
"""The time of the first and of the last round is a median over so many rounds."""
CONSTANT = 0.2
"""How much longer, as a share of the median round, rounds may get over a run and still take
constant time."""
PANELS = (
    learning.TRAINING,
    learning.TIME,
    Panel("loss", "test_loss", "Loss on test classes", "cross-entropy"),
    Panel("training-loss", "train_loss", "Loss on training classes", "cross-entropy"),
    Panel("round-time", "round_seconds", "Time of a round", "seconds", is_time=True),
)


def findings(config: Config, table: pd.DataFrame) -> Findings:
    """Return the content of the report."""
    runs = runs_of(config, table)
    texts = runs.texts
    # Without a method above chance, no difference between methods counts.
    gains = [over_chance(config, runs, method) for method in runs.methods]
    learns = any(gain.verdict == "reproduced" for gain in gains)
    remarks = [] if learns else [texts("at_chance")]
    return Findings(
        answers=[runs.answer(config.study, *sides(config, runs), remarks=remarks)],
        claims=claims(config, runs),
        figures=runs.panels(PANELS),
        tables=[
            texts.table("time", times(config, runs), ends=ENDS, constant=CONSTANT),
            texts.table("accuracy", accuracies(config, runs), final=FINAL),
            texts.table("order", order(config, runs)),
        ],
        paragraphs=[*runs.notes(), *texts.paragraphs()],
    )


def runs_of(config: Config, table: pd.DataFrame) -> Runs[Method]:
    """Return the runs of a table, with the seconds of each round and the texts of the report."""
    methods = config.runs().values()
    steps = {config.steps_of(method) for method in methods if method.adaptation != "prox"}
    texts = Texts(
        __file__,
        config=config,
        maml=next((method for method in methods if method.kind == "MAML"), None),
        steps=", ".join(map(str, sorted(steps))) or "1",
        rounds=counted(config.rounds, "round"),
        seeds=counted(config.seeds, "seed"),
    )
    examples = config.test_tasks * config.ways * config.queries
    runs = Runs(methods, table, texts, FINAL, resolution=100 / examples)
    for rows in runs.rows.values():
        total = rows["seconds"].sort_values("t", kind="stable")
        seconds = total.groupby("seed").value.diff().fillna(total.value)
        rows["round_seconds"] = total.assign(value=seconds)
    return runs


def sides(config: Config, runs: Runs[Method]) -> tuple[list[Method], list[Method]]:
    """Return the two groups of methods whose accuracies the question compares.

    They are OAGD and the others, the longest and the shortest windows, or the most and the fewest
    inner steps.
    """
    ours = [m for m in runs.methods if m.kind == "OAGD"]
    if config.study == "methods":
        return ours, [m for m in runs.methods if m.kind != "OAGD"]
    by_window = config.study == "window"
    return runs.extremes(ours, lambda m: (m.w or 1) if by_window else config.steps_of(m))


def fitted_times(
    config: Config, runs: Runs[Method], method: Method, metric: str = CLOCK
) -> pd.DataFrame:
    """Return the seconds of the first and last rounds and a line through all rounds, by seed.

    The line is that of Theil and Sen; `growth` is what it rises over the run, as a share of the
    median round. Rounds before the window or the sample is full do not count.
    """
    fits = {}
    for seed, total in runs.curve(method, metric).items():
        t, spent = total.index.to_numpy(), np.diff(total.to_numpy(), prepend=0.0)
        full = t >= (config.sampled_tasks if method.sampled else method.w or 1)
        if full.sum() < 3:
            full = t >= 1
        t, spent = t[full], spent[full]
        i, j = np.triu_indices(len(t), 1)
        slope, middle = np.median((spent[j] - spent[i]) / (t[j] - t[i])), np.median(spent)
        fits[seed] = {
            "first": np.median(spent[:ENDS]),
            "last": np.median(spent[-ENDS:]),
            "slope": slope,
            "intercept": middle - slope * np.median(t),
            "growth": slope * (t[-1] - t[0]) / middle,
        }
    return pd.DataFrame(fits).T


def growth_in_words(line: pd.DataFrame) -> str:
    """Return whether rounds take longer with t, by the interval of the slope over seeds."""
    if Gain.of(line.growth).above(CONSTANT) == "reproduced":
        return "longer with t"
    return "the same" if Gain.of(-line.growth).above(-CONSTANT) == "reproduced" else "within noise"


def times(config: Config, runs: Runs[Method]) -> pd.DataFrame:
    """Return how long the rounds of each method take."""
    rows = []
    for method in runs.methods:
        line = fitted_times(config, runs, method)
        on_the_wall = fitted_times(config, runs, method, "seconds")
        rows.append(
            {
                "method": method.label(),
                "first round, ms": round(1e3 * line["first"].mean(), 1),
                "last round, ms": round(1e3 * line["last"].mean(), 1),
                "slope, ms": with_interval(1e3 * line.slope),
                "slope (wall clock), ms": with_interval(1e3 * on_the_wall.slope),
                "a round takes": growth_in_words(line),
                "rounds": config.rounds_of(method),
                "seeds": len(line),
            }
        )
    return pd.DataFrame(rows)


def accuracies(config: Config, runs: Runs[Method]) -> pd.DataFrame:
    """Return the accuracy of each method on held-out tasks, and what it gained."""
    return pd.DataFrame(
        {
            "method": method.label(),
            "test": with_interval(100 * runs.final(method)),
            "over tasks": f"± {196 * runs.final(method, 'test_accuracy_error').mean():.1f}",
            "gain": learned(runs, method).words(),
            "training": with_interval(100 * runs.final(method, "train_accuracy")),
            "test loss": with_interval(runs.final(method, "test_loss")),
            "processor": with_interval(runs.last(method, CLOCK)),
            "rounds": config.rounds_of(method),
            "seeds": len(runs.final(method)),
        }
        for method in runs.methods
    )


def order(config: Config, runs: Runs[Method]) -> pd.DataFrame:
    """Return the methods in the order of their accuracy, with the difference from the best."""
    mean = {method: runs.final(method).mean() for method in runs.methods}
    best, *others = sorted(mean, key=lambda method: (-config.rounds_of(method), -mean[method]))
    against = {best: ""} | {m: runs.accuracy_gain(m, best).words("points") for m in others}
    return pd.DataFrame(
        {
            "method": method.label(),
            "test": f"{100 * mean[method]:.1f}",
            "rounds": config.rounds_of(method),
            f"against {best.label()}": words,
        }
        for method, words in against.items()
    )


def claims(config: Config, runs: Runs[Method]) -> list[Claim]:
    """Return the claims on the study of a configuration, and ours that the methods learn at all."""
    return [claim for make in [*STUDIES[config.study], own] for claim in make(config, runs)]


def oagd_and_baselines(runs: Runs[Method], tasks: str = "") -> tuple[list[Method], list[Method]]:
    """Return OAGD on the last w tasks, and the baselines.

    Both are empty if OAGD, ANIL or ITD-BiO was not run, or not on all tasks with `tasks="all"`.
    """
    ours = [method for method in runs.methods if method.kind == "OAGD" and not method.replay]
    theirs = [method for method in runs.methods if method.kind != "OAGD"]
    named = {method.kind for method in theirs if not (tasks and method.sampled)}
    return (ours, theirs) if ours and named >= {"ANIL", "ITD-BiO"} else ([], [])


def rounds_in_time(config: Config, runs: Runs[Method]) -> Iterator[Claim]:
    """Yield claim C6: only the rounds of OAGD take constant time."""
    pieces, intro = [], ["processor time of a round, first to last"]
    for method in itertools.chain(*oagd_and_baselines(runs, tasks="all")):
        line = fitted_times(config, runs, method)
        first, last = 1e3 * line["first"].mean(), 1e3 * line["last"].mean()
        slope = with_interval(1e3 * line.slope)
        words = f"{method.label()} {first:.0f} to {last:.0f} ms, {slope} ms more per round"
        if method.sampled:
            # Shown for comparison: the claim is about all tasks so far.
            intro.append(words)
        elif method.kind == "OAGD":
            pieces.append((words, Gain.of(-line.growth).above(-CONSTANT)))
        else:
            pieces.append((words, Gain.of(line.growth).above(CONSTANT)))
    yield runs.claim("rounds_in_time", pieces, intro)


def least_time(config: Config, runs: Runs[Method]) -> Iterator[Claim]:
    """Yield claim C6: OAGD needs less time than every baseline."""
    pieces = []
    for method, other in itertools.product(*oagd_and_baselines(runs)):
        both = min(config.rounds_of(method), config.rounds_of(other))
        one, two = (runs.curve(m, CLOCK).loc[both].mean() for m in (method, other))
        words = f"{method.label()} {one:.3g} s, {other.label()} {two:.3g} s"
        if both < config.rounds:
            words += f" (both after {both} rounds)"
        line = fitted_times(config, runs, other)
        if not other.sampled and growth_in_words(line) == "longer with t":
            level = fitted_times(config, runs, method)["last"].mean()
            meets = (level - line.intercept.mean()) / line.slope.mean()
            since = f"round {meets:.0f}" if meets > 1 else "the first"
            words += f" (by the fitted lines its rounds take longer from {since} on)"
        pieces.append((words, runs.time_gain(method, other, CLOCK).verdict))
    yield runs.claim("least_time", pieces, ["processor time of all rounds"])


def accuracy(config: Config, runs: Runs[Method]) -> Iterator[Claim]:
    """Yield claim C6: OAGD has a better test accuracy than the baselines."""
    ours, theirs = oagd_and_baselines(runs)
    for method in ours:
        pieces = []
        for other in theirs:
            both = min(config.rounds_of(method), config.rounds_of(other))
            at = f" (at round {both})" if both < config.rounds else ""
            pieces.append(piece(f"over {other.label()}{at}", runs.accuracy_gain(method, other)))
        intro = [f"{method.label()} {100 * runs.final(method).mean():.1f}"]
        yield runs.claim("accuracy", pieces, intro, name=f", {method.label()}")
    if not ours:
        yield runs.claim("accuracy", [], name="")


def learned(runs: Runs[Method], method: Method) -> Gain:
    """Return the points of test accuracy that a method gained over the untrained network."""
    return paired(100 * runs.final(method), 100 * runs.curve(method).iloc[0], runs.resolution)


def over_chance(config: Config, runs: Runs[Method], method: Method) -> Gain:
    """Return by how many points of test accuracy a method ends above chance."""
    return Gain.of(100 * runs.final(method) - 100 / config.ways, runs.resolution)


def own(config: Config, runs: Runs[Method]) -> Iterator[Claim]:
    """Yield claims of ours: every method is better than chance and than the untrained network."""
    above = [piece(f"{m.label()} over chance", over_chance(config, runs, m)) for m in runs.methods]
    yield runs.claim("chance", above, chance=f"{100 / config.ways:.0f}")
    yield runs.claim("learned", [piece(m.label(), learned(runs, m)) for m in runs.methods])


def replays(config: Config, runs: Runs[Method]) -> Iterator[Claim]:
    """Yield claims of ours: what a replay window gains over ITD-BiO and over the last w tasks."""
    goals = [method for method in runs.methods if method.kind == "ITD-BiO"]
    for method in (m for m in runs.methods if m.replay):
        last = dataclasses.replace(method, replay=None, recency=None)
        yield from runs.replay_claims(method, "ITD-BiO", goals, last)


def windows(config: Config, runs: Runs[Method]) -> Iterator[Claim]:
    """Yield claims C7: a larger window is better and slower, for each follower."""
    for follower in ADAPTATIONS:
        by_size = ordered(runs, follower, lambda method: method.w or 1)
        yield from runs.larger_is_better_and_slower(f"C7 (window, {follower}", "w", by_size, CLOCK)


def more_steps(config: Config, runs: Runs[Method]) -> Iterator[Claim]:
    """Yield claims C7: a larger K is better, slower and steadier, for followers that take steps.

    Where methods are compared, they are made for followers that were run with several K.
    """
    for follower in ("implicit", "head"):
        by_steps = ordered(runs, follower, config.steps_of)
        if config.study == "methods" and len(by_steps) < 2:
            continue
        name = f"C7 (inner steps, {follower}"
        yield from runs.larger_is_better_and_slower(name, "K", by_steps, CLOCK)
        final = {number: 100 * runs.final(method) for number, method in by_steps}
        # Two runs are equally far from their median, which says nothing.
        off = {k: (v - v.median()).abs() for k, v in final.items() if len(v) > 2}
        pieces = [
            piece(f"K = {large} nearer than K = {small}", paired(off[small], off[large]))
            for small, large in itertools.pairwise(off)
        ]
        intro = [f"K = {k}: deviation {v.std():.2f}" for k, v in final.items()]
        yield runs.claim("steadier", pieces, intro, follower=follower)


def ordered(
    runs: Runs[Method], follower: str, number: Callable[[Method], int]
) -> list[tuple[int, Method]]:
    """Return OAGD with a follower on the last w tasks, ordered by a number of the method."""
    kept = [m for m in runs.methods if m.adaptation == follower and not m.replay]
    return sorted(((number(method), method) for method in kept), key=lambda pair: pair[0])


STUDIES: dict[str, list[Callable[[Config, Runs[Method]], Iterator[Claim]]]] = {
    "methods": [rounds_in_time, least_time, accuracy, more_steps, replays],
    "window": [windows],
    "inner-steps": [more_steps],
}
