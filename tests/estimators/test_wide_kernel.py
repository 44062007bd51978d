"""The mathematics of the wide engine, against what it says it solves and finite differences."""

import numpy as np
import pytest

from obax.estimators.history import Record
from obax.estimators.kernel import ACCEPTED, LOSS, OUTCOME, REJECTED, SAID, Plan
from obax.estimators.kernel.wide_entry import wide_kernel
from obax.estimators.kernel.wide_growth import enough, fit_square
from obax.estimators.kernel.wide_layout import (
    AVERAGE,
    CELL_AT,
    FIRST,
    MEMBER,
    OWN,
    PER_MEMBER,
    ROOT,
    SEEN,
    VARIANCE,
    WidePlan,
)
from obax.estimators.kernel.wide_scale import scaled

FEATURES = 6
ALL = ("penalty", "inertia", "memory", "class_weights", "logit_shifts")
CASES = {"sigmoid": ("logistic", 2), "softmax": ("logistic", 4), "squared": ("squared", 0)}
CASES |= {"huber": ("huber", 0)}
HOLD = (0.0, 1.0, 1e9, 0.5, 0.0)
"""A leader that stands still and forgets nothing; delta 0.5; no share."""
NONE = np.zeros((0, 0))


def play(wide, head, cells, rows, targets, settings=HOLD, square=NONE):
    """Learn rows, lists of (feature, value); the state after them, and what came out."""
    head, cells, size = head.copy(), cells.copy(), SAID + max(1, wide.plan.slots)
    out = np.zeros((len(rows), size))
    begins = np.cumsum([0, *map(len, rows)])
    index = np.array([i for row in rows for i, _ in row], np.int64)
    values = np.array([value for row in rows for _, value in row])
    goals = np.column_stack([targets, np.ones(len(rows))])
    data = (Record(wide.plan.trail).data, cells, square, wide.sizes, wide.settings(settings))
    wide_kernel()(head, *data, begins, index, values, goals, out)
    return head, cells, out


def draw(name, **members):
    """A plan, a state drawn at random in which rows stand as they are, a row of some keys and a
    target."""
    loss, classes = CASES[name]
    wide = WidePlan(Plan(FEATURES, loss, classes, ALL if classes else ALL[:3], **members))
    rng = np.random.default_rng(0)
    head, cells = wide.start({})
    cells = cells[: FEATURES + 1].copy()
    part = wide.parts(head, cells)
    part["numbers"][:] = 0, 1, 0, 1
    part["statistics"][:, VARIANCE] = 1
    for i in range(len(wide.members)):
        for which in ("weights", "curvature_slope", "sensitivity"):
            part[f"{i}.{which}"][:] = rng.standard_normal(part[f"{i}.{which}"].shape)
        part[f"{i}.curvature"][:] = rng.uniform(0.5, 2, FEATURES + 1)
    part["0.x"][:] = 0.5 * rng.standard_normal(wide.plan.width)
    row = [(4, 0.8), (0, -1.1), (2, 0.3)]
    target = {"sigmoid": 1.0, "softmax": 2.0, "squared": 0.7, "huber": 3.0}[name]
    return wide, head, cells, row, target


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
def test_every_member_is_at_the_minimum_of_what_it_solves(name):
    """The slope of g_t in the weights of every key that is there, by curvature and by the root; the
    past that the row has left; nothing of any other key."""
    wide, head, cells, row, target = draw(name, frozen=((0.1, 5.0, 0.4),), rates=(0.3,))
    after_head, after_cells, out = play(wide, head, cells, [row], [target])
    assert out[0, OUTCOME] == ACCEPTED
    old, new = wide.parts(head, cells), wide.parts(after_head, after_cells)
    keys, a = [0, *(i + 1 for i, _ in row)], np.array([1.0, *(value for _, value in row)])
    for i, member in enumerate(wide.members):
        x = old[f"{i}.x"]
        penalty, inertia, memory = np.exp(x[:3])
        past = memory / (1 + memory) * old[f"{i}.curvature"][keys]
        stiff = inertia * np.sqrt(1 + past) if member.kind == ROOT else inertia + past
        ridge = np.where(np.array(keys) > 0, penalty, 0.0)
        before, y = old[f"{i}.weights"][keys], new[f"{i}.weights"][keys]
        pull = pull_of(name, a @ y, target, x, wide.plan.slots)
        slope = stiff[:, None] * (y - before) + ridge[:, None] * y - a[:, None] * pull
        np.testing.assert_allclose(slope, 0, atol=1e-11)
        lift = new[f"{i}.curvature"][keys] - past
        if member.kind == ROOT:
            np.testing.assert_allclose(lift, a**2 * np.sum(pull**2), rtol=1e-9)
        elif name in ("squared", "huber"):
            np.testing.assert_allclose(lift, a**2 * (name == "squared"), atol=1e-12)
    untouched = [i for i in range(FEATURES + 1) if i not in keys]
    np.testing.assert_array_equal(after_cells[untouched], cells[untouched])


