"""Adaptive step sizes, which algorithms take where `outer_step_size` or `inner_step_size` is left
out.

The follower's step follows from the curvature of its loss (`CurvatureStep`), that of the leader
from how far it has come and from the hypergradients so far (`dowg`, an optax transformation). Both
are invariant to the scale of the losses. `normalised` is the step of the copies of `obax.Race`.
"""

from .curvature import CurvatureStep as CurvatureStep
from .leader import NormalisedStep as NormalisedStep, dowg as dowg, normalised as normalised
