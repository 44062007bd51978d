"""Theory: derived constants, prescribed steps, and bounds that hold on verified problems.

The bounds are loose by design of their proofs (alpha of 1e-4, factors such as 4 / gamma), so a run
below its bound would not notice a wrong coefficient. Hence each bound is also worked by hand, and
the inequalities that carry the proofs are tested where they are nearly tight.
"""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

jax.config.update("jax_enable_x64", True)

from obax import theory  # noqa: E402
from obax.domain import Ball, Unconstrained  # noqa: E402
from obax.problem import Problem  # noqa: E402
from obax.theory import Constants  # noqa: E402

# sup |(log cosh)'''| = sup 2 sech^2 tanh, reached where tanh^2 = 1/3.
LOG_COSH_THIRD = 4.0 / (3.0 * math.sqrt(3.0))
HORIZON = 200


def log_cosh(s):
    return jnp.log(jnp.cosh(s))  # compiles three times faster than logaddexp; |s| stays small


# --- an independent OAGD (Algorithm 1) ------------------------------------------------------------


def window_hypergradient(f, g, x, z, t, rounds, weights):
    """Averaged hypergradient at (x, z): full W, and the current round's curvature for all terms."""

    def average(x, z):
        ages = jnp.arange(weights.size, dtype=jnp.int32)
        values = jax.vmap(lambda i: f(x, z, take(rounds, jnp.maximum(t - 1 - i, 0))))(ages)
        return jnp.sum(jnp.where(ages < t, weights * values, 0.0)) / jnp.sum(weights)

    current = take(rounds, t - 1)
    direct, inner = jax.grad(average, argnums=(0, 1))(x, z)
    curvature = jax.hessian(g, argnums=1)(x, z, current)
    cross = jax.jacobian(jax.grad(g, argnums=1), argnums=0)(x, z, current)
    return direct - cross.T @ jnp.linalg.solve(curvature, inner)


def make_oagd(f, g, project):
    """Algorithm 1 with dense solves."""

    @jax.jit
    def run(alpha, beta, steps, rounds, x, y, weights):
        def step(carry, t):
            x, y = carry
            current = take(rounds, t - 1)

            def follow(_, z):
                return z - beta * jax.grad(g, argnums=1)(x, z, current)

            z = jax.lax.fori_loop(0, steps[t - 1], follow, y)
            moved = project(x - alpha[t - 1] * window_hypergradient(f, g, x, z, t, rounds, weights))
            return (moved, z), (x, z)

        horizon = alpha.shape[0]
        return jax.lax.scan(step, (x, y), jnp.arange(1, horizon + 1, dtype=jnp.int32))[1]

    def start(setting, rounds, x, y, weights=(1.0,)):
        t = jnp.arange(1, jax.tree.leaves(rounds)[0].shape[0] + 1, dtype=jnp.int32)
        alpha = evaluate(setting.outer_step_size, t)
        steps = evaluate(setting.inner_steps, t).astype(jnp.int32)
        return run(alpha, setting.inner_step_size, steps, rounds, x, y, padded(weights))

    return start


def padded(weights, length=20):
    """Zero weights change neither W nor the average, and one length compiles once."""
    return jnp.pad(jnp.asarray(weights), (0, length - len(weights)))


def evaluate(schedule, t):
    return jax.vmap(schedule)(t) if callable(schedule) else jnp.full(t.shape, schedule)


def take(tree, index):
    return jax.tree.map(lambda leaf: leaf[index], tree)


def project_ball(x, radius=1.0):
    return x * jnp.minimum(1.0, radius / jnp.maximum(jnp.linalg.norm(x), 1e-300))


def path(points, order):
    """Cumulative path length: zero at t = 1."""
    steps = np.linalg.norm(np.diff(np.asarray(points), axis=0), axis=1) ** order
    return np.concatenate([[0.0], np.cumsum(steps)])


def walk(generator, horizon, dimension, size):
    return np.cumsum(size * generator.normal(size=(horizon, dimension)), axis=0)


def scatter(generator, horizon, dimension, size):
    """No drift. Under drift OAGD beats every fixed x, and a static regret would be negative."""
    return 5.0 * size * generator.normal(size=(horizon, dimension))


def spectral(matrix):
    return float(np.linalg.norm(matrix, 2))


# --- families with known constants ----------------------------------------------------------------


def follower(x, y, round):
    """g_t = (y - A x - b_t)' H (y - A x - b_t) / 2, so that y*_t(x) = A x + b_t."""
    gap = y - round["A"] @ x - round["b"]
    return 0.5 * gap @ round["H"] @ gap


def quadratic_leader(x, y, round):
    return 0.5 * jnp.sum(round["Q"] * (x - round["p"]) ** 2) + 0.5 * jnp.sum((y - round["q"]) ** 2)


def log_cosh_leader(x, y, round):
    """Globally Lipschitz in y; convex in x through the affine y*_t(x)."""
    return jnp.sum(log_cosh(y - round["q"]))


def draw_follower(generator, d1, d2, horizon, rank=None):
    A = generator.normal(size=(d2, d1)) / np.sqrt(d1)
    if rank is not None:
        A = A[:, :rank] @ generator.normal(size=(rank, d1)) / np.sqrt(rank)
    basis = np.linalg.qr(generator.normal(size=(d2, d2)))[0]
    H = basis @ np.diag(np.linspace(1.0, 2.5, d2)) @ basis.T
    joint = np.block([[A.T @ H @ A, -A.T @ H], [-H @ A, H]])
    constants = {"ell_g1": spectral(joint), "ell_g2": 0.0, "mu_g": 1.0}
    return A, H, walk(generator, horizon, d2, 0.05), constants


