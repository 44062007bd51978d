"""All online bilevel methods on the same streams, with equal oracle calls."""

from ..framework.experiment import Experiment
from .config import ABOUT, PRESETS


def experiment(name: str) -> Experiment:
    """Return the experiment."""
    return Experiment.of(__name__, name=name, presets=PRESETS, **ABOUT)
