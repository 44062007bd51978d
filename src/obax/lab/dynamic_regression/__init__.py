"""Section 4.1: online hyperparameter learning for dynamic regression."""

import functools

from ..framework.experiment import Experiment

experiment = functools.partial(Experiment.of, __name__)
"""Return the experiment of that name."""
