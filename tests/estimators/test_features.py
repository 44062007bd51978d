"""Waves and products of features: the mathematics of the bandwidth, growth, what they are for."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import obax
from obax.estimators import StreamingClassifier, StreamingRegressor, Table
from obax.estimators.history import Record
from obax.estimators.kernel import ACCEPTED, LOSS, OUTCOME, SAID, Plan, columns, kernel
from obax.problems import RowsBefore, StreamRow, stream_row

pytestmark = pytest.mark.usefixtures("quick_compilation")
HOLD = (0.0, 1.0, 1e9, 0.5, 0.0)
"""A leader that stands still and forgets nothing; delta 0.5; shares by likelihood alone."""
ALL = ("penalty", "inertia", "memory", "class_weights", "logit_shifts", "bandwidth")
CASES = {"sigmoid": ("logistic", 2, 1.0), "softmax": ("logistic", 3, 2.0)}
CASES |= {"squared": ("squared", 0, 0.7), "huber": ("huber", 0, 3.0)}


def play(plan, vector, rows, targets):
    """Learn rows; the vector after them and, of each, the loss before."""
    vector, rows = vector.copy(), np.atleast_2d(rows)
    out = np.zeros((len(rows), SAID + max(1, plan.slots)))
    lines = np.column_stack([rows, targets, np.ones(len(rows))])
    kernel()(vector, Record(plan.trail).data, plan.work(HOLD), plan.sizes, lines, out)
    assert (out[:, OUTCOME] == ACCEPTED).all()
    return vector, out[:, LOSS]


def with_waves(extra, features):
    """A row and its waves, as the package has them, the 1 last."""
    directions, phases = columns.waves(len(features) - 1)
    angle = directions @ features[:-1] / jnp.exp(extra[0]) + phases
    return jnp.concatenate([features[:-1], jnp.sqrt(2.0) * jnp.cos(angle), features[-1:]])


@pytest.mark.parametrize("name", CASES)
def test_a_row_with_waves_is_a_round_of_rtho(name):
    """As in test_kernel, with a bandwidth, which moves the row too."""
    loss, classes, target = CASES[name]
    plan = Plan(2, loss, classes, ALL if classes else (*ALL[:3], "bandwidth"), expansion="fourier")
    rng = np.random.default_rng(0)
    vector = plan.start({})
    part = plan.parts(vector)
    part["x"][:] = 0.5 * rng.standard_normal(plan.width)
    part["x"][plan.spans["memory"][0]] **= 2
    part["weights"][:] = 0.3 * rng.standard_normal(part["weights"].shape)
    for which in ("curvature", "curvature_slope"):
        roots = 0.3 * rng.standard_normal(part[which].shape)
        part[which][:] = roots @ roots.swapaxes(-1, -2)
    part["sensitivity"][:] = 0.1 * rng.standard_normal(part["sensitivity"].shape)
    part["variances"][:] = part["target_variance"][...] = 1.0
    row = rng.standard_normal(2)

    # The problem has the intercept last.
    order = np.r_[0:2, 3 : plan.inputs, 2]
    problem = stream_row(loss, classes=plan.slots or 2, delta=HOLD[3], columns=with_waves)
    algorithm = obax.RTHO(problem, 1e-13, proximal=problem.tie)
    values = (np.append(row, 1.0), float(target), 1.0)
    round = StreamRow(*(jnp.asarray(value) for value in values))
    past = RowsBefore(jnp.asarray(part["curvature"][0][np.ix_(order, order)]))
    weights = jnp.asarray(part["weights"][0][:, order])
    state = algorithm.init(jnp.asarray(part["x"]), weights, round, buffers=past)
    tilts = np.zeros((plan.width, plan.inputs, plan.inputs))
    tilts[plan.entries[plan.plain :]] = part["curvature_slope"]
    memory = np.exp(part["x"][plan.spans["memory"][0]])
    tilts[plan.spans["memory"][0]] *= memory / (1 + memory) ** 2
    moved = state.sensitivity._replace(
        inner_var=jnp.asarray(part["sensitivity"][..., order]),
        buffers=RowsBefore(jnp.asarray(tilts[:, order][..., order])),
    )
    state = dataclasses.replace(state, sensitivity=moved)
    state, info = eqx.filter_jit(algorithm.step)(state, round)

    after = plan.parts(play(plan, vector, row, target)[0])
    slopes = (after["mean"] - 0.9 * part["mean"]) / 0.1
    pairs = (
        (after["weights"][0][:, order], state.inner_var),
        (after["sensitivity"][..., order], state.sensitivity.inner_var),
        (after["curvature"][0][np.ix_(order, order)], state.buffers.curvature),
        (
            after["curvature_slope"][-1][np.ix_(order, order)],
            state.sensitivity.buffers.curvature[-1],
        ),
        (np.linalg.norm(slopes), info.hypergradient_norm),
    )
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-10)
    assert abs(slopes[-1]) > 1e-3


def gap_to_finite_differences(spoil=lambda part: None):
    """How far the leader's slope in each round is from d(loss of that row)/dx with the same x in
    every round before, for squared loss, where that is exact; relative to the largest slope of each
    entry of x. `spoil` changes what a round leaves behind."""
    plan = Plan(
        2, "squared", learned=("penalty", "inertia", "memory", "bandwidth"), expansion="fourier"
    )
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((25, 2))
    targets = np.sin(2 * rows[:, 0]) + 0.3 * rng.standard_normal(25)
    begin = plan.start({"penalty": 0.1, "memory": 8.0, "inertia": 0.5})

    def losses_at(shift):
        vector = begin.copy()
        plan.parts(vector)["x"][:] += shift
        return play(plan, vector, rows, targets)[1]

    vector, slopes = begin, []
    for row, target in zip(rows, targets, strict=True):
        before, vector = vector, play(plan, vector, row, target)[0]
        spoil(plan.parts(vector))
        old, new = plan.parts(before)["mean"], plan.parts(vector)["mean"]
        slopes.append((new - 0.9 * old) / 0.1)
    eps = 1e-6
    numeric = [(losses_at(eps * e) - losses_at(-eps * e)) / (2 * eps) for e in np.eye(plan.width)]
    numeric = np.stack(numeric, axis=1)
    return np.abs(slopes - numeric).max(axis=0) / np.abs(numeric).max(axis=0)


def test_the_hypergradient_of_the_bandwidth_is_that_of_the_whole_stream():
    assert gap_to_finite_differences().max() < 1e-5


def test_what_the_past_owes_to_the_bandwidth_cannot_be_left_out():
    """Mutants: a window, or weights, that are taken not to depend on the bandwidth."""

    def window(part):
        part["curvature_slope"][-1] = 0.0

    def weights(part):
        part["sensitivity"][-1] = 0.0

    for spoil in (window, weights):
        gap = gap_to_finite_differences(spoil)
        assert gap[:3].max() < 1e-5
        assert gap[3] > 0.1


def ring(size, seed=0):
    """Inside a ring or outside: no line parts them."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((size, 2))
    return rows, (np.hypot(*rows.T) < 1.2).astype(int)


