"""Compares models number by number."""

import numpy as np


def state(model):
    """What an estimator has learned, by name."""
    numbers = model.model_.engine.state()
    del numbers["given"]  # Rows that were rejected count there too.
    return numbers


def same_numbers(ours, theirs):
    """Every number is the same, bit for bit."""
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name], err_msg=name)


def differ(a, b):
    """Some number is another one."""
    ours, theirs = state(a), state(b)
    return any(not np.array_equal(ours[name], theirs[name], equal_nan=True) for name in ours)


def same(a, b):
    """Both models have the same features, classes and numbers."""
    assert a.model_.engine.names == b.model_.engine.names
    assert a.model_.engine.labels == b.model_.engine.labels
    same_numbers(state(a), state(b))
