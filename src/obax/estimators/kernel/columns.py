"""What the weights of a member of the second order meet: the columns of a row, and their names.

    features, 1, lags, and of the features what `features=` makes: waves or products.

Lags are the last targets: for numbers a column each, otherwise one for each class. Columns keep
their names when a model grows, which is how their weights find their new places.
"""

from collections.abc import Hashable

import numpy as np

LINEAR, FOURIER, INTERACTIONS = range(3)
FEATURES = {"linear": LINEAR, "fourier": FOURIER, "interactions": INTERACTIONS}
WAVES = 90
"""Random Fourier features: with 60 the errors of some streams are a tenth larger; with more, a row
takes longer than a tenth of what a forest of 10 trees takes."""
MULTIPLIED = 19
"""Products are taken of so many features at most, the first that came, and of each with itself:
190 columns."""
SEED = 1729


def names(features: int, lags: int, slots: int, expansion: str) -> list[Hashable]:
    """Of all columns. `slots` is the number of classes, 0 for regression."""
    found: list[Hashable] = [*range(features), "1"]
    found += [("lag", lag, c) for lag in range(lags) for c in range(max(1, slots))]
    if expansion == "fourier":
        found += [("wave", j) for j in range(WAVES)]
    elif expansion == "interactions":
        some = min(features, MULTIPLIED)
        found += [("product", i, j) for i in range(some) for j in range(i, some)]
    return found


def waves(features: int) -> tuple[np.ndarray, np.ndarray]:
    """Directions, one for each wave, and phases. Two standardised rows are about the root of twice
    the number of features apart, which is what the bandwidth is counted in. But for that, what a
    feature has in them does not depend on how many there are: a late one leaves waves as they were.
    """
    columns = [np.random.default_rng((SEED, i)).standard_normal(WAVES) for i in range(features)]
    phases = np.random.default_rng(SEED).uniform(0.0, 2.0 * np.pi, WAVES)
    return np.array(columns).reshape(features, WAVES).T / max(1, 2 * features) ** 0.5, phases
