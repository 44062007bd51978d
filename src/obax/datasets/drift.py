"""Two real streams in time order: electricity prices and the weather."""

import io
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from . import convert, registry
from .containers import Array
from .downloads import DataError

WEATHER_HEADER = ",".join([f"feat_{i}" for i in range(1, 9)] + ["target"])


class Series(NamedTuple):
    """Rows in time order: `float32` inputs `[n, d]`, `int32` labels `[n]`, feature names."""

    inputs: Array
    labels: Array
    features: tuple[str, ...]

    def rows(self) -> Iterator[tuple[dict[str, float], int]]:
        """Return each row as ({feature: value}, label), as River takes them."""
        for values, label in zip(self.inputs, self.labels, strict=True):
            yield dict(zip(self.features, values.tolist(), strict=True)), int(label)


def elec2(*, verify: bool = True) -> Series:
    """Load Elec2: 45,312 half-hours of the New South Wales electricity market, 8 features.

    Class 1 means that the price goes up. The drift and the autocorrelation are strong.
    """
    return _series("elec2", "elec2.csv.gz", convert.ELEC2_HEADER, 45_312, verify)


def weather(*, verify: bool = True) -> Series:
    """Load NOAA weather: 18,159 days at one station, 8 features; class 1 means rain.

    The drift is slow and seasonal.
    """
    return _series("weather", "weather.csv.gz", WEATHER_HEADER, 18_159, verify)


def _series(name: str, file: str, header: str, rows: int, verify: bool) -> Series:
    path = registry.fetch(name, verify=verify)[file]
    first, _, body = registry.text(path).partition("\n")
    try:
        if first.strip() != header:
            raise ValueError(f"its first line must be {header!r}, but is {first[:100]!r}")
        table = np.loadtxt(io.StringIO(body), delimiter=",", ndmin=2)
        if table.shape[1] != header.count(",") + 1 or (verify and len(table) != rows):
            raise ValueError(f"it must have {rows} rows, but has the shape {list(table.shape)}")
        if not np.isfinite(table).all() or not np.isin(table[:, -1], (0, 1)).all():
            raise ValueError("its values must be finite numbers and its classes 0 or 1")
    except ValueError as error:
        raise DataError(
            f"{path} cannot be read: {error}. Remove it to download it again."
        ) from error
    return Series(
        table[:, :-1].astype(np.float32),
        table[:, -1].astype(np.int32),
        tuple(header.split(",")[:-1]),
    )
