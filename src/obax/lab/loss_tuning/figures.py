"""The figures of the loss-tuning experiments, from their tables."""

from typing import Any

import pandas as pd

from ..report import Figure, Series
from .config import Config


def all_figures(config: Config, rows: pd.DataFrame) -> list[Figure]:
    """The paper's three panels, and the paths of gamma and Delta."""
    data = rows.data.iloc[0]
    shown = f"{data}; mean and one standard deviation over seeds."
    panels = [
        ("time", "seconds", "Cumulative runtime", "seconds", 1.0, True),
        ("training", "train_accuracy", "Balanced training accuracy", "per cent", 100.0, False),
        ("test", "test_accuracy", "Balanced test accuracy", "per cent", 100.0, False),
    ]
    found = [
        Figure(
            name,
            f"{title} ({data})",
            "round t",
            unit,
            [
                _band(of_run, _label(config, str(key[0]), key[1], key[2]), scale)
                for key, of_run in rows[rows.metric == metric].groupby(
                    ["name", "alpha", "beta"], sort=False
                )
            ],
            f"{shown} Steps only: compilation, data and evaluation are not counted."
            if name == "time"
            else shown,
            log_y=log,
        )
        for name, metric, title, unit, scale, log in panels
    ]
    return [*found, *_paths(config, rows, shown)]


def _paths(config: Config, rows: pd.DataFrame, shown: str) -> list[Figure]:
    """gamma and Delta of the method that looks furthest back, and of AutoBalance."""
    moving = [m for m in config.parsed_methods() if m.kind != "ogd" and not m.held]
    if not moving:
        return []
    largest = max(moving, key=lambda method: method.window)
    chosen = list(dict.fromkeys([largest, *(m for m in moving if m.kind == "autobalance")]))
    found = []
    for method in chosen:
        of_method = rows[rows["name"] == method.short()]
        if of_method.empty:
            continue
        first = of_method[["alpha", "beta"]].iloc[0]
        of_method = of_method[(of_method.alpha == first.alpha) & (of_method.beta == first.beta)]
        for part, title in (("gamma", "scales gamma_j"), ("delta", "offsets Delta_j")):
            kept = of_method[of_method.metric.str.startswith(f"{part}_")]
            found.append(
                Figure(
                    f"{part}-{method.kind}",
                    f"The {title} of {method.short()}",
                    "round t",
                    part,
                    [
                        _band(of_class, f"class {str(metric).rpartition('_')[2]}", 1.0)
                        for metric, of_class in kept.groupby("metric", sort=False)
                    ],
                    shown,
                )
            )
    return found


def _label(config: Config, name: str, alpha: Any, beta: Any) -> str:
    steps = [f"alpha={alpha:g}"] if len(config.outer_step_sizes) > 1 and name != "OGD" else []
    steps += [f"beta={beta:g}"] if len(config.inner_step_sizes) > 1 else []
    return ", ".join([name, *steps])


def _band(rows: pd.DataFrame, label: str, scale: float) -> Series:
    curve = scale * rows.groupby("t").value.agg(["mean", "std"]).fillna(0.0)
    low, high = curve["mean"] - curve["std"], curve["mean"] + curve["std"]
    if (curve["mean"] > 0).all():
        # A band below zero has no place on a logarithmic axis.
        low = low.clip(lower=curve["mean"] / 10)
    return Series(label, curve.index.tolist(), curve["mean"].tolist(), low.tolist(), high.tolist())
