"""One setting, examined: bounds, steps of the proof and growth, over all of its problems."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import theory
from .families.catalogue import FAMILIES, SETTINGS
from .families.ingredients import Numbers
from .measure.growth import exponent
from .measure.outcomes import HONEST, ORDERS, Mutation, Outcome, horizons, outcomes
from .verify import POINTS, Check

# At its prescribed step the strongly convex dynamic leader needs at least 1 / (alpha mu_f) = 128
# rounds to arrive, so its growth is fitted over T, 2T, 4T and 8T.
LATE, STRETCH, GROWTH_PROBLEMS = ("strongly_convex_dynamic",), 8, 4
# A growth is judged from this T on, and a fitted exponent may exceed that of the promised order by
# this much: fits over three doublings scatter by 0.1 to 0.2 and lower-order terms fade slowly.
GROWTH_HORIZON, GROWTH_TOLERANCE = 64, 0.25


@dataclasses.dataclass(frozen=True)
class SettingResult:
    """One setting: what was measured over all of its problems."""

    setting: str
    problems: int
    ratio_max: float
    ratio_median: float
    violations: int
    """What was violated, all in all: bounds, steps of the proof, the growth."""
    printed_violations: int
    printed_violations_at_end: int
    """Those above the printed bound in the last round, not only in an early one."""
    exponent: float | None
    promised_exponent: float | None
    order: str
    growth_family: str
    growth_horizons: tuple[int, ...]
    families: dict[str, dict[str, float]]
    assumptions: tuple[str, ...]
    checks: tuple[dict[str, Any], ...]
    """Every assumption tested, with the problem and round that came nearest to its limit."""
    steps: tuple[dict[str, Any], ...]
    """Every step of the proof that was tried in every round, in the same way."""
    curve: tuple[float, ...] = dataclasses.field(repr=False)
    """The largest regret / bound over the problems, at t = 1..T."""


@dataclasses.dataclass(frozen=True)
class Violation:
    """A bound that a correct run exceeded, a step of the proof that fails in a round, or a growth
    that is not the claimed one: `claim` is "bound", the name of the step, or "growth"."""

    where: str
    sentence: str
    claim: str = "bound"


def examine(
    name: str,
    problems: int,
    horizon: int,
    seed: int,
    on_problem: Callable[[int], None] = lambda done: None,
    mutation: Mutation = HONEST,
) -> tuple[SettingResult, list[Violation], list[Violation]]:
    """One setting: its result, what was violated, and the errata. `mutation` makes something wrong
    on purpose (`mutants`)."""
    found = outcomes(name, problems, horizon, seed, on_problem, mutation=mutation)
    wrong: list[Violation] = []
    errata: list[Violation] = []
    for outcome in found:
        wrong += _exceeded(outcome, outcome.bound, "bound", seed)
        wrong += [_broken(outcome, check, seed) for check in outcome.steps if not check.holds]
        errata += _exceeded(outcome, outcome.printed, "bound as printed", seed)
    result = _result(name, found, _growing(name, found, horizon, seed, mutation))
    wrong += _grows_too_fast(result, seed)
    return dataclasses.replace(result, violations=len(wrong)), wrong, errata


def _growing(
    name: str, found: list[Outcome], horizon: int, seed: int, mutation: Mutation
) -> list[Outcome]:
    """The runs on which growth is fitted: of the first family, whose path lengths are sublinear."""
    families, stretch = FAMILIES[name], STRETCH if name in LATE else 1
    if stretch > 1:
        count = min(GROWTH_PROBLEMS, len(found))
        return outcomes(
            name,
            count,
            stretch * horizon,
            seed,
            stride=len(families),
            mutation=mutation,
            examined=False,
        )
    return [outcome for outcome in found if outcome.drawn.family == families[0].__name__]


def _result(name: str, found: list[Outcome], growing: list[Outcome]) -> SettingResult:
    ratios = np.array([outcome.ratio for outcome in found])
    at = np.array(horizons(len(growing[0].regret))[1:])
    regret, order = (
        np.mean([getattr(outcome, curve) for outcome in growing], axis=0)[at - 1]
        for curve in ("regret", "order")
    )
    families: dict[str, dict[str, float]] = {}
    for family in dict.fromkeys(outcome.drawn.family for outcome in found):
        own = [outcome.ratio for outcome in found if outcome.drawn.family == family]
        families[family] = {
            "problems": len(own), "ratio_max": max(own), "ratio_median": float(np.median(own)),
        }  # fmt: skip
    return SettingResult(
        setting=name,
        problems=len(found),
        ratio_max=float(ratios.max()),
        ratio_median=float(np.median(ratios)),
        violations=0,
        printed_violations=sum(outcome.exceeds(outcome.printed) is not None for outcome in found),
        printed_violations_at_end=sum(not o.regret[-1] <= o.printed[-1] for o in found),
        exponent=exponent(at, regret),
        promised_exponent=exponent(at, order),
        order=ORDERS[name][0],
        growth_family=growing[0].drawn.family,
        growth_horizons=tuple(at.tolist()),
        families=families,
        assumptions=getattr(theory, _CLASSES[name]).assumptions,
        checks=_nearest([outcome.checks for outcome in found], found),
        steps=_nearest([outcome.steps for outcome in found], found),
        curve=tuple(np.max([outcome.ratios for outcome in found], axis=0).tolist()),
    )


_CLASSES = {name: "".join(word.title() for word in name.split("_")) for name in SETTINGS}


def _nearest(tested: list[tuple[Check, ...]], found: list[Outcome]) -> tuple[dict[str, Any], ...]:
    """For each check the problem that used most of its limit."""
    checks = []
    for column in zip(*tested, strict=True):
        index = int(np.argmax([check.share for check in column]))
        check, drawn = column[index], found[index].drawn
        checks.append(
            dataclasses.asdict(check)
            | {"share": check.share, "family": drawn.family, "problem": drawn.number}
            | {"points_per_round": POINTS + 2}
        )
    return tuple(checks)


def _exceeded(outcome: Outcome, curve: Numbers, what: str, seed: int) -> list[Violation]:
    t = outcome.exceeds(curve)
    if t is None:
        return []
    return [
        Violation(
            outcome.drawn.where,
            f"{outcome.drawn.where}, seed {seed}: the regret {outcome.regret[t - 1]:.6g} in round "
            f"{t} is above the {what}, {curve[t - 1]:.6g}",
        )
    ]


def _broken(outcome: Outcome, check: Check, seed: int) -> Violation:
    return Violation(
        outcome.drawn.where,
        f"{outcome.drawn.where}, seed {seed}: {check.assumption} fails in round {check.round}: "
        f"{check}",
        check.assumption,
    )


def _grows_too_fast(result: SettingResult, seed: int) -> list[Violation]:
    """The regret's fitted exponent beside that of the promised order, on the same runs."""
    fitted, promised = result.exponent, result.promised_exponent
    least = GROWTH_HORIZON * (16 if result.setting in LATE else 1)
    if result.growth_horizons[-1] < least or fitted is None or promised is None:
        return []
    # Regret per round is bounded: where about T is promised there is nothing to judge.
    if fitted <= promised + GROWTH_TOLERANCE or promised >= 1.0 - GROWTH_TOLERANCE:
        return []
    return [
        Violation(
            f"{result.setting}, family {result.growth_family}",
            f"{result.setting}, family {result.growth_family}, seed {seed}: the regret grows like "
            f"T^{fitted:.2f}, but {result.order} like T^{promised:.2f}, and "
            f"{GROWTH_TOLERANCE} more is allowed",
            "growth",
        )
    ]
