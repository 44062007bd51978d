"""One rule for every claim, and mutants of what it watches."""

import dataclasses
import importlib

import numpy as np
import pandas as pd
import pytest
from kinds import kinds_in

from obax import lab
from obax.lab.comparison.config import METHODS
from obax.lab.framework import statistics
from obax.lab.framework.config import Method, option
from obax.lab.framework.experiment import Experiment, Texts
from obax.lab.framework.results import VERDICTS, Claim, Findings
from obax.lab.framework.statistics import RULE, Gain, chain, combined, interval, paired
from obax.lab.report.figures import KINDS

CLEAR = np.array([1.0, 1.1, 0.9])


def test_interval_of_a_mean():
    # t(0.975, 2) = 4.302653; the standard error of 1, 2, 3 is 1 / sqrt(3).
    assert interval(np.array([1.0, 2.0, 3.0])) == pytest.approx((2.0, 4.302653 / np.sqrt(3)))
    assert interval(np.array([7.0])) == (7.0, np.inf)
    for values in ([], [1.0, np.nan]):
        mean, half = interval(np.array(values))
        assert np.isnan(mean) and half == np.inf


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        (CLEAR, "reproduced"),
        (-CLEAR, "not reproduced"),
        (CLEAR[:1], "within noise"),
        (100 * CLEAR[:1], "within noise"),
        (CLEAR[:0], "not tested"),
        # The mean is 1, the half-width 4.30 x 0.58 = 2.48.
        (np.array([0.0, 1.0, 2.0]), "within noise"),
        (np.zeros(3), "within noise"),
        (np.full(3, np.inf), "reproduced"),
        (np.full(3, -np.inf), "not reproduced"),
        (np.array([np.inf, 1.0, 1.0]), "within noise"),
        (np.array([np.nan, 1.0, 1.0]), "within noise"),
    ],
)
def test_a_gain_counts_only_beyond_noise(values, verdict):
    assert Gain.of(values).verdict == verdict


def test_two_seeds_that_differ_by_rounding_show_no_noise():
    assert Gain.of([2.2, 2.2]).verdict == "within noise"
    assert Gain.of([2.199999988, 2.199998498]).verdict == "within noise"
    assert Gain.of([-2.199999988, -2.199998498]).verdict == "within noise"
    # The rounding is that of the accuracies, which are larger than their difference.
    ours = {0: np.float32(90.2), 1: np.float32(93.4)}
    theirs = {0: np.float32(90.0), 1: np.float32(93.2)}
    gain = paired(ours, theirs)
    assert gain.mean == pytest.approx(0.2, rel=1e-4) and gain.verdict == "within noise"
    # A difference at rounding level is none, however many seeds have it.
    same = dict.fromkeys(range(3), 90.0)
    nearly = {0: 90.00001, 1: 90.000012, 2: 90.000011}
    assert paired(nearly, same) == Gain(0.0, 0.0, 3)
    # A spread that is small and no rounding is one.
    assert Gain.of([2.2, 2.2001]).verdict == "reproduced"


def test_a_rule_that_does_not_know_rounding_is_noticed(monkeypatch):
    """A mutant: without the bound on rounding, eleven of 500 right answers twice were clear."""
    monkeypatch.setattr(statistics, "ROUNDING", 0.0)
    assert Gain.of([2.199999988, 2.199998498]).verdict == "reproduced"
    assert paired({0: 90.00001, 1: 90.00001}, {0: 90.0, 1: 90.0}).mean > 0


def test_one_test_example_is_the_smallest_noise():
    assert Gain.of([2.2, 2.3]).verdict == "reproduced"
    assert Gain.of([2.2, 2.3], resolution=0.2).verdict == "within noise"
    assert paired({0: 62.2, 1: 62.3}, {0: 60.0, 1: 60.0}, 0.2).verdict == "within noise"
    # Three that are the same are as if they were one example apart: 4.30 x 0.2 / sqrt(3) = 0.50.
    gain = Gain.of([0.4, 0.4, 0.4], resolution=0.2)
    assert gain.half == pytest.approx(4.302653 * 0.2 / np.sqrt(3))
    assert gain.verdict == "within noise"
    assert Gain.of([0.6, 0.6, 0.6], resolution=0.2).verdict == "reproduced"


