"""All online bilevel methods on the same streams: equal oracle calls, and equal seconds."""

from ..kit.experiment import Experiment, later
from .config import PAPER, QUICK, Config as Config

COMPARE = Experiment(
    name="compare",
    summary="Which online bilevel method when: equal oracle calls, and equal wall-clock.",
    data="generated; Adult for one of the problems, which is left out without it",
    presets={"quick": QUICK, "paper": PAPER},
    durations={"quick": "about 2 minutes", "paper": "under 15 minutes"},
    columns={"problem": str, "budget": str, "alpha": float, "beta": float},
    parts=later(f"{__name__}.work", "parts"),
    findings=later(f"{__name__}.findings", "findings"),
    headline=later(f"{__name__}.findings", "headline"),
    files=("adult.data.gz", "adult.test.gz"),
)
