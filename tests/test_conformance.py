"""Every algorithm on every problem that it applies to: what must hold everywhere.

A pair is compiled three times (scan, step, and sweep where it is swept) and all checks share these.
By default every algorithm meets the problem with named leaves, and two algorithms meet every
problem; `pytest -m slow` plays the rest of the product.
`test_online.py` repeats what has to hold bit for bit with all of XLA's optimisations.
"""

import dataclasses
import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import ALGORITHMS, HORIZON, applicable_pairs, problem_case, round_at, stack

import obax

# The same mathematics compiled twice, in double precision; far below the 1e-6 asked in single.
CLOSE = {"rtol": 1e-9, "atol": 1e-11}


pytestmark = pytest.mark.usefixtures("quick_compilation")


def whole_state(state):
    return state


class Trial:
    """One pair, with a counter of how often its losses are traced."""

    def __init__(self, algorithm, problem):
        self.traces = 0
        self.kind = ALGORITHMS[algorithm]
        case = problem_case(problem)
        self.case = dataclasses.replace(case, problem=self._counted(case.problem))
        self.algorithm = self.kind.make(self.case, 1.0)
        self.state = self.case.start(self.algorithm)
        # NumPy on the outside: slicing JAX arrays eagerly would compile a kernel for each shape.
        self.rounds = jax.device_get(self.case.rounds)
        self.list = [round_at(self.rounds, t) for t in range(HORIZON)]

    def _counted(self, problem):
        def outer(*arguments):
            self.traces += 1
            return problem.outer(*arguments)

        return obax.Problem(
            outer,
            problem.inner,
            problem.domain,
            problem.inner_argmin,
            problem.outer_argmin,
            has_buffers=problem.has_buffers,
        )

    def run(self, rounds, state=None, algorithm=None):
        state, history = obax.run(
            self.algorithm if algorithm is None else algorithm,
            self.state if state is None else state,
            rounds,
            record=whole_state,
            on_rejected="skip",
        )
        return state, jax.device_get(history)

    def play(self, rounds, state=None):
        playing = obax.play(
            self.algorithm,
            self.state if state is None else state,
            list(rounds),
            on_rejected="skip",
        )
        return jax.device_get(list(playing))


@functools.cache
def trial_of(pair):
    return Trial(*pair)


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


def equal(left, right):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    jax.tree.map(np.testing.assert_array_equal, left, right)


def close(left, right, **tolerance):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **(tolerance or CLOSE)), left, right)


def values(info):
    """What of an info is the same to rounding however it was computed. Iterative solvers may take
    one step more or less."""
    return (
        info.t,
        info.outer_var,
        info.outer_value,
        info.played_value,
        info.inner_value,
        info.hypergradient_norm,
        info.inner_gradient_norm,
        info.accepted,
        info.gradients,
    )


def at(tree, index):
    return jax.tree.map(lambda leaf: leaf[index], tree)


def test_scan_is_the_loop(trial):
    state, history = trial.run(trial.rounds)
    played = trial.play(trial.list)
    assert history.accepted.all()
    assert int(state.t) == HORIZON + 1
    close(state, played[-1][0])
    for t, (after, info) in enumerate(played):
        close(at(history.recorded, t), after)
        close(values(at(history, t)), values(info))


def test_same_again_and_another_step_size_do_not_retrace(trial):
    first = trial.run(trial.rounds)
    played = trial.play(trial.list[:1])
    traced = trial.traces
    equal(trial.run(trial.rounds), first)
    equal(trial.play(trial.list[:1]), played)
    other = trial.kind.make(trial.case, 0.5)
    smaller, _ = trial.run(trial.rounds, algorithm=other)
    next(obax.play(other, trial.state, trial.list[:1]))
    assert trial.traces == traced
    moved = jax.tree.leaves((smaller.outer_var, smaller.inner_var))
    assert any(
        np.any(np.asarray(a) != np.asarray(b))
        for a, b in zip(
            moved, jax.tree.leaves((first[0].outer_var, first[0].inner_var)), strict=True
        )
    )


def test_the_future_is_not_seen(trial):
    _, history = trial.run(trial.rounds)
    changed = stack([*trial.list[:-1], jax.tree.map(lambda leaf: 3 * leaf + 1, trial.list[-1])])
    _, other = trial.run(changed)
    equal(at(other.recorded, slice(0, -1)), at(history.recorded, slice(0, -1)))
    equal(at(values(other), slice(0, -1)), at(values(history), slice(0, -1)))
    assert not np.array_equal(other.outer_value[-1], history.outer_value[-1])


