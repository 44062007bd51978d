"""The claims C3, C4, C5 and C7 of the paper, judged by the tables of the loss-tuning experiments.

Each compares methods on the seeds that both have, by the rule in `framework.statistics`.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pandas as pd

from ..._support.messages import counted
from ..framework.learning import REPLAY_GOAL, Runs, judge, piece
from ..framework.results import Claim
from ..framework.statistics import Gain, chain, paired
from .config import Config, Method

CLOSE = 2.0
"""A balanced accuracy that is lower by at most so many points counts as the same."""
FALL = 2.0
"""A fall is a loss of more than so many points of accuracy within the span."""
DIP, BEYOND = 1.0, 0.5
"""A dip has at least so many points, and so many more than what OGD loses."""
FLAT = 5.0
"""Accuracies over a range of step sizes count as flat if they differ by at most so many points."""
PAPERS_WINDOWS = {5, 10}
CLOCK = "processor_seconds"


OURS_AND_BOTH = ("OGD", "OAGD", "AutoBalance")
AGAINST_AUTOBALANCE = ("OAGD", "AutoBalance")


def claims(config: Config, runs: Runs[Method]) -> list[Claim]:
    """Return the claims on the topic of a configuration."""
    evidence = Evidence(config, runs)
    return [claim for make in TOPICS[config.topic] for claim in make(evidence)]


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
        size = f"{config.hidden} hidden units"
        if config.has_images:
            pixels = 28 // config.downsample
            size = f"{config.blocks} x {config.filters} filters, {pixels} x {pixels} pixels"
        theirs = min(config.seeds, config.autobalance_seeds)
        self.setting = (
            f"{runs.data}, {size}, {counted(config.rounds, 'round')}, "
            f"{counted(config.seeds, 'seed')} (AutoBalance {theirs}), leader from round "
            f"{config.outer_start}"
        )

    def oagd(self, **wanted: object) -> list[Method]:
        """Return the paper's OAGD methods with the wanted options, ordered by window.

        The paper's OAGD has its leader on, a Neumann series, one pass over the last w rounds, and
        the outer step size of all methods.
        """
        usual = {"held": False, "solver": "neumann"} | dict.fromkeys(
            ("passes", "replay", "own_alpha")
        )
        wanted = {"kind": "OAGD", **usual, **wanted}
        kept = [m for m in self.methods if all(getattr(m, k) == v for k, v in wanted.items())]
        return sorted(kept, key=lambda method: method.w or 0)

    def drop(self, method: Method, at: int) -> pd.Series:
        """Return how many points the test accuracy falls within `span` rounds after round `at`."""
        curve = 100 * self.runs.curve(method)
        before = curve[(curve.index <= at) & (curve.index > at - self.span)].mean()
        return before - curve[(curve.index > at) & (curve.index <= at + self.span)].min()

    @property
    def span(self) -> int:
        """The number of rounds in which a fall is looked for."""
        return max(3 * self.config.evaluate_every, self.config.phase_rounds // 5)


def time(see: Evidence, id: str) -> Iterator[Claim]:
    """Yield the claim that OGD takes less time than OAGD, and OAGD less than AutoBalance."""
    pieces = []
    if see.ogd and see.autobalance:
        for ours in see.ours:
            for one, other in ((see.ogd, ours), (ours, see.autobalance)):
                gain = see.runs.time_gain(one, other)
                pieces.append(piece(f"{other.label()} over {one.label()}", gain, unit="s"))
    spent = [f"{m.label()} {see.runs.last(m).mean():.3g} s" for m in see.methods]
    claimed = "runtime OGD < OAGD < AutoBalance"
    about: dict[str, Any] = {"rule": chain, "intro": spent, "kinds": OURS_AND_BOTH}
    yield judge(f"{id} (time)", claimed, pieces, see.setting, **about)


def overtaking(see: Evidence) -> Iterator[Claim]:
    """Yield claim C3: OAGD with w = 5, 10 overtakes AutoBalance."""
    ours = [method for method in see.ours if method.w in PAPERS_WINDOWS]
    claimed = "OAGD with w = 5 and with w = 10 overtakes AutoBalance in balanced test accuracy"
    complete = {method.w for method in ours} == PAPERS_WINDOWS
    claim = _against_autobalance(
        see, "C3 (accuracy)", claimed, ours if complete else [], margin=0.0
    )
    yield dataclasses.replace(claim, windows=sorted(PAPERS_WINDOWS))


def closeness(see: Evidence) -> Iterator[Claim]:
    """Yield claim C5: OAGD is as accurate as AutoBalance. Its time is another claim."""
    claimed = "OAGD with a window has the balanced test accuracy of AutoBalance (at most "
    claimed += f"{CLOSE:g} points less)"
    ours = [method for method in see.ours if method.w != 1]
    yield _against_autobalance(see, "C5 (accuracy)", claimed, ours, margin=-CLOSE)


def _against_autobalance(
    see: Evidence, id: str, claimed: str, ours: list[Method], margin: float
) -> Claim:
    theirs, pieces, intro = see.autobalance, [], []
    if theirs:
        intro = [f"AutoBalance {100 * see.runs.final(theirs).mean():.1f}"]
        for method in ours:
            gain = see.runs.accuracy_gain(method, theirs)
            name = f"{method.label()} {100 * see.runs.final(method).mean():.1f}"
            pieces.append(piece(name, gain, gain.above(margin)))
    return judge(id, claimed, pieces, see.setting, intro=intro, kinds=AGAINST_AUTOBALANCE)


def windows(see: Evidence, id: str) -> Iterator[Claim]:
    """Yield the claims that a larger window is better and slower."""
    for curvature, note in (("own", ""), ("current", ", one solve")):
        ladder = see.oagd(curvature=curvature, decay=0.9)
        if len(ladder) > 1 or curvature == "own":
            by_size = [(m.w or 0, m) for m in ladder]
            yield from see.runs.larger_is_better_and_slower(
                id, f"window{note}", "w", by_size, see.setting
            )


def shift(see: Evidence) -> Iterator[Claim]:
    """Yield claim C4: AutoBalance falls where the classes shift, and OAGD does not."""
    at, pieces = 2 * see.config.phase_rounds, []
    if see.autobalance and see.ours and see.config.rounds > at + see.span:
        fall = Gain.of(see.drop(see.autobalance, at))
        pieces = [piece("AutoBalance falls by", fall, fall.above(FALL))]
        for method in see.ours:
            rise = Gain.of(-see.drop(method, at))
            pieces.append(piece(f"{method.label()} rises by", rise, rise.above(-FALL)))
    claimed = f"AutoBalance falls at round {at} by more than {FALL:g} points, OAGD does not"
    intro = [f"test accuracy within {see.span} rounds of round {at}"]
    about: dict[str, Any] = {"rule": chain, "intro": intro, "kinds": AGAINST_AUTOBALANCE}
    yield judge("C4 (shift)", claimed, pieces, see.setting, **about)


def decays(see: Evidence) -> Iterator[Claim]:
    """Yield claim C4: with a large window, a small decay adapts better."""
    since = max(see.config.outer_start, see.config.phase_rounds)
    for curvature, note in (("own", ""), ("current", ", one solve")):
        some = see.oagd(curvature=curvature)
        ladder = sorted((m for m in some if m.w == some[-1].w), key=lambda m: -(m.decay or 0))
        if len(ladder) < 2 and curvature != "own":
            continue
        pieces, intro = [], []
        if len(ladder) > 1 and ladder[0].w != 1 and see.config.rounds > see.config.phase_rounds:
            curves = [100 * see.runs.curve(method) for method in ladder]
            later = [curve[curve.index > since].mean() for curve in curves]
            pieces = [piece("smallest over largest δ", paired(later[-1], later[0]))]
            intro = [f"mean test accuracy after the first shift, w = {ladder[0].w}"]
            for method, values in zip(ladder, later, strict=True):
                intro.append(f"δ = {method.decay:g}: {values.mean():.1f}")
        claimed = "with a large window a small δ adapts better"
        yield judge(f"C4 (decay{note})", claimed, pieces, see.setting, intro=intro, kinds=("OAGD",))


def dip(see: Evidence) -> Iterator[Claim]:
    """Yield claim C4: a short disruption when the outer level starts, which OGD does not have."""
    at, pieces = see.config.outer_start, []
    intro = [f"within {see.span} rounds of round {at}"]
    if see.ogd and see.config.rounds > at + see.span:
        needed = (see.drop(see.ogd, at) + BEYOND).clip(lower=DIP)
        for method in see.ours:
            fall, name = see.drop(method, at), f"{method.label()} falls by"
            pieces.append(piece(name, Gain.of(fall), paired(fall, needed).verdict))
        intro.append(f"OGD falls by {see.drop(see.ogd, at).mean():.1f}")
    claimed = (
        f"the accuracy dips when the outer level starts, by {DIP:g} point at least and by "
        f"{BEYOND:g} more than that of OGD, which has no outer level"
    )
    yield judge("C4 (dip)", claimed, pieces, see.setting, intro=intro, kinds=("OGD", "OAGD"))


def flatness(see: Evidence) -> list[Claim]:
    """Return claims C7: OAGD is not sensitive to alpha and beta."""
    made = []
    for method, symbol in itertools.product(see.ours, ("alpha", "beta")):
        at = getattr(method, symbol)
        same = [m for m in see.runs.methods if dataclasses.replace(m, **{symbol: at}) == method]
        if len(same) < 2:
            continue
        final = {getattr(m, symbol): 100 * see.runs.final(m) for m in same}
        worst, *_, best = sorted(final.values(), key=lambda values: values.mean())
        gain = paired(best, worst)
        claimed = f"OAGD is not sensitive to {symbol} (at most {FLAT:g} points)"
        pieces = [piece("best over worst", gain, gain.near(FLAT))]
        intro = [f"{method.label()}, final balanced test accuracy"]
        intro += [f"{symbol} = {step:g}: {values.mean():.1f}" for step, values in final.items()]
        made.append(
            judge(f"C7 ({symbol})", claimed, pieces, see.setting, intro=intro, kinds=("OAGD",))
        )
    claimed = "OAGD is not sensitive to its step sizes"
    return made or [judge("C7 (steps)", claimed, [], see.setting, kinds=("OAGD",))]


def leaders(see: Evidence) -> Iterator[Claim]:
    """Yield a claim of ours: the leader is better than the same method with its leader held."""
    claimed = "ours: a leader that moves is better than the same method with its leader held"
    for held in (method for method in see.methods if method.held):
        for moving in see.oagd(w=held.w, decay=held.decay, curvature=held.curvature):
            gain = see.runs.accuracy_gain(moving, held)
            pieces = [piece(f"{moving.label()} over {held.label()}", gain)]
            yield judge(f"leader (w = {held.w})", claimed, pieces, see.setting, kinds=("OAGD",))


def replays(see: Evidence) -> Iterator[Claim]:
    """Yield claims of ours: the gain of a replay window over AutoBalance and the last w rounds."""
    for method in (m for m in see.methods if m.replay and not m.held):
        name, theirs = method.label(), see.autobalance
        claimed = "ours: OAGD with a replay window is at least as accurate as AutoBalance"
        pieces = [] if theirs is None else see.runs.replay_goal(method, theirs, CLOCK)
        claimed = f"{claimed}, {REPLAY_GOAL}"
        yield judge(f"replay ({name})", claimed, pieces, see.setting, kinds=AGAINST_AUTOBALANCE)
        last_rounds = dataclasses.replace(method, replay=None, recency=None, balanced=None)
        if last_rounds in see.methods:
            gain = see.runs.accuracy_gain(method, last_rounds)
            claimed = "ours: drawing the window from the past is better than the last w rounds"
            pieces = [piece(f"over {last_rounds.label()}", gain)]
            yield judge(f"replay over last ({name})", claimed, pieces, see.setting, kinds=("OAGD",))


TOPICS: dict[str, list[Callable[[Evidence], Iterable[Claim]]]] = {
    "imbalance": [partial(time, id="C3"), overtaking, partial(windows, id="C3"), leaders, replays],
    "table": [closeness, partial(time, id="C5"), leaders, replays],
    "shift": [shift, decays, dip, replays],
    "window": [partial(windows, id="C7")],
    "steps": [flatness],
}
