"""Means over seeds, their intervals, and verdicts on claims.

A claim is judged by gains: paired differences over seeds that are positive where the claim is
right.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ..._support.messages import counted
from .results import Series

if TYPE_CHECKING:
    import pandas as pd

    BySeed: TypeAlias = Mapping[int, float] | pd.Series

RULE = (
    "A difference counts if the 95% t-interval of its paired differences over the seeds (at least "
    "two, or three if they are equal except for rounding) excludes zero: reproduced if it is on "
    "the side of the claim, not reproduced if it is on the other side, otherwise within noise. An "
    "order holds as well as its weakest step. A claim of several parts is partly reproduced if "
    "some parts are. A claim about a method that was not run is not tested."
)
ROUNDING = 1e-6
"""Up to this share of the values, a spread is that of float32 arithmetic and not of the seeds."""
FEW_SEEDS = 10
"""Up to this number, every seed is drawn; above it, the band that holds eight of ten."""


def plus_minus(mean: float, half: float, sign: str = "") -> str:
    """Return a value and its uncertainty with the same number of decimals.

    The uncertainty has two digits, or three if the value would otherwise lose its own digits. It is
    left out if it is not finite. `sign="+"` also shows the sign of gains.

    >>> plus_minus(200.9, 156.3), plus_minus(0.01234, 0.0021), plus_minus(7866.2, 3993.1)
    ('201 ± 156', '0.0123 ± 0.0021', '7,866 ± 3,993')
    >>> plus_minus(1.31, 14.12), plus_minus(-0.0002, 0.00468), plus_minus(0.0, 0.3)
    ('1.3 ± 14.1', '-0.00020 ± 0.00468', '0.00 ± 0.30')
    >>> plus_minus(1.25, 0.5, "+"), plus_minus(3.14159, math.inf), plus_minus(3.1e-7, 2.2e-8)
    ('+1.25 ± 0.50', '3.14', '(3.10 ± 0.22)e-07')
    >>> plus_minus(2.7443e90, 1e91), plus_minus(12345678.0, math.inf)
    ('(0.27 ± 1.00)e+91', '12,345,678')
    >>> plus_minus(math.inf, 1.0), plus_minus(math.nan, 1.0)
    ('diverged', 'not run')
    """
    if math.isnan(mean):
        return "not run"
    if math.isinf(mean):
        return "diverged"
    known = math.isfinite(half)
    largest = max(abs(mean), half) if known else abs(mean)
    if 0 < largest < 1e-4 or largest >= 1e9:
        power = math.floor(math.log10(largest))
        scaled = plus_minus(mean / 10**power, half / 10**power, sign)
        return f"({scaled})e{power:+03d}" if known else f"{scaled}e{power:+03d}"
    decimals = _decimals(mean, 3)
    # A smaller uncertainty comes from rounding, not from noise.
    if known and half > 1e-9 * abs(mean):
        decimals = max(_decimals(half, 2), min(_decimals(mean, 2), _decimals(half, 3)))
    decimals = min(decimals, _decimals(mean, 6)) if mean else decimals
    text = f"{mean:{sign},.{decimals}f}"
    return f"{text} ± {half:,.{decimals}f}" if known else text


def readable(value: float, sign: str = "") -> str:
    """Return three digits of a number, without a power of ten where possible."""
    return plus_minus(value, math.inf, sign)


def _decimals(value: float, digits: int) -> int:
    return max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0


def interval(values: np.ndarray, resolution: float = 0.0) -> tuple[float, float]:
    """Return the mean and the half-width of its 95% t-interval.

    The half-width is infinite for a single value, for two equal values, which show no noise, and
    for a mean that is not finite. Without values the mean is NaN.

    The `resolution` is the smallest difference that the measurement can show, such as one test
    example. Two values that are nearer to each other, or equal except for rounding, show no noise.
    For more values, the standard deviation is taken to be at least the resolution.
    """
    from scipy.special import stdtrit

    if len(values) == 0:
        return float("nan"), float("inf")
    with np.errstate(invalid="ignore"):
        mean = float(np.mean(values))
        if len(values) < 2 or not np.isfinite(mean):
            return mean, float("inf")
        # Two values that are one example apart differ by the resolution except for rounding.
        least = max((1 - 1e-3) * resolution, ROUNDING * float(np.max(np.abs(values))))
        if len(values) == 2 and np.ptp(values) <= least:
            return mean, float("inf")
        error = max(float(np.std(values, ddof=1)), resolution) / np.sqrt(len(values))
    return mean, float(stdtrit(len(values) - 1, 0.975)) * error


def with_interval(values: Sequence[float] | np.ndarray | pd.Series) -> str:
    """Return the mean over seeds with its 95% t-interval, if there is one.

    >>> with_interval([1.0, 1.2, 0.8]), with_interval([1.0]), with_interval([])
    ('1.00 ± 0.50', '1.00', 'not run')
    """
    return plus_minus(*interval(np.asarray(values, np.float64)))


@dataclasses.dataclass(frozen=True)
class Gain:
    """The mean of paired differences over seeds, with the half-width of its 95% t-interval.

    >>> Gain.of([1.0, 1.2, 0.8]).verdict, Gain.of([1.0, -1.2, 0.8]).verdict
    ('reproduced', 'within noise')
    >>> Gain.of([-1.0, -1.2, -0.8]).verdict, Gain.of([1.0]).verdict, Gain.of([]).verdict
    ('not reproduced', 'within noise', 'not tested')
    >>> Gain.of([1.0, 1.0]).verdict, Gain.of([1.0, 1.0, 1.0]).verdict
    ('within noise', 'reproduced')
    >>> Gain.of([2.2, 2.3]).verdict, Gain.of([2.2, 2.3], resolution=0.2).verdict
    ('reproduced', 'within noise')
    """

    mean: float
    half: float
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float] | np.ndarray | pd.Series, resolution: float = 0.0) -> Gain:
        """Return the gain from one difference for each seed.

        An infinite difference counts only if one side diverged on every seed.
        """
        differences = np.asarray(values, np.float64)
        mean, half = interval(differences, resolution)
        if len(differences) > 1 and np.isinf(differences).all() and np.isinf(mean):
            half = 0.0
        return cls(mean, half, len(differences))

    @property
    def verdict(self) -> str:
        """The verdict on the claim that the gain is positive."""
        if self.seeds == 0:
            return "not tested"
        if self.mean > self.half:
            return "reproduced"
        return "not reproduced" if self.mean < -self.half else "within noise"

    def above(self, margin: float) -> str:
        """Return the verdict on the claim that the gain is above the margin."""
        return dataclasses.replace(self, mean=self.mean - margin).verdict

    def near(self, margin: float) -> str:
        """Return the verdict on the claim that no difference exceeds the margin."""
        if self.seeds == 0:
            return "not tested"
        if abs(self.mean) + self.half <= margin:
            return "reproduced"
        return "not reproduced" if abs(self.mean) - self.half > margin else "within noise"

    @property
    def size(self) -> str:
        """The gain with its interval: `1.20 ± 0.30`."""
        return plus_minus(self.mean, self.half)

    @property
    def basis(self) -> str:
        """What the interval is computed from."""
        if self.seeds == 1:
            return "1 seed, so without an interval"
        return f"95% interval over {counted(self.seeds, 'seed')}"

    def words(self, unit: str = "") -> str:
        """Return the gain with its unit and whether it is within noise: `+1.20 ± 0.30 points`."""
        if self.seeds == 0:
            return "not run"
        unit = f" {unit}" if unit else ""
        if self.seeds == 1:
            return f"{readable(self.mean, '+')}{unit} (1 seed)"
        noise = ", within noise" if self.verdict == "within noise" else ""
        return f"{plus_minus(self.mean, self.half, '+')}{unit}{noise}"


def paired(better: BySeed, worse: BySeed, resolution: float = 0.0) -> Gain:
    """Return how far `better` is above `worse` on the seeds that both have.

    Without a common seed, as when a method was not run, the gain is not tested. A difference that
    rounding may have made counts as zero.
    """
    seeds = [seed for seed in better.keys() if seed in worse]  # noqa: SIM118 (a series has values)
    ours, theirs = (np.asarray([by[s] for s in seeds], np.float64) for by in (better, worse))
    with np.errstate(invalid="ignore"):
        gains = ours - theirs
        sizes = np.fmax(np.abs(ours), np.abs(theirs))
        gains[np.isfinite(sizes) & (np.abs(gains) <= ROUNDING * sizes)] = 0.0
        rounding = ROUNDING * np.max(sizes, initial=0.0, where=np.isfinite(sizes))
        if len(gains) == 2 and np.ptp(gains) <= rounding:
            gains[:] = np.mean(gains)
    return Gain.of(gains, resolution)


def chain(steps: Sequence[str]) -> str:
    """Return the verdict on an order, which is that of its weakest step."""
    order = ("not tested", "not reproduced", "within noise", "partly", "reproduced")
    return min(steps, key=order.index, default="not tested")


def combined(parts: Sequence[str]) -> str:
    """Return the verdict on a claim of several parts. Only this function returns "partly".

    >>> combined(["reproduced", "within noise"]), combined(["within noise", "not reproduced"])
    ('partly', 'not reproduced')
    """
    if not parts or "not tested" in parts:
        return "not tested"
    if len(set(parts)) == 1:
        return parts[0]
    return "partly" if {"reproduced", "partly"} & set(parts) else "not reproduced"


def answer_words(verdicts: Sequence[str], noun: str) -> str:
    """Return the first words of the answer to a question about several streams or methods.

    >>> answer_words(["reproduced", "within noise"], "stream"), answer_words(["within noise"], "")
    ('On 1 of 2 streams', 'Not beyond noise')
    """
    yes = list(verdicts).count("reproduced")
    if 0 < yes < len(verdicts):
        return f"On {yes} of {counted(len(verdicts), noun)}"
    words = {"reproduced": "Yes", "not reproduced": "No", "not tested": "Not tested here"}
    return words.get(chain(verdicts), "Not beyond noise")


def cumulative(terms: object) -> np.ndarray:
    """Return running sums over the last axis. From a term that is not finite on, they are inf."""
    with np.errstate(over="ignore", invalid="ignore"):
        sums = np.cumsum(np.asarray(terms, np.float64), axis=-1)
    return np.where(np.isfinite(sums), sums, np.inf)


def best_curve(curves: np.ndarray) -> int:
    """Return the setting with the least mean at the end, from curves [settings, seeds, T]."""
    return int(np.argmin(np.mean(curves[:, :, -1], axis=1)))


def evenly_spaced_rounds(horizon: int, count: int) -> np.ndarray:
    """Return at most `count` rounds from 1 to the horizon, at which curves are stored."""
    return np.unique(np.linspace(1, horizon, min(count, horizon)).astype(int))


def mean_over_seeds(
    rows: pd.DataFrame,
    label: str,
    *,
    kind: str = "",
    w: int | None = None,
    details: str = "",
    scale: float = 1.0,
    steps: bool = False,
) -> Series:
    """Return the mean over seeds at every t, with the seeds around it.

    If a seed has several values at one t, such as one for each coordinate, their mean counts.
    """
    seeds = scale * rows.groupby(["t", "seed"]).value.mean().unstack()
    low = high = None
    lines: list[list[float]] = []
    if seeds.shape[1] > FEW_SEEDS:
        low, high = (seeds.quantile(share, axis=1).tolist() for share in (0.1, 0.9))
    elif seeds.shape[1] > 1:
        lines = seeds.T.to_numpy().tolist()
    mean = seeds.mean(axis=1).tolist()
    return Series(label, seeds.index.tolist(), mean, low, high, steps, details, lines, kind, w)


def select(table: pd.DataFrame, **wanted: object) -> pd.DataFrame:
    """Return the rows whose columns have these values, `None` for a missing value."""
    for name, value in wanted.items():
        same = table[name].isna() if value is None else (table[name] == value).fillna(False)
        table = table[same.to_numpy(bool)]
    return table


def best_of_grid(rows: pd.DataFrame, run: Sequence[str], grid: Sequence[str]) -> pd.DataFrame:
    """Return the setting (`grid` columns) with the least mean value over seeds for each run.

    Runs are told apart by the `run` columns. The result has one row for each run and both sets of
    columns, so that tables can be merged with it.
    """
    mean = rows.groupby([*run, *grid], sort=False, dropna=False).value.mean().reset_index()
    least = mean.groupby(list(run), sort=False, dropna=False).value.idxmin()
    return mean.loc[least].drop(columns="value")


def summary(rows: pd.DataFrame, by: Sequence[str], name: str) -> pd.DataFrame:
    """Return the mean, as `name`, and the deviation over seeds of each setting.

    The mean is missing where a seed diverged.
    """
    means = rows.groupby(list(by), sort=False, dropna=False).value.agg(["mean", "std"])
    means["mean"] = means["mean"].replace(np.inf, np.nan)
    return means.rename(columns={"mean": name, "std": "deviation"}).reset_index()
