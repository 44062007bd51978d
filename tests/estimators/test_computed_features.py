"""Waves and products of features: the mathematics of the bandwidth, growth, what they are for."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
import test_engine as rows_of
from states import same

import obax
from obax._support import native
from obax.estimators import StreamingClassifier, StreamingRegressor, Table
from obax.estimators.options import random_waves
from obax.problems import RowsBefore, StreamRow, stream_row

pytestmark = pytest.mark.usefixtures("quick_compilation")
ALL = ("penalty", "inertia", "memory", "class_weights", "logit_shifts", "bandwidth")
CASES = {"sigmoid": ("logistic", 2, 1.0), "softmax": ("logistic", 3, 2.0)}
CASES |= {"squared": ("squared", 0, 0.7), "huber": ("huber", 0, 3.0)}


def plan_of(loss, classes, learned, starts=None):
    """A model of two features with random waves of them."""
    waves = native.loaded().Waves(*random_waves())
    return rows_of.Plan(2, loss, classes, learned, starts, expansion="fourier", waves=waves)


def with_waves(extra, features):
    """A row and its waves, as the package has them, the 1 last."""
    draws, phases = random_waves()
    count = len(features) - 1
    directions = draws[:count].T / (2 * count) ** 0.5
    angle = directions @ features[:-1] / jnp.exp(extra[0]) + phases
    return jnp.concatenate([features[:-1], jnp.sqrt(2.0) * jnp.cos(angle), features[-1:]])


@pytest.mark.parametrize("name", CASES)
def test_fourier_step_equals_a_round_of_rtho(name):
    """As in test_engine, with a bandwidth, which moves the row too."""
    loss, classes, target = CASES[name]
    plan = plan_of(loss, classes, ALL if classes else (*ALL[:3], "bandwidth"))
    rng = np.random.default_rng(0)
    start = plan.start()
    part = plan.parts(start)
    part["x"] = 0.5 * rng.standard_normal(plan.width)
    part["x"][plan.spans["memory"][0]] **= 2
    part["weights"] = 0.3 * rng.standard_normal(part["weights"].shape)
    for which in ("curvature", "curvature_slope"):
        roots = 0.3 * rng.standard_normal(part[which].shape)
        part[which] = roots @ roots.swapaxes(-1, -2)
    part["sensitivity"] = 0.1 * rng.standard_normal(part["sensitivity"].shape)
    start = rows_of.as_they_are(plan.put(start, part))
    row = rng.standard_normal(2)

    # The problem has the intercept last.
    order = np.r_[0:2, 3 : plan.inputs, 2]
    delta = rows_of.HOLD["delta"]
    problem = stream_row(loss, classes=plan.slots or 2, delta=delta, columns=with_waves)
    algorithm = obax.RTHO(problem, 1e-13, proximal=problem.tie)
    values = (np.append(row, 1.0), float(target), 1.0)
    round = StreamRow(*(jnp.asarray(value) for value in values))
    past = RowsBefore(jnp.asarray(part["curvature"][np.ix_(order, order)]))
    weights = jnp.asarray(part["weights"][:, order])
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

    after = plan.parts(plan.play(start, row, [target])[0])
    slopes = (after["mean"] - 0.9 * part["mean"]) / 0.1
    pairs = (
        (after["weights"][:, order], state.inner_var),
        (after["sensitivity"][..., order], state.sensitivity.inner_var),
        (after["curvature"][np.ix_(order, order)], state.buffers.curvature),
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
    starts = {"penalty": 0.1, "memory": 8.0, "inertia": 0.5}
    plan = plan_of("squared", 0, ("penalty", "inertia", "memory", "bandwidth"), starts)
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((25, 2))
    targets = np.sin(2 * rows[:, 0]) + 0.3 * rng.standard_normal(25)
    begin = plan.start()

    def losses_at(shift):
        return plan.play(begin | {"tuned.x": begin["tuned.x"] + shift}, rows, targets)[1]

    now, slopes = begin, []
    for row, target in zip(rows, targets, strict=True):
        before, now = now, plan.play(now, row, [target])[0]
        slopes.append(rows_of.slopes(plan, before, now))
        part = plan.parts(now)
        spoil(part)
        now = plan.put(now, part)
    eps = 1e-6
    numeric = [(losses_at(eps * e) - losses_at(-eps * e)) / (2 * eps) for e in np.eye(plan.width)]
    numeric = np.stack(numeric, axis=1)
    return np.abs(slopes - numeric).max(axis=0) / np.abs(numeric).max(axis=0)


def test_hypergradient_of_the_bandwidth_against_finite_differences():
    assert gap_to_finite_differences().max() < 1e-5


def test_check_notices_a_missing_sensitivity_to_the_bandwidth():
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
def test_fourier_features_learn_a_ring(features):
    rows, labels = ring(1500)
    linear, bent = StreamingClassifier(), StreamingClassifier(features=features)
    for model in (linear, bent):
        model.learn_many(rows, labels)
    assert linear.mean_loss_ > 0.65
    assert bent.mean_loss_ < 0.3


@pytest.mark.parametrize("start", [0.1, 0.7], ids=["too narrow", "too wide"])
def test_bandwidth_adapts(start):
    """About 0.2 is right; learned from both sides, and that pays."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((4000, 2))
    targets = np.sin(3 * rows[:, 0]) * np.cos(2 * rows[:, 1])
    losses = {}
    for learn in (("bandwidth", "penalty", "forgetting", "inertia"), ("penalty", "forgetting")):
        model = StreamingRegressor(features="fourier", learn=learn, memory=1000.0, members="tuned")
        model.learn_many(rows[:1], targets[:1])
        inner = model.model_
        parts = inner.engine.state()
        parts["tuned.x"][-1] = np.log(start)
        restore = type(inner.engine).restore
        inner.engine = restore(inner.engine.spec, inner.engine.names, [], parts)
        model.learn_many(rows[1:], targets[1:])
        losses[learn[0]] = model.mean_loss_
        found = model.hyperparameters_["bandwidth"]
        assert 0.11 < found < 0.4 if learn[0] == "bandwidth" else found == pytest.approx(start)
    assert losses["bandwidth"] < 0.7 * losses["penalty"]


