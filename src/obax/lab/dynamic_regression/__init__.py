"""Section 4.1: online hyperparameter learning for dynamic regression."""

from ..kit.experiment import Experiment
from .config import PAPER, QUICK, Config as Config
from .findings import findings, headline
from .parts import parts

DYNAMIC_REGRESSION = Experiment(
    name="dynamic-regression",
    summary="Section 4.1: does the regret fall with the window, and is x close to offline tuning?",
    data="none, generated",
    presets={"quick": QUICK, "paper": PAPER},
    durations={"quick": "under a minute", "paper": "under 15 minutes"},
    columns={"setting": str},
    parts=parts,
    findings=findings,
    headline=headline,
)
