"""Beside the numba engine of version 0.2: waves, a pool of 10,000 keys, and bytes for each key.

`OBAX_OLDER` names a Python that has numba and, after a colon, the `src` of that version. Both run
the same lines in processes of their own, in turn.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from .report import Table, verdict

PROBE = """
import json, sys, time
import numpy as np
from obax.estimators import Pool, StreamingClassifier
quick = sys.argv[1] == "quick"
draw = np.random.default_rng(0)
rows = draw.standard_normal((2000, 8))
labels = (rows @ draw.standard_normal(8) > 0).tolist()
waves = np.inf
for _ in range(2 if quick else 6):
    model = StreamingClassifier(features="fourier")
    model.learn_many(rows[:50], labels[:50])
    begin = time.process_time()
    model.learn_many(rows, labels)
    waves = min(waves, 1e6 * (time.process_time() - begin) / len(rows))
count, keys = (10_000, 500) if quick else (200_000, 10_000)
mine, values = draw.integers(0, keys, count), draw.standard_normal((count, 10))
goals = (values[:, 0] + draw.standard_normal(count) > 0).tolist()
pool, seconds = Pool(StreamingClassifier()), 0.0
for begin in range(0, count, 10_000):
    span = slice(begin, begin + 10_000)
    clock = time.perf_counter()
    pool.progressive(mine[span].tolist(), values[span], goals[span])
    if begin >= count // 2 or quick:
        seconds += time.perf_counter() - clock
rate = (count if quick else count / 2) / seconds
print(json.dumps([waves, rate, pool.bytes_per_key_]))
"""
LIMITS = (
    ("fourier, 8 features: time", 0.5),
    ("pool: time for a row", 0.5),
    ("pool: bytes for a key", 1.0),
)


def probed(command: str, source: str, quick: bool) -> list[float]:
    """Microseconds per row with waves, rows per second of a pool, bytes for each of its keys."""
    words = [command, "-W", "ignore", "-c", PROBE, "quick" if quick else "whole"]
    run = subprocess.run(
        words, env={**os.environ, "PYTHONPATH": source}, check=True, capture_output=True, text=True
    )
    waves, rate, size = json.loads(run.stdout.splitlines()[-1])
    return [waves, 1e6 / rate, size]


def part_older(quick: bool) -> Table:
    command, _, source = os.environ.get("OBAX_OLDER", "").partition(":")
    if not source:
        rows = [[name, None, None, None, limit, "not here"] for name, limit in LIMITS]
    else:
        here = sys.executable, str(Path(__file__).parents[2] / "src")
        pairs = [
            (probed(*here, quick), probed(command, source, quick)) for _ in range(1 if quick else 3)
        ]
        ours, theirs = np.min(np.array(pairs), axis=0).tolist()
        rows = [
            [name, mine, old, mine / old, limit, verdict(mine / old, limit)]
            for (name, limit), mine, old in zip(LIMITS, ours, theirs, strict=True)
        ]
    return Table(
        "Beside the numba engine of version 0.2, microseconds and bytes",
        ("what", "ours", "numba", "ratio", "limit", "verdict"),
        rows,
        "OBAX_OLDER=PYTHON:SRC names a Python with numba and the sources of version 0.2.",
    )
