"""OBBO, online Bregman bilevel optimiser.

Bohne, Rosenberg, Kazantsev, Polak: *Online Nonconvex Bilevel Optimization with Bregman
Divergences*, arXiv 2409.10470 (2024). The rule below is our reading of it. In round t, with
H = grad^2_yy g_t and J = grad^2_xy g_t at (x_t, y_{t+1}):

    y_{t+1} : K_t steps of  z - beta_t grad_z g_t(x_t, z)  from y_t
    h_t     = grad_x f_t(x_t, y_{t+1}) - J v,    H v = grad_y f_t(x_t, y_{t+1})
    q_t     = (1/W) sum_{i<w} u_i h_{t-i}        stored terms; all u_i = 1 in the paper
    x_{t+1} = argmin over x in X of  <q_t, x> + (1/alpha_t) D_phi(x, x_t)

| `geometry` | phi | the step |
|---|---|---|
| `"euclidean"` | sum x_i^2 / 2 | projection on X of x_t - alpha_t q_t |
| `"adaptive"` | sum D_i x_i^2 / 2 | projection in the metric D of x_t - alpha_t q_t / D |
| `"entropy"` | sum x_i log x_i, X a simplex | x_t exp(-alpha_t q_t), scaled back to the simplex |

with D_i = sqrt(damping + sum over s <= t of q_{s,i}^2).

| symbol | name | symbol | name |
|---|---|---|---|
| x_t, y_t | `outer_var`, `inner_var` | w, u_i | `window` |
| alpha_t, beta_t | `outer_step_size`, `inner_step_size` | K_t | `inner_steps` |
| h_{t-i} | `state.past` | sum of q_{s,i}^2 | `state.squares` |
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._support import trees, validation
from .._support.trees import PyTree
from ..hypergradient import CG, Hypergradient
from ..problem import Problem
from ..rounds import RoundSpec
from ..window import Window
from .base import Algorithm, State
from .descent import Descent, Number, Steps, check_steps, checked_steps, steps_at
from .follower import Follower, learn, start_of
from .mirror import GEOMETRIES, adaptive_step, check_geometry, entropy_step
from .oracles import averaged, estimate_at, no_past, pointwise, stored_window, with_follower
from .record import Info, record


class OBBOState(State):
    """The pair (x_t, y_t), the last w - 1 hypergradients, the metric, and the estimator's carry."""

    buffers: PyTree
    past: PyTree
    squares: PyTree
    carry: PyTree


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

    >>> import obax
    >>> problem = Problem(
    ...     outer=lambda x, y, round: jnp.sum(round * y),
    ...     inner=lambda x, y, round: 0.5 * jnp.sum((y - x) ** 2),
    ...     domain=obax.Simplex(),
    ... )
    >>> algorithm = OBBO(problem, 1.0, 0.5, 2, geometry="entropy")
    >>> state = algorithm.init(jnp.array([0.5, 0.5]), jnp.zeros(2), jnp.zeros(2))
    >>> for losses in ([0.0, 1.0], [0.0, 1.0], [1.0, 0.0]):
    ...     state, info = algorithm.step(state, jnp.asarray(losses))
    ...     print(jnp.round(state.outer_var, 3))
    [0.731 0.269]
    [0.881 0.119]
    [0.731 0.269]
    """

    problem: Problem
    outer: Descent
    inner: Descent
    inner_steps: Steps
    window: Window
    hypergradient: Hypergradient
    damping: Array
    geometry: str = eqx.field(static=True)

    def __init__(
        self,
        problem: Problem,
        outer_step_size: Number,
        inner_step_size: Number,
        inner_steps: Steps = 1,
        window: Window | None = None,
        hypergradient: Hypergradient | None = None,
        *,
        geometry: str = "euclidean",
        damping: float | Array = 1e-8,
    ):
        self.problem = with_follower(problem, "OBBO")
        self.outer = Descent(outer_step_size, None, "outer")
        self.inner = Descent(inner_step_size, None, "inner")
        self.outer.check("outer_step_size")
        self.inner.check("inner_step_size")
        self.inner_steps = checked_steps(inner_steps)
        check_steps(self.inner_steps)
        self.window = stored_window(window, "OBBO")
        self.hypergradient = pointwise(CG() if hypergradient is None else hypergradient, "OBBO")
        self.damping = validation.positive_number(damping, "damping")
        self.geometry = validation.one_of(geometry, GEOMETRIES, "geometry")
        check_geometry(geometry, problem.domain)

    def fresh_state(
        self, outer_var: PyTree, inner_var: PyTree, buffers: PyTree, round_spec: RoundSpec
    ) -> OBBOState:
        if self.geometry == "entropy" and trees.is_concrete(outer_var):
            for leaf in jax.tree.leaves(outer_var):
                if not np.all(np.asarray(leaf) > 0):
                    raise ValueError(
                        f"outer_var must be > 0 everywhere with geometry='entropy', whose steps "
                        f"multiply it, but is {outer_var}; start inside the simplex."
                    )
        adaptive = self.geometry == "adaptive"
        return OBBOState(
            t=jnp.asarray(1, jnp.int32),
            outer_var=outer_var,
            inner_var=inner_var,
            round_spec=round_spec,
            buffers=buffers,
            past=no_past(self.window, outer_var),
            squares=jax.tree.map(jnp.zeros_like, outer_var) if adaptive else None,
            carry=self.hypergradient.init(inner_var),
        )

    def update(self, state: OBBOState, round: PyTree) -> tuple[OBBOState, Info]:
        t, x = state.t, state.outer_var
        before = start_of(self.problem, x, Follower(state.inner_var, (), state.buffers), self.inner)
        steps = steps_at(self.inner_steps, t)
        after = learn(self.problem, x, before, self.inner, steps, t, round, Window())
        estimate = estimate_at(self.problem, self.hypergradient, x, after, round, state.carry)
        direction, past = averaged(self.window, state.past, estimate.value, t)
        moved, squares = self._step(x, direction, state.squares, self.outer.rate(t))
        new = OBBOState(
            t=t + 1,
            outer_var=moved,
            inner_var=after.inner_var,
            round_spec=state.round_spec,
            buffers=after.buffers,
            past=past,
            squares=squares,
            carry=estimate.carry,
        )
        info = record(
            self.problem,
            t,
            x,
            before,
            after,
            round,
            hypergradient=direction,
            residual=estimate.residual,
            gradients=steps + 1,
            hvps=estimate.hvps,
            cross_products=estimate.cross_products,
        )
        return new, info

    def _step(
        self, x: PyTree, direction: PyTree, squares: PyTree, rate: Array
    ) -> tuple[PyTree, PyTree]:
        """argmin over X of <q, x> + (1/alpha) D_phi(x, x_t), and what the metric remembers."""
        domain: Any = self.problem.domain
        if self.geometry == "entropy":
            return entropy_step(domain, x, direction, rate), None
        if self.geometry == "euclidean":
            return domain.project(trees.scaled_add(x, -rate, direction)), None
        squares = jax.tree.map(lambda total, q: total + q**2, squares, direction)
        metric = jax.tree.map(
            lambda total: jnp.sqrt(total + self.damping.astype(total.dtype)), squares
        )
        return adaptive_step(domain, x, direction, rate, metric), squares