def strongly_convex_problem(seed, d1=2, d2=3, horizon=HORIZON, drifting=True):
    """X is the unit ball; some targets lie outside, so that gradients at optima do not vanish."""
    generator = np.random.default_rng(seed)
    A, H, b, known = draw_follower(generator, d1, d2, horizon)
    Q = generator.uniform(0.5, 1.0, size=d1)
    targets = walk if drifting else scatter
    p = generator.normal(size=d1) + targets(generator, horizon, d1, 0.2)
    q = b + targets(generator, horizon, d2, 0.2)
    S = np.diag(Q) + A.T @ A
    slopes = Q * p + (q - b) @ A  # the gradient of phi_t is S x - slope_t
    x, y = jnp.zeros(d1), jnp.zeros(d2)
    stacked = np.vstack([np.diag(Q), A])
    offsets = np.concatenate([Q * p, q - b], axis=1)
    constants = Constants(
        **known,
        # |grad f| at (x, y*_t(x)) is |stacked x - offset_t|, and |x| <= 1.
        ell_f0=spectral(stacked) + np.linalg.norm(offsets, axis=1).max(),
        ell_f1=max(1.0, Q.max()),
        mu_f=np.linalg.eigvalsh(S).min(),
        D=2.0,
        D_prime=np.linalg.norm(b[0]) + 1e-12,
    )
    fixed = {"A": A, "H": H, "Q": Q}
    rounds = {k: jnp.broadcast_to(v, (horizon, *v.shape)) for k, v in fixed.items()}
    rounds |= {"b": jnp.asarray(b), "p": jnp.asarray(p), "q": jnp.asarray(q)}
    return constants, rounds, x, y, S, slopes


def ball_minimiser(S, slopes):
    """argmin of x'Sx/2 - slope'x on the unit ball: (S + m I) x = slope, m >= 0 by bisection."""
    values, vectors = np.linalg.eigh(S)
    rotated = slopes @ vectors
    low, high = np.zeros(len(slopes)), np.linalg.norm(slopes, axis=1)
    for _ in range(100):
        middle = 0.5 * (low + high)
        outside = np.linalg.norm(rotated / (values + middle[:, None]), axis=1) > 1.0
        low, high = np.where(outside, middle, low), np.where(outside, high, middle)
    inside = np.linalg.norm(rotated / values, axis=1) <= 1.0
    return (rotated / (values + np.where(inside, 0.0, high)[:, None])) @ vectors.T


def convex_problem(seed, d1=3, d2=2, horizon=HORIZON, drifting=True):
    """A has a null space: convex, not strongly; q_t puts a minimiser at a chosen interior point."""
    generator = np.random.default_rng(seed)
    A, H, b, known = draw_follower(generator, d1, d2, horizon, rank=1)
    targets = walk if drifting else scatter
    optima = targets(generator, horizon, d1, 0.1)
    optima *= np.minimum(1.0, 0.9 / np.linalg.norm(optima, axis=1, keepdims=True))
    y = jnp.zeros(d2)
    constants = Constants(
        **known, ell_f0=math.sqrt(d2), ell_f1=1.0, D=2.0, D_prime=np.linalg.norm(b[0]) + 1e-12
    )
    rounds = {"A": jnp.broadcast_to(A, (horizon, *A.shape)), "b": jnp.asarray(b)}
    rounds |= {"H": jnp.broadcast_to(H, (horizon, *H.shape)), "q": jnp.asarray(b + optima @ A.T)}
    return constants, rounds, jnp.zeros(d1), y, optima


def curved_follower(x, y, round):
    """Not quadratic: y*_t(x) is curved, and ell_g2 > 0."""
    features = round["R"] @ jnp.concatenate([x, y])
    linear = 0.5 * y @ round["H"] @ y - y @ (round["B"] @ x + round["b"])
    return linear + round["tau"] * jnp.sum(log_cosh(features))


def wave_leader(x, y, round):
    """Bounded by one, smooth, not convex."""
    return jnp.mean(jnp.cos(round["V"] @ jnp.concatenate([x, y]) + round["phase"]))


def nonconvex_problem(seed, d1=2, d2=2, horizon=HORIZON, tau=0.3):
    generator = np.random.default_rng(seed)
    B = generator.normal(size=(d2, d1)) / 2.0
    H = np.diag(np.linspace(1.0, 2.0, d2))
    R = generator.normal(size=(2, d1 + d2)) / 2.0
    V = generator.normal(size=(3, d1 + d2)) / 2.0
    lengths = np.linalg.norm(V, axis=1)
    b = walk(generator, horizon, d2, 0.02)
    flat = np.block([[np.zeros((d1, d1)), -B.T], [-B, H]])
    # D_prime: g_1(0, .) has a gradient of at most |b_1| at y = 0.
    constants = Constants(
        ell_f0=lengths.mean(),
        ell_f1=(lengths**2).mean(),
        ell_g1=spectral(flat) + tau * spectral(R) ** 2,
        ell_g2=tau * LOG_COSH_THIRD * (np.linalg.norm(R, axis=1) ** 3).sum(),
        mu_g=1.0,
        D_prime=np.linalg.norm(b[0]),
        M=1.0,
    )
    fixed = {"B": B, "H": H, "R": R, "V": V, "tau": np.asarray(tau)}
    rounds = {k: jnp.broadcast_to(v, (horizon, *v.shape)) for k, v in fixed.items()}
    phases = walk(generator, horizon, 3, 0.1)
    return constants, rounds | {"b": jnp.asarray(b), "phase": jnp.asarray(phases)}


def curved_argmin(x, round):
    def newton(y, _):  # full steps: the Hessian lies between H and a little more
        gradient = jax.grad(curved_follower, argnums=1)(x, y, round)
        curvature = jax.hessian(curved_follower, argnums=1)(x, y, round)
        return y - jnp.linalg.solve(curvature, gradient), None

    return jax.lax.scan(newton, jnp.zeros(round["H"].shape[0]), None, length=12)[0]


# --- Lemma 3 --------------------------------------------------------------------------------------


