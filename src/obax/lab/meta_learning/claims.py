"""The claims C6 and C7 of the paper against the tables of the meta-learning experiments.

Each compares methods on the seeds and rounds that both have, by the rule of `kit.verdict`. A claim
whose methods were not all run is not tested.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd

from ..._support.counting import counted
from ..kit.learning import GOAL, Runs, above, judged, piece
from ..kit.verdict import Gain, chain, paired, with_interval
from ..report import Claim
from .config import ADAPTATIONS, Config, Method

ENDS = 5
"""The time of the first and of the last round is a median over so many."""
CONSTANT = 0.2
"""How much longer, as a share, the last round may take than the first and still be constant."""
CLOCK = "processor_seconds"


def claims(kind: str, config: Config, runs: Runs[Method]) -> list[Claim]:
    """Those that an experiment of this kind is about, and ours, without which no order of methods
    means anything."""
    found = [claim for find in KINDS[kind] for claim in find(config, runs)]
    return [*found, *own(config, runs)]


def lines(config: Config, runs: Runs[Method], method: Method, metric: str = CLOCK) -> pd.DataFrame:
    """By seed, the seconds of the first and of the last rounds, and a line through all of them
    (Theil and Sen's), from the round on in which the window or the sample is full."""
    from scipy import stats

    found = {}
    for seed, total in runs.curve(method, metric).items():
        t, spent = total.index.to_numpy(), np.diff(total.to_numpy(), prepend=0.0)
        full = t >= (config.sampled_tasks if method.sampled else method.w or 1)
        if full.sum() < 3:
            full = t >= 1
        slope, intercept, *_ = stats.theilslopes(spent[full], t[full])
        first, last = np.median(spent[full][:ENDS]), np.median(spent[-ENDS:])
        found[seed] = {"first": first, "last": last, "slope": slope, "intercept": intercept}
    return pd.DataFrame(found).T


def growth(line: pd.DataFrame) -> pd.Series:
    """By seed, by which share the last rounds take longer than the first."""
    return line["last"] / line["first"] - 1


def inner_steps(config: Config) -> str:
    """K, or all of them where methods differ."""
    taken = {config.steps_of(m) for m in config.runs().values() if m.adaptation != "prox"}
    return ", ".join(map(str, sorted(taken))) or "1"


def step_sizes(config: Config) -> str:
    """beta, and that of the head where it has another."""
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
    """OAGD on the last w tasks and the baselines; neither if OAGD, ANIL or ITD-BiO, on all `tasks`
    if they are named, was not run."""
    ours = [method for method in runs.methods if method.kind == "OAGD" and not method.replay]
    theirs = [method for method in runs.methods if method.kind != "OAGD"]
    named = {method.kind for method in theirs if not (tasks and method.sampled)}
    return (ours, theirs) if ours and named >= {"ANIL", "ITD-BiO"} else ([], [])


def rounds_in_time(config: Config, runs: Runs[Method]) -> Iterator[Claim]:
    """C6: a round of OAGD takes the same throughout, a round of the baselines ever longer."""
    pieces, intro = [], ["processor time of a round, first to last"]
    for method in itertools.chain(*_sides(runs, tasks="all")):
        line = lines(config, runs, method)
        first, last, longer = 1e3 * line["first"].mean(), 1e3 * line["last"].mean(), growth(line)
        slope = with_interval(1e3 * line.slope)
        words = f"{method.label()} {first:.0f} to {last:.0f} ms, {slope} ms more per round"
        if method.sampled:
            # Shown beside the others; the claim is about all tasks so far.
            intro.append(words)
        elif method.kind == "OAGD":
            pieces.append((words, above(Gain.of(-longer), -CONSTANT)))
        else:
            pieces.append((words, above(Gain.of(longer), CONSTANT)))
    claimed = (
        "the time of OAGD is linear in the rounds (a round takes the same throughout), that of "
        "ANIL and ITD-BiO on all tasks so far superlinear"
    )
    yield judged("C6 (time)", claimed, pieces, _setting(config, runs), intro=intro)


def least_time(config: Config, runs: Runs[Method]) -> Iterator[Claim]:
    """C6: OAGD needs less time than every baseline."""
    pieces = []
    for method, other in itertools.product(*_sides(runs)):
        both = min(config.rounds_of(method), config.rounds_of(other))
        one, two = (runs.curve(m, CLOCK).loc[both].mean() for m in (method, other))
        words = f"{method.label()} {one:.3g} s, {other.label()} {two:.3g} s"
        if both < config.rounds:
            words += f" (both after {both} rounds)"
        line = lines(config, runs, other)
        if not other.sampled and growth(line).mean() > CONSTANT:
            level = lines(config, runs, method)["last"].mean()
            meets = (level - line.intercept.mean()) / line.slope.mean()
            since = f"round {meets:.0f}" if meets > 1 else "the first"
            words += f" (by the fitted lines its rounds take longer from {since} on)"
        pieces.append((words, runs.sooner(method, other, CLOCK).verdict))
    claimed, intro = "OAGD needs less time than ANIL and ITD-BiO", ["processor time of all rounds"]
    yield judged("C6 (least time)", claimed, pieces, _setting(config, runs), intro=intro)


def accuracy(config: Config, runs: Runs[Method]) -> Iterator[Claim]:
    """C6: OAGD has the better test accuracy."""
    ours, theirs = _sides(runs)
    claimed = "the test accuracy of OAGD is better than that of ANIL and ITD-BiO"
    setting = _setting(config, runs)
    for method in ours:
        pieces = []
        for other in theirs:
            both = min(config.rounds_of(method), config.rounds_of(other))
            at = f" (at round {both})" if both < config.rounds else ""
            pieces.append(piece(f"over {other.label()}{at}", runs.points(method, other)))
        intro = [f"{method.label()} {100 * runs.final(method).mean():.1f}"]
        name = f"C6 (accuracy, {method.label()})"
        yield judged(name, claimed, pieces, setting, intro=intro)
    if not ours:
        yield judged("C6 (accuracy)", claimed, [], setting)


def learned(runs: Runs[Method], method: Method) -> Gain:
    """Points of test accuracy that a method gained over the untrained network."""
    return paired(100 * runs.final(method), 100 * runs.curve(method).iloc[0])


def own(config: Config, runs: Runs[Method]) -> Iterator[Claim]:
    """Ours: every method does better than chance, and than it does untrained."""
    setting, chance = _setting(config, runs), 100 / config.ways
    over = {m: Gain.of(100 * runs.final(m) - chance) for m in runs.methods}
    pieces = [piece(f"{method.label()} over chance", gain) for method, gain in over.items()]
    yield judged(
        "chance", f"ours: the test accuracy is above chance ({chance:.0f}%)", pieces, setting
    )
    pieces = [piece(method.label(), learned(runs, method)) for method in runs.methods]
    claimed = (
        "ours: the test accuracy is above that of the untrained network with the same adaptation, "
        "which is above chance already"
    )
    yield judged("learned", claimed, pieces, setting)


def replays(config: Config, runs: Runs[Method]) -> Iterator[Claim]:
    """Ours: what a replay window is worth against ITD-BiO, and against the last w tasks."""
    setting = _setting(config, runs)
    for method in (m for m in runs.methods if m.replay):
        claimed = "ours: OAGD with a replay window is at least as accurate as ITD-BiO"
        for other in (m for m in runs.methods if m.kind == "ITD-BiO"):
            name = f"replay ({method.label()}; {other.label()})"
            pieces = runs.goal(method, other, CLOCK)
            yield judged(name, f"{claimed}, {GOAL}", pieces, setting)
        last_tasks = dataclasses.replace(method, replay=None, recency=None)
        if last_tasks in runs.methods:
            pieces = [piece(f"over {last_tasks.label()}", runs.points(method, last_tasks))]
            claimed = "ours: drawing the window from the past is better than the last w tasks"
            yield judged(f"replay over last ({method.label()})", claimed, pieces, setting)


def windows(config: Config, runs: Runs[Method]) -> Iterator[Claim]:
    """C7: the larger the window, the better and the slower, for each follower."""
    for follower in ADAPTATIONS:
        rungs = _rungs(runs, follower, lambda method: method.w or 1)
        name = f"window, {follower}"
        yield from runs.ladder("C7", name, "w", rungs, _setting(config, runs), CLOCK)


def more_steps(config: Config, runs: Runs[Method]) -> Iterator[Claim]:
    """C7: the larger K, the better, slower and steadier, for each follower that takes steps."""
    for follower in ("implicit", "head"):
        yield from _ladder_of_steps(config, runs, follower)


def steps_beside(config: Config, runs: Runs[Method]) -> Iterator[Claim]:
    """The same, of the followers that took several K beside the methods that are compared."""
    for follower in ("implicit", "head"):
        if len(_rungs(runs, follower, config.steps_of)) > 1:
            yield from _ladder_of_steps(config, runs, follower)


def _ladder_of_steps(config: Config, runs: Runs[Method], follower: str) -> Iterator[Claim]:
    setting, rungs = _setting(config, runs), _rungs(runs, follower, config.steps_of)
    yield from runs.ladder("C7", f"inner steps, {follower}", "K", rungs, setting, CLOCK)
    final = {number: 100 * runs.final(method) for number, method in rungs}
    # Of two runs each is as far from their median as the other: they say nothing.
    off = {k: (v - v.median()).abs() for k, v in final.items() if len(v) > 2}
    pieces = [
        piece(f"K = {large} nearer than K = {small}", paired(off[small], off[large]))
        for small, large in itertools.pairwise(off)
    ]
    claimed = "the larger K, the steadier: final test accuracies nearer to their median over seeds"
    intro = [f"K = {k}: deviation {v.std():.2f}" for k, v in final.items()]
    name = f"C7 (steadier, {follower})"
    yield judged(name, claimed, pieces, setting, rule=chain, intro=intro)


def _rungs(
    runs: Runs[Method], follower: str, number: Callable[[Method], int]
) -> list[tuple[int, Method]]:
    """OAGD's methods with a follower on the last w tasks, in the order of a number of theirs."""
    kept = [m for m in runs.methods if m.adaptation == follower and not m.replay]
    return sorted(((number(method), method) for method in kept), key=lambda rung: rung[0])


KINDS: dict[str, list[Callable[[Config, Runs[Method]], Iterator[Claim]]]] = {
    "comparison": [rounds_in_time, least_time, accuracy, steps_beside, replays],
    "window": [windows],
    "steps": [more_steps],
}
