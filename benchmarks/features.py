"""Beyond linear, and lags: `features=` against River's adaptive random forest of 10 trees.

    python -m benchmarks.features                  # all streams, 5,000 rows
    python -m benchmarks.features --rows 1000 --only bananas

Every model is tested on a row and then trained on it, all in one process, ours one row at a time as
the forest is. Log loss (probabilities clipped at 1e-15) for classes, root mean squared error for
numbers. Words are one-hot for all. For numbers the forest is run with rows as they are and with
standardised ones (without which the linear models in its leaves diverge on mv), and the better one
counts. The last table is of models without and with the last targets among the features.
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


def models_of(kind, classify):
    if kind != "forest":
        return [(StreamingClassifier if classify else StreamingRegressor)(features=kind)]
    if classify:
        return [forest.ARFClassifier(n_models=10, seed=42)]
    one, two = (forest.ARFRegressor(n_models=10, seed=42) for _ in range(2))
    return [one, preprocessing.StandardScaler() | two]


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
            models_of(kind, classify)[0].learn_one(dicts[0], targets[0])
        found = [
            min(play(model, dicts, targets, classify) for model in models_of(kind, classify))
            for kind in MODELS
        ]
        ratio, pace = (found[2][i] / found[3][i] for i in (0, 1))
        losses = " | ".join(f"{loss:.4g}" for loss, _ in found)
        print(f"| {name} | {losses} | {ratio:.2f} | {pace:.3f} |", flush=True)


def series(rows):
    """Streams whose targets follow each other: an estimator, rows and targets."""
    for dataset in (datasets.WaterFlow(), datasets.TrumpApproval()):
        found = list(itertools.islice(dataset, rows))
        table = pd.DataFrame([row for row, _ in found]).select_dtypes("number")
        yield type(dataset).__name__, StreamingRegressor, table, [target for _, target in found]
    for name in ("elec2", "weather"):
        path = ours.find(f"{name}.csv.gz")
        if path is not None:
            table = pd.read_csv(path)[:rows]
            labels = table.iloc[:, -1].to_numpy()
            yield name, StreamingClassifier, table.iloc[:, :-1].astype(float), labels


def lags(rows):
    print("\n| stream | the last target again | lags=0 | lags=1 | lags=2 | suggested |")
    print("|" + "---|" * 6)
    for name, kind, table, targets in series(rows):
        models = [kind(lags=count) for count in (0, 1, 2)]
        for model in models:
            model.learn_many(table, targets)
        record, suggested = models[0]._core.record, "try lags=1" in models[0].explain()
        losses = " | ".join(f"{model.mean_loss_:.4f}" for model in models)
        again = record.repeat_total / record.seen
        print(f"| {name} | {again:.4f} | {losses} | {'yes' if suggested else 'no'} |", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--only", action="append", choices=STREAMS)
    arguments = parser.parse_args()
    table(arguments.only or list(STREAMS), arguments.rows)
    lags(2 * arguments.rows)


if __name__ == "__main__":
    main()
