"""Bounds of the streaming models: each step of the derivation against numbers worked apart."""

import itertools
import math

import numpy as np
import pytest

from obax.theory import DiscountedRidge, SharedMixture

ROWS = 60


def stream(seed, intercept, scale=1.0):
    """Rows with a 1 at the end or not, targets, and a comparator that walks."""
    rng = np.random.default_rng(seed)
    rows = scale * rng.standard_normal((ROWS, 3))
    if intercept:
        rows[:, -1] = 1.0
    return rows, 2.0 * rng.standard_normal(ROWS), np.cumsum(0.3 * rng.standard_normal((ROWS, 3)), 0)


def played(ridge, rows, targets):
    """The two minimisations of a row, each by its normal equations."""
    d = rows.shape[1]
    A, y, R = np.zeros((d, d)), np.zeros(d), ridge.ridge(d)
    found = []
    for a, b in zip(rows, targets, strict=True):
        P = ridge.tie(A)
        c = np.linalg.solve(P + R, P @ y)
        new = np.linalg.solve(P + R + np.outer(a, a), P @ y + b * a)
        found.append((A, c, 0.5 * (c @ a - b) ** 2, a @ np.linalg.solve(P + R, a)))
        A, y = ridge.forgetting * A + np.outer(a, a), new
    return map(np.array, zip(*found, strict=True))


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(
    ("memory", "penalty", "inertia"), [(5.0, 0.1, 0.1), (20.0, 1e-3, 1.0), (2.0, 3.0, 1e-3)]
)
def test_regret_is_within_the_bound_and_that_within_the_explicit_one(
    memory, penalty, inertia, intercept
):
    ridge = DiscountedRidge(memory, penalty, inertia, intercept)
    for seed in range(4):
        rows, targets, u = stream(seed, intercept, scale=10.0 ** (seed - 1))
        A, _, losses, v = played(ridge, rows, targets)
        regret = np.cumsum(losses - 0.5 * (np.sum(u * rows, axis=1) - targets) ** 2)
        moved = np.diff(u, axis=0, prepend=u[:1])
        weights = ridge.path_weight(A[1:])
        path = np.append(0.0, 0.5 * np.einsum("ti,tij,tj->t", moved[1:], weights, moved[1:]))
        own = {
            "start": 0.5 * inertia * u[0] @ u[0],
            "U": np.cumsum(0.5 * np.sum(u @ ridge.ridge(3) * u, axis=1)),
            "G": np.maximum.accumulate(losses),
        }
        bound = ridge.bound(path=np.cumsum(path), volume=np.cumsum(np.log1p(v)), **own)
        assert (regret <= bound + 1e-9 * (1 + bound)).all()
        X_2, P_2 = np.max(np.sum(rows**2, axis=1)), np.cumsum(np.sum(moved**2, axis=1))
        T = np.arange(1, ROWS + 1)
        explicit = ridge.explicit_bound(T=T, inputs=3, X_2=X_2, P_2=P_2, **own)
        assert (bound <= explicit * (1 + 1e-9)).all()
        # What the explicit one rests on.
        P, N = ridge.tie(A[1:]), ridge.released(A[1:])
        assert np.linalg.eigvalsh(ridge.kappa(X_2) * N - P).min() > -1e-9 * P.max()


def test_the_path_weight_is_the_maximum_over_where_the_model_is():
    ridge, rng = DiscountedRidge(10.0, 0.01, 0.5), np.random.default_rng(1)
    rows = np.column_stack([rng.standard_normal((8, 2)), np.ones(8)])
    A = rows.T @ rows
    P, N, u, step = ridge.tie(A), ridge.released(A), rng.standard_normal(3), np.ones(3)

    def added(y):
        before, now = u - step - y, u - y
        return 0.5 * now @ P @ now - 0.5 * before @ (P + N) @ before

    most = 0.5 * step @ ridge.path_weight(A) @ step
    assert added(u - step - np.linalg.solve(N, P @ step)) == pytest.approx(most, rel=1e-12)
    for _ in range(200):
        assert added(u + 10.0 * rng.standard_normal(3)) <= most


def test_without_inertia_and_penalty_it_is_recursive_least_squares():
    """The path term is then m/2 |u_t - u_{t-1}|^2 in A_t."""
    ridge = DiscountedRidge(9.0, 1e-13, 1e-13, intercept=False)
    A = np.array([[2.0, 0.5], [0.5, 1.0]])
    np.testing.assert_allclose(ridge.path_weight(A), 9.0 * A, rtol=1e-9)


@pytest.mark.parametrize("share", [0.001, 0.3])
def test_the_bound_of_a_mixture_is_the_prior_of_a_sequence(share):
    """Every sequence of 3 members in 4 rows, by the chain that the shares are the posterior of."""
    N, T, total = 3, 4, 0.0
    for sequence in itertools.product(range(N), repeat=T):
        prior, switches = 1 / N, 0
        for one, two in itertools.pairwise(sequence):
            prior *= share / N + (1 - share) * (one == two)
            switches += one != two
        total += prior
        assert -math.log(prior) == pytest.approx(
            float(SharedMixture(N, share).bound(T, switches)), rel=1e-12
        )
    assert total == pytest.approx(1.0)


def test_without_a_share_it_is_ln_n_and_switches_are_not_covered():
    assert SharedMixture(6).bound([1, 10, 10**9]).tolist() == [math.log(6)] * 3
    assert SharedMixture(6).bound(10, switches=1) == math.inf
    assert SharedMixture(1, 0.1).bound(10) == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DiscountedRidge(0.0, 1.0, 1.0), "memory must be a number > 0, but got 0.0"),
        (lambda: DiscountedRidge(1.0, math.nan, 1.0), "penalty must be finite, but got nan"),
        (lambda: DiscountedRidge(1.0, 1.0, -1.0), "inertia must be a number > 0"),
        (lambda: SharedMixture(0), "members must be an integer >= 1, but got 0"),
        (lambda: SharedMixture(2, 1.0), r"share must be in \[0, 1\), but got 1.0"),
        (lambda: SharedMixture(2, math.nan), "share must be finite, but got nan"),
    ],
)
def test_bad_numbers_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
