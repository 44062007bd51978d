"""Mutants: certificates of runs, bounds and constants that are wrong on purpose.

A certificate is worth what it would catch. Each mutant plays other steps than those prescribed,
shrinks the bound, or derives everything from a false constant; the result says which claims then
fail. `obax certify --mutants` prints it as a table. A mutant that no claim notices is a hole,
unless `EXEMPT` says why it cannot be noticed.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._support.trees import PyTree
from ..algorithms import OAGD, Move, State
from ..domain import Unconstrained
from ..hypergradient import Dense, Estimate
from ..hypergradient.base import LinearMap, Solution
from ..problem import Problem
from ..theory import Constants, LogarithmicInnerSteps
from ..window import Window
from .certificates import CERTIFIED, Report, check_arguments
from .examination import examine
from .families.catalogue import FAMILIES, WINDOWS
from .measure.outcomes import Mutation
from .measure.play import Steps
from .streaming import mutants as streams
from .verify import AssumptionError

# A quarter of the rounds that the strongly convex dynamic leader takes to arrive are too few to
# come near its bound.
HORIZON = 128


class FlatterAnswers(Constants):
    """Constants with a tenth of L_y."""

    @property
    def L_y(self) -> float:
        """A tenth of the true constant."""
        return 0.1 * self.kappa_g


class PrintedInnerSteps(LogarithmicInnerSteps):
    """The schedule K_t of the convex theorems as printed, with log 4t^2 (erratum 4)."""

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


class NextStepSize(eqx.Module):
    """A schedule one round ahead: alpha_{t+1} in round t."""

    schedule: Callable[[Array], Array]

    def __call__(self, t: Array) -> Array:
        """Return the step size of the next round."""
        return self.schedule(t + 1)


def _next_step_size(steps: Steps) -> Steps:
    if not callable(steps.alpha):
        return steps
    return steps._replace(alpha=NextStepSize(steps.alpha))


class LongerDirection(Dense):
    """The exact hypergradient times 1.001."""

    def __call__(self, *given: Any, **named: Any) -> Estimate:
        """Return the estimate of `Dense()`, a little too long."""
        found = super().__call__(*given, **named)
        return found._replace(value=jax.tree.map(lambda leaf: 1.001 * leaf, found.value))


class WithoutInverse(Dense):
    """The wrong hypergradient grad_x f - J grad_y f, where J H^-1 grad_y f belongs."""

    def solve(self, hvp: LinearMap, gradient: PyTree, carry: PyTree) -> Solution:
        """Return the gradient itself."""
        return Solution(gradient, carry, 0)


class EarlyHypergradient(OAGD):
    """OAGD with the hypergradient at y_t, before the follower has moved."""

    def update(self, state: State, round: PyTree) -> Move:
        """Return the move with the leader's part of one whose follower stays at y_t."""
        still = eqx.tree_at(lambda one: one.inner_step_size, self, replace_fn=jnp.zeros_like)
        early = OAGD.update(still, state, round)
        return super().update(state, round)._replace(leader=early.leader, estimate=early.estimate)


def _everywhere(problem: Problem) -> Problem:
    return dataclasses.replace(problem, domain=Unconstrained())


def _own_curvature(window: Window) -> Window:
    return Window(window.size, weights=window.weights, curvature="own", normalise="full")


def _reversed(window: Window) -> Window:
    return eqx.tree_at(lambda one: one.weights, window, window.weights[::-1])


def _one_round(window: Window) -> Window:
    return Window(1, curvature="current", normalise="full")


