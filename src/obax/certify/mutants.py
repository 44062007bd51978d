"""Who complains when something is wrong: certificates of runs, bounds and constants made false.

A certificate is worth what it would catch. Each mutant plays other steps than those prescribed,
shrinks the bound, or derives all from a false constant; the table says which claims then fail.
`obax certify --mutants` prints it. A mutant that survives is a hole, unless `EXEMPT` says why it
is none.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from ..theory import Constants, LogarithmicInnerSteps
from .certificates import Report, check_arguments
from .examination import examine
from .families.catalogue import FAMILIES, WINDOWS
from .measure.outcomes import Mutation
from .measure.play import Steps
from .streaming import mutants as streams, settings as streaming
from .verify import AssumptionError

# A quarter of the rounds that the strongly convex dynamic leader takes to arrive are too few to
# come near its bound.
HORIZON = 128


class FlatterAnswers(Constants):
    """Constants with a tenth of L_y."""

    @property
    def L_y(self) -> float:
        """A tenth of the true one."""
        return 0.1 * self.kappa_g


class PrintedInnerSteps(LogarithmicInnerSteps):
    """K_t of the convex theorems as printed, with log 4t^2 (erratum 4)."""

    power: ClassVar[float] = 2.0


def _leader(factor: float) -> Callable[[Steps], Steps]:
    def play(steps: Steps) -> Steps:
        return steps._replace(alpha=jax.tree.map(lambda leaf: factor * leaf, steps.alpha))

    return play


def _one_step(steps: Steps) -> Steps:
    # kappa_g = -1 leaves ceil(0) + 1 in the convex settings: the same program, not compiled again.
    one = -1.0 if isinstance(steps.K, LogarithmicInnerSteps) else 1
    return steps._replace(K=jax.tree.map(lambda leaf: jnp.full_like(leaf, one), steps.K))


def _printed_count(steps: Steps) -> Steps:
    if not isinstance(steps.K, LogarithmicInnerSteps):
        return steps
    return steps._replace(K=PrintedInnerSteps(steps.K.kappa_g))


MUTANTS = (
    Mutation("ascent", steps=_leader(-1.0)),
    Mutation("alpha x 100", steps=_leader(100.0)),
    Mutation("K = 1", steps=_one_step),
    Mutation("K as printed", steps=_printed_count),
    Mutation("beta / 10", steps=lambda steps: steps._replace(beta=0.1 * steps.beta)),
    Mutation("bound / 10", bound=0.1),
    Mutation("bound / 100", bound=0.01),
    Mutation("L_y / 10", constants=lambda true: FlatterAnswers(**dataclasses.asdict(true))),
)

EXEMPT = {
    ("strongly_convex_dynamic", "K as printed"): "K is what the theorem prescribes",
    ("strongly_convex_static", "K as printed"): "K is what the theorem prescribes",
    ("nonconvex_local", "K as printed"): "K is what the theorem prescribes",
    ("nonconvex_local", "K = 1"): "K is what the theorem prescribes",
    ("nonconvex_local", "bound / 10"): "true: with an exact follower regret is at most bound / 15",
}
"""Mutants that no run can refute, and why (docs/theory.md)."""


@dataclasses.dataclass(frozen=True)
class Caught:
    """What became of one mutant in one setting: the claims that failed, in order of the proof."""

    setting: str
    mutant: str
    claims: tuple[str, ...]

    @property
    def exempt(self) -> str | None:
        """Why this mutant is none in this setting."""
        return EXEMPT.get((self.setting, self.mutant))

    @property
    def survived(self) -> bool:
        """Whether nobody complained although somebody should have."""
        return not self.claims and self.exempt is None


def hunt(
    settings: Sequence[str] | None = None,
    mutants: Sequence[Mutation] = MUTANTS,
    horizon: int = HORIZON,
    seed: int = 0,
    *,
    on_part: Report = lambda done, total, now: None,
) -> list[Caught]:
    """Let every mutant loose on one problem of each family (and, in the local setting, window).
    `mutants` are those of the five settings; streams have their own."""
    chosen = check_arguments(settings, 1, horizon)
    trials = [(name, *_trial(name, mutants)) for name in chosen]
    caught: list[Caught] = []
    total = sum(len(own) for *_, own in trials)
    for name, looked_at, problems, own in trials:
        for mutant in own:
            on_part(len(caught), total, f"{name}, {mutant.name}")
            try:
                _, violations, _ = looked_at(name, problems, horizon, seed, mutation=mutant)
                claims = [violation.claim for violation in violations]
            except AssumptionError as error:
                claims = [error.assumption]
            caught.append(Caught(name, mutant.name, tuple(dict.fromkeys(claims))))
    on_part(len(caught), len(caught), "")
    return caught


def _trial(name: str, mutants: Sequence[Mutation]) -> tuple[Callable[..., Any], int, Sequence[Any]]:
    """How a setting is examined, on how many problems, and what is made wrong in it."""
    if name in streaming.STREAMING:
        return streaming.examine, streams.PROBLEMS[name], streams.MUTANTS[name]
    windows = len(WINDOWS) if name == "nonconvex_local" else 1
    return examine, windows * len(FAMILIES[name]), mutants
