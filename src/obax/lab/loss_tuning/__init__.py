"""Section 4.2: online parametric loss tuning for imbalanced data, and its sensitivity."""

import functools

from ..framework.experiment import Experiment

experiment = functools.partial(Experiment.of, __name__)
"""Return the experiment of that name."""
