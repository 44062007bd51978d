"""What the five settings share: the prescription handed to the algorithm, and the schedules.

Schedules are pytrees of plain numbers, not closures: two equal prescriptions compile once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int
from numpy.typing import NDArray

from .._support import validation
from .constants import Constants

Curve = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Steps that a theorem prescribes, what it assumes, and the bound it gives.

    `outer_step_size`, `inner_step_size` and `inner_steps` go to the algorithm as they are: a number,
    or a schedule t -> number with t counting from 1. `bound` takes measured path lengths, each a
    number or a cumulative curve over t = 1..T, and returns the bound at each of these t.
    """  # noqa: E501

    constants: Constants
    outer_step_size: "float | InverseTime | InverseSqrtTime"
    inner_steps: "int | LogarithmicInnerSteps"

    name: ClassVar[str]
    theorem: ClassVar[str]
    assumptions: ClassVar[tuple[str, ...]]
    # Each setting measures something else, hence its own keywords.
    bound: ClassVar[Callable[..., Curve]]
    printed_bound: ClassVar[Callable[..., Curve]]

    @property
    def inner_step_size(self) -> float:
        """beta = 2 / (ell_g1 + mu_g), the same in all five settings (Lemma 11)."""
        return 2.0 / (self.constants.ell_g1 + self.constants.mu_g)


def _number(value: ArrayLike, name: str) -> ArrayLike:
    validation.as_number(value, name)
    return value


class InverseTime(eqx.Module):
    """scale / t.

    >>> float(InverseTime(2.0)(4))
    0.5
    """

    scale: float = eqx.field(converter=lambda value: _number(value, "scale"))

    def __call__(self, t: Int[ArrayLike, ""]) -> Float[Array, ""]:
        return self.scale / _as_float(t)


class InverseSqrtTime(eqx.Module):
    """scale / sqrt(t).

    >>> float(InverseSqrtTime(2.0)(4))
    1.0
    """

    scale: float = eqx.field(converter=lambda value: _number(value, "scale"))

    def __call__(self, t: Int[ArrayLike, ""]) -> Float[Array, ""]:
        return self.scale / jnp.sqrt(_as_float(t))


class LogarithmicInnerSteps(eqx.Module):
    r"""ceil(0.25 (kappa_g + 1) log(4 t^4)) + 1, so that round t contracts by rho_t = 1 / (2 t^2).

    The convex theorems print $\log 4t^2$; their proofs use $\rho_t = 1/(2t^2)$ (erratum 4).

    >>> [int(LogarithmicInnerSteps(3.0)(t)) for t in (1, 2, 10)]
    [3, 6, 12]
    """

    kappa_g: float = eqx.field(converter=lambda value: _number(value, "kappa_g"))
    power: ClassVar[float] = 4.0

    def __call__(self, t: Int[ArrayLike, ""]) -> Int[Array, ""]:
        contraction = jnp.log(4.0) + self.power * jnp.log(_as_float(t))
        return jnp.ceil(0.25 * (self.kappa_g + 1.0) * contraction).astype(jnp.int32) + 1


def inner_steps_for(constants: Constants, inverse_square: float) -> int:
    """ceil(0.25 (kappa_g + 1) log(rho^-2)) + 1 steps contract the inner error by rho."""
    return int(np.ceil(0.25 * (constants.kappa_g + 1.0) * np.log(inverse_square))) + 1


def admissible_step_size(setting: str, chosen: float | None, largest: float) -> float:
    """The chosen constant alpha if the theorem allows it; the largest allowed one by default."""
    if chosen is None:
        return largest
    if not 0.0 < chosen <= largest:
        raise ValueError(
            f"outer_step_size of {setting} must lie in (0, {largest:.6g}], but got {chosen}"
        )
    return float(chosen)


# What is counted from one: rounds, and the weights of a window, of which the first is u_0 = 1.
_LEAST = {"T": "1", "W": "u_0 = 1"}


def measured(**curves: ArrayLike) -> tuple[Curve, ...]:
    """Path lengths (and T and W) as float64, whatever JAX's default precision is: bounds are
    compared in it."""
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
