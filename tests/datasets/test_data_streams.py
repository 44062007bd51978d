import dataclasses
import itertools

import numpy as np
import pytest

from obax import datasets
from obax.datasets import streams

PLAN = [(100, 0.4), (100, 0.6), (100, 0.8), (100, 1.0)]


def first(stream, count):
    return list(itertools.islice(stream, count))


@pytest.fixture(scope="module")
def split():
    """Four classes, 150 training and 50 validation rows of each; a row's input is its number."""
    train, valid = np.repeat(np.arange(4), 150), np.repeat(np.arange(4), 50)
    return datasets.Split(
        train_inputs=np.arange(600, dtype=np.float32)[:, None],
        train_labels=train.astype(np.int32),
        valid_inputs=np.arange(200, dtype=np.float32)[:, None],
        valid_labels=valid.astype(np.int32),
        test_inputs=np.zeros((1, 1), np.float32),
        test_labels=np.zeros(1, np.int32),
        classes=4,
        name="small",
    )


# Index batches


def test_profile():
    np.testing.assert_allclose(streams.profile(0.6, 10)[3] / streams.profile(0.6, 10)[0], 0.6**3)
    assert streams.profile(1.0, 4).tolist() == [0.25] * 4
    for bad, expected in ((0, "a number > 0"), (-1, "a number > 0"), (np.nan, "finite"),
                          (True, "a number")):  # fmt: skip
        with pytest.raises(ValueError, match=f"base must be {expected}, but got {bad}"):
            streams.profile(bad, 3)


def test_batches_drop_nothing_and_repeat_nothing_within_an_epoch():
    stream = np.concatenate(first(streams.batches(10, 4, seed=3), 15))
    for epoch in range(6):
        assert sorted(stream[10 * epoch : 10 * epoch + 10]) == list(range(10))
    assert not np.array_equal(stream[:10], stream[10:20])


def test_batches_depend_on_seed_and_round_only():
    whole = first(streams.batches(10, 4, seed=3), 20)
    for start in (1, 2, 3, 17):
        np.testing.assert_array_equal(
            first(streams.batches(10, 4, seed=3, start=start), 3), whole[start - 1 : start + 2]
        )
    assert not np.array_equal(whole, first(streams.batches(10, 4, seed=4), 20))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((10, 11), "size must be at most the number of rows, 10, but got 11"),
        ((0, 1), "n must be an integer >= 1"),
        ((10, 2.5), "size must be an integer >= 1, but got 2.5"),
        ((10, 1, -1), "seed must be an integer >= 0"),
    ],
)
def test_batches_that_cannot_be_had(arguments, message):
    with pytest.raises(ValueError, match=message):
        streams.batches(*arguments)
    with pytest.raises(ValueError, match="start must be an integer >= 1, but got 0"):
        streams.batches(10, 2, start=0)


def test_imbalanced_takes_what_is_wanted():
    labels = np.repeat([2, 0, 1], [40, 50, 60])
    chosen = streams.imbalanced(labels, [5, 60, 0], seed=1)
    assert np.bincount(labels[chosen], minlength=3).tolist() == [5, 60, 0]
    assert len(np.unique(chosen)) == 65
    # As many as the proportions allow: class 2 is the first to run out.
    shares = np.array([0.25, 0.25, 0.5])
    assert np.bincount(labels[streams.imbalanced(labels, shares)]).tolist() == [20, 20, 40]
    np.testing.assert_array_equal(chosen, streams.imbalanced(labels, [5, 60, 0], seed=1))


@pytest.mark.parametrize(
    ("labels", "wanted", "message"),
    [
        ([0, 1, 2], [1, 1], r"labels must be in 0..1, but holds 2"),
        ([0, -1], [1, 1], "but holds -1"),
        ([0.0, 1.0], [1, 1], "vector of integers, but is float64"),
        ([0, 1], [1, 2], "asks for 2 rows of class 1, but labels has 1"),
        ([0, 1], [1, -1], "counts >= 0"),
        ([0, 1], [0.5, np.nan], "numbers >= 0, not all 0"),
    ],
)
def test_imbalanced_that_cannot_be_had(labels, wanted, message):
    with pytest.raises(ValueError, match=message):
        streams.imbalanced(labels, wanted)