def stream(name, rows=25):
    """Rows with keys of their own, values that stand as they are."""
    classes = CASES[name][1]
    rng = np.random.default_rng(2)
    keys = [rng.permutation(FEATURES)[: rng.integers(2, FEATURES)] for _ in range(rows)]
    values = [[(int(i), rng.standard_normal()) for i in some] for some in keys]
    if classes:
        return values, rng.integers(0, classes, rows).astype(float)
    return values, 2 * rng.standard_normal(rows)


def slopes_of(name, spoil=lambda part: None):
    """The leader's slopes in each round, and the same by finite differences of the loss of the
    round in x, the same in all rounds before. `spoil` may change the state between rounds."""
    loss, classes = CASES[name]
    wide = WidePlan(Plan(FEATURES, loss, classes, ALL if classes else ALL[:3]))
    rows, targets = stream(name)

    def begin(shift):
        head, cells = wide.start({"penalty": 0.1, "memory": 8.0, "inertia": 0.5})
        wide.parts(head, cells)["0.x"][:] += shift
        return head, cells

    def one_by_one(shift):
        head, cells = begin(shift)
        found, lost = [], []
        for row, target in zip(rows, targets, strict=True):
            before = wide.parts(head, cells)["0.mean"].copy()
            head, cells, out = play(wide, head, cells, [row], [target])
            part = wide.parts(head, cells)
            found.append((part["0.mean"] - 0.9 * before) / 0.1)
            lost.append(out[0, LOSS])
            spoil(part)
        return np.array(found), np.array(lost)

    eps = 1e-5
    shifts = eps * np.eye(wide.plan.width)
    numeric = [(one_by_one(s)[1] - one_by_one(-s)[1]) / (2 * eps) for s in shifts]
    return one_by_one(np.zeros(wide.plan.width))[0], np.stack(numeric, axis=1)


@pytest.mark.parametrize("name", CASES)
def test_the_hypergradient_of_a_whole_stream_is_exact(name):
    """Through weights, curvature and what the curvature owes to the weights."""
    slopes, numeric = slopes_of(name)
    np.testing.assert_allclose(slopes, numeric, rtol=1e-5, atol=1e-8)
    assert np.abs(numeric).max(axis=0).min() > 1e-4


@pytest.mark.parametrize("part", ["sensitivity", "curvature_slope"])
def test_finite_differences_see_what_is_left_out(part):
    """Mutants of the test above."""

    def spoil(parts):
        parts[f"0.{part}"][:, 0] = 0

    slopes, numeric = slopes_of("sigmoid", spoil)
    assert np.abs(slopes - numeric).max() > 1e-3


@pytest.mark.parametrize("name", CASES)
def test_the_guard_writes_nothing_of_a_row_that_would_end_in_nan(name):
    """A mutant state: a sensitivity on its way to Inf. Alone, the member has the row rejected; with
    another it sits out, and is counted."""
    wide, head, cells, row, target = draw(name)
    wide.parts(head, cells)["0.sensitivity"][1, 0, 0] = 1e308
    after = play(wide, head, cells, [row], [target])
    assert after[2][0, OUTCOME] == REJECTED
    np.testing.assert_array_equal(after[1], cells)
    np.testing.assert_array_equal(wide.parts(*after[:2])["0.x"], wide.parts(head, cells)["0.x"])

    wide, head, cells, row, target = draw(name, frozen=((0.1, 5.0, 0.4),))
    part = wide.parts(head, cells)
    part["0.sensitivity"][1, 0, 0] = 1e308
    after = play(wide, head, cells, [row], [target])
    assert after[2][0, OUTCOME] == ACCEPTED
    new = wide.parts(*after[:2])
    np.testing.assert_array_equal(new["sat_out"], [1, 0])
    np.testing.assert_array_equal(new["0.weights"], part["0.weights"])
    assert not np.array_equal(new["1.weights"], part["1.weights"])


