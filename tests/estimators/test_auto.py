"""`features="auto"`: its mixture worked in numpy, growth, checkpoints, sleep, memory, pools."""

import math
import pickle

import numpy as np
import pytest
from states import same

import obax
from obax.estimators import Pool, StreamingClassifier, StreamingRegressor, budget

TREES = ["trees 30", "trees 300", "correcting trees 30", "correcting trees 300"]
ROWS = 1200


def stream(rows=ROWS, features=4, classes=2, seed=0):
    """Rows with missing values and a rule that no linear model follows; classes=0: numbers."""
    random = np.random.default_rng(seed)
    values = random.standard_normal((rows, features))
    score = 2.0 * (values[:, 0] * values[:, 1] > 0) + (values[:, 2] > 0.5)
    score += 0.2 * random.standard_normal(rows)
    values[random.random((rows, features)) < 0.03] = np.nan
    if not classes:
        return values, 100.0 + 30.0 * score
    return values, np.digitize(score, [1.5] if classes == 2 else [0.7, 1.7])


def model_of(classes, **options):
    kind = StreamingClassifier if classes else StreamingRegressor
    return kind(features="auto", **options)


def dicts(values):
    """Rows without their missing values, so that features come late."""
    return [{f"x{j}": v for j, v in enumerate(row) if v == v} for row in values.tolist()]


def one_at_a_time(model, values, targets, weights):
    for row, target, weight in zip(dicts(values), targets.tolist(), weights, strict=True):
        model.learn_one(row, target, w=weight)


@pytest.mark.parametrize("classes", [2, 3, 0])
def test_one_row_at_a_time_is_the_same_as_in_bulk(classes):
    values, targets = stream(600, classes=classes)
    values[:300, 3] = np.nan  # a feature that comes late
    if classes == 3:
        targets[:250] %= 2  # and a class
    weights = np.random.default_rng(1).choice([0.5, 1.0, 2.0], len(values))
    one, many = model_of(classes), model_of(classes)
    one_at_a_time(one, values, targets, weights)
    for row, target, weight in zip(dicts(values)[:1], targets[:1].tolist(), weights, strict=False):
        many.learn_one(row, target, w=weight)
    many.learn_many(dicts(values)[1:], targets[1:].tolist(), w=weights[1:])
    same(one, many)
    assert sum(one.model_.engine.gains) > 0


@pytest.mark.parametrize("classes", [3, 0])
def test_a_model_that_was_saved_goes_on_alike(classes, tmp_path):
    values, targets = stream(900, classes=classes)
    model = model_of(classes, seed=3)
    model.learn_many(values[:600], targets[:600].tolist())
    obax.save(tmp_path / "model", model)
    again = obax.load(tmp_path / "model", like=type(model)())
    third = pickle.loads(pickle.dumps(model))
    for one in (model, again, third):
        one.learn_many(values[600:], targets[600:].tolist())
    same(model, again)
    same(model, third)


def test_a_damaged_checkpoint_is_refused():
    values, targets = stream(500)
    model = model_of(2)
    model.learn_many(values, targets.tolist())
    engine = model.model_.engine
    state = engine.state()
    for name, harm in {
        "auto.trees.0.nodes": lambda a: np.append(a, 1.0),
        "auto.trees.2.counts": lambda a: a[:-1],
        "auto.trees.1.sizes": lambda a: a + 2,
        "auto.bins": lambda a: np.where(np.arange(len(a)) == 0, -1.0, a),
        "auto.rests": lambda a: a + 0.5,
        "auto.shares": lambda a: a * 0.1,
    }.items():
        with pytest.raises(ValueError, match=name.replace("auto.", "").split(".")[0]):
            spec, names, labels = engine.spec, engine.names, engine.labels
            type(engine).restore(spec, names, labels, state | {name: harm(state[name])})


def test_late_labels_are_learned_as_others_are():
    values, targets = stream(400)
    late, now = model_of(2), model_of(2)
    for i, (row, target) in enumerate(zip(dicts(values), targets.tolist(), strict=True)):
        late.predict_proba_one(row, id=i)
        late.learn_one(id=i, y=target)
        now.learn_one(row, target)
    same(late, now)


@pytest.mark.parametrize("classes", [2, 3, 0])
def test_trees_find_what_linear_members_do_not(classes):
    values, targets = stream(4000, classes=classes)
    losses = {}
    for features in ("linear", "auto"):
        model = model_of(classes).set_params(features=features)
        losses[features] = model.play(values, targets.tolist()).loss[2000:].mean()
    assert losses["auto"] < 0.6 * losses["linear"]


def test_seeds_differ_and_each_repeats():
    values, targets = stream(700)
    models = [model_of(2, seed=seed) for seed in (0, 0, 1)]
    for model in models:
        model.learn_many(values, targets.tolist())
    same(models[0], models[1])
    a, b = (model.model_.engine.gains for model in models[1:])
    assert not np.array_equal(a, b)


