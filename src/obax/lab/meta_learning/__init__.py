"""Section 4.3: online meta-learning against MAML, ANIL and ITD-BiO, and its sensitivity."""

import functools

from ..framework.experiment import Experiment

experiment = functools.partial(Experiment.of, __name__)
"""Return the experiment of that name."""
