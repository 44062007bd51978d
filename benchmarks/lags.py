"""The last targets among the features: mean losses without them, with one and with two.

    python -m benchmarks.lags                  # the first 10,000 rows of each stream

Every model is tested on a row and then trained on it. Beside them stands the loss of saying the
last target again, which `explain()` compares the model with to suggest lags.
"""

import argparse
import itertools
from collections.abc import Iterator
from typing import Any

import pandas as pd
from river import datasets

from obax import datasets as ours
from obax.estimators import StreamingClassifier, StreamingRegressor


def series(rows: int) -> Iterator[tuple[str, Any, pd.DataFrame, Any]]:
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000)
    rows = parser.parse_args().rows
    print("| stream | the last target again | lags=0 | lags=1 | lags=2 | suggested |")
    print("|" + "---|" * 6)
    for name, kind, table, targets in series(rows):
        models = [kind(lags=count) for count in (0, 1, 2)]
        for model in models:
            model.learn_many(table, targets)
        engine, suggested = models[0].model_.engine, "try lags=1" in models[0].explain()
        losses = " | ".join(f"{model.mean_loss_:.4f}" for model in models)
        again = engine.repeat_loss / engine.learned
        print(f"| {name} | {again:.4f} | {losses} | {'yes' if suggested else 'no'} |", flush=True)


if __name__ == "__main__":
    main()
