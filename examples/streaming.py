"""A stream that drifts, a model that keeps itself in tune: no download, a few seconds.

    python examples/streaming.py

Shows the same model with its hyperparameters learned and frozen, from a good and from a poor
start, then saves the model, loads it again and goes on. `pip install -e '.[river,sklearn]'` adds
the interfaces of both libraries; neither is needed here.
"""

import tempfile
from pathlib import Path

import numpy as np

import obax
from obax.estimators import StreamingClassifier


def drifting_rows(count, seed=0):
    """Return rows whose labels depend on two of five features, with drift and one jump."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((count, 5))
    angle = np.arange(count) / 400 + np.pi * (np.arange(count) > count / 2)
    score = 3 * (np.cos(angle) * rows[:, 0] + np.sin(angle) * rows[:, 1])
    return rows, np.where(score + rng.logistic(size=count) > 0, "up", "down")


def log_loss(probabilities, labels, classes):
    """Return the mean log loss of the predictions of each row before it was learned."""
    column = np.searchsorted(classes, labels)
    return -np.log(np.clip(probabilities[np.arange(len(labels)), column], 1e-15, 1)).mean()


def main():
    """Run the example."""
    rows, labels = drifting_rows(8000)
    print("log loss before learning, mean of 8,000 rows")
    for start in ({}, {"penalty": 1.0, "memory": 1000.0}):
        for learn in (("penalty", "forgetting", "inertia"), ()):
            model = StreamingClassifier(**start, learn=learn)
            probabilities = model.progressive(rows, labels, classes=["down", "up"])
            what = "learned" if learn else "frozen"
            print(f"  {what:8} from {start or 'the default start'}: ", end="")
            print(f"{log_loss(probabilities, labels, model.classes_):.4f}")

    model = StreamingClassifier()
    for row, label in zip(rows[:200], labels[:200], strict=True):
        features = dict(zip("abcde", row.tolist(), strict=True))
        model.predict_proba_one(features)  # as in River: one row, a dict
        model.learn_one(features, str(label))
    model.learn_one({"a": float("inf")}, "up")  # rejected, counted, kept
    print(f"\n{model.explain()}")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.obax"
        obax.save(path, model)
        again = obax.load(path, like=StreamingClassifier())
    print(f"saved and loaded: {again.hyperparameters_ == model.hyperparameters_}")


if __name__ == "__main__":
    main()
