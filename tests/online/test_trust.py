"""Hypergradients that cannot be trusted are spoken of, once, with what to try."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest

import obax
from obax import hypergradient
from obax.hypergradient import Remedy
from obax.online.diagnostics import CLOSELY, ENORMOUS, ROUNDS, SELDOM, LiveDiagnostics, distrust

pytestmark = pytest.mark.usefixtures("quick_compilation")
ROUNDS_50 = jnp.asarray(np.random.default_rng(0).normal(1.0, 0.3, (50, 2)))
CURE = Remedy("it was left with", "another")


def stiff(estimator):
    """A follower whose curvatures are 1 and 1,000."""
    scale = jnp.array([1.0, 1000.0])
    problem = obax.Problem(
        lambda x, y, r: 0.5 * jnp.sum((y - r) ** 2),
        lambda x, y, r: 0.5 * jnp.sum(scale * (y - x) ** 2),
    )
    algorithm = obax.OAGD(problem, 1e-9, 1e-3, hypergradient=estimator)
    return algorithm, algorithm.init(jnp.zeros(2), jnp.zeros(2), jnp.zeros(2))


def test_a_diverging_series_is_warned_of_once():
    case = stiff(obax.hypergradient.Neumann(3, 0.1))
    with pytest.warns(obax.HypergradientWarning, match="cannot be trusted.*check_hyper") as caught:
        obax.run(*case, ROUNDS_50)
    assert len(caught) == 1 and caught[0].filename == __file__
    with pytest.warns(obax.HypergradientWarning) as caught:
        for _ in obax.play(*case, list(np.asarray(ROUNDS_50))):
            pass
    assert len(caught) == 1 and caught[0].filename == __file__


def test_the_warning_comes_before_the_rejection():
    with pytest.warns(obax.HypergradientWarning), pytest.raises(obax.RejectedRoundError):
        obax.run(*stiff(obax.hypergradient.Neumann(8, 0.1)), ROUNDS_50)


def test_a_system_that_is_never_solved_is_warned_of():
    with pytest.warns(obax.HypergradientWarning, match="in every one of 50 rounds"):
        obax.run(*stiff(obax.hypergradient.Neumann(1, 1e-6)), ROUNDS_50)


def test_a_sound_run_has_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        obax.run(*stiff(obax.hypergradient.CG()), ROUNDS_50)
        for _ in obax.play(*stiff(obax.hypergradient.CG()), list(np.asarray(ROUNDS_50[:5]))):
            pass


def test_which_residuals_are_distrusted():
    assert distrust(np.zeros(100), CURE) is None
    assert distrust(np.ones(ROUNDS - 1), CURE) is None
    assert "every one of 20 rounds" in distrust(np.ones(ROUNDS), CURE)
    # One round in which it was solved is enough; rounds that did not ask do not count.
    assert distrust(np.append(np.ones(ROUNDS), 0.5), CURE) is None
    assert distrust(np.append(np.ones(ROUNDS), 0.0), CURE) is not None
    assert distrust(np.array([0.1, 2 * ENORMOUS]), CURE) is not None
    # A residual above 1 in one of ten rounds is too often.
    often = distrust(np.repeat([0.2, 3.0], [90, 10]), CURE)
    assert "above 1 in 10 of 100 rounds" in often
    assert distrust(np.repeat([0.2, 3.0], [91, 9]), CURE) is None
    assert distrust(np.repeat([0.2, 3.0], [9, 10]), CURE) is None
    assert distrust(np.array([0.1, np.nan]), CURE) is not None


def test_residuals_of_a_live_stream_are_read_often_then_seldom():
    live = LiveDiagnostics(CURE)
    live.look(1, 0.0, stacklevel=1)
    assert live.due == 2
    live.look(2, 0.01, stacklevel=1)
    assert live.due == 2 + SELDOM
    with pytest.warns(obax.HypergradientWarning):
        live.look(66, 1e9, stacklevel=1)
    assert live.due == float("inf")
    often = LiveDiagnostics(CURE)
    for round in range(ROUNDS - 1):
        often.look(1 + round * SELDOM, 3.0 if round % 5 == 0 else 0.2, stacklevel=1)
    with pytest.warns(obax.HypergradientWarning, match="above 1 in 4 of 20 rounds"):
        often.look(1 + ROUNDS * SELDOM, 0.2, stacklevel=1)
    never = LiveDiagnostics(CURE)
    for round in range(1, ROUNDS):
        never.look(round, 1.0, stacklevel=1)
    with pytest.warns(obax.HypergradientWarning, match="in every one of 20 rounds"):
        never.look(ROUNDS, 1.0, stacklevel=1)
    # A leader that never asks is not looked at for ever.
    still = LiveDiagnostics(CURE)
    for round in range(1, CLOSELY + 1):
        still.look(round, 0.0, stacklevel=1)
    assert still.due == CLOSELY + SELDOM and still.seen == []


# --- whatever drives it, and whatever it is -------------------------------------------------------


def play_all(algorithm, state, rounds):
    for _ in obax.play(algorithm, state, list(np.asarray(rounds))):
        pass


def sweep_both(algorithm, state, rounds):
    obax.sweep([algorithm, algorithm], state, rounds)


STIFF = stiff(hypergradient.CG())[0].problem
NEVER_SOLVED = {
    "Neumann.terms": obax.OAGD(STIFF, 1e-9, 1e-3, hypergradient=hypergradient.Neumann(1, 1e-6)),
    "CG.max_steps": obax.OAGD(STIFF, 1e-9, 1e-3, hypergradient=hypergradient.CG(damping=1e9)),
    "FixedPoint.max_steps": obax.SOBOW(
        STIFF, 1e-9, 1e-3, hypergradient=hypergradient.FixedPoint(1e-6, max_steps=1)
    ),
    "more inner_steps": obax.OAGD(STIFF, 1e-9, 1e-6, hypergradient=hypergradient.Unrolled()),
    "max_inner_steps": obax.F2OBO(STIFF, 1e-9, 1e-6, max_inner_steps=1),
    "dual_step_size": obax.FSOBO(STIFF, 1e-9, 1e-6, 1e-6),
    "dual_ratio": obax.SOGD(STIFF, scale=1e-6),
}


@pytest.mark.parametrize("drive", [obax.run, play_all, sweep_both])
@pytest.mark.parametrize("cure", NEVER_SOLVED)
def test_what_to_try_fits_the_algorithm(drive, cure):
    algorithm = NEVER_SOLVED[cure]
    state = algorithm.init(jnp.zeros(2), jnp.zeros(2), jnp.zeros(2))
    with pytest.warns(obax.HypergradientWarning, match="cannot be trusted") as caught:
        drive(algorithm, state, ROUNDS_50[:ROUNDS])
    said = str(caught[0].message)
    assert len(caught) == 1 and caught[0].filename == __file__
    assert cure in said.partition(" Try ")[2]
    if isinstance(algorithm, obax.F2OBO):
        # It has no system and no solver.
        assert "solver" not in said and "H v" not in said and "Dense" not in said


def kinds(room, base):
    found = [getattr(room, name) for name in dir(room)]
    return [one for one in found if isinstance(one, type) and issubclass(one, base)]


def test_every_algorithm_and_estimator_has_a_remedy():
    general = hypergradient.Hypergradient
    silent = {kind for kind in kinds(hypergradient, general) if kind.remedy == general.remedy}
    assert silent == {general}
    # Where there is no estimator to ask: OGD and ITD leave no residual, AutoBalance asks its own.
    alone = [
        kind
        for kind in kinds(obax, obax.Algorithm)
        if not hasattr(kind, "hypergradient") and kind.remedy is obax.Algorithm.remedy
    ]
    assert {*alone} == {obax.Algorithm, obax.OGD, obax.ITD}


def test_the_warning_of_a_sweep_counts_and_names_runs():
    good, state = stiff(hypergradient.Neumann(3, 1e-3))
    bad = obax.OAGD(good.problem, 1e-9, 1e-3, hypergradient=hypergradient.Neumann(3, 0.1))
    seeds = jnp.stack([ROUNDS_50, ROUNDS_50, ROUNDS_50])
    with pytest.warns(obax.HypergradientWarning) as caught:
        obax.sweep([good, good, bad], state, seeds, seeds=True)
    assert len(caught) == 1
    assert str(caught[0].message).startswith("in 3 of 9 runs, history[2, 0] the first of them: ")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        obax.sweep([good, good], state, seeds, seeds=True)


def test_a_summary_mentions_systems_only_where_there_are_some():
    for algorithm, what in (
        (NEVER_SOLVED["max_inner_steps"], "\nhypergradient: largest relative residual"),
        (NEVER_SOLVED["dual_step_size"], "\nlinear systems of the hypergradient: largest"),
    ):
        state = algorithm.init(jnp.zeros(2), jnp.zeros(2), jnp.zeros(2))
        with pytest.warns(obax.HypergradientWarning):
            _, history = obax.run(algorithm, state, ROUNDS_50)
        said = history.summary()
        assert what in said and ("solver" in said) == ("linear" in what)


def test_residuals_of_a_live_stream_are_read_in_half_precision_too():
    """They are not packed there."""
    problem = obax.Problem(
        lambda x, y, r: jnp.sum((y - r) ** 2), lambda x, y, r: jnp.sum((y - x) ** 2)
    )
    algorithm = obax.OAGD(problem, jnp.float16(0.1), jnp.float16(0.1))
    zero = jnp.zeros(2, jnp.float16)
    state = algorithm.init(zero, zero, zero)
    with obax.play(algorithm, state, [zero + 1] * 3) as rounds:
        assert [info.solver_residual.dtype for _, info in rounds] == [jnp.float16] * 3
        assert rounds.rounds == 3
