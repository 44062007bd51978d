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
from obax.estimators.kernel import (
    ACCEPTED,
    LOSS,
    OUTCOME,
    SAID,
    Plan,
    algebra,
    kernel,
    layout,
    losses,
)
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
ALPHA, STILL = 0.05, 1e-13
"""Steps of the leader: one that is seen, and one that leaves it where it is."""


def play(plan, vector, rows, targets, settings=HOLD, weight=1.0):
    """Learn rows; the vector after them and, of each, the loss before."""
    vector, rows = vector.copy(), np.atleast_2d(rows)
    out = np.zeros((len(rows), SAID + max(1, plan.slots)))
    lines = np.column_stack([rows, targets, np.full(len(rows), weight)])
    record = Record(plan.trail).data
    kernel()(vector, record, plan.work(settings), plan.sizes, lines, out)
    assert (out[:, OUTCOME] == ACCEPTED).all()
    return vector, out[:, LOSS]


def draw(name, *, per_feature=False, seed=0):
    """A plan, a vector drawn at random in which rows stand as they are, and a row."""
    loss, classes, target = CASES[name]
    learned = ALL if classes else ALL[:3]
    plan = Plan(FEATURES, loss, classes, learned, per_feature)
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


def stated(plan, vector, alpha=ALPHA, **options):
    """The same as RTHO on its problem, and its state."""
    part = {name: jnp.array(value) for name, value in plan.parts(vector).items()}
    problem = stream_row(
        plan.loss,
        classes=plan.slots or 2,
        penalties=FEATURES if plan.per_feature else 1,
        delta=HOLD[3],
    )
    algorithm = obax.RTHO(problem, alpha, proximal=problem.tie, **options)
    past = RowsBefore(part["curvature"][0])
    round = as_round(np.zeros(FEATURES), 0.0)
    state = algorithm.init(part["x"], part["weights"][0], round, buffers=past)
    tilts = RowsBefore(jnp.asarray(tilts_of(plan, vector, vector)))
    moved = state.sensitivity._replace(inner_var=part["sensitivity"], buffers=tilts)
    return algorithm, dataclasses.replace(state, sensitivity=moved)


def tilts_of(plan, vector, before):
    """d curvature / dx, where x stood before the row. Along memory the kernel keeps that along the
    forgetting factor."""
    part, at = plan.parts(vector), plan.spans["memory"][0]
    found = np.zeros((plan.width, FEATURES + 1, FEATURES + 1))
    found[plan.entries[plan.plain :]] = part["curvature_slope"]
    memory = np.exp(plan.parts(before)["x"][at])
    found[at] *= memory / (1 + memory) ** 2
    return found


def as_round(row, target, weight=1.0):
    values = (np.append(row, 1.0), float(target), weight, weight)
    return StreamRow(*(jnp.asarray(value) for value in values))


def slopes(plan, before, after):
    """The hypergradient of a row, of which the kernel keeps a running mean."""
    old, new = plan.parts(before)["mean"], plan.parts(after)["mean"]
    return (new - 0.9 * old) / 0.1


def agrees(plan, vector, before, state, **tolerance):
    """The kernel after some rows, and RTHO."""
    part, known = plan.parts(vector), np.array(state.sensitivity.buffers.curvature)
    # What the kernel neglects.
    known[plan.entries[: plan.plain]] = 0.0
    pairs = (
        (part["x"], state.outer_var),
        (part["weights"][0], state.inner_var),
        (part["sensitivity"], state.sensitivity.inner_var),
        (part["curvature"][0], state.buffers.curvature),
        (tilts_of(plan, vector, before), known),
    )
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours, theirs, **tolerance)


def follow(plan, vector, rows, targets, fading=1.0, alpha=ALPHA, weight=1.0):
    """The kernel, its leader led by plain gradient steps: after each row, the losses, and the sizes
    of the slopes."""
    played, lost, sizes = [], [], []
    for row, target in zip(rows, targets, strict=True):
        as_they_are(plan, vector)
        after, loss = play(plan, vector, row, target, (HOLD[0], fading, *HOLD[2:]), weight)
        slope = slopes(plan, vector, after)
        plan.parts(after)["x"][plan.entries] -= alpha * slope
        sizes.append(np.linalg.norm(slope))
        vector = after
        played.append(after)
        lost.append(loss[0])
    return played, lost, sizes


def as_they_are(plan, vector):
    """Statistics that leave rows and targets as they are."""
    part = plan.parts(vector)
    for name in ("counts", "averages", "target_count", "target_average", "aside", "target_aside"):
        part[name][...] = 0
    part["variances"][:] = part["target_variance"][...] = 1


