"""A problem with its rounds, where to start, and what is known about it."""

import equinox as eqx
import jax

from .._support.trees import PyTree
from ..problem import Problem
from ..theory import Constants


class Instance(eqx.Module):
    """A ready-made stream of bilevel problems.

    `rounds` is stacked on axis 0; `outer_var` and `inner_var` are x_1 and y_1; `constants` are
    exact on the domain, or `None` where they are not known.
    """

    problem: Problem
    rounds: PyTree
    outer_var: PyTree
    inner_var: PyTree
    constants: Constants | None = eqx.field(static=True, default=None)

    @property
    def example_round(self) -> PyTree:
        """The shapes of a round, for `algorithm.init`."""
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), self.rounds
        )

    @property
    def horizon(self) -> int:
        """T, the number of rounds."""
        return len(jax.tree.leaves(self.rounds)[0])
