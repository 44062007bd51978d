"""Models with many features: rows by their keys, growth, sparse matrices, surplus, losses."""

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse
from states import same, state

import obax
from obax.estimators import StreamingClassifier, StreamingRegressor

MEMBERS = ("tuned", "start", "short", "long", "sgd")


def words(n, seed=0, vocabulary=10_000, length=15):
    """Bags of words, as long as short messages; one of seven is of another kind, in which some
    words are more frequent."""
    rng = np.random.default_rng(seed)
    base = 1 / np.arange(1, vocabulary + 1) ** 1.05
    tilt = np.exp(1.5 * rng.standard_normal(vocabulary) * (rng.random(vocabulary) < 0.3))
    chances = [base / base.sum(), base * tilt / (base * tilt).sum()]
    labels = (rng.random(n) < 1 / 7).tolist()
    rows = []
    for label in labels:
        drawn = rng.choice(vocabulary, 1 + rng.poisson(length + 8 * label), p=chances[label])
        found, counts = np.unique(drawn, return_counts=True)
        rows.append({f"w{i}": int(c) for i, c in zip(found, counts, strict=True)})
    return rows, labels


def matrix(rows):
    """The same as a sparse matrix with a million columns, and as dicts by column."""
    numbered = [{int(name[1:]): float(value) for name, value in row.items()} for row in rows]
    columns = [i for row in numbered for i in row]
    values = [value for row in numbered for value in row.values()]
    begins = np.cumsum([0, *map(len, numbered)])
    return scipy.sparse.csr_matrix((values, columns, begins), (len(rows), 10**6)), numbered


@pytest.mark.parametrize("kind", ["two", "four", "numbers"])
def test_batches_of_any_size_give_the_same_bits(kind):
    """In one piece, in parts, one row at a time, keys in another order; and what is predicted,
    also of the row that makes the model wide and of one with a class that is new."""
    rows, labels = words(250)
    rng = np.random.default_rng(0)
    targets = {"two": labels, "four": rng.integers(0, 4, 250).tolist()}
    targets = targets.get(kind, rng.standard_normal(250).tolist())
    make = StreamingRegressor if kind == "numbers" else StreamingClassifier
    whole, parts, single = (make(members=MEMBERS) for _ in range(3))
    said = whole.progressive(rows, targets)
    for begin, end in ((0, 1), (1, 8), (8, 120), (120, 250)):
        parts.learn_many(rows[begin:end], targets[begin:end])
    heard = []
    for row, target in zip(rows, targets, strict=True):
        if kind == "numbers":
            heard.append(single.predict_one(row))
        else:
            found = single.predict_proba_one(row)
            heard.append([found.get(label, 0.0) for label in whole.classes_])
        single.learn_one(dict(reversed(row.items())), target)
    same(whole, parts)
    same(whole, single)
    # The first rows are not wide: there, columns of zeros round otherwise than none.
    np.testing.assert_allclose(said[:10], heard[:10], rtol=1e-12)
    np.testing.assert_array_equal(said[10:], heard[10:])
    assert whole.model_.sparse
    np.testing.assert_array_equal(whole.model_.predict(rows[:9]), single.model_.predict(rows[:9]))


def test_sparse_matrix_equals_dicts_of_its_entries():
    """A million columns of which no table could be made; both faces, whole and in parts."""
    rows, labels = words(200)
    csr, dicts = matrix(rows)
    by_dicts, whole, parts, fitted = (StreamingClassifier() for _ in range(4))
    # From the very first row on, as a matrix with so many columns says.
    by_dicts.learn_many(csr[:1], labels[:1])
    by_dicts.learn_many(dicts[1:], labels[1:])
    whole.learn_many(csr, labels)
    for begin, end in ((0, 3), (3, 200)):
        parts.partial_fit(csr[begin:end].tocoo(), labels[begin:end], classes=[False, True])
    same(whole, by_dicts)
    fitted.fit(csr, labels)
    same(whole, fitted)
    np.testing.assert_array_equal(
        whole.predict_proba(csr), by_dicts.model_.predict(dicts)[:, whole._order()]
    )
    assert parts.predict(csr).shape == (200,)
    assert len(whole.feature_names_) == len({name for row in rows for name in row})
    assert len(state(whole)["cells"]) < 10_000
    twice = scipy.sparse.coo_matrix(([1.0, 2.0], ([0, 0], [7, 7])), (1, 10**6))
    assert twice.nnz == 2
    np.testing.assert_array_equal(
        whole.predict_proba(twice), whole.predict_proba(scipy.sparse.csr_matrix(twice.tocsr()))
    )
    with pytest.raises(ValueError, match="real numbers"):
        whole.learn_many(csr.astype(complex), labels)


def test_narrow_sparse_matrix_equals_a_dense_one():
    rng = np.random.default_rng(1)
    table = rng.poisson(0.5, (60, 8)).astype(float)
    labels = table[:, 0] > table[:, 1]
    dense, sparse = StreamingClassifier(), StreamingClassifier()
    dense.fit(table, labels)
    sparse.fit(scipy.sparse.csr_array(table), labels)
    same(dense, sparse)


