"""The settings of the meta-learning experiments, and the methods that they name."""

import dataclasses
import re

from ..kit.config import check_choices, check_counts

DATA = ("fc100", "miniimagenet")
SOURCES = ("real", "auto", "synthetic")
SOLVERS = ("cg", "neumann", "fixed-point")
OPTIMISERS = ("adam", "sgd")
ADAPTATIONS = ("prox", "implicit", "head")
BASELINES = {"maml": "MAML", "anil": "ANIL", "itd": "ITD-BiO"}


@dataclasses.dataclass(frozen=True)
class Method:
    """A method as the config writes it: `oagd-w10-prox`, `oagd-w10-implicit-k20`, `anil-sampled`.

    OAGD's follower is `prox`, `implicit`, or `head`, which is implicit with the head alone inside.
    `maml`, `anil` and `itd` learn from `all` tasks so far or from `sampled` ones; `fo` leaves their
    second derivatives out. Left out: w1, prox, all, and the config's number of inner steps.
    """

    kind: str
    window: int = 1
    adaptation: str = "prox"
    sampled: bool = False
    first_order: bool = False
    inner_steps: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Method":
        """The method, or a `ValueError` that says how they are written."""
        kind, *options = text.strip().lower().split("-")
        found: dict = {}
        for option in options if kind in ("oagd", *BASELINES) else ["?"]:
            match = re.fullmatch(r"([wk])([1-9]\d*)", option)
            if match and match[1] == "k":
                found["inner_steps"] = int(match[2])
            elif kind == "oagd" and match:
                found["window"] = int(match[2])
            elif kind == "oagd" and option in ADAPTATIONS:
                found["adaptation"] = option
            elif kind != "oagd" and option in ("all", "sampled"):
                found["sampled"] = option == "sampled"
            elif kind != "oagd" and option == "fo":
                found["first_order"] = True
            else:
                raise ValueError(
                    f"methods must be written like oagd-w10-prox, oagd-w10-implicit-k20, "
                    f"oagd-w10-head, maml, maml-sampled-fo, anil-all or itd-sampled, but got "
                    f"{text!r}."
                )
        if kind == "oagd" and found.get("adaptation", "prox") == "prox" and "inner_steps" in found:
            raise ValueError(f"methods with prox take one inner step, but got {text!r}.")
        return cls(kind, **found)

    def label(self) -> str:
        """Its name in the table."""
        if self.kind == "oagd":
            name = f"OAGD; w={self.window}; adaptation={self.adaptation}"
        else:
            order = "; order=first" if self.first_order else ""
            tasks = "sampled" if self.sampled else "all"
            name = f"{BASELINES[self.kind]}; tasks={tasks}{order}"
        return name if self.inner_steps is None else f"{name}; K={self.inner_steps}"

    def short(self) -> str:
        """Its name in figures and tables for people."""
        steps = [] if self.inner_steps is None else [f"K={self.inner_steps}"]
        if self.kind == "oagd":
            return f"OAGD ({', '.join([f'w={self.window}', self.adaptation, *steps])})"
        order = ["first order"] if self.first_order else []
        tasks = "sampled" if self.sampled else "all"
        return f"{BASELINES[self.kind]} ({', '.join([tasks, *order, *steps])})"


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that a run depends on. The step sizes and K are those of the paper's appendix."""

    data: str = "fc100"
    source: str = "real"
    """`real`, `synthetic` (a generated stand-in), or `auto`: real where the files are at hand."""
    folder: str = ""
    """Where the images and tables of miniImageNet are."""
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
    rounds: int = 500
    seeds: int = 5
    maml_rounds: int = 500
    maml_seeds: int = 5
    """MAML may get fewer rounds and seeds: a task costs it twenty times what it costs ANIL."""
    ways: int = 5
    shots: int = 5
    queries: int = 5
    filters: int = 64
    blocks: int = 4
    inner_step_size: float = 0.1
    outer_step_size: float = 0.001
    outer_optimiser: str = "adam"
    inner_steps: int = 20
    sampled_tasks: int = 32
    decay: float = 1.0
    normalise: str = "seen"
    proximity: float = 0.1
    """lambda of the implicit followers, which the paper does not give. For the whole network, of
    0.1, 0.5, 2 and 5 the one whose hypergradients were nearest to those through the steps, on three
    training tasks; for the head 0.1 and 0.01 did alike on a seed of their own."""
    solver: str = "cg"
    solver_steps: int = 5
    chunk: int = 1
    evaluate_every: int = 50
    test_tasks: int = 100
    train_tasks: int = 20

    def __post_init__(self) -> None:
        sizes = (
            "rounds",
            "seeds",
            "maml_rounds",
            "maml_seeds",
            "ways",
            "shots",
            "queries",
            "filters",
            "blocks",
        )
        steps = ("inner_steps", "sampled_tasks", "solver_steps", "chunk", "evaluate_every")
        check_counts(self, (*sizes, *steps, "test_tasks", "train_tasks"))
        for name in ("inner_step_size", "outer_step_size", "proximity"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be a number > 0, but got {getattr(self, name)}.")
        if not 0 < self.decay <= 1:
            raise ValueError(f"decay must be in (0, 1], but got {self.decay}.")
        choices = {
            "data": DATA,
            "source": SOURCES,
            "solver": SOLVERS,
            "outer_optimiser": OPTIMISERS,
            "normalise": ("full", "seen"),
        }
        check_choices(self, choices)
        if not self.methods:
            raise ValueError("methods must not be empty.")
        parsed = self.parsed_methods()
        if len(set(parsed)) < len(parsed):
            raise ValueError(f"methods must not name one twice, but got {self.methods}.")

    def parsed_methods(self) -> list[Method]:
        """The methods, in the order of the config."""
        return [Method.parse(text) for text in self.methods]

    def seeds_of(self, method: Method) -> int:
        """How many seeds a method runs on."""
        return min(self.seeds, self.maml_seeds if method.kind == "maml" else self.seeds)

    def rounds_of(self, method: Method) -> int:
        """How many rounds a method plays."""
        return min(self.rounds, self.maml_rounds if method.kind == "maml" else self.rounds)

    def steps_of(self, method: Method) -> int:
        """K: one for the closed form."""
        if method.kind == "oagd" and method.adaptation == "prox":
            return 1
        return method.inner_steps or self.inner_steps
