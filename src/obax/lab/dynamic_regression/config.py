"""The settings of the dynamic-regression experiment."""

import dataclasses

from ..kit.config import check_counts


@dataclasses.dataclass(frozen=True)
class Scenario:
    """The law of the data: targets get noise uniform in [0, noise]."""

    noise: float
    correlation: float


SCENARIOS = {
    # The paper's noise; features without correlation are our choice (it names no law).
    "paper": Scenario(noise=0.1, correlation=0.0),
    # Ours: noise that makes one sample say little, and correlated features, so that there is
    # something for an average to gain.
    "noisy": Scenario(noise=3.0, correlation=0.5),
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that a run depends on. Windows are numbers, or `T` for the whole horizon."""

    horizon: int = 5000
    seeds: int = 5
    scenarios: tuple[str, ...] = ("paper", "noisy")
    stages: tuple[int, ...] = (3, 1)
    outer_dims: tuple[int, ...] = (1, 5)
    inner_dim: int = 5
    windows: tuple[str, ...] = ("1", "100", "T")
    decays: tuple[float, ...] = (1.0, 0.9)
    normalisations: tuple[str, ...] = ("full", "seen")
    followers: tuple[str, ...] = ("current", "average")
    inner_steps: tuple[int, ...] = (5, 10)
    outer_step_sizes: tuple[float, ...] = (0.001, 0.01, 0.1, 0.5)
    inner_step_sizes: tuple[float, ...] = (0.001, 0.01, 0.1, 0.5)
    window_sizes: tuple[str, ...] = ("1", "3", "10", "30", "100", "300", "1000", "T")
    own_curvature: bool = True
    lower: float = -8.0
    upper: float = 2.0
    start: float = -3.0
    offline_points: int = 50
    curve_points: int = 200

    def __post_init__(self) -> None:
        counts = ("horizon", "seeds", "inner_dim", "offline_points", "curve_points")
        check_counts(self, counts)
        for window in (*self.windows, *self.window_sizes):
            if window != "T" and not (window.isdigit() and int(window) >= 1):
                raise ValueError(f"windows must be integers >= 1 or T, but got {window!r}.")
        for field in dataclasses.fields(self):
            if getattr(self, field.name) == ():
                raise ValueError(f"{field.name} must not be empty.")
        for name in ("outer_step_sizes", "inner_step_sizes"):
            for size in getattr(self, name):
                if not 0 < size < float("inf"):
                    raise ValueError(f"{name} must be numbers > 0, but got {size}.")
        for steps in self.inner_steps:
            if steps < 1:
                raise ValueError(f"inner_steps must be at least 1, but got {steps}.")
        for decay in self.decays:
            if not 0 < decay <= 1:
                raise ValueError(f"decays must be in (0, 1], but got {decay}.")
        if len({self.size(w) for w in self.windows}) < 2:
            raise ValueError(f"windows must be at least two sizes, but got {self.windows}.")
        for name in self.scenarios:
            if name not in SCENARIOS:
                known = ", ".join(SCENARIOS)
                raise ValueError(f"scenarios must be among {known}, but got {name!r}.")
        for stages in self.stages:
            if not 1 <= stages <= self.horizon:
                raise ValueError(f"stages must be between 1 and the horizon, but got {stages}.")
        for dim in self.outer_dims:
            if dim not in (1, self.inner_dim):
                raise ValueError(f"outer_dims must be 1 or {self.inner_dim}, but got {dim}.")
        if not self.lower <= self.start <= self.upper:
            raise ValueError(
                f"start must be in [lower, upper] = [{self.lower}, {self.upper}], but is "
                f"{self.start}."
            )
        choices = {"normalisations": ("full", "seen"), "followers": ("current", "average")}
        for name, allowed in choices.items():
            for value in getattr(self, name):
                if value not in allowed:
                    raise ValueError(f"{name} must be among {', '.join(allowed)}; got {value!r}.")

    def size(self, window: str) -> int:
        """A window as a number of rounds."""
        return self.horizon if window == "T" else min(int(window), self.horizon)


PAPER = Config()
QUICK = Config(
    horizon=2000,
    seeds=3,
    outer_dims=(1,),
    own_curvature=False,
    window_sizes=("1", "10", "100", "1000", "T"),
    offline_points=25,
)
