"""Section 4.1: online hyperparameter learning for dynamic regression."""

from ..framework.experiment import Experiment
from .config import ABOUT, PRESETS


def experiment(name: str) -> Experiment:
    """Return the experiment."""
    return Experiment.of(__name__, name=name, presets=PRESETS, **ABOUT)
