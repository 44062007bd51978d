"""Every algorithm on every problem that it applies to: what must hold everywhere.

The checks are those of `obax.testing`, which others run on their own algorithms. A pair is compiled
three times (scan, step, and sweep where it is swept) and all checks share these.
By default every algorithm meets the problem with named leaves, and two algorithms meet every
problem; `pytest -m slow` plays the rest of the product.
`test_online.py` repeats what has to hold bit for bit with all of XLA's optimisations.
"""

import dataclasses
import functools
from pathlib import Path

import jax
import pytest
from cases import ALGORITHMS, HORIZON, applicable_pairs, problem_case

from obax.testing import CHECKS, Trial
from obax.testing.cases import stack
from obax.testing.checks import close

pytestmark = pytest.mark.usefixtures("quick_compilation")


@functools.cache
def trial_of(pair):
    algorithm, name = pair
    case = problem_case(name)

    def make(problem, factor):
        return ALGORITHMS[algorithm].make(dataclasses.replace(case, problem=problem), factor)

    return Trial(case, make)


@pytest.fixture(autouse=True)
def room_for_programs(request):
    """Compiled programs are mapped files, of which Linux lets a process have 65,530; one process
    that plays the whole product would end in a segmentation fault."""
    yield
    maps = Path("/proc/self/maps")
    if request.node.get_closest_marker("slow") is None or not maps.exists():
        return
    if maps.read_bytes().count(b"\n") > 40_000:
        trial_of.cache_clear()
        jax.clear_caches()


def name_of(pair):
    return f"{pair[0]}:{pair[1]}"


ALL = applicable_pairs()
CORE_ALGORITHMS = ("OAGD-own", "OGD")


def is_core(pair):
    """Each algorithm and each problem at least once, and what a follower does to its buffers in
    every mode; the rest of the product is slow."""
    algorithm, problem = pair
    modes = algorithm.startswith("OAGD-follower") and problem == "buffers"
    once = problem == "pytrees" and not algorithm.startswith("RTHO-")
    return algorithm in CORE_ALGORITHMS or once or modes


def params(pairs, core=is_core):
    return [
        pytest.param(pair, marks=() if core(pair) else pytest.mark.slow, id=name_of(pair))
        for pair in pairs
    ]


DIVERGING = [pair for pair in ALL if problem_case(pair[1]).overflow is not None]
KNOWN = [
    (algorithm, problem)
    for algorithm, problem in ALL
    if ALGORITHMS[algorithm].exact
    and (
        problem_case(problem).problem.outer_argmin is not None
        if ALGORITHMS[algorithm].moves_leader or problem_case(problem).problem.inner is None
        else problem_case(problem).problem.inner_argmin is not None
    )
]


def is_swept_quickly(pair):
    return pair[1] == "pytrees" or pair[0] == "OAGD-own"


@pytest.fixture(scope="module", params=params(ALL))
def trial(request):
    return trial_of(request.param)


APART = ("rejects_overflow", "vmap_is_the_loop")


@pytest.mark.parametrize("check", [name for name in CHECKS if name not in APART])
def test_what_must_hold_everywhere(trial, check):
    CHECKS[check](trial)


@pytest.mark.parametrize("pair", params(DIVERGING))
def test_a_finite_round_that_overflows_leaves_no_trace(pair):
    assert trial_of(pair).case.overflow is not None
    CHECKS["rejects_overflow"](trial_of(pair))


@pytest.mark.parametrize("pair", params(KNOWN))
def test_a_repeated_round_is_learned(pair):
    trial = trial_of(pair)
    problem, r0 = trial.case.problem, trial.list[0]
    state, same = trial.state, stack([r0] * HORIZON)
    for _ in range(100):
        state, _ = trial.run(same, state=state)
    if ALGORITHMS[pair[0]].moves_leader or problem.inner is None:
        close(state.outer_var, problem.outer_argmin(r0), atol=1e-8)
    if problem.inner_argmin is not None:
        close(state.inner_var, problem.inner_argmin(state.outer_var, r0), atol=1e-8)


@pytest.mark.parametrize("pair", params(ALL, is_swept_quickly))
def test_sweep_over_settings_and_seeds_is_the_loop(pair):
    CHECKS["vmap_is_the_loop"](trial_of(pair))
