"""The settings of the dynamic-regression experiment, and the methods and streams that they name."""

import dataclasses
import itertools
from typing import Any

from ..kit.config import Settings, choice, count, fraction, positive, ranged
from ..kit.method import Method as AnyMethod, option
from ..kit.table import Value

QUESTION = "Can a model tune its own regularisation while data streams in?"
COLUMNS = {"kind": str, "x": str, "w": int, "u": float, "normalise": str, "follower": str}
COLUMNS |= {"curvature": str, "cut": str, "scenario": str, "stages": int, "d1": int}
COLUMNS |= {"K": int, "alpha": float, "beta": float}
GROUP, GRID = ["scenario", "stages", "d1"], ["K", "alpha", "beta"]


# The law of the data: targets get noise uniform in [0, noise].
SCENARIOS: dict[str, dict[str, Any]] = {
    # The paper's noise; features without correlation are our choice (it names no law).
    "paper": {"noise": 0.1, "correlation": 0.0},
    # Ours: noise that makes one sample say little, and correlated features, so that there is
    # something for an average to gain.
    "noisy": {"noise": 3.0, "correlation": 0.5},
}


def _windows(*default: str) -> tuple[str, ...]:
    holds = lambda window: window == "T" or (window.isdigit() and int(window) >= 1)  # noqa: E731
    return ranged(default, holds, "an integer >= 1 or T", "integers >= 1 or T")


@dataclasses.dataclass(frozen=True)
class Config(Settings):
    """Everything that a run depends on. Windows are numbers, or `T` for the whole horizon."""

    horizon: int = count(5000)
    seeds: int = count(5)
    tuning_seeds: int = count(10)
    """How many seeds the two questions have, if that is more: they are asked of few methods, and
    with one penalty."""
    scenarios: tuple[str, ...] = choice(("paper", "noisy"), SCENARIOS)
    stages: tuple[int, ...] = count((3, 1))
    outer_dims: tuple[int, ...] = count((1, 5))
    inner_dim: int = count(5)
    windows: tuple[str, ...] = _windows("1", "100", "T")
    decays: tuple[float, ...] = fraction((1.0, 0.9))
    normalisations: tuple[str, ...] = choice(("full", "seen"), ("full", "seen"))
    followers: tuple[str, ...] = choice(("current", "average"), ("current", "average"))
    inner_steps: tuple[int, ...] = count((5, 10))
    outer_step_sizes: tuple[float, ...] = positive((0.001, 0.01, 0.1, 0.5))
    inner_step_sizes: tuple[float, ...] = positive((0.001, 0.01, 0.1, 0.5))
    window_sizes: tuple[str, ...] = _windows("1", "10", "100", "1000", "T")
    own_curvature: bool = True
    lower: float = -8.0
    upper: float = 2.0
    start: float = -3.0
    offline_points: int = count(50)
    curve_points: int = count(200)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.sizes()) < 2:
            raise ValueError(f"windows must be at least two sizes, but got {self.windows}.")
        if max(self.stages) > self.horizon:
            most = max(self.stages)
            raise ValueError(f"stages must be between 1 and the horizon, but got {most}.")
        for dim in self.outer_dims:
            if dim not in (1, self.inner_dim):
                raise ValueError(f"outer_dims must be 1 or {self.inner_dim}, but got {dim}.")
        if not self.lower <= self.start <= self.upper:
            limits = f"[{self.lower}, {self.upper}]"
            raise ValueError(f"start must be in [lower, upper] = {limits}, but is {self.start}.")

    def for_tuning(self, outer_dim: int) -> "Config":
        """The same on the seeds of the two questions."""
        most = max(self.seeds, self.tuning_seeds) if outer_dim == 1 else self.seeds
        return dataclasses.replace(self, seeds=most)

    def size(self, window: str) -> int:
        """A window as a number of rounds."""
        return self.horizon if window == "T" else min(int(window), self.horizon)

    def sizes(self) -> list[int]:
        """The windows that are compared, as numbers of rounds, from small to large."""
        return sorted({self.size(window) for window in self.windows})

    def named(self, size: int) -> str:
        """A window for people: T where it is the whole horizon."""
        return "T" if size == self.horizon else str(size)


PAPER = Config()
QUICK = Config(
    horizon=2000,
    seeds=3,
    outer_dims=(1,),
    own_curvature=False,
    window_sizes=("1", "10", "100", "T"),
    offline_points=25,
)


