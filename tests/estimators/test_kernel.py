"""The mathematics of a row in the kernel, against closed forms, the generic machinery of obax and
finite differences."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import obax
from obax.estimators.history import Record
from obax.estimators.kernel import ACCEPTED, LOSS, OUTCOME, SAID, Plan, kernel, layout, losses
from obax.problems import RowsBefore, StreamRow, stream_row

pytestmark = pytest.mark.usefixtures("quick_compilation")
FEATURES = 3
ALL = ("penalty", "inertia", "memory", "class_weights", "logit_shifts")
CASES = {  # loss, classes, target
    "sigmoid": ("logistic", 2, 1.0),
    "softmax": ("logistic", 4, 2.0),
    "squared": ("squared", 0, 0.7),
    "huber": ("huber", 0, 3.0),
}
HOLD = (0.0, 1.0, 1e9, 0.5, 0.0)
"""A leader that stands still and forgets nothing; delta 0.5; shares by likelihood alone."""
ALPHA = 0.05


def play(plan, vector, rows, targets, settings=HOLD):
    """Learn rows; the vector after them and, of each, the loss before."""
    vector, rows = vector.copy(), np.atleast_2d(rows)
    out = np.zeros((len(rows), SAID + max(1, plan.slots)))
    lines = np.column_stack([rows, targets, np.ones(len(rows))])
    record = Record(plan.trail).data
    kernel()(vector, record, plan.work(settings), plan.sizes, lines, out)
    assert (out[:, OUTCOME] == ACCEPTED).all()
    return vector, out[:, LOSS]


def draw(name, *, per_feature=False, steps=0, seed=0):
    """A plan, a vector drawn at random in which rows stand as they are, and a row."""
    loss, classes, target = CASES[name]
    learned = ALL if classes else ALL[:3]
    plan = Plan(FEATURES, loss, classes, learned, per_feature, steps=steps)
    rng = np.random.default_rng(seed)
    vector = plan.start({})
    part = plan.parts(vector)
    part["x"][:] = 0.5 * rng.standard_normal(plan.width)
    # Where the kernel's leader may be: a memory is no less than a row.
    part["x"][slice(*plan.spans["memory"])] **= 2
    part["weights"][:] = rng.standard_normal(part["weights"].shape)
    for which in ("curvature", "curvature_slope"):
        roots = rng.standard_normal(part[which].shape)
        part[which][:] = roots @ roots.swapaxes(-1, -2)
    part["sensitivity"][:] = 0.1 * rng.standard_normal(part["sensitivity"].shape)
    as_they_are(plan, vector)
    return plan, vector, rng.standard_normal(FEATURES), target


def stated(plan, vector, **options):
    """The same as RTHO on its problem, and its state."""
    part = {name: jnp.array(value) for name, value in plan.parts(vector).items()}
    problem = stream_row(
        plan.loss,
        classes=plan.slots or 2,
        penalties=FEATURES if plan.per_feature else 1,
        delta=HOLD[3],
    )
    algorithm = obax.RTHO(problem, ALPHA, proximal=problem.tie, **options)
    past = RowsBefore(part["curvature"][0], part["curvature_slope"])
    round = as_round(np.zeros(FEATURES), 0.0)
    state = algorithm.init(part["x"], part["weights"][0], round, buffers=past)
    moved = state.sensitivity._replace(inner_var=part["sensitivity"])
    return algorithm, dataclasses.replace(state, sensitivity=moved)


def as_round(row, target):
    return StreamRow(*(jnp.asarray(value) for value in (np.append(row, 1.0), float(target), 1.0)))


def slopes(plan, before, after):
    """The hypergradient of a row, of which the kernel keeps a running mean."""
    old, new = plan.parts(before)["mean"], plan.parts(after)["mean"]
    return (new - 0.9 * old) / 0.1


def agrees(plan, vector, state, **tolerance):
    """The kernel after some rows, and RTHO."""
    part = plan.parts(vector)
    pairs = (
        (part["x"], state.outer_var),
        (part["weights"][0], state.inner_var),
        (part["sensitivity"], state.sensitivity.inner_var),
        (part["curvature"][0], state.buffers.curvature),
        (part["curvature_slope"], state.buffers.curvature_slope),
    )
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours, theirs, **tolerance)


def follow(plan, vector, rows, targets, fading=1.0):
    """The kernel, its leader led by plain gradient steps: after each row, and the losses."""
    played, lost = [], []
    for row, target in zip(rows, targets, strict=True):
        as_they_are(plan, vector)
        after, loss = play(plan, vector, row, target, (HOLD[0], fading, *HOLD[2:]))
        plan.parts(after)["x"][plan.entries] -= ALPHA * slopes(plan, vector, after)
        vector = after
        played.append(after)
        lost.append(loss[0])
    return played, lost


def as_they_are(plan, vector):
    """Statistics that leave rows and targets as they are."""
    part = plan.parts(vector)
    for name in ("counts", "averages", "target_count", "target_average"):
        part[name][...] = 0
    part["variances"][:] = part["target_variance"][...] = 1


@pytest.mark.parametrize("name", CASES)
def test_a_row_is_a_round_of_rtho_with_the_proximal_step(name):
    """From anywhere: weights, curvature and sensitivity drawn at random, and a penalty for each
    feature. One for all has the stream below."""
    plan, vector, row, target = draw(name, per_feature=True)
    (after,), losses = follow(plan, vector, row[None], [target])
    algorithm, state = stated(plan, vector)
    state, info = eqx.filter_jit(algorithm.step)(state, as_round(row, target))
    np.testing.assert_allclose(info.played_value, losses[0], rtol=1e-10)
    assert np.abs(plan.parts(after)["x"] - plan.parts(vector)["x"]).max() > 1e-4
    agrees(plan, after, state, rtol=1e-9, atol=1e-11)


def stream(name):
    """A start and 30 rows, targets of both sides of Huber's corner among them."""
    loss, classes, _ = CASES[name]
    learned = ALL if classes else ALL[:3]
    plan = Plan(FEATURES, loss, classes, learned)
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((30, FEATURES))
    targets = rows @ np.array([1.0, -0.5, 0.0]) + 0.5 * rng.standard_normal(30)
    if classes:
        targets = np.digitize(targets, [0.0] if classes == 2 else [-1.0, 0.0, 1.0]).astype(float)
    return plan, plan.start({"penalty": 0.1, "memory": 8.0, "inertia": 0.5}), rows, targets