def test_differences_are_paired_by_seed():
    noisy = {0: 1.0, 1: 10.0, 2: 100.0}
    better = {seed: value + 1 + seed / 100 for seed, value in noisy.items()}
    assert paired(better, noisy).verdict == "reproduced"
    assert paired(noisy, better).verdict == "not reproduced"
    # Only what both have; series in any order.
    shuffled = pd.Series(better)[[2, 0, 1]]
    gain = paired(shuffled, pd.Series({0: 1.0, 2: 100.0, 5: 0.0}))
    assert gain.seeds == 2
    assert gain.mean == pytest.approx(1.01)
    assert paired(better, {}).verdict == "not tested"


def test_being_close_is_a_claim_too():
    assert Gain.of(CLEAR).near(2.0) == "reproduced"
    assert Gain.of(CLEAR).near(1.0) == "within noise"
    assert Gain.of(CLEAR).near(0.5) == "not reproduced"
    assert Gain.of(CLEAR[:1]).near(2.0) == "within noise"
    assert Gain.of([]).near(2.0) == "not tested"


def test_an_order_is_as_strong_as_its_weakest_step():
    assert chain(["reproduced", "reproduced"]) == "reproduced"
    assert chain(["reproduced", "within noise"]) == "within noise"
    assert chain(["within noise", "not reproduced", "reproduced"]) == "not reproduced"
    assert chain(["reproduced", "not tested"]) == "not tested"
    assert chain([]) == "not tested"


def test_partly_is_for_claims_of_several_parts():
    assert combined(["reproduced", "reproduced"]) == "reproduced"
    assert combined(["reproduced", "not reproduced"]) == "partly"
    assert combined(["reproduced", "within noise"]) == "partly"
    assert combined(["within noise", "within noise"]) == "within noise"
    assert combined(["within noise", "not reproduced"]) == "not reproduced"
    assert combined(["partly", "not reproduced"]) == "partly"
    # A method left out: whatever the others say.
    assert combined(["reproduced", "not tested"]) == "not tested"
    assert combined([]) == "not tested"


def test_words_say_how_much_and_how_sure():
    assert Gain.of(CLEAR).words("points") == "+1.00 ± 0.25 points"
    assert Gain.of([0.0, 1.0, 2.0]).words() == "+1.0 ± 2.5, within noise"
    assert Gain.of([1.0]).words() == "+1.00 (1 seed)"
    assert Gain.of([]).words() == "not run"


def test_the_rule_names_every_verdict():
    # "partly" is written "partly reproduced" there.
    assert all(verdict in RULE for verdict in VERDICTS)
    with pytest.raises(ValueError, match="verdict must be one of"):
        Claim("C1", "a", "b", "maybe", "c")


@dataclasses.dataclass(frozen=True)
class Ours(Method):
    w: int | None = option("w = {}")
    decay: float | None = option("u = {:g}", usual=1.0)
    held: bool | None = option("leader held", usual=False)


def test_a_method_is_its_kind_and_its_values():
    method = Ours("OAGD", 10, 1.0, False)
    assert method.label() == "OAGD, w = 10"
    assert method.full_label() == "OAGD, w = 10, decay = 1.0, held = False"
    assert Ours("OAGD", 10, 0.9, True).label() == "OAGD, w = 10, u = 0.9, leader held"
    assert method == Ours("OAGD", 10, 1.0, False) != Ours("OAGD", 5, 1.0, False)
    assert len({method, Ours("OAGD", 10, 1.0, False)}) == 1
    assert method.columns() == {
        "method": "OAGD, w = 10", "kind": "OAGD", "w": 10, "decay": 1.0, "held": False,
    }  # fmt: skip
    assert Ours("OGD").label() == Ours("OGD").full_label() == "OGD"


# --- no verdict beyond the evidence ---------------------------------------------------------------


def careless(kinds, windows=()):
    """An experiment that calls its claim reproduced, whatever was run."""
    claim = Claim("C", "it is best", "all is well", "reproduced", "made up", kinds, windows)
    about = {"name": "x", "question": "", "summary": "", "data": ""}
    return Experiment(
        **about,
        presets={},
        columns={},
        parts=lambda config: {},
        make_findings=lambda config, table: Findings([], [claim], [], [], []),
        headline=lambda table: "",
    )


