"""The mixture of members: its guarantee on streams that are made to hurt, its shares worked in
numpy, and mutants of both."""

import math

import numpy as np
import pytest

from obax._support import native
from obax.estimators import StreamingClassifier, StreamingRegressor

EVERYONE = ("tuned", "start", "short", "long", "sgd")
ROWS = 500


def features(seed=0):
    return np.random.default_rng(seed).standard_normal((ROWS, 3))


def streams():
    """Labels that hurt: rules that flip, cycles, an abrupt change, a constant, noise."""
    rows, t = features(), np.arange(ROWS)
    rule = rows[:, 0] > 0
    return {
        "flips": np.where(t // 50 % 2 == 0, rule, ~rule).astype(int),
        "cycle": t // 3 % 2,
        "three in a cycle": t // 5 % 3,
        "abrupt": np.where(t < ROWS // 2, rule, rows[:, 1] > 0).astype(int),
        "constant": np.where(t == 0, 1, 0),
        "noise": np.random.default_rng(1).integers(0, 2, ROWS),
    }


def prepared(estimator, rows, classes=0):
    """The model with its features and classes known before the first row."""
    model = estimator.prepare().model_
    model.grow(list(range(rows.shape[1])), list(range(classes)))
    return model


def changed(model, **parts):
    """The engine's model with other numbers in it."""
    engine = model.engine
    state = engine.state() | {name.replace("__", "."): part for name, part in parts.items()}
    return type(engine).restore(engine.spec, engine.names, engine.labels, state)


def members_of(model, row):
    """What each member predicts: the prediction of a mixture in which it has the whole share."""
    count = len(model.engine.spec.members)
    return np.array([changed(model, shares=e).predict(row) for e in np.eye(count)])


def played(model, rows, targets):
    """Play rows: status, losses, shares *before* each row and after the last, and what each member
    gave the target."""
    status, losses, shares, said = [], [], [model.engine.state()["shares"]], []
    for row, target in zip(rows, targets, strict=True):
        label = int(target) if model.options.classify else 0
        said.append(members_of(model, dict(enumerate(row.tolist())))[:, label])
        found = model.engine.play(row[None].copy(), np.array([float(target)]), np.ones(1))
        status.append(found[0][0])
        losses.append(found[1][0])
        shares.append(model.engine.state()["shares"])
    return np.array(status), np.array(losses), np.array(shares), np.array(said)


def classified(labels, **options):
    rows = features()
    model = prepared(StreamingClassifier(**options), rows, int(labels.max()) + 1)
    status, losses, shares, likelihood = played(model, rows, labels)
    assert (status == native.loaded().LEARNED).all()
    return losses, shares, likelihood


def mixed(likelihood, share, *, mutant=None):
    """The shares and losses of a mixture, in numpy; or of one with something wrong in it."""
    count = likelihood.shape[1]
    shares, losses = [np.full(count, 1 / count)], []
    for p in likelihood:
        w = shares[-1]
        seen = w.copy()
        if mutant == "a member left out":
            seen[p.argmax()] = 0.0
        said = seen @ p
        losses.append(-math.log(max(said, 1e-300)))
        new = w / p / np.sum(w / p) if mutant == "inverted" else w * p / (w @ p)
        if mutant == "not normalised":
            new = w * p
        shares.append((1 - share) * new + (0.0 if mutant == "no share" else share / count))
    return np.array(losses), np.array(shares)


def best_with_switches(losses, switches):
    """The least sum of losses of a sequence of members with so many switches at most."""
    best = np.zeros((switches + 1, losses.shape[1]))
    for row in losses:
        other = np.full_like(best, np.inf)
        other[1:] = best[:-1].min(axis=1)[:, None]
        best = np.minimum(best, other) + row
    return best.min(axis=1)


def complaints(losses, shares, likelihood, share):
    """What is wrong with the losses of a mixture whose members gave these likelihoods."""
    found = []
    if not np.allclose(shares.sum(axis=1), 1.0, atol=1e-9):
        found.append("shares do not sum to 1")
    rows, count = likelihood.shape
    own = -np.log(np.maximum(likelihood, 1e-300))
    for k, best in enumerate(best_with_switches(own, 12)):
        bound = (k + 1) * math.log(count) - (rows - k - 1) * math.log1p(-share)
        if k and share == 0:
            break
        bound += k * math.log(1 / share) if k else 0.0
        if not losses.sum() <= best + bound + 1e-9:
            found.append(f"{losses.sum() - best:.2f} above {k} switches, allowed {bound:.2f}")
    return found


@pytest.mark.parametrize("share", [0.0, 0.001, 0.05])
@pytest.mark.parametrize("name", streams())
def test_the_mixture_is_never_worse_than_its_best_member(name, share):
    """Within ln N of the best member, and with a share within the cost of switches of the best
    sequence of members, on every stream."""
    losses, shares, likelihood = classified(streams()[name], members=EVERYONE, share=share)
    assert complaints(losses, shares, likelihood, share) == []
    expected = mixed(likelihood, share)
    np.testing.assert_allclose(losses, expected[0], rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(shares, expected[1], rtol=1e-6, atol=1e-200)


@pytest.mark.parametrize("mutant", ["no share", "inverted", "not normalised", "a member left out"])
def test_mixture_bound_check_notices_wrong_weights(mutant):
    """Two members that are right in turn, so that a switch is needed."""
    good = np.where(np.arange(400) < 200, 0.9, 0.1)
    likelihood = np.column_stack([good, 1 - good])
    losses, shares = mixed(likelihood, 0.01)
    assert complaints(losses, shares, likelihood, 0.01) == []
    losses, shares = mixed(likelihood, 0.01, mutant=mutant)
    if mutant == "no share":
        shares = shares / shares.sum(axis=1, keepdims=True)
    assert complaints(losses, shares, likelihood, 0.01)


def judged(values):
    """Mean and variance of the first values, but those 148 median deviations off the median."""
    middle = np.median(values)
    limit = 148.26 * np.median(np.abs(values - middle))
    kept = values[np.abs(values - middle) <= limit] if limit else values
    return kept.mean(), kept.var()


def test_members_equal_models_trained_alone():
    """To rounding for those of the second order; steps of the first order worked in numpy."""
    labels = streams()["flips"]
    _, _, said = classified(labels, members=EVERYONE)
    for column, options in (
        (0, {}),
        (1, {"learn": ()}),
        (2, {"learn": (), "memory": 30.0}),
        (3, {"learn": (), "memory": 3000.0}),
    ):
        alone = classified(labels, members="tuned", **options)[2]
        np.testing.assert_allclose(said[:, column], alone[:, 0], rtol=1e-9)
    rows, weights = features(), np.zeros(4)
    average, variance = np.zeros(3), np.zeros(3)

    def standardised(row):
        deviation = np.sqrt(variance)
        a = np.where(deviation > 0, row - average, 0.0) / np.where(deviation > 0, deviation, 1.0)
        return np.append(np.clip(a, -10, 10), 1.0)

    for t, label in enumerate(labels[:30]):  # later rows move the statistics by four deviations
        seen = standardised(rows[t])
        p = 1 / (1 + math.exp(-weights @ seen))
        assert said[t, 5] == pytest.approx(p if label else 1 - p, rel=1e-4)
        if t < 10:  # the first rows are judged by their median
            found = [judged(column) for column in rows[: t + 1].T]
            average, variance = np.array(found).T
        else:
            n, gap = t + 1, rows[t] - average
            average, variance = average + gap / n, (1 - 1 / n) * (variance + gap**2 / n)
        a = np.where(seen != 0, standardised(rows[t]), 0.0)  # learned with the row in them
        weights += 0.1 * (label - 1 / (1 + math.exp(-weights @ a))) * a


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_regression_members_are_mixed_by_density(loss):
    """Shares worked in numpy, and the log score of the mixture within ln N of the best member's."""
    rng = np.random.default_rng(3)
    rows = features(3)
    targets = rows @ [1.0, -2.0, 0.5] * np.where(np.arange(ROWS) < 250, 1, -1)
    targets += rng.standard_normal(ROWS)
    model = prepared(StreamingRegressor(loss=loss, members=EVERYONE, share=0.0), rows)
    n = len(model.engine.spec.members)
    shares, residuals, total, own = np.full(n, 1 / n), np.ones(n), 0.0, np.zeros(n)
    for t in range(ROWS):
        _, average, variance = model.engine.state()["moments"][-1, :3]
        deviation = math.sqrt(variance)
        target = (targets[t] - average) / deviation if deviation else 0.0
        said = model.predict_one(dict(enumerate(rows[t].tolist())))[0]
        _, _, after, outputs = played(model, rows[t : t + 1], targets[t : t + 1])
        outputs = (outputs - average) / (deviation or 1.0)
        error = np.abs(np.clip(target, -10, 10) - outputs[0])
        losses = 0.5 * error**2
        if loss == "huber":
            inside = np.minimum(error, 1.345)
            losses = inside * (error - 0.5 * inside)
        assert said == pytest.approx(average + deviation * (shares @ outputs[0]), abs=1e-9)
        if abs(target) >= 10:  # A glitch or a jump teaches nothing.
            continue
        scores = losses / residuals.min()
        total -= math.log(shares @ np.exp(-scores))
        own += scores
        shares = shares * np.exp(scores.min() - scores)
        shares = np.maximum(shares / shares.sum(), 1e-300)
        residuals += (2 * losses - residuals) / min(t + 2.0, 100.0)
        residuals = np.maximum(residuals, 1e-12)
        np.testing.assert_allclose(after[1], shares, rtol=1e-6, atol=1e-250)
    assert total <= own.min() + math.log(n) + 1e-6


def test_member_with_nan_is_left_out():
    """The tuned member's state is broken: it cannot learn. The others go on."""
    rows, labels = features(), streams()["abrupt"]
    model = prepared(StreamingClassifier(), rows, 2)
    played(model, rows[:100], labels[:100])
    sensitivity = model.engine.state()["member.tuned.sensitivity"]
    sensitivity[0, 0] = 1e308
    model.engine = changed(model, member__tuned__sensitivity=sensitivity)
    before = model.engine.state()
    status, losses, shares, _ = played(model, rows[100:101], labels[100:101])
    after = model.engine.state()
    assert status[0] == native.loaded().LEARNED and math.isfinite(losses[0])
    assert after["sat_out"].tolist() == [1.0] + [0.0] * (len(after["shares"]) - 1)
    for name in ("tuned", "start"):
        same = np.array_equal(after[f"member.{name}.weights"], before[f"member.{name}.weights"])
        assert same == (name == "tuned")
    assert after["rows"] == 101 and shares[1].sum() == pytest.approx(1)


def test_row_is_rejected_if_no_member_stays_finite():
    rows, labels = features(), streams()["abrupt"]
    model = prepared(StreamingClassifier(members="tuned"), rows, 2)
    played(model, rows[:100], labels[:100])
    sensitivity = model.engine.state()["member.tuned.sensitivity"]
    sensitivity[0, 0] = 1e308
    model.engine = changed(model, member__tuned__sensitivity=sensitivity)
    before = model.engine.state()
    model.learn_one(dict(enumerate(rows[100].tolist())), int(labels[100]))
    assert model.rejected.count == 1 and "NaN or Inf" in model.rejected[0]["reason"]
    after = model.engine.state()
    assert after.pop("given") == 1 + before.pop("given")
    for name, numbers in after.items():
        np.testing.assert_array_equal(numbers, before[name], err_msg=name)


def test_growth_keeps_every_member():
    rows, labels = features(), streams()["abrupt"]
    model = StreamingClassifier(members=EVERYONE)
    model.learn_many(rows, labels)
    inner = model.model_
    before = model.predict_proba_many(rows[:20]).to_numpy()
    inner.grow(["late"], [])
    np.testing.assert_allclose(model.predict_proba_many(rows[:20]).to_numpy(), before, atol=1e-9)
    shares = inner.engine.state()["shares"]
    inner.add_classes(["third"])
    np.testing.assert_array_equal(inner.engine.state()["shares"], shares)
    three = model.predict_proba_many(rows[:20]).to_numpy()
    np.testing.assert_array_equal(three[:, :2].argmax(axis=1), before.argmax(axis=1))


def test_shares_of_members_by_name():
    rows, labels = features(), streams()["abrupt"]
    model = StreamingClassifier(members=("sgd", "tuned"))
    model.learn_many(rows, labels)
    members = model.hyperparameters_["members"]
    assert list(members) == ["tuned", "sgd 0.01", "sgd 0.1", "sgd 0.3", "sgd 1"]
    assert sum(members.values()) == pytest.approx(1)
    history = model.hyperparameter_history_["members"]
    assert {name: curve[-1] for name, curve in history.items()} == members
    top = max(members, key=members.__getitem__)
    assert f"carried by: {top} {members[top]:.0%}" in model.explain()
    frozen = StreamingClassifier(learn=()).checked().spec(0, 0)
    assert list(frozen.members)[:2] == ["tuned", "sgd 0.01"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"members": ()}, "members must be 'auto', 'tuned' or a tuple of 'tuned' and some of"),
        ({"members": ("start",)}, "members must be 'auto'"),
        ({"members": ("tuned", "tuned")}, "members must be 'auto'"),
        ({"members": None}, "members must be 'auto'"),
        ({"share": 1.0}, "share must be a number from 0 up to, but not, 1, but got 1.0"),
        ({"share": -0.1}, "share must be"),
        (
            {"members": ("tuned", "sgd"), "imbalance": "weights"},
            "members must be 'auto' or 'tuned'",
        ),
    ],
)
def test_members_and_share_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        StreamingClassifier(**options).prepare()


def test_imbalance_uses_the_tuned_member_alone():
    balanced = StreamingClassifier(imbalance="weights").checked().spec(0, 0)
    assert list(balanced.members) == ["tuned"]
