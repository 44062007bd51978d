"""Annotations as checks: fields of modules and dataclasses, and arguments of functions."""

import dataclasses
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import obax
from obax._support import checks
from obax._support.checks import (
    Arrays,
    BelowOne,
    Checked,
    Count,
    Fraction,
    NonNegative,
    NonNegativeInt,
    Number,
    Positive,
    Seed,
    check,
    check_fields,
    checked,
)

WRONG = [
    (Count, 0, "must be an integer >= 1, but got 0."),
    (Count, True, "must be an integer >= 1, but got True."),
    (Count, 1.5, "must be an integer >= 1, but got 1.5."),
    (Count, None, "must be an integer >= 1, but got None."),
    (Count | None, "x", "must be an integer >= 1, but got 'x'."),
    (Count | str, None, "must be an integer >= 1 or a string, but got None."),
    (NonNegativeInt, -1, "must be an integer >= 0, but got -1."),
    (Seed, 2**31, "must be an integer in [0, 2**31), but got 2147483648."),
    (Number, math.inf, "must be finite, but got inf."),
    (Positive, 0.0, "must be a number > 0, but got 0.0."),
    (Positive, "0.1", "must be a number, but got '0.1'."),
    (Positive, True, "must be a number, but got True."),
    (Positive, 1j, "must be a number, but got 1j of type complex."),
    (Positive, math.nan, "must be finite, but got nan."),
    (Positive, [0.1, 0.2], "must be one number, but has shape (2,)."),
    (Positive, jnp.ones(3), "must be one number, but has shape (3,)."),
    (Positive, np.array("x"), "must be a number, but got array('x', dtype='<U1') of type ndarray."),
    (NonNegative, -1, "must be a number >= 0, but got -1."),
    (Fraction, 0.0, "must be in (0, 1], but got 0.0."),
    (BelowOne, 1.0, "must be in [0, 1), but got 1.0."),
    (bool, 1, "must be True or False, but got 1."),
    (int, True, "must be an integer, but got True."),
    (float, math.nan, "must be a number, but got nan."),
    (str, b"x", "must be a string, but got b'x'."),
    (Path, 3, "must be a Path, but got 3."),
    (Callable[[int], int], 3, "must be a function, but got 3."),
    (
        Annotated[Any, checks.function_of("t -> bool")],
        3,
        "must be a function t -> bool, but got 3.",
    ),
    (obax.Window, 3, "must be an obax.Window, but got 3."),
    (Literal["a", "b"], "c", "must be one of 'a', 'b', but got 'c'."),
    (tuple[Positive, ...], (1.0, -1.0), "must be numbers > 0, but got -1.0."),
    (tuple[Count, ...], (), "must not be empty."),
    (tuple[Count, ...], 3, "must be a tuple, but got 3."),
    (tuple[Literal["a"], ...] | tuple[()], ("b",), "must be among 'a', but got 'b'."),
    (Arrays, {"a": "x"}, "must hold arrays of numbers, but has 'x' of type str in it."),
]


@pytest.mark.parametrize(("hint", "value", "message"), WRONG)
def test_a_wrong_value_is_named_with_what_was_expected_and_what_came(hint, value, message):
    with pytest.raises(ValueError) as caught:
        check(value, "size", hint)
    assert str(caught.value) == f"size {message}"


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Count, np.int64(3)), (Count | None, None), (Seed, 0), (Positive, 1),
        (Positive, np.ones(())),
        (Positive, jnp.ones((), jnp.bfloat16)), (float, math.inf), (bool, np.True_), (Path, "a"),
        (tuple[Count, ...] | tuple[()], ()), (Arrays, {"a": 1.0, "net": eqx.nn.MLP(
            1, 1, 1, 1, key=jax.random.key(0))}), (Arrays, jax.random.key(0)),
        (obax.Window, obax.Window()), (Any, object()), (Literal["a", 1], 1),
    ],
)  # fmt: skip
def test_right_values_are_taken(hint, value):
    check(value, "size", hint)


def test_counts_and_flags_become_python_values():
    assert type(check(np.int32(3), "size", Count)) is int
    assert type(check(np.True_, "flag", bool)) is bool


def test_traced_values_pass():
    jax.jit(lambda value: check(value, "size", Positive))(-1.0)
    with pytest.raises(ValueError, match="one number"):
        jax.jit(lambda value: check(value, "size", Positive))(jnp.ones(2))


class Module(Checked, eqx.Module, prefix="Module."):
    made: ClassVar[int] = 0
    rate: Positive = 0.1
    steps: Count = 3
    mode: Literal["fast", "slow"] = "fast"
    limit: NonNegative | None = eqx.field(default=None, kw_only=True)


class Child(Module):
    decay: Fraction = 1


def test_fields_of_modules_are_checked_and_converted():
    module = Child(jnp.float16(0.5), np.int64(2), limit=0)
    assert module.rate.dtype == jnp.float16 and module.limit.dtype == jnp.result_type(float)
    assert not module.decay.weak_type and module.decay == 1.0
    # Numbers are leaves; counts and words belong to the structure.
    assert len(jax.tree.leaves(module)) == 3 and type(module.steps) is int
    for wrong, message in (
        ({"rate": -1.0}, "Module.rate must be a number > 0"),
        ({"steps": 0}, "Module.steps must be an integer >= 1"),
        ({"mode": "x"}, "Module.mode must be one of 'fast', 'slow'"),
        ({"limit": "x"}, "Module.limit must be a number"),
        ({"decay": 2.0}, r"decay must be in \(0, 1\]"),
    ):
        with pytest.raises(ValueError, match=message):
            Child(**wrong)
    assert jnp.all(jax.vmap(lambda rate: Module(rate).rate)(jnp.arange(3.0)) == jnp.arange(3.0))


@dataclasses.dataclass(frozen=True)
class Config:
    rounds: Count = 3
    rates: tuple[Positive, ...] = (0.1,)

    def __post_init__(self):
        check_fields(self)


def test_fields_of_dataclasses_are_checked():
    assert check_fields(Config(np.int64(4))) == {"rounds": 4, "rates": (0.1,)}
    with pytest.raises(ValueError, match="rates must be numbers > 0, but got 0"):
        Config(rates=(0.1, 0))


def test_arguments_of_functions_are_checked():
    @checked
    def doubled(size: Count, *rest: int, weight: NonNegative = None, **more: int):
        return 2 * size, weight

    # A default need not be what the annotation says.
    assert doubled(np.int64(2)) == (4, None) and doubled.__name__ == "doubled"
    with pytest.raises(ValueError, match="size must be an integer >= 1, but got 0"):
        doubled(0)
    with pytest.raises(ValueError, match="weight must be a number >= 0, but got -1"):
        doubled(1, 2, weight=-1, more=3)


def test_checks_are_loaded_without_jax():
    code = "import sys, obax._support.checks; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
