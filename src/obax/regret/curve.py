"""What every regret returns."""

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from .comparators import Comparator


class RegretCurve(eqx.Module):
    """A regret, round by round. It goes wherever an array goes: `np.asarray(curve)`,
    `plt.plot(curve)` and `curve[-1]` see the cumulative curve.

    - `terms`: what each round adds; `cumulative`: their running sum; `total`: its last value.
    - `comparators`: what the decisions were compared with (`None` for the local regret).
    - `decisions`: (x_t, y*_t(x_t)) and how exact y*_t(x_t) is (`None` for losses as suffered).
    """

    terms: Float[Array, " T"]
    cumulative: Float[Array, " T"]
    comparators: Comparator | None
    decisions: Comparator | None

    @property
    def total(self) -> Float[Array, ""]:
        """The regret at the end."""
        return self.cumulative[-1]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.cumulative, dtype=dtype)

    def __len__(self) -> int:
        return len(self.cumulative)

    def __getitem__(self, index: Any) -> Array:
        return self.cumulative[index]
