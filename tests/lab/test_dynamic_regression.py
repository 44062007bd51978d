"""The experiment at a tiny horizon: what is compared is right, and a killed run comes back."""

import functools
import io
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import obax
from obax import problems, regret
from obax.cli import screen
from obax.lab import find
from obax.lab.dynamic_regression import measures
from obax.lab.dynamic_regression.config import (
    BASELINES,
    PENALTIES,
    Config,
    Method,
    Stream,
    methods,
    methods_of,
    methods_of_questions,
    with_equal_weights,
    with_shared_curvature,
)
from obax.lab.dynamic_regression.findings import (
    best_settings,
    findings,
    least_regret,
    memory_answer,
    offline_claim,
    offline_distances,
    order_claims,
    tuning_answer,
    window_order,
)
from obax.lab.dynamic_regression.methods import offline, play, play_cut
from obax.lab.dynamic_regression.work import cuts, parts
from obax.problems import windowed
from obax.problems.moments import RunningMoments

pytestmark = pytest.mark.usefixtures("quick_compilation")

TINY = Config(
    horizon=40,
    seeds=2,
    tuning_seeds=3,
    scenarios=("paper", "noisy"),
    stages=(2,),
    outer_dims=(1, 5),
    windows=("1", "5", "T"),
    window_sizes=("1", "5", "T"),
    inner_steps=(2, 3),
    outer_step_sizes=(0.05,),
    inner_step_sizes=(0.05,),
    offline_points=3,
    curve_points=10,
)


@pytest.mark.parametrize(
    ("samples", "normalise", "follower", "curvature", "decay"),
    [
        (1, "full", "current", "current", 0.7),
        (3, "seen", "current", "current", 1.0),
        (3, "full", "average", "window", 0.7),
        (1, "seen", "average", "window", 1.0),
    ],
)
def test_moments_play_what_the_window_plays(samples, normalise, follower, curvature, decay):
    stream = problems.dynamic_regression(12, 2, samples=samples, noise=1.0, seed=3)
    window = obax.Window(4, decay, follower=follower, curvature=curvature, normalise=normalise)
    estimator = obax.hypergradient.Dense()
    plain = obax.OAGD(stream.problem, 0.3, 0.05, 3, window, estimator)
    state = plain.init(stream.outer_var, stream.inner_var, stream.example_round)
    _, history = obax.run(plain, state, stream.rounds, record=lambda s: s.inner_var)

    view = windowed(stream, window)
    alone = obax.OAGD(view.problem, 0.3, 0.05, 3, obax.Window(1), estimator)
    state = alone.init(view.outer_var, view.inner_var, view.example_round)
    _, moments = obax.run(alone, state, view.rounds, record=lambda s: s.inner_var)
    np.testing.assert_allclose(moments.outer_var, history.outer_var, rtol=1e-10)
    np.testing.assert_allclose(moments.recorded, history.recorded, rtol=1e-9, atol=1e-12)


def play_real(stream, window, settings=(0.3, 0.05, 3)):
    """OAGD with the window itself: decisions, models after each round, terms of the window."""
    algorithm = obax.OAGD(stream.problem, *settings, window, obax.hypergradient.Dense())
    state = algorithm.init(stream.outer_var, stream.inner_var, stream.example_round)
    _, history = obax.run(algorithm, state, stream.rounds, record=lambda s: s.inner_var)
    return history.outer_var, history.recorded, history.window_terms


@pytest.mark.parametrize(
    ("size", "normalise", "follower", "curvature", "decay"),
    [
        (4, "seen", "average", "window", 1.0),
        (30, "seen", "average", "window", 1.0),
        (4, "full", "average", "window", 0.7),
        (5, "seen", "current", "current", 0.9),
    ],
)
def test_moments_of_a_window_that_the_rounds_cut(size, normalise, follower, curvature, decay):
    stream = problems.dynamic_regression(20, 3, noise=1.0, mark_changes=True, seed=3)
    assert np.flatnonzero(stream.rounds["reset"]).tolist() == [6, 12]
    options = {"follower": follower, "curvature": curvature, "normalise": normalise}
    window = obax.Window(size, decay, cut="reset", **options)
    x, y, terms = play_real(stream, window)
    assert terms.max() == min(size, 8) and terms[12] == 1
    view = windowed(stream, window)
    alone = play_real(view, obax.Window(1))
    np.testing.assert_allclose(alone[0], x, rtol=1e-10)
    np.testing.assert_allclose(alone[1], y, rtol=1e-9, atol=1e-12)
    never = play_real(windowed(stream, obax.Window(size, decay, **options)), obax.Window(1))
    assert np.abs(never[0] - x).max() > 1e-3


