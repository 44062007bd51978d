"""All online bilevel methods on the same streams, with equal oracle calls."""

from ..framework.experiment import Experiment, experiment_of
from .config import ABOUT, PRESETS


def experiment(name: str) -> Experiment:
    """Return the experiment."""
    return experiment_of(__name__, PRESETS, name=name, **ABOUT)
