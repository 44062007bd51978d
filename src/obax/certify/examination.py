"""One setting, examined: bounds, steps of the proof and growth, over all of its problems."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from .families.ingredients import Numbers
from .measure.growth import exponent
from .measure.outcomes import Certified, Outcome
from .verify import Check

# A fitted exponent may exceed that of the promised order by this much: fits over three doublings
# scatter by 0.1 to 0.2 and lower-order terms fade slowly.
GROWTH_TOLERANCE = 0.25


@dataclasses.dataclass(frozen=True)
class SettingResult:
    """Measurements of one setting over all of its problems."""

    setting: str
    problems: int
    ratio_max: float
    ratio_median: float
    violations: int
    """Number of violations: of bounds, of steps of the proof, of the growth."""
    printed_violations: int | None
    """Problems above the bound as the paper prints it; `None` where it prints none."""
    printed_violations_at_end: int | None
    """Problems above it in the last round, not only in an early one."""
    exponent: float | None
    promised_exponent: float | None
    order: str
    growth_family: str
    growth_horizons: tuple[int, ...]
    families: dict[str, dict[str, float]]
    assumptions: tuple[str, ...]
    checks: tuple[dict[str, Any], ...]
    """Assumptions tested, each with the problem and round nearest to its limit."""
    steps: tuple[dict[str, Any], ...]
    """Steps of the proof tested in every round, in the same way."""
    curve: tuple[float, ...] = dataclasses.field(repr=False)
    """The largest regret / bound over the problems, at t = 1..T."""


@dataclasses.dataclass(frozen=True)
class Violation:
    """Failure of a claim: a bound that a run exceeded, a step of the proof that fails in a round,
    or a growth faster than promised. `claim` is "bound", the name of the step, or "growth"."""

    where: str
    sentence: str
    claim: str = "bound"


def examine(
    setting: Certified,
    problems: int,
    horizon: int,
    seed: int,
    on_problem: Callable[[int], None] = lambda done: None,
    mutation: Any = None,
) -> tuple[SettingResult, list[Violation], list[Violation]]:
    """Return the result of a setting, the violations, and the errata of the printed bound.

    `mutation` makes something wrong on purpose (`mutants`).
    """
    mutation = setting.unchanged if mutation is None else mutation
    found: list[Outcome] = []
    for number in range(problems):
        found.append(setting.outcome(number, horizon, seed, mutation))
        on_problem(number + 1)
    wrong = [one for outcome in found for one in violations(outcome, seed)]
    errata = [
        one
        for outcome in found
        for one in _exceeded(outcome, outcome.printed, "bound as printed", seed)
    ]
    result = _result(setting, found, *setting.growth(found, horizon, seed, mutation))
    wrong += grows_too_fast(result, setting.growth_from, seed)
    return dataclasses.replace(result, violations=len(wrong)), wrong, errata


def _result(
    setting: Certified, found: list[Outcome], at: Numbers, regret: Numbers, order: Numbers
) -> SettingResult:
    shares: dict[str, list[float]] = {}
    for outcome in found:
        shares.setdefault(outcome.drawn.family, []).append(outcome.ratio)
    above = sum(outcome.exceeds(outcome.printed) is not None for outcome in found)
    at_end = sum(not outcome.regret[-1] <= outcome.printed[-1] for outcome in found)
    return SettingResult(
        setting=setting.name,
        problems=len(found),
        **ratios([outcome.ratio for outcome in found]),
        violations=0,
        printed_violations=above if setting.printed else None,
        printed_violations_at_end=at_end if setting.printed else None,
        exponent=exponent(at, regret),
        promised_exponent=exponent(at, order),
        order=setting.order,
        growth_family=setting.families[0].__name__,
        growth_horizons=tuple(int(T) for T in at),
        families={kind: {"problems": len(own), **ratios(own)} for kind, own in shares.items()},
        assumptions=setting.assumptions(found[0]),
        checks=nearest(found, [one.checks for one in found], setting.remarks),
        steps=nearest(found, [one.steps for one in found], setting.remarks),
        curve=tuple(np.max([outcome.ratios for outcome in found], axis=0).tolist()),
    )


def ratios(found: list[float]) -> dict[str, float]:
    """Return the largest and the median regret / bound."""
    return {"ratio_max": max(found), "ratio_median": float(np.median(found))}


def nearest(
    found: list[Outcome], tested: list[tuple[Check, ...]], remarks: dict[str, int]
) -> tuple[dict[str, Any], ...]:
    """Return for each check the problem that used most of its limit, with the remarks."""
    checks = []
    for column in zip(*tested, strict=True):
        index = int(np.argmax([check.share for check in column]))
        check, drawn = column[index], found[index].drawn
        checks.append(
            dataclasses.asdict(check)
            | {"share": check.share, "family": drawn.family, "problem": drawn.number}
            | remarks
        )
    return tuple(checks)


def violations(outcome: Outcome, seed: int) -> list[Violation]:
    """Return the violations of the bound and of the steps of its proof."""
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


def grows_too_fast(result: SettingResult, least: int, seed: int) -> list[Violation]:
    """Return a violation if the regret's fitted exponent is above that of the promised order, on
    horizons of at least `least`."""
    fitted, promised = result.exponent, result.promised_exponent
    if fitted is None or promised is None or result.growth_horizons[-1] < least:
        return []
    # Regret per round is bounded, so a promise of about T cannot be exceeded.
    if fitted <= promised + GROWTH_TOLERANCE or promised >= 1.0 - GROWTH_TOLERANCE:
        return []
    where = f"{result.setting}, family {result.growth_family}"
    sentence = (
        f"{where}, seed {seed}: the regret grows like T^{fitted:.2f}, but {result.order} like "
        f"T^{promised:.2f}, and {GROWTH_TOLERANCE} more is allowed"
    )
    return [Violation(where, sentence, "growth")]
