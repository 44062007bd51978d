"""Certificates hold on verified problems, and a false bound is caught: by name, with exit code 1."""

import dataclasses
import json
import sys

import jax
import numpy as np
import pytest

from obax import cli, theory
from obax.certify import SETTINGS, _game, _growth, certificates, certify, check_arguments, draw
from obax.certify._outcomes import Outcome, outcomes, prescribe


@pytest.fixture(scope="module")
def found():
    return certify(problems=5, horizon=16, seed=1)


def test_all_settings_hold(found):
    assert found.ok
    assert [row.setting for row in found.rows] == list(SETTINGS)
    for row in found.rows:
        assert row.violations == 0
        assert 0.0 < row.ratio_median <= row.ratio_max < 1.0
        assert sum(family["problems"] for family in row.families.values()) == row.problems == 5
        assert row.assumptions
        assert row.checks
        assert len(row.curve) == 16
    ratios = {row.setting: row.ratio_max for row in found.rows}
    # Where a family is built to come near the bound, it does: a bound ten times as large shows.
    assert ratios["convex_static"] > 0.1
    assert ratios["strongly_convex_static"] > 0.05
    assert ratios["convex_dynamic"] > 0.05
    assert ratios["strongly_convex_dynamic"] > 1e-3
    assert ratios["nonconvex_local"] > 1e-3


def test_printed_bounds_that_fail_are_errata_and_no_violation(found):
    printed = {row.setting: row.printed_violations for row in found.rows}
    assert printed["strongly_convex_static"] >= 1  # errata 1 and 2
    assert printed["convex_static"] >= 1  # erratum 1
    assert printed["convex_dynamic"] == printed["nonconvex_local"] == 0
    assert len(found.errata) == sum(printed.values())
    assert "is above the bound as printed" in found.errata[0].sentence


def test_one_problem_does_not_depend_on_the_others():
    alone = outcomes("convex_dynamic", 1, 16, seed=1)[0]
    beside = outcomes("convex_dynamic", 3, 16, seed=1)[0]
    np.testing.assert_allclose(alone.regret, beside.regret, rtol=1e-12)
    other = draw("convex_dynamic", 0, 16, seed=2).instance.rounds["b"]
    assert not np.allclose(other, alone.drawn.instance.rounds["b"])


def test_measured_regret_by_hand():
    """The first round of the arriving family: phi_1(x_1) - phi_1(x*_1) = |x_1 - x*_1|^2."""
    outcome = outcomes("convex_dynamic", 1, 8, seed=0)[0]
    instance = outcome.drawn.instance
    # Q = R = 1 along one direction, and y* = x along it: phi_t = (x - x*_t)^2.
    distance = float(instance.outer_var[0] - instance.rounds["optimum"][0, 0])
    assert outcome.regret[0] == pytest.approx(distance**2, rel=1e-12)
    setting = prescribe(outcome.drawn)
    assert outcome.bound[0] == pytest.approx(float(setting.bound(P_1=0.0, Y_1=0.0, Y_2=0.0)))


def test_works_in_a_single_precision_process():
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        outcome = outcomes("convex_dynamic", 1, 8, seed=0)[0]
    assert outcome.regret.dtype == np.float64
    assert outcome.exceeds(outcome.bound) is None


def test_exceeds_sees_a_single_round_and_a_nan():
    flat = np.ones(4)
    outcome = Outcome(draw("convex_static", 0, 8, 0), (), np.array([0, 1, 3, 1.0]), flat, flat, flat)
    assert outcome.exceeds(2.0 * flat) == 3
    assert outcome.exceeds(3.0 * flat) is None
    assert dataclasses.replace(outcome, regret=np.full(4, np.nan)).exceeds(flat) == 1


# --- the game and the example ---------------------------------------------------------------------


def test_game_means_are_those_of_the_closed_forms():
    T = 20
    rows = {row.strategy: row for row in _game.game(T, seed=3, seeds=400)}
    expected = {"x_t = 0": 12.0 * T, "last optimum": 24.0 * T - 12.0}
    # The running mean of t - 1 draws has variance 1 / (t - 1).
    expected["running mean"] = 12.0 * (T + sum(1.0 / (t - 1) for t in range(2, T + 1)))
    for name, mean in expected.items():
        low, high = rows[name].regret_interval
        assert low < mean < high, name
    for row in rows.values():
        assert row.S_2_interval[0] < 6.0 * (T - 1) < row.S_2_interval[1]
        assert not row.violated
        # Nobody beats x_t = 0 in expectation; these are the same draws for all.
        assert row.regret >= rows["x_t = 0"].regret - 2.0 * T
    assert len(rows) >= 3


