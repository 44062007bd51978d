"""Regret of a long horizon: `python -m benchmarks.regret`.

BD-Reg, BS-Reg and path lengths of T = 100,000 quadratic rounds with d1 = d2 = 10 in float64.
Limits: 10 s in total after compilation, 2 GiB of memory at the peak of this process.

`python -m benchmarks.regret --base FOLDER` measures `regret.dynamic` on convex problems, with this
version and with the one in FOLDER (a checkout), in processes that take turns. Limit: the mean ratio
of the times is at most 1.3.
"""

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402

import obax  # noqa: E402
from obax import problems, regret  # noqa: E402

SECONDS, GIBIBYTES, RATIO = 10.0, 2.0, 1.3
FOLLOWERS = ("none", "closed", "numerical")
DIMENSIONS = (1, 2, 10)
REPEATS, TURNS = 20, 3


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of the first call and of the second, which finds everything compiled."""
    found = []
    for _ in range(2):
        begun = time.perf_counter()
        jax.block_until_ready(work())
        found.append(time.perf_counter() - begun)
    return found[0], found[1]


def convex(follower: str, dim: int, horizon: int = 400) -> Callable[[], Any]:
    """Return the dynamic regret of a convex problem."""
    targets = jax.random.normal(jax.random.key(0), (horizon, dim))
    decisions, box = jnp.zeros((horizon, dim)), obax.Box(-5.0, 5.0)
    if follower == "none":
        alone = obax.Problem(lambda x, y, r: jnp.sum(jnp.log(jnp.cosh(x - r)) + x**2), domain=box)
        return lambda: regret.dynamic(alone, decisions, targets)
    problem = obax.Problem(
        outer=lambda x, y, r: jnp.sum((y - r) ** 2 + 0.1 * x**2),
        inner=lambda x, y, r: jnp.sum((y - 2 * x) ** 2 + 0.1 * y**2),
        domain=box,
        inner_argmin=(lambda x, r: x / 0.55) if follower == "closed" else None,
    )
    return lambda: regret.dynamic(problem, decisions, targets, inner_start=jnp.zeros(dim))


def measure_convex() -> dict[str, float]:
    """Return the least seconds of a call for every kind of follower and dimension."""
    found = {}
    for follower in FOLLOWERS:
        for dim in DIMENSIONS:
            work = convex(follower, dim)
            jax.block_until_ready(work().cumulative)
            times = []
            for _ in range(REPEATS):
                begun = time.perf_counter()
                jax.block_until_ready(work().cumulative)
                times.append(time.perf_counter() - begun)
            found[f"{follower}, {dim}"] = min(times)
    return found


def compare(base: str) -> bool:
    """Print the times beside those of the version in a folder; return whether they are too long."""
    here = str(Path(obax.__file__).parents[2])
    best: dict[str, dict[str, float]] = {here: {}, base: {}}
    for _ in range(TURNS):
        for folder, least in best.items():
            command = [sys.executable, "-m", "benchmarks.regret", "--convex"]
            environment = {**os.environ, "PYTHONPATH": str(Path(folder) / "src")}
            # Each version has programs of its own.
            environment.pop("JAX_COMPILATION_CACHE_DIR", None)
            output = subprocess.run(
                command, env=environment, check=True, stdout=subprocess.PIPE, text=True
            ).stdout
            for name, seconds in json.loads(output).items():
                least[name] = min(seconds, least.get(name, math.inf))
    ratios = {name: best[here][name] / best[base][name] for name in best[base]}
    for name, ratio in ratios.items():
        print(f"{name:14} {1e3 * best[here][name]:8.2f} ms, ratio {ratio:.2f}")
    mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
    print(f"mean ratio {mean:.2f} (limit {RATIO:g}), largest {max(ratios.values()):.2f}")
    return mean > RATIO


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--horizon", type=int, default=100_000)
    parser.add_argument("--base", help="a checkout to compare the cost of convex problems with")
    parser.add_argument("--convex", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.convex:
        print(json.dumps(measure_convex()))
        return
    if options.base:
        sys.exit(int(compare(options.base)))
    horizon = options.horizon
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
