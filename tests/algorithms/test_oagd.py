"""OAGD against Algorithm 1 written with plain lists and NumPy, in all of its modes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from worked import positive

import obax
from obax import hypergradient as hg

pytestmark = pytest.mark.usefixtures("quick_compilation")

D1, D2, T = 2, 3, 5
RNG = np.random.default_rng(0)


ROUNDS = [
    {
        "A": positive(RNG, D2),
        "B": RNG.standard_normal((D2, D1)),
        "c": RNG.standard_normal(D2),
        "d": RNG.standard_normal(D2),
        "e": RNG.standard_normal(D1),
    }
    for _ in range(T)
]
X1, Y1 = np.array([0.3, -0.2]), np.array([1.0, -1.0, 0.5])


def outer(x, y, r):
    return 0.5 * jnp.sum((y - r["d"]) ** 2) + 0.5 * jnp.sum((x - r["e"]) ** 2)


def inner(x, y, r):
    return 0.5 * y @ r["A"] @ y - y @ (r["B"] @ x + r["c"])


PROBLEM = obax.Problem(outer, inner, obax.Box(-0.5, 0.5))


# --- Algorithm 1, plainly -------------------------------------------------------------------------


def np_slope(x, y, r):
    return r["A"] @ y - r["B"] @ x - r["c"]


def np_term(x, y, r, curvature):
    """grad_x f + M grad_y f with M A = B', where A and B are the curvature's."""
    m = np.linalg.solve(curvature["A"], curvature["B"]).T
    return (x - r["e"]) + m @ (y - r["d"])


def np_oagd(
    *,
    window=1,
    decay=1.0,
    curvature="own",
    normalise="full",
    follower="current",
    steps=lambda t: 2,
    alpha=lambda t: 0.1,
    beta=lambda t: 0.2,
    start=None,
    rounds=ROUNDS,
    there=lambda t, i: True,
    order=lambda t: range(t - 1, -1, -1),
):
    """`order(t)` has the places of the rounds that round t looks at, newest first, and of these
    those of which `there` says so."""
    x, y = X1, Y1
    trajectory = []
    for t, r in enumerate(rounds, start=1):
        seen = [(i, rounds[s]) for i, s in enumerate(order(t)) if i < window and there(t, i)]
        newest_first = [one for _, one in seen]
        u = decay ** np.arange(window)
        total = u.sum() if normalise == "full" else sum(u[i] for i, _ in seen)
        begin = y if start is None else start(x)

        def train(z, on, x=x, t=t):
            for one in on:
                z = z - beta(t) * np_slope(x, z, one)
            return z

        if follower == "window":
            y = train(begin, newest_first[::-1] * steps(t))
        elif follower == "average":
            z = begin
            for _ in range(steps(t)):
                slope = sum(u[i] * np_slope(x, z, one) for i, one in seen)
                z = z - beta(t) * slope / total
            y = z
        else:
            y = train(begin, [r] * steps(t))
        direction = np.zeros(D1)
        for i, one in seen:
            at = train(begin, [one] * steps(t)) if follower == "each" else y
            whose = one if curvature == "own" else r
            direction = direction + u[i] * np_term(x, at, one, whose) / total
        trajectory.append((x, direction))
        x = np.clip(x - alpha(t) * direction, -0.5, 0.5)
    return x, y, trajectory


def assert_plays(algorithm, expected, rounds=ROUNDS):
    state = algorithm.init(X1, Y1, rounds[0])
    step = eqx.filter_jit(algorithm.step)
    x, y, trajectory = expected
    for t, r in enumerate(rounds, start=1):
        state, info = step(state, r)
        assert int(info.t) == t
        assert bool(info.accepted)
        np.testing.assert_allclose(info.outer_var, trajectory[t - 1][0], rtol=1e-10)
        np.testing.assert_allclose(
            info.hypergradient_norm, np.linalg.norm(trajectory[t - 1][1]), rtol=1e-10
        )
    np.testing.assert_allclose(state.outer_var, x, rtol=1e-10)
    np.testing.assert_allclose(state.inner_var, y, rtol=1e-10)
    return state, info


def test_three_rounds_by_hand():
    """w = 2, K = 2 on f = (y - r)^2 / 2, g = (y - x)^2 / 2, so M = 1; alpha = 1/2, beta = 1/2.

    Round 1, r = 1: y: 0 -> 0 -> 0 (x = 0);       (1/2) (0 - 1) = -1/2;                x = 1/4.
    Round 2, r = 3: y: 0 -> 1/8 -> 3/16;          (1/2) (3/16 - 3 + 3/16 - 1) = -29/16; x = 37/32.
    Round 3, r = 0: y: 3/16 -> 43/64 -> 117/128;  (1/2) (117/128 + 117/128 - 3) = -75/128.
    """
    problem = obax.Problem(lambda x, y, r: 0.5 * (y - r) ** 2, lambda x, y, r: 0.5 * (y - x) ** 2)
    for curvature in ("own", "current"):
        window = obax.Window(2, curvature=curvature)
        algorithm = obax.OAGD(problem, 0.5, 0.5, 2, window, hg.Dense())
        state = algorithm.init(0.0, 0.0, jnp.zeros(()))
        step, seen = eqx.filter_jit(algorithm.step), []
        for r in (1.0, 3.0, 0.0):
            state, _ = step(state, jnp.asarray(r))
            seen.append((float(state.inner_var), float(state.outer_var)))
        x2 = 0.25 + 29 / 32
        y2 = 0.1875 + (x2 - 0.1875) * 0.75
        x3 = x2 - 0.25 * (2 * y2 - 3)
        np.testing.assert_allclose(seen, [(0.0, 0.25), (0.1875, x2), (y2, x3)], rtol=1e-14)


WINDOWS = {
    "w=1": {},
    "own": {"window": 2},
    "current": {"window": 2, "curvature": "current"},
    "own-seen-decay": {"window": 3, "decay": 0.5, "normalise": "seen"},
    "current-seen-decay": {
        "window": 3,
        "decay": 0.5,
        "normalise": "seen",
        "curvature": "current",
    },
    "own-full-decay": {"window": 3, "decay": 0.5},
    "longer-than-the-stream": {"window": 9, "decay": 0.9},
    "window-own": {"window": 3, "decay": 0.5, "follower": "window"},
    "window-current": {"window": 3, "follower": "window", "curvature": "current"},
    "each": {"window": 3, "decay": 0.5, "follower": "each"},
    "each-seen": {"window": 2, "follower": "each", "normalise": "seen"},
    "average-own": {"window": 3, "decay": 0.5, "follower": "average"},
    "average-seen": {"window": 3, "decay": 0.5, "follower": "average", "normalise": "seen"},
    "average-current": {"window": 3, "follower": "average", "curvature": "current"},
}


@pytest.mark.parametrize("name", WINDOWS)
def test_algorithm_1(name):
    options = dict(WINDOWS[name])
    size, decay = options.pop("window", 1), options.pop("decay", 1.0)
    algorithm = obax.OAGD(PROBLEM, 0.1, 0.2, 2, obax.Window(size, decay, **options), hg.Dense())
    _, info = assert_plays(algorithm, np_oagd(**WINDOWS[name]))
    seen = min(T, size)
    inner_gradients = 2 if options.get("follower", "current") == "current" else 2 * seen
    assert int(info.gradients) == seen + inner_gradients
    solves = 1 if options.get("curvature") == "current" else seen
    assert int(info.cross_products) == solves
    assert int(info.hvps) == solves * D2
    assert float(info.solver_residual) < 1e-12


def test_curvatures_coincide_when_g_does_not_change():
    rounds = [{**r, "A": ROUNDS[0]["A"], "B": ROUNDS[0]["B"]} for r in ROUNDS]
    expected = np_oagd(window=3, curvature="current", rounds=rounds)
    own = obax.OAGD(PROBLEM, 0.1, 0.2, 2, obax.Window(3), hg.Dense())
    assert_plays(own, expected, rounds)


def test_info_is_of_the_round_that_was_played():
    algorithm = obax.OAGD(PROBLEM, 0.1, 0.2, 2, hypergradient=hg.Dense())
    state = algorithm.init(X1, Y1, ROUNDS[0])
    r = ROUNDS[0]
    new, info = eqx.filter_jit(algorithm.step)(state, r)
    y2 = np.asarray(new.inner_var)
    np.testing.assert_allclose(info.played_value, outer(X1, Y1, r), rtol=1e-12)
    np.testing.assert_allclose(info.outer_value, outer(X1, y2, r), rtol=1e-12)
    np.testing.assert_allclose(info.inner_value, inner(X1, y2, r), rtol=1e-12)
    np.testing.assert_allclose(
        info.inner_gradient_norm, np.linalg.norm(np_slope(X1, y2, r)), rtol=1e-10
    )


# --- schedules ------------------------------------------------------------------------------------


def test_schedules_count_from_one():
    expected = np_oagd(
        window=2,
        alpha=lambda t: 0.3 / t,
        beta=lambda t: 0.2 / np.sqrt(t),
        steps=lambda t: 1 + t // 2,
    )
    algorithm = obax.OAGD(
        PROBLEM,
        lambda t: 0.3 / t.astype(float),
        lambda t: 0.2 / jnp.sqrt(t.astype(float)),
        lambda t: 1 + t // 2,
        obax.Window(2),
        hg.Dense(),
    )
    assert_plays(algorithm, expected)


def test_growing_steps_are_traced_once():
    traces = []

    def counted(x, y, r):
        traces.append(1)
        return outer(x, y, r)

    problem = obax.Problem(counted, inner)
    algorithm = obax.OAGD(problem, 0.1, 0.2, lambda t: t * t, hypergradient=hg.Dense())
    playing = obax.play(algorithm, algorithm.init(X1, Y1, ROUNDS[0]), ROUNDS)
    _, info = next(playing)
    assert int(info.gradients) == 1 + 1
    before = len(traces)
    for t, (_, info) in enumerate(playing, start=2):
        assert int(info.gradients) == 1 + t * t
    assert len(traces) == before


def test_the_number_of_steps_can_be_an_array():
    expected = np_oagd(steps=lambda t: 3)
    algorithm = obax.OAGD(PROBLEM, 0.1, 0.2, jnp.asarray(3), hypergradient=hg.Dense())
    assert_plays(algorithm, expected)


# --- optax ----------------------------------------------------------------------------------------


def test_sgd_is_the_plain_step():
    expected = np_oagd(window=2)
    for sizes, scale in (((None, None), (0.1, 0.2)), ((0.1, 0.2), (1.0, 1.0))):
        algorithm = obax.OAGD(
            PROBLEM,
            *sizes,
            2,
            obax.Window(2),
            hg.Dense(),
            outer_optimiser=optax.sgd(scale[0]),
            inner_optimiser=optax.sgd(scale[1]),
        )
        assert_plays(algorithm, expected)


def test_momentum_and_weight_decay_on_both_levels():
    """Both transformations carry their state over rounds; weight decay sees the variable."""
    beta, alpha, mu, decay = 0.1, 0.05, 0.9, 1e-2
    x, y, mx, my = X1, Y1, np.zeros(D1), np.zeros(D2)
    for r in ROUNDS:
        for _ in range(2):
            my = np_slope(x, y, r) + decay * y + mu * my
            y = y - beta * my
        mx = np_term(x, y, r, r) + decay * x + mu * mx
        x = np.clip(x - alpha * mx, -0.5, 0.5)

    def optimiser(size):
        return optax.chain(optax.add_decayed_weights(decay), optax.sgd(size, momentum=mu))

    algorithm = obax.OAGD(
        PROBLEM,
        inner_steps=2,
        hypergradient=hg.Dense(),
        outer_optimiser=optimiser(alpha),
        inner_optimiser=optimiser(beta),
    )
    state = algorithm.init(X1, Y1, ROUNDS[0])
    state, _ = obax.run(algorithm, state, stacked(ROUNDS))
    np.testing.assert_allclose(state.outer_var, x, rtol=1e-10)
    np.testing.assert_allclose(state.inner_var, y, rtol=1e-10)


def stacked(rounds):
    return jax.tree.map(lambda *leaves: np.stack(leaves), *rounds)


def test_a_rejected_round_reverts_the_optimisers_too():
    algorithm = obax.OAGD(
        PROBLEM, inner_steps=2, outer_optimiser=optax.adam(0.1), inner_optimiser=optax.adam(0.1)
    )
    state = algorithm.init(X1, Y1, ROUNDS[0])
    bad = {**ROUNDS[1], "c": np.full(D2, np.nan)}
    after, history = obax.run(
        algorithm, state, stacked([ROUNDS[0], bad]), on_rejected="skip", record=lambda s: s
    )
    assert history.accepted.tolist() == [True, False]
    assert int(after.outer_optimiser[0].count) == 1
    assert int(after.inner_optimiser[0].count) == 2
    jax.tree.map(lambda leaf: np.testing.assert_array_equal(leaf[0], leaf[1]), history.recorded)


# --- buffers, starts, leaves ----------------------------------------------------------------------


def test_buffers_are_passed_on_and_reverted():
    """The follower's target is x plus the buffer, which counts the calls of g."""

    def inner(x, y, r, b):
        return 0.5 * (y - x - b["n"]) ** 2, {"n": b["n"] + r}

    def outer(x, y, r, b):
        return 0.5 * (y - 10.0 * b["n"]) ** 2

    problem = obax.Problem(outer, inner, has_buffers=True)
    algorithm = obax.OAGD(problem, 0.1, 0.5, 2, hypergradient=hg.Dense())
    state = algorithm.init(0.0, 0.0, jnp.zeros(()), buffers={"n": 0.0})
    step = eqx.filter_jit(algorithm.step)
    new, info = step(state, jnp.asarray(1.0))
    # y: 0 -> 0 (buffer 0) -> 1/2 (buffer 1); buffer 2 afterwards, where f = (1/2 - 20)^2 / 2.
    assert float(new.inner_var) == 0.5
    assert float(new.buffers["n"]) == 2.0
    np.testing.assert_allclose(info.played_value, 0.0)
    np.testing.assert_allclose(info.outer_value, 0.5 * 19.5**2)
    np.testing.assert_allclose(info.inner_value, 0.5 * 1.5**2)
    np.testing.assert_allclose(new.outer_var, 0.1 * 19.5)
    rejected, info = step(new, jnp.asarray(jnp.inf))
    assert not info.accepted
    assert float(rejected.buffers["n"]) == 2.0
    # A buffer alone that is not finite is rejected as well.
    huge = eqx.tree_at(lambda s: s.buffers["n"], state, jnp.asarray(1.7e308))
    rejected, info = step(huge, jnp.asarray(1.7e308))
    assert not info.accepted
    assert float(rejected.buffers["n"]) == 1.7e308


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_random_keys_and_integers_in_rounds(impl):
    """A key that the loss makes a number of, and an index into a table. The bits of the key and not
    a draw: `rbg` draws other numbers under `vmap`, which is how a window is evaluated."""
    table = np.array([0.0, 1.0, 4.0])

    def noise_of(key):
        return (jax.random.key_data(key)[-1] % 997).astype(float) / 997

    def outer(x, y, r):
        return 0.5 * (y - noise_of(r["key"])) ** 2

    def inner(x, y, r):
        return 0.5 * (y - x - jnp.asarray(table)[r["index"]]) ** 2

    problem = obax.Problem(outer, inner)
    algorithm = obax.OAGD(problem, 0.1, 0.5, 1, obax.Window(2), hg.Dense())
    keys = jax.random.split(jax.random.key(5, impl=impl), 3)
    rounds = {"key": keys, "index": jnp.array([2, 0, 1])}
    state = algorithm.init(0.0, 0.0, jax.tree.map(lambda leaf: leaf[0], rounds))
    end, _ = obax.run(algorithm, state, rounds)
    noise = np.array([float(noise_of(key)) for key in keys])
    x, y = 0.0, 0.0
    for t in range(3):
        y = y - 0.5 * (y - x - table[[2, 0, 1][t]])
        past = 0.0 if t == 0 else y - noise[t - 1]
        x = x - 0.1 * (y - noise[t] + past) / 2
    np.testing.assert_allclose(end.outer_var, x, rtol=1e-10)
    np.testing.assert_allclose(end.inner_var, y, rtol=1e-10)
    played = [
        s
        for s, _ in obax.play(
            algorithm, state, [jax.tree.map(lambda leaf, t=t: leaf[t], rounds) for t in range(3)]
        )
    ]
    np.testing.assert_allclose(played[-1].outer_var, x, rtol=1e-10)