@jax.jit
@functools.partial(jax.vmap, in_axes=(0, 0, 0, None))
def lipschitz_quotients(x, other, shift, round):
    def hyper(x, y):
        return approximate_hypergradient(wave_leader, curved_follower, x, y, round)

    y, other_y = curved_argmin(x, round), curved_argmin(other, round)
    exact, norm = hyper(x, y), jnp.linalg.norm
    step = 1e-5 * shift / norm(shift)
    rise = [wave_leader(z, curved_argmin(z, round), round) for z in (x + step, x - step)]
    return {
        "L_y": norm(y - other_y) / norm(x - other),
        "M_f": norm(hyper(x, y + shift) - exact) / norm(shift),
        "L_f": norm(exact - hyper(other, other_y)) / norm(x - other),
        "hypergradient_bound": norm(exact),
        "residual": norm(jax.grad(curved_follower, argnums=1)(x, y, round)),
        "sign": jnp.abs(exact @ step - 0.5 * (rise[0] - rise[1])) / 1e-5,
    }


@pytest.mark.parametrize("seed", range(3))
def test_derived_constants_bound_sampled_quotients(seed):
    constants, rounds = nonconvex_problem(seed, horizon=1)
    keys = jax.random.split(jax.random.key(seed), 3)
    x, other, shift = (3.0 * jax.random.normal(key, (400, 2)) for key in keys)
    found = lipschitz_quotients(x, x + 1e-2 * other, shift, take(rounds, 0))
    largest = {name: float(values.max()) for name, values in found.items()}
    # y*(x) is solved, and the formula is the gradient of x -> f(x, y*(x)), sign included.
    assert largest.pop("residual") < 1e-10
    assert largest.pop("sign") < 1e-7  # central differences
    for name, value in largest.items():
        assert 0.01 * getattr(constants, name) < value <= getattr(constants, name), name


def approximate_hypergradient(f, g, x, y, round):
    direct, inner = jax.grad(f, argnums=(0, 1))(x, y, round)
    cross = jax.jacobian(jax.grad(g, argnums=1), argnums=0)(x, y, round)
    return direct - cross.T @ jnp.linalg.solve(jax.hessian(g, argnums=1)(x, y, round), inner)


def test_derived_constants_are_nearly_reached_by_one_quadratic():
    k = 50.0  # g = y^2 / 2 - k x y, y*(x) = k x; the joint Hessian has norm slightly above k
    ell_g1 = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * k**2))
    constants = Constants(ell_f0=1.0, ell_f1=2.0, ell_g1=ell_g1, ell_g2=0.0, mu_g=1.0)
    assert 0.98 * constants.L_y < k <= constants.L_y
    # f = (x + y)^2 / 2 has ell_f1 = 2 and the hypergradient (1 + k)(x + y).
    assert 0.45 * constants.M_f < 1.0 + k <= constants.M_f
    assert 0.45 * constants.L_f < (1.0 + k) ** 2 <= constants.L_f
    # f = (x + k y) / sqrt(1 + k^2) has ell_f0 = 1, and the hypergradient sqrt(1 + k^2): erratum 1.
    assert constants.ell_f0 < math.sqrt(1.0 + k**2) <= constants.hypergradient_bound
    assert math.sqrt(1.0 + k**2) > 0.98 * constants.hypergradient_bound


def test_third_derivative_enters_the_hypergradient_error():
    # f = y has ell_f1 = 0 (here 1e-9, which must be positive); all the error comes from M_t(x, y).
    tau = 4.0

    def g(x, y, round):
        return 0.5 * jnp.sum(y**2) + tau * jnp.sum(log_cosh(x + y))

    ell_g1 = 0.5 * (1.0 + 2.0 * tau) + 0.5 * math.sqrt(1.0 + 4.0 * tau**2)
    ell_g2 = tau * LOG_COSH_THIRD * math.sqrt(2.0) ** 3
    constants = Constants(ell_f0=1.0, ell_f1=1e-9, ell_g1=ell_g1, ell_g2=ell_g2, mu_g=1.0)
    x = jnp.linspace(-3.0, 3.0, 200)[:, None]

    def gradient(x):
        return approximate_hypergradient(lambda x, y, round: jnp.sum(y), g, x, 0.0 * x, None)

    slope = float(
        jnp.abs(jnp.diff(jax.jit(jax.vmap(gradient))(x)[:, 0])).max() / (x[1, 0] - x[0, 0])
    )
    assert 0.3 < slope <= constants.M_f
    assert slope > 1e6 * (1.0 + constants.kappa_g) * constants.ell_f1


def test_gamma_is_the_contraction_of_one_projected_step():
    # phi = mu x^2 / 2, exact follower: |x_2|^2 = (1 - alpha mu)^2 |x_1|^2 <= (1 - gamma) |x_1|^2.
    constants = Constants(ell_f0=1.0, ell_f1=2.0, ell_g1=1.0, ell_g2=0.0, mu_g=1.0, mu_f=2.0)
    for alpha in (1e-3, 1e-2, 0.1):
        assert (1.0 - alpha * 2.0) ** 2 <= 1.0 - constants.gamma(alpha)
    assert constants.gamma(0.5) == pytest.approx(6.0 / 6.0)
    assert constants.gamma(0.1) == pytest.approx(6.0 / 22.0)


# --- prescribed steps -----------------------------------------------------------------------------

SIMPLE = Constants(
    ell_f0=2.0, ell_f1=1.0, ell_g1=3.0, ell_g2=0.0, mu_g=1.0, mu_f=0.5, D=2.0, D_prime=1.0, M=1.0
)  # kappa_g = 3, L_y = 3, M_f = 4, L_f = 16, G^2 = 40


def at(schedule):
    if not callable(schedule):
        return [schedule] * 3
    values = [jax.jit(schedule)(jnp.int32(t)) for t in (1, 2, 10)]
    return [value.item() for value in values]


