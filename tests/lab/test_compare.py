"""`obax.lab.compare`: one's own problem and algorithms; what it says is what the runs did."""

import importlib
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import obax
from obax.lab.comparison.compare import LOSS, Comparison
from obax.lab.comparison.config import Config
from obax.lab.comparison.work import cost

pytestmark = pytest.mark.usefixtures("quick_compilation")
compare = importlib.import_module("obax.lab.comparison.compare")
SEEDS = range(3)
STREAMS = [obax.problems.quadratic(30, 2, 3, drift=0.05, seed=seed) for seed in SEEDS]
PROBLEM, FIRST = STREAMS[0].problem, STREAMS[0]
ALGORITHMS = {
    "held": obax.OGD(PROBLEM, inner_step_size=0.2),
    "mine": obax.OAGD(PROBLEM, 0.2, 0.2, 3, hypergradient=obax.hypergradient.CG(2)),
}


@pytest.fixture(scope="module")
def one():
    return obax.lab.compare(FIRST, FIRST.rounds, ALGORITHMS, timings=1)


@pytest.fixture(scope="module")
def three():
    rounds = [stream.rounds for stream in STREAMS]
    start = FIRST.outer_var, FIRST.inner_var
    return obax.lab.compare(PROBLEM, rounds, ALGORITHMS, *start, timings=1)


def test_measures_are_those_of_the_runs(one):
    table = one.to_pandas().set_index("algorithm")
    assert list(table.index) == one.order == ["mine", "held"] and one.best == "mine"
    for name, algorithm in ALGORITHMS.items():
        state = algorithm.init(FIRST.outer_var, FIRST.inner_var, FIRST.example_round)
        _, history = obax.run(algorithm, state, FIRST.rounds)
        row = table.loc[name]
        np.testing.assert_allclose(row[LOSS], np.sum(history.played_value), rtol=1e-12)
        expected = obax.regret.dynamic(PROBLEM, history, FIRST.rounds)
        np.testing.assert_allclose(row["dynamic regret"], expected.total, rtol=1e-9)
        np.testing.assert_allclose(one.curves["dynamic regret"][name][0], expected, rtol=1e-9)
        for count in ("gradients", "hvps", "cross_products", "evaluations"):
            assert row[count] == np.asarray(getattr(history, count)).mean()
        assert row.calls == cost(Config(), history).mean()
        assert row["us per round"] > 0 and row.rejected == 0
    # 3 + 1 gradients, 2 products of two gradients' price, one of the other kind.
    assert (table.loc["mine"].calls, table.loc["held"].calls) == (4 + 2 * 2 + 2, 1)


def test_the_answer_comes_first(one):
    lines = repr(one).splitlines()
    table = one.to_pandas()
    gap, share = table[LOSS][1] - table[LOSS][0], 1 - table[LOSS][0] / table[LOSS][1]
    assert lines[0] == one.answer
    assert lines[0].startswith("mine had the least loss: ")
    assert (
        f"({share:.1%}) less than the next, held (one stream, so without an interval)" in lines[0]
    )
    assert f"{gap:.3g}" in lines[0] and "A round of it costs 10.0 calls" in lines[0]
    assert lines[2].split()[0] == "algorithm" and lines[3].split()[0] == "mine"
    # What nobody asked for takes no room.
    assert "evaluations" not in lines[2] and "rejected" not in lines[2]


def test_several_streams_give_intervals(three):
    table = three.to_pandas()
    assert len(table) == 6 and set(table.stream) == set(SEEDS)
    assert "over 30 rounds of 3 streams" in three.answer and " ± " in three.answer
    gains = table[table.algorithm == "held"][LOSS].to_numpy()
    gains = gains - table[table.algorithm == "mine"][LOSS].to_numpy()
    clear = abs(gains.mean()) > 4.303 * gains.std(ddof=1) / np.sqrt(3)
    assert ("within noise" in three.answer) is not clear


def made(losses, regrets=None):
    """A comparison with these ends by algorithm and stream; nothing was run."""
    history = types_of_history()
    curves = {LOSS: {name: [np.asarray([end]) for end in ends] for name, ends in losses.items()}}
    if regrets:
        curves["local regret"] = {name: [np.asarray([end])] for name, end in regrets.items()}
    histories = {name: [history] * len(ends) for name, ends in losses.items()}
    return Comparison(histories, curves, dict.fromkeys(losses, 1e-6))


def types_of_history():
    problem = obax.Problem(lambda x, y, r: (x - r) ** 2)
    algorithm = obax.OGD(problem, 0.1)
    return obax.run(algorithm, algorithm.init(0.0, None, jnp.zeros(())), jnp.ones(1))[1]


def test_the_answer_says_what_is_not_so_clear():
    assert "within noise" in made({"a": [1.0, 2.0, 3.0], "b": [1.1, 1.9, 3.1]}).answer
    assert "within noise" not in made({"a": [1.0, 2.0, 3.0], "b": [1.5, 2.5, 3.6]}).answer
    assert "; the next, b, diverged" in made({"a": [1.0], "b": [np.inf]}).answer
    assert made({"a": [np.inf]}).answer.startswith("No algorithm had a finite loss")
    other = made({"a": [1.0], "b": [2.0]}, {"a": 5.0, "b": 4.0})
    assert other.answer.endswith("The least local regret is that of b.")
    same = made({"a": [1.0], "b": [2.0]}, {"a": 4.0, "b": 5.0})
    assert "least local regret" not in same.answer


