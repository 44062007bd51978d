"""Weights of rows and classes: what they do to a row's loss, and what cannot be one."""

import math

import equinox as eqx
import numpy as np
import pandas as pd
import pytest
import test_engine as rows_of
import test_mixture as mixture
from states import differ, same, same_numbers, state

import obax
from obax.estimators import StreamingClassifier, StreamingRegressor

pytestmark = pytest.mark.usefixtures("quick_compilation")


@pytest.mark.parametrize("weight", [2.0, 0.3])
@pytest.mark.parametrize("name", rows_of.CASES)
def test_weight_multiplies_the_loss_of_stream_row(name, weight):
    """In the follower's step, in its curvature and sensitivity, and in the leader's slope."""
    plan, before, row, target = rows_of.draw(name)
    (after,), _, _ = rows_of.follow(plan, before, row[None], [target], weight=weight)
    algorithm, state = rows_of.stated(plan, before)
    state, _ = eqx.filter_jit(algorithm.step)(state, rows_of.as_round(row, target, weight))
    rows_of.agrees(plan, after, before, state, rtol=1e-9, atol=1e-11)
    (plain,), _, _ = rows_of.follow(plan, before, row[None], [target])
    gap = plan.parts(after)["weights"] - plan.parts(plain)["weights"]
    assert np.abs(gap).max() > 1e-3  # a mutant without the weight is seen


def data(n=150, seed=0):
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((n, 3))
    score = values @ [1.0, -1.0, 0.5] + 0.5 * rng.standard_normal(n)
    return values, score, np.round(rng.uniform(0, 3, n), 1) * (rng.random(n) > 0.2)


ALL = {"members": ("tuned", "start", "short", "long", "sgd")}


@pytest.mark.parametrize("options", [{}, ALL], ids=["default", "members"])
@pytest.mark.parametrize("make", [StreamingClassifier, StreamingRegressor])
def test_weights_in_every_input_form(make, options):
    values, score, weights = data()
    targets = (score > 0).tolist() if make is StreamingClassifier else score.tolist()
    one, many, parts, plain = (make(**options) for _ in range(4))
    frame = pd.DataFrame(values)
    many.learn_many(frame, targets, pd.Series(weights))
    parts.partial_fit(values[:50], targets[:50], sample_weight=weights[:50].tolist())
    parts.partial_fit(values[50:], targets[50:], sample_weight=weights[50:])
    for row, target, weight in zip(values.tolist(), targets, weights, strict=True):
        one.learn_one(dict(enumerate(row)), target, w=weight)
    plain.learn_many(frame, targets)
    for other in (many, parts):
        same(other, one)
    assert differ(plain, one)
    full = make(**options)
    full.learn_many(frame, targets, 1.0)
    same(full, plain)


@pytest.mark.parametrize("make", [StreamingClassifier, StreamingRegressor])
def test_row_of_weight_0_is_only_predicted(make):
    values, score, _ = data()
    targets = (score > 0).tolist() if make is StreamingClassifier else score.tolist()
    with_them, without = make(**ALL), make(**ALL)
    weights = np.arange(150) % 3 > 0
    with_them.learn_many(values, targets, weights)
    kept = np.flatnonzero(weights)
    without.learn_many(values[kept], [targets[i] for i in kept])
    same(with_them, without)
    before = state(with_them)
    with_them.learn_one(dict(enumerate(values[0].tolist())), targets[0], w=0)
    with_them.learn_one(dict(enumerate(values[0].tolist())), None, w=0)
    same_numbers(state(with_them), before)
    assert with_them.rejected_.count == 0 and with_them.model_.engine.given == 152


def test_class_of_a_row_of_weight_0_stays_unknown():
    model = StreamingClassifier()
    model.learn_many(np.ones((3, 1)), ["a", "b", "c"], [1, 0, 1])
    model.learn_one({0: 1.0}, "d", w=0.0)
    assert model.classes_.tolist() == ["a", "c"]


@pytest.mark.parametrize("wrong", [-1.0, math.nan, math.inf, "x", None, [1.0, 2.0]])
def test_invalid_weights_raise(wrong):
    model = StreamingRegressor()
    with pytest.raises(ValueError, match="w must be a finite number >= 0, but is"):
        model.learn_one({"a": 1.0}, 1.0, w=wrong)
    if wrong is not None:
        with pytest.raises(ValueError, match="w must be"):
            model.learn_many(np.ones((3, 1)), [1.0] * 3, wrong)
    for bad in (-1.0, math.nan):
        with pytest.raises(ValueError, match=r"sample_weight must be finite numbers >= 0"):
            model.fit(np.ones((3, 1)), [1.0] * 3, sample_weight=[1.0, bad, 1.0])
    assert "model_" not in model.__dict__ or model.model_.engine.given == 0