def test_interactions_use_at_most_19_features_and_explain_it():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((300, 25))
    model = StreamingRegressor(features="interactions")
    model.learn_many(rows, rows[:, 3] * rows[:, 4] + rows[:, 24])
    assert model.model_.engine.spec.inputs == 25 + 1 + 190
    assert "the first 19 of 25 features" in model.explain()
    assert model.coef_.shape == (1, 25)
    assert model.coef_[0, 24] > 0.3


@pytest.mark.parametrize("features", ["fourier", "interactions"])
@pytest.mark.parametrize("classes", [2, 3])
def test_late_features_and_classes_keep_computed_columns(features, classes):
    rows, _ = ring(300)
    labels = np.digitize(np.hypot(*rows.T), [0.8, 1.5][: classes - 1])
    model = StreamingClassifier(features=features, lags=2, members="tuned")
    model.learn_many(rows, labels)
    inner = model.model_
    before = inner.predict(Table([0, 1], rows[:20]))
    inner.add_features_of(Table([0, 1, "late"], np.zeros((1, 3))))
    assert inner.engine.spec.features == 3
    np.testing.assert_allclose(inner.predict(Table([0, 1], rows[:20])), before, rtol=1e-7)
    if classes == 3:
        inner.add_classes([3])
        found = inner.predict(Table([0, 1], rows[:20]))
        np.testing.assert_allclose(found[:, :3] / found[:, :3].sum(axis=1)[:, None], before, 1e-7)


@pytest.mark.parametrize("features", ["fourier", "interactions"])
@pytest.mark.parametrize("regression", [False, True])
def test_computed_features_in_batches_and_after_a_checkpoint(features, regression, tmp_path):
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
        same(other, whole)


def test_explain_of_computed_features():
    rows, labels = ring(60)
    model = StreamingClassifier(features="fourier")
    model.learn_many(rows, labels)
    assert 0.1 <= model.hyperparameters_["bandwidth"] <= 10
    history = model.hyperparameter_history_["bandwidth"]
    assert len(history) == 60 and history[-1] == model.hyperparameters_["bandwidth"]
    assert f"{native.loaded().WAVES} random waves of them, bandwidth 1 -> " in model.explain()
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
def test_invalid_options_of_computed_features(options, message):
    with pytest.raises(ValueError, match=message):
        StreamingClassifier(**options).prepare()
