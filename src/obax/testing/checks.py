"""Checks of an algorithm on a problem, by name.

The checks of one trial share what they compile: a scan, a step, and a sweep.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._support import trees
from .._support.trees import PyTree
from ..algorithms import Algorithm, Info
from ..online import play, run, sweep
from ..problem import Problem
from .cases import HORIZON, Case, round_at, stack

# (problem, factor) -> the algorithm on that problem, with its step sizes multiplied by the factor.
Make = Callable[[Problem, float], Algorithm]


class ConformanceError(AssertionError):
    """A check has failed; `check` is its name."""

    def __init__(self, check: str, message: str):
        super().__init__(f"{check}: {message}")
        self.check = check


class Trial:
    """An algorithm on a problem, with a count of how often its losses are traced."""

    def __init__(self, case: Case, make: Make):
        self.traces = 0
        self.case = dataclasses.replace(case, problem=self._counted(case.problem))
        self.make = functools.partial(make, self.case.problem)
        self.algorithm = self.make(1.0)
        self.state = self.case.start(self.algorithm)
        # NumPy on the outside: slicing JAX arrays eagerly would compile a kernel for each shape.
        self.rounds = jax.device_get(self.case.rounds)
        self.list = [round_at(self.rounds, t) for t in range(HORIZON)]
        precise = all(leaf.dtype != jnp.float32 for leaf in jax.tree.leaves(self.state.outer_var))
        # Tolerances for the same mathematics in two compiled programs.
        self.close = {"rtol": 1e-9, "atol": 1e-11} if precise else {"rtol": 2e-4, "atol": 1e-5}

    def _counted(self, problem: Problem) -> Problem:
        def outer(*arguments: Any) -> Any:
            self.traces += 1
            return problem.outer(*arguments)

        return dataclasses.replace(problem, outer=outer)

    def run(
        self, rounds: PyTree, state: Any = None, algorithm: Algorithm | None = None
    ) -> tuple[Any, Info]:
        """Run rounds in a scan that records every state."""
        state, history = run(
            self.algorithm if algorithm is None else algorithm,
            self.state if state is None else state,
            rounds,
            record=_whole,
            on_rejected="skip",
        )
        return state, jax.device_get(history)

    def play(self, rounds: Sequence[PyTree], state: Any = None) -> list[tuple[Any, Info]]:
        """Play rounds one by one."""
        start = self.state if state is None else state
        return jax.device_get(list(play(self.algorithm, start, list(rounds), on_rejected="skip")))


def _whole(state: Any) -> Any:
    return state


def values(info: Info) -> tuple:
    """Return the parts of an info that agree up to rounding however they were computed.

    The number of solver steps is not among them: it may differ by one.
    """
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


CHECKS: dict[str, Callable[[Trial], None]] = {}


def _check(function: Callable[[Trial], None]) -> Callable[[Trial], None]:
    """Add a check to CHECKS, with its name in the errors that are raised inside it."""

    @functools.wraps(function)
    def named(trial: Trial) -> None:
        try:
            function(trial)
        except AssertionError as error:
            raise ConformanceError(function.__name__, str(error)) from error

    CHECKS[function.__name__] = named
    return named


@contextmanager
def _explained(message: str) -> Iterator[None]:
    """Put a message before errors inside the block."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"{message} {error}") from error
    except Exception as error:
        raise AssertionError(f"{message} {type(error).__name__}: {error}") from error


def equal(left: PyTree, right: PyTree) -> None:
    """Assert that two trees are equal bit for bit."""
    assert trees.structure(left) == trees.structure(right), "the structures differ."
    jax.tree.map(np.testing.assert_array_equal, left, right)


def close(left: PyTree, right: PyTree, rtol: float = 1e-7, atol: float = 0.0) -> None:
    """Assert that two trees are equal up to rounding."""
    assert trees.structure(left) == trees.structure(right), "the structures differ."
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol, atol), left, right)