def test_a_picture_has_a_panel_for_each_measure(one, tmp_path):
    figure = one.plot(tmp_path / "found.png")
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == ["loss suffered, summed", "dynamic regret"]
    assert (tmp_path / "found.png").read_bytes().startswith(b"\x89PNG")
    for axes, measure in zip(figure.axes, one.curves, strict=True):
        drawn = {line.get_label(): line.get_ydata()[-1] for line in axes.lines}
        for name, (curve,) in one.curves[measure].items():
            assert drawn[name] == pytest.approx(curve[-1])


def test_tables_for_papers_and_spreadsheets(one, three, tmp_path):
    one.to_csv(tmp_path / "found.csv")
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "found.csv"), one.to_pandas())
    rows = three.to_latex().splitlines()
    assert rows[0].startswith(r"\begin{tabular}{lr") and rows[1] == r"\toprule"
    assert rows[2].startswith(f"algorithm & {LOSS} & dynamic regret & calls")
    assert rows[4].startswith("mine & ") and r" $\pm$ " in rows[4] and rows[5].startswith("held & ")


def test_what_takes_long_is_named(monkeypatch, capsys):
    monkeypatch.setattr(compare, "SLOW", 0.01)
    with compare.print_if_slow("plays mine"):
        time.sleep(0.2)
    assert capsys.readouterr().err == "obax.lab.compare plays mine ...\n"
    monkeypatch.setattr(compare, "SLOW", 60.0)
    with compare.print_if_slow("plays mine"):
        pass
    assert capsys.readouterr().err == ""


def plain(**known):
    return obax.Problem(
        lambda x, y, r: 0.5 * (y - r) ** 2, lambda x, y, r: 0.5 * (y - x) ** 2, **known
    )


@pytest.mark.parametrize(
    ("known", "asked", "column"),
    [
        ({}, "auto", None),
        ({"inner_argmin": lambda x, r: x}, "auto", "local regret"),
        ({"inner_argmin": lambda x, r: x}, "none", None),
        ({"inner_argmin": lambda x, r: x, "outer_argmin": lambda r: r}, "static", "static regret"),
    ],
)
def test_regret_is_there_where_it_can_be_had(known, asked, column):
    problem, rounds = plain(**known), jnp.array([1.0, 2.0, 3.0])
    mine = {"mine": obax.FSOBO(problem, 0.5, 0.5)}
    comparison = obax.lab.compare(problem, rounds, mine, 0.0, 0.0, regret=asked, timings=1)
    assert list(comparison.curves) == [LOSS] + ([column] if column else [])
    if column == "local regret":
        x = np.asarray(comparison.histories["mine"][0].outer_var)
        np.testing.assert_allclose(
            comparison.curves[column]["mine"][0][-1], np.sum((x - rounds) ** 2)
        )
    if column == "static regret":
        x = np.asarray(comparison.histories["mine"][0].outer_var)
        expected = np.sum((x - rounds) ** 2 - (2.0 - rounds) ** 2) / 2
        np.testing.assert_allclose(comparison.curves[column]["mine"][0][-1], expected, rtol=1e-6)


def test_rounds_that_are_rejected_are_counted():
    problem, rounds = plain(), jnp.array([1.0, jnp.nan, 3.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        comparison = obax.lab.compare(
            problem, rounds, {"mine": obax.FSOBO(problem, 0.5, 0.5)}, 0.0, 0.0, timings=1
        )
    assert list(comparison.to_pandas().rejected) == [1]
    assert "rejected" in repr(comparison)


def test_what_does_not_fit_is_said():
    rounds, x, y = FIRST.rounds, FIRST.outer_var, FIRST.inner_var
    other = {"mine": obax.FSOBO(plain(), 0.1, 0.1)}
    longer = jax.tree.map(lambda leaf: leaf[:7], rounds)
    for given, message in (
        ((PROBLEM, rounds, {}, x, y), "algorithms must be a dict of at least one algorithm"),
        ((PROBLEM, rounds, [1], x, y), "algorithms must be a dict, but got"),
        ((PROBLEM, rounds, {"mine": 3}, x, y), r"algorithms\['mine'\] must be an algorithm"),
        ((PROBLEM, rounds, other, x, y), r"\['mine'\]\.problem must be the problem of the"),
        ((PROBLEM, rounds, ALGORITHMS), "outer_var must be the start of the leader"),
        ((PROBLEM, [rounds, longer], ALGORITHMS, x, y), "list of streams of one length"),
        ((PROBLEM, [], ALGORITHMS, x, y), "list of streams of one length"),
    ):
        with pytest.raises(ValueError, match=message):
            obax.lab.compare(*given)
    with pytest.raises(ValueError, match="regret must be one of 'auto', 'none', 'dynamic'"):
        obax.lab.compare(FIRST, rounds, ALGORITHMS, regret="best")
    with pytest.raises(ValueError, match="timings must be an integer >= 1"):
        obax.lab.compare(FIRST, rounds, ALGORITHMS, timings=0)
    with pytest.raises(AttributeError, match=r"module 'obax\.lab' has no attribute 'compere'"):
        _ = obax.lab.compere