def test_prescribed_steps_by_hand():
    dynamic = theory.strongly_convex_dynamic(SIMPLE)
    assert dynamic.outer_step_size == pytest.approx(0.5 / (128 * 16 * 9))  # 1 / 36864
    # log(4 (73728 + 2)^2) = 23.80: 24 + 1
    assert (dynamic.inner_step_size, dynamic.inner_steps) == (0.5, 25)
    assert dynamic.gamma == pytest.approx(1.5 / (73728.0 + 0.5))

    static = theory.strongly_convex_static(SIMPLE)
    assert at(static.outer_step_size) == pytest.approx([4.0, 2.0, 0.4])
    assert static.inner_steps == 14  # log(576^2 + 2) = 12.71

    convex = theory.convex_dynamic(SIMPLE)
    assert convex.outer_step_size == pytest.approx(1.0 / 64.0)
    assert at(convex.inner_steps) == [3, 6, 12]  # log 4 = 1.39, log 64 = 4.16, log 40000 = 10.60

    convex_static = theory.convex_static(SIMPLE)
    assert at(convex_static.outer_step_size) == pytest.approx([1.0, 2.0**-0.5, 10.0**-0.5])
    assert at(convex_static.inner_steps) == [3, 6, 12]

    local = theory.nonconvex_local(SIMPLE)
    # 8 L_f = 128 against 2 sqrt 2 * 3 * 4 * sqrt 8 = 96
    assert (local.outer_step_size, local.inner_steps) == (pytest.approx(1.0 / 128.0), 1)
    wide = dataclasses.replace(SIMPLE, mu_g=0.3)  # kappa_g = 10: the second condition binds
    expected = 1.0 / (2.0 * math.sqrt(2.0) * 10.0 * 11.0 * math.sqrt(99.0))
    assert theory.nonconvex_local(wide).outer_step_size == pytest.approx(expected)


def test_inner_steps_are_traced_integers_in_single_precision_too():
    with jax.enable_x64(False):
        steps = jax.jit(theory.convex_static(SIMPLE).inner_steps)(jnp.int32(10))
        assert (steps.dtype, steps.item()) == (jnp.int32, 12)
        assert jax.jit(theory.convex_static(SIMPLE).outer_step_size)(jnp.int32(4)).item() == 0.5


def test_equal_prescriptions_compile_once():
    traces = []

    @functools.partial(jax.jit, static_argnums=0)
    def steps(structure, leaves, t):
        traces.append(t)
        return jax.tree.unflatten(structure, leaves)(t)

    for _ in range(2):
        leaves, structure = jax.tree.flatten(theory.convex_static(SIMPLE).inner_steps)
        steps(structure, leaves, jnp.int32(3))
    assert len(traces) == 1


@pytest.mark.parametrize("seed", range(20))
def test_smoothness_condition_of_the_strongly_convex_step_never_binds(seed):
    generator = np.random.default_rng(seed)
    ell_f0, ell_f1, ell_g2, mu_g = np.exp(generator.normal(size=4))
    ell_g1 = mu_g * (1.0 + generator.exponential())
    free = Constants(ell_f0=ell_f0, ell_f1=ell_f1, ell_g1=ell_g1, ell_g2=ell_g2, mu_g=mu_g)
    constants = dataclasses.replace(free, mu_f=free.L_f, D=1.0, D_prime=0.0)
    alpha = theory.strongly_convex_dynamic(constants).outer_step_size
    assert alpha <= 1.0 / (32.0 * constants.L_f) * (1.0 + 1e-12)
    assert alpha < 1.0 / constants.ell_f1


# --- bounds by hand -------------------------------------------------------------------------------


def test_strongly_convex_bounds_by_hand():
    dynamic = theory.strongly_convex_dynamic(SIMPLE)
    gamma, G = dynamic.gamma, math.sqrt(40.0)
    first = G * (4.0 / gamma * (2.0 + 0.7) + (1.0 + 0.3) / 6.0)
    assert dynamic.bound_by_path(P_1=0.7, Y_1=0.3) == pytest.approx(first)
    outer = 17.0 * 32.0 / (23.0 * gamma) * (4.0 + (1.0 + 2.0 / gamma) * 0.2)
    second = 0.5 * 0.4 + outer + 17.0 * 3.0 / (184.0 * 9.0) * (1.0 + 6.0 * 0.1)
    squared = {"P_2": 0.2, "Y_2": 0.1, "squared_gradients": 0.4}
    assert dynamic.bound_by_squared_path(**squared) == pytest.approx(second)
    assert dynamic.bound(P_1=0.7, Y_1=0.3, **squared) == pytest.approx(min(first, second))
    printed = dynamic.printed_bound(P_1=0.7, Y_1=0.3, **squared)
    assert printed == pytest.approx(min(first * 2.0 / G, second))

    static = theory.strongly_convex_static(SIMPLE)
    expected = 2.0 * 40.0 / 0.5 * (math.log(10.0) + 1.0) + (0.5 / 96.0 + 0.5 / 16.0 * 0.3) / 9.0
    assert static.bound(T=10, Y_bar_2=0.3) == pytest.approx(expected)
    printed = 4.0 * 4.0 / 0.5 * math.log(10.0) + (0.5 / 48.0 + 0.5 / 8.0 * 0.3) / 9.0
    assert static.printed_bound(T=10, Y_bar_2=0.3) == pytest.approx(printed)