def test_late_labels_have_weights():
    late, now = StreamingRegressor(), StreamingRegressor()
    for i in range(20):
        late.predict_one({"a": float(i % 5)}, id=i)
        late.learn_one(id=i, y=float(i % 3), w=0.5 * (i % 4))
        now.learn_one({"a": float(i % 5)}, float(i % 3), w=0.5 * (i % 4))
    same(late, now)
    late.predict_one({"a": 1.0}, id="x")
    with pytest.raises(ValueError, match="w must be"):
        late.learn_one(id="x", y=1.0, w=-1)
    assert "x" in late.pending_


def test_class_weight_equals_row_weights():
    values, score, weights = data()
    labels = np.digitize(score, [-1.5, 1.0])
    by_class = {0: 4.0, 2: 0.5}
    heavy = StreamingClassifier(class_weight=by_class)
    one, many = StreamingClassifier(), StreamingClassifier(class_weight=by_class)
    for row, label, weight in zip(values.tolist(), labels.tolist(), weights, strict=True):
        one.learn_one(dict(enumerate(row)), label, weight * by_class.get(label, 1.0))
        heavy.learn_one(dict(enumerate(row)), label, weight)
    many.learn_many(values, labels, weights)
    same(heavy, one)
    same(many, one)


def test_balanced_class_weight_counts_classes_equally():
    """As weights that are worked out along the stream; and rare classes are found."""
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((1500, 2))
    labels = (rows[:, 0] + 0.5 * rng.standard_normal(1500) > 1.7).astype(int)
    balanced = StreamingClassifier(class_weight="balanced", learn=())
    by_hand = StreamingClassifier(learn=())
    counts = np.zeros(2)
    for row, label in zip(rows[:300].tolist(), labels[:300].tolist(), strict=True):
        share = counts[label] / max(counts.sum(), 1) * (counts > 0).sum()
        weight = 1 / max(share, 0.01) if counts[label] else 1.0
        balanced.learn_one(dict(enumerate(row)), label)
        by_hand.learn_one(dict(enumerate(row)), label, weight)
        counts[label] += 1
    np.testing.assert_allclose(balanced.coef_, by_hand.coef_, rtol=1e-9)

    def recalls(model):
        said = model.progressive(rows, labels, classes=[0, 1])[500:].argmax(axis=1)
        return [np.mean(said[labels[500:] == k] == k) for k in (0, 1)]

    plain = recalls(StreamingClassifier())
    found = recalls(StreamingClassifier(class_weight="balanced"))
    assert np.mean(found) > np.mean(plain) + 0.05


@pytest.mark.parametrize("wrong", ["even", {"a": -1.0}, {"a": "x"}, {"a": math.inf}, 3.0])
def test_class_weights_are_checked(wrong):
    with pytest.raises(ValueError, match="class_weight must be None, 'balanced' or a dict"):
        StreamingClassifier(class_weight=wrong).learn_one({"a": 1.0}, True)


def test_class_weights_are_in_checkpoints_and_clones(tmp_path):
    by_class = {True: 3.0, "x": 0.5, 7: 1.5}
    model = StreamingClassifier(class_weight=by_class)
    model.learn_one({"a": 1.0}, True)
    obax.save(tmp_path / "model", model)
    found = obax.load(tmp_path / "model", like=StreamingClassifier())
    assert found.class_weight == by_class == model.clone().class_weight
    assert [type(key) for key in found.class_weight] == [bool, str, int]
    assert found.model_.options.class_weight == by_class


def test_mixture_bound_for_weighted_losses():
    """Sums of min(weight, 1) times the loss: within ln N of the best member's, on any stream. A
    mutant that takes whole weights as powers breaks it."""

    def excess(power, seed):
        rng = np.random.default_rng(seed)
        shares, ours, theirs = np.full(4, 0.25), 0.0, np.zeros(4)
        for _ in range(300):
            weight = rng.choice([0.05, 0.5, 8.0])
            said = rng.dirichlet([0.2, 0.2], 4)
            likelihood = np.maximum(said[:, rng.integers(2)], 1e-9)
            by = min(weight, 1.0)
            ours -= by * math.log(shares @ likelihood)
            theirs -= by * np.log(likelihood)
            shares = moved(shares, likelihood, power(weight))
        return ours - theirs.min()

    bound = math.log(4) + 1e-9
    assert max(excess(lambda weight: min(weight, 1.0), seed) for seed in range(10)) <= bound
    assert max(excess(lambda weight: weight, seed) for seed in range(10)) > bound


def moved(shares, likelihood, power):
    """The shares after a row, as the engine says that they move."""
    new = shares * (likelihood / likelihood.max()) ** power
    return np.maximum(new / new.sum(), 1e-300)


def test_shares_move_by_weights_up_to_one():
    values, score, _ = data()
    model = mixture.prepared(StreamingClassifier(share=0.0), values, 2)
    for i, weight in enumerate([0.05, 0.5, 8.0] * 20):
        before = model.engine.state()["shares"]
        row, label = dict(enumerate(values[i].tolist())), int(score[i] > 0)
        likelihood = mixture.members_of(model, row)[:, label]
        model.learn_one(row, label, weight)
        expected = moved(before, likelihood, min(weight, 1.0))
        np.testing.assert_allclose(model.engine.state()["shares"], expected, rtol=1e-6)