@pytest.mark.parametrize("follower", ["current", "window", "each", "average"])
def test_inner_start(follower):
    def start(x):
        return np.array([1.0, 2.0, 3.0]) * x.sum()

    problem = obax.Problem(
        outer, inner, obax.Box(-0.5, 0.5), inner_start=lambda x: jnp.arange(1.0, 4.0) * jnp.sum(x)
    )
    algorithm = obax.OAGD(problem, 0.1, 0.2, 2, obax.Window(2, follower=follower), hg.Dense())
    assert_plays(algorithm, np_oagd(window=2, follower=follower, start=start))


def test_leaves_are_one_vector():
    """Splitting x and y into leaves changes nothing."""

    def join(x, y):
        return jnp.append(x["a"], x["b"]), jnp.concatenate([y[0], y[1]["c"]])

    problem = obax.Problem(
        lambda x, y, r: outer(*join(x, y), r),
        lambda x, y, r: inner(*join(x, y), r),
        obax.Box(-0.5, 0.5),
    )
    x = {"a": X1[0], "b": jnp.asarray(X1[1:])}
    y = (jnp.asarray(Y1[:1]), {"c": jnp.asarray(Y1[1:])})
    for estimator in (hg.Dense(), hg.CG(), hg.Nystrom(3, damping=1e-6), hg.GMRES()):
        algorithm = obax.OAGD(problem, 0.1, 0.2, 2, obax.Window(2), estimator)
        state = algorithm.init(x, y, ROUNDS[0])
        state, _ = obax.run(algorithm, state, stacked(ROUNDS))
        wanted, _, _ = np_oagd(window=2)
        got = np.append(state.outer_var["a"], state.outer_var["b"])
        # Nystrom: a damping of 1e-6.
        loose = isinstance(estimator, hg.Nystrom)
        np.testing.assert_allclose(got, wanted, atol=1e-5 if loose else 1e-11)


