"""The settings of the comparison."""

import dataclasses

from ..kit.config import check_counts

PROBLEMS = ("quadratic", "constrained", "regression", "network", "adult")
METHODS = (
    "OGD x fixed",
    "OAGD w=1",
    "OAGD window",
    "SOBOW",
    "SOGD",
    "ZO-SOGD",
    "FSOBO",
    "AOBO",
    "OBBO",
    "OBBO adaptive",
)
BUDGETS = ("rounds", "calls", "seconds")


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that a run depends on.

    Oracle calls are counted in gradients: a Hessian-vector product costs `hvp_cost`, a product with
    the cross derivative `cross_cost`, a function value `evaluation_cost`. A round of the calls
    budget has `calls` of them to spend; a round of the seconds budget lasts as long as OAGD with
    w = 1 takes for `calls`.
    """

    horizon: int = 600
    adult_rounds: int = 150
    seeds: int = 5
    problems: tuple[str, ...] = PROBLEMS
    methods: tuple[str, ...] = METHODS
    budgets: tuple[str, ...] = BUDGETS
    outer_step_sizes: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 1.0)
    inner_step_sizes: tuple[float, ...] = (0.03, 0.1, 0.3)
    window: int = 10
    decay: float = 0.9
    inner_steps: int = 5
    solver_steps: int = 5
    tolerance: float = 0.01
    max_inner_steps: int = 10
    directions: int = 2
    offset: float = 1000.0
    momentum: float = 0.5
    calls: float = 54.0
    hvp_cost: float = 2.0
    cross_cost: float = 2.0
    evaluation_cost: float = 0.5
    max_repeats: int = 20
    timings: int = 7
    curve_points: int = 100

    def __post_init__(self) -> None:
        counts = ["horizon", "adult_rounds", "seeds", "window", "inner_steps", "solver_steps"]
        counts += ["max_inner_steps", "directions", "max_repeats", "timings", "curve_points"]
        check_counts(self, counts)
        for field in dataclasses.fields(self):
            if getattr(self, field.name) == ():
                raise ValueError(f"{field.name} must not be empty.")
        known = {"problems": PROBLEMS, "methods": METHODS, "budgets": BUDGETS}
        for name, allowed in known.items():
            for value in getattr(self, name):
                if value not in allowed:
                    raise ValueError(f"{name} must be among {allowed}, but got {value!r}.")
        for name in ("outer_step_sizes", "inner_step_sizes"):
            for size in getattr(self, name):
                if not 0 < size < float("inf"):
                    raise ValueError(f"{name} must be numbers > 0, but got {size}.")
        for name in ("tolerance", "offset", "calls"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be a number > 0, but got {getattr(self, name)}.")
        for name in ("hvp_cost", "cross_cost", "evaluation_cost"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be a number >= 0, but got {getattr(self, name)}.")
        for name in ("decay", "momentum"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} must be in (0, 1], but got {getattr(self, name)}.")

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
