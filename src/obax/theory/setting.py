"""The base class of the five settings, and the schedules of their steps.

Schedules are pytrees of plain numbers, not closures: two equal prescriptions compile once.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int
from numpy.typing import NDArray

from .._support.checks import Number, check
from .constants import Constants

Curve = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Steps that a theorem prescribes, its assumptions, and its bound.

    `outer_step_size`, `inner_step_size` and `inner_steps` go to the algorithm as they are: a number,
    or a schedule t -> number with t counting from 1. `bound` takes measured path lengths, each a
    number or a cumulative curve over t = 1..T, and returns the bound at each of these t: the
    corrected one or, with `printed=True`, the one printed in the paper.
    """  # noqa: E501

    constants: Constants
    outer_step_size: "float | InverseTime | InverseSqrtTime"
    inner_steps: "int | LogarithmicInnerSteps"

    name: ClassVar[str]
    theorem: ClassVar[str]
    assumptions: ClassVar[tuple[str, ...]]
    # Each setting has keywords of its own: what it measures.
    bound: ClassVar[Callable[..., Curve]]

    def printed_bound(self, **measured: ArrayLike) -> Curve:
        """Return the bound as the paper prints it."""
        return self.bound(**measured, printed=True)

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of the measurements that `bound` takes."""
        parameters = inspect.signature(self.bound).parameters.values()
        return tuple(one.name for one in parameters if one.default is one.empty)

    @property
    def inner_step_size(self) -> float:
        """Step size beta = 2 / (ell_g1 + mu_g), the same in all five settings (Lemma 11)."""
        return 2.0 / (self.constants.ell_g1 + self.constants.mu_g)


def _number(name: str) -> Any:
    """Return a field for a number that stays what it is: an array would have a precision."""
    return eqx.field(converter=lambda value: check(value, name, Number))


class InverseTime(eqx.Module):
    """The schedule scale / t.

    >>> float(InverseTime(2.0)(4))
    0.5
    """

    scale: float = _number("scale")

    def __call__(self, t: Int[ArrayLike, ""]) -> Float[Array, ""]:
        return self.scale / _as_float(t)


class InverseSqrtTime(eqx.Module):
    """The schedule scale / sqrt(t).

    >>> float(InverseSqrtTime(2.0)(4))
    1.0
    """

    scale: float = _number("scale")

    def __call__(self, t: Int[ArrayLike, ""]) -> Float[Array, ""]:
        return self.scale / jnp.sqrt(_as_float(t))


class LogarithmicInnerSteps(eqx.Module):
    r"""The schedule ceil(0.25 (kappa_g + 1) log(4 t^4)) + 1, with which round t contracts
    by rho_t = 1 / (2 t^2).

    The convex theorems print $\log 4t^2$; their proofs use $\rho_t = 1/(2t^2)$ (erratum 4).

    >>> [int(LogarithmicInnerSteps(3.0)(t)) for t in (1, 2, 10)]
    [3, 6, 12]
    """

    kappa_g: float = _number("kappa_g")
    power: ClassVar[float] = 4.0

    def __call__(self, t: Int[ArrayLike, ""]) -> Int[Array, ""]:
        contraction = jnp.log(4.0) + self.power * jnp.log(_as_float(t))
        return jnp.ceil(0.25 * (self.kappa_g + 1.0) * contraction).astype(jnp.int32) + 1


def inner_steps_for(constants: Constants, inverse_square: float) -> int:
    """Return ceil(0.25 (kappa_g + 1) log(rho^-2)) + 1 steps, which contract the error by rho."""
    return int(np.ceil(0.25 * (constants.kappa_g + 1.0) * np.log(inverse_square))) + 1


def admissible_step_size(setting: str, chosen: float | None, largest: float) -> float:
    """Return the chosen constant alpha if the theorem allows it, by default the largest allowed."""
    if chosen is None:
        return largest
    if not 0.0 < chosen <= largest:
        raise ValueError(
            f"outer_step_size of {setting} must lie in (0, {largest:.6g}], but got {chosen}"
        )
    return float(chosen)


# Measurements that are at least 1: rounds, and the sum of weights, of which the first is u_0 = 1.
_LEAST = {"T": "1", "W": "u_0 = 1"}


def measured(**curves: ArrayLike) -> tuple[Curve, ...]:
    """Return path lengths (and T and W) in float64, whatever JAX's default precision is, because
    bounds are compared in it."""
    arrays = {name: np.asarray(value, dtype=np.float64) for name, value in curves.items()}
    for name, array in arrays.items():
        if not np.all(array >= (1.0 if name in _LEAST else 0.0)):
            least = f"be at least {_LEAST[name]}" if name in _LEAST else "not be negative or NaN"
            raise ValueError(f"{name} must {least}, but got a minimum of {array.min()}")
    try:
        np.broadcast_shapes(*(array.shape for array in arrays.values()))
    except ValueError:
        shapes = ", ".join(f"{name}: {array.shape}" for name, array in arrays.items())
        raise ValueError(f"curves must have one common length, but got {shapes}") from None
    return tuple(arrays.values())


def _as_float(t: Int[ArrayLike, ""]) -> Float[Array, ""]:
    return jnp.asarray(t).astype(jnp.result_type(float))