def test_saved_and_resumed_is_uninterrupted(trial):
    state, _ = trial.run(trial.rounds)
    saved = [np.array(leaf) for leaf in jax.tree.leaves(state)]
    restored = jax.tree.unflatten(
        jax.tree.structure(trial.state), [jnp.asarray(leaf) for leaf in saved]
    )
    equal(restored, state)
    resumed, _ = trial.run(trial.rounds, state=restored)
    close(resumed, trial.play(trial.list * 2)[-1][0])


def poisoned(round, value):
    """One number of the last floating leaf is not finite."""
    leaves, treedef = jax.tree.flatten(round)
    index = max(i for i, leaf in enumerate(leaves) if jnp.issubdtype(leaf.dtype, jnp.floating))
    leaves[index] = np.array(leaves[index])
    leaves[index].flat[-1] = value
    return jax.tree.unflatten(treedef, leaves)


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_a_round_that_is_not_finite_leaves_no_trace(trial, value):
    r0, r1, r2 = trial.list
    assert_rejected(trial, r0, poisoned(r1, value), r2)


@pytest.mark.parametrize("pair", params(DIVERGING))
def test_a_finite_round_that_overflows_leaves_no_trace(pair):
    trial = trial_of(pair)
    r0, r1, r2 = trial.list
    bad = trial.case.overflow(r1)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(bad))
    assert_rejected(trial, r0, bad, r2)


def assert_rejected(trial, r0, bad, r2):
    _, history = trial.run(stack([r0, bad, r2]))
    assert history.accepted.tolist() == [True, False, True]
    assert history.t.tolist() == [1, 2, 2]
    assert int(history.rejected) == 1
    equal(at(history.recorded, 1), at(history.recorded, 0))
    # The rest is as if the round had never come: bit for bit, from the very same compiled step.
    with_bad, without = trial.play([r0, bad, r2]), trial.play([r0, r2])
    equal(with_bad[1][0], with_bad[0][0])
    equal(with_bad[-1], without[-1])
    close(at(history.recorded, -1), without[-1][0])


def test_structure_and_single_precision_are_kept(trial):
    def single(tree):
        def cast(leaf):
            floating = jnp.issubdtype(leaf.dtype, jnp.floating)
            return leaf.astype(jnp.float32) if floating else leaf

        return jax.tree.map(cast, tree)

    case = trial.case
    round = single(trial.list[0])
    state = trial.algorithm.init(
        single(case.outer_var), single(case.inner_var), round, buffers=single(case.buffers)
    )
    new, info = jax.eval_shape(trial.algorithm.step, state, round)
    assert jax.tree.structure(new) == jax.tree.structure(state)
    for after, before in zip(jax.tree.leaves(new), jax.tree.leaves(state), strict=True):
        assert (after.shape, after.dtype) == (before.shape, before.dtype)
    floats = [leaf for leaf in jax.tree.leaves(info) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    assert {leaf.dtype for leaf in floats} == {jnp.dtype("float32")}


@pytest.mark.parametrize("pair", params(KNOWN))
def test_a_repeated_round_is_learned(pair):
    trial = trial_of(pair)
    problem, r0 = trial.case.problem, trial.list[0]
    state, same = trial.state, stack([r0] * HORIZON)
    for _ in range(100):
        state, _ = trial.run(same, state=state)
    if trial.kind.moves_leader or problem.inner is None:
        close(state.outer_var, problem.outer_argmin(r0), atol=1e-8)
    if problem.inner_argmin is not None:
        close(state.inner_var, problem.inner_argmin(state.outer_var, r0), atol=1e-8)


@pytest.mark.parametrize("pair", params(ALL, is_swept_quickly))
def test_sweep_over_settings_and_seeds_is_the_loop(pair):
    trial = trial_of(pair)
    settings = [trial.algorithm, trial.kind.make(trial.case, 0.5)]
    seeds = [trial.rounds, jax.tree.map(lambda leaf: leaf[::-1], trial.rounds)]
    states, history = obax.sweep(
        settings, trial.state, stack(seeds), seeds=True, record=whole_state
    )
    states, history = jax.device_get((states, history))
    assert history.accepted.shape == (2, 2, HORIZON)
    for i, algorithm in enumerate(settings):
        for j, rounds in enumerate(seeds):
            state, alone = trial.run(rounds, algorithm=algorithm)
            close(at(at(states, i), j), state)
            close(at(at(history.recorded, i), j), alone.recorded)
            close(at(at(values(history), i), j), values(alone))