def test_a_player_who_sees_the_future_is_caught():
    peeking = {"peeking": lambda problem, rounds: np.asarray(rounds["a"])}
    (row,) = _game.game(20, seeds=50, strategies=peeking)
    assert row.regret == 0.0
    assert row.violated


def test_example_grows_as_claimed():
    rows = {(row.sequence, row.quantity): row for row in _growth.example()}
    assert len(rows) == 12
    assert not any(row.violated for row in rows.values())
    root, log = rows["inner", "Y_1"], rows["outer", "P_2"]
    # |b_t - b_{t-1}| = 1/sqrt(t) + 1/sqrt(t-1), exactly.
    t = np.arange(2, _growth.EXAMPLE_HORIZON + 1)
    steps = 1.0 / np.sqrt(t) + 1.0 / np.sqrt(t - 1)
    assert root.total == pytest.approx(steps.sum(), rel=1e-12)
    assert log.total == pytest.approx((steps**2).sum(), rel=1e-12)
    assert root.exponent == pytest.approx(0.5, abs=0.02)
    assert log.coefficient == pytest.approx(4.0, abs=1e-3)
    assert rows["inner", "P_1"].total == rows["outer", "Y_2"].total == 0.0
    # A row that does not fit its claim is a violation.
    assert dataclasses.replace(root, claimed="0").violated
    assert dataclasses.replace(root, exponent=0.6).violated
    assert dataclasses.replace(log, r_squared=0.9).violated


# --- the command line -----------------------------------------------------------------------------


@pytest.fixture
def obax(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    # The game and the example have tests of their own.
    monkeypatch.setattr(certificates, "game", lambda horizon, seed: [])
    monkeypatch.setattr(certificates, "example", lambda: [])

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["obax", "certify", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
            raise SystemExit(0)
        out, err = capsys.readouterr()
        return stop.value.code or 0, out, err

    return call


SMALL = ("--setting", "convex_dynamic", "--problems", 1, "--horizon", 8)


def test_table_json_and_figure(obax, tmp_path):
    code, out, err = obax(*SMALL, "--out", tmp_path / "there")
    assert (code, err) == (0, "")
    assert "convex_dynamic" in out
    assert "violations" in out
    stored = json.loads((tmp_path / "there" / "certify.json").read_text())
    assert stored["ok"] is True
    assert (tmp_path / "there" / "certify.png").stat().st_size > 1000
    assert (tmp_path / "there" / "certify.svg").read_text().startswith("<?xml")
    code, out, _ = obax(*SMALL, "--json")
    assert code == 0
    assert json.loads(out) == stored
    (row,) = stored["rows"]
    assert row["assumptions"]
    assert {"assumption", "worst", "limit", "round", "share"} <= set(row["checks"][0])


def test_a_false_bound_ends_with_code_1(obax, monkeypatch):
    honest = theory.ConvexDynamic.bound

    def false(self, *, P_1, Y_1, Y_2):
        return 1e-3 * honest(self, P_1=P_1, Y_1=Y_1, Y_2=Y_2)

    monkeypatch.setattr(theory.ConvexDynamic, "bound", false)
    code, out, err = obax(*SMALL, "--seed", 5)
    assert code == 1
    assert "convex_dynamic, family arriving, problem 0, seed 5: the regret" in err
    assert "in round 1 is above the bound" in err
    stored = json.loads(obax(*SMALL, "--json")[1])
    assert stored["ok"] is False
    assert stored["rows"][0]["violations"] == 1


def test_a_family_with_a_false_constant_ends_with_code_1(obax, monkeypatch):
    honest = certificates.outcomes.__globals__["draw"]

    def false(*arguments):
        drawn = honest(*arguments)
        constants = dataclasses.replace(drawn.instance.constants, ell_f1=0.5)
        instance = dataclasses.replace(drawn.instance, constants=constants)
        return drawn._replace(instance=instance)

    monkeypatch.setitem(certificates.outcomes.__globals__, "draw", false)
    code, _, err = obax(*SMALL)
    assert code == 1
    assert "family arriving, problem 0: smooth f_t and g_t (A3, assu:f:a2) fails in round" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--setting", "convex-dinamic"), "unknown setting 'convex-dinamic'. Did you mean"),
        (("--setting", "quux"), "unknown setting 'quux'. Known: strongly_convex_dynamic,"),
        (("--problems", 0), "problems must be at least 1, but got 0."),
        (("--horizon", 7), "horizon must be at least 8"),
    ],
)
def test_bad_input(obax, words, message):
    code, out, err = obax(*words)
    assert (code, out) == (2, "")
    assert err.startswith(f"obax: {message}")
    assert err.count("\n") == 1


def test_settings_come_in_their_own_order_and_once():
    asked = ["convex_static", "convex_dynamic", "convex_static"]
    assert check_arguments(asked, 1, 8) == ("convex_dynamic", "convex_static")