@dataclasses.dataclass(frozen=True)
class Group:
    """What all methods of a comparison share."""

    scenario: str
    stages: int
    outer_dim: int

    def name(self) -> str:
        """As it stands in the name of a part."""
        return f"{self.scenario}-S{self.stages}-d{self.outer_dim}"

    def columns(self) -> dict[str, Value]:
        """Its columns of the table."""
        return {"scenario": self.scenario, "stages": self.stages, "d1": self.outer_dim}


def groups(config: Config) -> list[Group]:
    """All groups of a run."""
    every = itertools.product(config.outer_dims, config.scenarios, config.stages)
    return [Group(scenario, stages, outer_dim) for outer_dim, scenario, stages in every]


@dataclasses.dataclass(frozen=True)
class Method(AnyMethod):
    """OAGD with one kind of window; or OGD, with x held at its start or given the best x of each
    stage (the oracle); or the comparators themselves, or the offline solution.

    w = 1 has no weights, and nothing to average.
    """

    x: str | None = option({"fixed": "x fixed", "oracle": "oracle x"})
    w: int | None = option("w = {}")
    u: float | None = option("u = {:g}", usual=1.0)
    normalise: str | None = option({"full": "full weight"})
    follower: str | None = option({"average": "averaged follower"})
    curvature: str | None = option({"own": "own curvature"})
    cut: str | None = option({"changes": "cut at the changes", "detected": "cut where detected"})


BASELINES = (Method("OGD", "fixed"), Method("OGD", "oracle"))
PENALTIES = {
    "fixed at its start": BASELINES[0],
    "learned online": Method("OAGD", w=1),
    "best known in advance": BASELINES[1],
}
"""Three ways to come by a penalty, for one and the same follower."""
COMPARATORS, OFFLINE = Method("comparators"), Method("offline")

CUTS = {
    "never": "never cut",
    "changes": "cut at the true changes",
    "detected": "cut where a detector says",
}
"""Where the window ends early: nowhere; where the stream says that a stage begins; where
`obax.detectors.ScaleChange` finds that the losses have risen, which nobody tells it."""


def shared(size: int, decay: float, normalise: str, follower: str, cut: str = "never") -> Method:
    """The method that solves once per round, with the curvature of what the follower trains on."""
    if size == 1:
        return Method("OAGD", w=1)
    curvature = "current" if follower == "current" else "window"
    return Method("OAGD", None, size, decay, normalise, follower, curvature, cut)


def methods(config: Config) -> list[Method]:
    """OGD, then every combination of options; those that w = 1 does not see, once."""
    options = itertools.product(
        config.sizes(), config.decays, config.normalisations, config.followers
    )
    return list(dict.fromkeys([*BASELINES, *(shared(*chosen) for chosen in options)]))


def plain(size: int, cut: str) -> Method:
    """Equal weights over the rounds seen, and the window reaches the follower: what is cut."""
    return shared(size, 1.0, "seen", "average", cut)


def as_read(size: int, stages: Any) -> Method:
    """The window of our reading of the paper: it ends where a stage ends. With one stage there is
    nothing to cut at."""
    return plain(size, "changes" if stages > 1 else "never")


def asked_of(config: Config) -> list[Method]:
    """The methods that the two questions are about."""
    return [*PENALTIES.values(), *(plain(max(config.sizes()), cut) for cut in CUTS)]


def methods_of(config: Config, group: Group) -> list[Method]:
    """All that are played on a group.

    Of windows that are cut only the plain ones; where nothing changes, only a detector could cut.
    With one penalty these over many window sizes, for the figure of regret against w; and, on the
    paper's own scenario, Algorithm 1 to the letter: own curvature, w linear systems per round,
    follower on g_t alone. It costs w times as much as the others.
    """
    found = methods(config)
    letter = [dataclasses.replace(m, curvature="own") for m in found if m.follower == "current"]
    sizes = config.sizes()
    if group.outer_dim == 1:
        sizes += [config.size(window) for window in config.window_sizes]
    cuts = [cut for cut in CUTS if cut != "changes" or group.stages > 1]
    found += [plain(size, cut) for cut, size in itertools.product(cuts, sizes)]
    if config.own_curvature and group.scenario == "paper" and group.outer_dim == 1:
        found += letter
    return list(dict.fromkeys(found))
