"""Regret of a long horizon: `python -m benchmarks.regret`.

BD-Reg, BS-Reg and path lengths of T = 100,000 quadratic rounds with d1 = d2 = 10 in float64.
Limits: 10 s in total after compilation, 2 GiB of memory at the peak of this process.
"""

import argparse
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402

from obax import problems, regret  # noqa: E402

SECONDS, GIBIBYTES = 10.0, 2.0


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of the first call and of the second, which finds everything compiled."""
    found = []
    for _ in range(2):
        begun = time.perf_counter()
        jax.block_until_ready(work())
        found.append(time.perf_counter() - begun)
    return found[0], found[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--horizon", type=int, default=100_000)
    horizon = parser.parse_args().horizon
    stream = problems.quadratic(horizon, 10, 10, box=0.5)
    problem, rounds = stream.problem, stream.rounds
    decisions = jnp.zeros((horizon, 10))
    work: dict[str, Callable[[], Any]] = {
        "BD-Reg": lambda: regret.dynamic(problem, decisions, rounds),
        "BS-Reg": lambda: regret.static(problem, decisions, rounds),
        "path lengths": lambda: regret.path_lengths(problem, rounds),
    }
    total = 0.0
    for name, one in work.items():
        first, again = timed(one)
        total += again
        print(f"{name:14} {again:6.2f} s, with compilation {first:6.2f} s")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"together {total:.2f} s (limit {SECONDS:g}), peak {memory:.2f} GiB (limit {GIBIBYTES:g})"
    )
    sys.exit(int(total > SECONDS or memory > GIBIBYTES))


if __name__ == "__main__":
    main()
