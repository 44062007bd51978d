"""Section 4.1: online hyperparameter learning for dynamic regression."""

from ..kit.experiment import Experiment, later
from .config import COLUMNS, PAPER, QUICK, Config as Config

DYNAMIC_REGRESSION = Experiment(
    name="dynamic-regression",
    summary="Section 4.1: does the regret fall with the window, and is x close to offline tuning?",
    data="none, generated",
    presets={"quick": QUICK, "paper": PAPER},
    durations={"quick": "about a minute", "paper": "under 15 minutes"},
    columns=COLUMNS,
    parts=later(f"{__name__}.work", "parts"),
    findings=later(f"{__name__}.findings", "findings"),
    headline=later(f"{__name__}.findings", "headline"),
)