# ---- the mixture ------------------------------------------------------------------------------


def mixture_of(classes, rows, mutant=None, share=0.01, seed=0):
    """Play a stream in the engine, and the mixture of what its members predict in numpy: shares and
    losses of both, and the members' losses."""
    values, targets = stream(rows, classes=classes, seed=seed)
    if not classes:
        targets[:2] = 100.0, 160.0  # so that none of the next ones is a glitch
    model = model_of(classes, effort="high", members="tuned", share=share)
    made = model.prepare().model_
    made.grow([f"x{j}" for j in range(values.shape[1])], list(range(classes)))
    engine, names = made.engine, list(made.engine.spec.members)
    count = len(names)
    shares, residuals = np.full(count, 1 / count), np.zeros(count)
    theirs, ours, losses = [], [], []
    for i, (row, target) in enumerate(zip(values.tolist(), targets.tolist(), strict=True)):
        row = {f"x{j}": v for j, v in enumerate(row)}
        said = engine.predict_members(row)
        awake = np.array([i >= 200 or name not in TREES for name in names])
        whole = engine.predict(row)
        inside = shares * awake
        inside = inside / inside.sum()
        if classes:
            p = np.maximum(said[:, target], 1e-300)
            loss, mixed, total = -np.log(p), -math.log(inside @ p), -math.log(whole[target])
        else:
            # Members speak in deviations; the unit follows from the mixture itself.
            z = said[:, 0]
            scale, centre = scale_of(engine)
            loss = (centre + scale * z - target) ** 2
            mixed = (centre + scale * (inside @ z) - target) ** 2
            total = (whole[0] - target) ** 2
            least = residuals[awake & (residuals > 0)].min(initial=np.inf)
            rate = 0.5 if mutant == "hot" else 0.05
            known = i >= 10 and np.isfinite(least)
            p = np.exp(-rate * (loss - loss[awake].min()) / least) if known else np.ones(count)
            start = least if np.isfinite(least) else loss
            residuals = np.where(awake & (residuals == 0), start, residuals)
            moved = residuals + (loss - residuals) / min(i + 1, 1000)
            residuals = np.where(awake, np.maximum(moved, 1e-300), residuals)
        theirs.append(total)
        ours.append(mixed)
        losses.append(np.where(awake, loss, mixed))
        if mutant == "inverted":
            p = 1 / p
        new = shares * p / (inside @ p)
        if mutant == "asleep ones lose":
            new = np.where(awake, new, new / 2)
        new = np.where(awake | (mutant == "asleep ones lose"), new, shares)
        # Who sits out keeps its share; the others share what is left.
        if mutant != "asleep ones lose":
            new[awake] *= shares[awake].sum() / new[awake].sum()
        shares = (1 - share) * new + (0 if mutant == "no share" else share / count)
        engine.learn(row, target)
        now = engine.state()["auto.shares"]
        np.testing.assert_allclose(now, shares, rtol=1e-6, atol=1e-12, err_msg=f"row {i}")
    return np.array(theirs), np.array(ours), np.array(losses)


def scale_of(engine):
    """Deviation and mean of the target, from the state."""
    _, mean, variance, *_ = engine.state()["moments"][-1]
    return math.sqrt(variance), mean


@pytest.mark.parametrize("classes", [2, 3, 0])
def test_shares_and_predictions_are_those_of_a_mixture(classes):
    theirs, ours, losses = mixture_of(classes, 320)
    np.testing.assert_allclose(theirs[12:], ours[12:], rtol=1e-6, atol=1e-9)
    if classes:
        # Never worse than the best member by more than ln N and what sharing costs.
        count = losses.shape[1]
        bound = math.log(count) - len(losses) * math.log1p(-0.01)
        assert theirs.sum() <= losses.sum(axis=0).min() + bound


@pytest.mark.parametrize("mutant", ["inverted", "no share", "asleep ones lose"])
def test_a_mutant_of_the_mixture_is_seen(mutant):
    with pytest.raises(AssertionError):
        mixture_of(2, 40, mutant)


def test_a_hot_mixture_is_seen():
    with pytest.raises(AssertionError):
        mixture_of(0, 60, "hot")


# ---- sleep --------------------------------------------------------------------------------------


def linear_stream(rows, seed=0, classify=True):
    random = np.random.default_rng(seed)
    values = random.standard_normal((rows, 5))
    score = values @ random.standard_normal(5)
    if not classify:
        return values, score + random.standard_normal(rows)
    return values, (random.random(rows) < 1 / (1 + np.exp(-score))).astype(int)


