"""Processes that go on for long: what they hold must not grow."""

import subprocess
import sys

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

game = obax.play(algorithm, state, source())
for _ in game:
    if game.rounds == int(sys.argv[1]) // 10:
        before = used()
assert game.rounds == int(sys.argv[1]), game.rounds
print(used() - before)
"""
SOME = 400
"""Mappings of ten programs or so, which the collector may not have come to."""
PROGRAMS = """
import sys, warnings
from obax._support import compiling
compiling.MOST_PROGRAMS = min(compiling.MOST_PROGRAMS, int(sys.argv[2]))
import jax.numpy as jnp
import obax

warnings.simplefilter("ignore")
problem = obax.Problem(outer=lambda x, y, round: 0.5 * (x - round) ** 2)
algorithm = obax.OGD(problem, outer_step_size=0.5)
state, rounds = algorithm.init(0.0, None, jnp.zeros(())), jnp.ones(3)

def again(i):
    # Closed over a list, nobody can tell that a function is the one of before.
    mine = [float(i)]
    if i % 4 == 0:
        problem = obax.Problem(outer=lambda x, y, round: 0.5 * (x - round - mine[0]) ** 2)
        fresh = obax.OGD(problem, outer_step_size=0.5)
        found = [new.outer_var for new, _ in obax.play(fresh, state, rounds)][0]
    elif i % 4 == 1:
        problem = obax.Problem(outer=lambda x, y, round: 0.5 * (x - round - mine[0]) ** 2)
        found = obax.OGD(problem, outer_step_size=0.5).step(state, rounds[0])[0].outer_var
    elif i % 4 == 2:
        _, history = obax.run(algorithm, state, rounds, record=lambda s: s.outer_var + mine[0] / 2)
        found = history.recorded[0]
    else:
        recorded = lambda s: s.outer_var + mine[0] / 2
        found = obax.sweep(algorithm, state, rounds, record=recorded)[1].recorded[0]
    # The first step of size 1/2 goes half of the way to 1 + i: a program of before would show.
    assert abs(float(found) - 0.5 - i / 2) < 1e-2, (i, found)

counts = []
for i in range(int(sys.argv[1])):
    again(i)
    counts.append(sum(1 for _ in open("/proc/self/maps")))
# Four kinds of calls keep so many programs each, then release them. What is left after that, at
# the end and at the beginning: how high the heap of a moment is depends on the collector.
turn = 5 * compiling.MOST_PROGRAMS
assert len(counts) > 3 * turn, (turn, len(counts))
print(min(counts[-turn:]) - min(counts[turn : 2 * turn]))
"""


def programs(count: int) -> str | None:
    """Compiled one after the other in one process: what is wrong, or `None`. Of few, fewer are
    kept than a person's process keeps: otherwise nothing would have to be released."""
    return _grown(PROGRAMS, count, max(count, SOME), "mappings", max(2, count // 20))


def live(count: int) -> str | None:
    """Rounds of `play`, from a tenth of the way on."""
    return _grown(ROUNDS, count, 16.0, "MiB")


def _grown(script: str, count: int, most: float, unit: str, *more: int) -> str | None:
    """What a script that prints by how much it grew comes to."""
    command = [sys.executable, "-c", script, str(count), *map(str, more)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return f"it ended with {done.returncode}: {done.stderr[-200:]}"
    grown = float(done.stdout)
    return f"grew by {grown:g} {unit}" if grown > most else None
