"""The mathematics of a row in the kernel, against closed forms, the generic machinery of obax and
finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import obax
from obax.estimators.history import Record
from obax.estimators.kernel import ACCEPTED, LOSS, OUTCOME, SAID, Plan, kernel, layout, losses
from obax.problems import StreamRow, stream_row

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


def play(plan, vector, rows, targets, settings=HOLD):
    """Learn rows; the vector after them and, of each, the loss before."""
    vector, rows = vector.copy(), np.atleast_2d(rows)
    out = np.zeros((len(rows), SAID + max(1, plan.slots)))
    lines = np.column_stack([rows, targets, np.ones(len(rows))])
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
    part["weights"][:] = rng.standard_normal(part["weights"].shape)
    for which in ("curvature", "curvature_slope"):
        roots = rng.standard_normal(part[which].shape)
        part[which][:] = roots @ roots.swapaxes(-1, -2)
    part["sensitivity"][:] = 0.1 * rng.standard_normal(part["sensitivity"].shape)
    part["variances"][:] = part["target_variance"][...] = 1.0
    return plan, vector, rng.standard_normal(FEATURES), target


def stated(plan, vector, row, target):
    """The same as a problem and its round."""
    part = plan.parts(vector)
    problem = stream_row(
        plan.loss,
        classes=plan.slots or 2,
        penalties=FEATURES if plan.per_feature else 1,
        delta=HOLD[3],
    )
    numbers = (np.append(row, 1.0), target, 1.0, part["x"], part["weights"][0])
    past = (part["curvature"][0], part["curvature_slope"], part["sensitivity"])
    return problem, StreamRow(*(jnp.array(value) for value in (*numbers, *past)))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("per_feature", [False, True], ids=["one-penalty", "one-each"])
def test_a_row_is_the_bilevel_problem_it_says(name, per_feature):
    """The follower is at the minimum of its loss, and S' grad_y f is the implicit hypergradient
    that OAGD uses, solved exactly."""
    plan, vector, row, target = draw(name, per_feature=per_feature)
    after = plan.parts(play(plan, vector, row, target)[0])
    problem, round = stated(plan, vector, row, target)
    y = jnp.array(after["weights"][0])
    np.testing.assert_allclose(jax.grad(problem.inner, 1)(round.x, y, round), 0, atol=1e-12)
    gradients = jax.grad(problem.outer, argnums=(0, 1))(round.x, y, round)
    estimate = obax.hypergradient.Dense()(
        lambda x, y: problem.inner(x, y, round), round.x, y, gradients, None
    )
    ours = np.einsum("nkd,kd->n", after["sensitivity"], gradients[1])
    np.testing.assert_allclose(ours, estimate.value, rtol=1e-9, atol=1e-11)
    assert np.abs(ours).max() > 1e-3


def test_one_round_of_oagd_with_many_gradient_steps_is_the_same_round():
    plan, vector, row, target = draw("sigmoid")
    after = plan.parts(play(plan, vector, row, target)[0])
    problem, round = stated(plan, vector, row, target)
    algorithm = obax.OAGD(
        problem,
        outer_step_size=1.0,
        inner_step_size=0.05,
        inner_steps=3000,
        hypergradient=obax.hypergradient.Dense(),
    )
    state, _ = algorithm.step(algorithm.init(round.x, round.weights, round), round)
    np.testing.assert_allclose(state.inner_var, after["weights"][0], atol=1e-6)
    gradient = jax.grad(problem.outer, argnums=1)(round.x, state.inner_var, round)
    step = np.einsum("nkd,kd->n", after["sensitivity"], gradient)
    np.testing.assert_allclose(round.x - state.outer_var, step, atol=1e-6)


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


def test_squared_loss_without_ties_is_weighted_least_squares():
    """With next to no penalty and inertia: recursive least squares with forgetting, exactly."""
    plan = Plan(3, "squared", learned=())
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((40, 3)).clip(-2, 2), rng.standard_normal(40)
    vector = plan.start({})
    part = plan.parts(vector)
    part["x"][:] = np.log([1e-14, 1e-9, 9.0])  # forgetting 0.9
    for row, target in zip(a, b, strict=True):
        # Statistics that leave rows and targets as they are.
        for name, value in (("averages", 0), ("variances", 1), ("counts", 0)):
            part[name][:] = value
        part["target_count"][...], part["target_average"][...] = 0, 0
        part["target_variance"][...] = 1
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

    vector, slopes = begin, []
    for row, target in zip(rows, targets, strict=True):
        before, vector = vector, play(plan, vector, row, target)[0]
        old, new = plan.parts(before)["mean"], plan.parts(vector)["mean"]
        slopes.append((new - 0.9 * old) / 0.1)
    eps = 1e-6
    numeric = [(losses_at(eps * e) - losses_at(-eps * e)) / (2 * eps) for e in np.eye(3)]
    np.testing.assert_allclose(slopes, np.stack(numeric, axis=1), rtol=1e-5, atol=1e-7)


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