@pytest.mark.parametrize("features", ["fourier", "interactions"])
def test_a_ring_is_learned(features):
    rows, labels = ring(1500)
    linear, bent = StreamingClassifier(), StreamingClassifier(features=features)
    for model in (linear, bent):
        model.learn_many(rows, labels)
    assert linear.mean_loss_ > 0.65
    assert bent.mean_loss_ < 0.3


@pytest.mark.parametrize("start", [0.1, 0.7], ids=["too narrow", "too wide"])
def test_the_bandwidth_is_learned(start):
    """About 0.2 is right; learned from both sides, and that pays."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((4000, 2))
    targets = np.sin(3 * rows[:, 0]) * np.cos(2 * rows[:, 1])
    losses = {}
    for learn in (("bandwidth", "penalty", "forgetting", "inertia"), ("penalty", "forgetting")):
        model = StreamingRegressor(features="fourier", learn=learn, memory=1000.0, members="tuned")
        model.learn_many(rows[:1], targets[:1])
        core = model._core
        core.plan.parts(core.vector)["x"][-1] = np.log(start)
        model.learn_many(rows[1:], targets[1:])
        losses[learn[0]] = model.mean_loss_
        found = model.hyperparameters_["bandwidth"]
        assert 0.11 < found < 0.4 if learn[0] == "bandwidth" else found == pytest.approx(start)
    assert losses["bandwidth"] < 0.7 * losses["penalty"]


def test_products_are_bounded_and_that_is_said():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((300, 25))
    model = StreamingRegressor(features="interactions")
    model.learn_many(rows, rows[:, 3] * rows[:, 4] + rows[:, 24])
    assert model._core.plan.inputs == 25 + 1 + 190
    assert "the first 19 of 25 features" in model.explain()
    assert model.coef_.shape == (1, 25)
    assert model.coef_[0, 24] > 0.3


@pytest.mark.parametrize("features", ["fourier", "interactions"])
@pytest.mark.parametrize("classes", [2, 3])
def test_a_late_feature_or_class_leaves_what_was_learned(features, classes):
    rows, _ = ring(300)
    labels = np.digitize(np.hypot(*rows.T), [0.8, 1.5][: classes - 1])
    model = StreamingClassifier(features=features, lags=2, members="tuned")
    model.learn_many(rows, labels)
    core = model._core
    before = core.predict(Table([0, 1], rows[:20]))
    core._make_room(Table([0, 1, "late"], np.zeros((1, 3))))
    assert core.plan.features == 3
    np.testing.assert_allclose(core.predict(Table([0, 1], rows[:20])), before, rtol=1e-7)
    if classes == 3:
        core.add_classes([3])
        found = core.predict(Table([0, 1], rows[:20]))
        np.testing.assert_allclose(found[:, :3] / found[:, :3].sum(axis=1)[:, None], before, 1e-7)


@pytest.mark.parametrize("features", ["fourier", "interactions"])
@pytest.mark.parametrize("regression", [False, True])
def test_however_the_stream_is_cut_and_across_a_checkpoint(features, regression, tmp_path):
    rows, labels = ring(120)
    targets = rows[:, 0] * rows[:, 1] if regression else labels
    kind = StreamingRegressor if regression else StreamingClassifier
    whole, one, saved = (kind(features=features, lags=2) for _ in range(3))
    whole.learn_many(rows, targets)
    for row, target in zip(rows.tolist(), targets.tolist(), strict=True):
        one.learn_one(dict(enumerate(row)), target)
    saved.learn_many(rows[:70], targets[:70])
    obax.save(tmp_path / "model", saved)
    saved = obax.load(tmp_path / "model", like=kind())
    saved.learn_many(rows[70:], targets[70:])
    for other in (one, saved):
        np.testing.assert_array_equal(other._core.vector, whole._core.vector)
        np.testing.assert_array_equal(other._core.record.data, whole._core.record.data)


def test_what_people_see():
    rows, labels = ring(60)
    model = StreamingClassifier(features="fourier")
    model.learn_many(rows, labels)
    assert 0.1 <= model.hyperparameters_["bandwidth"] <= 10
    history = model.hyperparameter_history_["bandwidth"]
    assert len(history) == 60 and history[-1] == model.hyperparameters_["bandwidth"]
    assert f"{columns.WAVES} random waves of them, bandwidth 1 -> " in model.explain()
    assert "bandwidth" in [axis.get_ylabel() for axis in model.plot().axes]
    held = StreamingClassifier(features="fourier", learn=("penalty",))
    held.learn_many(rows, labels)
    assert held.hyperparameters_["bandwidth"] == 1.0
    assert "(held fixed)" in held.explain()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": "rbf"}, "features must be one of 'linear', 'fourier', 'interactions'"),
        ({"lags": -1}, "lags must be an integer >= 0, but got -1"),
        ({"lags": 1.5}, "lags must be an integer >= 0, but got 1.5"),
        ({"per_feature": True, "lags": 1}, "per_feature must be False with features other than"),
        ({"per_feature": True, "features": "fourier"}, "per_feature must be False"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        StreamingClassifier(**options).prepare()
