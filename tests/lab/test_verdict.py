"""One rule for every claim, and mutants of what it watches."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from obax import lab
from obax.lab.kit.experiment import Experiment
from obax.lab.kit.method import Method, option
from obax.lab.kit.verdict import (
    METHODS,
    RULE,
    VERDICTS,
    Gain,
    chain,
    combined,
    interval,
    not_run,
    paired,
)
from obax.lab.report import Claim, Findings

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
    assert method.full() == "OAGD, w = 10, decay = 1.0, held = False"
    assert Ours("OAGD", 10, 0.9, True).label() == "OAGD, w = 10, u = 0.9, leader held"
    assert method == Ours("OAGD", 10, 1.0, False) != Ours("OAGD", 5, 1.0, False)
    assert len({method, Ours("OAGD", 10, 1.0, False)}) == 1
    assert method.columns() == {
        "method": "OAGD, w = 10", "kind": "OAGD", "w": 10, "decay": 1.0, "held": False,
    }  # fmt: skip
    assert Ours("OGD").label() == Ours("OGD").full() == "OGD"


# --- no verdict beyond the evidence ---------------------------------------------------------------


def careless(claimed):
    """An experiment that calls its claim reproduced, whatever was run."""
    claim = Claim("C", claimed, "all is well", "reproduced", "made up")
    found = Findings([], [claim], [], [], [])
    about = {"name": "x", "question": "", "summary": "", "data": ""}
    empty = {"presets": {}, "durations": {}, "columns": {}}
    return Experiment(
        **about, **empty, parts=lambda c: [], findings=lambda c, t: found, headline=lambda t: ""
    )


@pytest.mark.parametrize(
    ("claimed", "kinds", "windows", "verdict"),
    [
        ("OAGD overtakes AutoBalance", ["OAGD", "AutoBalance"], [5], "reproduced"),
        ("OAGD overtakes AutoBalance", ["OAGD", "OGD"], [5], "not tested"),
        ("runtime OGD < OAGD < AutoBalance", ["OGD", "OAGD"], [5], "not tested"),
        ("OAGD with w = 5 and with w = 10 is best", ["OAGD"], [5, 10], "reproduced"),
        ("OAGD with w = 5 and with w = 10 is best", ["OAGD"], [5], "not tested"),
        # A part of another name is no name.
        ("OAGD is best", ["OAGD"], [1], "reproduced"),
        ("better than ANIL and ITD-BiO", ["ANIL", "OAGD"], [1], "not tested"),
        ("the larger w, the better", ["OAGD"], [1], "reproduced"),
    ],
)
def test_no_experiment_can_judge_what_it_did_not_run(claimed, kinds, windows, verdict):
    rows = [{"kind": kind, "w": w} for kind in kinds for w in windows]
    (claim,) = careless(claimed).findings(None, pd.DataFrame(rows)).claims
    assert claim.verdict == verdict
    missing = not_run(claimed, kinds, windows)
    assert bool(missing) == (verdict == "not tested")
    assert all(name in claim.measured for name in missing)


def test_a_table_of_before_is_refused_in_words():
    """One that lacks a column which the experiment has since; not one that has them all."""
    now = dataclasses.replace(careless("OAGD is best"), columns={"replay": int, "w": int})
    with pytest.raises(lab.UserError, match=r"older version of x: it lacks replay\. Run it again"):
        now.findings(None, pd.DataFrame([{"kind": "OAGD", "w": 1}]))
    whole = pd.DataFrame([{"kind": "OAGD", "w": 1, "replay": 0}])
    assert now.findings(None, whole).claims[0].verdict == "reproduced"


def test_every_method_that_an_experiment_runs_may_be_named():
    """A new kind that the list does not have would be judged without having run."""
    kinds = {
        method.kind
        for experiment in lab.EXPERIMENTS.values()
        for preset in experiment.presets.values()
        if hasattr(preset, "runs")
        for method in preset.runs().values()
    }
    assert {"OAGD", "AutoBalance", "ANIL"} <= kinds <= set(METHODS)
