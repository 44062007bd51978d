"""Beyond linear, and lags: `features=` against River's adaptive random forest of 10 trees.

    python -m benchmarks.features                  # all streams, 5,000 rows
    python -m benchmarks.features --rows 1000 --only bananas

Every model is tested on a row and then trained on it, all in one process, ours one row at a time as
the forest is. Log loss (probabilities clipped at 1e-15) for classes, root mean squared error for
numbers. Words are one-hot for all; for numbers the forest gets standardised rows, without which the
linear models in its leaves diverge on mv. `lags` compares models without and with the last label.
"""

import argparse
import itertools
import time

import numpy as np
import pandas as pd
from river import datasets, forest, preprocessing
from river.datasets import synth

from obax import datasets as ours
from obax.estimators import StreamingClassifier, StreamingRegressor

STREAMS = {
    "bananas": datasets.Bananas,
    "rbf": lambda: synth.RandomRBFDrift(42, 42, change_speed=0.001),
    "rbf, 4 classes": lambda: synth.RandomRBFDrift(
        42, 42, n_classes=4, n_features=4, n_centroids=20, change_speed=0.001, n_drift_centroids=10
    ),
    "planes": lambda: synth.Planes2D(seed=42),
    "mv": lambda: synth.Mv(seed=42),
    "friedman": lambda: synth.Friedman(seed=42),
    "friedman, drift": lambda: synth.FriedmanDrift(
        seed=42, drift_type="lea", position=(1500, 2500, 3500)
    ),
}
MODELS = ("linear", "interactions", "fourier", "forest")


def load(name, rows):
    """Dicts of numbers, and targets."""
    found = list(itertools.islice(STREAMS[name](), rows))
    table = pd.get_dummies(pd.DataFrame([row for row, _ in found])).astype(float)
    table.columns = [str(column) for column in table.columns]
    return table.to_dict("records"), [target for _, target in found]


def model_of(kind, classify):
    if kind != "forest":
        return (StreamingClassifier if classify else StreamingRegressor)(features=kind)
    if classify:
        return forest.ARFClassifier(n_models=10, seed=42)
    return preprocessing.StandardScaler() | forest.ARFRegressor(n_models=10, seed=42)


def play(model, rows, targets, classify):
    """Loss, and microseconds of processor time a row."""
    losses = []
    begin = time.process_time()
    for row, target in zip(rows, targets, strict=True):
        if classify:
            p = model.predict_proba_one(row).get(target, 0.0)
            losses.append(-np.log(max(p, 1e-15)) if losses else np.log(2))
        else:
            losses.append((model.predict_one(row) - target) ** 2)
        model.learn_one(row, target)
    seconds = time.process_time() - begin
    loss = float(np.mean(losses))
    return loss if classify else loss**0.5, 1e6 * seconds / len(rows)


def table(names, rows):
    print("| stream | " + " | ".join(MODELS) + " | fourier / forest | its time |")
    print("|" + "---|" * (len(MODELS) + 3))
    for name in names:
        dicts, targets = load(name, rows)
        classify = len(set(targets)) < 10
        for kind in MODELS[:3]:  # Compiled, and read from the cache, before anything is measured.
            model_of(kind, classify).learn_one(dicts[0], targets[0])
        found = [play(model_of(kind, classify), dicts, targets, classify) for kind in MODELS]
        ratio, pace = (found[2][i] / found[3][i] for i in (0, 1))
        losses = " | ".join(f"{loss:.4g}" for loss, _ in found)
        print(f"| {name} | {losses} | {ratio:.2f} | {pace:.3f} |", flush=True)


def lags(rows):
    path = ours.find("elec2.csv.gz")
    if path is None:
        print("elec2 is not here: set OBAX_DATA.")
        return
    frame = pd.read_csv(path)[:rows]
    print("\n| elec2 | log loss |\n|---|---|")
    for count in (0, 1, 2):
        model = StreamingClassifier(lags=count)
        model.learn_many(frame.iloc[:, :-1].astype(float), frame.iloc[:, -1].to_numpy())
        print(f"| lags={count} | {model.mean_loss_:.4f} |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--only", action="append", choices=STREAMS)
    arguments = parser.parse_args()
    table(arguments.only or list(STREAMS), arguments.rows)
    lags(2 * arguments.rows)


if __name__ == "__main__":
    main()
