"""Intervals and sets: that they hold what was asked, and that the check of it would notice."""

import copy
import itertools
import math

import numpy as np
import pytest

import obax
from obax._support import native
from obax.estimators import StreamingClassifier, StreamingRegressor

WINDOW, POINTS = 2000, 0.02
ROWS, GAMMA, SCALE_ROWS = 500, 0.03, 100


class Scores:
    """What the engine says it does, in NumPy: the scores of the last rows and one level."""

    def __init__(self, coverage, numbers=True):
        self.coverage, self.level, self.numbers = coverage, 1 - coverage, numbers
        self.scores, self.scale, self.count = [], 0.0, 0

    @property
    def reach(self):
        if not self.scores:
            return math.inf
        ordered = np.sort(self.scores)
        rank = math.ceil((len(ordered) + 1) * (1 - self.level))
        if rank <= 0:
            return 0.0 if self.numbers else -1.0
        if rank <= len(ordered):
            return ordered[rank - 1] * self.scale
        if not self.numbers:
            return 1.0
        return ordered[-1] * self.scale * 2 ** max(0.0, -self.level / GAMMA)

    def add(self, error):
        missed = float(error > self.reach)
        self.level = min(self.level - GAMMA * (missed - (1 - self.coverage)), 1 + GAMMA)
        if not self.numbers:
            self.scale = 1.0
        elif self.scale == 0:
            self.scale = error
        score = min(error / self.scale, 1e12) if self.scale > 0 else 0.0
        self.scores = [*self.scores, score][-ROWS:]
        if self.numbers:
            self.count = min(self.count + 1, SCALE_ROWS)
            self.scale += (error - self.scale) / self.count


@pytest.mark.parametrize("coverage", [0.5, 0.9])
def test_conformal_scores_equal_the_reference(coverage):
    X, y = drifting(1500)
    model, scores = StreamingRegressor(), Scores(coverage)
    played = model.play(X, y, coverage=coverage)
    reach = np.diff(played.intervals, axis=1)[:, 0] / 2
    for i, said in enumerate(played.predictions):
        assert reach[i] == pytest.approx(scores.reach, rel=1e-6, abs=1e-9)
        scores.add(abs(y[i] - said))
    X, y = labels(1500)
    model = StreamingClassifier()
    model.prepare().model_.add_classes([0, 1, 2])
    model.model_.reach(coverage)
    scores = Scores(coverage, numbers=False)
    for row, label in zip(X.tolist(), y.tolist(), strict=True):
        row = dict(enumerate(row))
        assert model.model_.reach(coverage) == pytest.approx(scores.reach, rel=1e-9)
        scores.add(1 - model.predict_proba_one(row)[label])
        model.learn_one(row, label)


def worst(covered, coverage, window=WINDOW):
    """How far the coverage of any `window` rows in a stretch is from what was asked."""
    sums = np.concatenate([[0], np.cumsum(covered)])
    window = min(window, len(covered))
    return float(np.abs((sums[window:] - sums[:-window]) / window - coverage).max())


def drifting(rows=5000, seed=0):
    """Numbers whose noise grows, whose slopes turn and whose level jumps."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, 3))
    t = np.arange(rows) / rows
    slopes = np.stack([np.cos(6 * t), np.sin(6 * t), 0 * t], axis=1)
    noise = rng.standard_normal(rows) * (0.2 + 3 * (t > 0.6))
    return X, (X * slopes).sum(axis=1) + 50 * (t > 0.8) + noise


def labels(rows=5000, seed=0):
    """Three classes whose boundaries jump, twice."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, 3))
    angle = 2.0 * (np.arange(rows) * 3 // rows)
    z = X[:, 0] * np.cos(angle) + X[:, 1] * np.sin(angle) + 0.5 * rng.standard_normal(rows)
    return X, np.digitize(z, [-0.5, 0.5])


def errors_of_a_drift(rows=6000, seed=0):
    """Of predictions that get worse bit by bit and then better at once."""
    rng = np.random.default_rng(seed)
    return np.abs(rng.standard_normal(rows)) * np.where(
        np.arange(rows) < 4000, np.exp(np.arange(rows) / 1000), 1.0
    )


def inside(scores, errors):
    """Which errors were within reach, each before it was observed."""
    found = []
    for error in errors:
        found.append(error <= scores.reach)
        scores.add(error)
    return np.array(found)


@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.99])
def test_interval_coverage_under_drift(coverage):
    X, y = drifting()
    model = StreamingRegressor()
    low, high = model.progressive_interval(X, y, coverage).T
    covered = (low <= y) & (y <= high)
    assert worst(covered, coverage) < POINTS
    assert np.isinf(low[0]) and np.isfinite(low[1:]).all()
    assert model.coverage_ == {coverage: pytest.approx(covered.mean(), abs=1e-12)}
    # As wide as it must be: of residuals that are three times as wide after row 3,000.
    assert np.median((high - low)[3500:4000]) > 3 * np.median((high - low)[1000:2500])


