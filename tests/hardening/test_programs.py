"""Compiled programs that do not pile up."""

import re
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.attack import long
from obax._support import compiling
from obax._support.compiling import RecompilationWarning, compiled
from obax._support.function_identity import interned


def made(offset, scale=2.0):
    return lambda x: scale * x + offset


def test_a_function_made_anew_is_the_same():
    assert interned(made(1.0)) is interned(made(1.0))
    array = jnp.ones(2)
    assert interned(made(array)) is interned(made(array))
    assert interned(made(made(1.0))) is interned(made(made(1.0)))
    one, other = (lambda x, k=1: x + k for _ in range(2))
    assert interned(one) is interned(other)


def test_functions_that_may_differ_are_not_the_same():
    for one, other in (
        (1.0, 2.0), (1, 1.0), (True, 1), ([1.0], [1.0]), (np.ones(2), np.ones(2)),
        (jnp.ones(2), jnp.ones(2)), (made(1.0), made(2.0)),
    ):  # fmt: skip
        assert interned(made(one)) is not interned(made(other))
    assert interned(lambda x: x) is not interned(lambda x: -x)
    one, other = (eval(f"lambda x, k={k}: x + k") for k in (1, 2))
    assert interned(one) is not interned(other)
    changing = [1.0]
    first = made(changing)
    assert interned(first) is first
    assert interned(None) is None and interned(jnp.sin) is jnp.sin


SCRIPT = """
for scale in scales:
    found.append(interned(lambda x: scale * x))
def power(x, n):
    return x * power(x, n - 1) if n else 1.0
twice = [interned(lambda x: power(x, 2)) for _ in range(2)]
"""


def test_the_variable_of_a_loop_in_a_script_is_a_global():
    """Two functions made in one place are not the same if a global that they use has changed."""
    for scales, same in (((1.0, 2.0), False), ((1.0, 1.0), True), (([1.0], [1.0]), False)):
        names = {"scales": scales, "found": [], "interned": interned}
        exec(SCRIPT, names)
        one, other = names["found"]
        assert (one is other) == same
    # One that calls itself can be told, too.
    assert names["twice"][0] is names["twice"][1] and names["twice"][0](3.0) == 9.0


def test_a_function_whose_variables_have_changed_is_not_handed_out():
    def turns(values):
        for value in values:
            yield lambda x: value + x  # noqa: B023 - that it changes is the point

    for function in turns((1.5, 2.5)):
        assert interned(function)(0.0) in (1.5, 2.5)
    # The loop is over: what it made first is kept, and now adds 2.5.
    again = next(turns((1.5,)))
    assert interned(again) is again and again(0.0) == 1.5
    # One that was compiled for another value does not stand for new ones.
    value = 3.5
    first = lambda x: value + x  # noqa: E731
    assert interned(first) is first
    value = 4.5
    assert interned(first) is first
    fresh = lambda x: value + x  # noqa: E731
    assert interned(fresh) is not first
    # An array that is gone may leave its place in memory to another.
    kept = []
    for _ in range(3):
        array = jnp.arange(2.0)
        kept.append((interned(made(array)), id(array)))
        del array
    assert len({place for _, place in kept}) == 3


def test_programs_are_released_and_told_of(monkeypatch):
    monkeypatch.setattr(compiling, "MOST_PROGRAMS", 4)
    monkeypatch.setattr(compiling, "MANY_PROGRAMS", 6)

    @compiled
    def double(x):
        return 2 * x

    jitted = next(
        cell.cell_contents
        for cell in double.__closure__
        if getattr(cell.cell_contents, "_cached", None) and hasattr(cell.cell_contents, "lower")
    )
    most = 0
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for size in range(1, 12):
            assert double(jnp.ones(size)).sum() == 2 * size
            most = max(most, jitted._cached._cache_size())
        for _ in range(20):
            double(jnp.ones(3))
    told = [one for one in told if one.category is RecompilationWarning]
    assert most <= 4 and len(told) == 1
    assert re.search(
        "double was compiled for the 6th time .* define functions", str(told[0].message)
    )


def test_inside_another_function_nothing_is_counted():
    @compiled
    def double(x):
        return 2 * x

    assert jax.jit(lambda x: double(x) + 1)(1.0) == 3.0


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="mappings are counted on Linux")
def test_two_thousand_programs_in_a_process():
    assert long.programs(2000) is None
