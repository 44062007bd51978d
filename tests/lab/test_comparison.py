"""The comparison at a tiny horizon: what is measured is right, and budgets are kept."""

import dataclasses
import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import obax
from obax import regret
from obax.lab import find
from obax.lab.comparison.config import READY, REFERENCE, Config
from obax.lab.comparison.findings import findings, ranked, results
from obax.lab.comparison.tasks import available, task
from obax.lab.comparison.work import Contender, Repeated, compare, cost, grid, make, parts
from obax.lab.framework.playing import is_on_this_machine

pytestmark = pytest.mark.usefixtures("quick_compilation")

TINY = Config(
    horizon=24,
    adult_rounds=3,
    seeds=2,
    problems=("quadratic", "constrained"),
    methods=("OGD x fixed", "OAGD w=1", "FSOBO"),
    outer_step_sizes=(0.03, 0.3),
    inner_step_sizes=(0.1, 0.2),
    window=3,
    timings=1,
    curve_points=6,
)


def test_it_is_registered():
    experiment = find("compare")
    assert experiment.presets["paper"].seeds == 5
    assert set(experiment.presets["paper"].problems) == {
        "quadratic", "constrained", "regression", "network", "adult",
    }  # fmt: skip


def test_every_method_gets_a_grid_of_one_size():
    config = Config()
    sizes = {method: len(grid(config, method)) for method in config.methods}
    assert set(sizes.values()) == {3, 15}
    assert [method for method, size in sizes.items() if size == 3] == ["OGD x fixed"]


@pytest.mark.slow
def test_every_method_can_be_made_and_says_what_a_round_costs():
    """In gradients, with HVP and cross product at 2 and a function value at 1/2; d2 = 10 is more
    than the 5 steps of CG, so each takes all of them."""
    config = dataclasses.replace(TINY, methods=Config().methods)
    here = task(config, "quadratic")
    round = jax.tree.map(lambda leaf: leaf[0, 0], here.rounds)
    spent = {}
    for method in config.methods:
        algorithm = make(config, method, here.problem, (0.1, 0.2))
        state = algorithm.init(*here.starts[0], here.example_round)
        state, _ = algorithm.step(state, round)
        _, info = algorithm.step(state, round)
        assert bool(info.accepted)
        spent[method] = float(cost(config, info))
    assert spent == {
        "OGD x fixed": 5,
        "OAGD w=1": 5 + 1 + 2 * 5 + 2,
        "OAGD window": 5 + 2 + 2 * 5 + 2,
        "SOBOW": 1 + 1 + 2 * 6 + 2,
        "SOGD": 2 * (2 + 2 + 2),
        "ZO-SOGD": 2 * 14 * 2 * 0.5,
        "FSOBO": 2 + 2 + 2,
        "AOBO": spent["AOBO"],
        "OBBO": 5 + 1 + 2 * 5 + 2,
        "OBBO adaptive": 5 + 1 + 2 * 5 + 2,
        "RTHO": 1 + 1 + 5 * (2 + 2),
        "F2OBO": spent["F2OBO"],
        # Two rounds are seen, at most five steps of the leader in each.
        "WOBO window": 5 * 2 * (1 + 1 + 2 * 5 + 2),
        "WOBO single": 2 * (1 + 1 + 2 * 5 + 2),
    }
    assert 2 + 2 * 5 + 2 <= spent["AOBO"] <= 12 + 2 * 5 + 2
    assert 6 <= spent["F2OBO"] <= 6 + 10 + 2 * 10
    # A gradient of f, those of g, the products of CG and one with the cross derivative.
    products = config.hvp_cost * config.solver_steps + config.cross_cost
    assert spent[REFERENCE] == 1 + config.inner_steps + products


def test_repeating_is_playing_the_round_again():
    here = task(TINY, "quadratic")
    algorithm = make(TINY, "FSOBO", here.problem, (0.1, 0.2))
    start = algorithm.init(*here.starts[0], here.example_round)
    rounds = jax.tree.map(lambda leaf: leaf[:4], here.of_seed(0))
    state, history = obax.run(Repeated(algorithm, 3), start, rounds)
    thrice = jax.tree.map(lambda leaf: jnp.repeat(leaf, 3, axis=0), rounds)
    other, played = obax.run(algorithm, start, thrice)
    np.testing.assert_allclose(state.outer_var, other.outer_var, rtol=1e-12)
    # The record is that of the first time, with the calls of all of them.
    np.testing.assert_allclose(history.outer_var, played.outer_var[::3], rtol=1e-12)
    np.testing.assert_allclose(history.played_value, played.played_value[::3], rtol=1e-12)
    np.testing.assert_array_equal(history.hvps, 3)
    np.testing.assert_array_equal(history.gradients, 6)


