"""The mathematics of a row in the engine, against closed forms, the generic machinery of obax and
finite differences."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import obax
from obax._support import native
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
HOLD = {"step_size": 1e-300, "fading": 1.0, "scale_memory": 1e9, "delta": 0.5, "share": 0.0}
"""A leader that stands still and forgets nothing; delta 0.5; shares by likelihood alone."""
ALPHA, STILL = 0.05, 1e-13
"""Steps of the leader: one that is seen, and one that leaves it where it is."""


class Plan:
    """A model of the tuned member alone, and the parts of its state by name."""

    def __init__(self, features, loss, classes=0, learned=ALL[:3], starts=None, **options):
        self.features, self.loss, self.classes = features, loss, classes
        self.options = {"loss": loss, "learned": list(learned), **HOLD, **options}
        self.starts = starts or {}
        empty = self.spec()
        model = native.loaded().Model(empty)
        model.grow(list(range(features)), list(range(classes)))
        self.model, self.slots = model, model.spec.slots
        self.spans, self.width, self.inputs = (
            getattr(model.spec, name) for name in ("spans", "width", "inputs")
        )
        spans = [np.arange(*self.spans[name]) for name in self.spans if name in learned]
        self.entries = np.concatenate([np.zeros(0, np.int64), *spans])
        slopes = [name for name in model.state() if ".curvature_slope." in name]
        self.plain = len(self.entries) - len(slopes)

    def spec(self, features=0, classes=0, **changes):
        """The engine's description of it."""
        starts = [self.starts.get(name, 1.0) for name in ("penalty", "memory", "inertia")]
        sizes = {"features": features, "classes": classes, "starts": starts}
        return native.loaded().Spec(**self.options | sizes | changes)

    def start(self):
        """The state before the first row."""
        return self.model.state()

    def play(self, state, rows, targets, weight=1.0, **settings):
        """Learn rows; the state after them and, of each, the loss before."""
        model = self.restore(state, **settings)
        rows = np.ascontiguousarray(np.atleast_2d(rows), np.float64)
        targets = np.array(targets, np.float64)
        status, loss, *_ = model.play(rows, targets, np.full(len(rows), weight))
        assert (status == native.loaded().LEARNED).all()
        return model.state(), loss

    def restore(self, state, **settings):
        """The engine's model in this state."""
        spec = self.spec(self.features, self.classes, **settings)
        names, labels = list(range(self.features)), list(range(self.classes))
        return native.loaded().Model.restore(spec, names, labels, state)

    def parts(self, state):
        """The tuned member's numbers."""
        inputs, lines = self.inputs, state["member.tuned.weights"].shape[0]
        slopes = [
            state[f"member.tuned.curvature_slope.{i}"]
            for i in range(len(self.entries) - self.plain)
        ]
        return {
            "x": state["tuned.x"],
            "mean": state["tuned.mean"],
            "weights": state["member.tuned.weights"],
            "curvature": state["member.tuned.curvature"],
            "curvature_slope": np.array(slopes).reshape(-1, inputs, inputs),
            "sensitivity": state["member.tuned.sensitivity"].reshape(-1, lines, inputs),
        }

    def put(self, state, part):
        """The state with other numbers of the tuned member."""
        state = dict(state)
        state["tuned.x"] = part["x"]
        state["member.tuned.weights"], state["member.tuned.curvature"] = (
            part["weights"],
            part["curvature"],
        )
        for i, slope in enumerate(part["curvature_slope"]):
            state[f"member.tuned.curvature_slope.{i}"] = np.ascontiguousarray(slope)
        shape = state["member.tuned.sensitivity"].shape
        state["member.tuned.sensitivity"] = part["sensitivity"].reshape(shape)
        return state


def as_they_are(state):
    """Statistics that leave rows and targets as they are."""
    moments = np.zeros_like(state["moments"])
    moments[:, 2] = 1.0
    return dict(state) | {"moments": moments}