def test_dense_model_becomes_sparse_without_a_break():
    """Weights, the diagonal of the curvature, statistics, hyperparameters, shares; classes too."""
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((500, 70)) + 5
    labels = (rows[:, :4].sum(axis=1) > 20).tolist()
    model = StreamingClassifier(members=MEMBERS)
    dicts = [dict(enumerate(row)) for row in rows.tolist()]
    model.learn_many([dict(list(row.items())[:60]) for row in dicts[:400]], labels[:400])
    before, shares = state(model), model.hyperparameters_["members"]
    memory = model.hyperparameters_["memory"]
    said = np.array([list(model.predict_proba_one(row).values()) for row in dicts[400:]])
    model.model_.add_features(range(60, 70))
    part = state(model)
    curvature, weights = 5, 9  # behind statistics and, of the tuned member, three derivatives
    theirs = before["member.tuned.weights"][0]
    np.testing.assert_array_equal(part["cells"][1:61, weights], theirs[:60])
    np.testing.assert_array_equal(part["cells"][0, weights], theirs[60])
    diagonal = np.diagonal(before["member.tuned.curvature"])
    np.testing.assert_array_equal(part["cells"][:61, curvature], np.roll(diagonal, 1))
    assert model.hyperparameters_["members"] == shares
    assert model.hyperparameters_["memory"] == memory
    assert model.model_.sparse and len(model.coef_[0]) == 70
    now = np.array([list(model.predict_proba_one(row).values()) for row in dicts[400:]])
    # The same weights meet the same standardised features; only logits are not moderated.
    assert np.mean((now > 0.5) == (said > 0.5)) > 0.99
    model.learn_many(dicts[400:], labels[400:])
    found = np.mean(np.array([model.predict_one(row) for row in dicts[400:]]) == labels[400:])
    assert found > 0.85
    third = model.predict_proba_one(dicts[0])
    model.learn_one(dicts[0], "third")
    assert model.predict_proba_one(dicts[1]).keys() == {*third, "third"}


def test_large_feature_offsets_keep_precision():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((600, 80))
    labels = rows[:, :5].sum(axis=1) > 0
    plain = StreamingClassifier().progressive(rows, labels)
    moved = StreamingClassifier().progressive(rows + 1e7, labels)
    np.testing.assert_allclose(moved, plain, atol=1e-5)


def test_missing_values_are_means_and_words_are_not_centred():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((400, 80)) + 1e4
    target = (rows[:, :5] - 1e4).sum(axis=1)
    rows[rng.random(rows.shape) < 0.2] = np.nan
    model = StreamingRegressor(members=MEMBERS)
    error = np.abs(model.progressive(rows, target) - target)[200:].mean()
    assert error < 0.6 * np.abs(target).mean()
    texts, labels = words(400)
    by_words = StreamingClassifier(members="tuned")
    by_words.learn_many(texts, labels)
    # A row without any known word is what the intercept says.
    second = by_words.predict_proba_one({"never seen": 1})[by_words.model_.engine.labels[1]]
    assert second == pytest.approx(1 / (1 + np.exp(-by_words.intercept_[0])))


def test_features_beyond_max_features_are_counted():
    """The row is learned without them: the model is that of rows that never had them."""
    rows, labels = words(300)
    model, single, without = (StreamingClassifier(max_features=100) for _ in range(3))
    model.learn_many(rows, labels)
    for row, label in zip(rows, labels, strict=True):
        single.learn_one(row, label)
    same(model, single)
    assert len(model.feature_names_) == 100 and model.rejected_.count == 0
    known = set(model.feature_names_)
    expected = sum(name not in known for row in rows for name in row)
    assert model.ignored_ == single.ignored_ == expected
    assert f"{expected:,} values of features beyond the first 100" in model.explain()
    without.learn_many([{n: v for n, v in row.items() if n in known} for row in rows], labels)
    same(model, without)
    few = StreamingClassifier(max_features=2)
    few.learn_many(np.ones((5, 4)), [True, False] * 2 + [True])
    assert few.ignored_ == 10 and few.feature_names_ == [0, 1]


def test_rejected_rows_leave_sparse_models_unchanged():
    rows, labels = words(60)
    clean, model = StreamingClassifier(), StreamingClassifier()
    clean.learn_many(rows, labels)
    model.learn_many(rows[:40], labels[:40])
    bad = [{"new": float("inf"), "w1": 1.0}, {"other": [1.0]}, {"third": 10**400}]
    for row in bad:
        model.learn_one(row, True)
    model.learn_many([rows[40], {"fourth": 1e16}], [labels[40], True])
    model.learn_many(rows[41:], labels[41:])
    assert model.rejected_.count == 4
    assert "'new' is inf" in model.rejected_[0]["reason"]
    same(model, clean)


