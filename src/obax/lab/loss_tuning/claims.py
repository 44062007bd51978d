"""The claims C3, C4, C5 and C7 of the paper against the tables of the loss-tuning experiments.

Each compares methods on the seeds that both have, by the rule of `kit.verdict`. A claim whose
methods were not all run is not tested.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import pandas as pd

from ..._support.counting import counted
from ..kit.learning import GOAL, Runs, above, judged, piece
from ..kit.verdict import Gain, chain, paired
from ..report import Claim
from .config import Config, Method

CLOSE = 2.0
"""By how many points a balanced accuracy may be lower and still count as the same."""
FALL = 2.0
"""How many points of accuracy must be lost within the span for a fall."""
DIP, BEYOND = 1.0, 0.5
"""How many points a dip has at least, and by how many it must exceed what OGD loses."""
FLAT = 5.0
"""How many points apart the accuracies over a range of step sizes may be to count as flat."""
PAPERS_WINDOWS = {5, 10}
CLOCK = "processor_seconds"


def claims(kind: str, config: Config, runs: Runs[Method]) -> list[Claim]:
    """Those that an experiment of this kind is about."""
    return [claim for find in KINDS[kind] for claim in find(Evidence(config, runs))]


def first_steps(runs: Runs[Method]) -> list[Method]:
    """Each method at the first of its pairs of step sizes."""
    found: dict[Method, Method] = {}
    for method in runs.methods:
        found.setdefault(dataclasses.replace(method, alpha=None, beta=None), method)
    return list(found.values())


class Evidence:
    """What the claims are judged by: every method at its first step sizes."""

    def __init__(self, config: Config, runs: Runs[Method]):
        self.config, self.runs = config, runs
        self.methods = first_steps(runs)
        self.ogd = next((m for m in self.methods if m.kind == "OGD"), None)
        self.autobalance = next((m for m in self.methods if m.kind == "AutoBalance"), None)
        self.ours = self.oagd()
        size = f"{config.hidden} hidden units"
        if config.images:
            pixels = 28 // config.downsample
            size = f"{config.blocks} x {config.filters} filters, {pixels} x {pixels} pixels"
        theirs = min(config.seeds, config.autobalance_seeds)
        self.setting = (
            f"{runs.data}, {size}, {counted(config.rounds, 'round')}, "
            f"{counted(config.seeds, 'seed')} (AutoBalance {theirs}), leader from round "
            f"{config.outer_start}"
        )

    def oagd(self, **wanted: object) -> list[Method]:
        """OAGD as the paper has it (leader on, Neumann, one pass over the last w rounds, the outer
        step of all), and what is wanted, by window."""
        usual = {"held": False, "solver": "neumann"} | dict.fromkeys(
            ("passes", "replay", "own_alpha")
        )
        wanted = {"kind": "OAGD", **usual, **wanted}
        kept = [m for m in self.methods if all(getattr(m, k) == v for k, v in wanted.items())]
        return sorted(kept, key=lambda method: method.w or 0)

    def drop(self, method: Method, at: int) -> pd.Series:
        """By how many points the test accuracy falls within `span` rounds of round `at`."""
        curve = 100 * self.runs.curve(method)
        before = curve[(curve.index <= at) & (curve.index > at - self.span)].mean()
        return before - curve[(curve.index > at) & (curve.index <= at + self.span)].min()

    @property
    def span(self) -> int:
        """How many rounds belong to a fall."""
        return max(3 * self.config.evaluate_every, self.config.phase_rounds // 5)


def time(see: Evidence, id: str) -> Iterator[Claim]:
    """OGD < OAGD < AutoBalance in seconds."""
    pieces = []
    if see.ogd and see.autobalance:
        for ours in see.ours:
            for one, other in ((see.ogd, ours), (ours, see.autobalance)):
                gain = see.runs.sooner(one, other)
                pieces.append(piece(f"{other.label()} over {one.label()}", gain, unit="s"))
    spent = [f"{m.label()} {see.runs.last(m).mean():.3g} s" for m in see.methods]
    claimed = "runtime OGD < OAGD < AutoBalance"
    yield judged(f"{id} (time)", claimed, pieces, see.setting, rule=chain, intro=spent)


def overtaking(see: Evidence) -> Iterator[Claim]:
    """C3: OAGD with w = 5, 10 overtakes AutoBalance."""
    ours = [method for method in see.ours if method.w in PAPERS_WINDOWS]
    claimed = "OAGD with w = 5 and with w = 10 overtakes AutoBalance in balanced test accuracy"
    complete = {method.w for method in ours} == PAPERS_WINDOWS
    yield _against_autobalance(see, "C3 (accuracy)", claimed, ours if complete else [], margin=0.0)


def closeness(see: Evidence) -> Iterator[Claim]:
    """C5: OAGD comes out as AutoBalance does (that it takes less time is a claim of its own)."""
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
            gain = see.runs.points(method, theirs)
            name = f"{method.label()} {100 * see.runs.final(method).mean():.1f}"
            pieces.append(piece(name, gain, above(gain, margin)))
    return judged(id, claimed, pieces, see.setting, intro=intro)


def windows(see: Evidence, id: str) -> Iterator[Claim]:
    """A larger window is better, and slower."""
    for curvature, note in (("own", ""), ("current", ", one solve")):
        ladder = see.oagd(curvature=curvature, decay=0.9)
        if len(ladder) > 1 or curvature == "own":
            rungs = [(m.w or 0, m) for m in ladder]
            yield from see.runs.ladder(id, f"window{note}", "w", rungs, see.setting)


def shift(see: Evidence) -> Iterator[Claim]:
    """C4: AutoBalance falls where the classes shift, OAGD does not."""
    at, pieces = 2 * see.config.phase_rounds, []
    if see.autobalance and see.ours and see.config.rounds > at + see.span:
        fall = Gain.of(see.drop(see.autobalance, at))
        pieces = [piece("AutoBalance falls by", fall, above(fall, FALL))]
        for method in see.ours:
            rise = Gain.of(-see.drop(method, at))
            pieces.append(piece(f"{method.label()} rises by", rise, above(rise, -FALL)))
    claimed = f"AutoBalance falls at round {at} by more than {FALL:g} points, OAGD does not"
    intro = [f"test accuracy within {see.span} rounds of round {at}"]
    yield judged("C4 (shift)", claimed, pieces, see.setting, rule=chain, intro=intro)


def decays(see: Evidence) -> Iterator[Claim]:
    """C4: with a large window a small decay adapts better."""
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
        yield judged(f"C4 (decay{note})", claimed, pieces, see.setting, intro=intro)


def dip(see: Evidence) -> Iterator[Claim]:
    """C4: a short disruption when the outer level starts, which OGD does not have."""
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
    yield judged("C4 (dip)", claimed, pieces, see.setting, intro=intro)


def flatness(see: Evidence) -> list[Claim]:
    """C7: flat in alpha or beta."""
    found = []
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
        found.append(judged(f"C7 ({symbol})", claimed, pieces, see.setting, intro=intro))
    untested = judged("C7 (steps)", "OAGD is not sensitive to its step sizes", [], see.setting)
    return found or [untested]


def leaders(see: Evidence) -> Iterator[Claim]:
    """Ours, not the paper's: what the leader is worth, against the same method with it held."""
    claimed = "ours: the leader is worth something against the same method with it held"
    for held in (method for method in see.methods if method.held):
        for moving in see.oagd(w=held.w, decay=held.decay, curvature=held.curvature):
            gain = see.runs.points(moving, held)
            pieces = [piece(f"{moving.label()} over {held.label()}", gain)]
            yield judged(f"leader (w = {held.w})", claimed, pieces, see.setting)


