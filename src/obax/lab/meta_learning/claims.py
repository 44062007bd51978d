"""The claims C6 and C7 of the paper, judged by the tables of the meta-learning experiments.

Each compares methods on the seeds and rounds that both have, by the rule in `framework.statistics`.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd

from ..._support.messages import counted
from ..framework.learning import REPLAY_GOAL, Piece, Runs, judge, piece
from ..framework.results import Claim
from ..framework.statistics import Gain, chain, paired, with_interval
from .config import ADAPTATIONS, Config, Method

ENDS = 5
"""The time of the first and of the last round is a median over so many rounds."""
CONSTANT = 0.2
"""How much longer, as a share, the last round may take than the first and still be constant."""
CLOCK = "processor_seconds"
COMPARED = ("OAGD", "ANIL", "ITD-BiO")


def claims(config: Config, runs: Runs[Method]) -> list[Claim]:
    """Return the claims on the study of a configuration, and ours that the methods learn at all."""
    papers = [claim for make in STUDIES[config.study] for claim in make(config, runs)]
    return [*papers, *own(config, runs)]


def fitted_times(
    config: Config, runs: Runs[Method], method: Method, metric: str = CLOCK
) -> pd.DataFrame:
    """Return the seconds of the first and last rounds and a line through all rounds, by seed.

    The line is that of Theil and Sen. Rounds before the window or the sample is full do not count.
    """
    from scipy import stats

    fits = {}
    for seed, total in runs.curve(method, metric).items():
        t, spent = total.index.to_numpy(), np.diff(total.to_numpy(), prepend=0.0)
        full = t >= (config.sampled_tasks if method.sampled else method.w or 1)
        if full.sum() < 3:
            full = t >= 1
        slope, intercept, *_ = stats.theilslopes(spent[full], t[full])
        first, last = np.median(spent[full][:ENDS]), np.median(spent[-ENDS:])
        fits[seed] = {"first": first, "last": last, "slope": slope, "intercept": intercept}
    return pd.DataFrame(fits).T


def growth(line: pd.DataFrame) -> pd.Series:
    """Return the share by which the last rounds take longer than the first, by seed."""
    return line["last"] / line["first"] - 1


def growth_in_words(line: pd.DataFrame) -> str:
    """Return whether rounds take longer with t, by the interval of their growth over seeds."""
    longer = growth(line)
    if Gain.of(longer).above(CONSTANT) == "reproduced":
        return "longer with t"
    return "the same" if Gain.of(-longer).above(-CONSTANT) == "reproduced" else "within noise"


def inner_steps(config: Config) -> str:
    """Return K, or all of them if methods differ."""
    taken = {config.steps_of(m) for m in config.runs().values() if m.adaptation != "prox"}
    return ", ".join(map(str, sorted(taken))) or "1"


def step_sizes(config: Config) -> str:
    """Return beta, and that of the head if it is different."""
    head = f", that of the head {config.head_step_size:g} over its curvature"
    return f"beta {config.inner_step_size:g}{head if config.head_step_size else ''}"


def _setting(config: Config, runs: Runs[Method]) -> str:
    maml = [m for m in config.runs().values() if m.kind == "MAML"]
    shorter = f" (MAML {config.rounds_of(maml[0])} and {config.seeds_of(maml[0])})" if maml else ""
    return (
        f"{runs.data}, {config.blocks} x {config.filters} filters, "
        f"{counted(config.rounds, 'round')} and {counted(config.seeds, 'seed')}{shorter}, "
        f"alpha {config.outer_step_size:g} ({config.outer_optimiser}), "
        f"{step_sizes(config)}, K {inner_steps(config)}"
    )


def _sides(runs: Runs[Method], tasks: str = "") -> tuple[list[Method], list[Method]]:
    """Return OAGD on the last w tasks, and the baselines.

    Both are empty if OAGD, ANIL or ITD-BiO was not run, or not on all tasks with `tasks="all"`.
    """
    ours = [method for method in runs.methods if method.kind == "OAGD" and not method.replay]
    theirs = [method for method in runs.methods if method.kind != "OAGD"]
    named = {method.kind for method in theirs if not (tasks and method.sampled)}
    return (ours, theirs) if ours and named >= {"ANIL", "ITD-BiO"} else ([], [])


def rounds_in_time(config: Config, runs: Runs[Method]) -> Iterator[Claim]:
    """Yield claim C6: only the rounds of OAGD take constant time."""
    pieces: list[Piece] = []
    intro = ["processor time of a round, first to last"]
    for method in itertools.chain(*_sides(runs, tasks="all")):
        line = fitted_times(config, runs, method)
        first, last, longer = 1e3 * line["first"].mean(), 1e3 * line["last"].mean(), growth(line)
        slope = with_interval(1e3 * line.slope)
        words = f"{method.label()} {first:.0f} to {last:.0f} ms, {slope} ms more per round"
        if method.sampled:
            # Shown for comparison: the claim is about all tasks so far.
            intro.append(words)
        elif method.kind == "OAGD":
            pieces.append((words, Gain.of(-longer).above(-CONSTANT)))
        else:
            pieces.append((words, Gain.of(longer).above(CONSTANT)))
    claimed = (
        "the time of OAGD is linear in the rounds (every round takes the same time), that of ANIL "
        "and ITD-BiO on all tasks so far superlinear"
    )
    setting = _setting(config, runs)
    yield judge("C6 (time)", claimed, pieces, setting, intro=intro, kinds=COMPARED)


def least_time(config: Config, runs: Runs[Method]) -> Iterator[Claim]:
    """Yield claim C6: OAGD needs less time than every baseline."""
    pieces = []
    for method, other in itertools.product(*_sides(runs)):
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
    claimed, intro = "OAGD needs less time than ANIL and ITD-BiO", ["processor time of all rounds"]
    setting = _setting(config, runs)
    yield judge("C6 (least time)", claimed, pieces, setting, intro=intro, kinds=COMPARED)


def accuracy(config: Config, runs: Runs[Method]) -> Iterator[Claim]:
    """Yield claim C6: OAGD has a better test accuracy than the baselines."""
    ours, theirs = _sides(runs)
    claimed = "the test accuracy of OAGD is better than that of ANIL and ITD-BiO"
    setting = _setting(config, runs)
    for method in ours:
        pieces = []
        for other in theirs:
            both = min(config.rounds_of(method), config.rounds_of(other))
            at = f" (at round {both})" if both < config.rounds else ""
            pieces.append(piece(f"over {other.label()}{at}", runs.accuracy_gain(method, other)))
        intro = [f"{method.label()} {100 * runs.final(method).mean():.1f}"]
        name = f"C6 (accuracy, {method.label()})"
        yield judge(name, claimed, pieces, setting, intro=intro, kinds=COMPARED)
    if not ours:
        yield judge("C6 (accuracy)", claimed, [], setting, kinds=COMPARED)


def learned(runs: Runs[Method], method: Method) -> Gain:
    """Return the points of test accuracy that a method gained over the untrained network."""
    return paired(100 * runs.final(method), 100 * runs.curve(method).iloc[0], runs.resolution)


def over_chance(config: Config, runs: Runs[Method], method: Method) -> Gain:
    """Return by how many points of test accuracy a method ends above chance."""
    return Gain.of(100 * runs.final(method) - 100 / config.ways, runs.resolution)


def own(config: Config, runs: Runs[Method]) -> Iterator[Claim]:
    """Yield claims of ours: every method is better than chance and than the untrained network."""
    setting, chance = _setting(config, runs), 100 / config.ways
    over = {m: over_chance(config, runs, m) for m in runs.methods}
    pieces = [piece(f"{method.label()} over chance", gain) for method, gain in over.items()]
    claimed = f"ours: the test accuracy is above chance ({chance:.0f}%)"
    yield judge("chance", claimed, pieces, setting, kinds=())
    pieces = [piece(method.label(), learned(runs, method)) for method in runs.methods]
    claimed = (
        "ours: the test accuracy is above that of the untrained network with the same adaptation, "
        "which is above chance already"
    )
    yield judge("learned", claimed, pieces, setting, kinds=())


def replays(config: Config, runs: Runs[Method]) -> Iterator[Claim]:
    """Yield claims of ours: what a replay window gains over ITD-BiO and over the last w tasks."""
    setting = _setting(config, runs)
    for method in (m for m in runs.methods if m.replay):
        claimed = "ours: OAGD with a replay window is at least as accurate as ITD-BiO"
        for other in (m for m in runs.methods if m.kind == "ITD-BiO"):
            name = f"replay ({method.label()}; {other.label()})"
            pieces = runs.replay_goal(method, other, CLOCK)
            goal = f"{claimed}, {REPLAY_GOAL}"
            yield judge(name, goal, pieces, setting, kinds=("OAGD", "ITD-BiO"))
        last_tasks = dataclasses.replace(method, replay=None, recency=None)
        if last_tasks in runs.methods:
            pieces = [piece(f"over {last_tasks.label()}", runs.accuracy_gain(method, last_tasks))]
            claimed = "ours: drawing the window from the past is better than the last w tasks"
            name = f"replay over last ({method.label()})"
            yield judge(name, claimed, pieces, setting, kinds=("OAGD",))


def windows(config: Config, runs: Runs[Method]) -> Iterator[Claim]:
    """Yield claims C7: a larger window is better and slower, for each follower."""
    for follower in ADAPTATIONS:
        by_size = _ordered(runs, follower, lambda method: method.w or 1)
        name, setting = f"window, {follower}", _setting(config, runs)
        yield from runs.larger_is_better_and_slower("C7", name, "w", by_size, setting, CLOCK)


def more_steps(config: Config, runs: Runs[Method]) -> Iterator[Claim]:
    """Yield claims C7: a larger K is better, slower and steadier, for followers that take steps."""
    for follower in ("implicit", "head"):
        yield from _claims_on_steps(config, runs, follower)


def steps_beside(config: Config, runs: Runs[Method]) -> Iterator[Claim]:
    """Yield the same claims for followers that were run with several K beside other methods."""
    for follower in ("implicit", "head"):
        if len(_ordered(runs, follower, config.steps_of)) > 1:
            yield from _claims_on_steps(config, runs, follower)


def _claims_on_steps(config: Config, runs: Runs[Method], follower: str) -> Iterator[Claim]:
    setting, by_steps = _setting(config, runs), _ordered(runs, follower, config.steps_of)
    name = f"inner steps, {follower}"
    yield from runs.larger_is_better_and_slower("C7", name, "K", by_steps, setting, CLOCK)
    final = {number: 100 * runs.final(method) for number, method in by_steps}
    # Two runs are equally far from their median, which says nothing.
    off = {k: (v - v.median()).abs() for k, v in final.items() if len(v) > 2}
    pieces = [
        piece(f"K = {large} nearer than K = {small}", paired(off[small], off[large]))
        for small, large in itertools.pairwise(off)
    ]
    claimed = "the larger K, the steadier: final test accuracies nearer to their median over seeds"
    intro = [f"K = {k}: deviation {v.std():.2f}" for k, v in final.items()]
    yield judge(
        f"C7 (steadier, {follower})",
        claimed,
        pieces,
        setting,
        rule=chain,
        intro=intro,
        kinds=("OAGD",),
    )


def _ordered(
    runs: Runs[Method], follower: str, number: Callable[[Method], int]
) -> list[tuple[int, Method]]:
    """Return OAGD with a follower on the last w tasks, ordered by a number of the method."""
    kept = [m for m in runs.methods if m.adaptation == follower and not m.replay]
    return sorted(((number(method), method) for method in kept), key=lambda pair: pair[0])


STUDIES: dict[str, list[Callable[[Config, Runs[Method]], Iterator[Claim]]]] = {
    "methods": [rounds_in_time, least_time, accuracy, steps_beside, replays],
    "window": [windows],
    "inner-steps": [more_steps],
}