def test_warm_start_saves_products():
    products = []
    for warm in (False, True):
        estimator = hg.CG(rtol=1e-4, atol=1e-4, warm_start=warm)
        for window in (obax.Window(1), obax.Window(3), obax.Window(3, curvature="current")):
            # One round repeated until nothing moves any more: the last v is then the answer.
            algorithm = obax.OAGD(PROBLEM, 1e-8, 0.4, 5, window, estimator)
            state = algorithm.init(X1, Y1, ROUNDS[0])
            _, history = obax.run(algorithm, state, stacked([ROUNDS[0]] * 30))
            products.append(int(history.hvps[-1]))
    cold, warm = products[:3], products[3:]
    assert all(w < c for w, c in zip(warm, cold, strict=True))


def test_single_precision_follows_double():
    def single(tree):
        return jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), tree)

    ends = []
    for cast in (single, lambda tree: tree):
        algorithm = obax.OAGD(PROBLEM, 0.1, 0.2, 2, obax.Window(3))
        state = algorithm.init(cast(X1), cast(Y1), cast(ROUNDS[0]))
        state, history = obax.run(algorithm, state, cast(stacked(ROUNDS)))
        ends.append(np.asarray(state.outer_var))
        assert history.solver_residual.max() < 1e-5
    assert ends[0].dtype == np.float32
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-4)


