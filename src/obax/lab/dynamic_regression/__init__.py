"""Section 4.1: online hyperparameter learning for dynamic regression."""

from ..framework.experiment import Experiment
from .config import COLUMNS, Config


def experiment(name: str) -> Experiment:
    """Return the experiment of that name."""
    return Experiment.of(__name__, name, Config, COLUMNS)
