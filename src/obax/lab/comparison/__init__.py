"""All online bilevel methods on the same streams, with equal oracle calls."""

import functools

from ..framework.experiment import Experiment

experiment = functools.partial(Experiment.of, __name__)
"""Return the experiment of that name."""
