"""The settings of the meta-learning experiments, and the methods that they name."""

import dataclasses
import re
from typing import Any

from ..kit.config import Settings, choice, count, fraction, not_negative, positive
from ..kit.method import Method as AnyMethod, check_replay, option

QUESTIONS = {
    "comparison": "Does learning from recent tasks alone keep up with learning from all of them?",
    "window": "Does a longer window help?",
    "steps": "Do more inner steps help?",
}
"""By the kind of experiment."""
DATA = ("fc100", "miniimagenet")
ADAPTATIONS = ("prox", "implicit", "head")
NUMBERS = {"w": "w", "k": "inner_steps", "replay": "replay", "recent": "recency"}
"""Words that end in a number, and what it is of a method."""
BASELINES = {"maml": "MAML", "anil": "ANIL", "itd": "ITD-BiO"}


@dataclasses.dataclass(frozen=True)
class Method(AnyMethod):
    """A method as the config writes it: `oagd-w10-prox`, `oagd-w10-implicit-k20`, `anil-sampled`.

    OAGD's follower is `prox`, `implicit`, or `head`, which is implicit with the head alone inside.
    `maml`, `anil` and `itd` learn from `all` tasks so far or from `sampled` ones; `fo` leaves their
    second derivatives out. Left out: w1, prox, all, and the config's number of inner steps.
    `replay100` draws OAGD's window from 100 tasks of the past (`obax.Replay`), with `recent200`
    those of a mean age of 200 rounds.
    """

    w: int | None = option("w = {}")
    adaptation: str | None = option("{}")
    sampled: bool | None = option({True: "sampled", False: "all"})
    first_order: bool | None = option({True: "first order"})
    inner_steps: int | None = option("K = {}")
    replay: int | None = option("replay of {}")
    recency: int | None = option("mean age {}")

    @property
    def head_alone(self) -> bool:
        """Whether only the head adapts."""
        return self.adaptation == "head" or self.kind in ("ANIL", "ITD-BiO")

    @classmethod
    def parse(cls, text: str) -> "Method":
        """The method, or a `ValueError` that says how they are written."""
        kind, *options = text.strip().lower().split("-")
        ours = kind == "oagd"
        found = cls("OAGD", w=1, adaptation="prox")
        if not ours:
            found = cls(BASELINES.get(kind, ""), sampled=False, first_order=False)
        for word in options if found.kind else ["?"]:
            match = re.fullmatch(r"(w|k|replay|recent)([1-9]\d*)", word)
            if match and (ours or match[1] == "k"):
                number: dict[str, Any] = {NUMBERS[match[1]]: int(match[2])}
                found = dataclasses.replace(found, **number)
            elif ours and word in ADAPTATIONS:
                found = dataclasses.replace(found, adaptation=word)
            elif not ours and word in ("all", "sampled"):
                found = dataclasses.replace(found, sampled=word == "sampled")
            elif not ours and word == "fo":
                found = dataclasses.replace(found, first_order=True)
            else:
                raise ValueError(
                    f"methods must be written like oagd-w10-prox, oagd-w10-implicit-k20, "
                    f"oagd-w10-head-replay150, maml, maml-sampled-fo, anil-all or itd-sampled, but "
                    f"got {text!r}."
                )
        if found.adaptation == "prox" and found.inner_steps is not None:
            raise ValueError(f"methods with prox take one inner step, but got {text!r}.")
        try:
            check_replay(found.w, found.replay, found.recency)
        except ValueError as error:
            raise ValueError(f"methods must be possible, but {text!r}: {error}") from None
        return found


COLUMNS = {"data": str, "kind": str, "w": int, "adaptation": str, "sampled": bool}
COLUMNS |= {"first_order": bool, "inner_steps": int, "replay": int, "recency": int, "K": int}
COLUMNS |= {"alpha": float, "beta": float}


@dataclasses.dataclass(frozen=True)
class Config(Settings):
    """Everything that a run depends on. The step sizes and K are those of the paper's appendix."""

    data: str = choice("fc100", DATA)
    source: str = choice("real", ("real", "auto", "synthetic"))
    """`real`, `synthetic` (a generated stand-in), or `auto`: real where the files are at hand."""
    folder: str = ""
    """Where the images and tables of miniImageNet are, unpacked or in a tar archive; without it
    they are looked for as other data sets are."""
    image_size: int = count(84)
    """To how many pixels a side miniImageNet's images are resized; those of FC100 have 32."""
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
    rounds: int = count(500)
    seeds: int = count(5)
    maml_rounds: int = count(500)
    maml_seeds: int = count(5)
    """MAML may get fewer rounds and seeds: a task costs it twenty times what it costs ANIL."""
    ways: int = count(5)
    shots: int = count(5)
    queries: int = count(5)
    filters: int = count(64)
    blocks: int = count(4)
    inner_step_size: float = positive(0.1)
    head_step_size: float = not_negative(0.0)
    """Where the head alone adapts, the inner step in units of 1 / curvature of each task, see
    `unit_curvature` of `obax.problems.meta_learning`: below 2 nothing diverges. 0: take
    `inner_step_size` there too, as the paper does."""
    outer_step_size: float = positive(0.001)
    outer_optimiser: str = choice("adam", ("adam", "sgd"))
    inner_steps: int = count(20)
    sampled_tasks: int = count(32)
    decay: float = fraction(1.0)
    normalise: str = choice("seen", ("full", "seen"))
    proximity: float = positive(0.1)
    """lambda of the implicit followers, which the paper does not give. For the whole network, of
    0.1, 0.5, 2 and 5 the one whose hypergradients were nearest to those through the steps, on three
    training tasks; for the head 0.1 and 0.01 did alike on a seed of their own."""
    solver: str = choice("cg", ("cg", "neumann", "fixed-point"))
    solver_steps: int = count(5)
    chunk: int = count(1)
    evaluate_every: int = count(50)
    test_tasks: int = count(100)
    train_tasks: int = count(20)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(set(self.runs().values())) < len(self.methods):
            raise ValueError(f"methods must not name one twice, but got {self.methods}.")

    def runs(self) -> dict[str, Method]:
        """The methods, in the order of the config, by how it writes them."""
        return {text: Method.parse(text) for text in self.methods}

    def seeds_of(self, method: Method) -> int:
        """How many seeds a method runs on."""
        return min(self.seeds, self.maml_seeds if method.kind == "MAML" else self.seeds)

    def rounds_of(self, method: Method) -> int:
        """How many rounds a method plays."""
        return min(self.rounds, self.maml_rounds if method.kind == "MAML" else self.rounds)

    def in_units(self, method: Method) -> bool:
        """Whether the inner step of a method counts in units of 1 / curvature."""
        return bool(self.head_step_size) and method.head_alone

    def step_size_of(self, method: Method) -> float:
        """beta, in its units."""
        return self.head_step_size if self.in_units(method) else self.inner_step_size

    def steps_of(self, method: Method) -> int:
        """K: one for the closed form."""
        return 1 if method.adaptation == "prox" else method.inner_steps or self.inner_steps
