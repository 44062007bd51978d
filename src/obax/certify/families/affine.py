r"""Problems whose follower answers with an affine map; four of the five settings use them.

$$ f_t = \tfrac12 (x - p)' Q (x - p) + \tfrac12 (y - q)' R (y - q) + s' \log\cosh(y - q)
         + c'x + d'y, \qquad
   g_t = \tfrac12 (y - A x - b)' H (y - A x - b), $$

with diagonal Q and R and non-negative Q, R, s, all of them of round t. Then $y^*_t(x) = A x + b$,
and every constant has a closed form. With $\rho = \max_{x \in X} |x|$:

| constant | value (the largest, or the least, over the rounds) |
|---|---|
| $\ell_{f,0}$ | $\|[Q; RA]\| \rho + |(c - Qp, d + R(b - q))| + |s|$, at $y = y^*_t(x)$ |
| $\ell_{f,1}$ | $\max(Q, R + s)$ |
| $\ell_{g,1}$ | $\max(\|H\|, \|HA\|)$, the blocks that the proofs use (docs/theory.md) |
| $\mu_g$, $\mu_f$ | least eigenvalues of $H$ and of $Q + A'RA$ |
| $\ell_{g,2}$ | 0 |

One program and one shape serve all families, so that they are compiled once.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..._support.trees import PyTree
from ...domain import Ball, Box
from ...problem import Problem
from ...problems import Instance
from ...theory import Constants
from .ingredients import Numbers, ball_minimiser, spectral

Coefficient = Numbers | float
OUTER_DIM, INNER_DIM = 2, 3
# Linear losses have ell_f1 = 0, and Constants wants a positive bound.
LEAST_SMOOTHNESS = 1e-6


# The shape of each coefficient in a round. scale = 0 takes a round out of a static comparator
# without changing the shape of the rounds.
SHAPES = {
    "A": (INNER_DIM, OUTER_DIM), "H": (INNER_DIM, INNER_DIM), "scale": (),
    "Q": (OUTER_DIM,), "p": (OUTER_DIM,), "c": (OUTER_DIM,),
    "R": (INNER_DIM,), "q": (INNER_DIM,), "d": (INNER_DIM,), "s": (INNER_DIM,), "b": (INNER_DIM,),
}  # fmt: skip


def affine(
    domain: Ball | Box,
    horizon: int,
    *,
    start: Coefficient = 0.0,
    optima: Numbers | None = None,
    start_gap: float = 0.0,
    **coefficients: Coefficient,
) -> Instance:
    """Return the instance with these coefficients, each fixed or with a leading axis for the
    rounds. Those not given are zero, but for H, which is the identity.

    On a ball the losses must be strongly convex, and the x*_t are computed. On a box `optima` are
    the x*_t where they are planted; without any, the problem has no `outer_argmin` (the static
    settings need none). The leader starts at `start`, the follower at a distance of `start_gap`
    from y*_1(x_1).
    """
    assert coefficients.keys() <= SHAPES.keys()
    given: dict[str, Coefficient] = {"H": np.eye(INNER_DIM), "scale": 1.0, **coefficients}
    data = {
        name: np.asarray(np.broadcast_to(given.get(name, 0.0), (horizon, *shape)), np.float64)
        for name, shape in SHAPES.items()
    }
    hessians = data["Q"][:, :, None] * np.eye(OUTER_DIM)
    hessians = hessians + np.einsum("tia,ti,tib->tab", data["A"], data["R"], data["A"])
    if isinstance(domain, Ball):
        # phi_t has the gradient S x - slope.
        offsets = data["R"] * (data["q"] - data["b"]) - data["d"]
        slopes = data["Q"] * data["p"] - data["c"] + np.einsum("tia,ti->ta", data["A"], offsets)
        optima = ball_minimiser(hessians, slopes, float(domain.radius))
    x = np.broadcast_to(np.asarray(start, np.float64), OUTER_DIM)
    # A fixed direction in which the follower starts off its answer.
    y = data["A"][0] @ x + data["b"][0] + start_gap * np.eye(INNER_DIM)[0]
    constants = _constants(data, hessians, domain, start_gap)
    if optima is not None:
        data["optimum"] = optima
    problem = Problem(
        outer=_outer,
        inner=_inner,
        domain=domain,
        inner_argmin=_inner_argmin,
        outer_argmin=None if optima is None else _outer_argmin,
    )
    rounds = {name: jnp.asarray(value) for name, value in data.items()}
    return Instance(problem, rounds, jnp.asarray(x), jnp.asarray(y), constants)


def _constants(
    data: dict[str, Numbers], hessians: Numbers, domain: Ball | Box, start_gap: float
) -> Constants:
    if isinstance(domain, Ball):
        reach, mu_f = float(domain.radius), float(np.linalg.eigvalsh(hessians).min())
    else:
        corner = np.maximum(np.abs(np.asarray(domain.lower)), np.abs(np.asarray(domain.upper)))
        reach, mu_f = float(np.linalg.norm(corner)), None
    Q = data["Q"][:, :, None] * np.eye(OUTER_DIM)
    slope = np.concatenate([Q, data["R"][:, :, None] * data["A"]], axis=1)
    offset = np.concatenate(
        [data["c"] - data["Q"] * data["p"], data["d"] + data["R"] * (data["b"] - data["q"])], axis=1
    )
    steepest = spectral(slope) * reach + np.linalg.norm(offset, axis=1)
    blocks = np.maximum(spectral(data["H"]), spectral(data["H"] @ data["A"]))
    return Constants(
        ell_f0=float((steepest + np.linalg.norm(data["s"], axis=1)).max()),
        ell_f1=max(LEAST_SMOOTHNESS, data["Q"].max(), (data["R"] + data["s"]).max()),
        ell_g1=float(blocks.max()),
        ell_g2=0.0,
        mu_g=float(np.linalg.eigvalsh(data["H"]).min()),
        mu_f=mu_f,
        D=float(domain.diameter(jnp.zeros(OUTER_DIM))),
        # Rounding of y_1 - y*_1(x_1), which is start_gap in exact arithmetic.
        D_prime=start_gap * (1.0 + 1e-12) + 1e-12 if start_gap else 0.0,
    )


def _outer(x: Array, y: Array, round: PyTree) -> Array:
    gap = y - round["q"]
    quadratic = jnp.sum(round["Q"] * (x - round["p"]) ** 2) + jnp.sum(round["R"] * gap**2)
    # |gap| - log 2 + log(1 + exp(-2 |gap|)) would be safe for huge gaps; here they are small.
    bent = jnp.sum(round["s"] * jnp.log(jnp.cosh(gap)))
    linear = jnp.vdot(round["c"], x) + jnp.vdot(round["d"], y)
    return round["scale"] * (0.5 * quadratic + bent + linear)


def _inner(x: Array, y: Array, round: PyTree) -> Array:
    gap = y - _inner_argmin(x, round)
    return 0.5 * jnp.vdot(gap, round["H"] @ gap)


def _inner_argmin(x: Array, round: PyTree) -> Array:
    return round["A"] @ x + round["b"]


def _outer_argmin(round: PyTree) -> Array:
    return round["optimum"]