def test_convex_bounds_by_hand():
    pi2, pi4 = math.pi**2, math.pi**4
    follower = 2.0 * 4.0 * (1.0 + pi2 / 3.0 * 6.0 + 0.25 * 0.3)
    squares = 16.0 * (0.5 + pi4 / 15.0 * 36.0 + 3.0 / 16.0 * 0.1)
    printed_follower = 8.0 * (1.0 + pi2 * 6.0 + pi2 / 2.0 * 3.0 * 0.3)
    printed_squares = 16.0 * (0.5 + pi4 / 30.0 * 36.0 + pi4 / 60.0 * 9.0 * 0.1)

    dynamic = theory.convex_dynamic(SIMPLE)  # alpha = 1/64, 1 - 2 alpha L_f = 1/2
    expected = 2.0 * (128.0 + 128.0 * 0.7 + follower + squares / 64.0)
    assert dynamic.bound(P_1=0.7, Y_1=0.3, Y_2=0.1) == pytest.approx(expected)
    printed = 2.0 * (128.0 + 64.0 * 0.7 + printed_follower + printed_squares / 64.0)
    assert dynamic.printed_bound(P_1=0.7, Y_1=0.3, Y_2=0.1) == pytest.approx(printed)

    static = theory.convex_static(SIMPLE)  # alpha_1 = 1
    expected = 20.5 * 4.0 * 3.0 + follower + squares
    assert static.bound(T=9, Y_bar_1=0.3, Y_bar_2=0.1) == pytest.approx(expected)
    printed = 1.5 * 4.0 * 3.0 + printed_follower + printed_squares
    assert static.printed_bound(T=9, Y_bar_1=0.3, Y_bar_2=0.1) == pytest.approx(printed)


def test_nonconvex_bound_by_hand():
    local = theory.nonconvex_local(SIMPLE)
    expected = 16.0 * 128.0 * (2.0 * 10.0 / 5.0 + 2.0 + 2.0 * 0.3)
    expected += 10.0 * 16.0 * 4.0 * (1.0 / 8.0 + 2.0 * 0.1)
    assert local.bound(T=10, W=5.0, H_1=0.3, H_2=0.1) == pytest.approx(expected)
    assert local.printed_bound(T=10, W=5.0, H_1=0.3, H_2=0.1) == pytest.approx(expected)


def test_bounds_take_curves_and_answer_in_float64():
    curve = jnp.linspace(0.0, 1.0, 5, dtype=jnp.float32)
    bound = theory.convex_dynamic(SIMPLE).bound(P_1=curve, Y_1=curve, Y_2=0.0)
    assert (bound.shape, bound.dtype) == ((5,), np.float64)
    assert np.all(np.diff(bound) > 0)


# --- regret is below its bound --------------------------------------------------------------------


def strongly_convex_losses(rounds, points):
    return np.asarray(leader_losses(rounds, jnp.asarray(points)))


@jax.jit
def leader_losses(rounds, points):
    def one(x, round):
        return quadratic_leader(x, round["A"] @ x + round["b"], round)

    return jax.vmap(one)(points, rounds)


run_strongly_convex = make_oagd(quadratic_leader, follower, project_ball)


@pytest.mark.parametrize("seed", range(3))
def test_strongly_convex_dynamic_regret(seed):
    constants, rounds, x, y, S, slopes = strongly_convex_problem(seed)
    setting = theory.strongly_convex_dynamic(constants)
    xs, ys = run_strongly_convex(setting, rounds, x, y)
    optima = ball_minimiser(S, slopes)
    gradients = optima @ S - slopes
    assert np.linalg.norm(gradients, axis=1).max() > 0.1  # the boundary is active in some rounds
    inner_optima = optima @ np.asarray(rounds["A"][0]).T + np.asarray(rounds["b"])
    regret = np.cumsum(strongly_convex_losses(rounds, xs) - strongly_convex_losses(rounds, optima))
    measured = {"P_1": path(optima, 1), "Y_1": path(inner_optima, 1)}
    measured |= {"P_2": path(optima, 2), "Y_2": path(inner_optima, 2)}
    measured["squared_gradients"] = np.cumsum(np.sum(gradients**2, axis=1))
    assert np.all(regret >= -1e-9)
    assert np.all(regret <= setting.bound(**measured))
    # The same from inside the proof, where it is tighter: Lemma 19 (H1).
    tracking = np.cumsum(np.linalg.norm(np.asarray(xs) - optima, axis=1))
    assert np.all(
        tracking
        <= setting.bound_by_path(P_1=measured["P_1"], Y_1=measured["Y_1"])
        / constants.hypergradient_bound
    )
    # Lemma 17 (L2) with the rho that K was chosen for.
    best = np.asarray(xs) @ np.asarray(rounds["A"][0]).T + np.asarray(rounds["b"])
    errors = np.cumsum(np.linalg.norm(np.asarray(ys) - best, axis=1))
    rho = 0.5 / (1.0 / (setting.outer_step_size * constants.mu_f) + 2.0)
    allowed = constants.D_prime + 2.0 * constants.L_y * tracking + measured["Y_1"]
    assert np.all(errors <= rho / (1.0 - rho) * allowed)


@pytest.mark.parametrize("seed", range(3))
def test_strongly_convex_static_regret(seed):
    constants, rounds, x, y, S, slopes = strongly_convex_problem(seed, drifting=False)
    setting = theory.strongly_convex_static(constants)
    xs, _ = run_strongly_convex(setting, rounds, x, y)
    t = np.arange(1, HORIZON + 1)
    played = np.cumsum(strongly_convex_losses(rounds, xs))
    best = ball_minimiser(S, np.cumsum(slopes, axis=0) / t[:, None])  # its own x* for every T
    for T in (1, 2, 5, 20, 100, HORIZON):
        fixed = np.broadcast_to(best[T - 1], (HORIZON, best.shape[1]))
        regret = played[T - 1] - strongly_convex_losses(rounds, fixed)[:T].sum()
        # y*_t(x*) moves as b_t does
        bound = setting.bound(T=T, Y_bar_2=path(rounds["b"][:T], 2)[-1])
        assert regret <= bound
    assert regret > 0.0


run_convex = make_oagd(log_cosh_leader, follower, project_ball)


@jax.jit
def convex_losses(rounds, points):
    def one(x, round):
        return log_cosh_leader(x, round["A"] @ x + round["b"], round)

    return jax.vmap(one)(jnp.asarray(points), rounds)