def hold_to_rtho(name, fading=0.9):
    """A stream from its first row, the leader moving in every one: the kernel plays RTHO's game."""
    plan, vector, rows, targets = stream(name)
    algorithm, state = stated(plan, vector, horizon=10.0)
    played, lost = follow(plan, vector, rows, targets, fading)
    rounds = [as_round(row, target) for row, target in zip(rows, targets, strict=True)]
    rounds = jax.tree.map(lambda *leaves: jnp.stack(leaves), *rounds)
    _, history = obax.run(algorithm, state, rounds, record=lambda state: state)
    np.testing.assert_allclose(history.played_value, lost, rtol=1e-8)
    for t, vector in enumerate(played):
        after = jax.tree.map(lambda leaf, t=t: leaf[t], history.recorded)
        agrees(plan, vector, after, rtol=1e-8, atol=1e-8)
    assert np.abs(plan.parts(vector)["x"] - plan.parts(played[0])["x"]).max() > 0.01


@pytest.mark.parametrize("name", CASES)
def test_a_stream_is_the_trajectory_of_rtho(name):
    hold_to_rtho(name)


def test_a_kernel_that_fades_otherwise_is_caught():
    with pytest.raises(AssertionError):
        hold_to_rtho("squared", fading=0.91)


def test_the_root_of_a_row_is_found_whatever_its_variance():
    """z* = z0 + v pull(z*). With large v, plain Newton steps go to and fro between the flat ends of
    the sigmoid (from z0 = 3.53 with v = 16.1, for ever); 12 of them left the weights of elec2 far
    from their minimum."""
    rng = np.random.default_rng(0)
    cases = [(3.5327480755746477, 16.123124874357703), (40.0, 1e4), (-40.0, 30.0)]
    cases += zip(20 * rng.standard_normal(300), 10 ** rng.uniform(-6, 4, 300), strict=True)
    for start, variance in cases:
        for target in (0.0, 1.0):
            p, pull, shift = (np.zeros(1) for _ in range(3))
            z0 = np.array([start])
            losses.proximal(layout.SIGMOID, z0, variance, target, 1.0, shift, 0.0, p, pull)
            assert losses.sigmoid(start + variance * pull[0]) == pytest.approx(p[0], abs=1e-9)
        p, pull, shift = (np.zeros(3) for _ in range(3))
        z0 = start * rng.standard_normal(3)
        losses.proximal(layout.SOFTMAX, z0, variance, 2.0, 1.0, shift, 0.0, p, pull)
        there = np.zeros(3)
        losses.softmax(z0 + variance * pull, shift, there)
        np.testing.assert_allclose(there, p, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_conjugate_gradients_agree_with_cholesky_factors(name):
    plan, vector, row, target = draw(name)
    by_cg = draw(name, steps=FEATURES + 1)[0]
    exact, close = (play(one, vector, row, target)[0] for one in (plan, by_cg))
    np.testing.assert_allclose(close, exact, rtol=1e-9, atol=1e-11)
    rough = play(draw(name, steps=1)[0], vector, row, target)[0]
    assert np.abs(rough - exact).max() > 1e-6


def test_squared_loss_without_ties_is_weighted_least_squares():
    """With next to no penalty and inertia: recursive least squares with forgetting, exactly."""
    plan = Plan(3, "squared", learned=())
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((40, 3)).clip(-2, 2), rng.standard_normal(40)
    vector = plan.start({})
    part = plan.parts(vector)
    part["x"][:] = np.log([1e-14, 1e-9, 9.0])  # forgetting 0.9
    for row, target in zip(a, b, strict=True):
        as_they_are(plan, vector)
        vector[:] = play(plan, vector, row, target)[0]
    weights = 0.9 ** np.arange(39, -1, -1)
    wide = np.column_stack([a, np.ones(40)])
    expected = np.linalg.solve((wide.T * weights) @ wide, (wide.T * weights) @ b)
    np.testing.assert_allclose(part["weights"][0, 0], expected, rtol=1e-6)


def test_hypergradient_of_a_whole_stream_against_finite_differences():
    """The leader's slope in each round is d(loss of that row)/dx with the same x in every round
    before; exact where the curvature does not depend on the weights, as for squared loss."""
    plan = Plan(4, "squared")
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((25, 4))
    targets = rows @ rng.standard_normal(4) + rng.standard_normal(25)
    begin = plan.start({"penalty": 0.1, "memory": 8.0, "inertia": 0.5})

    def losses_at(shift):
        vector = begin.copy()
        plan.parts(vector)["x"][:] += shift
        return play(plan, vector, rows, targets)[1]

    vector, ours = begin, []
    for row, target in zip(rows, targets, strict=True):
        before, vector = vector, play(plan, vector, row, target)[0]
        ours.append(slopes(plan, before, vector))
    eps = 1e-6
    numeric = [(losses_at(eps * e) - losses_at(-eps * e)) / (2 * eps) for e in np.eye(3)]
    np.testing.assert_allclose(ours, np.stack(numeric, axis=1), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", CASES)
def test_the_guard_writes_nothing_of_a_row_that_would_end_in_nan(name):
    """A mutant state: a sensitivity so large that the next one overflows."""
    plan, vector, row, target = draw(name)
    plan.parts(vector)["sensitivity"][0, 0, 0] = 1e308
    before, record = vector.copy(), Record(plan.trail).data
    out = np.zeros((1, SAID + max(1, plan.slots)))
    lines = np.array([[*row, target, 1.0]])
    kernel()(vector, record, plan.work(HOLD), plan.sizes, lines, out)
    assert out[0, OUTCOME] != ACCEPTED
    np.testing.assert_array_equal(vector, before)
    assert record[3] == 0
