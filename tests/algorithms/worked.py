"""A bilevel problem that is not quadratic, with all of its derivatives written out in NumPy.

    f = |y - d|^2 / 2 + |x - e|^2 / 2 + x^T C y
    g = y^T A y / 2 - y^T (B x + c) + sum y^4 / 4 + exp(x_1) |y|^2 / 2

Every derivative depends on the point: a method that evaluates one at the wrong point is seen.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

import obax

D1, D2, T = 2, 3, 4
_RNG = np.random.default_rng(0)


def positive(rng, size):
    square = rng.standard_normal((size, size))
    return square @ square.T / size + 0.5 * np.eye(size)


ROUNDS = [
    {
        "A": positive(_RNG, D2),
        "B": _RNG.standard_normal((D2, D1)),
        "C": 0.3 * _RNG.standard_normal((D1, D2)),
        "c": _RNG.standard_normal(D2),
        "d": _RNG.standard_normal(D2),
        "e": _RNG.standard_normal(D1),
    }
    for _ in range(T)
]
X1, Y1 = np.array([0.3, -0.2]), np.array([1.0, -1.0, 0.5])
BOX = 0.45


def outer(x, y, r):
    return 0.5 * jnp.sum((y - r["d"]) ** 2) + 0.5 * jnp.sum((x - r["e"]) ** 2) + x @ r["C"] @ y


def inner(x, y, r):
    quadratic = 0.5 * y @ r["A"] @ y - y @ (r["B"] @ x + r["c"])
    return quadratic + jnp.sum(y**4) / 4 + jnp.exp(x[0]) * jnp.sum(y**2) / 2


PROBLEM = obax.Problem(outer, inner, obax.Box(-BOX, BOX))


def f(x, y, r):
    return float(outer(x, y, r))


def g(x, y, r):
    return float(inner(x, y, r))


def f_x(x, y, r):
    return x - r["e"] + r["C"] @ y


def f_y(x, y, r):
    return y - r["d"] + r["C"].T @ x


def g_y(x, y, r):
    return r["A"] @ y - r["B"] @ x - r["c"] + y**3 + np.exp(x[0]) * y


def hessian(x, y, r):
    return r["A"] + np.diag(3 * y**2) + np.exp(x[0]) * np.eye(D2)


def cross(x, y, r, v):
    """J v, the derivative in x of v . grad_y g."""
    return -r["B"].T @ v + np.array([np.exp(x[0]) * (y @ v), 0.0])


def hypergradient(x, y, r):
    v = np.linalg.solve(hessian(x, y, r), f_y(x, y, r))
    return f_x(x, y, r) - cross(x, y, r, v)


def project(x):
    return np.clip(x, -BOX, BOX)


def plays(algorithm, rounds=ROUNDS):
    """States after each round, and infos, from one compiled step."""
    state = algorithm.init(X1, Y1, rounds[0])
    step, seen = eqx.filter_jit(algorithm.step), []
    for r in rounds:
        state, info = step(state, r)
        assert bool(info.accepted)
        seen.append((state, info))
    return seen


def close(value, expected, rtol=1e-10, atol=1e-12):
    np.testing.assert_allclose(value, expected, rtol=rtol, atol=atol)


def side_by_side(make, *tolerances):
    """Gradients of every round for each tolerance, in a sweep whose runs stop each for itself: as
    many as alone, and with the same decisions."""
    stream = obax.problems.quadratic(5, 2, 3)
    algorithms = [make(stream.problem, tolerance) for tolerance in tolerances]
    state = algorithms[0].init(stream.outer_var, stream.inner_var, stream.example_round)
    _, both = obax.sweep(algorithms, state, stream.rounds)
    for number, algorithm in enumerate(algorithms):
        _, alone = obax.run(algorithm, state, stream.rounds)
        np.testing.assert_array_equal(both.gradients[number], alone.gradients)
        close(both.outer_var[number], alone.outer_var)
    return np.asarray(both.gradients)
