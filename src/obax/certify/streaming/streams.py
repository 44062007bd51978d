"""Streams with known comparators: for numbers the rule that made them, for classes the best member.

A rule is a weight for each feature and an intercept, one line for each row, in the units of the
rows. Features and targets have offsets and scales, which the estimator has to find out: its
statistics settle in `WARM_UP` rows, before which no regret is counted.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..families.ingredients import Draws, Numbers

WARM_UP = 256
SETTLING = 20
"""The first rows, of targets +1 and -1: as many as their statistics judge by themselves, and more,
so that none that comes later is ten deviations off."""
MEMORIES = (10.0, 20.0, 40.0)
PENALTIES = (1e-3, 1e-2, 1e-1)
INERTIAS = (0.1, 1.0)
SHARES = (0.0, 0.001, 0.05)


class Rule(NamedTuple):
    """A stream of numbers before it has units: rows z, weights of z with the intercept last, and
    the noise of the targets."""

    rows: Numbers
    weights: Numbers
    noise: Numbers


class Stream(NamedTuple):
    """A stream with its names for messages, and the hyperparameters of the model that plays it."""

    setting: str
    family: str
    number: int
    rows: Numbers
    targets: Numbers
    weights: Numbers
    """The rule in the units of the rows; without lines for classes."""
    memory: float
    penalty: float
    inertia: float
    share: float

    @property
    def where(self) -> str:
        """Setting, family and number, for messages."""
        return f"{self.setting}, family {self.family}, problem {self.number}"


def turning(draws: Draws) -> Rule:
    """Return weights of length 1 that turn, by a squared path length of 2 in all, with noise of
    either sign."""
    rows, n = _signs(draws, 2), draws.horizon
    angle = np.arange(n) * np.sqrt(2.0 / (n - WARM_UP))
    weights = np.stack([np.cos(angle), np.sin(angle), np.zeros(n)], axis=1)
    return Rule(rows, weights, 0.3 * _signs(draws, 1)[:, 0])


def flipping(draws: Draws) -> Rule:
    """Return targets of alternating sign, with a rule that does not follow them."""
    n = draws.horizon
    return Rule(np.zeros((n, 1)), np.zeros((n, 2)), draws.signs()[:, 0])


def crossing(draws: Draws) -> Rule:
    """Return a level that rises steadily, which a model with a memory follows at a distance."""
    n = draws.horizon
    weights, rise = np.zeros((n, 2)), 2.0 / (n - WARM_UP)
    # From where it comes down as fast as it will rise, so that the first row is no jump.
    weights[:, 1] = rise * np.abs(np.arange(n) - WARM_UP) - 1.0
    weights[: WARM_UP // 2, 1] = draws.generator.uniform(-1.0, 1.0, WARM_UP // 2)
    weights[:, 1] = np.minimum(weights[:, 1], 1.0)
    return Rule(np.zeros((n, 1)), weights, np.zeros(n))


def walking(draws: Draws) -> Rule:
    """Return weights on a random walk."""
    noise = 0.1 * _signs(draws, 1)[:, 0]
    return Rule(_signs(draws, 3), 1.0 + draws.walk(4, 0.02), noise)


def jumping(draws: Draws) -> Rule:
    """Return eight rules of length 1, each for an eighth of the rows."""
    weights = draws.jump(3, 1.0)
    weights /= np.linalg.norm(weights, axis=1, keepdims=True)
    return Rule(_signs(draws, 2), weights, 0.1 * _signs(draws, 1)[:, 0])


def still(draws: Draws) -> Rule:
    """Return one rule for all rows."""
    weights = np.tile(draws.unit(5), (draws.horizon, 1))
    return Rule(_signs(draws, 4), weights, 0.5 * _signs(draws, 1)[:, 0])


def _signs(draws: Draws, size: int) -> Numbers:
    """Return independent signs, whose squares are all 1."""
    return draws.generator.choice([-1.0, 1.0], size=(draws.horizon, size))


def switching(draws: Draws) -> tuple[Numbers, Numbers]:
    """Return two rules by turns: a short memory is best after a change, a long one later."""
    rows = draws.scatter(3, 1.0)
    early = np.arange(draws.horizon) * 4 // draws.horizon % 2 == 0
    return rows, np.where(early, rows[:, 0] > 0, rows[:, 1] > 0).astype(np.float64)


def lasting(draws: Draws) -> tuple[Numbers, Numbers]:
    """Return one rule with noise."""
    rows = draws.scatter(3, 1.0)
    score = rows @ draws.unit(3) + 0.5 * draws.generator.normal(size=draws.horizon)
    return rows, (score > 0).astype(np.float64)


def circling(draws: Draws) -> tuple[Numbers, Numbers]:
    """Return three classes by turns, five rows each: members that learn slowly are always late."""
    return draws.scatter(2, 1.0), (np.arange(draws.horizon) // 5 % 3).astype(np.float64)


def guessing(draws: Draws) -> tuple[Numbers, Numbers]:
    """Return labels that cannot be predicted."""
    rows = draws.scatter(2, 1.0)
    return rows, draws.generator.integers(0, 2, draws.horizon).astype(np.float64)


RULES: tuple[Callable[[Draws], Rule], ...] = (turning, flipping, crossing, walking, jumping, still)
LABELS: tuple[Callable[[Draws], tuple[Numbers, Numbers]], ...] = (
    lasting, switching, circling, guessing,
)  # fmt: skip


def draw_rule(setting: str, index: int, horizon: int, seed: int) -> Stream:
    """Return stream `index` of a setting of numbers: `WARM_UP` rows and then `horizon` that
    count."""
    family = RULES[index % len(RULES)]
    generator = np.random.default_rng((seed, 5, index))
    draws = Draws(generator, WARM_UP + horizon)
    rule = family(draws)
    rule.weights[:SETTLING], rule.noise[:SETTLING] = 0.0, draws.signs()[:SETTLING, 0]
    cycle = index // len(RULES)
    memory = MEMORIES[cycle % len(MEMORIES)]
    if family is turning:
        # What minimises T / m + m^2 P_2 for a P_2 that does not grow with T.
        memory = float(horizon) ** (1.0 / 3.0)
    # Units, which the standardisation takes away again.
    f = rule.rows.shape[1]
    offsets, scales = 10.0 * generator.normal(size=f), np.exp(generator.normal(size=f))
    level, size = 10.0 * generator.normal(), np.exp(generator.normal())
    weights = np.empty_like(rule.weights)
    weights[:, :f] = size * rule.weights[:, :f] / scales
    weights[:, f] = level + size * rule.weights[:, f] - weights[:, :f] @ offsets
    rows = offsets + scales * rule.rows
    targets = np.sum(weights[:, :f] * rows, axis=1) + weights[:, f] + size * rule.noise
    return Stream(
        setting, family.__name__, index, rows, targets, weights,
        memory, PENALTIES[(index + cycle) % len(PENALTIES)], INERTIAS[cycle % len(INERTIAS)],
        SHARES[cycle % len(SHARES)],
    )  # fmt: skip


def draw_labels(setting: str, index: int, horizon: int, seed: int) -> Stream:
    """Return stream `index` of a setting of classes."""
    family = LABELS[index % len(LABELS)]
    rows, targets = family(Draws(np.random.default_rng((seed, 6, index)), horizon))
    share = SHARES[(index // len(LABELS)) % len(SHARES)]
    return Stream(
        setting, family.__name__, index, rows, targets, np.zeros((0, 0)), 100.0, 1e-3, 1.0, share
    )