def draw(name, *, per_feature=False, seed=0):
    """A plan, a state drawn at random in which rows stand as they are, and a row."""
    loss, classes, target = CASES[name]
    plan = Plan(FEATURES, loss, classes, ALL if classes else ALL[:3], per_feature=per_feature)
    rng = np.random.default_rng(seed)
    state = plan.start()
    part = plan.parts(state)
    part["x"] = 0.5 * rng.standard_normal(plan.width)
    # Where the leader may be: a memory is no less than a row.
    part["x"][slice(*plan.spans["memory"])] **= 2
    part["weights"] = rng.standard_normal(part["weights"].shape)
    for which in ("curvature", "curvature_slope"):
        roots = rng.standard_normal(part[which].shape)
        part[which] = roots @ roots.swapaxes(-1, -2)
    part["sensitivity"] = 0.1 * rng.standard_normal(part["sensitivity"].shape)
    state = as_they_are(plan.put(state, part))
    return plan, state, rng.standard_normal(FEATURES), target


def stated(plan, state, alpha=ALPHA, **options):
    """The same as RTHO on its problem, and its state."""
    part = {name: jnp.array(value) for name, value in plan.parts(state).items()}
    problem = stream_row(
        plan.loss,
        classes=plan.slots or 2,
        penalties=FEATURES if plan.options.get("per_feature") else 1,
        delta=HOLD["delta"],
    )
    algorithm = obax.RTHO(problem, alpha, proximal=problem.tie, **options)
    past = RowsBefore(part["curvature"])
    round = as_round(np.zeros(FEATURES), 0.0)
    start = algorithm.init(part["x"], part["weights"], round, buffers=past)
    tilts = RowsBefore(jnp.asarray(tilts_of(plan, state, state)))
    moved = start.sensitivity._replace(inner_var=part["sensitivity"], buffers=tilts)
    return algorithm, dataclasses.replace(start, sensitivity=moved)


def tilts_of(plan, state, before):
    """d curvature / dx, where x stood before the row. Along memory the engine keeps that along the
    forgetting factor."""
    part, at = plan.parts(state), plan.spans["memory"][0]
    found = np.zeros((plan.width, FEATURES + 1, FEATURES + 1))
    found[plan.entries[plan.plain :]] = part["curvature_slope"]
    memory = np.exp(plan.parts(before)["x"][at])
    found[at] *= memory / (1 + memory) ** 2
    return found


def as_round(row, target, weight=1.0):
    values = (np.append(row, 1.0), float(target), weight, weight)
    return StreamRow(*(jnp.asarray(value) for value in values))


def slopes(plan, before, after):
    """The hypergradient of a row, of which the engine keeps a running mean."""
    old, new = plan.parts(before)["mean"], plan.parts(after)["mean"]
    return (new - 0.9 * old) / 0.1


def agrees(plan, ours, before, state, **tolerance):
    """The engine after some rows, and RTHO."""
    part, known = plan.parts(ours), np.array(state.sensitivity.buffers.curvature)
    # What the engine neglects.
    known[plan.entries[: plan.plain]] = 0.0
    pairs = (
        (part["x"], state.outer_var),
        (part["weights"], state.inner_var),
        (part["sensitivity"], state.sensitivity.inner_var),
        (part["curvature"], state.buffers.curvature),
        (tilts_of(plan, ours, before), known),
    )
    for mine, theirs in pairs:
        np.testing.assert_allclose(mine, theirs, **tolerance)


def follow(plan, state, rows, targets, fading=1.0, alpha=ALPHA, weight=1.0):
    """The engine, its leader led by plain gradient steps: after each row, the losses, and the sizes
    of the slopes."""
    played, lost, sizes = [], [], []
    for row, target in zip(rows, targets, strict=True):
        state = as_they_are(state)
        after, loss = plan.play(state, row, [target], weight, fading=fading)
        slope = slopes(plan, state, after)
        after["tuned.x"] = after["tuned.x"].copy()
        after["tuned.x"][plan.entries] -= alpha * slope
        sizes.append(np.linalg.norm(slope))
        state = after
        played.append(after)
        lost.append(loss[0])
    return played, lost, sizes


