"""A pool says what separate models say, whatever happens to the keys on the way."""

import concurrent.futures
import copy
import json
import pickle

import numpy as np
import pandas as pd
import pytest
from states import same_numbers, state

import obax
from obax.estimators import Pool, StreamingClassifier, StreamingRegressor
from obax.estimators.pool import reading
from obax.estimators.pool.pool import POINTS

KEYS, ROWS = 12, 900


def drawn(kind, seed=0, rows=ROWS):
    """Keys, rows and targets; every key has a truth of its own, and not all classes."""
    rng = np.random.default_rng(seed)
    keys = rng.integers(0, KEYS, rows)
    values = rng.standard_normal((rows, 3))
    score = (values * rng.standard_normal((KEYS, 3))[keys]).sum(axis=1)
    if kind == "numbers":
        return keys, values, 5 * score + rng.standard_normal(rows)
    if kind == "two":
        return keys, values, np.array(["no", "yes"])[(score > 0).astype(int)]
    # Key 0 meets two classes, key 1 three, and so on: models of several sizes.
    label = np.digitize(score + 0.3 * rng.standard_normal(rows), [-1, -0.3, 0.3, 1])
    return keys, values, np.array(list("dbeca"))[np.minimum(label, 1 + keys % 4)]


def model_of(kind, **options):
    return StreamingRegressor(**options) if kind == "numbers" else StreamingClassifier(**options)


def in_batches(pool, keys, rows, targets, size):
    """Progressive predictions in columns by the name of the class."""
    parts = []
    for begin in range(0, len(keys), size):
        span = slice(begin, begin + size)
        said = pool.progressive(keys[span], rows[span], targets[span])
        names = pool.classes_ if said.ndim == 2 else ["said"]
        parts.append(pd.DataFrame(said.reshape(len(said), -1), columns=list(names)))
    return pd.concat(parts, ignore_index=True).fillna(0.0)


def separate(kind, keys, rows, targets, **options):
    """What one model for each key says."""
    found = {}
    for key in range(KEYS):
        mine = np.flatnonzero(keys == key)
        model = model_of(kind, **options)
        said = model.progressive(rows[mine], targets[mine])
        names = model.classes_ if said.ndim == 2 else ["said"]
        found[key] = model, mine, pd.DataFrame(said.reshape(len(said), -1), columns=list(names))
    return found


def check_same(pool, said, alone):
    for key, (model, mine, theirs) in alone.items():
        ours = said.loc[mine].reset_index(drop=True)
        others = [name for name in ours.columns if name not in theirs.columns]
        np.testing.assert_allclose(ours[theirs.columns], theirs, rtol=1e-9, atol=1e-12)
        assert not ours[others].to_numpy().any()
        view = pool[key].model
        theirs, apart = state(model), ("history", "intervals")
        for name, numbers in state(view).items():
            if not name.startswith(apart):  # of other lengths
                np.testing.assert_allclose(numbers, theirs[name], rtol=1e-9, atol=1e-12)
        assert view.mean_loss_ == pytest.approx(model.mean_loss_)
        assert pool[key].rows_ == len(mine)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("two", {}),
        ("many", {}),
        ("many", {"imbalance": "weights"}),
        ("numbers", {"loss": "huber", "lags": 1}),
        ("two", {"per_feature": True, "members": "tuned"}),
        ("numbers", {"features": "fourier"}),
    ],
)
def test_pool_equals_separate_models(kind, options):
    keys, rows, targets = drawn(kind)
    alone = separate(kind, keys, rows, targets, **options)
    for batch, shards, most in ((ROWS, 1, None), (100, 3, None), (70, 2, 5)):
        pool = Pool(model_of(kind, **options), shards=shards, max_keys=most)
        check_same(pool, in_batches(pool, keys, rows, targets, batch), alone)
        assert len(pool) == KEYS and (most is None or pool.in_memory_ <= most)


def test_one_row_at_a_time_and_in_the_order_of_the_key():
    keys, rows, targets = drawn("two", rows=150)
    many, one = Pool(StreamingClassifier(), "shop"), Pool(StreamingClassifier(), "shop")
    said = many.progressive(keys, rows, targets)
    for i in range(len(keys)):
        row = {"shop": int(keys[i]), **dict(enumerate(rows[i].tolist()))}
        found = one.predict_proba_one(row)
        columns = {label: said[i, j] for j, label in enumerate(many.classes_) if said[i, j] > 0}
        assert found == pytest.approx(columns)
        one.learn_one(row, str(targets[i]))
    # Mutant: the order of a key's rows matters, so that a pool which mixed it up would be seen.
    other = Pool(StreamingClassifier(), "shop")
    other.learn_many(keys[::-1], rows[::-1], targets[::-1])
    mine = [pool[3].hyperparameters_["memory"] for pool in (many, one, other)]
    assert mine[0] == mine[1] != mine[2]