def test_an_infinite_hypergradient_is_rejected_even_where_the_box_would_hide_it():
    problem = obax.Problem(
        lambda x, y, r: r * x * 1e200 + y, lambda x, y, r: 0.5 * (y - x) ** 2, obax.Box(-1.0, 1.0)
    )
    algorithm = obax.OAGD(problem, 0.1, 0.1, 1)
    state = algorithm.init(0.0, 0.0, jnp.zeros(()))
    new, info = eqx.filter_jit(algorithm.step)(state, jnp.asarray(1e200))
    assert not info.accepted
    assert float(new.outer_var) == 0.0


# --- complaints -----------------------------------------------------------------------------------

ALONE = obax.Problem(lambda x, y, r: jnp.sum(x**2))
COMPLAINTS = [
    (lambda: obax.OAGD(PROBLEM, 0.0, 0.1), "outer_step_size must be a number > 0, but got 0.0"),
    (lambda: obax.OAGD(PROBLEM, -1, 0.1), "outer_step_size must be a number > 0, but got -1"),
    (lambda: obax.OAGD(PROBLEM, 0.1, -0.1), "inner_step_size must be a number > 0, but got -0.1"),
    (lambda: obax.OAGD(PROBLEM, np.nan, 0.1), "outer_step_size must be finite, but got nan"),
    (lambda: obax.OAGD(PROBLEM, "0.1", 0.1), "outer_step_size must be a number, but got '0.1'"),
    (lambda: obax.OAGD(PROBLEM, True, 0.1), "outer_step_size must be a number, but got True"),
    (lambda: obax.OAGD(PROBLEM, [0.1, 0.2], 0.1), r"outer_step_size must be one number.*\(2,\)"),
    (lambda: obax.OAGD(PROBLEM, 0.1, 0.1, 0), "inner_steps must be an integer >= 1, but got 0"),
    (lambda: obax.OAGD(PROBLEM, 0.1, 0.1, 2.0), "inner_steps must be an integer >= 1.*2.0"),
    (
        lambda: obax.OAGD(PROBLEM, 0.1, 0.1, jnp.asarray(2.0)),
        "inner_steps must be an integer >= 1, but its dtype is float64",
    ),
    (
        lambda: obax.OAGD(PROBLEM, 0.1, 0.1, jnp.asarray(0)),
        "inner_steps must be an integer >= 1, but got 0",
    ),
    (lambda: obax.OAGD(PROBLEM, 0.1, 0.1, jnp.array([1, 2])), "inner_steps must be .*integer"),
    (
        lambda: obax.OAGD(PROBLEM, 0.1, 0.1, outer_optimiser="adam"),
        "outer_optimiser must be an optax.GradientTransformation.*'adam'",
    ),
    (
        lambda: obax.OAGD(PROBLEM, 0.1, 0.1, inner_optimiser=0.1),
        "inner_optimiser must be an optax.GradientTransformation.*0.1",
    ),
    (lambda: obax.OAGD(ALONE, 0.1, 0.1), "inner_step_size and inner_optimiser must be left out"),
    (
        lambda: obax.OAGD(PROBLEM, 0.1, 0.1, lambda t: t, hypergradient=hg.Unrolled()),
        r"inner_steps must be a fixed int with hypergradient=Unrolled\(\)",
    ),
    (
        lambda: obax.OAGD(PROBLEM, 0.1, 0.1, jnp.asarray(2), hypergradient=hg.Unrolled()),
        r"inner_steps must be a fixed int with hypergradient=Unrolled\(\)",
    ),
    (
        lambda: obax.OAGD(PROBLEM, 0.1, 0.1, 2, obax.Window(2), hg.Unrolled()),
        r"window.curvature must be 'current' with hypergradient=Unrolled\(\)",
    ),
    (
        lambda: step_with(inner_steps=lambda t: 0.5 * t.astype(float)),
        r"inner_steps must be an integer >= 1, but its dtype is float64.*t = 1; jnp\.ceil",
    ),
    (
        lambda: step_with(inner_steps=lambda t: jnp.stack([t, t])),
        r"inner_steps must be an integer >= 1, but its .*int32 and its shape \(2,\) at t = 1",
    ),
    (
        lambda: obax.OAGD(PROBLEM, 0.1, 0.1).init(X1 + 1.0, Y1, ROUNDS[0]),
        r"outer_var must start in the domain Box.*domain.project\(outer_var\) = \[0.5 0.5\]",
    ),
]