@pytest.mark.parametrize("seed", range(3))
def test_convex_dynamic_regret(seed):
    constants, rounds, x, y, optima = convex_problem(seed)
    setting = theory.convex_dynamic(constants)
    xs, ys = run_convex(setting, rounds, x, y)
    comparator = np.asarray(convex_losses(rounds, optima))
    np.testing.assert_allclose(comparator, 0.0, atol=1e-12)  # a global minimum, inside X
    regret = np.cumsum(np.asarray(convex_losses(rounds, xs)) - comparator)
    inner_optima = np.asarray(rounds["q"])
    Y_1, Y_2 = path(inner_optima, 1), path(inner_optima, 2)
    bound = setting.bound(P_1=path(optima, 1), Y_1=Y_1, Y_2=Y_2)
    assert regret[-1] > 0.0
    assert np.all(regret <= bound)
    # The summed errors of the follower, as the corrected proof states them.
    best = np.asarray(xs) @ np.asarray(rounds["A"][0]).T + np.asarray(rounds["b"])
    errors = np.linalg.norm(np.asarray(ys) - best, axis=1)
    D, D_prime, L_y = constants.D, constants.D_prime, constants.L_y
    assert np.all(np.cumsum(errors) <= D_prime + np.pi**2 / 3.0 * L_y * D + 0.25 * Y_1)
    squares = 0.5 * D_prime**2 + np.pi**4 / 15.0 * (L_y * D) ** 2 + 3.0 / 16.0 * Y_2
    assert np.all(np.cumsum(errors**2) <= squares)


@jax.jit
def best_fixed(rounds, x):
    def total(x):
        return jnp.mean(convex_losses(rounds, jnp.broadcast_to(x, (HORIZON, x.size))))

    def step(_, x):
        return project_ball(x - 0.5 * jax.grad(total)(x))

    best = jax.lax.fori_loop(0, 3000, step, x)
    return best, jnp.linalg.norm(best - project_ball(best - jax.grad(total)(best)))


@pytest.mark.parametrize("seed", range(3))
def test_convex_static_regret(seed):
    constants, rounds, x, y, _ = convex_problem(seed, drifting=False)
    setting = theory.convex_static(constants)
    xs, _ = run_convex(setting, rounds, x, y)

    best, residual = best_fixed(rounds, x)
    assert residual < 1e-6
    fixed = jnp.broadcast_to(best, (HORIZON, best.size))
    # The proof holds for any fixed comparator, hence for x* of the whole horizon at every prefix.
    regret = np.cumsum(np.asarray(convex_losses(rounds, xs) - convex_losses(rounds, fixed)))
    t = np.arange(1, HORIZON + 1)
    Y_bar = path(rounds["b"], 1), path(rounds["b"], 2)
    assert regret[-1] > 0.0
    assert np.all(regret <= setting.bound(T=t, Y_bar_1=Y_bar[0], Y_bar_2=Y_bar[1]))


run_local = make_oagd(wave_leader, curved_follower, lambda x: x)
curved_argmins = jax.jit(jax.vmap(curved_argmin))


@jax.jit
@functools.partial(jax.vmap, in_axes=(0, 0, None, None))
def squared_local_gradient(x, t, rounds, weights):
    y = curved_argmin(x, take(rounds, t - 1))
    gradient = window_hypergradient(wave_leader, curved_follower, x, y, t, rounds, weights)
    return jnp.sum(gradient**2)


@pytest.mark.parametrize("weights", [(1.0,), tuple(0.9**i for i in range(10)), (1.0,) * 20])
@pytest.mark.parametrize("seed", range(2))
def test_nonconvex_local_regret(seed, weights):
    constants, rounds = nonconvex_problem(seed)
    x, y = jnp.array([0.5, -0.5]), jnp.zeros(2)
    first = take(rounds, 0)
    constants = dataclasses.replace(
        constants, D_prime=float(jnp.linalg.norm(y - curved_argmin(x, first)))
    )
    setting = theory.nonconvex_local(constants)
    xs, _ = run_local(setting, rounds, x, y, weights)
    t = np.arange(1, HORIZON + 1)
    regret = np.cumsum(
        np.asarray(squared_local_gradient(xs, jnp.asarray(t, jnp.int32), rounds, padded(weights)))
    )
    # The proof meets y*_t - y*_{t-1} only at x_{t-1} and x_t; a smaller H is a harder test.
    now, before = take(rounds, slice(1, None)), take(rounds, slice(0, -1))
    jumps = [
        jnp.linalg.norm(curved_argmins(at, now) - curved_argmins(at, before), axis=1)
        for at in (xs[:-1], xs[1:])
    ]
    steps = np.maximum(*map(np.asarray, jumps))
    H = [np.concatenate([[0.0], np.cumsum(steps**p)]) for p in (1, 2)]
    bound = setting.bound(T=t, W=sum(weights), H_1=H[0], H_2=H[1])
    assert regret[-1] > 0.0
    assert np.all(regret <= bound)


# --- errata: printed bounds that a correct run violates -------------------------------------------


def test_printed_strongly_convex_static_bound_fails_in_the_first_round():
    constants, rounds, x, _, S, slopes = strongly_convex_problem(0)
    constants = dataclasses.replace(constants, D_prime=0.0)  # y_1 = y*_1(x_1)
    setting = theory.strongly_convex_static(constants)
    first = take(rounds, slice(0, 1))
    best = ball_minimiser(S, slopes[:1])
    regret = strongly_convex_losses(first, x[None])[0] - strongly_convex_losses(first, best)[0]
    assert regret > 1e-3
    assert setting.printed_bound(T=1, Y_bar_2=0.0) == 0.0
    assert regret <= setting.bound(T=1, Y_bar_2=0.0)