def test_scores_of_quadratics_are_the_dynamic_regret():
    for name in TINY.problems:
        here = task(TINY, name)
        contender = Contender(TINY, here, "FSOBO")
        history = contender.play(np.ones(4, int))
        curves = here.score(history)
        assert curves.shape == (4, 2, 24)
        for seed in (0, 1):
            x, rounds = history.outer_var[2, seed], here.of_seed(seed)
            expected = regret.dynamic(here.problem, x, rounds)
            np.testing.assert_allclose(curves[2, seed], np.asarray(expected), atol=1e-10)
            measured = {"quadratic": regret.local, "constrained": None}[name]
            if measured is None:
                measured = functools.partial(regret.projected, step_size=0.1)
            regrets = here.stationarity(x, seed)
            expected = measured(here.problem, x, rounds)
            np.testing.assert_allclose(regrets, np.asarray(expected), rtol=1e-10)
    best = regret.outer_solutions(here.problem, here.of_seed(0)).outer_var
    assert np.any(np.isclose(np.abs(best), 0.2)), "the constraint should be active"


def test_scores_are_right_beyond_2_to_the_15_entries():
    """Where one compiled call for everything was wrong on CPU: 15 settings, 5 seeds, 600 rounds."""
    config = dataclasses.replace(TINY, horizon=600, seeds=5)
    here = task(config, "quadratic")
    x = np.random.default_rng(0).standard_normal((15, 5, 600, 5))
    r = {name: np.asarray(leaf) for name, leaf in here.rounds.items()}

    def loss(x):
        y = np.einsum("ntij,sntj->snti", r["answer"], x) + r["shift"]
        leader = np.sum(r["ridge"] * (x - r["center"]) ** 2, axis=-1)
        return 0.5 * np.sum((y - r["target"]) ** 2, axis=-1) + 0.5 * leader

    best = np.asarray(jax.vmap(jax.vmap(here.problem.outer_argmin))(here.rounds))
    expected = loss(x) - loss(best[None])
    assert expected.min() > 0
    history = types.SimpleNamespace(outer_var=x)
    np.testing.assert_allclose(here.score(history), np.cumsum(expected, axis=-1))


def test_the_networks_answer_is_exact():
    here = task(dataclasses.replace(TINY, horizon=3), "network")
    x, _ = here.starts[1]
    round = jax.tree.map(lambda leaf: leaf[1, 2], here.rounds)
    y = here.problem.inner_argmin(x, round)
    np.testing.assert_allclose(jax.grad(here.problem.inner, 1)(x, y, round), 0, atol=1e-12)


@pytest.mark.slow
def test_regression_is_compared_with_the_best_pair_of_each_stage():
    here = task(dataclasses.replace(TINY, horizon=30), "regression")
    contender = Contender(dataclasses.replace(TINY, horizon=30), here, "OGD x fixed")
    history = contender.play(np.ones(2, int))
    curves = here.score(history)
    solved = regret.staged(
        here.problem,
        history.outer_var[0, 1],
        here.of_seed(1),
        3,
        losses=history.played_value[0, 1],
        outer_start=jnp.full(1, -3.0),
        inner_start=here.starts[1][1],
    )
    np.testing.assert_allclose(curves[0, 1, -1], float(solved.total), rtol=1e-4)


@pytest.fixture(scope="module")
def tiny_table():
    run_part = find("compare").run_part
    tables = [run_part(name, work)[1] for name, work in parts(TINY).items()]
    return pd.concat(tables, ignore_index=True)


def test_calls_are_spent_equally(tiny_table):
    result = results(TINY, tiny_table)
    calls = result[result.budget == "calls"]
    # A step of OGD costs 5, of OAGD 18, of FSOBO 6: the nearest whole numbers to 54 / c.
    for method, repeats, spent in (("OGD x fixed", 11, 55), (REFERENCE, 3, 54), ("FSOBO", 9, 54)):
        mine = calls[calls.method == method]
        assert set(mine.repeats) == {repeats}
        np.testing.assert_allclose(mine.calls, spent)
    once = result[result.budget == "rounds"]
    assert set(once.repeats) == {1}


def test_findings_come_from_the_table_alone(tiny_table):
    content = findings(TINY, tiny_table)
    tables = {table.name: table.frame for table in content.tables}
    assert list(tables["ranks"].method) == list(TINY.methods)
    (answer,) = content.answers
    assert answer.words.startswith("Equal oracle calls: on quadratic ")
    assert answer.figure.name == "score-quadratic-calls"
    assert len(answer.table.frame) == 2 * 2
    names = {figure.name for figure in content.every_figure()}
    assert {"score-quadratic-rounds", "score-quadratic-calls"} <= names
    assert {"stationarity-quadratic-calls", "stationarity-constrained-calls"} <= names
    for figure in content.every_figure():
        for series in figure.series:
            assert len(series.x) == len(series.mean) == 6
            assert np.all(np.diff(series.x) > 0)
    assert len(tables["calls"]) == 2 * 3
    assert len(tables["grid"]) == 2 * 2 * (4 + 4 + 2)


