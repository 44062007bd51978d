"""The problems on which bounds are certified: for each setting, families with known constants.

A family is a function of what it draws from. Problem i of a setting belongs to family
i mod (number of families) and is drawn from a generator of its own, so that it is the same whatever
else is drawn beside it.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from ...problems import Instance
from ...theory import Constants
from ...window import Window
from . import convex, waves
from .ingredients import Draws

Family = Callable[[Draws], Instance]

# The first family of each is the one whose growth in T is fitted.
FAMILIES: dict[str, tuple[Family, ...]] = {
    "strongly_convex_dynamic": (
        convex.settling, convex.walking, convex.jumping, convex.turning_active,
        convex.flipping, convex.crossing, convex.pressed,
    ),
    "strongly_convex_static": (
        convex.flipping, convex.flipping_steep, convex.scattered, convex.turning_active,
        convex.settling,
    ),
    "convex_dynamic": (
        convex.arriving, convex.planted_walk, convex.planted_jumps, convex.planted_quadratic,
        convex.crossing_box, convex.pressed_edge,
    ),
    "convex_static": (
        convex.flipping_linear, convex.flipping_linear_steep, convex.bent_scatter,
        convex.biased_corner, convex.turning_bent,
    ),
    "nonconvex_local": (
        waves.curved_settling, waves.flipping_wave, waves.curved_walk, waves.affine_walk,
        waves.chased_wave, waves.turning_answer,
    ),
}  # fmt: skip
SETTINGS = tuple(FAMILIES)
# Families that take a smaller alpha than the largest, because the bound is nearer there.
SHARES = {"crossing_box": 1.0 / 8.0}
# (w, decay) of the non-convex problems, by turns; the other theorems have w = 1.
WINDOWS = ((1, 1.0), (4, 0.9), (16, 1.0))


class Drawn(NamedTuple):
    """A problem, with its names for messages."""

    setting: str
    family: str
    number: int
    instance: Instance
    window: Window
    share: float = 1.0
    """Of the largest alpha that the theorem allows."""

    @property
    def constants(self) -> Constants:
        """Constants of the instance, which every family gives."""
        assert self.instance.constants is not None
        return self.instance.constants

    @property
    def where(self) -> str:
        """Setting, family and number, for messages."""
        return f"{self.setting}, family {self.family}, problem {self.number}"


def draw(setting: str, index: int, horizon: int, seed: int) -> Drawn:
    """Return problem `index` of a setting, in float64.

    >>> draw("convex_static", 0, 16, seed=0).where
    'convex_static, family flipping_linear, problem 0'
    """
    families = FAMILIES[setting]
    family = families[index % len(families)]
    generator = np.random.default_rng((seed, SETTINGS.index(setting), index))
    size, decay = 1, 1.0
    if setting == "nonconvex_local":
        # Every family meets every window.
        size, decay = WINDOWS[(index // len(families)) % len(WINDOWS)]
    with jax.enable_x64(True):
        window = Window(size, decay, curvature="current", normalise="full")
        instance = family(Draws(generator, horizon))
    share = SHARES.get(family.__name__, 1.0)
    return Drawn(setting, family.__name__, index, instance, window, share)
