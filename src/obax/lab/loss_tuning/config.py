"""The settings of the loss-tuning experiments, with their methods and presets."""

import dataclasses
import itertools
from typing import Annotated

from ..._support.checks import BelowOne, Count, Fraction, NonNegative, NonNegativeInt, Positive
from ..framework.config import Method as AnyMethod, Settings, check_replay, one_of, option

DATA = ("mnist", "mnist-shift", "adult", "tadpole")
OAGD = ("OAGD",)


@dataclasses.dataclass(frozen=True)
class Method(AnyMethod):
    """A method as the configuration writes it: `ogd`, `autobalance`, `oagd-w10-u0.9-own-neumann`.

    OAGD without options is w1, u0.9, own, neumann, k1. `held` switches its leader off; `k2` lets
    its follower pass over the window twice. `replay400` draws the window from 400 past rounds
    (`obax.Replay`), with `recent400` those of a mean age of 400 rounds, with `balanced` class by
    class. `alpha0.002` is an outer step size that replaces those of the configuration.
    """

    EXAMPLES = (
        "ogd, autobalance, oagd-w10, oagd-w10-u0.5-current-cg-held or "
        "oagd-w10-k2-replay400-balanced"
    )

    w: int | None = option("w = {}", "w", kinds=OAGD)
    decay: float | None = option("δ = {:g}", "u", usual=0.9, kinds=OAGD)
    curvature: str | None = option(
        {"current": "one solve"}, {"own": "own", "current": "current"}, kinds=OAGD
    )
    solver: str | None = option({"cg": "CG"}, {"neumann": "neumann", "cg": "cg"}, kinds=OAGD)
    held: bool | None = option({True: "leader held"}, {"held": True}, kinds=OAGD)
    passes: int | None = option("K = {}", "k", kinds=OAGD)
    replay: int | None = option("replay of {}", "replay", kinds=OAGD)
    recency: int | None = option("mean age {}", "recent", kinds=OAGD)
    balanced: bool | None = option({True: "balanced"}, {"balanced": True}, kinds=OAGD)
    own_alpha: float | None = option("alpha = {:g}", "alpha", kinds=OAGD)
    alpha: float | None = option({})
    beta: float | None = option({})

    def checked(self) -> "Method":
        """Return the method with one pass written as none. Check its decay and its replay."""
        if self.decay is not None and self.decay > 1:
            raise ValueError(f"u must be in (0, 1], but is {self.decay:g}.")
        check_replay(self.w, self.replay, self.recency, self.balanced)
        return dataclasses.replace(self, passes=None) if self.passes == 1 else self


Method.PROTOTYPES = {
    "ogd": Method("OGD"),
    "autobalance": Method("AutoBalance"),
    "oagd": Method("OAGD", 1, 0.9, "own", "neumann", False),
}
COLUMNS = {"data": str} | Method.column_types()


@dataclasses.dataclass(frozen=True)
class Config(Settings):
    """Everything that a run depends on.

    Where the paper's text is silent, the defaults are those of the released research code.
    """

    data: Annotated[str, one_of(*DATA)] = "mnist"
    study: Annotated[str, one_of("methods", "window", "steps")] = "methods"
    """What is compared: methods, windows of OAGD, or step sizes of OAGD."""
    source: Annotated[str, one_of("real", "auto", "synthetic")] = "real"
    """`real`, `synthetic` (a generated stand-in), or `auto`: real if the files are on this
    machine."""
    methods: tuple[str, ...] = ("ogd", "oagd-w1", "oagd-w5", "oagd-w10", "autobalance")
    rounds: Count = 400
    seeds: Count = 5
    autobalance_seeds: NonNegativeInt = 5
    """AutoBalance may get fewer seeds, because its rounds take longer and longer."""
    batch: Count = 128
    filters: Count = 64
    blocks: Count = 4
    downsample: Annotated[int, one_of(1, 2, 4)] = 1
    """Images are averaged over squares of this side: 2 makes 28 x 28 pixels into 14 x 14."""
    hidden: Count = 200
    dropout: BelowOne = 0.5
    batch_norm_momentum: Fraction = 1.0
    inner_step_sizes: tuple[Positive, ...] = (0.1,)
    outer_step_sizes: tuple[Positive, ...] = (0.001,)
    momentum: BelowOne = 0.9
    weight_decay: NonNegative = 1e-4
    inner_warmup: NonNegativeInt = 5
    outer_warmup: NonNegativeInt = 10
    step_decays: tuple[Fraction, ...] | tuple[()] = (0.75, 0.9)
    """Shares of the rounds after which both step sizes are divided by ten."""
    outer_start: Count = 120
    outer_every: Count = 1
    normalise: Annotated[str, one_of("full", "seen")] = "seen"
    neumann_terms: Count = 5
    neumann_step: Positive = 0.5
    cg_steps: Count = 5
    cg_damping: NonNegative = 1.0
    autobalance_every: Count = 20
    autobalance_rounds: Count = 10
    autobalance_memory: NonNegativeInt = 0
    """How many rounds AutoBalance keeps. 0 keeps all of them, as in its paper."""
    link: Annotated[str, one_of("identity", "sigmoid")] = "identity"
    outer_training: bool = False
    imbalance: Fraction = 0.6
    train_images: Count = 4000
    valid_images: Count = 1000
    """The number of images of class 0; class i has this times imbalance^i."""
    phases: tuple[Fraction, ...] = (0.4, 0.6, 0.8, 1.0)
    phase_rounds: Count = 100
    evaluate_every: Count = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        if (28 // self.downsample) >> self.blocks < 1:
            raise ValueError(
                f"blocks must leave a pixel: {28 // self.downsample} pixels cannot be halved "
                f"{self.blocks} times. Lower blocks or downsample."
            )
        parsed = [Method.parse(text) for text in self.methods]
        if len(set(parsed)) < len(parsed):
            raise ValueError(f"methods must not name one twice, but got {self.methods}.")
        self.runs()

    def runs(self) -> dict[str, Method]:
        """Return the methods with each pair of step sizes by the names of their files.

        OGD ignores the outer step size and some methods have their own, so that these run once for
        each inner step size.
        """
        runs: dict[str, Method] = {}
        for text, alpha, beta in itertools.product(
            self.methods, self.outer_step_sizes, self.inner_step_sizes
        ):
            parsed = Method.parse(text)
            method = dataclasses.replace(parsed, alpha=parsed.own_alpha or alpha, beta=beta)
            if method.kind == "OGD":
                method = dataclasses.replace(method, alpha=None)
            steps = f"-alpha{alpha:g}" if method.alpha and not method.own_alpha else ""
            name = f"{text}{steps}-beta{beta:g}"
            if runs.setdefault(name, method) != method:
                raise ValueError(f"methods must not name one twice, but {name} stands for two.")
        return runs

    def seeds_of(self, method: Method) -> int:
        """Return how many seeds a method runs on."""
        most = self.autobalance_seeds if method.kind == "AutoBalance" else self.seeds
        return min(most, self.seeds)

    @property
    def has_images(self) -> bool:
        """Whether the rows are images, which need the convolutional network."""
        return self.data.startswith("mnist")

    @property
    def topic(self) -> str:
        """The topic of the findings: that of the data, or the study of one method."""
        if self.study != "methods":
            return self.study
        return {"mnist": "imbalance", "mnist-shift": "shift"}.get(self.data, "table")