@pytest.mark.parametrize("name", CASES)
def test_a_row_is_a_round_of_rtho_with_the_proximal_step(name):
    """From anywhere: weights, curvature and sensitivity drawn at random, and a penalty for each
    feature. One for all has the stream below."""
    plan, vector, row, target = draw(name, per_feature=True)
    (after,), losses, _ = follow(plan, vector, row[None], [target])
    algorithm, state = stated(plan, vector)
    state, info = eqx.filter_jit(algorithm.step)(state, as_round(row, target))
    np.testing.assert_allclose(info.played_value, losses[0], rtol=1e-10)
    assert np.abs(plan.parts(after)["x"] - plan.parts(vector)["x"]).max() > 1e-4
    agrees(plan, after, vector, state, rtol=1e-9, atol=1e-11)


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
    """A stream from its first row: the kernel plays RTHO's game."""
    plan, vector, rows, targets = stream(name)
    algorithm, state = stated(plan, vector, STILL, horizon=10.0)
    played, lost, sizes = follow(plan, vector, rows, targets, fading, STILL)
    rounds = [as_round(row, target) for row, target in zip(rows, targets, strict=True)]
    rounds = jax.tree.map(lambda *leaves: jnp.stack(leaves), *rounds)
    _, history = obax.run(algorithm, state, rounds, record=lambda state: state)
    np.testing.assert_allclose(history.played_value, lost, rtol=1e-8)
    np.testing.assert_allclose(history.hypergradient_norm, sizes, rtol=1e-7, atol=1e-9)
    for t, vector in enumerate(played):
        after = jax.tree.map(lambda leaf, t=t: leaf[t], history.recorded)
        agrees(plan, vector, vector, after, rtol=1e-8, atol=1e-8)


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


def test_inverses_are_inverses_and_what_is_not_definite_has_none():
    rng = np.random.default_rng(0)
    for d in (1, 2, 3, 8, 9):
        roots = rng.standard_normal((d, 2 * d))
        matrix, room = roots @ roots.T, np.empty((2, d))
        found = matrix.copy()
        assert algebra.invert(found, *room)
        np.testing.assert_allclose(found @ matrix, np.eye(d), atol=1e-9)
        np.testing.assert_array_equal(found, found.T)
        vectors = np.linalg.eigh(matrix)[1]
        for bad in range(d):
            values = np.where(np.arange(d) == bad, -1.0, 1.0)
            assert not algebra.invert(vectors * values @ vectors.T, *room)


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


def slopes_of_a_stream(name, spoil=lambda part: None):
    """Of each row and learned entry of x: the kernel's hypergradient, and d(loss of that row)/dx by
    finite differences, x being the same in every row. `spoil` makes a mutant of the state."""
    loss, classes, _ = CASES[name]
    plan = Plan(4, loss, classes, ALL if classes else ALL[:3])
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((25, 4))
    targets = rows @ rng.standard_normal(4) + rng.standard_normal(25)
    if classes:
        targets = np.digitize(targets, np.linspace(-1, 1, classes - 1)).astype(float)
    begin = plan.start({"penalty": 0.1, "memory": 8.0, "inertia": 0.5})

    def losses_at(shift):
        vector = begin.copy()
        plan.parts(vector)["x"][:] += shift
        return play(plan, vector, rows, targets)[1]

    vector, ours = begin, []
    for row, target in zip(rows, targets, strict=True):
        before, vector = vector, play(plan, vector, row, target)[0]
        spoil(plan.parts(vector))
        ours.append(slopes(plan, before, vector))
    eps = 1e-5
    numeric = [(losses_at(eps * e) - losses_at(-eps * e)) / (2 * eps) for e in np.eye(plan.width)]
    return np.array(ours), np.stack(numeric, axis=1)


@pytest.mark.parametrize("name", CASES)
def test_hypergradient_of_a_whole_stream_against_finite_differences(name):
    found, numeric = slopes_of_a_stream(name)
    np.testing.assert_allclose(found, numeric, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["sigmoid", "softmax"])
def test_a_curvature_that_does_not_move_with_the_weights_is_noticed(name):
    """A mutant: the curvature moves with memory alone, as it does for squared loss. On some streams
    the slope of inertia then has the wrong sign, and tuning ends in collapse."""

    def spoil(part):
        part["curvature_slope"][[0, 1]] = 0.0

    found, numeric = slopes_of_a_stream(name, spoil)
    assert np.abs(found - numeric)[:, 1].max() > 0.05 * np.abs(numeric[:, 1]).max()


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
