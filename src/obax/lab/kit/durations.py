"""How long presets take: measured where somebody measured, marked as estimates elsewhere.

`durations.json` beside this file is what `python -m benchmarks.durations --keep` wrote. A
measurement counts only for the settings that it was made with: a preset that has changed since is
an estimate again.
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


@dataclasses.dataclass(frozen=True)
class Duration:
    """How long a preset takes on two cores.

    >>> str(Duration(50)), str(Duration(150, measured=True)), str(Duration(2 * DAY))
    ('50 s (estimate)', '2.5 min', '2 days (estimate)')
    """

    seconds: float
    measured: bool = False

    def __str__(self) -> str:
        units = (("day", DAY), ("hour", 3600), ("min", 60), ("s", 1))
        # What takes less than a second takes one.
        seconds = max(self.seconds, 1)
        unit, size = next(one for one in units if seconds >= one[1])
        number = float(f"{seconds / size:.2g}")
        plural = "s" if unit in ("day", "hour") and number != 1 else ""
        return f"{number:g} {unit}{plural}" + ("" if self.measured else " (estimate)")


def promised(experiment: str, preset: str, config: object, estimate: Duration) -> Duration:
    """What was measured for these settings, otherwise the estimate, which says that it is one."""
    found = measured().get(f"{experiment} {preset}")
    if found is None or found["config"] != fingerprint(config):
        return dataclasses.replace(estimate, measured=False)
    return Duration(found["seconds"], measured=True)


@functools.cache
def measured() -> dict[str, dict[str, Any]]:
    """All measurements, by experiment and preset."""
    found = json.loads(FILE.read_text()) if FILE.exists() else {}
    for name, line in found.items():
        if set(line) != KEYS:
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