def test_the_rule_of_scaling():
    """In nine of ten rows: standardised. Less often: divided by its root mean square. Once, or
    always the same: 1 for a word, 0 for what is always there. Missing and absurd: 0."""
    cell = np.zeros(OWN)
    cell[SEEN], cell[AVERAGE], cell[VARIANCE] = 90, 1e7, 4.0
    assert scaled(cell, 1e7 + 4, 100.0) == pytest.approx(2.0)
    assert scaled(cell, np.nan, 100.0) == 0
    assert scaled(cell, 1e20, 100.0) == 0
    cell[AVERAGE] = 3.0
    assert scaled(cell, 4.0, 101.0) == pytest.approx(4 / np.sqrt(13))
    assert scaled(cell, 1e6, 101.0) == 10
    # Since it first came it has always been there.
    cell[FIRST] = 50
    assert scaled(cell, 4.0, 140.0) == pytest.approx(0.5)
    assert scaled(np.zeros(OWN), 7.0, 3.0) == 1
    assert scaled(np.zeros(OWN), 7.0, 0.0) == 0


@pytest.mark.parametrize("name", CASES)
def test_the_member_with_full_curvature_is_a_filter(name):
    """Against NumPy: weights and covariance after some rows; and what is left of it in the cells
    when the features get too many."""
    loss, classes = CASES[name]
    frozen = ((1e-3, 30.0, 1.0),)
    wide = WidePlan(Plan(FEATURES, loss, classes, (), frozen=frozen, names=("tuned", "long")))
    head, cells = wide.start({})
    square, side = wide.square(FEATURES), FEATURES + 1
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((4, FEATURES))
    targets = rng.integers(0, classes, 4) if classes else rng.standard_normal(4)
    y, covariance = np.zeros((side, wide.plan.outputs)), square[:side, :side].copy()
    _, inertia, memory = wide.members[1].starts
    keep = 1 - 0.5 / memory
    kept = np.append(1.0, np.full(FEATURES, keep))[:, None]
    for row, target in zip(rows, targets, strict=True):
        # Statistics that leave rows and targets as they are.
        part = wide.parts(head, cells)
        part["statistics"][:side], part["numbers"][:] = [0, 0, 0, 0, 1], [0, 1, 0, 1]
        state = (wide, head, cells, [list(enumerate(row))], [target])
        head, cells, _ = play(*state, square=square)
        found = wide.parts(head, cells)["1.weights"][:side]
        a = np.append(1.0, row)
        s = covariance @ a
        pull = pull_of(name, a @ (found / kept), target, np.zeros(11), classes)
        y = kept * (y + np.outer(s, pull))
        np.testing.assert_allclose(found, y, rtol=1e-9, atol=1e-12)
        p = np.eye(classes)[int(target)] - pull if classes > 2 else target - pull
        h = {"sigmoid": p * (1 - p), "squared": 1.0, "huber": abs(pull) < 0.5}.get(name)
        h = (1 - p @ p) / (classes - 1) if classes > 2 else float(np.ravel(h)[0])
        covariance = keep**2 * (covariance - h / (1 + h * (a @ s)) * np.outer(s, s))
        covariance += (1 - keep**2) / inertia * np.eye(side)
        np.testing.assert_allclose(square[:side, :side], covariance, rtol=1e-9, atol=1e-12)
    cells = enough(cells, 600)
    assert fit_square(wide, head, cells, square, 600).size == 0
    stiff = inertia + memory / (1 + memory) * cells[:side, at(wide, 1)]
    np.testing.assert_allclose(1 / stiff, np.minimum(np.diagonal(covariance), 1 / inertia))


def at(wide, member):
    """Where in a cell the curvature of a member stands."""
    return int(wide.sizes[MEMBER + PER_MEMBER * member + CELL_AT])


def test_a_filter_that_is_not_definite_sits_out():
    """A mutant covariance: nothing is written."""
    plan = Plan(
        FEATURES, "squared", learned=(), frozen=((1e-3, 30.0, 1.0),), names=("tuned", "long")
    )
    wide = WidePlan(plan)
    head, cells = wide.start({})
    part = wide.parts(head, cells)
    part["numbers"][:] = 0, 1, 0, 1
    part["statistics"][:, VARIANCE] = 1
    square = -wide.square(FEATURES)
    before = square.copy()
    head, after, out = play(wide, head, cells, [[(0, 1.0), (1, 2.0)]], [3.0], square=square)
    assert out[0, OUTCOME] == ACCEPTED
    np.testing.assert_array_equal(wide.parts(head, after)["sat_out"], [0, 1])
    np.testing.assert_array_equal(wide.parts(head, after)["1.weights"], 0)
    np.testing.assert_array_equal(square, before)
