"""How long presets take: what somebody has measured, and otherwise nothing.

`durations.json` beside this file is what `python -m benchmarks.durations --keep` wrote. A
measurement counts only for the settings that it was made with: a preset that has changed since is
not measured.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

from ..._support import atomic
from .config import as_dict

FILE = Path(__file__).with_name("durations.json")
DAY = 86400
KEYS = {"seconds", "processor", "config", "data", "machine", "commit", "date"}
PARTS = "parts"
"""The key that a line has besides, if not all parts of the preset were run: how many were."""


@dataclasses.dataclass(frozen=True)
class Duration:
    """How long a preset takes: measured, worked out from some of its parts, or unknown.

    >>> str(Duration(150)), str(Duration(2 * DAY, parts="5 of 22")), str(Duration())
    ('2.5 min', 'about 2 days (from 5 of 22 parts)', 'not measured')
    """

    seconds: float | None = None
    parts: str = ""

    def __str__(self) -> str:
        if self.seconds is None:
            return "not measured"
        units = (("day", DAY), ("hour", 3600), ("min", 60), ("s", 1))
        # What takes less than a second takes one.
        seconds = max(self.seconds, 1)
        unit, size = next(one for one in units if seconds >= one[1])
        number = float(f"{seconds / size:.2g}")
        plural = "s" if unit in ("day", "hour") and number != 1 else ""
        words = f"{number:g} {unit}{plural}"
        return f"about {words} (from {self.parts} parts)" if self.parts else words


def promised(experiment: str, preset: str, config: object) -> Duration:
    """What was measured with these settings; nothing is guessed where nobody has."""
    found = measured().get(f"{experiment} {preset}")
    if found is None or found["config"] != fingerprint(config):
        return Duration()
    return Duration(found["seconds"], found.get(PARTS, ""))


@functools.cache
def measured() -> dict[str, dict[str, Any]]:
    """All measurements, by experiment and preset."""
    found = json.loads(FILE.read_text()) if FILE.exists() else {}
    for name, line in found.items():
        if {*line} - {PARTS} != KEYS:
            raise ValueError(f"{FILE}, {name!r}: expected {sorted(KEYS)}, got {sorted(line)}.")
    return found


def keep(experiment: str, preset: str, config: object, **line: object) -> None:
    """Write a measurement down, in place of an older one of the same preset."""
    found = dict(measured())
    found[f"{experiment} {preset}"] = {**line, "config": fingerprint(config)}
    atomic.write_text(FILE, json.dumps(dict(sorted(found.items())), indent=1) + "\n")
    measured.cache_clear()


def fingerprint(config: object) -> str:
    """A few letters that differ when a setting does."""
    return atomic.checksum(json.dumps(as_dict(config), sort_keys=True).encode())[:12]


def machines() -> str:
    """Where it was measured, in words; empty if nothing was."""
    return "; ".join(dict.fromkeys(line["machine"] for line in measured().values()))
