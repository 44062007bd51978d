"""Section 4.1: online hyperparameter learning for dynamic regression."""

from ..framework.experiment import Experiment, experiment_of
from .config import ABOUT, PRESETS


def experiment(name: str) -> Experiment:
    """Return the experiment."""
    return experiment_of(__name__, PRESETS, name=name, **ABOUT)