@pytest.mark.parametrize("size", [6, 60])
def test_moments_of_a_window_that_a_detector_cuts(size):
    """Of an abrupt change, with more false alarms than anybody would want."""
    seeds = [problems.dynamic_regression(60, 2, noise=0.1, seed=seed) for seed in (0, 1)]
    detector = obax.detectors.ScaleChange(0.01)
    options = {"follower": "average", "curvature": "window", "normalise": "seen"}
    window = obax.Window(size, cut=detector, **options)
    settings = [(3, 0.3, 0.05), (2, 0.1, 0.1)]
    start = seeds[0].outer_var
    trajectories = play_cut(seeds, window, obax.hypergradient.Dense(), settings, start)
    cut = 0
    for i, (k, alpha, beta) in enumerate(settings):
        for seed, one in enumerate(seeds):
            x, y, terms = play_real(one, window, (alpha, beta, jnp.asarray(k)))
            np.testing.assert_allclose(trajectories[0][i, seed], x, rtol=1e-9)
            np.testing.assert_allclose(trajectories[1][i, seed, 1:], y[:-1], rtol=1e-8, atol=1e-11)
            np.testing.assert_array_equal(trajectories[2][i, seed], terms)
            cut += cuts(np.asarray(terms), np.arange(60) // 30)["cuts"]
    assert cut >= 2


def test_differences_of_running_moments_are_sums_over_the_stretch():
    """In single precision too, where sums over all rounds have lost what one round says."""
    stream = problems.dynamic_regression(3000, 1, noise=1.0)
    exact = windowed(stream, obax.Window(2, normalise="seen", follower="average")).rounds
    with jax.enable_x64(False):
        sums = RunningMoments.of(stream)
        round = sums.between((jnp.asarray(2998),), (jnp.asarray(3000),))
        assert {leaf.dtype for leaf in jax.tree.leaves(round)} == {np.dtype("float32")}
    high = np.asarray(sums.high["training"][0])
    for name in ("training", "validation"):
        for mine, theirs in zip(round[name], exact[name], strict=True):
            np.testing.assert_allclose(mine, theirs[-1], rtol=2e-6, atol=1e-6)
    alone = (high[3000] - high[2998]) / 2
    assert np.abs(alone - np.asarray(exact["training"][0][-1])).max() > 1e-5


def test_cuts_are_counted():
    stages = np.repeat([0, 1, 2], 200)
    lengths = np.arange(1, 601)
    assert cuts(lengths, stages) == {"cuts": 0, "cuts_found": 0}
    lengths[203:] = np.arange(4, 401)
    assert cuts(lengths, stages) == {"cuts": 1, "cuts_found": 1, "cuts_delay": 3.0}
    # One too late for the second change; a window that is full is not cut.
    lengths[550:] = np.arange(1, 51)
    assert cuts(lengths, stages) == {"cuts": 2, "cuts_found": 1, "cuts_delay": 3.0}
    assert cuts(np.minimum(lengths, 60), stages)["cuts"] == 2


def test_moments_reject_other_weights():
    stream = problems.dynamic_regression(6, 1)
    with pytest.raises(ValueError, match="powers of a decay"):
        windowed(stream, obax.Window(3, weights=[1.0, 0.9, 0.1]))
    with pytest.raises(ValueError, match=r"window\.follower"):
        windowed(stream, obax.Window(3, follower="each"))
    with pytest.raises(ValueError, match="mark_changes=True"):
        windowed(stream, obax.Window(3, cut="reset"))
    with pytest.raises(ValueError, match="known when the stream is played"):
        windowed(stream, obax.Window(3, cut=obax.detectors.ScaleChange()))


def test_moments_answer_is_the_minimiser():
    view = windowed(problems.dynamic_regression(6, 1), obax.Window(3, follower="average"))
    round = jax.tree.map(lambda leaf: leaf[4], view.rounds)
    y = view.problem.inner_argmin(jnp.array([-1.0]), round)
    slope = jax.grad(view.problem.inner, 1)(jnp.array([-1.0]), y, round)
    np.testing.assert_allclose(slope, 0, atol=1e-12)


def test_stage_comparators_are_the_best_fixed_pairs():
    group = Stream("noisy", 2, 1)
    bests = measures.comparators(TINY, group)
    one = measures.instances(TINY, group)[0]
    a, b = (np.asarray(leaf) for leaf in one.rounds["training"])
    v, w = (np.asarray(leaf) for leaf in one.rounds["validation"])
    for stage, rounds in enumerate((slice(0, 20), slice(20, 40))):
        tried = np.linspace(TINY.lower, TINY.upper, 4001)
        losses = []
        for x in tried:
            gram = a[rounds].T @ a[rounds] + 20 * 2 * np.exp(x) * np.eye(5)
            y = np.linalg.solve(gram, a[rounds].T @ b[rounds])
            losses.append(0.5 * np.sum((v[rounds] @ y - w[rounds]) ** 2))
        mine = bests.losses[0, rounds].sum()
        assert mine <= min(losses) + 1e-9
        best = np.asarray(bests.solutions.outer_var)[stage, 0]
        assert abs(best - tried[np.argmin(losses)]) < 0.01
        # Of the points of the grid, what they cost over it: the same sums again.
        over = bests.excess(np.full(4001, 20 * stage + 1), np.tile(tried[:, None], (2, 1, 1)))[0]
        assert over.min() > -1e-12
        np.testing.assert_allclose(over, (np.asarray(losses) - mine) / 20, atol=1e-9)
    assert bests.solutions.converged


def test_stage_comparators_are_those_of_regret():
    """From the stage's moments, as from all of its rounds."""
    best = measures.comparators(TINY, Stream("noisy", 2, 1))
    one = measures.instances(TINY, Stream("noisy", 2, 1))[1]
    known = regret.stage_solutions(
        one.problem, one.rounds, 2, outer_start=jnp.zeros(1), inner_start=one.inner_var
    )
    np.testing.assert_allclose(best.solutions.inner_var[2:], known.inner_var, atol=1e-7)
    curve = regret.played(one.problem, jnp.zeros(40), one.rounds, known)
    np.testing.assert_allclose(best.losses[1], -curve.terms, atol=1e-7)


def test_each_penalty_alone_is_at_least_as_good_as_one_for_all():
    shared_penalty, own_penalties = (
        measures.comparators(TINY, Stream("noisy", 2, d1)).losses.sum(axis=1) for d1 in (1, 5)
    )
    assert np.all(own_penalties <= shared_penalty + 1e-9)


def test_path_length_moves_only_between_stages():
    best = measures.comparators(TINY, Stream("noisy", 2, 1))
    path = best.path()
    jump = sum(np.sum((z[:, -1] - z[:, 0]) ** 2, axis=1) for z in best.per_round())
    assert np.all(path[:, :20] == 0)
    np.testing.assert_allclose(path[:, 20:], np.repeat(jump[:, None], 20, axis=1))


def test_bilevel_regret_is_that_of_the_definition():
    group = Stream("noisy", 1, 1)
    played = np.full((2, TINY.horizon, 1), -2.0)
    curves = measures.bilevel_regret(TINY, group, played)
    one = measures.instances(TINY, group)[0]
    tried = jnp.linspace(TINY.lower, TINY.upper, 401)

    def loss(x, round):
        return one.problem.outer(x, one.problem.inner_argmin(x, round), round)

    losses = jax.vmap(jax.vmap(loss, (0, None)), (None, 0))(tried[:, None], one.rounds)
    mine = jax.vmap(loss, (None, 0))(jnp.array([-2.0]), one.rounds)
    expected = np.cumsum(mine - np.minimum(losses.min(axis=1), mine))
    # The grid is 0.025 wide: the comparator lies between its points.
    assert np.all(np.diff(curves[0] - expected, prepend=0) > -1e-12)
    np.testing.assert_allclose(curves[0], expected, rtol=1e-4)
    assert measures.bilevel_regret(TINY, Stream("noisy", 1, 5), played) is None


def test_decisions_are_those_before_the_round():
    group = Stream("noisy", 1, 1)
    trajectories = play(TINY, group, Method("OAGD", w=1))
    assert np.all(trajectories.outer_vars[:, :, 0] == TINY.start)
    assert np.all(trajectories.inner_vars[:, :, 0] == 0)
    assert np.all(np.any(trajectories.inner_vars[:, :, 1] != 0, axis=-1))


def test_offline_solution_minimises_the_validation_loss_so_far():
    group = Stream("noisy", 1, 1)
    times, solved = offline(TINY, group)
    assert times[-1] == TINY.horizon
    best = measures.comparators(TINY, group).per_round()[0][:, 0, 0]
    # 200 Adam steps a point: near, where the loss is not flat in x.
    assert np.all(np.abs(solved[-1, :, 0] - best) < 1.5)


def test_the_oracle_trains_with_the_best_penalty_of_the_stage():
    group = Stream("noisy", 2, 1)
    trajectories = play(TINY, group, BASELINES[1])
    one, best = measures.instances(TINY, group)[0], measures.comparators(TINY, group)
    y = np.zeros(5)
    k, _, beta = trajectories.settings[0]
    for t in range(25):
        np.testing.assert_allclose(trajectories.inner_vars[0, 0, t], y, atol=1e-10)
        a, b = (np.asarray(leaf[t]) for leaf in one.rounds["training"])
        penalty = np.exp(best.per_round()[0][0, t, 0])
        for _ in range(k):
            y = y - beta * (a * (a @ y - b) + 2 * penalty * y)


def test_every_combination_of_options_is_there():
    labels = [method.label() for method in methods(TINY)]
    assert len(labels) == len(set(labels)) == 3 + 2 * 8
    assert with_shared_curvature(40, 1.0, "seen", "average").curvature == "window"
    assert (
        with_shared_curvature(40, 1.0, "seen", "average").label()
        == "OAGD, w = 40, averaged follower"
    )
    assert (
        with_shared_curvature(5, 0.9, "full", "current").label()
        == "OAGD, w = 5, u = 0.9, full weight"
    )
    cut = {m.cut for m in methods_of(TINY, Stream("paper", 2, 5)) if m.w == 40}
    assert cut == {"never", "changes", "detected"}
    assert (
        with_equal_weights(40, "detected").label()
        == "OAGD, w = 40, averaged follower, cut where detected"
    )
    # Where nothing changes, there is nothing to cut at.
    assert with_equal_weights(40, "changes") not in methods_of(TINY, Stream("paper", 1, 1))


def test_config_says_what_is_wrong():
    for change, message in {
        "windows": (("0",), "integers >= 1 or T"),
        "scenarios": (("mild",), "among 'paper', 'noisy'"),
        "outer_dims": ((2,), "must be 1 or 5"),
        "start": (9.0, r"in \[lower, upper\]"),
        "followers": (("each",), "followers must be among"),
        "stages": ((5001,), "between 1 and the horizon"),
        "seeds": (0, "an integer >= 1"),
        "outer_step_sizes": ((-1.0,), "numbers > 0"),
        "inner_steps": ((0,), "integers >= 1"),
        "decays": ((2.0,), "in \\(0, 1]"),
        "inner_step_sizes": ((), "must not be empty"),
    }.items():
        with pytest.raises(ValueError, match=message[1]):
            Config(**{change: message[0]})
    with pytest.raises(ValueError, match="at least two sizes"):
        Config(windows=("1",))


@pytest.fixture(scope="module")
def tiny_table():
    run_part = find("dynamic-regression").run_part
    tables = [run_part(name, work)[1] for name, work in parts(TINY).items()]
    return pd.concat(tables, ignore_index=True)


def test_findings_come_from_the_table_alone(tiny_table):
    content = findings(TINY, tiny_table)
    assert {claim.id for claim in content.claims} >= {"C2"}
    # In our reading, and never cut.
    assert len([claim for claim in content.claims if claim.id.startswith("C1")]) == 2 * 4
    names = {figure.name for figure in content.every_figure()}
    assert names == {
        f"{kind}-{scenario}{end}"
        for scenario in ("paper", "noisy")
        for kind, end in (("regret", "-S2"), ("trajectory", "-S2"), ("windows", ""))
    } | {"distance", "penalties"}
    for figure in content.every_figure():
        assert all(len(series.x) == len(series.mean) > 0 for series in figure.series)
        assert all(len(line) == len(series.x) for series in figure.series for line in series.seeds)
    # 8 combinations and two cuts for each of 4 groups, and own curvature on the paper's stream with
    # d1 = 1.
    tables = {table.name: table.frame for table in content.tables}
    assert len(tables["order"]) == 4 * (8 + 2) + 4
    assert len(tables["cuts"]) == 4 * 2
    grid = next(table for table in content.tables if table.name == "grid").frame
    assert np.isfinite(grid.regret).all()


def test_the_best_setting_is_the_one_with_least_mean_regret(tiny_table):
    run, grid = ["scenario", "stages", "d1", "method"], ["K", "alpha", "beta"]
    means, curves = (
        tiny_table[tiny_table.metric == metric].groupby([*run, *grid], dropna=False).value.mean()
        for metric in ("stage_regret", "stage_regret_curve")
    )
    least = means.groupby(level=run).min()
    # One setting of each run has curves: the best.
    assert len(curves) == len(least)
    chosen = means[means.index.isin(curves.index)].droplevel(grid)
    pd.testing.assert_series_equal(chosen.sort_index(), least.sort_index())


def answer_on_tuning(table, fixed, learned, known=1.0, noise=0.0):
    """The first answer for other losses per round; the noise differs by seed."""
    table = table.copy()
    for method, loss in zip(PENALTIES.values(), (fixed, learned, known), strict=True):
        rows = (table.metric == "tuning_loss") & (table.method == method.label())
        shaken = noise * (table.seed[rows] - 1) * (method.kind == "OAGD")
        table.loc[rows, "value"] = loss + shaken + 0.001 * table.seed[rows]
    return tuning_answer(table)


def test_the_first_answer_follows_the_losses(tiny_table):
    answer = answer_on_tuning(tiny_table, 3.0, 1.5, noise=0.1)
    assert answer.words.startswith("Yes: learning the penalty online lowers the loss per round by ")
    assert "1.50 ± 0.25" in answer.words and "over 3 seeds" in answer.words
    assert "closes 75% of the gap" in answer.words
    assert list(answer.table.frame.columns) == ["stream", *PENALTIES, "gain"]
    assert answer_on_tuning(tiny_table, 3.0, 1.5, noise=3.0).words.startswith("Not beyond noise")
    assert answer_on_tuning(tiny_table, 1.5, 3.0, noise=0.1).words.startswith("No:")
    without = tuning_answer(tiny_table[tiny_table.x != "fixed"])
    assert without.words.startswith("Not tested here")
    assert "not run" in set(without.table.frame["fixed at its start"])


def test_the_two_questions_have_their_own_seeds(tiny_table):
    rows = tiny_table[tiny_table.metric == "tuning_loss"]
    assert set(rows.seed[rows.d1 == 1]) == {0, 1, 2} and set(rows.seed[rows.d1 == 5]) == {0, 1}
    rows = rows[rows.d1 == 1]
    assert set(rows.method) == {method.label() for method in methods_of_questions(TINY)}
    # Those of the other parts among them: the same losses, and the comparators' added to them.
    keys = ["scenario", "stages", "d1", "seed"]
    grid = ["method", "K", "alpha", "beta"]
    regret = tiny_table[tiny_table.metric == "stage_regret"].set_index([*keys, *grid]).value
    floor = tiny_table[tiny_table.metric == "loss"].set_index(keys).value
    for row in rows[(rows.seed < 2) & (rows.kind == "OGD")].itertuples():
        at = (row.scenario, row.stages, row.d1, row.seed)
        alone = regret.xs((*at, row.method), level=[*keys, "method"])
        mine = alone[alone.index.get_level_values("K") == row.K].iloc[0]
        assert abs((mine + floor[at]) / TINY.horizon - row.value) < 1e-9


def answer_on_memory(table, short, losses, noise=0.0):
    """The second answer for other losses per round, by the cut of the window over everything."""
    table = table.copy()
    methods = {with_equal_weights(1, "never"): short} | {
        with_equal_weights(40, cut): loss for cut, loss in losses.items()
    }
    for method, loss in methods.items():
        rows = (table.metric == "tuning_loss") & (table.method == method.label())
        shaken = (0.001 + noise * (method.w == 1)) * (table.seed[rows] - 1)
        table.loc[rows, "value"] = loss + shaken * (1 + (method.w == 1))
    (first, *_) = findings(TINY, table).figures
    return memory_answer(TINY, table, first)


def test_the_second_answer_follows_the_losses(tiny_table):
    cut = {"never": 9.0, "changes": 1.0, "detected": 1.5}
    answer = answer_on_memory(tiny_table, 3.0, cut)
    assert answer.words.startswith("Yes, if the window ends where the world changes: with a window")
    changes, detected, never = answer.words.split(": ")[1].split(", ")[:3]
    assert "falls by 2.0" in changes and changes.endswith("cut at the true changes")
    assert detected.startswith("falls by 1.5") and detected.endswith("cut where a detector says")
    assert never.startswith("rises by 6.0") and "over 3 seeds" in answer.words
    row = answer.table.frame.iloc[0]
    shown = row[["w = 1", "never cut", "cut at changes", "cut by detector"]]
    assert [round(float(cell.split(" ")[0]), 2) for cell in shown] == [3.0, 9.0, 1.0, 1.5]
    assert row["gain"].startswith("1.5")
    assert answer_on_memory(tiny_table, 3.0, cut, noise=3.0).words.startswith("Not beyond noise")
    # The answer is about the window that is cut: it hangs on nothing else.
    worse = answer_on_memory(tiny_table, 3.0, cut | {"changes": 4.0}).words
    assert worse.startswith("No,") and "rises by 1.0" in worse
    without = answer_on_memory(tiny_table[tiny_table.cut != "detected"], 3.0, cut)
    assert "was not measured if cut where a detector says" in without.words
    assert set(without.table.frame["cut by detector"]) == {"not run"}


def test_the_screen_says_it_in_25_lines(tiny_table, monkeypatch):
    """As many streams as the main job has, on the narrowest screen."""
    shown = Console(width=80, record=True, file=io.StringIO())
    monkeypatch.setattr(screen, "console", shown)
    content = findings(TINY, tiny_table)
    screen.show_findings(content)
    lines = shown.export_text().rstrip().splitlines()
    # And the one that says where the page is.
    assert len(lines) + 2 <= 25
    text = " ".join(" ".join(lines).split())
    assert text.startswith(content.answers[0].question + " " + content.answers[0].words[:20])
    assert content.answers[1].question in text and "Claims of the paper: " in text


def made_up(table, regrets, noise=0.0):
    """The table with other regrets of OAGD: by window, and a disturbance that differs by seed."""
    table = table.copy()
    rows = (table.metric == "stage_regret") & (table.kind == "OAGD")
    disturbed = noise * np.where(table.seed[rows] == 0, -1.0, 1.0) * (table.w[rows] == TINY.horizon)
    level = 10.0 * table.seed[rows] + 0.01 * table.seed[rows] * table.w[rows].astype(float)
    table.loc[rows, "value"] = table.w[rows].map(regrets).astype(float) + level + disturbed
    return table


def order_verdicts(table):
    claims = order_claims(TINY, window_order(TINY, best_settings(table)))
    return {claim.verdict for claim in claims}


def test_the_order_is_reproduced_only_beyond_noise(tiny_table):
    falling = {1: 90.0, 5: 60.0, 40: 30.0}
    assert order_verdicts(made_up(tiny_table, falling)) == {"reproduced"}
    assert order_verdicts(made_up(tiny_table, falling, noise=20.0)) == {"within noise"}
    rising = {1: 30.0, 5: 60.0, 40: 90.0}
    assert order_verdicts(made_up(tiny_table, rising)) == {"not reproduced"}
    # One step turned round, one window left out, one seed; a gain that is nothing to the regret.
    assert order_verdicts(made_up(tiny_table, falling | {40: 70.0})) == {"not reproduced"}
    without = made_up(tiny_table, falling)
    assert order_verdicts(without[without.w != 5]) == {"not tested"}
    assert order_verdicts(without[without.w != 1]) == {"not tested"}
    assert order_verdicts(without[without.seed == 0]) == {"within noise"}
    assert order_verdicts(made_up(tiny_table, {1: 9e6, 5: 8e6, 40: 8e6 - 10})) == {"within noise"}


def test_an_order_that_some_options_have_is_partly_reproduced(tiny_table):
    table = made_up(tiny_table, {1: 90.0, 5: 60.0, 40: 30.0})
    worse = (table.w == 40) & (table.u == 0.9) & (table.metric == "stage_regret")
    table.loc[worse.fillna(False), "value"] += 1000
    assert order_verdicts(table) == {"reproduced", "partly"}


@pytest.mark.parametrize("cut", ["changes", "never", "detected"])
def test_each_claim_hangs_on_its_own_windows(tiny_table, cut):
    table = made_up(tiny_table, {1: 90.0, 5: 60.0, 40: 30.0})
    worse = (table.w == 40) & (table.cut == cut) & (table.metric == "stage_regret")
    table.loc[worse.fillna(False), "value"] += 1000
    order = window_order(TINY, best_settings(table))
    verdicts = {claim.id: claim.verdict for claim in order_claims(TINY, order)}
    ours, never = verdicts["C1, S=2"], verdicts["C1, S=2, never cut"]
    assert (ours == "reproduced") == (cut != "changes")
    assert (never == "reproduced") == (cut != "never")
    # The order of a window that a detector cuts is in the table; the paper claims nothing of it.
    assert set(order.order[order.cut == "detected"]) == (
        {"not reproduced"} if cut == "detected" else {"reproduced"}
    )


def test_x_is_close_to_the_offline_one_only_beyond_noise(tiny_table):
    def claim(table):
        return offline_claim(offline_distances(table, least_regret(best_settings(table))))

    def verdict(distance, noise=0.0):
        table = tiny_table.copy()
        is_x, offline = table.metric.str.startswith("x_"), table.kind == "offline"
        table.loc[is_x, "value"] = 0.0
        moved = distance + noise * np.where(table.seed[is_x & offline] == 0, -1.0, 1.0)
        table.loc[is_x & offline, "value"] = moved + 0.001 * table.seed[is_x & offline]
        return claim(table).verdict

    assert verdict(0.5) == "reproduced"
    assert verdict(0.5, noise=0.4) == "within noise"
    assert verdict(3.0) == "not reproduced"
    assert claim(tiny_table[tiny_table.kind != "offline"]).verdict == "not tested"


SMALL_RUN = [
    "horizon=30", "seeds=1", "tuning_seeds=2", "scenarios=paper", "stages=1", "outer_dims=1",
    "windows=1,5", "window_sizes=1", "decays=1", "normalisations=seen", "inner_steps=2",
    "outer_step_sizes=0.1", "inner_step_sizes=0.1", "own_curvature=no",
    "offline_points=2", "curve_points=5",
]  # fmt: skip


def command(out, *more):
    settings = [word for setting in SMALL_RUN for word in ("--set", setting)]
    return [sys.executable, "-m", "obax", "run", "dynamic-regression", "--out", str(out), *more] + (
        [] if "--resume" in more else settings
    )


def kill_and_resume(tmp_path, kills):
    """Kill a real process at random points, then let it finish; compare with a whole run."""
    # Compiled once for all: a killed process has not lost what it compiled.
    cache = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "compiled")}
    cache["JAX_PERSISTENT_COMPILATION_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    cache["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
    environment = os.environ | cache
    run = functools.partial(subprocess.run, check=True, capture_output=True, env=environment)
    run(command(tmp_path / "compile"))
    begun = time.monotonic()
    run(command(tmp_path / "whole"))
    duration = time.monotonic() - begun
    out, dice = tmp_path / "killed", random.Random(0)
    for _ in range(kills):
        more = ["--resume"] if (out / "run.json").exists() else []
        process = subprocess.Popen(
            command(out, *more),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        time.sleep(dice.uniform(0.3, 1.0) * duration)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
    more = ["--resume"] if (out / "run.json").exists() else []
    run(command(out, *more))
    whole, killed = (
        pd.read_parquet(folder / "metrics.parquet") for folder in (tmp_path / "whole", out)
    )
    pd.testing.assert_frame_equal(killed, whole, check_exact=True)
    assert not list(out.rglob("*.part"))


@pytest.mark.slow
def test_ten_kills_resume_to_the_same_table(tmp_path):
    kill_and_resume(tmp_path, kills=10)


def test_the_page_says_as_many_seeds_as_the_runs_have():
    page = (pathlib.Path(__file__).parents[2] / "docs" / "dynamic-regression.md").read_text()
    text = " ".join(page.split())
    presets = find("dynamic-regression").presets
    # The two questions, in either preset; and the tables of the paper's.
    assert {max(one.seeds, one.tuning_seeds) for one in presets.values()} == {10}
    assert set(re.findall(r"95% interval over (\w+) seeds", text)) == {"ten"}
    assert presets["paper"].seeds == 5
    assert set(re.findall(r"over the (\w+) seeds", text)) == {"five"}
    assert "five seeds, and ten for the two questions" in text


def test_it_is_registered():
    assert find("dynamic-regression").presets["paper"].horizon == 5000
