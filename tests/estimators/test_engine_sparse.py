"""The mathematics of sparse models, against what they say they solve and finite differences."""

import numpy as np
import pytest

from obax._support import native

FEATURES = 6
ALL = ("penalty", "inertia", "memory", "class_weights", "logit_shifts")
CASES = {"sigmoid": ("logistic", 2), "softmax": ("logistic", 4), "squared": ("squared", 0)}
CASES |= {"huber": ("huber", 0)}
HOLD = {"step_size": 1e-300, "fading": 1.0, "scale_memory": 1e9, "delta": 0.5, "share": 0.0}
"""A leader that stands still and forgets nothing; delta 0.5; no share."""
SEEN, COUNT, MEAN, VARIANCE, OWN = 1, 2, 3, 4, 5
"""Statistics in a cell, and where the members' numbers begin."""


class Sparse:
    """A sparse model and the numbers of its members."""

    def __init__(self, name, frozen=(), rates=(), starts=(1.0, 1.0, 1.0)):
        self.loss, self.classes = CASES[name]
        self.learned = list(ALL if self.classes else ALL[:3])
        spec = native.loaded().Spec(
            loss=self.loss, learned=self.learned, frozen=list(frozen), rates=list(rates),
            starts=starts, **HOLD,
        )  # fmt: skip
        self.model = native.loaded().Model(spec)
        self.model.grow(list(range(FEATURES)), list(range(self.classes)), sparse=True)
        self.spec, state = self.model.spec, self.model.state()
        self.entries, self.outputs = len(state["tuned.mean"]), self.spec.outputs
        self.start = self.as_they_are(state)

    def as_they_are(self, state):
        """Statistics that leave values and targets as they are."""
        cells, moments = state["cells"].copy(), np.zeros_like(state["moments"])
        cells[:, :OWN] = [0.0, 1e9, 0.0, 0.0, 1.0]
        moments[:, 2] = 1.0
        return state | {"cells": cells, "moments": moments}

    def restore(self, state):
        names, labels = list(range(FEATURES)), list(range(self.classes))
        return native.loaded().Model.restore(self.spec, names, labels, state)

    def play(self, state, row, target):
        """Learn one row, a list of (feature, value); the state after it and the loss before."""
        model = self.restore(self.as_they_are(state))
        index, values = (np.array(part) for part in zip(*row, strict=True))
        status, loss, *_ = model.play_sparse(
            np.array([0, len(row)]), index.astype(np.int64), values, np.array([target]), np.ones(1)
        )
        assert status[0] == native.loaded().LEARNED
        return model.state(), loss[0]

    def columns(self, member):
        """Where in a cell the curvature and the weights of a member stand."""
        at = OWN
        for i in range(member):
            n = self.entries if i == 0 else 0
            at += 1 + n + self.outputs + n * self.outputs
        first = at + 1 + (self.entries if member == 0 else 0)
        return at, slice(first, first + self.outputs)


def draw(name, **members):
    """A model, a state drawn at random, and a row."""
    sparse = Sparse(name, **members)
    rng, state = np.random.default_rng(0), sparse.start
    cells = state["cells"].copy()
    cells[:, OWN:] = 0.1 * rng.standard_normal((FEATURES + 1, cells.shape[1] - OWN))
    for member in range(len(sparse.spec.members)):
        curvature, weights = sparse.columns(member)
        cells[:, curvature] = rng.uniform(0.1, 2.0, FEATURES + 1)
        cells[:, weights] = rng.standard_normal((FEATURES + 1, sparse.outputs))
    x = 0.5 * rng.standard_normal(len(state["tuned.x"]))
    x[2] = abs(x[2])  # A memory is no less than a row.
    row = [(4, 0.8), (0, -1.1), (2, 0.3)]
    target = {"sigmoid": 1.0, "softmax": 2.0, "squared": 0.7, "huber": 3.0}[name]
    return sparse, state | {"cells": cells, "tuned.x": x}, row, target


def pull_of(name, z, target, x, slots):
    """-d loss / dz of training, with the class weight."""
    if name in ("squared", "huber"):
        error = target - z
        return np.clip(error, -0.5, 0.5) if name == "huber" else error
    weight, shift = np.exp(x[3 + int(target)]), x[3 + slots :]
    if name == "sigmoid":
        return weight * (target - 1 / (1 + np.exp(-(z + shift[1] - shift[0]))))
    e = np.exp(z + shift)
    return weight * (np.eye(slots)[int(target)] - e / e.sum())


