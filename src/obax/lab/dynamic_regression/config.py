"""The settings of the dynamic-regression experiment, with its methods and streams."""

import dataclasses
import itertools
import re
from typing import Annotated, Any, NamedTuple

from ..._support.checks import Count, Fraction, Kind, Positive
from ..framework.config import Method as AnyMethod, Settings, one_of, option
from ..framework.results import Value

SCENARIOS: dict[str, dict[str, Any]] = {
    # The paper's noise; features without correlation are our choice (it names no distribution).
    "paper": {"noise": 0.1, "correlation": 0.0},
    # Ours: strong noise, so that one sample says little, and correlated features: averaging helps.
    "noisy": {"noise": 3.0, "correlation": 0.5},
}
"""How the data is drawn. Targets get noise that is uniform in [0, noise]."""
WindowSize = Annotated[str, Kind("an integer >= 1 or T", re.compile(r"T|[1-9]\d*").fullmatch)]
Follower = Annotated[str, one_of("current", "average")]
Weight = Annotated[str, one_of("full", "seen")]


@dataclasses.dataclass(frozen=True)
class Config(Settings):
    """Everything that a run depends on. Windows are numbers, or `T` for the whole horizon."""

    horizon: Count = 5000
    seeds: Count = 5
    tuning_seeds: Count = 10
    """The number of seeds for the two questions, if it is larger: they concern few methods and one
    penalty."""
    scenarios: tuple[Annotated[str, one_of(*SCENARIOS)], ...] = ("paper", "noisy")
    stages: tuple[Count, ...] = (3, 1)
    outer_dims: tuple[Count, ...] = (1, 5)
    inner_dim: Count = 5
    windows: tuple[WindowSize, ...] = ("1", "100", "T")
    decays: tuple[Fraction, ...] = (1.0, 0.9)
    normalisations: tuple[Weight, ...] = ("full", "seen")
    followers: tuple[Follower, ...] = ("current", "average")
    inner_steps: tuple[Count, ...] = (5, 10)
    outer_step_sizes: tuple[Positive, ...] = (0.001, 0.01, 0.1, 0.5)
    inner_step_sizes: tuple[Positive, ...] = (0.001, 0.01, 0.1, 0.5)
    window_sizes: tuple[WindowSize, ...] = ("1", "10", "100", "1000", "T")
    own_curvature: bool = True
    lower: float = -8.0
    upper: float = 2.0
    start: float = -3.0
    offline_points: Count = 50
    curve_points: Count = 200

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.sizes()) < 2:
            raise ValueError(f"windows must be at least two sizes, but got {self.windows}.")
        if (most := max(self.stages)) > self.horizon:
            raise ValueError(f"stages must be between 1 and the horizon, but got {most}.")
        for dim in self.outer_dims:
            if dim not in (1, self.inner_dim):
                raise ValueError(f"outer_dims must be 1 or {self.inner_dim}, but got {dim}.")
        if not self.lower <= self.start <= self.upper:
            limits = f"[{self.lower}, {self.upper}]"
            raise ValueError(f"start must be in [lower, upper] = {limits}, but is {self.start}.")

    def for_tuning(self, outer_dim: int) -> "Config":
        """Return the same settings on the seeds of the two questions."""
        most = max(self.seeds, self.tuning_seeds) if outer_dim == 1 else self.seeds
        return dataclasses.replace(self, seeds=most)

    def size(self, window: str) -> int:
        """Return a window as a number of rounds."""
        return self.horizon if window == "T" else min(int(window), self.horizon)

    def sizes(self) -> list[int]:
        """Return the windows that are compared as numbers of rounds, from small to large."""
        return sorted({self.size(window) for window in self.windows})

    def name_of(self, size: int) -> str:
        """Return a window for people: T if it is the whole horizon."""
        return "T" if size == self.horizon else str(size)


