"""Each estimator against closed forms, finite differences and its own definition.

The smooth problem has no closed form: g is log-cosh regression with a learned ridge and a learned
pull, y*(x) is solved by Newton to rounding, and x -> f(x, y*(x)) is differenced to fourth order.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import obax
from obax import hypergradient as hg

pytestmark = pytest.mark.usefixtures("quick_compilation")

RNG = np.random.default_rng(0)
D1, D2 = 3, 5
FEATURES = RNG.standard_normal((8, D2))
LABELS = RNG.standard_normal(8)
MIX = RNG.standard_normal((D1, D2))
GOAL = RNG.standard_normal(D2)
X = np.array([0.3, -0.4, 0.2])

# --- a quadratic, for closed forms ----------------------------------------------------------------

SQUARE = RNG.standard_normal((D2, D2))
H = SQUARE @ SQUARE.T + 0.5 * np.eye(D2)
B = RNG.standard_normal((D2, D1))
GRADIENT_X, GRADIENT_Y = RNG.standard_normal(D1), RNG.standard_normal(D2)


def bent(matrix):
    """g = y' H y / 2 - y' B x: J = -B', and the hypergradient is grad_x f + B' H^-1 grad_y f."""
    return lambda x, y: 0.5 * y @ jnp.asarray(matrix) @ y - y @ jnp.asarray(B) @ x


def exact(matrix):
    return GRADIENT_X + B.T @ np.linalg.solve(matrix, GRADIENT_Y)


def estimate_with(estimator, matrix=H, carry=None, gradient_y=GRADIENT_Y):
    carry = estimator.init(jnp.zeros(D2)) if carry is None else carry
    gradient = (jnp.asarray(GRADIENT_X), jnp.asarray(gradient_y))
    return evaluate(estimator, jnp.asarray(matrix), gradient, carry)


@eqx.filter_jit
def evaluate(estimator, matrix, gradient, carry):
    return estimator(bent(matrix), jnp.asarray(X), jnp.ones(D2), gradient, carry)


TOP = np.linalg.eigvalsh(H)[-1]
CLOSED = {
    "Dense": lambda: hg.Dense(),
    "CG": lambda: hg.CG(),
    "CG-warm": lambda: hg.CG(warm_start=True),
    "GMRES": lambda: hg.GMRES(),
    "FixedPoint": lambda: hg.FixedPoint(1.0 / TOP, max_steps=5000),
    "Neumann": lambda: hg.Neumann(2000, 1.0 / TOP),
}


@pytest.mark.parametrize("make", CLOSED.values(), ids=CLOSED)
def test_closed_form(make):
    got = estimate_with(make())
    np.testing.assert_allclose(got.value, exact(H), rtol=1e-10)
    assert got.residual < 1e-10
    assert got.cross_products == 1


@pytest.mark.parametrize("make", [hg.Dense, hg.GMRES], ids=["Dense", "GMRES"])
def test_an_indefinite_inner_hessian(make):
    saddle = H - 3.0 * np.eye(D2)
    signs = np.sign(np.linalg.eigvalsh(saddle))
    assert set(signs) == {-1.0, 1.0}
    got = estimate_with(make(), saddle)
    np.testing.assert_allclose(got.value, exact(saddle), rtol=1e-9)
    assert got.residual < 1e-10


def test_one_outer_gradient_of_zero_is_no_trouble():
    for make in CLOSED.values():
        got = estimate_with(make(), gradient_y=np.zeros(D2))
        np.testing.assert_array_equal(got.value, GRADIENT_X)
        assert got.residual == 0.0


@pytest.mark.parametrize("terms", [1, 2, 5])
def test_neumann_is_its_series(terms):
    eta = 0.7 / TOP
    v = sum(
        eta * np.linalg.matrix_power(np.eye(D2) - eta * H, k) @ GRADIENT_Y for k in range(terms)
    )
    got = estimate_with(hg.Neumann(terms, eta))
    np.testing.assert_allclose(got.value, GRADIENT_X + B.T @ v, rtol=1e-12)
    residual = np.linalg.norm(H @ v - GRADIENT_Y) / np.linalg.norm(GRADIENT_Y)
    np.testing.assert_allclose(got.residual, residual, rtol=1e-10)
    assert got.hvps == terms - 1


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_cg_on_a_budget_is_the_textbook(steps):
    v, r = np.zeros(D2), GRADIENT_Y.copy()
    p = r.copy()
    for _ in range(steps):
        alpha = (r @ r) / (p @ H @ p)
        v, new = v + alpha * p, r - alpha * H @ p
        p = new + (new @ new) / (r @ r) * p
        r = new
    got = estimate_with(hg.CG(max_steps=steps))
    np.testing.assert_allclose(got.value, GRADIENT_X + B.T @ v, rtol=1e-10)
    residual = np.linalg.norm(H @ v - GRADIENT_Y) / np.linalg.norm(GRADIENT_Y)
    np.testing.assert_allclose(got.residual, residual, rtol=1e-8)
    assert got.hvps == steps


def test_cg_stops_at_its_tolerance():
    rough = estimate_with(hg.CG(rtol=1e-1, atol=1e-1))
    assert rough.hvps < estimate_with(hg.CG()).hvps
    assert 1e-10 < rough.residual < 0.5


@pytest.mark.parametrize("rtol", [1e-2, 1e-6])
def test_fixed_point_reaches_its_tolerance_and_no_more(rtol):
    eta = 1.0 / TOP
    got = estimate_with(hg.FixedPoint(eta, rtol=rtol, max_steps=5000))
    u = GRADIENT_Y.copy()
    moved, steps = np.inf, 0
    while moved > rtol * np.linalg.norm(u):
        new = u - eta * H @ u + GRADIENT_Y
        moved, u, steps = np.linalg.norm(new - u), new, steps + 1
    assert int(got.hvps) == steps
    np.testing.assert_allclose(got.value, GRADIENT_X + eta * B.T @ u, rtol=1e-10)
    residual = np.linalg.norm(eta * H @ u - GRADIENT_Y) / np.linalg.norm(GRADIENT_Y)
    np.testing.assert_allclose(got.residual, residual, rtol=1e-6)
    assert got.residual > 1e-12


def test_fixed_point_on_a_budget():
    got = estimate_with(hg.FixedPoint(1.0 / TOP, max_steps=2))
    assert got.hvps == 2
    assert got.residual > 1e-3


@pytest.mark.parametrize("warm_start", [False, True])
def test_damped_cg_solves_the_damped_system(warm_start):
    """Here with an indefinite H, which plain CG must not be given; the residual is that of H."""
    indefinite = H - 2.0 * np.eye(D2)
    damped = indefinite + 5.0 * np.eye(D2)
    assert np.linalg.eigvalsh(indefinite)[0] < 0 < np.linalg.eigvalsh(damped)[0]
    estimate = estimate_with(hg.CG(damping=5.0, warm_start=warm_start), indefinite)
    np.testing.assert_allclose(estimate.value, exact(damped), rtol=1e-10)
    left = indefinite @ np.linalg.solve(damped, GRADIENT_Y) - GRADIENT_Y
    wanted = np.linalg.norm(left) / np.linalg.norm(GRADIENT_Y)
    np.testing.assert_allclose(estimate.residual, wanted, rtol=1e-8)


def test_warm_start_saves_steps():
    solved = estimate_with(hg.CG(warm_start=True)).carry
    np.testing.assert_allclose(H @ np.asarray(solved), GRADIENT_Y, rtol=1e-10)
    estimator = hg.CG(warm_start=True, rtol=1e-4, atol=1e-4)
    moved = H + 1e-6 * np.eye(D2)
    cold, warm = estimate_with(estimator, moved), estimate_with(estimator, moved, carry=solved)
    # One product to see that the old v is good enough.
    assert int(warm.hvps) == 1
    assert int(cold.hvps) > 2
    np.testing.assert_allclose(warm.value, exact(moved), rtol=1e-3)


# A solver must not give up on a curvature only because y is large or the curvature small: single
# precision, and sizes that networks have.
@pytest.mark.parametrize(("size", "curvature"), [(10, 1e-5), (1000, 1e-2), (100_000, 1.0)])
def test_cg_in_single_precision(size, curvature):
    gradient = (jnp.zeros((), jnp.float32), jnp.ones(size, jnp.float32))

    def inner(x, y):
        return 0.5 * curvature * jnp.sum((y - x) ** 2)

    zero = jnp.zeros((), jnp.float32)
    got = hg.CG(max_steps=5)(inner, zero, jnp.ones(size, jnp.float32), gradient)
    # J = -curvature 1', v = 1 / curvature: the hypergradient is the number of coordinates.
    np.testing.assert_allclose(got.value, size, rtol=1e-4)
    assert got.residual < 1e-4


# --- Nystrom --------------------------------------------------------------------------------------


def test_nystrom_at_full_rank_is_the_damped_system():
    rho = 1e-4
    got = estimate_with(hg.Nystrom(D2, damping=rho))
    v = np.linalg.solve(H + rho * np.eye(D2), GRADIENT_Y)
    # Woodbury divides a difference by rho: rounding is amplified to 1e-16 / rho, of the vector, so
    # that its smallest entry may be further off.
    wanted = GRADIENT_X + B.T @ v
    np.testing.assert_allclose(got.value, wanted, atol=1e-9 * np.linalg.norm(wanted), rtol=0)
    np.testing.assert_allclose(got.value, exact(H), rtol=1e-2)
    residual = np.linalg.norm(H @ v - GRADIENT_Y) / np.linalg.norm(GRADIENT_Y)
    np.testing.assert_allclose(got.residual, residual, atol=1e-9, rtol=0)
    assert got.hvps == D2


def test_nystrom_asks_for_no_more_than_there_is():
    assert estimate_with(hg.Nystrom(10 * D2)).hvps == D2


def test_nystrom_is_exact_when_the_rank_is():
    """H of rank 2, plus the damping: two directions of the sketch tell all, more do no harm."""
    low = SQUARE[:, :2] @ SQUARE[:, :2].T
    rho = 1e-2
    v = np.linalg.solve(low + rho * np.eye(D2), GRADIENT_Y)
    for rank in (2, 3, D2):
        got = estimate_with(hg.Nystrom(rank, damping=rho), low)
        np.testing.assert_allclose(got.value, GRADIENT_X + B.T @ v, rtol=1e-8)
        assert got.hvps == rank


def test_nystrom_below_the_rank_is_the_sketched_hessian():
    rank, rho = 2, 0.3
    estimator = hg.Nystrom(rank, damping=rho, seed=3)
    carry = estimator.init(jnp.zeros(D2))
    _, key = jax.random.split(jax.random.wrap_key_data(carry))
    omega = np.linalg.qr(np.asarray(jax.random.normal(key, (D2, rank))))[0]
    c, w = H @ omega, omega.T @ H @ omega
    v = np.linalg.solve(c @ np.linalg.pinv(w) @ c.T + rho * np.eye(D2), GRADIENT_Y)
    got = estimate_with(estimator, carry=carry)
    np.testing.assert_allclose(got.value, GRADIENT_X + B.T @ v, rtol=1e-9)
    residual = np.linalg.norm(H @ v - GRADIENT_Y) / np.linalg.norm(GRADIENT_Y)
    np.testing.assert_allclose(got.residual, residual, rtol=1e-8)


def nystrom_residuals(rank, damping, dtype=np.float64):
    """Over ten sketches of a Hessian with eigenvalues from 1 to 100."""
    basis = np.linalg.qr(SQUARE)[0]
    matrix = jnp.asarray((basis * np.geomspace(1.0, 100.0, D2)) @ basis.T, dtype)
    estimator = hg.Nystrom(rank, damping=damping)
    gradient = (jnp.asarray(GRADIENT_X, dtype), jnp.asarray(GRADIENT_Y, dtype))
    keys = [jax.random.key_data(jax.random.key(seed)) for seed in range(10)]
    bend = lambda x, y: 0.5 * y @ matrix @ y - y @ jnp.asarray(B, dtype) @ x  # noqa: E731
    at = jnp.asarray(X, dtype), jnp.ones(D2, dtype)
    solve = jax.jit(jax.vmap(lambda key: estimator(bend, *at, gradient, key).residual))
    return np.asarray(solve(jnp.stack(keys)))


@pytest.mark.parametrize(("rank", "dtype"), [(1, np.float32), (2, np.float64), (4, np.float32)])
def test_nystrom_without_a_damping_never_lengthens_the_residual(rank, dtype):
    """|H v - grad_y f| <= |grad_y f|, as good as v = 0 at the least, whatever was not sketched."""
    assert nystrom_residuals(rank, None, dtype).max() <= 1 + 1e-6


def test_nystrom_says_so_when_the_damping_is_far_too_small():
    """The default of version 0.1: what was not sketched is divided by 0.01."""
    assert nystrom_residuals(2, 1e-2).min() > 100


def test_nystrom_chooses_the_curvature_that_its_sketch_leaves_out():
    rank, estimator = 2, hg.Nystrom(2, seed=3)
    carry = estimator.init(jnp.zeros(D2))
    _, key = jax.random.split(jax.random.wrap_key_data(carry))
    omega = np.linalg.qr(np.asarray(jax.random.normal(key, (D2, rank))))[0]
    seen = H @ omega @ np.linalg.inv(omega.T @ H @ omega) @ omega.T @ H
    u = GRADIENT_Y - omega @ omega.T @ GRADIENT_Y
    left_out = (H - seen) @ u
    v = np.linalg.solve(seen + left_out @ left_out / (u @ left_out) * np.eye(D2), GRADIENT_Y)
    v *= (H @ v @ GRADIENT_Y) / np.sum((H @ v) ** 2)
    got = estimate_with(estimator, carry=carry)
    np.testing.assert_allclose(got.value, GRADIENT_X + B.T @ v, rtol=1e-9)
    assert got.hvps == rank + 2


def test_nystrom_that_sees_all_needs_no_damping():
    np.testing.assert_allclose(estimate_with(hg.Nystrom(D2)).value, exact(H), rtol=1e-5)
    low = SQUARE[:, :2] @ SQUARE[:, :2].T
    reachable = low @ GRADIENT_Y
    got = estimate_with(hg.Nystrom(3), low, gradient_y=reachable)
    assert got.residual < 1e-5


def test_nystrom_looks_in_new_directions_every_round_and_repeats_with_the_seed():
    estimator = hg.Nystrom(1, seed=7)
    first = estimate_with(estimator)
    second = estimate_with(estimator, carry=first.carry)
    assert not np.allclose(first.value, second.value)
    np.testing.assert_array_equal(estimate_with(hg.Nystrom(1, seed=7)).value, first.value)
    assert not np.allclose(estimate_with(hg.Nystrom(1, seed=8)).value, first.value)


# --- oracle counts --------------------------------------------------------------------------------

COUNTED = {
    "Dense": lambda: hg.Dense(),
    "CG": lambda: hg.CG(max_steps=3),
    "CG-warm": lambda: hg.CG(max_steps=3, warm_start=True),
    "GMRES": lambda: hg.GMRES(),
    "GMRES-restarted": lambda: hg.GMRES(restart=3, rtol=1e-6, atol=1e-6),
    "Neumann": lambda: hg.Neumann(4, 0.01),
    "Nystrom": lambda: hg.Nystrom(3),
}


@pytest.mark.parametrize("name", COUNTED)
def test_hvps_are_those_that_were_made(name):
    estimator, calls = COUNTED[name](), []

    def hvp(u):
        jax.debug.callback(lambda _: calls.append(1), u[0])
        return jnp.asarray(H) @ u

    _, _, reported = estimator.solve(hvp, jnp.asarray(GRADIENT_Y), estimator.init(jnp.zeros(D2)))
    jax.effects_barrier()
    # A product with the zero start of a solver is not one that the method asks for.
    assert len(calls) - 1 <= int(reported) <= len(calls)


def test_a_budget_is_a_budget():
    for make in (hg.CG, lambda max_steps: hg.GMRES(max_steps, restart=2)):
        one = estimate_with(make(max_steps=1))
        assert not np.allclose(one.value, GRADIENT_X)
        assert one.residual > 1e-3
        more = estimate_with(make(max_steps=4))
        assert more.residual < one.residual
        assert one.hvps < more.hvps


@pytest.mark.parametrize("name", CLOSED)
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_no_solver_hides_a_gradient_that_is_not_finite(name, value):
    """The guard sees x and y only: a finite answer here would let the round through."""
    gradient_y = GRADIENT_Y.copy()
    gradient_y[1] = value
    got = estimate_with(CLOSED[name](), gradient_y=gradient_y)
    assert not np.all(np.isfinite(got.value))


@pytest.mark.parametrize("name", CLOSED)
def test_no_solver_hides_a_hessian_that_is_not_finite(name):
    broken = H.copy()
    broken[1, 1] = np.nan
    assert not np.all(np.isfinite(estimate_with(CLOSED[name](), broken).value))


# --- a smooth problem, for finite differences -----------------------------------------------------


def smooth_outer(x, y, round):
    return 0.5 * jnp.sum((y - round["goal"]) ** 2) + jnp.sin(x[0]) * y[0] + 0.1 * jnp.sum(x**4)


def smooth_inner(x, y, round):
    fit = jnp.sum(jnp.log(jnp.cosh(jnp.asarray(FEATURES) @ y - round["labels"])))
    return fit + 0.5 * jnp.exp(x[0]) * jnp.sum(y**2) + jnp.tanh(x) @ jnp.asarray(MIX) @ y


SMOOTH = obax.Problem(smooth_outer, smooth_inner)
ROUND = {"goal": GOAL, "labels": LABELS}


def np_outer(x, y, round):
    return 0.5 * np.sum((y - round["goal"]) ** 2) + np.sin(x[0]) * y[0] + 0.1 * np.sum(x**4)


def np_slope(x, y, round):
    fit = FEATURES.T @ np.tanh(FEATURES @ y - round["labels"])
    return fit + np.exp(x[0]) * y + np.tanh(x) @ MIX


def np_answer(x, round):
    y = np.zeros(D2)
    for _ in range(50):
        bend = 1 - np.tanh(FEATURES @ y - round["labels"]) ** 2
        hessian = FEATURES.T @ (bend[:, None] * FEATURES) + np.exp(x[0]) * np.eye(D2)
        y = y - np.linalg.solve(hessian, np_slope(x, y, round))
    assert np.linalg.norm(np_slope(x, y, round)) < 1e-13
    return y


def differences(function, x, h=1e-3):
    """Central differences of fourth order: 1e-13 of truncation, 1e-13 of rounding."""
    slope = np.empty_like(x)
    for i in range(len(x)):
        e = h * np.eye(len(x))[i]
        near, far = function(x + e) - function(x - e), function(x + 2 * e) - function(x - 2 * e)
        slope[i] = (8 * near - far) / (12 * h)
    return slope


SMOOTH_ESTIMATORS = {
    "Dense": (lambda: hg.Dense(), 1e-8),
    "CG": (lambda: hg.CG(), 1e-8),
    "GMRES": (lambda: hg.GMRES(), 1e-8),
    "FixedPoint": (lambda: hg.FixedPoint(0.05, max_steps=3000), 1e-8),
    "Neumann": (lambda: hg.Neumann(1000, 0.05), 1e-8),
    # Damping of 1e-6 against a smallest eigenvalue of about 1.
    "Nystrom": (lambda: hg.Nystrom(D2, damping=1e-6), 1e-5),
}


@pytest.mark.parametrize("name", SMOOTH_ESTIMATORS)
def test_finite_differences(name):
    make, tolerance = SMOOTH_ESTIMATORS[name]
    wanted = differences(lambda x: np_outer(x, np_answer(x, ROUND), ROUND), X)
    y = jnp.asarray(np_answer(X, ROUND))
    estimator = make()
    gradient = jax.grad(smooth_outer, (0, 1))(jnp.asarray(X), y, ROUND)
    inner = functools.partial(smooth_inner, round=ROUND)
    got = estimator(inner, jnp.asarray(X), y, gradient, estimator.init(y)).value
    assert np.linalg.norm(got - wanted) <= tolerance * np.linalg.norm(wanted)


# --- Unrolled, at its own definition --------------------------------------------------------------

STREAM = [{"goal": RNG.standard_normal(D2), "labels": RNG.standard_normal(8)} for _ in range(4)]
BETA, K, DECAY = 0.05, 2, 0.7


def np_steps(x, y, rounds):
    for round in rounds:
        y = y - BETA * np_slope(x, y, round)
    return y


def np_average_steps(x, y, newest_first, u):
    for _ in range(K):
        y = y - BETA * sum(
            ui * np_slope(x, y, r) for ui, r in zip(u, newest_first, strict=False)
        ) / sum(u)
    return y


UNROLLED = {
    "alone": obax.Window(1),
    "current": obax.Window(3, DECAY, curvature="current"),
    "window": obax.Window(3, DECAY, curvature="current", follower="window"),
    "each": obax.Window(3, DECAY, follower="each"),
    "average": obax.Window(3, DECAY, curvature="current", follower="average"),
}


@pytest.mark.parametrize("started", [False, True], ids=["from-y", "inner_start"])
@pytest.mark.parametrize("name", UNROLLED)
def test_unrolled_is_the_derivative_of_the_loop(name, started):
    """The leader takes a step of length 1 in R^d, so that its move is the hypergradient."""
    problem = SMOOTH
    if started:
        problem = obax.Problem(
            smooth_outer, smooth_inner, inner_start=lambda x: jnp.tanh(x) @ jnp.asarray(MIX)
        )
    window = UNROLLED[name]
    algorithm = obax.OAGD(problem, 1.0, BETA, K, window, hg.Unrolled())
    state = algorithm.init(jnp.asarray(X), jnp.asarray(GOAL), ROUND)
    step = eqx.filter_jit(algorithm.step)
    u = DECAY ** np.arange(window.size)
    for t, round in enumerate(STREAM, start=1):
        x, y = np.asarray(state.outer_var), np.asarray(state.inner_var)
        newest_first = STREAM[:t][::-1][: window.size]

        def loss(x, y=y, newest_first=newest_first):
            begin = np.tanh(x) @ MIX if started else y
            if name == "window":
                end = np_steps(x, begin, list(reversed(newest_first)) * K)
            elif name == "average":
                end = np_average_steps(x, begin, newest_first, u)
            else:
                end = np_steps(x, begin, newest_first[:1] * K)
            total = 0.0
            for ui, r in zip(u, newest_first, strict=False):
                own = np_steps(x, begin, [r] * K) if name == "each" else end
                total += ui * np_outer(x, own, r)
            return total / u.sum()

        state, info = step(state, round)
        got, wanted = x - np.asarray(state.outer_var), differences(loss, x)
        assert np.linalg.norm(got - wanted) <= 1e-8 * np.linalg.norm(wanted)
        seen = len(newest_first)
        steps = K if name in ("alone", "current") else K * seen
        assert int(info.hvps) == int(info.cross_products) == steps
        assert int(info.gradients) == seen + steps
        # A leader this fast would run away: keep it where the problem is well scaled.
        state = eqx.tree_at(lambda s: s.outer_var, state, jnp.asarray(X + 0.1 * t))


def test_unrolled_with_and_without_rematerialisation():
    moves = []
    for flag in (True, False):
        algorithm = obax.OAGD(SMOOTH, 1.0, BETA, 5, hypergradient=hg.Unrolled(rematerialise=flag))
        state = algorithm.init(jnp.asarray(X), jnp.zeros(D2), ROUND)
        moves.append(eqx.filter_jit(algorithm.step)(state, ROUND)[0].outer_var)
    np.testing.assert_allclose(moves[0], moves[1], rtol=1e-12)


def test_unrolled_residual_is_that_of_the_system_for_a_quadratic():
    problem = obax.Problem(
        lambda x, y, r: jnp.asarray(GRADIENT_Y) @ y, lambda x, y, r: bent(H)(x, y)
    )
    beta, steps = 0.5 / TOP, 4
    algorithm = obax.OAGD(problem, 1.0, beta, steps, hypergradient=hg.Unrolled())
    state = algorithm.init(jnp.asarray(X), jnp.ones(D2), jnp.zeros(()))
    _, info = eqx.filter_jit(algorithm.step)(state, jnp.zeros(()))
    v = sum(
        beta * np.linalg.matrix_power(np.eye(D2) - beta * H, k) @ GRADIENT_Y for k in range(steps)
    )
    residual = np.linalg.norm(H @ v - GRADIENT_Y) / np.linalg.norm(GRADIENT_Y)
    np.testing.assert_allclose(info.solver_residual, residual, rtol=1e-10)
    np.testing.assert_allclose(info.hypergradient_norm, np.linalg.norm(B.T @ v), rtol=1e-10)


# --- complaints -----------------------------------------------------------------------------------

COMPLAINTS = [
    (lambda: hg.CG(max_steps=0), "CG.max_steps must be an integer >= 1, but got 0"),
    (lambda: hg.CG(rtol=1.0), r"CG.rtol must be a number in \[0, 1\), but got 1.0"),
    (lambda: hg.CG(atol=-1e-3), r"CG.atol must be a number in \[0, 1\), but got -0.001"),
    (lambda: hg.GMRES(rtol="a"), r"GMRES.rtol must be a number in \[0, 1\), but got 'a'"),
    (lambda: hg.GMRES(restart=0), "GMRES.restart must be an integer >= 1, but got 0"),
    (lambda: hg.GMRES(max_steps=1.5), "GMRES.max_steps must be an integer >= 1, but got 1.5"),
    (lambda: hg.Neumann(0, 0.1), "Neumann.terms must be an integer >= 1, but got 0"),
    (lambda: hg.Neumann(2, 0.0), "Neumann.step_size must be a number > 0, but got 0.0"),
    (lambda: hg.CG(damping=-1.0), "CG.damping must be a number >= 0, but got -1.0"),
    (lambda: hg.FixedPoint(-1.0), "FixedPoint.step_size must be a number > 0, but got -1.0"),
    (lambda: hg.FixedPoint(0.1, max_steps=0), "FixedPoint.max_steps must be an integer >= 1"),
    (lambda: hg.FixedPoint(0.1, rtol=0.0), r"FixedPoint.rtol must be a number in \(0, 1\)"),
    (lambda: hg.Nystrom(0), "Nystrom.rank must be an integer >= 1, but got 0"),
    (lambda: hg.Nystrom(2, damping=0.0), "Nystrom.damping must be a number > 0, but got 0.0"),
    (lambda: estimate_with(hg.Unrolled()), "Unrolled differentiates the follower's steps"),
]


@pytest.mark.parametrize(("make", "message"), COMPLAINTS)
def test_complaints(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("estimator", [hg.Dense(), hg.GMRES(2), hg.Nystrom(2)], ids=repr)
def test_what_factorises_says_what_to_do_in_bfloat16(estimator):
    x, y = jnp.zeros((), jnp.bfloat16), jnp.ones(3, jnp.bfloat16)
    inner = lambda x, y: jnp.sum((y - x) ** 2)  # noqa: E731
    with pytest.raises(ValueError, match=r"but inner_var has bfloat16; use CG\(\)"):
        estimator(inner, x, y, (x, y), estimator.init(y))
    value = hg.CG(2)(inner, x, y, (x, y)).value
    # H = 2 I and J = -2: v = y / 2, and - J v sums to 3.
    assert (value.dtype, float(value)) == (jnp.bfloat16, 3.0)


def test_nystrom_at_a_point_needs_no_carry():
    problem = obax.Problem(
        lambda x, y, r: jnp.sum((y - r) ** 2), lambda x, y, r: jnp.sum((y - x * r) ** 2)
    )
    x, r = jnp.array([0.3, 0.7, 1.0]), jnp.array([1.0, -0.5, 2.0])
    found = hg.Nystrom(3).at(problem, x, x * r, r)
    np.testing.assert_allclose(found.value, 2 * (x * r - r) * r, atol=1e-3)


SMALL_SETS = [
    (obax.Box(0.0, 1e-7), [0.5e-7, 0.2e-7]),
    (obax.Ball(1e-7), [0.5e-7, 0.2e-7]),
    (obax.Simplex(1e-7), [0.6e-7, 0.4e-7]),
]


@pytest.mark.parametrize(("domain", "point"), SMALL_SETS)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_a_small_set_does_not_hold_what_is_inside(domain, point, dtype):
    """A tolerance of 1e-6 would be larger than the whole set."""
    point = jnp.asarray(point, dtype)
    problem = obax.Problem(
        lambda x, y, r: jnp.sum(r * y),
        lambda x, y, r: jnp.sum((y - x) ** 2),
        inner_domain=domain,
    )
    r = jnp.array([1.0, -1.0], dtype)
    for x in (point, point * (1 - 1e-3), point * (1 + 1e-3)):
        found = hg.Dense().at(problem, x, point, r)
        np.testing.assert_allclose(found.value, r, rtol=1e-5)


@pytest.mark.parametrize("size", [1e-7, 1.0, 1e7])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_a_set_of_any_size_holds_what_presses_against_it(size, dtype):
    for domain, point, slope in (
        (obax.Box(0.0, size), [size, 0.0], [-1.0, 0.5]),
        (obax.Ball(size), [0.6 * size, 0.8 * size], [-0.6, -0.8]),
        (obax.Simplex(size), [size, 0.0], [-1.0, 0.5]),
    ):
        point, slope = jnp.asarray(point, dtype), jnp.asarray(slope, dtype)
        free = domain.face(point, slope).tangent(-slope)
        np.testing.assert_allclose(free, jnp.zeros(2), atol=1e-6)