@pytest.mark.parametrize("name", CASES)
def test_sparse_members_minimise_their_objectives(name):
    """The slope of g_t in the weights of every key that is there, by curvature and by the root; the
    past that the row has left; nothing of any other key."""
    members = {"frozen": [("start", 0.1, 5.0, 0.4)], "rates": [("sgd 0.3", 0.3)]}
    sparse, before, row, target = draw(name, **members)
    after, _ = sparse.play(before, row, target)
    keys, a = [0, *(i + 1 for i, _ in row)], np.array([1.0, *(value for _, value in row)])
    old, new, slots = before["cells"], after["cells"], sparse.spec.slots
    x_of = [before["tuned.x"], np.zeros(3 + 2 * slots), np.zeros(3 + 2 * slots)]
    x_of[1][:3] = np.log([0.1, 0.4, 5.0])
    for i, x in enumerate(x_of[:2]):
        penalty, inertia, memory = np.exp(x[:3])
        curvature, weights = sparse.columns(i)
        past = memory / (1 + memory) * old[keys, curvature]
        stiff = inertia + past
        ridge = np.where(np.array(keys) > 0, penalty, 0.0)
        y = new[keys, weights]
        pull = pull_of(name, a @ y, target, x, slots)
        slope = stiff[:, None] * (y - old[keys, weights]) + ridge[:, None] * y - a[:, None] * pull
        np.testing.assert_allclose(slope, 0, atol=1e-11)
        if name in ("squared", "huber"):
            lift = new[keys, curvature] - past
            inside = name == "squared" or abs(target - (a @ y)[0]) < HOLD["delta"]
            np.testing.assert_allclose(lift, a**2 * inside, atol=1e-12)
    curvature, weights = sparse.columns(2)
    assert np.all(new[keys, curvature] >= 0)
    assert not np.array_equal(new[keys, weights], old[keys, weights])
    untouched = [i for i in range(FEATURES + 1) if i not in keys]
    np.testing.assert_array_equal(new[untouched, OWN:], old[untouched, OWN:])


def stream(name, rows=25):
    """Rows with keys of their own, values that stand as they are."""
    classes = CASES[name][1]
    rng = np.random.default_rng(2)
    keys = [rng.permutation(FEATURES)[: rng.integers(2, FEATURES)] for _ in range(rows)]
    values = [[(int(i), rng.standard_normal()) for i in some] for some in keys]
    if classes:
        return values, rng.integers(0, classes, rows).astype(float)
    return values, 2 * rng.standard_normal(rows)


def slopes_of(name, spoil=lambda sparse, cells: None):
    """The leader's slopes in each round, and the same by finite differences of the loss of the
    round in x, the same in all rounds before. `spoil` may change the state between rounds."""
    sparse = Sparse(name, starts=(0.1, 8.0, 0.5))
    rows, targets = stream(name)

    def one_by_one(shift):
        state, found, lost = sparse.start, [], []
        state = state | {"tuned.x": state["tuned.x"] + shift}
        for row, target in zip(rows, targets, strict=True):
            before = state["tuned.mean"]
            state, loss = sparse.play(state, row, target)
            found.append((state["tuned.mean"] - 0.9 * before) / 0.1)
            lost.append(loss)
            state["cells"] = state["cells"].copy()
            spoil(sparse, state["cells"])
        return np.array(found), np.array(lost)

    eps, width = 1e-5, len(sparse.start["tuned.x"])
    shifts = eps * np.eye(width)
    numeric = [(one_by_one(s)[1] - one_by_one(-s)[1]) / (2 * eps) for s in shifts]
    return one_by_one(np.zeros(width))[0], np.stack(numeric, axis=1)


@pytest.mark.parametrize("name", CASES)
def test_sparse_hypergradient_against_finite_differences(name):
    """Through weights, curvature and what the curvature owes to the weights."""
    slopes, numeric = slopes_of(name)
    np.testing.assert_allclose(slopes, numeric, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("part", ["sensitivity", "curvature_slope"])
def test_finite_differences_notice_a_missing_term(part):
    """Mutants: weights, or a curvature, that are taken not to depend on x."""

    def spoil(sparse, cells):
        n, k = sparse.entries, sparse.outputs
        begin = OWN + 1 if part == "curvature_slope" else OWN + 1 + n + k
        cells[:, begin : begin + (n if part == "curvature_slope" else n * k)] = 0.0

    slopes, numeric = slopes_of("sigmoid", spoil)
    assert np.abs(slopes - numeric).max() > 0.05 * np.abs(numeric).max()


@pytest.mark.parametrize("name", CASES)
def test_row_that_would_give_nan_changes_nothing(name):
    """A mutant state: a sensitivity so large that the next one overflows."""
    sparse, state, row, target = draw(name)
    cells = state["cells"].copy()
    cells[0, OWN + 1 + sparse.entries + sparse.outputs] = 1e308
    model = sparse.restore(state | {"cells": cells})
    before = model.state()
    index, values = (np.array(part) for part in zip(*row, strict=True))
    begins = np.array([0, len(row)])
    status, *_ = model.play_sparse(
        begins, index.astype(np.int64), values, np.array([target]), np.ones(1)
    )
    assert status[0] == native.loaded().REJECTED
    after = model.state()
    assert after.pop("given") == 1 + before.pop("given")
    for part, numbers in after.items():
        np.testing.assert_array_equal(numbers, before[part], err_msg=part)