class Stream(NamedTuple):
    """The scenario, number of stages and number of penalties that a comparison shares."""

    scenario: str
    stages: int
    outer_dim: int

    def name(self) -> str:
        """Return the beginning of the names of its parts."""
        return f"{self.scenario}-S{self.stages}-d{self.outer_dim}"

    def columns(self) -> dict[str, Value]:
        """Return the columns of the table that identify the stream."""
        return dict(zip(GROUP, self, strict=True))


@dataclasses.dataclass(frozen=True)
class Method(AnyMethod):
    """A method of the experiment.

    It is OAGD with one kind of window; OGD with x held at its start or at the best x of each stage
    (the oracle); the comparators themselves; or the offline solution. OAGD with w = 1 has no
    weights and nothing to average.
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
"""Three ways to choose a penalty for the same follower."""
COMPARATORS, OFFLINE = Method("comparators"), Method("offline")
CUTS = {
    "never": "never cut",
    "changes": "cut at the true changes",
    "detected": "cut where a detector says",
}
"""Where a window ends early: never; where the stream says that a stage begins; or where
`obax.detectors.ScaleChange` finds from the losses alone that they have risen."""


def with_shared_curvature(
    size: int, decay: float, normalise: str, follower: str, cut: str = "never"
) -> Method:
    """Return the OAGD that solves one linear system in a round.

    The curvature is that of the rounds on which the follower trains.
    """
    if size == 1:
        return Method("OAGD", w=1)
    curvature = "current" if follower == "current" else "window"
    return Method("OAGD", None, size, decay, normalise, follower, curvature, cut)


def methods(config: Config) -> list[Method]:
    """Return OGD and every combination of options, without duplicates for w = 1."""
    options = config.sizes(), config.decays, config.normalisations, config.followers
    windows = itertools.starmap(with_shared_curvature, itertools.product(*options))
    return list(dict.fromkeys([*BASELINES, *windows]))


def with_equal_weights(size: int, cut: str) -> Method:
    """Return the OAGD with equal weights over the rounds seen, on which the follower trains too."""
    return with_shared_curvature(size, 1.0, "seen", "average", cut)


def as_we_read_the_paper(size: int, stages: Any) -> Method:
    """Return the OAGD whose window ends where a stage ends. One stage has nothing to cut at."""
    return with_equal_weights(size, "changes" if stages > 1 else "never")


def methods_of_questions(config: Config) -> list[Method]:
    """Return the methods that the two questions are about."""
    largest = max(config.sizes())
    return [*PENALTIES.values(), *(with_equal_weights(largest, cut) for cut in CUTS)]


def methods_of(config: Config, stream: Stream) -> list[Method]:
    """Return all methods that are played on a stream.

    Of the windows that are cut, only those with equal weights; without changes, only a detector
    could cut. With one penalty, these have many window sizes, for the figure of regret against w.
    On the paper's own scenario with one penalty, also Algorithm 1 to the letter: own curvature, w
    linear systems in a round, follower on g_t alone. It costs w times as much as the others.
    """
    chosen, sizes = methods(config), config.sizes()
    letter = [dataclasses.replace(m, curvature="own") for m in chosen if m.follower == "current"]
    if stream.outer_dim == 1:
        sizes += map(config.size, config.window_sizes)
    cuts = [cut for cut in CUTS if cut != "changes" or stream.stages > 1]
    chosen += [with_equal_weights(size, cut) for cut, size in itertools.product(cuts, sizes)]
    if config.own_curvature and stream.scenario == "paper" and stream.outer_dim == 1:
        chosen += letter
    return list(dict.fromkeys(chosen))


STREAM_COLUMNS = {"scenario": str, "stages": int, "d1": int}
GRID_COLUMNS = {"K": int, "alpha": float, "beta": float}
GROUP, GRID = list(STREAM_COLUMNS), list(GRID_COLUMNS)
"""Columns that identify a stream, and those that identify a setting of the grid."""
COLUMNS = Method.column_types() | STREAM_COLUMNS | GRID_COLUMNS
