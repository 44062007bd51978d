"""One rule for every claim: what counts is what noise cannot have done.

A claim is a number of gains: paired differences over seeds, positive where the claim is right.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ..._support.counting import counted
from .numbers import plus_minus, readable

if TYPE_CHECKING:
    import pandas as pd

    BySeed: TypeAlias = Mapping[int, float] | pd.Series

# What a claim may name; a test holds this list to the methods that experiments run.
METHODS = ("OAGD", "OGD", "AutoBalance", "MAML", "ANIL", "ITD-BiO", "SOBOW", "SOGD", "ZOSOGD",
           "FSOBO", "AOBO", "OBBO", "RTHO", "F2OBO", "WOBO")  # fmt: skip
VERDICTS = ("reproduced", "partly", "within noise", "not reproduced", "not tested")
RULE = (
    "A difference counts if the 95% t-interval of its paired differences over the seeds (two at "
    "least, three where they are all the same) leaves zero out: reproduced on the side of the "
    "claim, not reproduced on the other, else within noise. An order holds as its weakest step "
    "does; a claim of several parts is partly reproduced if some parts are; a claim "
    "about a method that was not run is not tested."
)


def interval(values: np.ndarray) -> tuple[float, float]:
    """Mean and half-width of its 95% t-interval; the latter is infinite for a single value, for two
    that are the same, which show no noise, and for a mean that is not finite. Without values the
    mean is NaN."""
    from scipy.special import stdtrit

    if len(values) == 0:
        return float("nan"), float("inf")
    with np.errstate(invalid="ignore"):
        mean = float(np.mean(values))
        if len(values) < 2 or not np.isfinite(mean) or (len(values) == 2 and np.ptp(values) == 0):
            return mean, float("inf")
        error = float(np.std(values, ddof=1)) / np.sqrt(len(values))
    return mean, float(stdtrit(len(values) - 1, 0.975)) * error


def with_interval(values: Sequence[float] | np.ndarray | pd.Series) -> str:
    """The mean over seeds with its 95% t-interval, where there is one.

    >>> with_interval([1.0, 1.2, 0.8]), with_interval([1.0]), with_interval([])
    ('1.00 ± 0.50', '1.00', 'not run')
    """
    return plus_minus(*interval(np.asarray(values, np.float64)))


@dataclasses.dataclass(frozen=True)
class Gain:
    """The mean of paired differences over seeds, and the half-width of its 95% t-interval.

    >>> Gain.of([1.0, 1.2, 0.8]).verdict, Gain.of([1.0, -1.2, 0.8]).verdict
    ('reproduced', 'within noise')
    >>> Gain.of([-1.0, -1.2, -0.8]).verdict, Gain.of([1.0]).verdict, Gain.of([]).verdict
    ('not reproduced', 'within noise', 'not tested')
    >>> Gain.of([1.0, 1.0]).verdict, Gain.of([1.0, 1.0, 1.0]).verdict
    ('within noise', 'reproduced')
    """

    mean: float
    half: float
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float] | np.ndarray | pd.Series) -> Gain:
        """From one difference for each seed. Where one side diverged on every seed, and only
        there, an infinite difference is clear."""
        found = np.asarray(values, np.float64)
        mean, half = interval(found)
        if len(found) > 1 and np.isinf(found).all() and np.isinf(mean):
            half = 0.0
        return cls(mean, half, len(found))

    @property
    def verdict(self) -> str:
        """By the rule."""
        if self.seeds == 0:
            return "not tested"
        if self.mean > self.half:
            return "reproduced"
        return "not reproduced" if self.mean < -self.half else "within noise"

    def near(self, margin: float) -> str:
        """The verdict on a claim that there is no difference beyond the margin."""
        if self.seeds == 0:
            return "not tested"
        if abs(self.mean) + self.half <= margin:
            return "reproduced"
        return "not reproduced" if abs(self.mean) - self.half > margin else "within noise"

    @property
    def size(self) -> str:
        """`1.20 ± 0.30`, for a sentence that says of what."""
        return plus_minus(self.mean, self.half)

    @property
    def basis(self) -> str:
        """What its interval rests on."""
        if self.seeds == 1:
            return "1 seed, so without an interval"
        return f"95% interval over {counted(self.seeds, 'seed')}"

    def words(self, unit: str = "") -> str:
        """`+1.20 ± 0.30 points`, and whether that is noise."""
        if self.seeds == 0:
            return "not run"
        unit = f" {unit}" if unit else ""
        if self.seeds == 1:
            return f"{readable(self.mean, '+')}{unit} (1 seed)"
        noise = ", within noise" if self.verdict == "within noise" else ""
        return f"{plus_minus(self.mean, self.half, '+')}{unit}{noise}"


def paired(better: BySeed, worse: BySeed) -> Gain:
    """How far `better` is above `worse` on the seeds that both have; each by seed.

    Without a seed in common, as where a method was not run, a claim on it is not tested.
    """
    seeds = [seed for seed in better.keys() if seed in worse]  # noqa: SIM118 (a series has values)
    with np.errstate(invalid="ignore"):
        return Gain.of(np.asarray([better[seed] - worse[seed] for seed in seeds], np.float64))


def chain(steps: Sequence[str]) -> str:
    """The verdict on an order: that of its weakest step."""
    if not steps:
        return "not tested"
    order = ("not tested", "not reproduced", "within noise", "partly", "reproduced")
    return min(steps, key=order.index)


def asked(verdicts: Sequence[str], of: str) -> str:
    """How the answer begins to a question that was asked of several streams or methods.

    >>> asked(["reproduced", "within noise"], "stream"), asked(["within noise"], "stream")
    ('On 1 of 2 streams', 'Not beyond noise')
    """
    yes = list(verdicts).count("reproduced")
    if 0 < yes < len(verdicts):
        return f"On {yes} of {counted(len(verdicts), of)}"
    words = {"reproduced": "Yes", "not reproduced": "No", "not tested": "Not tested here"}
    return words.get(chain(verdicts), "Not beyond noise")


def combined(parts: Sequence[str]) -> str:
    """The verdict on a claim of several parts; the only source of "partly".

    >>> combined(["reproduced", "within noise"]), combined(["within noise", "not reproduced"])
    ('partly', 'not reproduced')
    """
    if not parts or "not tested" in parts:
        return "not tested"
    if len(set(parts)) == 1:
        return parts[0]
    return "partly" if {"reproduced", "partly"} & set(parts) else "not reproduced"


def not_run(claimed: str, kinds: Iterable[str], windows: Iterable[int] | None = None) -> list[str]:
    """What a claim names in its words and the runs do not have: methods by their kinds, and windows
    written as `w = 5`, where it is known which were run.

    >>> not_run("runtime OGD < OAGD < AutoBalance", ["OGD", "OAGD"])
    ['AutoBalance']
    >>> not_run("OAGD with w = 5 and with w = 10 overtakes OGD", ["OGD", "OAGD"], [1, 10])
    ['w = 5']
    """
    ran = set(kinds)
    named = [name for name in METHODS if re.search(rf"(?<![\w-]){name}(?![\w-])", claimed)]
    missing = [name for name in named if name not in ran]
    if windows is not None:
        had = {int(w) for w in windows}
        sizes = map(int, re.findall(r"\bw = (\d+)\b", claimed))
        missing += [f"w = {w}" for w in dict.fromkeys(sizes) if w not in had]
    return missing