def test_pool_play_equals_play_of_separate_models():
    keys, rows, targets = drawn("many")
    targets = [None if i % 9 == 8 else str(label) for i, label in enumerate(targets)]
    options = {"imbalance": "weights"}
    pool = Pool(StreamingClassifier(**options), shards=2)
    found = pool.play(keys, rows, targets)
    for key in range(KEYS):
        mine = np.flatnonzero(keys == key)
        model = StreamingClassifier(**options)
        alone = model.play(rows[mine], [targets[i] for i in mine])
        labelled = [j for j, i in enumerate(mine) if targets[i] is not None]
        np.testing.assert_array_equal(found.loss[mine][labelled], alone.loss[labelled])
        for name in ("penalty", "memory", "inertia"):
            ours = found.hyperparameters[name][mine]
            np.testing.assert_array_equal(ours, alone.hyperparameters[name])
        for label, weights in alone.hyperparameters["class_weights"].items():
            ours = found.hyperparameters["class_weights"][label][mine]
            known = ~np.isnan(ours)
            np.testing.assert_array_equal(ours[known], weights[known])
            assert known.any()
    assert found.rejected == [None] * ROWS and pool.learned_ == sum(t is not None for t in targets)
    nothing = pool.progressive([], np.zeros((0, 3)), [])
    assert nothing.shape == (0, 5) and pool.rows == ROWS


def test_predictions_for_known_and_unknown_keys():
    keys, rows, targets = drawn("many")
    pool = Pool(StreamingClassifier(), max_keys=4)
    pool.learn_many(keys, rows, targets)
    before = pool.learned_
    asked = [*range(KEYS), "nobody", None, [1]]
    proba = pool.predict_proba_many(asked, rows[: len(asked)])
    labels = pool.predict_many(asked, rows[: len(asked)])
    for key in range(KEYS):
        model = pool[key].model
        told = model.predict_proba_one(dict(enumerate(rows[key])))
        assert {k: v for k, v in proba.loc[key].items() if v} == pytest.approx(told)
        assert labels[key] == model.predict_one(dict(enumerate(rows[key])))
    assert not proba.iloc[KEYS:].to_numpy().any() and labels.iloc[KEYS:].isna().all()
    assert pool.learned_ == before and len(pool) == KEYS and not pool.rejected_.count
    numbers = Pool(StreamingRegressor())
    assert numbers.predict_many(["a"], [[1.0]]).to_list() == [0.0]
    with pytest.raises(AttributeError, match="for classes"):
        numbers.predict_proba_many(["a"], [[1.0]])


def test_rows_without_a_key_are_rejected_and_counted():
    pool = Pool(StreamingClassifier(), "shop")
    bad = [None, float("nan"), "", [1], {2}, frozenset({1})]
    given = ["a", *bad, "a", ("a", 1), np.int64(3)]
    rows = [[1.0], *([[2.0]] * len(bad)), [float("inf")], [3.0], [4.0]]
    played = pool.play(given, rows, [0] * len(given))
    assert list(pool) == ["a", ("a", 1), 3]
    reasons = played.rejected[1 : len(bad) + 2]
    words = ["missing"] * 3 + ["a list is not hashable", "a set is not hashable", "a frozenset"]
    for reason, word in zip(reasons, [*words, "infinite"], strict=True):
        assert word in reason
    assert [played.rejected[i] for i in (0, -1, -2)] == [None] * 3
    assert pool.rejected_.count == len(bad) + 1 and pool.rejected_[0]["row"] == 2
    assert pool.learned_ == 3 and "rejected" in pool.explain()
    # Those of a key are its own.
    assert pool["a"].model.rejected_.count == 1 and pool[3].model.rejected_.count == 0
    with pytest.warns(UserWarning, match="100 rows were rejected and none was learned"):
        Pool(StreamingClassifier()).learn_many([None] * 100, np.zeros((100, 1)), [0] * 100)


