"""The streaming models keep their bounds; each fault in them, or in the bounds, is noticed by the
claims that it breaks."""

import itertools
import json
import math

import numpy as np
import pytest

from obax import certify, theory
from obax.certify import AssumptionError, check_arguments, mutants
from obax.certify.streaming import experts, ridge, settings, streams
from obax.certify.streaming.watch import watch
from obax.estimators import StreamingClassifier, StreamingRegressor

# Claims that must fail, among others: the bound itself wherever the learner that it describes
# could not have had so large a loss.
NOTICED = {
    "no discount": {"the update", "(row)", "bound", "growth"},
    "memory x 10": {"the update", "(row)", "bound"},
    "memory / 5": {"the update", "(row)", "bound"},
    "no ridge": {"the update", "(row)"},
    "inertia x 10": {"the update", "(row)"},
    "another loss": {"the update"},
    "predictions halved": set(),
    "equal shares": set(),
    "no path": {"bound"},
    "no volume": {"bound"},
    "wrong sign": {"shares renewed", "posterior", "bound"},
    "best member dropped": {"posterior", "bound"},
    "never renewed": {"shares renewed", "posterior", "bound"},
    "rate 1/2": {"shares renewed", "posterior", "bound"},
    "no share": {"shares renewed", "posterior"},
    "share x 100": {"shares renewed", "posterior", "bound"},
    "bound / 10": {"bound"},
}
# A regressor's prediction has a check of its own; a classifier's log loss is that of what it
# predicts.
PREDICTED = {
    "streaming_ridge": {"mean of the members"},
    "streaming_mixture": {"loss of the mixture", "posterior"},
    "streaming_density": {"mean of the members"},
}
NEAR = {"streaming_ridge": 0.9, "streaming_mixture": 0.99, "streaming_density": 0.99}


# The ridge takes half a minute.
SETTINGS = [
    pytest.param(name, marks=pytest.mark.slow) if name == "streaming_ridge" else name
    for name in settings.STREAMING
]


@pytest.mark.parametrize("setting", SETTINGS)
def test_bounds_hold_and_mutants_are_noticed(setting):
    found = certify.certify([setting], 12, 128, seed=1)
    (row,) = found.rows
    assert found.ok, found.violations
    assert NEAR[setting] < row.ratio_max <= 1.0 + 1e-9
    assert set(row.families) == {family.__name__ for family in settings.FAMILIES[setting]}
    assert all(check["share"] <= 1.0 + 1e-8 for check in row.steps)
    assert row.assumptions and row.checks and not found.game and not found.example
    caught = mutants.play_mutants([setting], seed=1)
    assert len(caught) >= 7
    for one in caught:
        assert NOTICED[one.mutant] <= set(one.claims), one
        if one.mutant in ("predictions halved", "equal shares"):
            assert PREDICTED[setting] <= set(one.claims), one


@pytest.mark.slow
def test_they_hold_for_other_seeds():
    for seed in range(2, 8):
        found = certify.certify(["streaming"], 36, 256, seed)
        assert found.ok, found.violations


# --- records of a run -----------------------------------------------------------------------------


def test_the_rule_is_known_in_the_units_of_the_model():
    """What the comparator says of a standardised row is what the rule says of the row."""
    stream = streams.draw_rule("streaming_ridge", 3, 40, seed=2)
    seen = watch(stream)
    found = ridge.standardise(stream, seen)
    said = np.sum(found.rule * found.rows, axis=1) * np.sqrt(seen.target_variance)
    expected = np.sum(stream.weights[:, :-1] * stream.rows, axis=1) + stream.weights[:, -1]
    settled = slice(streams.SETTLING, None)
    np.testing.assert_allclose((said + seen.target_average)[settled], expected[settled], rtol=1e-9)


def test_a_stream_that_is_cut_off_is_not_certified(monkeypatch):
    """A glitch after the warm-up: the model does not learn it, the theorem does not cover it."""
    honest = streams.draw_rule

    def with_glitch(*arguments):
        stream = honest(*arguments)
        stream.targets[streams.WARM_UP + 5] += 1e9
        return stream

    monkeypatch.setattr(streams, "draw_rule", with_glitch)
    with pytest.raises(AssumptionError, match=r"nothing cut off fails in round 262") as error:
        settings.outcome("streaming_ridge", 0, 64, seed=0)
    assert error.value.assumption == "nothing cut off"


def test_a_comparator_that_is_not_the_rule_is_not_certified(monkeypatch):
    standardise = ridge.standardise

    def moved(*arguments):
        found = standardise(*arguments)
        return found._replace(rule=found.rule + 1e-3)

    monkeypatch.setattr(ridge, "standardise", moved)
    with pytest.raises(AssumptionError, match="known comparator fails"):
        settings.outcome("streaming_ridge", 0, 64, seed=0)


def test_each_step_of_the_ridge_is_noticed_when_it_is_wrong():
    """Weights, or a member's predictions, off by a millionth in one row."""
    stream = streams.draw_rule("streaming_ridge", 4, 64, seed=0)
    seen = watch(stream)
    assert all(check.holds for check in ridge.outcome(stream, seen).steps)
    predictions = seen.by_member.copy()
    predictions[streams.WARM_UP + 9] += 1e-5
    weights = seen.weights.copy()
    weights[streams.WARM_UP + 9] += 1e-5
    for wrong, claims in (
        (seen._replace(by_member=predictions), {"prediction", "(row)"}),
        (seen._replace(weights=weights), {"the update"}),
        (seen._replace(by_member=np.full_like(predictions, np.nan)), {"prediction", "(row)"}),
    ):
        found = ridge.outcome(stream, wrong)
        assert claims <= {check.assumption for check in found.steps if not check.holds}
    assert (
        ridge.outcome(stream, seen._replace(by_member=predictions * np.nan)).exceeds(np.ones(64))
        == 1
    )


