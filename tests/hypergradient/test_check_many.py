"""check_hypergradient on many problems of three sizes, right and wrong, of losses from 1e-12 to
1e12 times the usual, in float32 and float64. Run with `pytest -m slow -s` to see the counts."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import obax

SIZES = {"small": (1, 2), "middle": (4, 30), "large": (20, 600)}
SCALES = (1e-12, 1e-9, 1e-5, 1e-2, 1.0, 1e2, 1e5, 1e9, 1e12, 1e-10)
KEYS = ("a", "b", "h")


def data(size, seed):
    """Return a round: a matrix [m, n], a target [m], and a diagonal Hessian [m]."""
    (n, m), rng = size, np.random.default_rng(seed)
    values = rng.standard_normal((m, n)) / n**0.5, rng.standard_normal(m), rng.uniform(1, 3, m)
    return dict(zip(KEYS, map(jnp.asarray, values), strict=True))


def quadratic(x, y, r):
    return 0.5 * jnp.sum(r["h"] * y**2) - y @ (r["a"] @ x)


def log_cosh(x, y, r):
    return jnp.sum(jnp.logaddexp(y - r["a"] @ x, r["a"] @ x - y)) + 0.5 * jnp.sum(r["h"] * y**2)


def ridge(x, y, r):
    return 0.5 * jnp.sum((r["h"] * y - r["b"]) ** 2) + jnp.mean(jnp.exp(x)) * jnp.sum(y**2)


def roots(x, y, r):
    return 0.5 * jnp.sum((y - r["a"] @ jnp.sqrt(x)) ** 2)


def logarithms(x, y, r):
    return 0.5 * jnp.sum(r["h"] * (y + r["a"] @ jnp.log(x)) ** 2)


def waves(x, y, r):
    return 0.5 * jnp.sum((y - r["a"] @ jnp.sin(1e3 * x)) ** 2)


def sizes(x, y, r):
    return 0.5 * jnp.sum(r["h"] * (y - r["a"] @ (x / (0.5 + 1e-5 * jnp.abs(x)))) ** 2)


def logistic(x, y, r):
    return jnp.sum(jax.nn.softplus(r["b"] * y - r["a"] @ x)) + 0.5 * jnp.sum(y**2)


def sphere(x, y, r):
    return 0.5 * jnp.sum((y - r["a"] @ (x * jnp.abs(x))) ** 2)


def smooth(y, r):
    return jnp.sum(jnp.tanh(y - r["b"])) + 0.5 * jnp.mean((y - r["b"]) ** 2)


def squares(y, r):
    return 0.5 * jnp.mean((y - r["b"]) ** 2)


def spread(n):
    """Return entries of many sizes."""
    return jnp.asarray(np.where(np.arange(n) % 2, 1e5, 0.5))


def in_simplex(n):
    first = np.full(n, 1e-4)
    first[-1] = 1 - 1e-4 * (n - 1)
    return jnp.asarray(first)


POSITIVE = obax.Box(1e-6, 1.0)
# Inner and outer loss, x, the leader's set and the follower's.
TEMPLATES = {
    "quadratic": (quadratic, squares, lambda n: jnp.full(n, 0.3), None, None),
    "log-cosh": (log_cosh, smooth, lambda n: jnp.linspace(-0.9, 1.1, n), None, None),
    "ridge": (ridge, squares, lambda n: jnp.full(n, -1.0), obax.Box(-1.0, 2.0), None),
    "square root at an edge": (roots, squares, lambda n: jnp.full(n, 2e-6), POSITIVE, None),
    "logarithm": (logarithms, squares, lambda n: jnp.full(n, 1e-3), obax.NonNegative(), None),
    "waves": (waves, squares, lambda n: jnp.linspace(0.1, 0.9, n), None, None),
    "entries of many sizes": (sizes, smooth, spread, None, None),
    "logistic": (logistic, smooth, lambda n: jnp.linspace(0.2, 0.7, n), obax.Ball(9.0), None),
    "simplex": (logarithms, smooth, in_simplex, obax.Simplex(), None),
    "constrained follower": (
        quadratic, squares, lambda n: jnp.full(n, 0.7), None, obax.NonNegative(),
    ),
}  # fmt: skip


@jax.custom_jvp
def wrong_sine(y):
    return jnp.sin(y)


wrong_sine.defjvps(lambda dy, out, y: 1.02 * jnp.cos(y) * dy)
stop = jax.lax.stop_gradient
# What a mistake makes of the inner and the outer loss.
FAULTS = {
    "x stopped in inner": lambda g, f: (lambda x, y, r: g(stop(x), y, r), f),
    "half of x stopped": lambda g, f: (lambda x, y, r: g(0.5 * x + 0.5 * stop(x), y, r), f),
    "y stopped in outer": lambda g, f: (g, lambda x, y, r: f(0.9 * y + 0.1 * stop(y), r)),
    "y stopped in inner": lambda g, f: (
        lambda x, y, r: g(x, 0.7 * y + 0.3 * stop(y), r) + 0.1 * jnp.sum(stop(y) * y), f
    ),
    "a derivative 2% too large": lambda g, f: (
        g, lambda x, y, r: f(y, r) + 10 * jnp.mean(wrong_sine(y + 0.5))
    ),
    "a wrong estimate": None,
}  # fmt: skip


class Flipped(obax.hypergradient.Dense):
    """The right hypergradient, too long by a tenth."""

    def __call__(self, *args, **options):
        estimate = super().__call__(*args, **options)
        return estimate._replace(value=jax.tree.map(lambda leaf: 1.1 * leaf, estimate.value))


def check_of(name, size, scale, dtype, fault, seed):
    """Return the check of one problem, whose losses are multiplied by `scale`."""
    inner, outer, start, domain, inner_domain = TEMPLATES[name]
    n, m = SIZES[size]
    if name == "simplex":
        n += 1
    given, estimator = outer, None
    outer = lambda x, y, r: given(y, r)  # noqa: E731
    if fault == "a wrong estimate":
        estimator = Flipped()
    elif fault is not None:
        changed, other = FAULTS[fault](inner, given)
        inner = changed
        outer = outer if other is given else other

    def lowered(loss):
        def low(x, y, r):
            x, y, r = jax.tree.map(lambda leaf: leaf.astype(dtype), (x, y, r))
            return r["scale"] * loss(x, y, r)

        return low

    problem = obax.Problem(lowered(outer), lowered(inner), domain, inner_domain=inner_domain)
    round = data((n, m), seed) | {"scale": jnp.asarray(scale)}
    return obax.check_hypergradient(problem, start(n), jnp.zeros(m), round, estimator=estimator)


def many(faults):
    """Yield a name and the check of 60 problems."""
    names = [(name, size, dtype) for dtype in (jnp.float64, jnp.float32) for size in SIZES
             for name in TEMPLATES]  # fmt: skip
    for seed, (name, size, dtype) in enumerate(names):
        scale, fault = SCALES[(seed + seed // 10) % 10], faults[seed % len(faults)]
        check = check_of(name, size, scale, dtype, fault, seed)
        yield f"{name}, {size}, {jnp.dtype(dtype).name}, scale {scale:g}, {fault}", check


@pytest.mark.slow
@pytest.mark.parametrize(
    ("faults", "expected"), [((None,), "ok"), (tuple(FAULTS), "wrong")], ids=["right", "wrong"]
)
def test_sixty_problems(faults, expected):
    verdicts = collections.Counter()
    for name, check in many(faults):
        verdicts[check.verdict] += 1
        if check.verdict != expected:
            print(name, check)
    print(dict(verdicts))
    assert set(verdicts) <= {expected, "cannot tell"}
    assert verdicts["cannot tell"] <= 3