def test_keys_in_a_column():
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "shop": ["x", "y", "x"]})
    pools = [Pool(StreamingRegressor(), "shop") for _ in range(3)]
    pools[0].learn_many(None, frame, [1.0, 2.0, 3.0])
    pools[1].learn_many(None, frame.to_dict("records"), [1.0, 2.0, 3.0])
    pools[2].learn_many(frame["shop"], frame[["a"]], [1.0, 2.0, 3.0])
    for pool in pools:
        assert pool.feature_names_ == ["a"] and list(pool) == ["x", "y"]
        assert pool["x"].hyperparameters_ == pools[0]["x"].hyperparameters_
    with pytest.raises(ValueError, match="rows have a column 'shop'"):
        pools[0].learn_many(None, frame[["a"]], [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="keys must be as many as rows, 3, but there are 2"):
        pools[0].learn_many(["x", "y"], frame, [1.0, 2.0, 3.0])


def test_late_features_and_words_in_a_pool():
    rng = np.random.default_rng(0)
    pool, alone = Pool(StreamingClassifier(), max_keys=2), StreamingClassifier()
    rows = [
        {"a": float(a), "city": city}
        for a, city in zip(rng.standard_normal(80), "pq" * 40, strict=True)
    ]
    for i, row in enumerate(rows):
        row |= {"b": float(i % 3)} if i > 30 else {}
    labels = [row["a"] + (row["city"] == "q") > 0.5 for row in rows]
    for i, row in enumerate(rows):
        key = "abc"[i % 3]
        pool.learn_many([key], [row], [labels[i]])
        if key == "a":
            alone.learn_one(row, labels[i])
    told = pool.predict_proba_many(["a"], [rows[-1]]).iloc[0].to_dict()
    assert told == pytest.approx(alone.predict_proba_one(rows[-1]))
    many = {f"f{i}": 1.0 for i in range(70)}
    pool.learn_many(["a"], [many], [True])
    assert len(pool.feature_names_) == 64 and pool.ignored_ > 0 and "ignored" in pool.explain()


def test_models_on_disk_come_back_unchanged(tmp_path):
    keys, rows, targets = drawn("two")
    pool = Pool(StreamingClassifier(), max_keys=3, shards=1, folder=tmp_path / "cold")
    pool.learn_many(keys, rows, targets)
    assert pool.in_memory_ == 3 and len(pool.models.places) == KEYS - 3
    # The least recently used are the ones that went: the last three stayed.
    last = list(dict.fromkeys(keys[::-1].tolist()))[:3]
    there = [key for key in pool if pool.reader.keys[key] not in pool.models.places]
    assert sorted(there) == sorted(last)
    size = pool.models.size
    before = {key: state(pool[key].model) for key in pool}
    for _ in range(3):
        pool.predict_many(list(range(KEYS)), rows[:KEYS])
    for key in pool:
        same_numbers(state(pool[key].model), before[key])
    # Room is used again.
    assert pool.models.size <= 1.5 * size
    # Mutant: a byte that the disk has changed is seen.
    place = next(iter(pool.models.places.values()))
    pool.models.file.seek(place.offset)
    pool.models.file.write(b"\x55" * 8)
    with pytest.raises(OSError, match="come back changed"):
        pool.predict_many(list(range(KEYS)), rows[:KEYS])


@pytest.mark.parametrize("most", [None, 4])
def test_pool_continues_after_loading(tmp_path, most):
    keys, rows, targets = drawn("many")
    whole, half = (Pool(StreamingClassifier(), "k", max_keys=most, shards=2) for _ in range(2))
    first, second = slice(0, 450), slice(450, None)
    whole.learn_many(keys[first], rows[first], targets[first])
    half.learn_many(keys[first], rows[first], targets[first])
    half.learn_many([None], rows[:1], ["a"])
    obax.save(tmp_path / "pool.obax", half)
    # On a machine with other cores.
    found = obax.load(tmp_path / "pool.obax", like=Pool(StreamingClassifier(), shards=3))
    assert found.key == "k" and found.max_keys == most and list(found) == list(half)
    assert found.rejected_.count == 1 and found.learned_ == half.learned_
    pd.testing.assert_frame_equal(found.tenants(), half.tenants())
    mine = [p.progressive(keys[second], rows[second], targets[second]) for p in (whole, found)]
    assert np.array_equal(*mine)
    with pytest.raises(ValueError, match="holds a Pool"):
        obax.load(tmp_path / "pool.obax", like=StreamingClassifier())
    with pytest.raises(ValueError, match="pool of StreamingClassifier"):
        obax.load(tmp_path / "pool.obax", like=Pool(StreamingRegressor()))
    # The same pool is the same bytes.
    assert obax.checkpoint.to_bytes(half) == obax.checkpoint.to_bytes(half)


def test_threads():
    keys, rows, targets = drawn("two")
    pool, alone = Pool(StreamingClassifier(), shards=2, max_keys=6), Pool(StreamingClassifier())
    alone.learn_many(keys, rows, targets)

    def work(some):
        mine = np.flatnonzero(np.isin(keys, some))
        for begin in range(0, len(mine), 20):
            at = mine[begin : begin + 20]
            pool.learn_many(keys[at], rows[at], targets[at])
            pool.predict_many(keys[at], rows[at])
            pool.tenants(3)

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        list(threads.map(work, np.array_split(np.arange(KEYS), 4)))
    assert pool.learned_ == pool.rows == len(keys)
    for key in range(KEYS):
        assert pool[key].hyperparameters_ == alone[key].hyperparameters_


def test_pooled_start_is_the_median_for_any_batches():
    keys, rows, targets = drawn("two", rows=3000)
    keys = np.where(np.arange(3000) < 2500, keys, 100 + keys)
    pools = [Pool(StreamingClassifier(), start="pooled", max_keys=most) for most in (None, 5)]
    said = [
        in_batches(pool, keys, rows, targets, size)
        for pool, size in zip(pools, (3000, 170), strict=True)
    ]
    pd.testing.assert_frame_equal(*said)
    starts = pools[0].starts
    assert starts == pools[1].starts and starts != {
        "penalty": 1e-3,
        "memory": 100.0,
        "inertia": 1.0,
    }
    plain = Pool(StreamingClassifier())
    others = in_batches(plain, keys, rows, targets, 3000)
    # The keys that came first began as ever, those that came later did not.
    assert others[:1000].equals(said[0][:1000]) and not others.equals(said[0])


def test_tenants_explain_and_plot():
    keys, rows, targets = drawn("two")
    pool = Pool(StreamingClassifier(), "shop")
    pool.learn_many([f"shop {key}" for key in keys], rows, targets)
    view = pool["shop 3"]
    assert view.explain().startswith("shop 3: ") and "rows learned" in view.explain()
    assert len(view.plot().axes) > 3
    history = view.hyperparameter_history_
    assert POINTS // 2 <= len(history["row"]) <= POINTS and set(history) > {"loss", "memory"}
    table = pool.tenants()
    assert table["loss"].is_monotonic_decreasing and table["rows"].sum() == ROWS
    assert str(table["key"][0]) in pool.explain() and "12 keys" in pool.explain()
    with pytest.raises(KeyError, match="Did you mean 'shop 3'"):
        pool["shop3"]
    assert pool.bytes_per_key_ < 16_000


def test_history_of_a_key_equals_a_model_with_as_many_points():
    """The notes of a slot go through the same code as the record of a model."""
    keys, rows, targets = drawn("two")
    pool = Pool(StreamingClassifier())
    pool.learn_many(keys, rows, targets)
    ours = pool[5].model.hyperparameter_history_
    mine = np.flatnonzero(keys == 5)
    full = StreamingClassifier()
    full.learn_many(rows[mine], targets[mine])
    theirs = full.hyperparameter_history_
    at = ours["row"] - 1
    np.testing.assert_array_equal(ours["memory"], theirs["memory"][at])
    stride = ours["row"][0]
    means = [theirs["loss"][i + 1 - stride : i + 1].mean() for i in at]
    np.testing.assert_allclose(ours["loss"], means)


def test_keys_have_separate_models():
    pool = Pool(StreamingRegressor(), shards=1)
    for i in range(5):
        names = list(range(20 * i, 20 * (i + 1)))
        pool.learn_many(names, [[float(n)] for n in names], [float(n) for n in names])
    means = [state(pool[n].model)["moments"][0, 1] for n in (0, 57, 99)]
    assert means == [0, 57, 99]


@pytest.mark.parametrize("features", ["linear", "fourier", "interactions"])
def test_keys_with_different_features_are_separate_models(features):
    """With the features of all keys in each model, waves were those of more features than its own:
    .549 against .502 for random Fourier features."""
    rng = np.random.default_rng(0)
    pool = Pool(StreamingClassifier(features=features))
    alone = {key: StreamingClassifier(features=features) for key in "abc"}
    for i in range(300):
        key = "abc"[i % 3]
        names = {"a": "xy", "b": "yz", "c": "x"}[key] if i < 150 else "xyz"
        row = dict(zip(names, rng.standard_normal(3).tolist(), strict=False))
        label = sum(row.values()) > 0
        if i > 10:
            told = pool.predict_proba_many([key], [row]).iloc[0].to_dict()
            assert told == pytest.approx(alone[key].predict_proba_one(row), rel=1e-12)
        pool.learn_many([key], [row], [label])
        alone[key].learn_one(row, label)
    for key, model in alone.items():
        assert pool[key].mean_loss_ == model.mean_loss_
        assert pool[key].model.feature_names_ == model.feature_names_


@pytest.mark.parametrize("most", [None, 3])
def test_pickles_and_copies_of_pools_are_independent(most):
    keys, rows, targets = drawn("many", rows=300)
    pool = Pool(StreamingClassifier(), "shop", max_keys=most)
    pool.learn_many(keys[:200], rows[:200], targets[:200])
    for other in (copy.deepcopy(pool), pickle.loads(pickle.dumps(pool))):
        assert other.explain() == pool.explain() and list(other) == list(pool)
        said = other.progressive(keys[200:], rows[200:], targets[200:])
        assert pool.learned_ == 200 and other.learned_ == 300
    np.testing.assert_array_equal(said, pool.progressive(keys[200:], rows[200:], targets[200:]))


POOLS = {
    "a class that is not there": ("keys.labels", 0, 30),
    "a feature that is not there": ("keys.features", 0, 30),
    "a feature twice": ("keys.features", 0, 1),
    "a negative count": ("keys.given", 0, -1),
    "more features than there are": ("keys.features.count", 0, 9),
    "a layout that is not there": ("keys.layout", 0, 99),
    "a weight that is infinite": ("states.0.shares", 0, np.inf),
    "a count below its range": ("states.0.history.learned", 0, -50.0),
}


@pytest.mark.parametrize("change", POOLS)
def test_crafted_pool_checkpoints_raise(change):
    keys, rows, targets = drawn("two", rows=60)
    pool = Pool(StreamingClassifier())
    pool.learn_many(keys, rows, targets)
    arrays, extra = pool.__obax_save__()
    assert pool.__obax_load__(arrays, extra).explain() == pool.explain()
    path, at, value = POOLS[change]
    arrays[path] = arrays[path].copy()
    arrays[path][at] = value
    with pytest.raises(ValueError, match=r"checkpoint|damaged|must be|in the file"):
        pool.__obax_load__(arrays, extra)
    for part in ("keys", "names", "classes"):
        with pytest.raises(ValueError, match="different from each other"):
            pool.__obax_load__(pool.__obax_save__()[0], extra | {part: 2 * extra[part]})


def test_shards_are_the_same_in_every_process():
    """Python's own hash of a word is not; and equal keys are of one shard."""
    assert reading.spread("customer 7") == 3072460549
    assert reading.spread(1) == reading.spread(1.0) == reading.spread(True)
    assert reading.spread(("a", 1)) == reading.spread(("a", 1.0))
    assert reading.spread(("a", 1)) != reading.spread(("a", 2))


def test_invalid_pool_arguments_raise():
    used = StreamingClassifier()
    used.learn_one({"a": 1.0}, True)
    for arguments, options, words in (
        ((used,), {}, "model must be fresh"),
        (("x",), {}, "model must be a StreamingClassifier"),
        ((StreamingClassifier(),), {"max_keys": 0}, "max_keys must be an integer >= 1, but got 0"),
        ((StreamingClassifier(),), {"shards": 1.5}, "shards must be an integer >= 1, but got 1.5"),
        ((StreamingClassifier(),), {"start": "median"}, "start must be one of 'default', 'pooled'"),
        ((StreamingClassifier(memory=-1),), {}, "memory must be"),
    ):
        with pytest.raises(ValueError, match=words):
            Pool(*arguments, **options)
    pool = Pool(StreamingClassifier(memory=50.0), "shop", max_keys=7)
    assert pool.get_params()["model__memory"] == 50.0 and pool.get_params()["max_keys"] == 7
    json.dumps(pool.get_params())
