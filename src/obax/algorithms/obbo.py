"""OBBO, online Bregman bilevel optimiser.

Bohne, Rosenberg, Kazantsev, Polak: *Online Nonconvex Bilevel Optimization with Bregman
Divergences*, arXiv 2409.10470 (2024). The rule below is our reading of it. In round t, with
H = grad^2_yy g_t and J = grad^2_xy g_t at (x_t, y_{t+1}):

    y_{t+1} : K_t steps of  z - beta_t grad_z g_t(x_t, z)  from y_t
    h_t     = grad_x f_t(x_t, y_{t+1}) - J v,    H v = grad_y f_t(x_t, y_{t+1})
    q_t     = (1/W) sum_{i<w} u_i h_{t-i}        stored terms; w = 1 unless asked for
    x_{t+1} = argmin over x in X of  <q_t, x> + (1/alpha_t) D_phi(x, x_t)

| `geometry` | phi | the step |
|---|---|---|
| `"euclidean"` | sum x_i^2 / 2 | projection on X of x_t - alpha_t q_t |
| `"adaptive"` | sum D_i x_i^2 / 2 | projection in the metric D of x_t - alpha_t q_t / D |
| `"entropy"` | sum x_i log x_i, X a simplex | x_t exp(-alpha_t q_t), scaled back to the simplex |

with D_i = sqrt(damping + sum over s <= t of q_{s,i}^2). The paper's abstract gives the window
average to the stochastic variant, SOBBO, to reduce the variance; OBBO itself is w = 1.

| symbol | name | symbol | name |
|---|---|---|---|
| x_t, y_t | `outer_var`, `inner_var` | w, u_i | `window` |
| alpha_t, beta_t | `outer_step_size`, `inner_step_size` | K_t | `inner_steps` |
| h_{t-i} | `state.past` | sum of q_{s,i}^2 | `state.squares` |
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._support import trees, validation
from .._support.trees import PyTree
from ..hypergradient import CG, Hypergradient
from ..past import RingBuffer
from ..window import Window
from .arguments import (
    any_estimator,
    any_window,
    checked,
    number_of_steps,
    positive,
    step_size,
)
from .base import Algorithm, State
from .descent import Count, Number, Steps
from .memory import averaged, no_past
from .mirror import adaptive_step, check_geometry, entropy_step
from .record import Leader, Move


def _known(geometry: str, name: str) -> str:
    return validation.one_of(geometry, ("euclidean", "adaptive", "entropy"), name)


class OBBOState(State):
    """The pair (x_t, y_t), the last w - 1 hypergradients, the metric, and the estimator's carry."""

    past: RingBuffer | None
    squares: PyTree


class OBBO(Algorithm):
    """Online Bregman bilevel optimiser: a mirror step along the mean of stored hypergradients.

    **Arguments:**

    - `problem`: with a follower.
    - `outer_step_size`, `inner_step_size`, `inner_steps`: as in `obax.OAGD`.
    - `window`: its size w and weights; by default w = 1.
    - `hypergradient`: how v is found; by default CG.
    - `geometry`: `"euclidean"`; `"adaptive"`, a step for each coordinate as in AdaGrad, on any
      domain of obax; `"entropy"`, a multiplicative step on a `Simplex`, from an x_1 > 0. An entry
      that underflows to zero stays there.
    - `damping`: of the adaptive metric, > 0.

    >>> import jax.numpy as jnp
    >>> import obax
    >>> problem = obax.Problem(
    ...     outer=lambda x, y, round: jnp.sum(round * y),
    ...     inner=lambda x, y, round: 0.5 * jnp.sum((y - x) ** 2),
    ...     domain=obax.Simplex(),
    ... )
    >>> algorithm = obax.OBBO(problem, 1.0, 0.5, 2, geometry="entropy")
    >>> state = algorithm.init(jnp.array([0.5, 0.5]), jnp.zeros(2), jnp.zeros(2))
    >>> for losses in ([0.0, 1.0], [0.0, 1.0], [1.0, 0.0]):
    ...     state, info = algorithm.step(state, jnp.asarray(losses))
    ...     print("{:.3f} {:.3f}".format(*state.outer_var))
    0.731 0.269
    0.881 0.119
    0.731 0.269
    """

    outer_step_size: Number = step_size("outer")
    inner_step_size: Number = step_size("inner")
    inner_steps: Count = number_of_steps()
    window: Window = any_window("OBBO", replays=False)
    hypergradient: Hypergradient = any_estimator(CG(), "OBBO")
    geometry: str = checked(_known, "geometry", "euclidean", static=True, kw_only=True)
    damping: float | Array = positive("damping", 1e-8, kw_only=True)

    def __check_init__(self) -> None:
        check_geometry(self.geometry, self.problem.domain)

    def remember(self, start: State) -> OBBOState:
        x = start.outer_var
        if self.geometry == "entropy":
            _check_inside(x)
        squares = jax.tree.map(jnp.zeros_like, x) if self.geometry == "adaptive" else None
        return OBBOState(**vars(start), past=no_past(self.window, x), squares=squares)

    def update(self, state: OBBOState, round: PyTree) -> Move:
        steps = Steps(self.inner_steps).at(state.t)
        before, after = self.follow(state, round, steps)
        estimate = self.estimate(self.hypergradient, state, after, round)
        h = estimate.value
        q, terms = averaged(self.window, state.past, h, state.t)
        x, squares = self._step(state.outer_var, q, state.squares, self.outer.rate(state.t))
        move = Move(Leader(x), before, after, estimate, steps + 1, direction=q)
        return move._replace(memory={"squares": squares}, stored={"past": h}, terms=terms)

    def _step(
        self, x: PyTree, direction: PyTree, squares: PyTree, rate: Array
    ) -> tuple[PyTree, PyTree]:
        """argmin over X of <q, x> + (1/alpha) D_phi(x, x_t), and what the metric remembers."""
        domain = self.problem.domain
        if self.geometry == "entropy":
            return entropy_step(domain, x, direction, rate), None
        if self.geometry == "euclidean":
            return domain.project(trees.scaled_add(x, -rate, direction)), None
        squares = jax.tree.map(lambda total, q: total + q**2, squares, direction)
        metric = jax.tree.map(
            lambda total: jnp.sqrt(total + jnp.asarray(self.damping, total.dtype)), squares
        )
        return adaptive_step(domain, x, direction, rate, metric), squares


def _check_inside(outer_var: PyTree) -> None:
    """Raise a `ValueError` if a multiplicative step could not move every entry."""
    for leaf in jax.tree.leaves(outer_var):
        if trees.is_concrete(leaf) and not np.all(np.asarray(leaf) > 0):
            raise ValueError(
                f"outer_var must be > 0 everywhere with geometry='entropy', whose steps multiply "
                f"it, but is {outer_var}; start inside the simplex."
            )
