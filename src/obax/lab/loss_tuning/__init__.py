"""Section 4.2: online parametric loss tuning for imbalanced data, and its sensitivity."""

from ..framework.experiment import Experiment
from .config import COLUMNS, Config


def experiment(name: str) -> Experiment:
    """Return the experiment of that name."""
    return Experiment.of(__name__, name, Config, COLUMNS)