def test_ranks_say_who_is_best(tiny_table):
    result = results(TINY, tiny_table)
    for _, here in result.groupby(["problem", "budget"]):
        inside = here[here.within]
        best = inside.loc[inside.score.idxmin()]
        assert best["rank"] == 1
        assert best.ties
        # Moving the leader beats holding it, and not by chance.
        held = here[here.method == "OGD x fixed"].iloc[0]
        assert held.score > 2 * best.score


def test_ties_are_those_of_the_paired_differences():
    """Differences from the best, over 5 seeds: 0.1 each time is clear, 0.1 on average is not."""
    level = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    noise = np.array([0.5, -0.5, 0.5, -0.5, 0.5])
    rows = [
        ("best", level, 1.0),
        ("clearly worse", level + 0.1 + 1e-3 * noise, 1.0),
        ("as good", level + noise, 1.0),
        ("better but over the budget", level - 1.0, 2.0),
        ("diverged", np.full(5, np.inf), 1.0),
    ]
    frame = pd.DataFrame(
        [
            {"problem": "p", "budget": "calls", "method": name, "values": values,
             "score": values.mean(), "share": share}
            for name, values, share in rows
        ]
    )  # fmt: skip
    result = ranked(frame).set_index("method")
    assert result.ties.tolist() == [True, False, True, False, False]
    np.testing.assert_array_equal(result["rank"], [1, 3, 2, np.nan, 4])


def test_a_method_over_the_budget_is_not_ranked(tiny_table):
    dear = tiny_table.copy()
    dear.loc[(dear.metric == "calls_curve") & (dear.method == "FSOBO"), "value"] *= 2
    result = results(TINY, dear)
    mine = result[(result.method == "FSOBO") & (result.budget == "calls")]
    assert not mine.within.any()
    assert mine["rank"].isna().all()
    assert not mine.ties.any()


@pytest.mark.slow
@pytest.mark.skipif(not is_on_this_machine("adult"), reason="OBAX_DATA is unset: no Adult")
def test_adult_plays():
    config = dataclasses.replace(
        TINY, problems=("adult",), outer_step_sizes=(0.1,), inner_step_sizes=(0.1,), seeds=1,
        budgets=("rounds",),
    )  # fmt: skip
    table = compare(config, "adult", "FSOBO")
    curve = table[table.metric == "score_curve"].value
    assert np.isfinite(curve).all()
    assert (curve > 0).all()


def test_without_adult_the_report_says_so(tiny_table, monkeypatch, tmp_path):
    monkeypatch.setenv("OBAX_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    config = dataclasses.replace(TINY, problems=(*TINY.problems, "adult"))
    assert available(config) == list(TINY.problems)
    words = findings(config, tiny_table).paragraphs
    assert any("Left out, because the data is not on this machine: adult" in word for word in words)


def test_config_says_what_is_wrong():
    for change, message in {
        "problems": (("cubic",), "problems must be among"),
        "methods": (("SGD",), "methods must be among"),
        "budgets": (("joules",), "budgets must be among"),
        "seeds": (0, "seeds must be an integer >= 1"),
        "outer_step_sizes": ((-1.0,), "numbers > 0"),
        "inner_step_sizes": ((), "must not be empty"),
        "calls": (0.0, "calls must be a number > 0"),
        "hvp_cost": (-1.0, "hvp_cost must be a number >= 0"),
        "decay": (1.5, "decay must be in"),
    }.items():
        with pytest.raises(ValueError, match=message[1]):
            Config(**{change: message[0]})


def test_ready_problems_are_compared_by_what_decisions_cost_once_answered():
    """Known there: a policy of Riccati costs nothing above the least, and one that lets the system
    run away is not credited with what the equation says."""
    config = dataclasses.replace(TINY, horizon=4, seeds=1)
    here = task(config, "actor-critic")
    rounds = here.of_seed(0)

    class Played:
        outer_var = np.stack([np.asarray(rounds["policy"]), np.full((4, 1, 2), 50.0)])[:, None]

    best, wild = here.score(Played)[:, 0, -1]
    assert abs(best) < 1e-6 and wild >= 10 * float(np.sum(rounds["value"])) - 1e-6
    for name in READY:
        stream = task(config, name)
        stream.problem.check(*stream.starts[0], stream.example_round)
    config = dataclasses.replace(TINY, problems=("robust",), methods=("OAGD w=1", "SOGD"))
    assert list(parts(config)) == ["robust-oagd-w-1"]


@pytest.mark.slow
def test_a_follower_in_a_set_is_compared():
    config = dataclasses.replace(
        TINY, problems=("robust",), methods=("OGD x fixed", "OAGD w=1"), budgets=("rounds",)
    )
    ends = {}
    for method in config.methods:
        table = compare(config, "robust", method)
        scores = table[table.metric == "score"]
        ends[method] = scores.groupby(["alpha", "beta"], dropna=False).value.mean().min()
    assert ends["OAGD w=1"] < 0.9 * ends["OGD x fixed"]