@pytest.mark.parametrize("name", CASES)
def test_step_equals_a_round_of_rtho(name):
    """From anywhere: weights, curvature and sensitivity drawn at random, and a penalty for each
    feature. One for all has the stream below."""
    plan, before, row, target = draw(name, per_feature=True)
    (after,), losses, _ = follow(plan, before, row[None], [target])
    algorithm, state = stated(plan, before)
    state, info = eqx.filter_jit(algorithm.step)(state, as_round(row, target))
    np.testing.assert_allclose(info.played_value, losses[0], rtol=1e-10)
    assert np.abs(plan.parts(after)["x"] - plan.parts(before)["x"]).max() > 1e-4
    agrees(plan, after, before, state, rtol=1e-9, atol=1e-11)


def stream(name):
    """A start and 30 rows, targets of both sides of Huber's corner among them."""
    loss, classes, _ = CASES[name]
    starts = {"penalty": 0.1, "memory": 8.0, "inertia": 0.5}
    plan = Plan(FEATURES, loss, classes, ALL if classes else ALL[:3], starts)
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((30, FEATURES))
    targets = rows @ np.array([1.0, -0.5, 0.0]) + 0.5 * rng.standard_normal(30)
    if classes:
        targets = np.digitize(targets, [0.0] if classes == 2 else [-1.0, 0.0, 1.0]).astype(float)
    return plan, plan.start(), rows, targets


