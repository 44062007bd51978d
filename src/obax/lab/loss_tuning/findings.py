"""The findings of the loss-tuning experiments, from their tables alone: answer, claims, tables.

The claims are C3, C4, C5 and C7 of the paper, and ours. Each compares methods on the seeds that
both have, by the rule in `framework.statistics`.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from functools import partial

import pandas as pd

from ..._support.messages import counted
from ..framework.experiment import Texts
from ..framework.learning import (
    TIME,
    TRAINING,
    Runs,
    accuracy_headline as headline,
    one_example,
    piece,
)
from ..framework.results import Claim, Figure, Findings
from ..framework.statistics import Gain, mean_over_seeds, paired
from .config import Config, Method

__all__ = ["findings", "headline"]
FINAL = 0.95
"""Final accuracies are means over the measurements after this share of the rounds."""
CLOSE = 2.0
"""A balanced accuracy that is lower by at most so many points counts as the same."""
FALL = 2.0
"""A fall is a loss of more than so many points of accuracy within the span."""
DIP, BEYOND = 1.0, 0.5
"""A dip has at least so many points, and so many more than what OGD loses."""
FLAT = 5.0
"""Accuracies over a range of step sizes count as flat if they differ by at most so many points."""
PAPERS_WINDOWS = {5, 10}
CURVATURES = (("own", ""), ("current", ", one solve"))


def findings(config: Config, table: pd.DataFrame) -> Findings:
    """Return the content of the report."""
    runs = runs_of(config, table)
    ones, others = sides(config, runs)
    why = doubt(config, runs, ones, others)
    return Findings(
        answers=[runs.answer(config.topic, ones, others, why)],
        claims=claims(config, runs),
        figures=[*runs.panels([TRAINING, TIME]), *paths_of_leader(runs)],
        tables=[
            runs.texts.table("classes", accuracies_of_classes(runs)),
            runs.texts.table("leader", ends_of_leader(runs)),
        ],
        paragraphs=[*runs.notes(), *runs.texts.paragraphs()],
    )


def runs_of(config: Config, table: pd.DataFrame) -> Runs[Method]:
    """Return the runs of a table, with the texts of the report."""
    rounds, seeds = counted(config.rounds, "round"), counted(config.seeds, "seed")
    texts = Texts(__file__, config=config, rounds=rounds, seeds=seeds)
    return Runs(config.runs().values(), table, texts, FINAL, one_example(table))


def sides(config: Config, runs: Runs[Method]) -> tuple[list[Method], list[Method]]:
    """Return the two groups of methods whose accuracies the question compares.

    They are a method with its leader moving and held, or without such a pair OAGD and OGD; the
    longest and the shortest windows; or the best and the worst step sizes.
    """
    moving = [m for m in runs.methods if m.kind == "OAGD" and not m.held]
    if config.study == "methods":
        twins = {m: dataclasses.replace(m, held=True) for m in moving}
        if one := runs.best(m for m in moving if twins[m] in runs.methods):
            return [one], [twins[one]]
        return moving, [m for m in runs.methods if m.kind == "OGD"]
    if config.study == "steps":
        return runs.extremes(moving, sorted(moving, key=lambda m: runs.final(m).mean()).index)
    return runs.extremes(moving, lambda m: m.w or 0)


def doubt(
    config: Config, runs: Runs[Method], ones: list[Method], others: list[Method]
) -> tuple[str, str] | None:
    """Return what else may explain a gain over OGD: a window trains the follower more."""
    one = runs.best(ones)
    if config.study != "methods" or one is None or any(other.held for other in others):
        return None
    steps = (one.w or 1) * (one.passes or 1)
    return None if steps == 1 else ("more training", runs.texts("more_training", steps=steps))


def columns_of(method: Method) -> dict[str, str]:
    """Return the columns of a method and its step sizes in a table for people."""
    sizes = {"alpha": method.alpha, "beta": method.beta}
    words = {name: "-" if size is None else f"{size:g}" for name, size in sizes.items()}
    return {"method": method.label()} | words


def metrics_of_classes(runs: Runs[Method], part: str) -> dict[str, str]:
    """Return the metrics of each class by the names of their columns."""
    metrics = [metric for metric in runs.rows[runs.methods[0]] if metric.startswith(f"{part}_")]
    return {f"class {metric.removeprefix(f'{part}_')}": metric for metric in metrics}


def accuracies_of_classes(runs: Runs[Method]) -> pd.DataFrame:
    """Return the final accuracy of each method on each class."""
    metrics = metrics_of_classes(runs, "test_class").items()
    return pd.DataFrame(
        columns_of(method)
        | {name: round(100 * runs.final(method, metric).mean(), 1) for name, metric in metrics}
        for method in runs.methods
    )


def ends_of_leader(runs: Runs[Method]) -> pd.DataFrame:
    """Return gamma and Delta of each method after the last round."""
    rows = []
    for method, part in itertools.product(runs.methods, ("gamma", "delta")):
        metrics = metrics_of_classes(runs, part).items()
        ends = {name: round(runs.last(method, metric).mean(), 3) for name, metric in metrics}
        rows.append(columns_of(method) | {"part": part} | ends)
    return pd.DataFrame(rows)


def paths_of_leader(runs: Runs[Method]) -> Iterator[Figure]:
    """Yield gamma and Delta of the method with the longest window, and of AutoBalance."""
    moving = [method for method in first_steps(runs) if method.kind != "OGD" and not method.held]
    windows = sorted((m for m in moving if m.w is not None), key=lambda m: -(m.w or 0))[:1]
    shown = [*windows, *(m for m in moving if m.kind == "AutoBalance")]
    for method, part in itertools.product(shown, ("gamma", "delta")):
        metrics = metrics_of_classes(runs, part).items()
        curves = [mean_over_seeds(runs.rows[method][metric], name) for name, metric in metrics]
        name = f"{part}-{method.kind.lower()}"
        yield runs.texts.figure(part, curves, name, method=method.label())


def claims(config: Config, runs: Runs[Method]) -> list[Claim]:
    """Return the claims on the topic of a configuration."""
    facts = Evidence(config, runs)
    return [claim for make in TOPICS[config.topic] for claim in make(facts)]


def first_steps(runs: Runs[Method]) -> list[Method]:
    """Return each method with the first of its pairs of step sizes."""
    first: dict[Method, Method] = {}
    for method in runs.methods:
        first.setdefault(dataclasses.replace(method, alpha=None, beta=None), method)
    return list(first.values())


class Evidence:
    """What the claims are judged by: every method with its first step sizes."""

    def __init__(self, config: Config, runs: Runs[Method]):
        self.config, self.runs = config, runs
        self.methods = first_steps(runs)
        self.ogd = next((m for m in self.methods if m.kind == "OGD"), None)
        self.autobalance = next((m for m in self.methods if m.kind == "AutoBalance"), None)
        self.ours = self.oagd()
        self.span = max(3 * config.evaluate_every, config.phase_rounds // 5)
        """The number of rounds in which a fall is looked for."""

    def oagd(self, **wanted: object) -> list[Method]:
        """Return the paper's OAGD methods with the wanted options, ordered by window.

        The paper's OAGD has its leader on, a Neumann series, one pass over the last w rounds, and
        the outer step size of all methods.
        """
        wanted = {"kind": "OAGD", "held": False, "solver": "neumann"} | wanted
        wanted |= dict.fromkeys(("passes", "replay", "own_alpha"))
        kept = [m for m in self.methods if all(getattr(m, k) == v for k, v in wanted.items())]
        return sorted(kept, key=lambda method: method.w or 0)

    def mean(self, method: Method) -> float:
        """Return the final test accuracy of a method in per cent."""
        return 100 * self.runs.final(method).mean()

    def drop(self, method: Method, at: int) -> pd.Series:
        """Return how many points the test accuracy falls within `span` rounds after round `at`."""
        curve = 100 * self.runs.curve(method)
        before = curve[(curve.index <= at) & (curve.index > at - self.span)].mean()
        return before - curve[(curve.index > at) & (curve.index <= at + self.span)].min()


def time(facts: Evidence, id: str) -> Iterator[Claim]:
    """Yield the claim that OGD takes less time than OAGD, and OAGD less than AutoBalance."""
    pieces = []
    if facts.ogd and facts.autobalance:
        for ours in facts.ours:
            for one, other in ((facts.ogd, ours), (ours, facts.autobalance)):
                gain = facts.runs.time_gain(one, other)
                pieces.append(piece(f"{other.label()} over {one.label()}", gain, unit="s"))
    spent = [f"{m.label()} {facts.runs.last(m).mean():.3g} s" for m in facts.methods]
    yield facts.runs.claim("time", pieces, spent, id=id)


def overtaking(facts: Evidence) -> Iterator[Claim]:
    """Yield claim C3: OAGD with w = 5, 10 overtakes AutoBalance."""
    ours = [method for method in facts.ours if method.w in PAPERS_WINDOWS]
    complete = {method.w for method in ours} == PAPERS_WINDOWS
    yield against_autobalance(facts, "overtaking", ours if complete else [], margin=0.0)


def closeness(facts: Evidence) -> Iterator[Claim]:
    """Yield claim C5: OAGD is as accurate as AutoBalance. Its time is another claim."""
    ours = [method for method in facts.ours if method.w != 1]
    yield against_autobalance(facts, "closeness", ours, margin=-CLOSE)


def against_autobalance(facts: Evidence, key: str, ours: list[Method], margin: float) -> Claim:
    """Return a claim on the accuracy of methods over that of AutoBalance, beyond a margin."""
    theirs, pieces, intro = facts.autobalance, [], []
    if theirs:
        intro = [f"AutoBalance {facts.mean(theirs):.1f}"]
        for method in ours:
            gain, name = facts.runs.accuracy_gain(method, theirs), f"{method.label()} "
            pieces.append(piece(f"{name}{facts.mean(method):.1f}", gain, gain.above(margin)))
    return facts.runs.claim(key, pieces, intro, close=f"{CLOSE:g}")


def windows(facts: Evidence, id: str) -> Iterator[Claim]:
    """Yield the claims that a larger window is better and slower."""
    for curvature, note in CURVATURES:
        sizes = [(m.w or 0, m) for m in facts.oagd(curvature=curvature, decay=0.9)]
        if len(sizes) > 1 or curvature == "own":
            id_here = f"{id} (window{note}"
            yield from facts.runs.larger_is_better_and_slower(id_here, "w", sizes, "seconds")


def shift(facts: Evidence) -> Iterator[Claim]:
    """Yield claim C4: AutoBalance falls where the classes shift, and OAGD does not."""
    at, pieces = 2 * facts.config.phase_rounds, []
    if facts.autobalance and facts.ours and facts.config.rounds > at + facts.span:
        fall = Gain.of(facts.drop(facts.autobalance, at))
        pieces = [piece("AutoBalance falls by", fall, fall.above(FALL))]
        for method in facts.ours:
            rise = Gain.of(-facts.drop(method, at))
            pieces.append(piece(f"{method.label()} rises by", rise, rise.above(-FALL)))
    intro = [f"test accuracy within {facts.span} rounds of round {at}"]
    yield facts.runs.claim("shift", pieces, intro, at=at, fall=f"{FALL:g}")


def decays(facts: Evidence) -> Iterator[Claim]:
    """Yield claim C4: with a large window, a small decay adapts better."""
    since = max(facts.config.outer_start, facts.config.phase_rounds)
    for curvature, note in CURVATURES:
        some, pieces, intro = facts.oagd(curvature=curvature), [], []
        ladder = sorted((m for m in some if m.w == some[-1].w), key=lambda m: -(m.decay or 0))
        if len(ladder) < 2 and curvature != "own":
            continue
        if len(ladder) > 1 and ladder[0].w != 1 and facts.config.rounds > facts.config.phase_rounds:
            curves = [100 * facts.runs.curve(method) for method in ladder]
            later = [curve[curve.index > since].mean() for curve in curves]
            pieces = [piece("smallest over largest δ", paired(later[-1], later[0]))]
            intro = [f"mean test accuracy after the first shift, w = {ladder[0].w}"]
            for method, values in zip(ladder, later, strict=True):
                intro.append(f"δ = {method.decay:g}: {values.mean():.1f}")
        yield facts.runs.claim("decay", pieces, intro, note=note)


def dip(facts: Evidence) -> Iterator[Claim]:
    """Yield claim C4: a short disruption when the outer level starts, which OGD does not have."""
    at, pieces = facts.config.outer_start, []
    intro = [f"within {facts.span} rounds of round {at}"]
    if facts.ogd and facts.config.rounds > at + facts.span:
        needed = (facts.drop(facts.ogd, at) + BEYOND).clip(lower=DIP)
        for method in facts.ours:
            fall, name = facts.drop(method, at), f"{method.label()} falls by"
            pieces.append(piece(name, Gain.of(fall), paired(fall, needed).verdict))
        intro.append(f"OGD falls by {facts.drop(facts.ogd, at).mean():.1f}")
    yield facts.runs.claim("dip", pieces, intro, dip=f"{DIP:g}", beyond=f"{BEYOND:g}")


def flatness(facts: Evidence) -> list[Claim]:
    """Return claims C7: OAGD is not sensitive to alpha and beta."""
    made = []
    for method, symbol in itertools.product(facts.ours, ("alpha", "beta")):
        at = getattr(method, symbol)
        same = [m for m in facts.runs.methods if dataclasses.replace(m, **{symbol: at}) == method]
        if len(same) < 2:
            continue
        final = {getattr(m, symbol): 100 * facts.runs.final(m) for m in same}
        worst, *_, best = sorted(final.values(), key=lambda values: values.mean())
        gain = paired(best, worst)
        pieces = [piece("best over worst", gain, gain.near(FLAT))]
        intro = [f"{method.label()}, final balanced test accuracy"]
        intro += [f"{symbol} = {step:g}: {values.mean():.1f}" for step, values in final.items()]
        made.append(facts.runs.claim("flatness", pieces, intro, symbol=symbol, flat=f"{FLAT:g}"))
    return made or [facts.runs.claim("steps", [])]


def leaders(facts: Evidence) -> Iterator[Claim]:
    """Yield a claim of ours: the leader is better than the same method with its leader held."""
    for held in (method for method in facts.methods if method.held):
        for moving in facts.oagd(w=held.w, decay=held.decay, curvature=held.curvature):
            gain = facts.runs.accuracy_gain(moving, held)
            pieces = [piece(f"{moving.label()} over {held.label()}", gain)]
            yield facts.runs.claim("leader", pieces, w=held.w)


def replays(facts: Evidence) -> Iterator[Claim]:
    """Yield claims of ours: the gain of a replay window over AutoBalance and the last w rounds."""
    goals = [facts.autobalance] if facts.autobalance else []
    for method in (m for m in facts.methods if m.replay and not m.held):
        last = dataclasses.replace(method, replay=None, recency=None, balanced=None)
        yield from facts.runs.replay_claims(method, "AutoBalance", goals, last)


TOPICS: dict[str, list[Callable[[Evidence], Iterator[Claim] | list[Claim]]]] = {
    "imbalance": [partial(time, id="C3"), overtaking, partial(windows, id="C3"), leaders, replays],
    "table": [closeness, partial(time, id="C5"), leaders, replays],
    "shift": [shift, decays, dip, replays],
    "window": [partial(windows, id="C7")],
    "steps": [flatness],
}
