"""The streams: River's own data, its generators with drift, two of OBAX_DATA, a bag of words.

Every model gets the same numbers: categories as columns of 0 and 1, dates as hour, weekday and day.
Seeds are fixed; a stream is at most 10,000 rows long, in its own order.
"""

import collections
import csv
import gzip
import io
import itertools
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from obax import datasets

from .data import Row, Stream

ROWS = 10_000


class NotHere(Exception):
    """The data of a stream is not on this machine."""


def stream(name: str, limit: int = ROWS) -> Stream:
    """The first rows of a stream, by its name; `NotHere` where its data is not on this machine."""
    kind, source = SOURCES[name]
    pairs = list(itertools.islice(source(), min(limit, ROWS)))
    if not pairs:
        raise NotHere(name)
    rows = [_numbers(row) for row, _ in pairs]
    if name not in TEXTS:
        # One column for each value of a category that the stream has.
        blank = dict.fromkeys(sorted(set().union(*rows)), 0.0)
        rows = [blank | row for row in rows]
    if kind == "regression":
        return Stream(name, kind, rows, np.array([float(y) for _, y in pairs]))
    codes: dict[object, int] = {}
    labels = np.array([codes.setdefault(y, len(codes)) for _, y in pairs])
    return Stream(name, kind, rows, labels)


def _numbers(row: dict) -> Row:
    found = {}
    for name, value in row.items():
        if isinstance(value, str):
            found[f"{name}={value}"] = 1.0
        elif hasattr(value, "weekday"):
            found[f"{name} hour={value.hour:02}"] = 1.0
            found[f"{name} weekday={value.weekday()}"] = 1.0
            found[f"{name} day"] = float(value.toordinal())
        else:
            found[str(name)] = float(value)
    return found


# ---- where they come from --------------------------------------------------------------------

Pairs = Iterable[tuple[dict, object]]


def _bundled(name: str) -> Callable[[], Pairs]:
    def pairs():
        from river import datasets as theirs

        # All of it: River leaves the file open where it is not read to its end.
        return list(getattr(theirs, name)())

    return pairs


def _generated(name: str, categories: tuple = (), **options) -> Callable[[], Pairs]:
    def pairs():
        from river.datasets import synth

        for row, y in getattr(synth, name)(**options).take(ROWS):
            yield {k: str(v) if k in categories else v for k, v in row.items()}, y

    return pairs


def _switched(*parts: Callable[[], Pairs]) -> Callable[[], Pairs]:
    """An equal stretch of each, one after the other: abrupt changes."""
    each = ROWS // len(parts)
    return lambda: itertools.chain(*(itertools.islice(part(), each) for part in parts))


def _thinned(pairs: Callable[[], Pairs], label: object, rate: float) -> Callable[[], Pairs]:
    """Most rows of a label left out."""

    def some():
        rng = np.random.default_rng(0)
        return ((row, y) for row, y in pairs() if y != label or rng.random() < rate)

    return some


def _table(name: str) -> Callable[[], Pairs]:
    def pairs():
        path = datasets.find(f"{name}.csv.gz")
        if path is None:
            return
        lines = csv.reader(io.StringIO(gzip.decompress(path.read_bytes()).decode()))
        names = next(lines)[:-1]
        for *values, label in lines:
            yield dict(zip(names, map(float, values), strict=True)), int(float(label))

    return pairs


def sms_spam() -> Pairs:
    """River's SMSSpam, where it has been downloaded or stands in OBAX_DATA; the words are those of
    River's `BagOfWords`."""
    from river import datasets as theirs

    path = datasets.find("SMSSpamCollection") or Path(theirs.SMSSpam().path)
    if path.exists():
        for line in path.read_text("utf-8").splitlines():
            label, body = line.split("\t")
            counts = collections.Counter(re.findall(r"\b\w[\w\-]+\b", body.lower()))
            yield {word: float(count) for word, count in counts.items()}, label == "spam"


def zipf_words(known: int = 20_000, length: float = 15.0) -> Pairs:
    """Bags of words as long as text messages: Zipf's law, an eighth of them of the rare class, one
    word in twenty telling, and half of those lose their meaning half-way."""
    rng = np.random.default_rng(0)
    usual = np.arange(1, known + 1) ** -1.05
    telling = rng.random(known) < 0.05
    meaning = np.stack([0 * telling, telling, telling & (rng.random(known) < 0.5)])
    law = np.cumsum(usual * np.exp(2.0 * meaning), axis=1)
    for t in range(ROWS):
        label = rng.random() < 0.13
        mine = law[label * (1 + (t >= ROWS // 2))]
        words = np.searchsorted(mine, rng.random(1 + rng.poisson(length)) * mine[-1])
        row: Row = {}
        for word in words.tolist():
            row[f"word {word}"] = row.get(f"word {word}", 0.0) + 1.0
        yield row, label


_stagger = [
    _generated("STAGGER", ("size", "color", "shape"), classification_function=i, seed=i)
    for i in (0, 1, 2, 0)
]
_sea = [_generated("SEA", variant=i, noise=0.1, seed=i) for i in (0, 1, 2, 3)]
_agrawal = [
    _generated(
        "Agrawal",
        ("elevel", "car", "zipcode"),
        classification_function=i,
        perturbation=0.1,
        seed=i,
    )
    for i in (0, 2, 4, 6)
]
_hyperplane = _generated(
    "Hyperplane", n_features=10, n_drift_features=5, mag_change=0.001, noise_percentage=0.05, seed=0
)
_rbf = _generated("RandomRBFDrift", seed_model=0, seed_sample=0, change_speed=0.001)
_led = _generated(
    "LEDDrift", noise_percentage=0.1, irrelevant_features=True, n_drift_features=7, seed=0
)
_friedman = _generated("FriedmanDrift", drift_type="gra", position=(3000, 7000), seed=0)

SOURCES: dict[str, tuple[str, Callable[[], Pairs]]] = {
    "phishing": ("classes", _bundled("Phishing")),
    "bananas": ("classes", _bundled("Bananas")),
    "segments": ("classes", _bundled("ImageSegments")),
    "shuttle": ("classes", _bundled("Shuttle")),
    "elec2": ("classes", _table("elec2")),
    "weather": ("classes", _table("weather")),
    "stagger": ("classes", _switched(*_stagger)),
    "sea": ("classes", _switched(*_sea)),
    "sea, imbalanced": ("classes", _switched(*(_thinned(part, False, 0.1) for part in _sea))),
    "agrawal": ("classes", _switched(*_agrawal)),
    "hyperplane": ("classes", _hyperplane),
    "rbf": ("classes", _rbf),
    "led": ("classes", _led),
    "waveform": ("classes", _generated("Waveform", seed=0)),
    "words": ("classes", zipf_words),
    "sms spam": ("classes", sms_spam),
    "trump": ("regression", _bundled("TrumpApproval")),
    "chicks": ("regression", _bundled("ChickWeights")),
    "water": ("regression", _bundled("WaterFlow")),
    "friedman": ("regression", _friedman),
    "mv": ("regression", _generated("Mv", seed=0)),
    "planes": ("regression", _generated("Planes2D", seed=0)),
}
TEXTS = ("words", "sms spam")
