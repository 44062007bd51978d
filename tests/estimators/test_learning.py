"""That it learns what it says it learns: on real streams, under drift, for each option."""

import gzip
import io

import numpy as np
import pandas as pd
import pytest

from obax import datasets
from obax.estimators import StreamingClassifier, StreamingRegressor

# Best of 16 settings of River's LogisticRegression in hindsight: rates 0.01 to 1, l2 0 to 0.01.
RIVER = {"elec2": 0.2884, "weather": 0.4578}
PENALTIES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
MEMORIES = (10.0, 100.0, 1000.0)


def real(name):
    path = datasets.find(f"{name}.csv.gz")
    if path is None:
        pytest.skip("needs OBAX_DATA")
    table = pd.read_csv(io.BytesIO(gzip.decompress(path.read_bytes())))
    return table.iloc[:, :-1].to_numpy(float), table.iloc[:, -1].to_numpy(int)


def log_losses(model, rows, labels):
    found = model.progressive(rows, labels, classes=[0, 1])
    return -np.log(np.clip(found[np.arange(len(labels)), labels], 1e-15, 1))


def test_poor_start_is_recovered_from_on_weather():
    rows, labels = real("weather")
    rows, labels = rows[:6000], labels[:6000]
    start = {"penalty": 1.0, "memory": 10.0}
    tuned = log_losses(StreamingClassifier(**start), rows, labels).mean()
    frozen = log_losses(
        StreamingClassifier(**start, learn=(), members="tuned"), rows, labels
    ).mean()
    good = log_losses(StreamingClassifier(), rows, labels).mean()
    assert tuned < frozen - 0.05
    assert tuned < good + 0.01


@pytest.mark.slow
@pytest.mark.parametrize("name", RIVER)
def test_from_every_start_as_good_as_the_best_river_setting(name):
    rows, labels = real(name)
    for memory in MEMORIES:
        for penalty in PENALTIES:
            model = StreamingClassifier(penalty=penalty, memory=memory)
            assert log_losses(model, rows, labels).mean() <= RIVER[name], (penalty, memory)


def test_memory_follows_the_drift():
    """A stream whose truth turns quickly is remembered for less long than one that stands still."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((3000, 3))
    angle = np.arange(3000) / 40
    turning = np.cos(angle) * rows[:, 0] + np.sin(angle) * rows[:, 1]
    still = rows @ [1.0, 0.5, 0.0]
    noise = 0.3 * rng.standard_normal(3000)
    found = {}
    for name, score in (("turning", turning), ("still", still)):
        model = StreamingRegressor()
        model.learn_many(rows, score + noise)
        found[name] = model.hyperparameters_["memory"]
    assert found["turning"] < 40 < 400 < found["still"]


def test_per_feature_penalties_find_useless_features():
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((4000, 4))
    target = rows[:, 0] + rows[:, 1] + rng.standard_normal(4000)
    model = StreamingRegressor(per_feature=True, memory=30.0, learn=("penalty",))
    model.learn_many(rows, target)
    penalty = model.hyperparameters_["penalty"]
    assert min(penalty[2], penalty[3]) > 5 * max(penalty[0], penalty[1])


@pytest.mark.parametrize("imbalance", ["weights", "logits"])
def test_imbalance_option_raises_balanced_accuracy(imbalance):
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((4000, 2))
    labels = (rows[:, 0] + 0.5 * rng.standard_normal(4000) > 1.9).astype(int)
    assert 0.02 < labels.mean() < 0.08

    def recalls(model):
        said = model.progressive(rows, labels, classes=[0, 1])[1000:].argmax(axis=1)
        return [np.mean(said[labels[1000:] == k] == k) for k in (0, 1)]

    plain, balanced = StreamingClassifier(), StreamingClassifier(imbalance=imbalance)
    assert np.mean(recalls(balanced)) > np.mean(recalls(plain)) + 0.05
    learned = balanced.hyperparameters_
    if imbalance == "weights":
        assert learned["class_weights"][1] > 2 * learned["class_weights"][0]
    else:
        assert learned["logit_shifts"][0] > learned["logit_shifts"][1] + 0.5


def test_huber_does_not_follow_outliers():
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((1500, 3))
    truth = rows @ [1.0, -2.0, 0.5]
    target = truth + 0.1 * rng.standard_normal(1500)
    target[::12] += 30 * rng.standard_normal(125)
    errors = {}
    for loss in ("squared", "huber"):
        said = StreamingRegressor(loss=loss, delta=0.3).progressive(rows, target)
        errors[loss] = np.sqrt(np.mean((said - truth)[700:] ** 2))
    assert errors["huber"] < 0.6 * errors["squared"]


def test_history_plot_and_explain():
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((600, 3))
    model = StreamingRegressor(per_feature=True)
    model.learn_many(pd.DataFrame(rows, columns=["a", "b", "c"]), rows[:, 0])
    history = model.hyperparameter_history_
    assert history["row"].tolist() == list(range(1, 601))
    assert history["memory"][-1] == pytest.approx(model.hyperparameters_["memory"], rel=1e-5)
    assert set(history["penalty"]) == {"a", "b", "c"}
    figure = model.plot()
    assert [a.get_ylabel() for a in figure.axes][2:] == [
        "penalty",
        "memory, rows",
        "inertia",
        "members",
    ]
    assert "600 rows learned" in model.explain() and "looks back about" in model.explain()
    assert model.coef_.shape == (1, 3) and model.intercept_.shape == (1,)