# Mixes of classes


def test_a_mix_has_the_proportions_and_repeats_only_what_has_run_out():
    labels = np.repeat([0, 1, 2], [30, 500, 500])
    rows = np.concatenate(first(streams.class_mix(labels, [0.3, 0.6, 0.1], 20, seed=1), 40))
    shares = np.bincount(labels[rows]) / len(rows)
    # Three standard errors of 800 draws.
    np.testing.assert_allclose(shares, [0.3, 0.6, 0.1], atol=3 * np.sqrt(0.25 / 800))
    for label in (1, 2):
        of_class = rows[labels[rows] == label]
        assert len(np.unique(of_class)) == len(of_class)
    # Class 0 has run out, again and again: each row has come as often as any other, or once more.
    times = np.bincount(rows[labels[rows] == 0], minlength=30)
    assert times.max() - times.min() <= 1 < times.max()


def test_a_mix_can_be_taken_up_at_any_round():
    labels = np.arange(60) % 3
    whole = first(streams.class_mix(labels, [1, 1, 2], 7, seed=5), 30)
    np.testing.assert_array_equal(
        first(streams.class_mix(labels, [1, 1, 2], 7, seed=5, start=23), 8), whole[22:]
    )


def test_phases_have_their_proportions_and_an_end():
    labels = np.repeat(np.arange(10), 300)
    stream = list(streams.phases(PLAN, labels, 100, seed=0))
    assert len(stream) == 400
    for phase, (_, base) in enumerate(PLAN):
        part = stream[100 * phase : 100 * phase + 100]
        expected = streams.profile(base, 10)
        for _, shares in part:
            np.testing.assert_array_equal(shares, expected)
        found = np.bincount(labels[np.concatenate([rows for rows, _ in part])], minlength=10) / 1e4
        np.testing.assert_allclose(found, expected, atol=4 * np.sqrt(0.25 / 1e4))
    later = list(streams.phases(PLAN, labels, 100, seed=0, start=300))
    assert len(later) == 101
    for (rows, shares), (again, same) in zip(stream[299:], later, strict=True):
        np.testing.assert_array_equal(rows, again)
        np.testing.assert_array_equal(shares, same)


def test_phases_take_proportions_too():
    labels = np.arange(20) % 2
    ((rows, shares), _) = streams.phases([(2, [0, 3])], labels, 5)
    assert shares.tolist() == [0.0, 1.0]
    assert set(labels[rows]) == {1}


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ([], "plan must have at least one phase"),
        ([(0, 1.0)], r"the rounds of plan\[0\] must be an integer >= 1, but got 0"),
        ([(5, 1.0), 3], r"plan\[1\] must be a pair"),
        ([(5, [0.5, 0.2, 0.3])], r"plan\[0\] must have 4 proportions, but has 3"),
        ([(5, -1.0)], "base must be a number > 0"),
        ([(5, [0, 0, 1, 0])], "class 0, 1, 3 never appears in the phase .* ends with round 5"),
    ],
)
def test_a_bad_plan_is_rejected_at_once(split, plan, message):
    with pytest.raises(ValueError, match=message):
        streams.rounds(split, size=10, plan=plan)


@pytest.mark.parametrize(
    ("labels", "arguments", "message"),
    [
        ([0, 1, 5], ([1, 1], 2), r"labels must be in 0..1, but holds 5"),
        ([0, 0, 2], ([1, 1, 1], 2), "asks for class 1, but labels has none"),
        ([0, 1], ([1, 1], 3), "size must be at most the number of rows, 2, but got 3"),
        ([0, 1], ([0, 0], 1), "not all 0"),
    ],
)
def test_a_mix_that_cannot_be_had(labels, arguments, message):
    with pytest.raises(ValueError, match=message):
        streams.class_mix(labels, *arguments)


