"""A hand-written numba kernel of what `obax.run` does with OAGD on dynamic regression, d1 = 1.

The same mathematics, round for round: K inner steps, the window with own or current curvature, CG
with obax's stopping rule, projection, the guard, and the record. Derivatives are written out,

    grad_y g = (a^T y - b) a + c y,   H = a a^T + c I,   J v = c y^T v,   c = 2 exp(x),

everything is float32, and rounds are read in place. There is no fast-math: it would assume away the
NaN that the guard looks for.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import numba as nb
import numpy as np

from obax.problems import Instance

from .workload import CG_STEPS, INNER_STEP_SIZE, INNER_STEPS, OUTER_STEP_SIZE

f4 = np.float32
ZERO, HALF, ONE, TWO = f4(0), f4(0.5), f4(1), f4(2)
EPS, TINY = np.finfo(f4).eps, np.finfo(f4).tiny

FLOATS = (
    "outer_var",
    "outer_value",
    "played_value",
    "inner_value",
    "hypergradient_norm",
    "inner_gradient_norm",
    "solver_residual",
)
INTEGERS = ("t", "accepted", "gradients", "hvps", "cross_products")


@nb.njit(inline="always", error_model="numpy")
def dot(a, b, d):
    total = ZERO
    for j in range(d):
        total += a[j] * b[j]
    return total


@nb.njit(inline="always", error_model="numpy")
def finite(a, d):
    ok = True
    for j in range(d):
        ok &= math.isfinite(a[j])
    return ok


@nb.njit(inline="always", error_model="numpy")
def conjugate_gradients(a, c, target, v, r, p, hp, d, max_steps, tolerance):
    """v with (a a^T + c I) v = target, until |r| <= tolerance |target| or a direction without
    positive curvature. Returns the number of steps."""
    for j in range(d):
        v[j], r[j], p[j] = ZERO, target[j], target[j]
    size = dot(r, r, d)
    enough = (tolerance * math.sqrt(size)) ** 2
    step, go = 0, True
    while go and step < max_steps and size > enough:
        along = dot(a, p, d)
        for j in range(d):
            hp[j] = along * a[j] + c * p[j]
        curvature = dot(p, hp, d)
        go = curvature > ZERO
        length = size / curvature if go else ZERO
        for j in range(d):
            v[j] += length * p[j]
            r[j] -= length * hp[j]
        before, size = size, dot(r, r, d)
        ratio = size / before
        for j in range(d):
            p[j] = r[j] + ratio * p[j]
        step += 1
    return step


@nb.njit(inline="always", error_model="numpy")
def solve(a, c, z, target, v, r, p, hp, d, max_steps, tolerance):
    """One linear system: the cross product J v, the relative residual, the number of steps."""
    steps = conjugate_gradients(a, c, target, v, r, p, hp, d, max_steps, tolerance)
    along = dot(a, v, d)
    error = ZERO
    for j in range(d):
        error += (along * a[j] + c * v[j] - target[j]) ** 2
    residual = math.sqrt(error) / max(math.sqrt(dot(target, target, d)), TINY)
    return c * dot(z, v, d), residual, steps


@functools.cache
def build(*, recorded: bool, dimension: int = 0) -> Callable:
    """The kernel: without record and guard unless `recorded`; with loops over y that the compiler
    can unroll if it is told d2, as XLA always is."""

    @nb.njit(error_model="numpy")
    def kernel(
        a, b, va, vb, x, y, lower, upper, alpha, beta, inner_steps, weights, own, max_steps, eps
    ):
        horizon = a.shape[0]
        d = dimension if dimension > 0 else a.shape[1]
        w = weights.shape[0]
        total = ZERO
        for i in range(w):
            total += weights[i]
        tolerance = f4(100) * eps
        floats = np.empty((horizon if recorded else 1, 7), np.float32)
        integers = np.empty((horizon if recorded else 1, 5), np.int32)
        xs = np.empty(horizon, np.float32)
        ring = np.empty(max(w - 1, 1), np.int64)
        z, target = np.empty(d, np.float32), np.empty(d, np.float32)
        v, r = np.empty(d, np.float32), np.empty(d, np.float32)
        p, hp = np.empty(d, np.float32), np.empty(d, np.float32)
        t = 1
        for now in range(horizon):
            xs[now] = x
            c = TWO * math.exp(x)
            # Lines 3-7 of Algorithm 1.
            for j in range(d):
                z[j] = y[j]
            for _ in range(inner_steps):
                error = dot(a[now], z, d) - b[now]
                for j in range(d):
                    z[j] -= beta * (error * a[now, j] + c * z[j])
            # Definition 1: own curvature solves a system per term, current curvature one in all.
            seen = min(t, w)
            hypergradient, residual, hvps = ZERO, ZERO, 0
            if own:
                for i in range(seen):
                    s = now if i == 0 else ring[(t - i - 1) % (w - 1)]
                    error = dot(va[s], z, d) - vb[s]
                    for j in range(d):
                        target[j] = error * va[s, j]
                    cross, left, steps = solve(
                        a[s], c, z, target, v, r, p, hp, d, max_steps, tolerance
                    )
                    hypergradient -= weights[i] / total * cross
                    residual = max(residual, left)
                    hvps += steps
            else:
                for j in range(d):
                    target[j] = ZERO
                for i in range(seen):
                    s = now if i == 0 else ring[(t - i - 1) % (w - 1)]
                    error = weights[i] / total * (dot(va[s], z, d) - vb[s])
                    for j in range(d):
                        target[j] += error * va[s, j]
                cross, residual, hvps = solve(
                    a[now], c, z, target, v, r, p, hp, d, max_steps, tolerance
                )
                hypergradient -= cross
            # Line 8, and the guard.
            new = x - alpha * hypergradient
            if not math.isnan(new):
                new = min(max(new, lower), upper)
            accepted = True
            if recorded:
                accepted = finite(a[now], d) and finite(va[now], d) and finite(z, d)
                accepted &= math.isfinite(b[now]) and math.isfinite(vb[now]) and math.isfinite(new)
                outer_error = dot(va[now], z, d) - vb[now]
                played_error = dot(va[now], y, d) - vb[now]
                inner_error = dot(a[now], z, d) - b[now]
                slope = ZERO
                for j in range(d):
                    slope += (inner_error * a[now, j] + c * z[j]) ** 2
                row = floats[now]
                row[0] = x
                row[1] = HALF * outer_error * outer_error
                row[2] = HALF * played_error * played_error
                row[3] = HALF * inner_error * inner_error + HALF * c * dot(z, z, d)
                row[4] = abs(hypergradient)
                row[5] = math.sqrt(slope)
                row[6] = residual
                count = integers[now]
                count[0], count[1], count[2] = t, accepted, inner_steps + seen
                count[3], count[4] = hvps, seen if own else 1
            if accepted:
                x = new
                for j in range(d):
                    y[j] = z[j]
                if w > 1:
                    ring[(t - 1) % (w - 1)] = now
                t += 1
        return x, y, xs, floats, integers

    return kernel


class Played(NamedTuple):
    """What the kernel returns, under the names of `obax.Info`."""

    outer_var: np.ndarray
    inner_var: np.ndarray
    outer_vars: np.ndarray
    history: dict[str, np.ndarray]


def caller(
    stream: Instance, window: int, curvature: str, *, recorded: bool = True, dimension: int = 0
) -> Callable[[], Played]:
    """The kernel on a stream, ready to be called again and again."""
    kernel = build(recorded=recorded, dimension=dimension)
    training, validation = jax.tree.map(
        np.asarray, (stream.rounds["training"], stream.rounds["validation"])
    )
    box = stream.problem.domain

    def call() -> Played:
        x, y, xs, floats, integers = kernel(
            *training,
            *validation,
            f4(stream.outer_var[0]),
            np.array(stream.inner_var),
            f4(box.lower),
            f4(box.upper),
            f4(OUTER_STEP_SIZE),
            f4(INNER_STEP_SIZE),
            INNER_STEPS,
            np.ones(window, f4),
            curvature == "own",
            CG_STEPS,
            f4(EPS),
        )
        history = dict(zip(FLOATS, floats.T, strict=True))
        history |= dict(zip(INTEGERS, integers.T, strict=True))
        return Played(x, y, xs, history)

    return call
