"""A run folder: what was run, how far it got, its table.

    run.json              experiment, preset, full config, versions, commit, command, progress
    checkpoints/*.parquet one table for each finished part, with its checksum in run.json
    metrics.parquet       the results, long form, see `table`
    figures/, report.html

Every file is replaced atomically, and run.json names a part only after the part is on disk:
whatever happens, what reads as whole is whole.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..._support import atomic, lock
from ..._support.errors import UserError
from ..._support.versions import versions

if TYPE_CHECKING:
    import pandas as pd

    from ...integrations.dask import Seat

FORMAT = 2
"""Of the table: 2 has the settings in columns of their own, 1 had them in words."""
KEYS = {"experiment", "preset", "config", "command", "versions", "commit", "machine", "started"}
KEYS |= {"finished", "parts"}


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: Path, info: dict[str, Any]):
        self.path = path
        self.info = info

    @classmethod
    def create(cls, path: Path, experiment: str, preset: str, config: dict[str, Any]) -> RunFolder:
        """A new folder; rejects one that holds anything."""
        if path.exists() and not path.is_dir():
            raise UserError(f"{path} is a file, not a folder. Choose another --out.")
        left = {file.name for file in path.iterdir()} if path.exists() else set()
        # What a start that was killed at once leaves behind is nothing.
        if any(not name.startswith(".") for name in left):
            raise UserError(
                f"{path} is not empty{_what_is_in(path)}. Choose another --out, or go on with "
                f"--resume."
            )
        info = {
            "format": FORMAT,
            "experiment": experiment,
            "preset": preset,
            "config": config,
            "command": ["obax", *sys.argv[1:]],
            "versions": versions(),
            "commit": commit(),
            "machine": f"{platform.machine()}, {platform.system()}, {os.cpu_count()} cores",
            "started": time.strftime("%Y-%m-%d %H:%M:%S"),
            "finished": None,
            "parts": {},
        }
        folder = cls(path, info)
        path.mkdir(parents=True, exist_ok=True)
        folder.keep_to_itself()
        folder.save()
        return folder

    def keep_to_itself(self) -> None:
        """Let no other process write here while this object lives."""
        lock.hold(self.path, self)
        # Whatever lies aside now is nobody's.
        atomic.sweep_up(self.path)

    @classmethod
    def open(cls, path: Path, experiment: str | None = None) -> RunFolder:
        """The folder of an earlier run, of the experiment if one is given."""
        if not (path / "run.json").is_file():
            raise UserError(f"{path} is not a run folder: it has no run.json.")
        try:
            info = json.loads((path / "run.json").read_text())
            missing = KEYS - info.keys()
            if missing or not isinstance(info["parts"], dict):
                raise ValueError(f"it lacks {', '.join(sorted(missing)) or 'its parts'}")
        except (ValueError, AttributeError, UnicodeDecodeError) as error:
            raise UserError(
                f"{path / 'run.json'} is damaged ({error}). It is left as it is; move the folder "
                f"away and run again."
            ) from error
        if info.get("format") != FORMAT:
            age = "a newer" if info.get("format", 1) > FORMAT else "an older"
            raise UserError(
                f"{path} was made by {age} version of obax ({info['versions'].get('obax', '?')}), "
                f"whose table this version cannot read. Run it again: obax run "
                f"{info['experiment']} --preset {info['preset']}"
            )
        if experiment not in (None, info["experiment"]):
            raise UserError(f"{path} holds a run of {info['experiment']}, not of {experiment}.")
        return cls(path, info)

    @classmethod
    def resume(cls, path: Path, experiment: str, config: dict[str, Any]) -> RunFolder:
        """The folder of an earlier run with these settings, to go on with."""
        folder = cls.open(path, experiment)
        stored = folder.info["config"]
        keys = sorted(k for k in stored.keys() | config.keys() if stored.get(k) != config.get(k))
        if keys:
            raise UserError(
                f"{path} was run with other settings ({', '.join(keys)}); --resume goes on with "
                f"the same ones. Leave out --set, --seeds and --preset, or choose another --out."
            )
        folder.keep_to_itself()
        return folder

    def save(self) -> None:
        """Write run.json."""
        atomic.write_text(self.path / "run.json", json.dumps(self.info, indent=2) + "\n")

    def keep_part(
        self, name: str, table: pd.DataFrame, seconds: float, **about: str | None
    ) -> None:
        """Save the table of a finished part, then say that it is there, and what else is to be said
        about it."""
        data = parquet(table)
        file = f"checkpoints/{name}.parquet"
        atomic.write_bytes(self.path / file, data)
        self.info["parts"][name] = {
            "file": file,
            "sha256": atomic.checksum(data),
            "seconds": round(seconds, 3),
            **about,
        }
        self.save()

    def keep_workers(self, seats: Sequence[Seat]) -> None:
        """Say who does what, for those who watch; only if it is news."""
        found = [dataclasses.asdict(seat) for seat in seats]
        if found != self.info.get("workers"):
            self.info["workers"] = found
            self.save()

    def part(self, name: str) -> pd.DataFrame | None:
        """The table of a finished part, checked; `None` if it is not finished."""
        entry = self.info["parts"].get(name)
        if entry is None:
            return None
        path = self.path / entry["file"]
        data = path.read_bytes() if path.is_file() else b""
        if atomic.checksum(data) != entry["sha256"]:
            state = "damaged: its checksum does not match" if data else "missing or empty"
            raise UserError(
                f"{path} is {state}. It is left as it is; to compute this part again, remove its "
                f"entry {name!r} from {self.path / 'run.json'} and run with --resume."
            )
        return read_parquet(data)

    def finish(self, table: pd.DataFrame) -> None:
        """Save the whole table."""
        data = parquet(table)
        path = self.path / "metrics.parquet"
        known = self.info.get("metrics_sha256")
        if known and path.is_file() and atomic.checksum(path.read_bytes()) != known:
            # Damaged since: kept for whoever wants to look at it.
            path.replace(path.with_suffix(".damaged"))
        atomic.write_bytes(path, data)
        self.info["metrics_sha256"] = atomic.checksum(data)
        self.info["finished"] = time.strftime("%Y-%m-%d %H:%M:%S")
        self.save()

    def table(self) -> pd.DataFrame:
        """The results of a finished run."""
        path = self.path / "metrics.parquet"
        if self.info.get("finished") is None or not path.is_file():
            raise UserError(
                f"{self.path} holds a run that is not finished; go on with: obax run "
                f"{self.info['experiment']} --out {self.path} --resume"
            )
        data = path.read_bytes()
        if atomic.checksum(data) != self.info.get("metrics_sha256"):
            raise UserError(
                f"{path} is damaged: its checksum does not match. obax run "
                f"{self.info['experiment']} --out {self.path} --resume writes it again from the "
                f"checkpoints and keeps this one as metrics.damaged."
            )
        return read_parquet(data)


def read_parquet(data: bytes) -> pd.DataFrame:
    """A table, from what `parquet` wrote."""
    import pandas as pd

    return pd.read_parquet(io.BytesIO(data))


def rejected_rounds(table: "pd.DataFrame") -> int:
    """How many rounds the guard has rejected, over all runs of the table.

    The metric `rejected` is the count *so far* in round t of a run, and a run is what the columns
    other than t, metric and value tell apart.
    """
    counts = table[table["metric"] == "rejected"]
    run = [name for name in table.columns if name not in ("t", "metric", "value")]
    return int(counts.groupby(run, dropna=False)["value"].max().sum())


def parquet(table: pd.DataFrame) -> bytes:
    """A table as it is stored."""
    buffer = io.BytesIO()
    table.to_parquet(buffer, index=False)
    return buffer.getvalue()


def _what_is_in(path: Path) -> str:
    try:
        info = json.loads((path / "run.json").read_text())
        return f": it holds a run of {info['experiment']}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def commit() -> str | None:
    """The commit of the checkout that obax runs from, or `None`."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--exclude=*"]
    command += ["--abbrev=40", "--dirty= with changes"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if answer.returncode else answer.stdout.strip()
