"""The three streaming settings: one stream, from its draw to regret beside bound."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...theory import DiscountedRidge, SharedMixture
from ..families.ingredients import Numbers
from ..measure.outcomes import GROWTH_FROM, Certified, Outcome
from ..verify import AssumptionError
from . import experts, ridge, streams
from .watch import Predict, predict, watch

STREAMING = ("streaming_ridge", "streaming_mixture", "streaming_density")
"""The settings that `--setting streaming` selects."""
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
    """A fault made on purpose: in the options of the estimator, in the bound, by a factor or a term
    left out, in the mixture of the members, or in the model's predictions."""

    name: str = "none"
    options: Callable[[streams.Stream], Mapping[str, Any]] = lambda stream: {}
    bound: float = 1.0
    without: str | None = None
    mixture: str | None = None
    predict: Predict = predict


UNCHANGED = Mutation()


def outcome(
    name: str, number: int, horizon: int, seed: int, mutation: Mutation = UNCHANGED
) -> Outcome:
    """Draw a stream, play it and measure it. Raise `AssumptionError` where an assumption fails."""
    draw = streams.draw_labels if name == "streaming_mixture" else streams.draw_rule
    stream = draw(name, number, horizon, seed)
    seen = watch(stream, mutation.predict, **mutation.options(stream))
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


class StreamingSetting(Certified):
    """One of the three streaming settings. Its bound is our own: the paper prints none."""

    @classmethod
    def of(cls, name: str) -> "StreamingSetting":
        """Return a setting by its name."""
        return cls(name, ORDERS[name], FAMILIES[name], UNCHANGED, False, GROWTH_FROM, {})

    def outcome(self, number: int, horizon: int, seed: int, mutation: Mutation) -> Outcome:
        """Draw, play and measure one stream."""
        return outcome(self.name, number, horizon, seed, mutation)

    def growth(
        self, outcomes: list[Outcome], horizon: int, seed: int, mutation: Mutation
    ) -> tuple[Numbers, Numbers, Numbers]:
        """Return horizons, and at each the mean regret and the promised order; nothing for
        mixtures, whose bound without a share does not grow."""
        if self.name != "streaming_ridge":
            return np.zeros(0), np.zeros(0), np.zeros(0)
        at = horizon * 2 ** np.arange(DOUBLINGS)
        numbers = range(0, GROWTH_PROBLEMS * len(streams.RULES), len(streams.RULES))
        runs = [[self.outcome(number, int(T), seed, mutation) for number in numbers] for T in at]
        regret, order = (
            np.array([np.mean([getattr(one, curve)[-1] for one in own]) for own in runs])
            for curve in ("regret", "order")
        )
        return at.astype(np.float64), regret, order

    def assumptions(self, outcome: Outcome) -> tuple[str, ...]:
        """Return the assumptions of the theorem."""
        promise = DiscountedRidge if self.name == "streaming_ridge" else SharedMixture
        return promise.assumptions