def test_checkpoints_and_copies_of_sparse_models(tmp_path):
    rows, labels = words(120)
    model = StreamingClassifier(members=MEMBERS)
    model.learn_many(rows[:80], labels[:80])
    obax.save(tmp_path / "model", model)
    others = [
        obax.load(tmp_path / "model", like=StreamingClassifier()),
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
    ]
    model.learn_many(rows[80:], labels[80:])
    for other in others:
        other.learn_many(rows[80:], labels[80:])
        same(model, other)


def test_per_feature_keeps_full_curvature():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((20, 66))
    model = StreamingClassifier(per_feature=True)
    model.learn_many(rows, rows[:, 0] > 0)
    assert not model.model_.sparse and len(model.hyperparameters_["penalty"]) == 66


def test_imbalance_option_of_sparse_models():
    rows, labels = words(1500)
    plain, balanced = StreamingClassifier(), StreamingClassifier(imbalance="weights")
    recalls = []
    for model in (plain, balanced):
        said = model.progressive(rows, labels)[:, list(model.classes_).index(True)]
        recalls.append(np.mean(said[500:][np.array(labels[500:])] > 0.5))
    assert recalls[1] > recalls[0]
    weights = balanced.hyperparameters_["class_weights"]
    assert weights[True] > weights[False]


def test_correlated_features_of_sparse_models():
    """The last 100 values of a series, which are nearly the same: by the member with full
    curvature, as well as by the noise; and it is kept when the model grows."""
    rng = np.random.default_rng(0)
    series, noise = np.zeros(1300), rng.standard_normal(1300)
    for t in range(2, 1300):
        series[t] = 1.6 * series[t - 1] - 0.64 * series[t - 2] + noise[t]
    rows = np.lib.stride_tricks.sliding_window_view(series, 100)[:-1]
    model, alone = StreamingRegressor(), StreamingRegressor(members="tuned")
    errors = [(m.progressive(rows, series[100:]) - series[100:])[600:] for m in (model, alone)]
    assert np.mean(errors[0] ** 2) < 1.4 < np.mean(errors[1] ** 2)
    assert model.hyperparameters_["members"]["long"] > 0.5
    before = state(model)["member.long.covariance"]
    assert len(before) == 128
    model.learn_one(dict.fromkeys(range(200), 0.0), 0.0)
    after = state(model)["member.long.covariance"]
    np.testing.assert_array_equal(np.diagonal(after)[201:], 1 / 3)
    assert np.abs(after[:101, :101] - before[:101, :101]).max() < 0.2
    model.learn_one(dict.fromkeys(range(600), 0.0), 0.0)
    assert "member.long.covariance" not in state(model)


def test_text_is_learned_better_than_by_the_best_river_setting():
    """Log loss of bags of words against eight settings of River's logistic regression."""
    linear_model = pytest.importorskip("river.linear_model")
    from river import optim

    rows, labels = words(1500)
    optimisers = [optim.SGD(rate) for rate in (0.01, 0.1, 0.3, 1.0)]
    optimisers += [optim.AdaGrad(rate) for rate in (0.03, 0.1, 0.3, 1.0)]

    def loss(said):
        right = np.where(labels, said, 1 - np.array(said))
        return -np.log(np.clip(right, 1e-15, 1)).mean()

    rivals = []
    for optimiser in optimisers:
        rival, said = linear_model.LogisticRegression(optimiser), []
        for row, label in zip(rows, labels, strict=True):
            said.append(rival.predict_proba_one(row)[True])
            rival.learn_one(row, label)
        rivals.append(loss(said))
    model = StreamingClassifier(members=MEMBERS)
    said = model.progressive(rows, labels, classes=[False, True])
    ours = loss(said[:, list(model.classes_).index(True)])
    assert ours < 0.9 * min(rivals)


def test_row_changed_after_its_prediction_is_read_again():
    """A row is not read twice to be predicted and learned, unless it is another one by then: with
    other values, other names, or names that the model has learned in between."""
    rows, labels = words(60, length=30)
    fresh, reused, buffer = StreamingClassifier(), StreamingClassifier(), {}
    for row, label in zip(rows, labels, strict=True):
        raised = {name: value + 1 for name, value in row.items()}
        for one in (row, raised, row):
            fresh.predict_proba_one(dict(one))
            buffer.clear()
            buffer.update(one)
            reused.predict_proba_one(buffer)
            # Between the two calls, the same dict gets other values.
            buffer.update(raised)
            fresh.learn_one(dict(raised), label)
            reused.learn_one(buffer, label)
    same(fresh, reused)


def test_incomparable_values_are_rejected():
    rows, labels = words(60, length=30)
    model = StreamingClassifier()
    model.learn_many(rows, labels)
    row = dict(rows[-1])
    model.predict_proba_one(row)
    row[next(iter(row))] = np.zeros(3)
    before = model.rejected_.count
    model.learn_one(row, labels[-1])
    assert model.rejected_.count == before + 1
