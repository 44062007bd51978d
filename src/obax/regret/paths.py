r"""How hard a sequence was: path lengths and variations, as cumulative curves.

With $\phi_t(x) = f_t(x, y^*_t(x))$, for t = 1..T (the first entry of a path length is 0),

$$ P_p = \sum_{s=2}^t |x^*_{s-1} - x^*_s|^p, \quad
   Y_p = \sum_{s=2}^t |y^*_{s-1}(x^*_{s-1}) - y^*_s(x^*_s)|^p, \quad S_p = P_p + Y_p, $$
$$ \bar Y_p = \sum_{s=2}^t |y^*_{s-1}(x^*) - y^*_s(x^*)|^p, \quad
   H_p = \sum_{s=2}^t \sup_{x \in X} |y^*_{s-1}(x) - y^*_s(x)|^p. $$

Equations (5) and (6), Section 1.2; without a follower all but P are zero.
"""

from typing import Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._support.trees import PyTree
from ..problem import Problem
from ..reduced import compiled, norms
from . import inputs
from .comparators import optima
from .inputs import Search
from .results import Comparator
from .supremum import SAMPLES, inner_variation


class PathLengths(eqx.Module):
    """Cumulative path lengths of one order.

    `P`, `Y`, `S`, `Y_bar`, `H` have one entry for each round; `totals` are the last ones. `H_exact`
    says whether H is exact or a lower estimate; H is `None` if it was not asked for. `comparators`
    and `static` are the solutions they were measured on, for use elsewhere.
    """

    P: Float[Array, " T"]
    Y: Float[Array, " T"]
    S: Float[Array, " T"]
    Y_bar: Float[Array, " T"]
    H: Float[Array, " T"] | None
    comparators: Comparator
    static: Comparator
    order: float = eqx.field(static=True)
    H_exact: bool = eqx.field(static=True)

    @property
    def totals(self) -> dict[str, float]:
        """The path lengths of the whole horizon by name."""
        named = {"P": self.P, "Y": self.Y, "S": self.S, "Y_bar": self.Y_bar, "H": self.H}
        return {name: float(curve[-1]) for name, curve in named.items() if curve is not None}


def path_lengths(
    problem: Problem,
    rounds: PyTree,
    order: float = 2,
    *,
    with_H: bool = True,
    samples: int = SAMPLES,
    comparators: Comparator | None = None,
    static: Comparator | None = None,
    **search: Unpack[Search],
) -> PathLengths:
    """P, Y, S, Y_bar and H of order p.

    H has a supremum over the domain X. It is exact (`H_exact`) where every y*_t is *proved* affine
    in x and either all of them have the same slope or X is a simplex, a box with at most 4096
    corners, or an unbounded set (then it may be infinite); otherwise X is searched at `samples`
    random points, and H is a lower estimate. `with_H=False` leaves it out.

    `comparators` and `static` take what `outer_solutions` and `static_solution` returned, if that
    is known already; other arguments as for `outer_solutions`.

    >>> problem = Problem(
    ...     outer=lambda x, y, r: (y - 2 * r) ** 2 + (x - r) ** 2,
    ...     inner=lambda x, y, r: (y - x - r) ** 2,
    ... )
    >>> start = jnp.zeros(())
    >>> targets = jnp.array([1.0, 3.0, 2.0])
    >>> lengths = path_lengths(problem, targets, order=1, outer_start=start, inner_start=start)
    >>> print(lengths.P, lengths.Y, lengths.H, lengths.H_exact)
    [0. 2. 3.] [0. 4. 6.] [0. 2. 3.] True
    """
    order = inputs.power(order)
    given = inputs.setup(problem, rounds, **search)
    comparators, static = optima(given, comparators, static)
    H, exact = None, False
    if with_H:
        change, exact = inner_variation(given, comparators, samples)
        H = running(change, order)
    P = _path(comparators.outer_var, order)
    Y, Y_bar = jnp.zeros_like(P), jnp.zeros_like(P)
    if problem.inner is not None:
        Y, Y_bar = _path(comparators.inner_var, order), _path(static.inner_var, order)
    return PathLengths(P, Y, P + Y, Y_bar, H, comparators, static, order, exact)


@compiled
def _path(points: PyTree, order: float) -> Float[Array, " T"]:
    steps = jax.tree.map(lambda leaf: leaf[1:] - leaf[:-1], points)
    return running(norms(steps), order)


def running(steps: Float[Array, " T-1"], order: float) -> Float[Array, " T"]:
    """Sums of powers of what changed from round to round; nothing before the second."""
    return jnp.cumsum(jnp.concatenate([jnp.zeros(1, steps.dtype), steps**order]))