def step_with(**options):
    algorithm = obax.OAGD(PROBLEM, 0.1, 0.1, **options)
    return algorithm.step(algorithm.init(X1, Y1, ROUNDS[0]), ROUNDS[0])


@pytest.mark.parametrize(("make", "message"), COMPLAINTS)
def test_complaints(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"window": 100}, r"window must be an obax\.Window"),
        ({"hypergradient": "cg"}, "hypergradient must be an estimator"),
    ],
)
def test_numbers_and_words_in_place_of_objects_are_named(arguments, message):
    problem = obax.Problem(lambda x, y, r: y**2, lambda x, y, r: (y - x) ** 2)
    with pytest.raises(ValueError, match=message):
        obax.OAGD(problem, 0.1, 0.1, **arguments)
    with pytest.raises(ValueError, match=r"problem must be an obax\.Problem"):
        obax.OAGD(None, 0.1, 0.1)


def test_a_start_that_is_not_finite_is_rejected():
    problem = obax.Problem(lambda x, y, r: y**2, lambda x, y, r: (y - x) ** 2)
    algorithm = obax.OAGD(problem, 0.1, 0.1)
    with pytest.raises(ValueError, match="inner_var must be finite"):
        algorithm.init(0.0, float("nan"), jnp.zeros(()))
    with pytest.raises(ValueError, match="outer_var must be finite"):
        algorithm.init(float("inf"), 0.0, jnp.zeros(()))


def test_step_sizes_can_be_read_off():
    problem = obax.Problem(lambda x, y, r: y**2, lambda x, y, r: (y - x) ** 2)
    algorithm = obax.OAGD(problem, 0.25, 0.5)
    assert (algorithm.outer_step_size, algorithm.inner_step_size) == (0.25, 0.5)