@pytest.mark.parametrize(
    ("about", "windows", "ran", "ran_windows", "missing"),
    [
        (["OAGD", "AutoBalance"], [], ["OAGD", "AutoBalance"], [5], []),
        (["OAGD", "AutoBalance"], [], ["OAGD", "OGD"], [5], ["AutoBalance"]),
        (["OGD", "OAGD", "AutoBalance"], [], ["OGD", "OAGD"], [5], ["AutoBalance"]),
        (["OAGD"], [5, 10], ["OAGD"], [5, 10], []),
        (["OAGD"], [5, 10], ["OAGD"], [5], ["w = 10"]),
        # Part of another name is not a name.
        (["ANIL", "ITD-BiO"], [], ["ANIL", "OAGD"], [1], ["ITD-BiO"]),
        (["ZO-SOGD"], [], ["SOGD"], [1], ["ZO-SOGD"]),
        (["ZO-SOGD"], [], ["ZO-SOGD"], [1], []),
        ([], [], ["OAGD"], [1], []),
    ],
)
def test_no_experiment_can_judge_what_it_did_not_run(about, windows, ran, ran_windows, missing):
    rows = [{"kind": kind, "w": w} for kind in ran for w in ran_windows]
    (claim,) = careless(about, windows).findings(None, pd.DataFrame(rows)).claims
    assert claim.verdict == ("not tested" if missing else "reproduced")
    assert all(name in claim.measured for name in missing)


def test_a_guard_with_another_spelling_is_noticed(monkeypatch):
    """A mutant of the table's kinds: the guard of version 0.2 looked for ZOSOGD and saw nothing."""
    ran = pd.DataFrame([{"kind": "ZO-SOGD", "w": None}])
    assert careless(["ZO-SOGD"]).findings(None, ran).claims[0].verdict == "reproduced"
    misspelt = ran.assign(kind=ran.kind.str.replace("-", ""))
    assert careless(["ZO-SOGD"]).findings(None, misspelt).claims[0].verdict == "not tested"
    # Every kind of method is written in one way: in tables, in claims and in the colours.
    kinds = {kind for name in lab.EXPERIMENTS for kind in kinds_of_claims(name)}
    assert kinds and kinds <= set(KINDS)


def kinds_of_claims(name):
    """The kinds that the claims of an experiment's report.toml are about."""
    package = importlib.import_module(lab.EXPERIMENTS[name])
    texts = Texts(package.__file__).templates.get("claims", {})
    return {kind for claim in texts.values() for kind in claim["kinds"] if "{" not in kind}


def test_a_table_of_before_is_refused_in_words():
    """One that lacks a column which the experiment has since; not one that has them all."""
    now = dataclasses.replace(careless(["OAGD"]), columns={"replay": int, "w": int})
    with pytest.raises(lab.UserError, match=r"older version of x: it lacks replay\. Run it again"):
        now.findings(None, pd.DataFrame([{"kind": "OAGD", "w": 1}]))
    whole = pd.DataFrame([{"kind": "OAGD", "w": 1, "replay": 0}])
    assert now.findings(None, whole).claims[0].verdict == "reproduced"


def kinds_of(config):
    """The kinds of method that a configuration runs."""
    if hasattr(config, "runs"):
        return {method.kind for method in config.runs().values()}
    if hasattr(config, "problems"):
        return {METHODS[name] for name in config.methods}
    return {"OGD", "OAGD", "offline", "comparators"}


def test_every_kind_of_method_has_its_own_colour():
    """So that a new kind is noticed, and is called the same everywhere."""
    every = [config for name in lab.EXPERIMENTS for config in lab.find(name).presets.values()]
    assert set().union(*map(kinds_of, every)) == set(KINDS)


def test_methods_of_the_comparison_are_called_by_their_kinds():
    for name, kind in METHODS.items():
        assert name.split()[0] == kind


def test_kinds_are_read_from_words_as_wholes():
    """The instrument of the tests that every claim names what it is about."""
    assert kinds_in("runtime OGD < OAGD < AutoBalance") == {"OGD", "OAGD", "AutoBalance"}
    assert kinds_in("ZO-SOGD needs no gradient") == {"ZO-SOGD"}
    assert kinds_in("better than ANIL and ITD-BiO") == {"ANIL", "ITD-BiO"}
    assert kinds_in("the larger w, the better") == set()