MUTANTS = (
    Mutation("ascent", steps=_leader(-1.0)),
    Mutation("alpha x 100", steps=_leader(100.0)),
    Mutation("alpha_{t+1} for alpha_t", steps=_next_step_size),
    Mutation("direction x 1.001", hypergradient=LongerDirection()),
    Mutation("no projection", problem=_everywhere),
    Mutation("hypergradient at y_t", algorithm=EarlyHypergradient),
    Mutation("H^-1 forgotten", hypergradient=WithoutInverse()),
    Mutation("own curvature", window=_own_curvature),
    Mutation("weights reversed", window=_reversed),
    Mutation("window ignored", window=_one_round),
    Mutation("K = 1", steps=_one_step),
    Mutation("K as printed", steps=_printed_count),
    Mutation("beta / 10", steps=lambda steps: steps._replace(beta=0.1 * steps.beta)),
    Mutation("bound / 10", bound=0.1),
    Mutation("bound / 100", bound=0.01),
    Mutation("L_y / 10", constants=lambda true: FlatterAnswers(**dataclasses.asdict(true))),
)

_CONSTANT = ("strongly_convex_dynamic", "convex_dynamic", "nonconvex_local")
_OF_WINDOWS = ("own curvature", "weights reversed", "window ignored")
EXEMPT = {
    **{(name, "alpha_{t+1} for alpha_t"): "alpha is the same in every round" for name in _CONSTANT},
    **{
        (name, mutant): "the theorem has w = 1"
        for name in FAMILIES
        if name != "nonconvex_local"
        for mutant in _OF_WINDOWS
    },
    ("nonconvex_local", "no projection"): "X is the whole space",
    ("strongly_convex_dynamic", "K as printed"): "K is what the theorem prescribes",
    ("strongly_convex_static", "K as printed"): "K is what the theorem prescribes",
    ("nonconvex_local", "K as printed"): "K is what the theorem prescribes",
    ("nonconvex_local", "K = 1"): "K is what the theorem prescribes",
    ("nonconvex_local", "bound / 10"): "true: with an exact follower regret is at most bound / 15",
}
"""Mutants that no run can refute, and why (docs/theory.md)."""


@dataclasses.dataclass(frozen=True)
class MutantResult:
    """Result for one mutant in one setting: the claims that failed, in order of the proof."""

    setting: str
    mutant: str
    claims: tuple[str, ...]

    @property
    def exempt(self) -> str | None:
        """The reason why this mutant cannot be noticed in this setting, or `None`."""
        return EXEMPT.get((self.setting, self.mutant))

    @property
    def unnoticed(self) -> bool:
        """Whether no claim failed although one should have."""
        return not self.claims and self.exempt is None


def play_mutants(
    settings: Sequence[str] | None = None,
    mutants: Sequence[Mutation] = MUTANTS,
    horizon: int = HORIZON,
    seed: int = 0,
    *,
    on_part: Report = lambda done, total, now: None,
) -> list[MutantResult]:
    """Play every mutant on one problem of each family (and, in the local setting, window), and
    return the claims that notice it. `mutants` are those of the paper's settings; streams have
    their own."""
    chosen = check_arguments(settings, 1, horizon)
    trials = [(name, *_trial(name, mutants)) for name in chosen]
    results: list[MutantResult] = []
    total = sum(len(own) for *_, own in trials)
    for name, problems, own in trials:
        for mutant in own:
            on_part(len(results), total, f"{name}, {mutant.name}")
            try:
                setting = CERTIFIED[name]
                _, violations, _ = examine(setting, problems, horizon, seed, mutation=mutant)
                claims = [violation.claim for violation in violations]
            except AssumptionError as error:
                claims = [error.assumption]
            results.append(MutantResult(name, mutant.name, tuple(dict.fromkeys(claims))))
    on_part(len(results), len(results), "")
    return results


def _trial(name: str, mutants: Sequence[Mutation]) -> tuple[int, Sequence[Any]]:
    """Return the number of problems and the mutants of a setting."""
    if name in streams.MUTANTS:
        return streams.PROBLEMS[name], streams.MUTANTS[name]
    windows = len(WINDOWS) if name == "nonconvex_local" else 1
    return windows * len(FAMILIES[name]), mutants