@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.99])
def test_set_coverage_under_drift(coverage):
    X, y = labels()
    model = StreamingClassifier()
    found = model.progressive_set(X, y, coverage)
    covered = np.array([label in one for one, label in zip(found, y, strict=True)])
    assert worst(covered, coverage) < POINTS
    # The first row of each class cannot be covered; the engine has it know the class.
    assert model.coverage_[coverage] == pytest.approx(covered.mean(), abs=4 / len(y))
    assert {label for one in found for label in one} <= {0, 1, 2}


def test_coverage_after_a_jump_and_sets_of_a_certain_class():
    """Where nothing is ever wrong, a share of 1 - coverage of the sets is empty."""
    X = np.random.default_rng(0).standard_normal((4000, 1))
    y = X[:, 0] > 0
    found = StreamingClassifier(members="tuned").progressive_set(3 * np.sign(X), y, 0.9)
    covered = np.array([label in one for one, label in zip(found, y, strict=True)])
    assert worst(covered, 0.9) < POINTS and any(not one for one in found[2000:])


def test_exact_predictions_are_covered():
    scores = Scores(0.5)
    assert inside(scores, np.zeros(3000)).all()
    rng = np.random.default_rng(0)
    after = inside(scores, np.abs(rng.standard_normal(3000)))
    assert worst(after, 0.5) < POINTS and np.isfinite(scores.scores).all()


class WithoutFeedback(Scores):
    """A mutant: the level stays where it is."""

    def add(self, error):
        level = self.level
        super().add(error)
        self.level = level


class WithTheWrongSign(Scores):
    """A mutant: misses narrow the next interval."""

    def add(self, error):
        level = self.level
        super().add(error)
        self.level = float(np.clip(2 * level - self.level, -1, 2))


class WithLearnedRows(Scores):
    """A mutant: scores of the row after it was learned, which is nearer by then."""

    def add(self, error):
        super().add(0.7 * error)


def test_coverage_check_notices_broken_scores():
    errors = errors_of_a_drift()
    assert worst(inside(Scores(0.9), errors), 0.9) < POINTS
    for mutant in (WithoutFeedback, WithTheWrongSign, WithLearnedRows):
        assert worst(inside(mutant(0.9), errors), 0.9) > POINTS, mutant.__name__


