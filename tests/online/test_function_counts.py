"""How many functions of obax a run passes through: things that it does not need are not on its way.

`python -m tests.online.test_function_counts` lists them.
"""

import collections
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp

import obax

ROOT = Path(obax.__file__).parent
CACHED, FIRST = 20, 120
"""The largest numbers of different functions in a run that is compiled already, and in a first one.
Functions without a name of their own (lambdas, comprehensions) are counted too."""
UNUSED = ("mesh", "session", "sharding", "checkpoint", "live", "play")


def where(code):
    """Return the file of a function, inside of obax."""
    return Path(code.co_filename).relative_to(ROOT).as_posix()


def calls(function):
    """Return how often each function of obax is called."""
    counts = collections.Counter()

    def profile(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(str(ROOT)):
            counts[frame.f_code] += 1

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return counts


def two_runs():
    """Return the calls of a first run of OAGD with w = 1, and of a second one."""
    problem = obax.Problem(
        outer=lambda x, y, round: 0.5 * (y - round) ** 2,
        inner=lambda x, y, round: 0.5 * (y - x) ** 2,
    )
    algorithm = obax.OAGD(problem, outer_step_size=0.5, inner_step_size=0.5)
    state, rounds = algorithm.init(0.0, 0.0, jnp.zeros(())), jnp.ones(50)
    run = obax.run
    return [calls(lambda: run(algorithm, state, rounds)) for _ in range(2)]


def test_a_run_passes_through_few_functions():
    first, cached = two_runs()
    assert len(cached) <= CACHED
    assert len(first) <= FIRST
    step = obax.Algorithm.step.__code__
    assert first[step] == 1 and cached[step] == 0
    for code in first:
        assert not any(name in where(code) for name in UNUSED), f"{where(code)}: {code.co_name}"


UNLOADED = """import sys, obax
obax.OAGD, obax.run, obax.Window
unneeded = {"lineax", "rich", "obax.checkpoint", "obax.algorithms.sobow"}
unneeded |= {f"obax.online.{name}" for name in ("mesh", "session", "live", "playing", "sweeping")}
print(*sorted(unneeded & {*sys.modules}))
obax.play, obax.SOBOW
print(len(unneeded & {*sys.modules}))"""


def test_only_what_is_asked_for_is_loaded():
    done = subprocess.run([sys.executable, "-c", UNLOADED], capture_output=True, text=True)
    nothing, some = done.stdout.split("\n")[:2]
    assert nothing == "" and int(some) >= 5, done.stdout + done.stderr


def test_the_count_sees_what_is_asked_for(tmp_path):
    problem = obax.Problem(outer=lambda x, y, round: 0.5 * (x - round) ** 2)
    algorithm = obax.OGD(problem, outer_step_size=0.5)
    state, rounds = algorithm.init(0.0, None, jnp.zeros(())), jnp.ones(4)
    run = obax.run
    seen = calls(lambda: run(algorithm, state, rounds, checkpoint_dir=tmp_path))
    files = {where(code) for code in seen}
    assert {"online/session.py", "checkpoint/format.py"} <= files


if __name__ == "__main__":
    for name, counts in zip(("first", "cached"), two_runs(), strict=True):
        files = {where(code) for code in counts}
        print(f"{name}: {counts.total()} calls, {len(counts)} functions, {len(files)} files")
        for code, count in counts.items():
            print(f"  {count:4d} {where(code)}: {code.co_qualname}")
