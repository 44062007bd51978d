"""A million rows from a generator whose truth turns all the time and jumps now and then."""

import time
from pathlib import Path

import numpy as np

from obax.estimators import StreamingClassifier

from .report import Table, verdict

GROWTH = 1.0
"""MiB that memory may grow between the first tenth of the rows and the last."""


def resident() -> float:
    """MiB of memory in use."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def blocks(count: int, size: int):
    """Rows and labels, a block at a time."""
    rng = np.random.default_rng(0)
    truth = rng.standard_normal(10)
    for number in range(count):
        if number % 20 == 19:
            truth = rng.standard_normal(10)
        rows = rng.standard_normal((size, 10))
        path = truth + 0.3 * np.cumsum(rng.standard_normal((size, 10)), axis=0) / np.sqrt(size)
        truth = path[-1] / max(1.0, np.linalg.norm(path[-1]) / 3)
        yield rows, (np.sum(rows * path, axis=1) + rng.logistic(size=size) > 0).astype(int)


def part_million(quick: bool) -> Table:
    size, tenths = (1000, 5) if quick else (10_000, 10)
    model, table, losses, times = StreamingClassifier(), [], [], []
    for number, (rows, labels) in enumerate(blocks(10 * tenths, size), 1):
        begin = time.perf_counter()
        said = model.progressive(rows, labels, classes=[0, 1])[np.arange(size), labels]
        times.append(1e6 * (time.perf_counter() - begin) / size)
        losses.append(-np.log(np.clip(said, 1e-15, 1)).mean())
        if number % tenths == 0:
            shown = float(np.median(times)), resident(), float(np.mean(losses))
            table.append([f"{number * size:,}", *shown])
            losses, times = [], []
    for row in table:
        row.append(verdict(row[2] - table[0][2], GROWTH))
    return Table(
        f"{10 * tenths * size:,} rows of a drifting generator, 10 features",
        ("rows", "us per row, median", "memory, MiB", "log loss", "verdict"),
        table,
        f"Memory grows by {table[-1][2] - table[0][2]:.2f} MiB (limit {GROWTH:g}).",
    )
