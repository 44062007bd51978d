"""All certificates together: the five settings of the paper with its lower-bound game and its
comparability example, and the streaming models."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Any

from .._support.checks import checked
from .._support.messages import nearest
from .examination import SettingResult, Violation, examine
from .families.catalogue import SETTINGS
from .lower_bound import GameRow, game
from .measure.growth import ExampleRow, example
from .measure.outcomes import Certified, PaperSetting
from .streaming import settings as streaming

EVERY = (*SETTINGS, *streaming.STREAMING)
CERTIFIED: dict[str, Certified] = {
    **{name: PaperSetting.of(name) for name in SETTINGS},
    **{name: streaming.StreamingSetting.of(name) for name in streaming.STREAMING},
}
PROBLEMS, HORIZON, LEAST_HORIZON = 20, 256, 8
Report = Callable[[int, int, str], None]


@dataclasses.dataclass(frozen=True)
class Certificates:
    """Result of `certify`. `ok` says whether every claim held, `violations` name those that failed,
    and `errata` the problems on which the bound *as printed* in the paper fails."""

    horizon: int
    seed: int
    rows: tuple[SettingResult, ...]
    game: tuple[GameRow, ...]
    example: tuple[ExampleRow, ...]
    violations: tuple[Violation, ...]
    errata: tuple[Violation, ...]

    @property
    def ok(self) -> bool:
        """Whether no claim failed."""
        return not self.violations

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; numbers that are not finite become `None`."""
        found = {"ok": self.ok, **dataclasses.asdict(self)}
        return json.loads(json.dumps(found), parse_constant=lambda name: None)


@checked
def certify(
    settings: Sequence[str] | None = None,
    problems: int = PROBLEMS,
    horizon: int = HORIZON,
    seed: int = 0,
    *,
    on_part: Report = lambda done, total, now: None,
) -> Certificates:
    """Draw problems whose assumptions are verified, play them, and compare regret with bound.

    **Arguments:**

    - `settings`: names of settings of `obax.theory`, or `"streaming"`; `None`: all.
    - `problems`: how many are drawn for each setting; `horizon`: T; `seed`: of all draws.
    - `on_part(done, total, now)`: called with the progress.

    Everything is computed in float64, whatever JAX's default is. Raises `AssumptionError` if a
    drawn problem is not what its family says it is.
    """
    chosen = check_arguments(settings, problems, horizon)
    # The game and the example are the paper's, and go with its settings.
    extra = 2 if set(chosen) & set(SETTINGS) else 0
    total = len(chosen) * problems + extra
    rows: list[SettingResult] = []
    violations: list[Violation] = []
    errata: list[Violation] = []
    for number, name in enumerate(chosen):

        def on_problem(done: int, before: int = number * problems, name: str = name) -> None:
            on_part(before + done, total, name)

        on_problem(0)
        result, wrong, printed = examine(CERTIFIED[name], problems, horizon, seed, on_problem)
        rows.append(result)
        violations += wrong
        errata += printed
    games: list[GameRow] = []
    examples: list[ExampleRow] = []
    if extra:
        on_part(total - 2, total, "lower-bound game")
        games = game(horizon, seed)
        on_part(total - 1, total, "comparability example")
        examples = example()
    on_part(total, total, "")
    for one in (one for one in games if one.violated):
        sentence = (
            f"the mean regret {one.regret:.6g} of {one.strategy} is below the mean S_2 of "
            f"{one.S_2:.6g}, and the 95% interval of the difference, up to "
            f"{one.difference_interval[1]:.3g}, does not reach zero"
        )
        violations.append(Violation(f"lower-bound game, {one.strategy}", sentence))
    for row in (row for row in examples if row.violated):
        sentence = (
            f"{row.quantity} does not grow like {row.claimed}: exponent {row.exponent}, R squared "
            f"{row.r_squared}, total {row.total:.3g}"
        )
        violations.append(Violation(f"comparability example, sequence {row.sequence}", sentence))
    return Certificates(
        horizon, seed, tuple(rows), tuple(games), tuple(examples), tuple(violations), tuple(errata)
    )


def check_arguments(settings: Sequence[str] | None, problems: int, horizon: int) -> tuple[str, ...]:
    """Return the settings asked for, in a fixed order; raise a `ValueError` for unknown ones."""
    known = (*SETTINGS, "streaming", *streaming.STREAMING)
    for name in settings or ():
        if name not in known:
            hint = nearest(name.replace("-", "_"), known, cutoff=0.4)
            raise ValueError(f"unknown setting {name!r}.{hint} Known: {', '.join(known)}.")
    if problems < 1:
        raise ValueError(f"problems must be at least 1, but got {problems}.")
    if horizon < LEAST_HORIZON:
        raise ValueError(
            f"horizon must be at least {LEAST_HORIZON}, so that growth can be fitted over T/8, "
            f"T/4, T/2 and T, but got {horizon}."
        )
    asked = {*settings} if settings else {*EVERY}
    if "streaming" in asked:
        asked |= {*streaming.STREAMING}
    return tuple(name for name in EVERY if name in asked)