def hold_to_rtho(name, fading=0.9):
    """A stream from its first row: the engine plays RTHO's game."""
    plan, start, rows, targets = stream(name)
    algorithm, state = stated(plan, start, STILL, horizon=10.0)
    played, lost, sizes = follow(plan, start, rows, targets, fading, STILL)
    rounds = [as_round(row, target) for row, target in zip(rows, targets, strict=True)]
    rounds = jax.tree.map(lambda *leaves: jnp.stack(leaves), *rounds)
    _, history = obax.run(algorithm, state, rounds, record=lambda state: state)
    np.testing.assert_allclose(history.played_value, lost, rtol=1e-8)
    np.testing.assert_allclose(history.hypergradient_norm, sizes, rtol=1e-7, atol=1e-9)
    for t, ours in enumerate(played):
        after = jax.tree.map(lambda leaf, t=t: leaf[t], history.recorded)
        agrees(plan, ours, ours, after, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", CASES)
def test_stream_equals_the_trajectory_of_rtho(name):
    hold_to_rtho(name)


def test_comparison_with_rtho_notices_another_horizon():
    with pytest.raises(AssertionError):
        hold_to_rtho("squared", fading=0.91)


@pytest.mark.parametrize("name", ["sigmoid", "softmax"])
def test_proximal_step_reaches_the_minimum_for_any_variance(name):
    """The gradient of what the follower minimises is 0 at its new weights. With a large variance of
    the prediction, plain Newton steps go to and fro between the flat ends of the sigmoid, for ever;
    12 of them left the weights of elec2 far from their minimum."""
    loss, classes, _ = CASES[name]
    plan = Plan(1, loss, classes, learned=())
    rng = np.random.default_rng(0)
    cases = [(3.5327480755746477, 16.123124874357703), (40.0, 1e4), (-40.0, 30.0)]
    cases += zip(20 * rng.standard_normal(100), 10 ** rng.uniform(-3, 3, 100), strict=True)
    for start, variance in cases:
        state = as_they_are(plan.start())
        penalty, inertia, memory = 1e-7, 2 / variance, 1.0
        state["tuned.x"] = np.log([penalty, inertia, memory] + [1.0] * (plan.width - 3))
        weights = np.full_like(state["member.tuned.weights"], 0.5 * start)
        weights *= rng.standard_normal(weights.shape) if len(weights) > 1 else 1.0
        state["member.tuned.weights"] = weights
        for target in range(classes):
            after, _ = plan.play(state, [1.0], [float(target)])
            found, a = plan.parts(after)["weights"], np.ones(2)
            z = found @ a
            if len(z) == 1:
                pull = target - 1 / (1 + np.exp(-z))
            else:
                p = np.exp(z - z.max())
                pull = np.eye(classes)[target] - p / p.sum()
            ridge = penalty * found * [1.0, 0.0]
            gradient = inertia * (found - weights) + ridge - np.outer(pull, a)
            np.testing.assert_allclose(gradient, 0.0, atol=1e-9 * max(1.0, 40 * inertia))


def test_squared_loss_without_inertia_is_weighted_least_squares():
    """With next to no penalty and inertia: recursive least squares with forgetting, exactly."""
    plan = Plan(3, "squared", learned=())
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((40, 3)).clip(-2, 2), rng.standard_normal(40)
    state = as_they_are(plan.start())
    state["tuned.x"] = np.log([1e-14, 1e-9, 9.0])  # forgetting 0.9
    for row, target in zip(a, b, strict=True):
        state, _ = plan.play(as_they_are(state), row, [target])
    weights = 0.9 ** np.arange(39, -1, -1)
    wide = np.column_stack([a, np.ones(40)])
    expected = np.linalg.solve((wide.T * weights) @ wide, (wide.T * weights) @ b)
    np.testing.assert_allclose(plan.parts(state)["weights"][0], expected, rtol=1e-6)


def slopes_of_a_stream(name, spoil=lambda part: None):
    """Of each row and learned entry of x: the engine's hypergradient, and d(loss of that row)/dx by
    finite differences, x being the same in every row. `spoil` makes a mutant of the state."""
    loss, classes, _ = CASES[name]
    starts = {"penalty": 0.1, "memory": 8.0, "inertia": 0.5}
    plan = Plan(4, loss, classes, ALL if classes else ALL[:3], starts)
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((25, 4))
    targets = rows @ rng.standard_normal(4) + rng.standard_normal(25)
    if classes:
        targets = np.digitize(targets, np.linspace(-1, 1, classes - 1)).astype(float)
    begin = plan.start()

    def losses_at(shift):
        return plan.play(begin | {"tuned.x": begin["tuned.x"] + shift}, rows, targets)[1]

    state, ours = begin, []
    for row, target in zip(rows, targets, strict=True):
        before, state = state, plan.play(state, row, [target])[0]
        ours.append(slopes(plan, before, state))
        part = plan.parts(state)
        spoil(part)
        state = plan.put(state, part)
    eps = 1e-5
    numeric = [(losses_at(eps * e) - losses_at(-eps * e)) / (2 * eps) for e in np.eye(plan.width)]
    return np.array(ours), np.stack(numeric, axis=1)


@pytest.mark.parametrize("name", CASES)
def test_hypergradient_of_a_whole_stream_against_finite_differences(name):
    found, numeric = slopes_of_a_stream(name)
    np.testing.assert_allclose(found, numeric, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["sigmoid", "softmax"])
def test_check_notices_a_fixed_curvature(name):
    """A mutant: the curvature moves with memory alone, as it does for squared loss. On some streams
    the slope of inertia then has the wrong sign, and tuning ends in collapse."""

    def spoil(part):
        part["curvature_slope"][[0, 1]] = 0.0

    found, numeric = slopes_of_a_stream(name, spoil)
    assert np.abs(found - numeric)[:, 1].max() > 0.05 * np.abs(numeric[:, 1]).max()


@pytest.mark.parametrize("name", CASES)
def test_row_that_would_give_nan_changes_nothing(name):
    """A mutant state: a sensitivity so large that the next one overflows."""
    plan, state, row, target = draw(name)
    part = plan.parts(state)
    part["sensitivity"][0, 0, 0] = 1e308
    model = plan.restore(plan.put(state, part))
    before = model.state()
    status, *_ = model.play(row[None].copy(), np.array([target]), np.ones(1))
    assert status[0] == native.loaded().REJECTED
    after = model.state()
    assert after.pop("given") == 1 + before.pop("given") and after["history.learned"] == 0
    for name, numbers in after.items():
        np.testing.assert_array_equal(numbers, before[name], err_msg=name)
