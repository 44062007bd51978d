"""Section 4.3: online meta-learning against MAML, ANIL and ITD-BiO, and its sensitivity."""

from ..framework.experiment import Experiment
from .config import COLUMNS, Config


def experiment(name: str) -> Experiment:
    """Return the experiment of that name."""
    return Experiment.of(__name__, name, Config, COLUMNS)