@_check
def dtype_is_kept(trial: Trial) -> None:
    """Check that a step keeps structure, shapes and dtypes, in single precision too."""

    def single(tree: PyTree) -> PyTree:
        return jax.tree.map(
            lambda leaf: leaf.astype(jnp.float32) if trees.is_float(leaf) else leaf, tree
        )

    case = trial.case
    with _explained("a step in single precision failed:"):
        round = single(trial.list[0])
        variables = single(case.outer_var), single(case.inner_var)
        state = trial.algorithm.init(*variables, round, buffers=single(case.buffers))
        new, info = jax.eval_shape(jax.jit(trial.algorithm.step), state, round)
    if trees.structure(new) != trees.structure(state):
        raise AssertionError("step must return a state of the structure that it was given.")
    pairs = zip(jax.tree_util.tree_leaves_with_path(new), jax.tree.leaves(state), strict=True)
    for (path, after), before in pairs:
        if (after.shape, after.dtype) != (before.shape, before.dtype):
            raise AssertionError(
                f"step turns {trees.leaf_name(path, 'state')} from {before.dtype}"
                f"{list(before.shape)} into {after.dtype}{list(after.shape)}.",
            )
    for path, leaf in jax.tree_util.tree_leaves_with_path(info):
        if jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.dtype != jnp.float32:
            raise AssertionError(
                f"{trees.leaf_name(path, 'info')} is {leaf.dtype} where all else is float32."
            )


@_check
def suffers_before_learning(trial: Trial) -> None:
    """Check that decision and loss of a round are those before the round was learned."""
    start, round = trial.state, trial.list[0]
    with _explained("the first round failed:"):
        _, info = trial.play([round])[0]
    with _explained("info.outer_var must be x_t as it was before the round came."):
        equal(info.outer_var, jax.device_get(start.outer_var))
    y = trial.case.problem.inner_start
    before = start.inner_var if y is None else y(start.outer_var)
    suffered = trial.case.problem.outer_loss(start.outer_var, before, round, start.buffers)
    with _explained("info.played_value must be f_t(x_t, y_t), before learning."):
        close(info.played_value, jax.device_get(suffered), **trial.close)


@_check
def scan_is_the_loop(trial: Trial) -> None:
    """`run` and `play` are the same trajectory, to rounding, and every round is accepted."""
    with _explained("playing the rounds failed:"):
        state, history = trial.run(trial.rounds)
        played = trial.play(trial.list)
    with _explained("every round of a sound stream must be accepted."):
        assert history.accepted.all() and int(state.t) == HORIZON + 1
    with _explained("run and play must agree."):
        close(state, played[-1][0], **trial.close)
        for t, (after, info) in enumerate(played):
            close(round_at(history.recorded, t), after, **trial.close)
            close(values(round_at(history, t)), values(info), **trial.close)


@_check
def does_not_recompile(trial: Trial) -> None:
    """Check that a second run and another step size compile nothing, and that runs repeat."""
    with _explained("playing the rounds failed:"):
        first = trial.run(trial.rounds)
        played = trial.play(trial.list[:1])
        traced = trial.traces
        again, live = trial.run(trial.rounds), trial.play(trial.list[:1])
    with _explained("the same rounds again must give the same numbers."):
        equal(again, first)
        equal(live, played)
    if trial.traces != traced:
        raise AssertionError("the same call again was traced again.")
    with _explained("another step size failed:"):
        other = trial.make(0.5)
        smaller, _ = trial.run(trial.rounds, algorithm=other)
        next(play(other, trial.state, trial.list[:1]))
    if trial.traces != traced:
        raise AssertionError(
            "another step size was compiled for anew: make numbers arrays and not static fields, "
            "and schedules functions that are defined once.",
        )
    moved = jax.tree.leaves((smaller.outer_var, smaller.inner_var))
    as_before = jax.tree.leaves((first[0].outer_var, first[0].inner_var))
    if all(np.array_equal(a, b) for a, b in zip(moved, as_before, strict=True)):
        raise AssertionError("half the step sizes move x and y exactly as far.")


@_check
def future_is_not_seen(trial: Trial) -> None:
    """Check that a change of the last round changes nothing before it."""
    with _explained("playing the rounds failed:"):
        _, history = trial.run(trial.rounds)
        last = jax.tree.map(lambda leaf: (3 * leaf + 1).astype(leaf.dtype), trial.list[-1])
        _, other = trial.run(stack([*trial.list[:-1], last]))
    with _explained("what comes before a round must not depend on it."):
        earlier = slice(0, -1)
        equal(round_at(other.recorded, earlier), round_at(history.recorded, earlier))
        equal(round_at(values(other), earlier), round_at(values(history), earlier))
    with _explained("the record must depend on the round itself."):
        assert not np.array_equal(other.outer_value[-1], history.outer_value[-1])


