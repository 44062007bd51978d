"""The figures of the meta-learning experiments, from their tables."""

import numpy as np
import pandas as pd

from ..report import Figure, Series
from .config import Config


def all_figures(config: Config, rows: pd.DataFrame) -> list[Figure]:
    """The paper's three panels, the losses, and the time of a round."""
    data = rows.data.iloc[0]
    shown = f"{data}; mean and one standard deviation over seeds."
    steps = "Steps only: compilation, data and evaluation are not counted."
    panels = [
        ("time", "seconds", "Cumulative runtime", "seconds", 1.0, True),
        ("training", "train_accuracy", "Accuracy on training classes", "per cent", 100.0, False),
        ("test", "test_accuracy", "Accuracy on test classes", "per cent", 100.0, False),
        ("loss", "test_loss", "Loss on test classes", "cross-entropy", 1.0, False),
        ("training-loss", "train_loss", "Loss on training classes", "cross-entropy", 1.0, False),
        ("round-time", "round_seconds", "Time of a round", "seconds", 1.0, True),
    ]
    with_rounds = pd.concat([rows, _of_rounds(rows)], ignore_index=True)
    return [
        Figure(
            name,
            f"{title} ({data})",
            "round t",
            unit,
            [
                _band(of_method, str(method), scale)
                for method, of_method in with_rounds[with_rounds.metric == metric].groupby(
                    "name", sort=False
                )
            ],
            f"{shown} {steps}" if log else shown,
            log_y=log,
        )
        for name, metric, title, unit, scale, log in panels
    ]


def _of_rounds(rows: pd.DataFrame) -> pd.DataFrame:
    """Seconds of each round, from the cumulative ones."""
    kept = rows[rows.metric == "seconds"].sort_values("t", kind="stable")
    spent = kept.groupby(["name", "seed"]).value.transform(lambda v: np.diff(v, prepend=0.0))
    return kept.assign(metric="round_seconds", value=spent)


def _band(rows: pd.DataFrame, label: str, scale: float) -> Series:
    curve = scale * rows.groupby("t").value.agg(["mean", "std"]).fillna(0.0)
    low, high = curve["mean"] - curve["std"], curve["mean"] + curve["std"]
    low = low.where(low > 0, curve["mean"]) if (curve["mean"] > 0).all() else low
    return Series(label, curve.index.tolist(), curve["mean"].tolist(), low.tolist(), high.tolist())