def alternating(prescribe, mu_f, T=100, k=10.0):
    """phi_t(x) = +-sqrt(1 + k^2) x + mu_f x^2 / 2 on [-1, 1]; the best fixed x is 0 for even T."""
    c = 1.0 / math.sqrt(1.0 + k**2)
    constants = Constants(
        ell_f0=1.0 + mu_f,
        ell_f1=mu_f or 1e-6,  # zero for linear losses; any positive bound serves
        ell_g1=0.5 * (1.0 + math.sqrt(1.0 + 4.0 * k**2)),
        ell_g2=0.0,
        mu_g=1.0,
        mu_f=mu_f or None,
        D=2.0,
        D_prime=1.0,
    )
    run = make_oagd(
        lambda x, y, sign: sign * c * jnp.sum(x + k * y) + 0.5 * mu_f * jnp.sum(x**2),
        lambda x, y, sign: 0.5 * jnp.sum(y**2) - k * jnp.sum(x * y),  # y* = k x
        project_ball,
    )
    setting, signs = prescribe(constants), jnp.asarray((-1.0) ** np.arange(T))
    xs = run(setting, signs, jnp.ones(1), jnp.array([k + 1.0]))[0][:, 0]
    return setting, float(jnp.sum(signs * xs / c + 0.5 * mu_f * xs**2))


def test_printed_convex_static_bound_fails_on_alternating_losses():
    setting, regret = alternating(theory.convex_static, 0.0)
    measured = {"T": 100, "Y_bar_1": 0.0, "Y_bar_2": 0.0}
    assert 10.0 * setting.printed_bound(**measured) < regret <= setting.bound(**measured)
    assert regret > 0.2 * setting.bound(**measured)  # the corrected bound is nearly reached


def test_printed_strongly_convex_static_bound_fails_on_alternating_losses():
    setting, regret = alternating(theory.strongly_convex_static, 1.0)
    measured = {"T": 100, "Y_bar_2": 0.0}
    assert 4.0 * setting.printed_bound(**measured) < regret <= setting.bound(**measured)
    assert regret > 0.05 * setting.bound(**measured)


def test_self_bounding_needs_a_non_negative_loss_on_the_whole_space():
    # Erratum 9: phi >= 0 on X = [0, 1] only, x* = 0, and the slope there is 1.
    phi = lambda x: x + 0.5 * x**2  # noqa: E731
    slope, curvature = jax.grad(phi)(0.0), jax.grad(jax.grad(phi))(0.0)
    assert min(phi(x) for x in np.linspace(0.0, 1.0, 11)) == phi(0.0) == 0.0
    assert curvature == 1.0
    assert slope == 1.0
    assert slope**2 > 4.0 * curvature * phi(0.0)  # Lemma 10 as printed fails
    assert phi(0.0 - slope / curvature) < 0.0  # where the lemma steps to, phi is negative
    # T rounds of it, started at x*: F_T and all path lengths are 0, Theorem 4 has T / 2 and more.
    T, x_star = 64, 0.0
    constants = theory.Constants(
        ell_f0=2.0, ell_f1=1.0, ell_g1=1.0, ell_g2=0.0, mu_g=1.0, mu_f=1.0, D=1.0, D_prime=0.0
    )
    setting = theory.strongly_convex_dynamic(constants)
    squared = np.cumsum(np.full(T, float(jax.grad(phi)(x_star)) ** 2))
    bound = setting.bound_by_squared_path(P_2=0.0, Y_2=0.0, squared_gradients=squared)
    assert bound[-1] - bound[0] == pytest.approx(0.5 * (T - 1))
    # Raised by a constant, phi is non-negative everywhere and the property holds.
    assert slope**2 <= 4.0 * curvature * (phi(0.0) + 0.5)


# --- estimates ------------------------------------------------------------------------------------


def test_estimates_reach_the_known_constants_of_a_quadratic():
    constants, rounds, x, y, *_ = strongly_convex_problem(3, horizon=40)
    problem = Problem(
        quadratic_leader,
        follower,
        Ball(1.0),
        inner_argmin=lambda x, round: round["A"] @ x + round["b"],
    )
    estimate = theory.estimate_constants(
        problem, rounds, x, y, key=jax.random.key(0), samples=32, inner_radius=0.0
    )
    assert estimate.estimated
    assert not constants.estimated
    for name in ("ell_f1", "ell_g1", "mu_g", "mu_f", "D", "D_prime"):
        assert getattr(estimate, name) == pytest.approx(getattr(constants, name), rel=1e-6), name
    assert estimate.ell_g2 < 1e-9
    assert 0.2 * constants.ell_f0 < estimate.ell_f0 <= constants.ell_f0


@pytest.mark.slow
def test_estimates_of_a_curved_problem_are_lower_estimates():
    constants, rounds = nonconvex_problem(1, horizon=20)
    problem = Problem(
        lambda x, y, round: wave_leader(x["a"], y["b"], round),
        lambda x, y, round: curved_follower(x["a"], y["b"], round),
        Unconstrained(),
    )
    x, y = {"a": jnp.zeros(2)}, {"b": jnp.zeros(2)}
    visited = {"a": 3.0 * jax.random.normal(jax.random.key(2), (50, 2))}
    estimate = theory.estimate_constants(
        problem, rounds, x, y, key=jax.random.key(1), samples=100, outer_vars=visited
    )
    for name in ("ell_f0", "ell_f1", "ell_g1", "ell_g2", "M"):
        assert 0.3 * getattr(constants, name) < getattr(estimate, name), name
        assert getattr(estimate, name) <= getattr(constants, name) * (1.0 + 1e-9), name
    assert 1.0 <= estimate.mu_g <= 1.5
    assert estimate.mu_f is None
    norms = jnp.linalg.norm(visited["a"], axis=1)
    assert norms.max() / 2.0 < estimate.D <= 2.0 * norms.max()


