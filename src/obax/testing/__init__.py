"""Checks of an algorithm or a problem, also of one outside this repository.

    obax.testing.check_algorithm(MyAlgorithm(problem, outer_step_size=0.1, inner_step_size=0.1))
    obax.testing.check_problem(problem, round, x, y)

The conformance tests of obax run these checks on every algorithm and many problems.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax

from .._support.checks import checked
from ..algorithms import Algorithm
from ..problem import Problem
from .cases import CASES as CASES, Case as Case
from .checks import (
    CHECKS as CHECKS,
    ConformanceError as ConformanceError,
    Make as Make,
    Trial as Trial,
)
from .problems import check_problem as check_problem


@checked
def check_algorithm(
    algorithm: Algorithm | Callable[[Problem], Algorithm], *, case: Case | None = None
) -> list[str]:
    """Check an algorithm; raise a `ConformanceError` that names the first check that fails.

    **Arguments:**

    - `algorithm`: an instance, which is tried on ready-made problems in place of its own; or, if
      it cannot be moved to another problem, a function `problem -> algorithm`.
    - `case`: a problem of your own with three rounds, in place of the ready-made ones.

    **Returns:** the names of the checks, all of which have passed.

    >>> import obax
    >>> problem = obax.Problem(lambda x, y, round: (x - round) ** 2)
    >>> check_algorithm(obax.OGD(problem, outer_step_size=0.1), case=CASES["no follower"]())[:2]
    ['dtype_is_kept', 'suffers_before_learning']
    """
    make = _instance(algorithm) if isinstance(algorithm, Algorithm) else _factory(algorithm)
    tried = 0
    for each in [case] if case is not None else [make_case() for make_case in CASES.values()]:
        assert each is not None
        try:
            made = make(each.problem, 1.0)
        except ValueError as error:
            # An algorithm without a step size for the follower raises this on a problem with a
            # follower, and the other way round.
            if case is not None or not ("follower" in str(error) or "step_size" in str(error)):
                raise
            continue
        tried += 1
        trial = Trial(each, make)
        assert type(made) is type(trial.algorithm)
        for check in CHECKS.values():
            check(trial)
    if not tried:
        raise ValueError(
            "algorithm must be one that can be moved to another problem, but none of the ready "
            "ones fits; pass case=obax.testing.Case(problem, rounds, x, y), with three rounds."
        )
    return list(CHECKS)


def _instance(algorithm: Algorithm) -> Make:
    def make(problem: Problem, factor: float) -> Algorithm:
        steps = {
            field.name: _scaled(getattr(algorithm, field.name), factor)
            for field in dataclasses.fields(algorithm)
            if field.name.endswith("step_size") and factor != 1.0
        }
        try:
            return dataclasses.replace(algorithm, problem=problem, **steps)
        except TypeError as error:
            raise TypeError(
                f"algorithm must be a dataclass-like Equinox module to be moved to another problem "
                f"({error}); pass a function problem -> {type(algorithm).__name__} instead."
            ) from error

    return make


def _factory(function: Callable[[Problem], Algorithm]) -> Make:
    def make(problem: Problem, factor: float) -> Algorithm:
        made = function(problem)
        return made if factor == 1.0 else _instance(made)(problem, factor)

    return make


def _scaled(value: Any, factor: float) -> Any:
    """Multiply a step size, or the numbers inside a schedule, by a factor."""
    if value is None:
        return None
    if callable(value):
        return jax.tree.map(
            lambda leaf: factor * leaf if eqx.is_inexact_array(leaf) else leaf, value
        )
    return factor * value