@pytest.mark.parametrize("setting", settings.STREAMING)
def test_the_public_predictions_are_watched(setting, monkeypatch):
    """What `predict_one` and `predict_proba_one` return, not what the kernel noted."""
    honest = StreamingRegressor.predict_one, StreamingClassifier.predict_proba_one

    def halved(model, row):
        return 0.5 * honest[0](model, row)

    def halved_probabilities(model, row):
        return {label: 0.5 * p for label, p in honest[1](model, row).items()}

    assert all(check.holds for check in settings.outcome(setting, 0, 32, seed=0).steps)
    monkeypatch.setattr(StreamingRegressor, "predict_one", halved)
    monkeypatch.setattr(StreamingClassifier, "predict_proba_one", halved_probabilities)
    found = settings.outcome(setting, 0, 32, seed=0)
    failed = {check.assumption for check in found.steps if not check.holds}
    assert PREDICTED[setting] <= failed


def test_a_member_that_sat_out_is_not_certified():
    stream = streams.draw_labels("streaming_mixture", 0, 32, seed=0)
    seen = watch(stream)
    seen.played[7] = 0.0
    found = experts.outcome(stream, seen, experts.of_classes(stream, seen))
    assert [check.assumption for check in found.checks if not check.holds] == [
        "rows learned by all"
    ]


# --- sequences of members -------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_evidence_and_best_sequences_by_going_through_all(share):
    rng = np.random.default_rng(0)
    p = rng.uniform(0.05, 0.95, size=(5, 3))
    evidence = 0.0
    best = dict.fromkeys(range(5), math.inf)
    for sequence in itertools.product(range(3), repeat=5):
        prior, switches = 1 / 3, 0
        for one, two in itertools.pairwise(sequence):
            prior *= share / 3 + (1 - share) * (one == two)
            switches += one != two
        given = np.prod(p[range(5), sequence])
        evidence += prior * given
        best[switches] = min(best[switches], -math.log(given))
    assert experts.evidence(p, share)[-1] == pytest.approx(-math.log(evidence), rel=1e-12)
    least = np.minimum.accumulate(list(best.values()))
    np.testing.assert_allclose(experts.best_with_switches(-np.log(p), 4)[:, -1], least, rtol=1e-12)


def test_a_mixture_replayed_without_a_mutant_is_the_kernels():
    for number in range(4, 8):
        stream = streams.draw_labels("streaming_mixture", number, 64, seed=3)
        mixed = experts.of_classes(stream, watch(stream))
        for mine, theirs in zip(experts.replayed(mixed, stream.share, ""), mixed, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-7, atol=1e-12)


# --- the command line -----------------------------------------------------------------------------


SMALL = ("--setting", "streaming", "--problems", 6, "--horizon", 64)


def test_the_command_answers_first(certify_command, tmp_path, monkeypatch):
    code, out, err = certify_command(*SMALL, "--out", tmp_path / "there")
    # Away from a terminal there are lines on the progress.
    assert code == 0 and all(line.startswith("obax: certify: ") for line in err.splitlines())
    assert out.startswith("Every bound held: on 18 problems no regret was above it in any round")
    assert "Not certified: logistic members by themselves" in " ".join(out.split())
    assert "Lower-bound game" not in out
    stored = json.loads((tmp_path / "there" / "certify.json").read_text())
    assert [row["setting"] for row in stored["rows"]] == list(settings.STREAMING)
    assert stored["rows"][0]["printed_violations"] is None
    assert (tmp_path / "there" / "certify.png").stat().st_size > 1000

    def false_bound(self, **terms):
        return 0.01 * sum(np.asarray(term) for term in terms.values())

    monkeypatch.setattr(theory.DiscountedRidge, "bound", false_bound)
    code, out, err = certify_command("--setting", "streaming_ridge", *SMALL[2:])
    assert code == 1
    assert out.startswith("Not every bound held: ")
    assert "streaming_ridge, family turning, problem 0, seed 0: the regret" in err


def test_settings_are_known_by_their_common_name():
    assert check_arguments(["streaming"], 1, 8) == settings.STREAMING
    both = ["streaming_density", "convex_static"]
    assert check_arguments(both, 1, 8) == ("convex_static", "streaming_density")
    assert check_arguments(None, 1, 8)[-3:] == settings.STREAMING
    with pytest.raises(ValueError, match=r"unknown setting 'streeming'\. Did you mean 'streaming'"):
        check_arguments(["streeming"], 1, 8)


def test_one_stream_does_not_depend_on_the_others():
    for draw in (streams.draw_rule, streams.draw_labels):
        one, again, other = (draw("streaming", 2, 16, seed) for seed in (1, 1, 2))
        np.testing.assert_array_equal(one.targets, again.targets)
        assert not np.array_equal(one.rows, other.rows) or not np.array_equal(
            one.targets, other.targets
        )