def replays(see: Evidence) -> Iterator[Claim]:
    """Ours: what a replay window is worth against AutoBalance, which sees all rounds, and against
    the last w rounds."""
    for method in (m for m in see.methods if m.replay and not m.held):
        name, theirs = method.label(), see.autobalance
        claimed = "ours: OAGD with a replay window is at least as accurate as AutoBalance"
        pieces = [] if theirs is None else see.runs.goal(method, theirs, CLOCK)
        yield judged(f"replay ({name})", f"{claimed}, {GOAL}", pieces, see.setting)
        last_rounds = dataclasses.replace(method, replay=None, recency=None, balanced=None)
        if last_rounds in see.methods:
            gain = see.runs.points(method, last_rounds)
            claimed = "ours: drawing the window from the past is better than the last w rounds"
            pieces = [piece(f"over {last_rounds.label()}", gain)]
            yield judged(f"replay over last ({name})", claimed, pieces, see.setting)


KINDS: dict[str, list[Callable[[Evidence], Iterable[Claim]]]] = {
    "imbalance": [partial(time, id="C3"), overtaking, partial(windows, id="C3"), leaders, replays],
    "table": [closeness, partial(time, id="C5"), leaders, replays],
    "shift": [shift, decays, dip, replays],
    "window": [partial(windows, id="C7")],
    "steps": [flatness],
}
