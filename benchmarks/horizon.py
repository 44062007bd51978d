"""Nothing grows with t: time of a round at t = 100,000 against t = 1,000; memory of a live run."""

import itertools
import json
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np

import obax

from . import workload
from .harness import Result, compare, interleaved

MIB = 2**20
# The smallest leak there is, one pointer a round, would be 7.6 MiB in a million rounds.
GROWTH_LIMIT = 4.0


def late_against_early(quick: bool) -> list[Result]:
    """The same 1,000 rounds played on from t = 1,001 and from t = 100,001."""
    late, repetitions = (5_000, 5) if quick else (100_000, 41)
    stream = workload.instance(1_000)
    results = []
    for window in (1, 100):
        algorithm = workload.oagd(stream.problem, window)
        state = workload.start(algorithm, stream)
        jax.clear_caches()
        states = {}
        for t in range(0, late, 1_000):
            state, _ = obax.run(algorithm, state, stream.rounds)
            states[t + 1_000] = state
        early_state, late_state = states[1_000], states[late]
        assert int(late_state.t) == late + 1
        times = interleaved(
            {
                "late": lambda a=algorithm, s=late_state: obax.run(a, s, stream.rounds),
                "early": lambda a=algorithm, s=early_state: obax.run(a, s, stream.rounds),
            },
            repetitions,
        )
        name = f"round at t = {late:,} against t = 1,000, w = {window}"
        result = compare(name, times["late"], times["early"], 1.1, 1_000)
        # Compiled on the way to t = 1,000.
        results.append(result._replace(compilation=""))
    return results


def memory_of_live_rounds(quick: bool) -> list[Result]:
    """Resident memory of `play` with w = 10, in a process of its own: one that has already freed
    memory would hide a leak."""
    rounds, every = (20_000, 1_000) if quick else (1_000_000, 50_000)
    command = [sys.executable, "-m", "benchmarks.horizon", str(rounds), str(every)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    measured = json.loads(printed.splitlines()[-1])
    at, resident = np.array(measured["rounds"]), np.array(measured["resident"])
    # The first two samples are warm-up.
    slope = float(np.polyfit(at[1:], resident[1:], 1)[0])
    growth = float(max(measured["peak"][1:]) - measured["peak"][1]) / MIB
    seconds = np.diff(measured["seconds"]) / np.diff(at)
    return [
        Result(
            f"peak memory over {rounds:,} live rounds, w = 10: growth in MiB "
            f"(slope of resident memory {slope:+.2f} bytes per round)",
            f"{resident[-1] / MIB:.1f} MiB",
            f"{resident[1] / MIB:.1f} MiB",
            "",
            growth,
            None,
            GROWTH_LIMIT,
            {**measured, "slope": slope},
        ),
        Result(
            "the same: us per round, last samples against first ones",
            f"{1e6 * np.median(seconds[-5:]):.3g}",
            f"{1e6 * np.median(seconds[1:6]):.3g}",
            "",
            float(np.median(seconds[-5:]) / np.median(seconds[1:6])),
            None,
            None,
            {},
        ),
    ]


def play_and_watch(rounds: int, every: int) -> dict[str, list]:
    """Play live rounds and look at this process's memory after every so many."""
    stream = workload.instance(1_000)
    algorithm = workload.oagd(stream.problem, 10)
    state = workload.start(algorithm, stream)
    cycle = itertools.cycle(workload.unstacked(stream.rounds, as_numpy=True))
    source = itertools.islice(cycle, rounds)
    samples: dict[str, list] = {"rounds": [], "resident": [], "peak": [], "seconds": []}
    begin = time.perf_counter()
    for played, _ in enumerate(obax.play(algorithm, state, source, on_rejected="skip"), 1):
        if played % every == 0:
            resident, peak = memory()
            for name, value in zip(
                samples, (played, resident, peak, time.perf_counter() - begin), strict=True
            ):
                samples[name].append(value)
    return samples


def memory() -> tuple[int, int]:
    """Resident memory of this process now and at its highest, in bytes (Linux)."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    now, peak = (int(lines[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))
    return now, peak


if __name__ == "__main__":
    print(json.dumps(play_and_watch(int(sys.argv[1]), int(sys.argv[2]))))