def mean_cost(model, played, begin):
    """The mean cost of rows from `begin` on, in those of the linear members."""
    costs, members = model.model_.engine.costs, played.hyperparameters["members"]
    shares = np.array(list(members.values()))[-len(costs) + 1 :]
    return 1 + ((shares[:, begin:] > 0).T @ costs[1:]).mean() / costs[0]


@pytest.mark.parametrize("classify", [True, False])
def test_where_linear_members_suffice_the_others_sleep(classify):
    values, targets = linear_stream(16_000, classify=classify)
    model = model_of(2 if classify else 0)
    played = model.play(values, targets.tolist())
    assert mean_cost(model, played, 10_000) <= 2.0
    assert model.model_.engine.asleep
    assert "Asleep, because they do not earn their cost: " in model.explain()
    linear = model_of(2 if classify else 0).set_params(features="linear")
    assert played.loss.mean() < 1.005 * linear.play(values, targets.tolist()).loss.mean()


def test_with_high_effort_nobody_sleeps_and_with_low_there_are_no_trees():
    values, targets = linear_stream(5_000)
    high, low = model_of(2, effort="high"), model_of(2, effort="low")
    played = high.play(values, targets.tolist())
    assert mean_cost(high, played, 4_500) > 4 and not high.model_.engine.asleep
    low.play(values[:300], targets[:300].tolist())
    assert list(low.model_.engine.spec.members)[-1] == "lags"


def test_sleepers_wake_when_the_stream_leaves_the_linear_members():
    values, targets = linear_stream(12_000)
    targets[8_000:] = values[8_000:, 0] * values[8_000:, 1] > 0
    played = model_of(2).play(values, targets.tolist())
    members = played.hyperparameters["members"]
    trees = np.array([members[name] for name in TREES])
    assert (trees[:, 7_000:8_000] == 0).mean() > 0.5
    assert (trees[:, 11_000:] > 0).any(axis=0).mean() > 0.9
    assert played.loss[11_000:].mean() < 0.4


# ---- memory, sparse models, pools, options ---------------------------------------------------


@pytest.mark.parametrize(("features", "classes"), [(4, 2), (9, 3), (60, 12)])
def test_memory_is_known_and_held(features, classes):
    limit = 2**23
    model = model_of(classes, max_memory=limit).prepare().model_
    model.grow(list(range(features)), list(range(classes)))
    assert budget.taken(model.options, features, classes) == model.engine.bytes
    values, _ = stream(2500, features)
    labels = (np.nan_to_num(values[:, 0]) > 0.3) + (np.nan_to_num(values[:, 1]) > 0.3)
    model.play(values, (labels % classes).tolist())
    counts = [v for k, v in model.engine.state().items() if k.endswith(".counts")]
    assert sum(map(len, counts)) * 4 <= limit / 4 + 4 * len(counts) * 30 * 127
    assert model.engine.bytes <= limit or features == 60


def test_a_model_with_many_features_becomes_linear():
    values, targets = stream(300, 70)
    model = model_of(2)
    model.learn_many(values[:250, :10], targets[:250].tolist())
    assert "trees 30" in model.hyperparameters_["members"]
    model.learn_many(values[250:], targets[250:].tolist())
    assert model.model_.sparse and "trees 30" not in model.hyperparameters_["members"]


def test_intervals_keep_their_coverage():
    values, targets = stream(5_000, classes=0)
    model = model_of(0)
    low, high = model.progressive_interval(values, targets.tolist(), coverage=0.9).T
    inside = (low <= targets) & (targets <= high)
    assert 0.87 < inside[1_000:].mean() < 0.93


def test_a_pool_equals_separate_models():
    pool = Pool(model_of(2), key="key")
    values, targets = stream(700)
    keys = np.random.default_rng(2).integers(0, 2, 700)
    rows = [row | {"key": int(key)} for row, key in zip(dicts(values), keys, strict=True)]
    pool.learn_many(None, rows, targets.tolist())
    for key in (0, 1):
        mine = model_of(2)
        for row, target in zip(
            np.array(dicts(values))[keys == key], targets[keys == key], strict=True
        ):
            mine.learn_one(row, int(target))
        row = dicts(values[:1])[0]
        assert pool.predict_proba_one(row | {"key": key}) == mine.predict_proba_one(row)


def test_options_are_checked_and_explained():
    with pytest.raises(ValueError, match="effort must be one of 'low', 'auto', 'high'"):
        model_of(2, effort="some").learn_one({"a": 1.0}, 0)
    values, targets = stream(800)
    model = model_of(2, effort="high")
    model.learn_many(values, targets.tolist())
    words = model.explain()
    assert "times the linear members: lags" in words
    assert "The features that trees gain most from: " in words
    assert "No member sleeps (effort='high')." in words
    assert len(model.plot().axes) > 3
