"""Workers against one process: `python -m benchmarks.workers`, some ten minutes on 2 quiet cores.

`obax run dynamic-regression --preset paper` in one process, then with `--workers 2`, as commands,
report included. Limits: with workers at least 1.7 times as fast, and the same table, byte for byte.
With `--quick` a small run of the same commands: the table is judged and the time is not.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

FASTER = 1.7
# As many parts as a run has where compilation is not all that it does.
QUICK = ["horizon=300", "seeds=2", "windows=1,10", "own_curvature=false", "outer_dims=1"]
QUICK += ["window_sizes=1,3,10,30", "offline_points=3", "decays=1.0", "normalisations=seen"]


CHILDREN = ("children_user", "children_system")


class Measured(NamedTuple):
    """Of one command: seconds on the wall, seconds of processors with its children's, its table."""

    seconds: float
    processor: float
    table: bytes


def measured(out: Path, words: list[str]) -> Measured:
    command = [sys.executable, "-m", "obax", "run", "dynamic-regression", "--out", str(out), *words]
    begun, before = time.perf_counter(), os.times()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    seconds, after = time.perf_counter() - begun, os.times()
    processor = sum(getattr(after, n) - getattr(before, n) for n in CHILDREN)
    return Measured(seconds, processor, (out / "metrics.parquet").read_bytes())


def verdict(alone: Measured, shared: Measured, limit: float | None) -> tuple[list[str], int]:
    """Lines to print, and the exit code."""
    ratio, same = alone.seconds / shared.seconds, alone.table == shared.table
    lines = [
        f"{name:12} {found.seconds:7.1f} s, {found.processor:7.1f} s of processors, "
        f"{found.processor / found.seconds:.2f} cores busy"
        for name, found in (("one process", alone), ("workers", shared))
    ]
    fast = limit is None or ratio >= limit
    judged = "not judged" if limit is None else f"limit {limit:g}, {'met' if fast else 'MISSED'}"
    lines.append(f"with workers {ratio:.2f} times as fast ({judged})")
    lines.append(f"tables: {'the same bytes' if same else 'DIFFERENT'}")
    return lines, int(not (fast and same))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args(arguments)
    words = ["--preset", "paper"]
    words += [word for setting in QUICK * given.quick for word in ("--set", setting)]
    with tempfile.TemporaryDirectory() as folder:
        alone = measured(Path(folder) / "alone", words)
        print(f"one process: {alone.seconds:.1f} s", flush=True)
        shared = measured(Path(folder) / "shared", [*words, "--workers", str(given.workers)])
    lines, code = verdict(alone, shared, None if given.quick else FASTER)
    print(*lines, f"load {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores", sep="\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
