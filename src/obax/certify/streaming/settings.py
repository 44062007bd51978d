"""The three streaming settings: drawn, watched and held against their bounds, as the five are."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...theory import DiscountedRidge, SharedMixture
from ..examination import SettingResult, Violation, grows_too_fast, nearest, ratios, violations
from ..families.ingredients import Numbers
from ..measure.growth import exponent
from ..measure.outcomes import Outcome
from ..verify import AssumptionError
from . import experts, ridge, streams
from .watch import watch

STREAMING = ("streaming_ridge", "streaming_mixture", "streaming_density")
"""What `--setting streaming` stands for."""
FAMILIES = dict(zip(STREAMING, (streams.RULES, streams.LABELS, streams.RULES), strict=True))
ORDERS = {
    "streaming_ridge": "1 + d T / m + m^2 P_2",
    "streaming_mixture": "ln N, (k + 1) ln N + k ln(1 / share) + share T",
    "streaming_density": "ln N, (k + 1) ln N + k ln(1 / share) + share T",
}
DOUBLINGS, GROWTH_PROBLEMS = 4, 2
"""Growth is fitted over T, 2T, 4T, 8T, each with a memory of its own: a fixed one grows like T."""


@dataclasses.dataclass(frozen=True)
class Mutation:
    """Something made wrong on purpose: options of the estimator that is watched, the bound by a
    factor or without a term, or the mixture of the members."""

    name: str = "none"
    options: Callable[[streams.Stream], Mapping[str, Any]] = lambda stream: {}
    bound: float = 1.0
    without: str | None = None
    mixture: str | None = None


HONEST = Mutation()


def examine(
    name: str,
    problems: int,
    horizon: int,
    seed: int,
    on_problem: Callable[[int], None] = lambda done: None,
    mutation: Mutation = HONEST,
) -> tuple[SettingResult, list[Violation], list[Violation]]:
    """One setting: its result, what was violated, and no errata, since these bounds are our own."""
    found: list[Outcome] = []
    for number in range(problems):
        found.append(outcome(name, number, horizon, seed, mutation))
        on_problem(number + 1)
    wrong = [one for outcome in found for one in violations(outcome, seed)]
    result = _result(name, found, _growth(name, horizon, seed, mutation))
    wrong += grows_too_fast(result, seed)
    return dataclasses.replace(result, violations=len(wrong)), wrong, []


def outcome(
    name: str, number: int, horizon: int, seed: int, mutation: Mutation = HONEST
) -> Outcome:
    """One stream, drawn, watched and measured; an `AssumptionError` where it is not what it is
    said to be."""
    draw = streams.draw_labels if name == "streaming_mixture" else streams.draw_rule
    stream = draw(name, number, horizon, seed)
    seen = watch(stream, **mutation.options(stream))
    if name == "streaming_ridge":
        found = ridge.outcome(stream, seen, bound=mutation.bound, without=mutation.without)
    else:
        of = experts.of_classes if name == "streaming_mixture" else experts.of_numbers
        mixed = of(stream, seen)
        if mutation.mixture is not None:
            mixed = experts.replayed(mixed, stream.share, mutation.mixture)
        found = experts.outcome(stream, seen, mixed, bound=mutation.bound)
    for check in (check for check in found.checks if not check.holds):
        message = f"{stream.where}: {check.assumption} fails in round {check.round}: {check}."
        raise AssumptionError(message, check.assumption, check.round)
    return found


def _growth(name: str, horizon: int, seed: int, mutation: Mutation) -> tuple[Numbers, ...]:
    """Horizons, and at each the mean regret and the promised order; nothing for mixtures, whose
    bound without a share does not grow and is judged as it is."""
    if name != "streaming_ridge":
        return tuple(np.zeros((3, 0)))
    at = horizon * 2 ** np.arange(DOUBLINGS)
    numbers = range(0, GROWTH_PROBLEMS * len(streams.RULES), len(streams.RULES))
    runs = [[outcome(name, number, int(T), seed, mutation) for number in numbers] for T in at]
    regret, order = (
        np.array([np.mean([getattr(one, curve)[-1] for one in own]) for own in runs])
        for curve in ("regret", "order")
    )
    return at.astype(np.float64), regret, order


def _result(name: str, found: list[Outcome], growth: tuple[Numbers, ...]) -> SettingResult:
    at, regret, order = growth
    shares: dict[str, list[float]] = {}
    for one in found:
        shares.setdefault(one.drawn.family, []).append(one.ratio)
    promise = DiscountedRidge if name == "streaming_ridge" else SharedMixture
    return SettingResult(
        setting=name,
        problems=len(found),
        **ratios([one.ratio for one in found]),
        violations=0,
        printed_violations=None,
        printed_violations_at_end=None,
        exponent=exponent(at, regret),
        promised_exponent=exponent(at, order),
        order=ORDERS[name],
        growth_family=FAMILIES[name][0].__name__,
        growth_horizons=tuple(int(T) for T in at),
        families={kind: {"problems": len(own), **ratios(own)} for kind, own in shares.items()},
        assumptions=promise.assumptions,
        checks=nearest(found, [one.checks for one in found]),
        steps=nearest(found, [one.steps for one in found]),
        curve=tuple(np.max([one.ratios for one in found], axis=0).tolist()),
    )
