"""Rounds in a process that was forked after JAX was used: told, not waited for."""

import os
import subprocess
import sys

import pytest

CODE = """
import os, signal, sys, warnings
warnings.simplefilter("ignore")  # JAX and newer Pythons warn of any fork beside threads
import jax.numpy as jnp
import numpy as np
import obax
from obax._support import forked

if sys.argv[1] == "mutant":
    forked._in_child = lambda: None
    os.register_at_fork(after_in_child=lambda: setattr(forked, "child", False))
problem = obax.Problem(outer=lambda x, y, round: 0.5 * (x - round) ** 2)
algorithm = obax.OGD(problem, outer_step_size=0.5)
state, rounds = algorithm.init(0.0, None, jnp.zeros(())), [np.ones((), np.float32)] * 9
stacked = jnp.ones(9)
game = obax.play(algorithm, state, rounds)
next(game)
ways = {
    "run": lambda: obax.run(algorithm, state, stacked),
    "sweep": lambda: obax.sweep([algorithm] * 2, state, stacked),
    "an algorithm": lambda: obax.OGD(problem, outer_step_size=0.25),
    "step": lambda: algorithm.step(state, rounds[0]),
    "play": lambda: list(obax.play(algorithm, state, rounds)),
    "a game under way": lambda: next(game),
}
for name, way in ways.items():
    if os.fork() == 0:
        signal.alarm(5 if sys.argv[1] == "mutant" else 60)
        try:
            way()
        except RuntimeError as error:
            os._exit(7 if "get_context('spawn')" in str(error) else 1)
        os._exit(2)
    status = os.wait()[1]
    print("hung" if os.WIFSIGNALED(status) else os.WEXITSTATUS(status), flush=True)
    if sys.argv[1] == "mutant":
        break
next(game)  # whoever forked goes on
os._exit(0)
"""

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")


def found(way):
    done = subprocess.run([sys.executable, "-c", CODE, way], capture_output=True, text=True,
                          timeout=300)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_child_is_told_whatever_it_tries():
    assert found("as it is") == ["7"] * 6


@pytest.mark.slow
def test_without_the_check_a_child_waits_for_ever():
    assert found("mutant") == ["hung"]
