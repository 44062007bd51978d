"""One setting, examined: bounds, steps of the proof and growth, over all of its problems."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from .families.catalogue import FAMILIES
from .families.ingredients import Numbers
from .measure.growth import exponent
from .measure.outcomes import HONEST, ORDERS, Mutation, Outcome, horizons, outcomes, prescribe
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
    printed_violations: int | None
    """Above the bound as the paper prints it; `None` where it has none."""
    printed_violations_at_end: int | None
    """Those above it in the last round, not only in an early one."""
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
    wrong = [one for outcome in found for one in violations(outcome, seed)]
    errata: list[Violation] = []
    for outcome in found:
        errata += _exceeded(outcome, outcome.printed, "bound as printed", seed)
    # Growth is fitted on runs of the first family, whose path lengths are sublinear.
    families = FAMILIES[name]
    growing = [outcome for outcome in found if outcome.drawn.family == families[0].__name__]
    if name in LATE and STRETCH > 1:
        count, late = min(GROWTH_PROBLEMS, len(found)), STRETCH * horizon
        growing = outcomes(
            name, count, late, seed, stride=len(families), mutation=mutation, examined=False
        )
    result = _result(name, found, growing)
    wrong += grows_too_fast(result, seed)
    return dataclasses.replace(result, violations=len(wrong)), wrong, errata


def _result(name: str, found: list[Outcome], growing: list[Outcome]) -> SettingResult:
    at = np.array(horizons(len(growing[0].regret))[1:])
    regret, order = (
        np.mean([getattr(outcome, curve) for outcome in growing], axis=0)[at - 1]
        for curve in ("regret", "order")
    )
    shares: dict[str, list[float]] = {}
    for outcome in found:
        shares.setdefault(outcome.drawn.family, []).append(outcome.ratio)
    return SettingResult(
        setting=name,
        problems=len(found),
        **ratios([outcome.ratio for outcome in found]),
        violations=0,
        printed_violations=sum(outcome.exceeds(outcome.printed) is not None for outcome in found),
        printed_violations_at_end=sum(not o.regret[-1] <= o.printed[-1] for o in found),
        exponent=exponent(at, regret),
        promised_exponent=exponent(at, order),
        order=ORDERS[name][0],
        growth_family=growing[0].drawn.family,
        growth_horizons=tuple(at.tolist()),
        families={kind: {"problems": len(own), **ratios(own)} for kind, own in shares.items()},
        assumptions=prescribe(found[0].drawn).assumptions,
        checks=nearest(found, [one.checks for one in found], points_per_round=POINTS + 2),
        steps=nearest(found, [one.steps for one in found], points_per_round=POINTS + 2),
        curve=tuple(np.max([outcome.ratios for outcome in found], axis=0).tolist()),
    )


def ratios(found: list[float]) -> dict[str, float]:
    """The largest and the median regret / bound."""
    return {"ratio_max": max(found), "ratio_median": float(np.median(found))}


def nearest(
    found: list[Outcome], tested: list[tuple[Check, ...]], **also: int
) -> tuple[dict[str, Any], ...]:
    """For each check the problem that used most of its limit, and what `also` says of all."""
    checks = []
    for column in zip(*tested, strict=True):
        index = int(np.argmax([check.share for check in column]))
        check, drawn = column[index], found[index].drawn
        checks.append(
            dataclasses.asdict(check)
            | {"share": check.share, "family": drawn.family, "problem": drawn.number}
            | also
        )
    return tuple(checks)


def violations(outcome: Outcome, seed: int) -> list[Violation]:
    """Of the bound, and of the steps of its proof."""
    found = _exceeded(outcome, outcome.bound, "bound", seed)
    for check in (check for check in outcome.steps if not check.holds):
        sentence = (
            f"{outcome.drawn.where}, seed {seed}: {check.assumption} fails in round "
            f"{check.round}: {check}"
        )
        found.append(Violation(outcome.drawn.where, sentence, check.assumption))
    return found


def _exceeded(outcome: Outcome, curve: Numbers, what: str, seed: int) -> list[Violation]:
    t = outcome.exceeds(curve)
    if t is None:
        return []
    sentence = (
        f"{outcome.drawn.where}, seed {seed}: the regret {outcome.regret[t - 1]:.6g} in round {t} "
        f"is above the {what}, {curve[t - 1]:.6g}"
    )
    return [Violation(outcome.drawn.where, sentence)]


def grows_too_fast(result: SettingResult, seed: int) -> list[Violation]:
    """The regret's fitted exponent beside that of the promised order, on the same runs."""
    fitted, promised = result.exponent, result.promised_exponent
    least = GROWTH_HORIZON * (16 if result.setting in LATE else 1)
    if fitted is None or promised is None or result.growth_horizons[-1] < least:
        return []
    # Regret per round is bounded: where about T is promised there is nothing to judge.
    if fitted <= promised + GROWTH_TOLERANCE or promised >= 1.0 - GROWTH_TOLERANCE:
        return []
    where = f"{result.setting}, family {result.growth_family}"
    sentence = (
        f"{where}, seed {seed}: the regret grows like T^{fitted:.2f}, but {result.order} like "
        f"T^{promised:.2f}, and {GROWTH_TOLERANCE} more is allowed"
    )
    return [Violation(where, sentence, "growth")]
