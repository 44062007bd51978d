"""The settings of the comparison, and the methods that it compares."""

import dataclasses
from typing import Annotated

from ..._support.checks import Count, Fraction, NonNegative, Positive
from ..framework.config import Settings, one_of

PROBLEMS = ("quadratic", "constrained", "regression", "network", "adult")
READY = ("strategic", "actor-critic", "cleaning", "representation", "robust")
"""Problems that no preset has: `--set problems=robust,cleaning` asks for them."""
UNCONSTRAINED_FOLLOWER = ("SOGD", "ZO-SOGD", "FSOBO")
"""Methods that cannot keep a follower in a set, as `robust` requires."""
METHODS = {
    "OGD x fixed": "OGD",
    "OAGD w=1": "OAGD",
    "OAGD window": "OAGD",
    "SOBOW": "SOBOW",
    "SOGD": "SOGD",
    "ZO-SOGD": "ZO-SOGD",
    "FSOBO": "FSOBO",
    "AOBO": "AOBO",
    "OBBO": "OBBO",
    "OBBO adaptive": "OBBO",
    "RTHO": "RTHO",
    "F2OBO": "F2OBO",
    "WOBO window": "WOBO",
    "WOBO single": "WOBO",
}
"""The kind of each method."""
BUDGETS = ("rounds", "calls")
REFERENCE, FIXED = "OAGD w=1", "OGD x fixed"


@dataclasses.dataclass(frozen=True)
class Config(Settings):
    """Everything that a run depends on.

    Oracle calls are counted in gradients: a Hessian-vector product costs `hvp_cost`, a product with
    the cross derivative `cross_cost`, a function value `evaluation_cost`. A round of the calls
    budget has `calls` of them to spend.
    """

    horizon: Count = 600
    adult_rounds: Count = 150
    seeds: Count = 5
    problems: tuple[Annotated[str, one_of(*PROBLEMS, *READY)], ...] = PROBLEMS
    methods: tuple[Annotated[str, one_of(*METHODS)], ...] = tuple(METHODS)
    budgets: tuple[Annotated[str, one_of(*BUDGETS)], ...] = BUDGETS
    outer_step_sizes: tuple[Positive, ...] = (0.01, 0.03, 0.1, 0.3, 1.0)
    inner_step_sizes: tuple[Positive, ...] = (0.03, 0.1, 0.3)
    window: Count = 10
    decay: Fraction = 0.9
    inner_steps: Count = 5
    solver_steps: Count = 5
    tolerance: Positive = 0.01
    max_inner_steps: Count = 10
    max_outer_steps: Count = 5
    single_window: Count = 3
    penalty: Positive = 10.0
    directions: Count = 2
    offset: Positive = 1000.0
    momentum: Fraction = 0.5
    calls: Positive = 54.0
    hvp_cost: NonNegative = 2.0
    cross_cost: NonNegative = 2.0
    evaluation_cost: NonNegative = 0.5
    max_repeats: Count = 20
    timings: Count = 7
    curve_points: Count = 100

    def rounds(self, problem: str) -> int:
        """Return T of a problem."""
        return self.adult_rounds if problem == "adult" else self.horizon


COLUMNS = {"problem": str, "budget": str, "alpha": float, "beta": float}
