"""Section 4.2: online parametric loss tuning for imbalanced data, and its sensitivity."""

from ..framework.experiment import Experiment, experiment_of
from .config import COLUMNS, about, presets

HEADLINE = ("obax.lab.framework.learning", "accuracy_headline")


def experiment(name: str) -> Experiment:
    """Return the experiment of that name."""
    return experiment_of(
        __name__, presets(name), name=name, columns=COLUMNS, headline=HEADLINE, **about(name)
    )