@_check
def resumes(trial: Trial) -> None:
    """Check that a state restored from its bytes continues like the original."""
    with _explained("a state must be a pytree of arrays."):
        state, _ = trial.run(trial.rounds)
        saved = [np.array(leaf) for leaf in jax.tree.leaves(state)]
        structure = trees.structure(trial.state)
        restored = structure.unflatten([jnp.asarray(leaf) for leaf in saved])
        equal(restored, state)
    with _explained("what is played from a restored state must be what would have been played."):
        resumed, _ = trial.run(trial.rounds, state=restored)
        close(resumed, trial.play(trial.list * 2)[-1][0], **trial.close)


def poisoned(round: PyTree, value: float) -> PyTree:
    """Return the round with one number of its last floating leaf replaced by `value`."""
    leaves, treedef = jax.tree.flatten(round)
    index = max(i for i, leaf in enumerate(leaves) if jnp.issubdtype(leaf.dtype, jnp.floating))
    leaves[index] = np.array(leaves[index])
    leaves[index].flat[-1] = value
    return jax.tree.unflatten(treedef, leaves)


@_check
def rejects_nan(trial: Trial) -> None:
    """Check that a round with a NaN changes nothing."""
    _leaves_no_trace(trial, poisoned(trial.list[1], np.nan))


@_check
def rejects_infinity(trial: Trial) -> None:
    """Check that a round with an infinity changes nothing."""
    _leaves_no_trace(trial, poisoned(trial.list[1], -np.inf))


@_check
def rejects_overflow(trial: Trial) -> None:
    """Check that a finite round that would send x or y to infinity changes nothing."""
    if trial.case.overflow is None:
        return
    bad = trial.case.overflow(trial.list[1])
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(bad))
    _leaves_no_trace(trial, bad)


def _leaves_no_trace(trial: Trial, bad: PyTree) -> None:
    r0, _, r2 = trial.list
    with _explained("playing the rounds failed:"):
        _, history = trial.run(stack([r0, bad, r2]))
        with_bad, without = trial.play([r0, bad, r2]), trial.play([r0, r2])
    with _explained("the round must be rejected, and t must stay where it was."):
        assert history.accepted.tolist() == [True, False, True], f"{history.accepted}"
        assert history.t.tolist() == [1, 2, 2], f"t = {history.t}"
        assert int(history.rejected) == 1
    with _explained("a rejected round must leave the state exactly as it was."):
        equal(round_at(history.recorded, 1), round_at(history.recorded, 0))
        equal(with_bad[1][0], with_bad[0][0])
    # Bit for bit, from the very same compiled step.
    with _explained("after a rejected round all must be as if it had never come."):
        equal(with_bad[-1], without[-1])
        close(round_at(history.recorded, -1), without[-1][0], **trial.close)


@_check
def stays_in_its_domain(trial: Trial) -> None:
    """Check that every decision is in the domain."""
    with _explained("playing the rounds failed:"):
        _, history = trial.run(trial.rounds)
    for t in range(HORIZON):
        x = round_at(history.recorded.outer_var, t)
        if not bool(trial.case.problem.domain.contains(x)):
            raise AssertionError(f"after round {t + 1} x is {x}, outside the domain.")


@_check
def vmap_is_the_loop(trial: Trial) -> None:
    """Check that a run of a sweep over settings and seeds equals that run alone."""
    with _explained("the sweep failed:"):
        settings = [trial.algorithm, trial.make(0.5)]
        seeds = [trial.rounds, jax.tree.map(lambda leaf: leaf[::-1], trial.rounds)]
        found = sweep(settings, trial.state, stack(seeds), seeds=True, record=_whole)
        states, history = jax.device_get(found)
    with _explained("a run of a sweep must be the run alone."):
        assert history.accepted.shape == (2, 2, HORIZON)
        for i, algorithm in enumerate(settings):
            for j, rounds in enumerate(seeds):
                state, alone = trial.run(rounds, algorithm=algorithm)
                one = round_at(round_at((states, history.recorded, values(history)), i), j)
                close(one, (state, alone.recorded, values(alone)), **trial.close)
