"""Where the drift dies out, every method's local regret grows more slowly than the rounds."""

import jax
import numpy as np
import pytest

import obax
from obax import regret

HORIZON = 2048
# Rounds of a drifting stream in slow motion: round t shows scene sqrt(t), so that the path length
# up to t grows like sqrt(t).
SCENES = np.sqrt(np.arange(HORIZON)).astype(int)


def methods(problem):
    window = obax.Window(5, 0.9, normalise="seen")
    return {
        "OAGD": obax.OAGD(problem, 0.1, 0.2, 2),
        "SOBOW": obax.SOBOW(problem, 0.1, 0.2, window),
        "SOGD": obax.SOGD(problem, 1000.0, 2.0, 2.0, outer_momentum=5.0),
        "ZOSOGD": obax.ZOSOGD(
            problem,
            8000.0,
            2.0,
            2.0,
            inner_momentum=100.0,
            dual_momentum=100.0,
            outer_momentum=100.0,
        ),
        "FSOBO": obax.FSOBO(problem, 0.05, 0.2),
        "AOBO": obax.AOBO(problem, 0.1, 0.2, tolerance=0.01, max_inner_steps=20),
        "F2OBO": obax.F2OBO(problem, 0.1, 0.2, tolerance=0.01, max_inner_steps=20),
        "WOBO": obax.WOBO(problem, 0.1, 0.2, 1, window, max_outer_steps=1),
        "OBBO": obax.OBBO(problem, 0.1, 0.2, 2, window),
        "OBBO-adaptive": obax.OBBO(problem, 0.3, 0.2, 2, window, geometry="adaptive"),
    }


@pytest.fixture(scope="module")
def stream():
    few = obax.problems.quadratic(int(SCENES[-1]) + 1, 2, 3, drift=0.1, box=10.0, seed=2)
    return few, jax.tree.map(lambda leaf: leaf[SCENES], few.rounds)


@pytest.mark.parametrize("name", methods(obax.problems.quadratic(1).problem))
def test_local_regret_is_sublinear(stream, name):
    instance, rounds = stream
    algorithm = methods(instance.problem)[name]
    state = algorithm.init(instance.outer_var, instance.inner_var, instance.example_round)
    _, history = obax.run(algorithm, state, rounds)
    curve = np.asarray(regret.local(instance.problem, history.outer_var, rounds))
    # From T / 8 to T. Linear growth is 8; sqrt(T), what the path length does, is 2.8.
    growth = curve[-1] / curve[HORIZON // 8 - 1]
    assert growth < 4.5, growth
    # And per round it falls.
    per_round = curve[[127, 511, 2047]] / np.array([128, 512, 2048])
    assert np.all(np.diff(per_round) < 0), per_round
