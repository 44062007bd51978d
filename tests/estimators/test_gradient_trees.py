"""The gradient trees of the engine against slow plain NumPy, written from their description."""

import numpy as np
import pytest

from obax._support import native
from obax.estimators.options import ClassifierOptions, RegressorOptions

TREES, BINS, MOST_LEAVES, FIRST = 30, 32, 64, 200
MASK = 2**64 - 1


def mixed(x):
    """splitmix64."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def uniform(seed, a, b):
    return (mixed((mixed((mixed(seed) + a) & MASK) + b & MASK) & MASK) >> 11) / 2**53


class Column:
    """Quantile bins of a column: a sample of 256 values, edges that move when it has left them."""

    def __init__(self, number):
        self.number, self.seen, self.sample = number, 0, []
        self.edges, self.below, self.distinct = np.zeros(0), np.zeros(0), False

    def bin(self, value):
        return BINS if np.isnan(value) else int(np.searchsorted(self.edges, value, side="left"))

    def add(self, value):
        """Take a value in; return whether the edges changed."""
        if np.isnan(value):
            return False
        self.seen += 1
        if len(self.sample) < 256:
            self.sample.append(value)
        else:
            at = int(min(self.seen, 10_000) * uniform(0, self.number, self.seen))
            if at < 256:
                self.sample[at] = value
        if self.seen not in (200, 800) and self.seen % 1000:
            return False
        ordered = np.sort(self.sample)
        shares = np.searchsorted(ordered, self.edges, side="right") / len(ordered)
        far = np.abs(shares - self.below).max(initial=0) > 0.2
        if not len(self.edges):
            far = ordered[0] < ordered[-1]
        if self.seen not in (200, 800) and not far:
            return False
        values = np.unique(ordered)
        if len(values) <= BINS:
            edges = values[:-1] + 0.5 * np.diff(values)
        else:
            edges = np.unique(ordered[[i * len(ordered) // BINS for i in range(1, BINS)]])
            edges = edges[edges < ordered[-1]]
        self.edges, self.distinct = edges, 2 < len(values) <= BINS
        self.below = np.searchsorted(ordered, edges, side="right") / len(ordered)
        return True


class Leaf:
    def __init__(self, values, curvatures, rows, waiting, shape):
        self.values, self.curvatures, self.rows = values, curvatures, rows
        self.waiting, self.split = waiting, None
        self.counts = np.zeros(shape, np.float32)  # columns of the tree, bins, outputs, (g, h)


class Reference:
    """An ensemble, as `gradient_trees.hpp` describes it."""

    def __init__(self, columns, outputs, memory, seed, ids, scaled):
        self.memory, self.scaled, self.square, self.rows = memory, scaled, 0.0, 0
        self.columns = columns
        self.trees = []
        for b in range(TREES):
            own = [j for j, i in enumerate(ids) if uniform(seed * 2 * TREES + b, 1, i) < 0.5]
            shape = (len(own), BINS + 1, outputs, 2)
            waiting = -100.0 * uniform(seed * 2 * TREES + b, 2, 0)
            self.trees.append(
                (own, shape, [Leaf(np.zeros(outputs), np.zeros(outputs), 0, waiting, shape)])
            )

    def leaf(self, tree, row):
        node = tree[2][0]
        while node.split:
            column, low, high, missing_left, left = node.split
            goes = missing_left if np.isnan(row[column]) else low < row[column] <= high
            node = tree[2][left + (0 if goes else 1)]
        return node

    def predict(self, row):
        return sum(self.leaf(tree, row).values for tree in self.trees)

    def learn(self, row, gradient, curvature, weight):
        self.rows += 1
        self.square += (gradient @ gradient - self.square) / min(self.rows, 1000)
        both = weight * np.stack([gradient, curvature], axis=-1)
        for tree in self.trees:
            own, shape, nodes = tree
            leaf = self.leaf(tree, row)
            keep = (1 - 1 / self.memory) ** weight if leaf.rows >= self.memory else 1.0
            leaf.curvatures = leaf.curvatures * keep + both[:, 1]
            leaf.values = leaf.values - 0.1 * both[:, 0] / (leaf.curvatures + 2 * max(1, weight))
            leaf.rows = leaf.rows * keep + weight
            full = len(nodes) == 2 * MOST_LEAVES - 1
            if full:
                continue
            leaf.waiting += weight
            for q, column in enumerate(own):
                leaf.counts[q, self.columns[column].bin(row[column])] += both.astype(np.float32)
            if leaf.waiting >= 50 and own:
                leaf.waiting = 0
                self.split(own, shape, nodes, leaf)

    def split(self, own, shape, nodes, leaf):
        unit = self.square if self.scaled else 1.0
        best, chosen = 5.0, None
        for q, column in enumerate(own):
            bins = self.columns[column]
            counts = leaf.counts[q].astype(float)
            total = counts.sum(axis=0)
            inside = np.arange(BINS + 1)
            choices = []
            for z in range(len(bins.edges)):
                choices.append((z, False, inside <= z))
                if z and bins.distinct:
                    choices.append((z, True, inside == z))
            lost = counts[BINS, :, 1].sum() > 0
            for z, one, mask in choices:
                for to_left in (False, True) if lost else (None,):
                    left = mask.copy()
                    left[BINS] = bool(to_left)
                    a = counts[left].sum(axis=0)
                    b = total - a
                    score = sum((s[:, 0] ** 2 / (s[:, 1] + 2)).sum() for s in (a, b))
                    gain = (score - (total[:, 0] ** 2 / (total[:, 1] + 2)).sum()) / 2 / unit
                    if gain > best and min(a[:, 1].sum(), b[:, 1].sum()) > 0.5:
                        side = a[:, 1].sum() >= b[:, 1].sum() if to_left is None else to_left
                        best, chosen = gain, (q, column, z, one, bool(side))
        if chosen is None:
            return
        q, column, z, one, to_left = chosen
        edges = self.columns[column].edges
        low = edges[z - 1] if one else -np.finfo(float).max
        leaf.split = (column, low, edges[z], to_left, len(nodes))
        inside = np.arange(BINS + 1)
        mask = inside == z if one else inside <= z
        mask[BINS] = to_left
        for side in (mask, ~mask):
            sums = leaf.counts[q][side].astype(float).sum(axis=0)
            values = leaf.values - 0.1 * sums[:, 0] / (sums[:, 1] + 2)
            nodes.append(Leaf(values, sums[:, 1], leaf.rows / 2, 0.0, shape))

    def bins_changed(self, changed):
        for own, _, nodes in self.trees:
            for q, column in enumerate(own):
                if column in changed:
                    for leaf in nodes:
                        leaf.counts[q] = 0

    def compare(self, state, name):
        """Compare all nodes with those of the engine."""
        sizes = [len(nodes) for _, _, nodes in self.trees]
        assert state[f"{name}.sizes"].astype(int).tolist() == sizes
        leaves = [leaf for _, _, nodes in self.trees for leaf in nodes]
        lines = state[f"{name}.nodes"].reshape(len(leaves), 7)
        splits = [leaf.split or (-1, 0, 0, True, 0) for leaf in leaves]
        expected = [(column, left, side, low, high) for column, low, high, side, left in splits]
        np.testing.assert_allclose(lines[:, :5], np.array(expected, float), rtol=1e-12)
        rows = [(leaf.rows, leaf.waiting) for leaf in leaves]
        np.testing.assert_allclose(lines[:, 5:], rows, rtol=1e-9)
        for part in ("values", "curvatures"):
            theirs = np.concatenate([getattr(leaf, part) for leaf in leaves])
            np.testing.assert_allclose(state[f"{name}.{part}"], theirs, rtol=1e-6, atol=1e-9)
        return sum(size > 1 for size in sizes)


def stream(kind, rows=1500, seed=0):
    """Rows with categories, missing values and a column that never comes, and their targets."""
    random = np.random.default_rng(seed)
    values = random.standard_normal((rows, 4))
    values[:, 1] = random.integers(0, 6, rows)
    values[random.random(rows) < 0.1, 0] = np.nan
    values[:, 3] = np.nan
    score = np.where(np.isnan(values[:, 0]), 2.0, values[:, 0] > 0.2) + 2.0 * (values[:, 1] == 3)
    score += 0.3 * random.standard_normal(rows)
    weights = random.choice([0.3, 1.0, 1.0, 1.0, 4.0], rows)
    if kind in ("squared", "huber"):
        return values, 10.0 * score, weights
    cuts = {"two classes": [1.0], "three classes": [0.7, 1.7]}[kind]
    targets = np.digitize(score, cuts).astype(float)
    targets[: len(cuts) + 1] = np.arange(len(cuts) + 1)  # each class comes at once
    return values, targets, weights


def engine_with(kind, corrects, seed=0, **fields):
    """A model with a linear member and one ensemble beside it."""
    classes = {"two classes": 2, "three classes": 3}.get(kind, 0)
    options = ClassifierOptions if classes else RegressorOptions
    extra = {} if classes else {"loss": kind}
    spec = options(members="tuned", **extra).checked().spec(4, classes)
    spec = spec.replace(trees=[("trees", 30.0, corrects)], seed=seed, restless=True, **fields)
    model = native.loaded().Model(spec.replace(features=0, classes=0))
    model.grow(list("abcd"), list(range(classes)), spec=spec)
    return model


def moments(targets):
    """Running mean and variance of a target *before* each row; one value moves them by 4 deviations
    at most (more in the first 30 rows)."""
    count = mean = variance = 0.0
    found = []
    for target in targets:
        found.append((mean, variance))
        gap = target - mean
        most = 4.0 * (30 / max(count, 1) if count < 30 else 1.0)
        if variance > 0 and gap**2 > most**2 * variance:
            gap = np.copysign(most * variance**0.5, gap)
        count += 1
        mean += gap / count
        variance = (1 - 1 / count) * (variance + gap**2 / count)
    return found


KINDS = ["two classes", "three classes", "squared", "huber"]


def played(kind, corrects, *, seed=0, rows=1500, mutant=None):
    """Play a stream in the engine and in the reference; return the number of trees that split."""
    values, targets, weights = stream(kind, rows)
    model = engine_with(kind, corrects, seed)
    outputs = 3 if kind == "three classes" else 1
    classify, classes = "classes" in kind, np.zeros(max(outputs, 2))
    ids = list(range(4))
    if corrects:
        first = 1 if kind == "two classes" else 0
        ids += [2**32 + i * 2**20 + first + k for i in range(2) for k in range(outputs)] + [2**40]
    columns = [Column(j) for j in range(4 + 2 * outputs + 1)]
    reference = Reference(
        columns, outputs, 31.0 if mutant == "memory" else 30.0, seed, ids, not classify
    )
    scales, last, base = moments(targets), np.nan, 0.0
    for i, (row, target, weight) in enumerate(zip(values, targets, weights, strict=True)):
        seen = np.concatenate([row, np.full(2 * outputs + 1, np.nan)])
        if corrects or i == rows - 1:
            said = model.predict_members(dict(zip("abcd", row.tolist(), strict=True)))[0]
        if corrects:
            p = np.clip(said, 1e-12, 1 - 1e-12)
            odds = np.log(p / (1 - p))
            seen[4 : 4 + outputs] = odds[1:] if outputs == 1 else odds
            offset = odds[1:] if outputs == 1 else np.log(np.maximum(said, 1e-12))
        elif classify:
            offset = np.log(classes + 0.5)
            offset = offset[1:] - offset[:1] if outputs == 1 else offset
        else:
            offset = np.array([base])
        seen[-1] = last
        if i >= FIRST:
            total = offset + reference.predict(seen)
            if outputs == 3:
                e = np.exp(total - total.max())
                p = e / e.sum()
                gradient, curvature = p - (np.arange(3) == target), p * (1 - p)
            elif classify:
                p = 1 / (1 + np.exp(-total))
                gradient, curvature = p - target, p * (1 - p)
            else:
                gradient, curvature = total - target, np.ones(1)
                if kind == "huber":
                    most = 1.345 * scales[i][1] ** 0.5
                    gradient = np.clip(gradient, -most, most)
            sign = -1.0 if mutant == "sign" else 1.0
            reference.learn(seen, sign * gradient, curvature, 1.0 if mutant == "weight" else weight)
        changed = [j for j, column in enumerate(columns) if column.add(seen[j])]
        if mutant != "bins":
            reference.bins_changed(changed)
        model.play(row[None].copy(), np.array([target]), np.array([weight]))
        if classify:
            classes[int(target)] += 1
        if i < FIRST:
            base = moments(targets[: i + 2])[-1][0] if i + 1 < FIRST else base
        if i + 1 == FIRST:
            base = moments(targets[: FIRST + 1])[-1][0]
        last = target
    return reference.compare(model.state(), "auto.trees.0")


@pytest.mark.parametrize("kind", KINDS)
def test_trees_on_the_features_are_those_of_the_reference(kind):
    assert played(kind, False) > 20


@pytest.mark.parametrize("seed", [1, 5])
def test_other_seeds_see_other_columns_as_the_reference_does(seed):
    assert played("two classes", False, seed=seed, rows=700) > 10


@pytest.mark.parametrize("kind", ["two classes", "three classes"])
def test_correcting_trees_are_those_of_the_reference(kind):
    played(kind, True, rows=1200)


@pytest.mark.parametrize("mutant", ["memory", "sign", "weight", "bins"])
def test_a_mutant_of_the_reference_is_seen(mutant):
    with pytest.raises(AssertionError):
        played("two classes", False, rows=1000, mutant=mutant)