@pytest.mark.parametrize("coverage", [0.5, 0.9])
@pytest.mark.parametrize("numbers", [False, True])
def test_coverage_against_an_adversary(numbers, coverage):
    """Who sees the reach, goes beyond it where that can be done, and stays as near as can be in
    between. All that coverage can lose or gain is the way that the level went."""
    scores, least, most = Scores(coverage, numbers), 1e-3, 1e3 if numbers else 1.0
    found, levels = [], []
    for t in range(8000):
        within = scores.reach
        error = min(max(1.1 * within if t // 900 % 2 else 0.9 * within, least), most)
        found.append(error <= within)
        scores.add(error)
        levels.append(scores.level)
    missed = np.cumsum(1.0 - np.array(found)) - (1 - coverage) * np.arange(1, 8001)
    np.testing.assert_allclose(1 - coverage - GAMMA * missed, levels, atol=1e-9)
    beyond = 0.6 if numbers else GAMMA  # Twenty doublings from the least to the most.
    assert -beyond <= min(levels) and max(levels) <= 1 + GAMMA
    assert worst(found, coverage) <= (1 + beyond + GAMMA) / (WINDOW * GAMMA)
    assert worst(found, coverage) < POINTS


def test_single_and_bulk_intervals_agree():
    X, y = drifting(300)
    many = StreamingRegressor()
    expected = many.progressive_interval(X, y, 0.9)
    one = StreamingRegressor()
    rows = [dict(enumerate(row)) for row in X.tolist()]
    for row, target, line in zip(rows, y.tolist(), expected, strict=True):
        np.testing.assert_array_equal(one.predict_interval_one(row), line)
        one.learn_one(row, target)
    assert one.coverage_ == many.coverage_
    frame = many.predict_interval_many(X[:3])
    np.testing.assert_array_equal(frame.iloc[1], one.predict_interval_one(rows[1]))
    assert list(frame.columns) == ["low", "high"]
    X, y = labels(300)
    many, one = StreamingClassifier(), StreamingClassifier()
    for row, target, found in zip(X.tolist(), y.tolist(), many.progressive_set(X, y), strict=True):
        row = dict(enumerate(row))
        assert one.predict_set_one(row) == found
        one.learn_one(row, target)
    assert one.predict_set_many(X[:2]) == [one.predict_set_one(dict(enumerate(r))) for r in X[:2]]


def test_intervals_do_not_change_predictions():
    X, y = drifting(400)
    plain, other, third = (StreamingRegressor() for _ in range(3))
    played = other.play(X, y, coverage=0.9)
    np.testing.assert_array_equal(played.predictions, plain.progressive(X, y))
    assert plain.play(X[:2], y[:2]).intervals is None
    np.testing.assert_array_equal(played.intervals, third.progressive_interval(X, y, 0.9))
    # A coverage that is asked for late starts from the scores that were kept.
    low, high = plain.predict_interval_one(dict(enumerate(X[0])), coverage=0.5)
    width = np.diff(played.intervals[350])[0]
    assert 0.1 * width < high - low < width and math.isnan(plain.coverage_[0.5])


def test_scores_survive_checkpoints_growth_and_copies(tmp_path):
    X, y = labels(600)
    model = StreamingClassifier()
    model.progressive_set(X[:300], np.minimum(y[:300], 1), 0.8)
    before = model.coverage_[0.8]
    obax.save(tmp_path / "model.obax", model)
    back = obax.load(tmp_path / "model.obax", like=StreamingClassifier())
    twin = copy.deepcopy(model)
    for one in (model, back, twin):
        one.learn_one({0: 1.0, 1: 0.0, 2: 0.0, "new": 1.0}, 2)  # A feature and a class more.
        assert one.coverage_[0.8] == pytest.approx(before, abs=0.01)
    assert back.progressive_set(X[300:], y[300:], 0.8) == model.progressive_set(
        X[300:], y[300:], 0.8
    )
    assert back.coverage_ == model.coverage_ and twin.coverage_ != model.coverage_
    assert "0.8 sets held" in model.explain()


@pytest.mark.parametrize("coverage", [0, 1, -0.1, 1.5, math.nan, "0.9", True, None])
def test_invalid_coverage_raises(coverage):
    for call in (
        lambda: StreamingRegressor().predict_interval_one({"a": 1.0}, coverage),
        lambda: StreamingClassifier().predict_set_one({"a": 1.0}, coverage),
    ):
        with pytest.raises(ValueError, match="coverage must be a number between 0 and 1, but got"):
            call()


def test_intervals_before_the_first_row_and_beyond_16_coverages():
    model = StreamingRegressor()
    assert model.predict_interval_one({"a": 1.0}) == (-math.inf, math.inf)
    assert StreamingClassifier().predict_set_one({"a": 1.0}) == set()
    for i in range(native.loaded().MOST_COVERAGES - 1):
        model.predict_interval_one({"a": 1.0}, coverage=0.1 + i / 100)
    with pytest.raises(ValueError, match="one of at most 16"):
        model.predict_interval_one({"a": 1.0}, coverage=0.05)


def river_streams(rows=5000):
    """Bundled with River, and drawn with drift: name, rows, targets, whether these are numbers."""
    from river import datasets
    from river.datasets import synth

    bundled = ("Bananas", "Phishing", "ImageSegments", "Shuttle")
    bundled += ("TrumpApproval", "ChickWeights", "WaterFlow")
    found = {name: getattr(datasets, name)() for name in bundled}
    stagger = [synth.STAGGER(classification_function=i % 3, seed=i).take(1000) for i in range(5)]
    found["STAGGER"] = itertools.chain(*stagger)
    found["SEA"] = itertools.chain(*(synth.SEA(variant=i, seed=i).take(1200) for i in range(4)))
    found["LEDDrift"] = synth.LEDDrift(seed=1, n_drift_features=4).take(rows)
    found["Hyperplane"] = synth.Hyperplane(seed=1, mag_change=0.01).take(rows)
    found["Friedman"] = synth.FriedmanDrift(seed=1, position=(1000, 2000, 3000)).take(rows)
    found["Planes2D"] = synth.Planes2D(seed=1).take(rows)
    for name, stream in found.items():
        X, y = zip(*itertools.islice(stream, rows), strict=True)
        yield name, list(X), list(y), not isinstance(y[0], str | bool) and len(set(y)) > 20


@pytest.mark.slow
@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.95])
def test_coverage_on_the_streams_of_the_benchmark(coverage):
    off = {}
    for name, X, y, numbers in river_streams():
        if numbers:
            low, high = StreamingRegressor().progressive_interval(X, y, coverage).T
            covered = (low <= y) & (y <= high)
        else:
            found = StreamingClassifier().progressive_set(X, y, coverage)
            covered = np.array([label in one for one, label in zip(found, y, strict=True)])
        off[name] = worst(covered, coverage)
    assert max(off.values()) < POINTS and len(off) == 13, off
