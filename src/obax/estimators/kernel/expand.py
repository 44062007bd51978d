"""The columns of a row beyond its standardised features: see `columns`.

A wave is sqrt(2) cos(w . a / bandwidth + phase) with w drawn from a normal of variance 1 / 2f: the
product of two rows' waves is on average exp(-|a - a'|^2 / (4 f bandwidth^2)), so that weights of
waves are a Gaussian kernel machine (Rahimi and Recht 2007), and a bandwidth of 1 is the distance of
two rows. Each wave is as large as a standardised feature.
"""

import math

import numpy as np
from numba import njit

from .algebra import dot
from .columns import FOURIER, INTERACTIONS, MULTIPLIED
from .layout import (
    BANDWIDTH,
    CLASSES,
    DIRECTIONS,
    EXPANSION,
    FEATURES,
    LAGS,
    PHASES,
    RECENT,
    TARGET_AVERAGE,
    TARGET_VARIANCE,
    X,
)
from .statistics import CLIP, deviations
from .views import part, shaped


@njit
def expand(
    vector: np.ndarray, work: np.ndarray, sizes: np.ndarray, a: np.ndarray, slope: np.ndarray
) -> None:
    """Behind the features and the 1 in `a`: lags, then waves or products. `slope` gets
    d a / d log bandwidth."""
    f, slots = sizes[FEATURES], max(1, sizes[CLASSES])
    recent, begin = part(vector, sizes, RECENT), f + 1
    for lag in range(sizes[LAGS]):
        if sizes[CLASSES] == 0:
            average, variance = vector[sizes[TARGET_AVERAGE]], vector[sizes[TARGET_VARIANCE]]
            a[begin] = deviations(recent[lag], average, variance)
        else:
            for c in range(slots):
                a[begin + c] = 1.0 if recent[lag] == c else 0.0
        begin += slots
    if sizes[EXPANSION] == FOURIER:
        bandwidth = math.exp(vector[sizes[X] + sizes[BANDWIDTH]])
        phases = part(work, sizes, PHASES)
        directions = shaped(part(work, sizes, DIRECTIONS), (phases.shape[0], f))
        size = math.sqrt(2.0)
        for j in range(phases.shape[0]):
            angle = dot(directions[j], a[:f]) / bandwidth
            a[begin + j] = size * math.cos(angle + phases[j])
            slope[begin + j] = size * math.sin(angle + phases[j]) * angle
    elif sizes[EXPANSION] == INTERACTIONS:
        for i in range(min(f, MULTIPLIED)):
            for j in range(i, min(f, MULTIPLIED)):
                a[begin] = min(max(a[i] * a[j], -CLIP), CLIP)
                begin += 1


@njit
def remember(vector: np.ndarray, sizes: np.ndarray, target: float) -> None:
    """The target of a row that was learned becomes the first of the recent ones."""
    recent = part(vector, sizes, RECENT)
    for lag in range(sizes[LAGS] - 1, 0, -1):
        recent[lag] = recent[lag - 1]
    if sizes[LAGS] > 0:
        recent[0] = target
