"""The settings of the meta-learning experiments, with their methods and presets."""

import dataclasses
from typing import Annotated

from ..._support.checks import Count, Fraction, NonNegative, Positive
from ..framework.config import Method as AnyMethod, Settings, check_replay, one_of, option

DATA = ("fc100", "miniimagenet")
ADAPTATIONS = ("prox", "implicit", "head")
OAGD, BASELINES = ("OAGD",), ("MAML", "ANIL", "ITD-BiO")


@dataclasses.dataclass(frozen=True)
class Method(AnyMethod):
    """A method as the configuration writes it: `oagd-w10-prox`, `oagd-w10-head-k20`, `anil-all`.

    OAGD's follower is `prox`, `implicit`, or `head`, which is implicit with only the head adapted.
    `maml`, `anil` and `itd` learn from `all` tasks so far or from `sampled` ones; `fo` leaves their
    second derivatives out. The defaults are w1, prox, all, and the configuration's number of inner
    steps. `replay100` draws OAGD's window from 100 past tasks (`obax.Replay`), with `recent200`
    those of a mean age of 200 rounds.
    """

    EXAMPLES = (
        "oagd-w10-prox, oagd-w10-implicit-k20, oagd-w10-head-replay150, maml, maml-sampled-fo, "
        "anil-all or itd-sampled"
    )

    w: int | None = option("w = {}", "w", kinds=OAGD)
    adaptation: str | None = option("{}", {name: name for name in ADAPTATIONS}, kinds=OAGD)
    sampled: bool | None = option(
        {True: "sampled", False: "all"}, {"sampled": True, "all": False}, kinds=BASELINES
    )
    first_order: bool | None = option({True: "first order"}, {"fo": True}, kinds=BASELINES)
    inner_steps: int | None = option("K = {}", "k")
    replay: int | None = option("replay of {}", "replay", kinds=OAGD)
    recency: int | None = option("mean age {}", "recent", kinds=OAGD)

    @property
    def adapts_only_head(self) -> bool:
        """Whether only the head adapts."""
        return self.adaptation == "head" or self.kind in ("ANIL", "ITD-BiO")

    def checked(self) -> "Method":
        """Return the method. Check its inner steps and its replay."""
        if self.adaptation == "prox" and self.inner_steps is not None:
            raise ValueError("prox takes one inner step.")
        check_replay(self.w, self.replay, self.recency)
        return self


Method.PROTOTYPES = {
    "oagd": Method("OAGD", w=1, adaptation="prox"),
    "maml": Method("MAML", sampled=False, first_order=False),
    "anil": Method("ANIL", sampled=False, first_order=False),
    "itd": Method("ITD-BiO", sampled=False, first_order=False),
}
COLUMNS = {"data": str} | Method.column_types() | {"K": int, "alpha": float, "beta": float}


@dataclasses.dataclass(frozen=True)
class Config(Settings):
    """Everything that a run depends on. The step sizes and K are those of the paper's appendix."""

    data: Annotated[str, one_of(*DATA)] = "fc100"
    study: Annotated[str, one_of("methods", "window", "inner-steps")] = "methods"
    """What is compared: methods, windows of OAGD, or numbers of inner steps of OAGD."""
    source: Annotated[str, one_of("real", "auto", "synthetic")] = "real"
    """`real`, `synthetic` (a generated stand-in), or `auto`: real if the files are on this
    machine."""
    folder: str = ""
    """The folder of the images and tables of miniImageNet, unpacked or in a tar archive. Without
    it they are looked for like other data sets."""
    image_size: Count = 84
    """The side in pixels to which miniImageNet's images are resized; those of FC100 have 32."""
    methods: tuple[str, ...] = (
        "oagd-w10-prox",
        "oagd-w10-implicit",
        "oagd-w10-head",
        "anil-all",
        "itd-all",
        "anil-sampled",
        "itd-sampled",
        "maml-all",
    )
    rounds: Count = 500
    seeds: Count = 5
    maml_rounds: Count = 500
    maml_seeds: Count = 5
    """MAML may get fewer rounds and seeds: a task costs it twenty times as much as ANIL."""
    ways: Count = 5
    shots: Count = 5
    queries: Count = 5
    filters: Count = 64
    blocks: Count = 4
    inner_step_size: Positive = 0.1
    head_step_size: NonNegative = 0.0
    """If only the head adapts, the inner step in units of 1 / curvature of each task, see
    `unit_curvature` of `obax.problems.meta_learning`: below 2 nothing diverges. 0 takes
    `inner_step_size` there too, as the paper does."""
    outer_step_size: Positive = 0.001
    outer_optimiser: Annotated[str, one_of("adam", "sgd")] = "adam"
    inner_steps: Count = 20
    sampled_tasks: Count = 32
    decay: Fraction = 1.0
    normalise: Annotated[str, one_of("full", "seen")] = "seen"
    proximity: Positive = 0.1
    """lambda of the implicit followers, which the paper does not give. For the whole network it is
    the one of 0.1, 0.5, 2 and 5 whose hypergradients were nearest to those through the steps on
    three training tasks; for the head, 0.1 and 0.01 were equally good on another seed."""
    solver: Annotated[str, one_of("cg", "neumann", "fixed-point")] = "cg"
    solver_steps: Count = 5
    chunk: Count = 1
    evaluate_every: Count = 50
    test_tasks: Count = 100
    train_tasks: Count = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(set(self.runs().values())) < len(self.methods):
            raise ValueError(f"methods must not name one twice, but got {self.methods}.")

    def runs(self) -> dict[str, Method]:
        """Return the methods by the names that the configuration gives them, in its order."""
        return {text: Method.parse(text) for text in self.methods}

    def seeds_of(self, method: Method) -> int:
        """Return how many seeds a method runs on."""
        return min(self.seeds, self.maml_seeds if method.kind == "MAML" else self.seeds)

    def rounds_of(self, method: Method) -> int:
        """Return how many rounds a method plays."""
        return min(self.rounds, self.maml_rounds if method.kind == "MAML" else self.rounds)

    def has_unit_curvature(self, method: Method) -> bool:
        """Return whether the inner step of a method is in units of 1 / curvature."""
        return bool(self.head_step_size) and method.adapts_only_head

    def step_size_of(self, method: Method) -> float:
        """Return beta in its units."""
        return self.head_step_size if self.has_unit_curvature(method) else self.inner_step_size

    def steps_of(self, method: Method) -> int:
        """Return K, which is one for the closed form."""
        return 1 if method.adaptation == "prox" else method.inner_steps or self.inner_steps
