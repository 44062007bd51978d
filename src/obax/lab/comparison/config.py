"""The settings of the comparison."""

import dataclasses

from ..kit.config import Settings, choice, count, fraction, not_negative, positive

PROBLEMS = ("quadratic", "constrained", "regression", "network", "adult")
READY = ("strategic", "actor-critic", "cleaning", "representation", "robust")
"""Asked for by name, `--set problems=robust,cleaning`: not part of a preset."""
FREE_FOLLOWER = ("SOGD", "ZO-SOGD", "FSOBO")
"""Methods that cannot keep a follower in a set, as `robust` asks for."""
METHODS: tuple[str, ...] = ("OGD x fixed", "OAGD w=1", "OAGD window", "SOBOW", "SOGD", "ZO-SOGD")
METHODS += ("FSOBO", "AOBO", "OBBO", "OBBO adaptive", "RTHO", "F2OBO", "WOBO window", "WOBO single")
BUDGETS = ("rounds", "calls", "seconds")
QUESTION = "Which method is best on which problem, for the same work?"
REFERENCE, FIXED = "OAGD w=1", "OGD x fixed"


@dataclasses.dataclass(frozen=True)
class Config(Settings):
    """Everything that a run depends on.

    Oracle calls are counted in gradients: a Hessian-vector product costs `hvp_cost`, a product with
    the cross derivative `cross_cost`, a function value `evaluation_cost`. A round of the calls
    budget has `calls` of them to spend; a round of the seconds budget lasts as long as OAGD with
    w = 1 takes for `calls`.
    """

    horizon: int = count(600)
    adult_rounds: int = count(150)
    seeds: int = count(5)
    problems: tuple[str, ...] = choice(PROBLEMS, PROBLEMS + READY)
    methods: tuple[str, ...] = choice(METHODS, METHODS)
    budgets: tuple[str, ...] = choice(BUDGETS, BUDGETS)
    outer_step_sizes: tuple[float, ...] = positive((0.01, 0.03, 0.1, 0.3, 1.0))
    inner_step_sizes: tuple[float, ...] = positive((0.03, 0.1, 0.3))
    window: int = count(10)
    decay: float = fraction(0.9)
    inner_steps: int = count(5)
    solver_steps: int = count(5)
    tolerance: float = positive(0.01)
    max_inner_steps: int = count(10)
    max_outer_steps: int = count(5)
    single_window: int = count(3)
    penalty: float = positive(10.0)
    directions: int = count(2)
    offset: float = positive(1000.0)
    momentum: float = fraction(0.5)
    calls: float = positive(54.0)
    hvp_cost: float = not_negative(2.0)
    cross_cost: float = not_negative(2.0)
    evaluation_cost: float = not_negative(0.5)
    max_repeats: int = count(20)
    timings: int = count(7)
    curve_points: int = count(100)

    def rounds(self, problem: str) -> int:
        """T of a problem."""
        return self.adult_rounds if problem == "adult" else self.horizon


PAPER = Config()
QUICK = Config(
    horizon=300,
    adult_rounds=60,
    seeds=3,
    problems=("quadratic", "regression"),
    outer_step_sizes=(0.03, 0.1, 0.3, 1.0),
    curve_points=50,
)
