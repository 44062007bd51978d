"""All certificates together: the five settings, the lower-bound game, the comparability example."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import theory
from .._support.errors import nearest
from .families.catalogue import FAMILIES, SETTINGS
from .families.ingredients import Numbers
from .lower_bound import GameRow, game
from .measure.growth import ExampleRow, example, exponent
from .measure.outcomes import Mutation, Outcome, horizons, outcomes
from .verify import POINTS, Check

PROBLEMS, HORIZON, LEAST_HORIZON = 20, 256, 8
# At its prescribed step the strongly convex dynamic leader needs at least 1 / (alpha mu_f) = 128
# rounds to arrive, so its growth is fitted over T, 2T, 4T and 8T.
LATE, STRETCH, GROWTH_PROBLEMS = ("strongly_convex_dynamic",), 8, 4
# A growth is judged from this T on, and a fitted exponent may exceed that of the promised order by
# this much: fits over three doublings scatter by 0.1 to 0.2 and lower-order terms fade slowly.
GROWTH_HORIZON, GROWTH_TOLERANCE = 64, 0.25
Report = Callable[[int, int, str], None]

# The promised order as it is evaluated on measured path lengths, beside the regret's exponent.
ORDERS = {
    "strongly_convex_dynamic": "1 + min(P_1 + Y_1, P_2 + Y_2 + squared gradients)",
    "strongly_convex_static": "1 + log T + Y_bar_2",
    "convex_dynamic": "1 + S_1 + Y_2",
    "convex_static": "sqrt(T) + Y_bar_1 + Y_bar_2",
    "nonconvex_local": "T / W + H_1 + H_2",
}


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


# The name under which it is known outside.
Row = SettingResult


@dataclasses.dataclass(frozen=True)
class Violation:
    """A bound that a correct run exceeded, a step of the proof that fails in a round, or a growth
    that is not the claimed one: `claim` is "bound", the name of the step, or "growth"."""

    where: str
    sentence: str
    claim: str = "bound"


@dataclasses.dataclass(frozen=True)
class Certificates:
    """What was certified. `ok` says whether every bound held; `violations` name what did not, and
    `errata` the problems on which the bound *as printed* in the paper fails."""

    horizon: int
    seed: int
    rows: tuple[SettingResult, ...]
    game: tuple[GameRow, ...]
    example: tuple[ExampleRow, ...]
    violations: tuple[Violation, ...]
    errata: tuple[Violation, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing was violated."""
        return not self.violations

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; numbers that are not finite become `None`."""
        found = dataclasses.asdict(self)
        return _plain({"ok": self.ok, **found})


def certify(
    settings: Sequence[str] | None = None,
    problems: int = PROBLEMS,
    horizon: int = HORIZON,
    seed: int = 0,
    *,
    on_part: Report = lambda done, total, now: None,
) -> Certificates:
    """Draw problems whose assumptions are verified, play them, and hold regret against bound.

    **Arguments:**

    - `settings`: names of settings of `obax.theory`; `None`: all five.
    - `problems`: how many are drawn for each setting; `horizon`: T; `seed`: of all draws.
    - `on_part(done, total, now)`: told how far the work is.

    Everything is computed in float64, whatever JAX's default is. Raises `AssumptionError` if a
    drawn problem is not what its family says it is.
    """
    chosen = check_arguments(settings, problems, horizon)
    total = len(chosen) * problems + 2
    rows: list[SettingResult] = []
    violations: list[Violation] = []
    errata: list[Violation] = []
    for number, name in enumerate(chosen):
        before = number * problems
        on_part(before, total, name)
        result, wrong, printed = examine(
            name,
            problems,
            horizon,
            seed,
            lambda done, before=before, name=name: on_part(before + done, total, name),  # type: ignore[misc]
        )
        rows.append(result)
        violations += wrong
        errata += printed
    on_part(total - 2, total, "lower-bound game")
    games = game(horizon, seed)
    on_part(total - 1, total, "comparability example")
    examples = example()
    on_part(total, total, "")
    violations += [
        Violation(
            f"lower-bound game, {row.strategy}",
            f"the mean regret {row.regret:.6g} of {row.strategy} is below the mean S_2 of "
            f"{row.S_2:.6g}, and the 95% interval of the difference, up to "
            f"{row.difference_interval[1]:.3g}, does not reach zero",
        )
        for row in games
        if row.violated
    ]
    violations += [
        Violation(
            f"comparability example, sequence {row.sequence}",
            f"{row.quantity} does not grow like {row.claimed}: exponent {row.exponent}, R squared "
            f"{row.r_squared}, total {row.total:.3g}",
        )
        for row in examples
        if row.violated
    ]
    return Certificates(
        horizon, seed, tuple(rows), tuple(games), tuple(examples), tuple(violations), tuple(errata)
    )


def examine(
    name: str,
    problems: int,
    horizon: int,
    seed: int,
    on_batch: Callable[[int], None] = lambda done: None,
    mutation: Mutation = Mutation(),  # noqa: B008
) -> tuple[SettingResult, list[Violation], list[Violation]]:
    """One setting: its result, what was violated, and the errata. `mutation` makes something wrong
    on purpose (`mutants`)."""
    found = outcomes(name, problems, horizon, seed, on_batch, mutation=mutation)
    wrong: list[Violation] = []
    errata: list[Violation] = []
    for outcome in found:
        wrong += _exceeded(outcome, outcome.bound, "bound", seed)
        wrong += [_broken(outcome, check, seed) for check in outcome.steps if not check.holds]
        errata += _exceeded(outcome, outcome.printed, "bound as printed", seed)
    result = _result(name, found, _growing(name, found, horizon, seed, mutation))
    wrong += _grows_too_fast(result, seed)
    return dataclasses.replace(result, violations=len(wrong)), wrong, errata


def check_arguments(settings: Sequence[str] | None, problems: int, horizon: int) -> tuple[str, ...]:
    """The settings asked for, in their own order; a `ValueError` for what cannot be done."""
    for name in settings or ():
        if name not in SETTINGS:
            hint = nearest(name.replace("-", "_"), SETTINGS, cutoff=0.4)
            raise ValueError(f"unknown setting {name!r}.{hint} Known: {', '.join(SETTINGS)}.")
    if problems < 1:
        raise ValueError(f"problems must be at least 1, but got {problems}.")
    if horizon < LEAST_HORIZON:
        raise ValueError(
            f"horizon must be at least {LEAST_HORIZON}, so that growth can be fitted over T/8, "
            f"T/4, T/2 and T, but got {horizon}."
        )
    return tuple(name for name in SETTINGS if not settings or name in settings)


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
        order=ORDERS[name],
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
    if fitted <= promised + GROWTH_TOLERANCE:
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


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