# Rounds of loss tuning


@pytest.mark.parametrize("plan", [None, [(4, 0.5), (30, 1.0)]], ids=["steady", "phases"])
def test_rounds_depend_on_seed_and_round_only(split, plan):
    whole = first(streams.rounds(split, size=32, valid_size=16, plan=plan, seed=2), 30)
    later = first(streams.rounds(split, size=32, valid_size=16, plan=plan, seed=2, start=11), 20)
    other = first(streams.rounds(split, size=32, valid_size=16, plan=plan, seed=3), 30)
    for one, again in zip(whole[10:], later, strict=True):
        for part in ("train", "valid"):
            np.testing.assert_array_equal(one[part][0], again[part][0])
            np.testing.assert_array_equal(one[part][1], again[part][1])
        np.testing.assert_array_equal(one["key"], again["key"])
        np.testing.assert_array_equal(one["class_weights"], again["class_weights"])
    assert len({round["key"].tobytes() for round in whole + other}) == 60
    assert any((a["train"][0] != b["train"][0]).any() for a, b in zip(whole, other, strict=True))


def test_a_round_has_the_shapes_that_loss_tuning_takes(split):
    round = next(streams.rounds(split, size=32, valid_size=16))
    found = {
        name: (array.dtype.name, array.shape)
        for name, array in {
            "train inputs": round["train"][0],
            "train labels": round["train"][1],
            "valid inputs": round["valid"][0],
            "valid labels": round["valid"][1],
            "class_weights": round["class_weights"],
            "key": round["key"],
        }.items()
    }
    assert found == {
        "train inputs": ("float32", (32, 1)),
        "train labels": ("int32", (32,)),
        "valid inputs": ("float32", (16, 1)),
        "valid labels": ("int32", (16,)),
        "class_weights": ("float32", (4,)),
        "key": ("uint32", (2,)),
    }
    # Inputs and labels belong together.
    assert (round["train"][0][:, 0] // 150 == round["train"][1]).all()
    assert (round["valid"][0][:, 0] // 50 == round["valid"][1]).all()


def test_weights_are_the_reciprocal_proportions(split):
    assert next(streams.rounds(split, size=8))["class_weights"].tolist() == [4.0] * 4
    uneven = dataclasses.replace(
        split,
        valid_inputs=split.valid_inputs[:8],
        valid_labels=np.array([0, 0, 0, 0, 1, 1, 2, 3], np.int32),
    )
    assert next(streams.rounds(uneven, size=8))["class_weights"].tolist() == [2.0, 4.0, 8.0, 8.0]
    phases = list(streams.rounds(split, size=8, plan=[(1, 0.5), (1, 1.0)]))
    np.testing.assert_allclose(phases[0]["class_weights"], 1 / streams.profile(0.5, 4), rtol=1e-6)
    assert phases[1]["class_weights"].tolist() == [4.0] * 4


def test_rounds_that_cannot_be_had(split):
    gone = dataclasses.replace(
        split, valid_inputs=split.valid_inputs[:100], valid_labels=split.valid_labels[:100]
    )
    with pytest.raises(ValueError, match="class 2, 3 never appears in the validation data"):
        streams.rounds(gone, size=8)
    with pytest.raises(ValueError, match="asks for class 2, 3, but labels has none"):
        streams.rounds(gone, size=8, plan=PLAN)
    with pytest.raises(ValueError, match=r"train_labels must be in 0..2, but holds 3"):
        streams.rounds(dataclasses.replace(split, classes=3), size=8)
    with pytest.raises(ValueError, match="number of rows, 200, but got 300"):
        streams.rounds(split, size=300)
