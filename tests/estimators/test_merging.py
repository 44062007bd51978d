"""Models trained apart on parts of a stream, merged, against one model of all of it."""

import numpy as np
import pytest

from obax.estimators import Pool, StreamingClassifier, StreamingRegressor, merge

FROZEN = {"learn": (), "members": "tuned", "memory": 1e6, "penalty": 1e-7, "inertia": 1e-3}


def drawn(count, seed=0):
    draw = np.random.default_rng(seed)
    X = draw.standard_normal((count, 3)) * [1.0, 5.0, 0.1] + [0.0, 3.0, 1.0]
    return X, X @ [1.0, 2.0, 3.0] + 0.5 * draw.standard_normal(count)


def learned(model, X, y):
    return model.learn_many(X, y) or model


def least_squares(X, y, Z):
    weights = np.linalg.lstsq(np.c_[X, np.ones(len(X))], y, rcond=None)[0]
    return np.c_[Z, np.ones(len(Z))] @ weights


def distance(model, expected, Z):
    return float(np.sqrt(np.mean((model.predict_many(Z).to_numpy() - expected) ** 2)))


def test_parts_that_saw_different_directions_are_least_squares_of_all():
    X, y = drawn(6000)
    # Each part sees one feature move and hardly anything of the other.
    X[:3000, 0] *= 0.02
    X[3000:, 1] = 3.0 + 0.02 * (X[3000:, 1] - 3.0)
    y = X @ [1.0, 2.0, 3.0] + 0.5 * np.random.default_rng(1).standard_normal(6000)
    parts = [
        learned(StreamingRegressor(**FROZEN), X[h], y[h]) for h in np.split(np.arange(6000), 2)
    ]
    Z = drawn(500, seed=2)[0]
    expected = least_squares(X, y, Z)
    merged = merge(parts)
    assert merged.learned_ == 6000
    assert distance(merged, expected, Z) < 0.15
    assert min(distance(part, expected, Z) for part in parts) > 0.3
    # The mean of predictions, which knows no curvature, is far off.
    mean = sum(part.predict_many(Z).to_numpy() for part in parts) / 2
    assert np.sqrt(np.mean((mean - expected) ** 2)) > 0.3


def test_exact_where_standardisation_has_settled():
    """Rows that repeat: the moments of both parts are those of all rows, and stay."""
    X, y = drawn(200)
    X, y = np.tile(X, (30, 1)), np.tile(y, 30)
    parts = [learned(StreamingRegressor(**FROZEN), X[:2000], y[:2000])]
    parts.append(learned(StreamingRegressor(**FROZEN), X[2000:], y[2000:]))
    expected = least_squares(X, y, X[:200])
    deviation = float(np.std(y))
    assert distance(merge(parts), expected, X[:200]) < 3e-3 * deviation
    alone = merge(parts[:1])
    assert distance(alone, parts[0].predict_many(X[:200]).to_numpy(), X[:200]) < 1e-8 * deviation


def test_classes_counts_and_what_is_kept():
    X, y = drawn(3000)
    labels = np.where(y > 9, "high", "low")
    parts = [learned(StreamingClassifier(), X[i::2], labels[i::2]) for i in range(2)]
    before = [part.predict_proba_many(X[:50]).to_numpy() for part in parts]
    merged, whole = merge(parts), learned(StreamingClassifier(), X, labels)
    assert merged.learned_ == 3000
    found, expected = (model.predict_proba_many(X)["high"].to_numpy() for model in (merged, whole))
    assert np.mean((found > 0.5) == (expected > 0.5)) > 0.98
    losses = [part.mean_loss_ for part in parts]
    assert merged.mean_loss_ == pytest.approx(np.mean(losses))
    learned(merged, X, labels)
    assert merged.learned_ == 6000 and merged.mean_loss_ < whole.mean_loss_ + 0.02
    for part, old in zip(parts, before, strict=True):
        assert np.array_equal(part.predict_proba_many(X[:50]).to_numpy(), old)


def test_keys_of_two_pools():
    X, y = drawn(400)
    pools = [Pool(StreamingRegressor(), "shop", shards=1) for _ in range(2)]
    for i, pool in enumerate(pools):
        pool.learn_many(["north"] * 200, X[i::2], y[i::2])
    merged = merge([pool["north"].model for pool in pools])
    assert merged.learned_ == 400 and abs(merged.predict_one(dict(enumerate(X[0]))) - y[0]) < 3


def test_models_that_differ_are_refused():
    X, y = drawn(60)
    plain = learned(StreamingRegressor(), X, y)
    with pytest.raises(ValueError, match="list of streaming models"):
        merge([])
    with pytest.raises(ValueError, match="same options"):
        merge([plain, learned(StreamingRegressor(memory=50.0), X, y)])
    with pytest.raises(ValueError, match="same features"):
        merge([plain, learned(StreamingRegressor(), X[:, :2], y)])
    lagged = [learned(StreamingRegressor(lags=2), X, y) for _ in range(2)]
    with pytest.raises(ValueError, match="linear, without lags"):
        merge(lagged)