@pytest.mark.slow
def test_estimate_of_the_leader_curvature_through_a_curved_follower():
    # f = y^2 / 2 with y + tanh(y) = x: phi = y(x)^2 / 2, phi'' = y'^2 + y y''.
    problem = Problem(
        lambda x, y, round: 0.5 * jnp.sum(y**2),
        lambda x, y, round: 0.5 * jnp.sum(y**2) + jnp.sum(log_cosh(y)) - jnp.sum(x * y),
        Unconstrained(),
    )
    y = 0.5
    x = jnp.array([y + math.tanh(y)])
    sech2 = 1.0 - math.tanh(y) ** 2
    first = 1.0 / (1.0 + sech2)
    second = 2.0 * sech2 * math.tanh(y) * first**3
    estimate = theory.estimate_constants(
        problem, jnp.zeros((1, 1)), x, jnp.zeros(1), key=jax.random.key(0), outer_vars=x[None]
    )
    assert estimate.mu_f == pytest.approx(first**2 + y * second, rel=1e-9)
    assert estimate.D is None  # one decision has no spread
    assert estimate.D_prime == pytest.approx(y)


# --- bad input ------------------------------------------------------------------------------------

GOOD = {"ell_f0": 1.0, "ell_f1": 1.0, "ell_g1": 2.0, "ell_g2": 0.0, "mu_g": 1.0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ell_f0": 0.0}, "ell_f0 must be a number > 0, but got 0.0"),
        ({"ell_g2": -1.0}, "ell_g2 must be a number >= 0, but got -1.0"),
        ({"D_prime": -1.0}, "D_prime must be a number >= 0"),
        ({"M": math.inf}, "M must be finite, but got inf"),
        ({"D": math.nan}, "D must be finite, but got nan"),
        ({"mu_g": "one"}, "mu_g must be a number, but got 'one'"),
        ({"ell_f1": None}, "ell_f1 must be a number, but got None"),
        ({"mu_g": 3.0}, r"mu_g must be at most ell_g1 .* mu_g=3.0 and ell_g1=2.0"),
        ({"mu_f": 9.5}, r"mu_f must be at most L_f .* mu_f=9.5 and L_f=9.0"),
    ],
)
def test_contradicting_constants_are_rejected(change, message):
    with pytest.raises(ValueError, match=message):
        Constants(**(GOOD | change))


@pytest.mark.parametrize(
    ("prescribe", "missing"),
    [
        (theory.strongly_convex_dynamic, ("mu_f", "D", "D_prime")),
        (theory.strongly_convex_static, ("mu_f", "D_prime")),
        (theory.convex_dynamic, ("D", "D_prime")),
        (theory.convex_static, ("D", "D_prime")),
        (theory.nonconvex_local, ("M", "D_prime")),
    ],
)
def test_settings_say_which_constant_they_lack(prescribe, missing):
    for name in missing:
        lacking = dataclasses.replace(SIMPLE, **{name: None})
        with pytest.raises(ValueError, match=rf"{prescribe.__name__} needs Constants\({name}="):
            prescribe(lacking)
    setting = prescribe(SIMPLE)
    assert setting.name == prescribe.__name__
    assert all("(" in sentence for sentence in setting.assumptions)


def test_gamma_needs_mu_f():
    with pytest.raises(ValueError, match=r"gamma needs Constants\(mu_f="):
        Constants(**GOOD).gamma(0.1)


@pytest.mark.parametrize(
    "prescribe", [theory.strongly_convex_dynamic, theory.convex_dynamic, theory.nonconvex_local]
)
@pytest.mark.parametrize("chosen", [0.0, -1.0, 1.0, math.nan])
def test_steps_beyond_the_theorem_are_rejected(prescribe, chosen):
    words = f"of {prescribe.__name__} must lie in" if chosen == chosen else "must be a number"
    with pytest.raises(ValueError, match=f"outer_step_size {words}"):
        prescribe(SIMPLE, outer_step_size=chosen)
    largest = prescribe(SIMPLE).outer_step_size
    assert prescribe(SIMPLE, outer_step_size=largest / 2).outer_step_size == largest / 2


def test_bad_measurements_are_rejected():
    dynamic, local = theory.convex_dynamic(SIMPLE), theory.nonconvex_local(SIMPLE)
    with pytest.raises(ValueError, match="Y_1 must not be negative or NaN"):
        dynamic.bound(P_1=0.0, Y_1=-1.0, Y_2=0.0)
    with pytest.raises(ValueError, match="Y_2 must not be negative or NaN"):
        dynamic.bound(P_1=0.0, Y_1=0.0, Y_2=math.nan)
    with pytest.raises(ValueError, match=r"one common length, but got P_1: \(2,\), Y_1: \(3,\)"):
        dynamic.bound(P_1=np.zeros(2), Y_1=np.zeros(3), Y_2=0.0)
    with pytest.raises(ValueError, match="T must be at least 1, but got a minimum of 0"):
        local.bound(T=[0, 1], W=1.0, H_1=0.0, H_2=0.0)
    with pytest.raises(ValueError, match="W must be at least u_0 = 1"):
        local.bound(T=1, W=0.5, H_1=0.0, H_2=0.0)


def test_bad_estimates_are_rejected():
    key, x = jax.random.key(0), jnp.zeros(1)
    concave = Problem(lambda x, y, round: jnp.sum(y), lambda x, y, round: -jnp.sum(y**2))
    with pytest.raises(ValueError, match=r"problem.inner must be strongly convex in y \(A2\)"):
        theory.estimate_constants(concave, jnp.zeros((2, 1)), x, x, key=key)
    with pytest.raises(ValueError, match="samples must be an integer >= 1, but got 0"):
        theory.estimate_constants(concave, jnp.zeros((2, 1)), x, x, key=key, samples=0)
    ragged = (jnp.zeros((2, 1)), jnp.zeros((3, 1)))
    with pytest.raises(ValueError, match="rounds must be a pytree stacked on a common"):
        theory.estimate_constants(concave, ragged, x, x, key=key)
    alone = Problem(lambda x, y, round: jnp.sum(x**2))
    with pytest.raises(ValueError, match="but got a problem with no follower"):
        theory.estimate_constants(alone, jnp.zeros((2, 1)), x, None, key=key)
