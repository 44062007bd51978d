"""`python -m benchmarks.attack [--quick] [--only NAME]`: what was tried, what survived.

| attack | survived means |
|---|---|
| kills | killed (-9) and taken up again, it ends with the bytes of a run left alone |
| garbage rows | learned or rejected, counted, and the model finite |
| damaged checkpoints | an error in words, or the exact state |
| crafted checkpoints | an error in words, or a state |
| wrong calls | an error of ours that names the argument |
| programs in a process | no crash, and memory mappings flat |
| threads | no error, and as many rows counted as were learned |
| live rounds | memory flat |
"""

import argparse
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from . import calls, files, kills, rows

Faults = Iterable[str | None]
ROUNDS = """
import resource, sys
import jax.numpy as jnp
import obax

problem = obax.Problem(outer=lambda x, y, round: 0.5 * (x - round) ** 2)
algorithm = obax.OAGD(problem, 0.1, window=obax.Window(4))
one = jnp.ones(())
state = algorithm.init(0.0, None, one)

def source():
    for _ in range(int(sys.argv[1])):
        yield one

def used():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() / 2**20

for t, _ in enumerate(obax.play(algorithm, state, source()), 1):
    if t == int(sys.argv[1]) // 10:
        before = used()
print(used() - before)
"""
PROGRAMS = """
import sys, warnings
import jax.numpy as jnp
import obax

warnings.simplefilter("ignore")
problem = obax.Problem(outer=lambda x, y, round: 0.5 * (x - round) ** 2)
algorithm = obax.OGD(problem, outer_step_size=0.5)
state, rounds = algorithm.init(0.0, None, jnp.zeros(())), jnp.ones(3)
counts = []
for i in range(int(sys.argv[1])):
    mine = [i]
    obax.run(algorithm, state, rounds, record=lambda s: s.outer_var + mine[0])
    counts.append(sum(1 for _ in open("/proc/self/maps")))
print(max(counts) - max(counts[:100]))
"""


def child(script: str, count: int, most: float, unit: str) -> Faults:
    """A script of its own process that prints how much grew; one fault for all of its turns."""
    done = subprocess.run(
        [sys.executable, "-c", script, str(count)], capture_output=True, text=True
    )
    if done.returncode:
        yield f"it ended with {done.returncode}: {done.stderr[-200:]}"
    elif (grown := float(done.stdout)) > most:
        yield f"grew by {grown:g} {unit}"
    else:
        yield from [None] * count


def attacks(quick: bool, folder: Path) -> dict[str, tuple[int, Callable[[], Faults]]]:
    """By name: how many tries, and the tries."""

    def size(full: int, small: int) -> int:
        return small if quick else full

    each, number = size(75, 1), size(1_000_000, 4_000)
    found: dict[str, tuple[int, Callable[[], Faults]]] = {}
    csv = folder / "rows.csv"
    kills.write_rows(csv, size(60_000, 8_000))
    for victim in kills.victims(csv):
        place = folder / victim.name.replace(" ", "")
        found[f"kills: {victim.name}"] = (
            each, lambda victim=victim, place=place: kills.kill(victim, place, each)
        )  # fmt: skip
    found["garbage rows (thousands)"] = number // 1000, lambda: rows.garbage(number)
    damaged, crafted = size(10_000, 300), size(500, 100)
    found["damaged checkpoints"] = damaged, lambda: files.damaged(damaged)
    found["crafted checkpoints"] = crafted, lambda: files.crafted(crafted)
    table = calls.calls()
    found["wrong calls"] = len(table), lambda: (call.answer() for call in table)
    programs, live = size(2_000, 80), size(10_000_000, 20_000)
    found["programs in a process"] = programs, lambda: child(PROGRAMS, programs, 2_000, "mappings")
    found["8 threads (seconds)"] = size(60, 2), lambda: [rows.threads(size(60, 2))]
    found["live rounds"] = live, lambda: child(ROUNDS, live, 16.0, "MiB")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attack", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few of each, to see that it works")
    parser.add_argument("--only", default="", metavar="WORD", help="attacks whose name has it")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    table = Table("attack", "tried", "survived", "seconds", "failures", title="obax under attack")
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, (tried, attack) in attacks(given.quick, Path(folder)).items():
            if given.only not in name:
                continue
            begin = time.monotonic()
            faults = [fault for fault in attack() if fault is not None]
            failed += len(faults)
            words = "; ".join(faults[:3])[:160]
            seconds = f"{time.monotonic() - begin:,.0f}"
            table.add_row(name, f"{tried:,}", f"{tried - len(faults):,}", seconds, words)
            print(f"{name}: {tried:,} tried, {len(faults):,} failed, {seconds} s", flush=True)
    Console(width=150).print(table)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
