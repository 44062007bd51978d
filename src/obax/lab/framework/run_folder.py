"""The folder of a run: what was run, how far it got, and its table, one number in each row.

    run.json              experiment, preset, configuration, versions, commit, command, progress
    checkpoints/*.parquet one table for each finished part, with its checksum in run.json
    metrics.parquet       the results in long form
    figures/, report.html

Every file is replaced atomically, and run.json names a part only after its file is written. A crash
therefore never leaves a half-written file that looks complete.

Every table has the core columns; an experiment declares its own (w, alpha, problem ...) with their
types. `method` is the label of a method for people and is never parsed: its options are columns.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._support import files
from ..._support.messages import UserError
from ..._support.names import versions
from .results import Value

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

    from ...integrations.dask import Seat

FORMAT = 2
"""The version of the table: 2 has options in columns of their own, 1 had them in the label."""
KEYS = {"experiment", "preset", "config", "command", "versions", "commit", "machine", "started"}
KEYS |= {"finished", "parts"}


class RunFolder:
    """The folder of one run. `info` is the content of run.json."""

    def __init__(self, path: Path, info: dict[str, Any]):
        self.path = path
        self.info = info

    @classmethod
    def create(cls, path: Path, experiment: str, preset: str, config: dict[str, Any]) -> RunFolder:
        """Create a new folder. Raise a `UserError` if it already holds something."""
        if path.is_file():
            raise UserError(f"{path} is a file, not a folder. Choose another --out.")
        # A run that was killed right after its start leaves only hidden files.
        if any(not file.name.startswith(".") for file in path.glob("*")):
            content = ""
            with contextlib.suppress(UserError):
                content = f": it holds a run of {cls.open(path).info['experiment']}"
            raise UserError(
                f"{path} is not empty{content}. Choose another --out, or continue with --resume."
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
        folder.lock()
        folder.save()
        return folder

    def lock(self) -> None:
        """Keep other processes from writing here while this object lives."""
        files.lock_folder(self.path, self)
        # No process is writing now, so that temporary files are left over from a crash.
        files.remove_leftovers(self.path)

    @classmethod
    def open(cls, path: Path, experiment: str | None = None) -> RunFolder:
        """Open the folder of an earlier run, and check its experiment if one is given."""
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
        """Open the folder of an earlier run with the same settings, to continue it."""
        folder = cls.open(path, experiment)
        stored = folder.info["config"]
        keys = sorted(k for k in stored.keys() | config.keys() if stored.get(k) != config.get(k))
        if keys:
            raise UserError(
                f"{path} was run with other settings ({', '.join(keys)}); --resume continues with "
                f"the same ones. Leave out --set, --seeds and --preset, or choose another --out."
            )
        folder.lock()
        return folder

    def save(self) -> None:
        """Write run.json."""
        files.write_text(self.path / "run.json", json.dumps(self.info, indent=2) + "\n")

    def save_part(
        self, name: str, rows: pd.DataFrame, seconds: float, **origin: str | None
    ) -> pd.DataFrame:
        """Save the rows of a finished part and return them as they will be read again."""
        data = to_parquet(rows)
        file = f"checkpoints/{name}.parquet"
        files.write_bytes(self.path / file, data)
        self.info["parts"][name] = {
            "file": file,
            "sha256": files.checksum(data),
            "seconds": round(seconds, 3),
            **origin,
        }
        self.save()
        return read_parquet(data)

    def save_workers(self, seats: Sequence[Seat]) -> None:
        """Write what each worker does to run.json, if it has changed."""
        workers = [dataclasses.asdict(seat) for seat in seats]
        if workers != self.info.get("workers"):
            self.info["workers"] = workers
            self.save()

    def read_part(self, name: str) -> pd.DataFrame:
        """Return the rows of a finished part. Raise a `UserError` if its file is damaged."""
        entry = self.info["parts"][name]
        path = self.path / entry["file"]
        data = path.read_bytes() if path.is_file() else b""
        if files.checksum(data) != entry["sha256"]:
            state = "damaged: its checksum does not match" if data else "missing or empty"
            raise UserError(
                f"{path} is {state}. It is left as it is; to compute this part again, remove its "
                f"entry {name!r} from {self.path / 'run.json'} and run with --resume."
            )
        return read_parquet(data)

    def finish(self, table: pd.DataFrame) -> None:
        """Save the whole table and mark the run as finished."""
        data = to_parquet(table)
        path = self.path / "metrics.parquet"
        known = self.info.get("metrics_sha256")
        if known and path.is_file() and files.checksum(path.read_bytes()) != known:
            # The file was damaged after it was written: keep it for whoever wants to look at it.
            path.replace(path.with_suffix(".damaged"))
        files.write_bytes(path, data)
        self.info["metrics_sha256"] = files.checksum(data)
        self.info["finished"] = time.strftime("%Y-%m-%d %H:%M:%S")
        self.save()

    def table(self) -> pd.DataFrame:
        """Return the table of a finished run."""
        path = self.path / "metrics.parquet"
        if self.info.get("finished") is None or not path.is_file():
            raise UserError(
                f"{self.path} holds a run that is not finished; continue with: obax run "
                f"{self.info['experiment']} --out {self.path} --resume"
            )
        data = path.read_bytes()
        if files.checksum(data) != self.info.get("metrics_sha256"):
            raise UserError(
                f"{path} is damaged: its checksum does not match. obax run "
                f"{self.info['experiment']} --out {self.path} --resume writes it again from the "
                f"checkpoints and keeps this one as metrics.damaged."
            )
        return read_parquet(data)


def to_parquet(table: pd.DataFrame) -> bytes:
    """Return a table as the bytes of a Parquet file."""
    buffer = io.BytesIO()
    table.to_parquet(buffer, index=False)
    return buffer.getvalue()


def read_parquet(data: bytes) -> pd.DataFrame:
    """Return the table that `to_parquet` wrote."""
    import pandas as pd

    return pd.read_parquet(io.BytesIO(data))


def rejected_rounds(table: pd.DataFrame) -> int:
    """Return how many rounds were rejected in all runs of a table.

    The metric `rejected` counts the rounds rejected *so far* in a run. Runs are told apart by all
    columns other than t, metric and value.
    """
    counts = table[table["metric"] == "rejected"]
    run = [name for name in table.columns if name not in ("t", "metric", "value")]
    return int(counts.groupby(run, dropna=False)["value"].max().sum())


def commit() -> str | None:
    """Return the commit of the checkout that obax runs from, or `None`."""
    options = ["--always", "--exclude=*", "--abbrev=40", "--dirty= with changes"]
    command = ["git", "-C", str(Path(__file__).parent), "describe", *options]
    try:
        return subprocess.check_output(
            command, stderr=subprocess.DEVNULL, text=True, timeout=10
        ).strip()
    except (OSError, subprocess.SubprocessError):
        return None


# The core columns; those of an experiment stand between them.
FIRST = {"experiment": "str", "method": "str"}
LAST = {"seed": "int64", "t": "int64", "metric": "str", "value": "float64"}
# Types with a missing value that keep numbers whole: OGD has no window, and a window is no float.
DTYPES = {int: "Int64", float: "float64", str: "str", bool: "boolean"}


class Rows:
    """The rows of a part, gathered one block after the other."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Value]] = []

    def add(
        self, identifiers: Mapping[str, Value], t: ArrayLike, metrics: Mapping[str, ArrayLike]
    ) -> None:
        """Add metrics of round t, or of several rounds, under these columns."""
        times = np.atleast_1d(t).tolist()
        for metric, value in metrics.items():
            values = np.broadcast_to(np.asarray(value, np.float64), len(times)).tolist()
            self._rows += [
                {**identifiers, "t": time, "metric": metric, "value": number}
                for time, number in zip(times, values, strict=True)
            ]

    def table(self) -> pd.DataFrame:
        """Return all rows as a table. What a row does not have is missing there."""
        import pandas as pd

        return pd.DataFrame(self._rows)


def typed(table: pd.DataFrame, experiment: str, columns: Mapping[str, type]) -> pd.DataFrame:
    """Return the table of a part as it is stored: the declared columns in order and typed."""
    dtypes = FIRST | {name: DTYPES[kind] for name, kind in columns.items()} | LAST
    table = table.assign(experiment=experiment)
    missing, unknown = dtypes.keys() - {*table.columns}, {*table.columns} - dtypes.keys()
    if missing or unknown:
        faults = (", ".join(sorted(names)) or "none" for names in (missing, unknown))
        raise ValueError(
            f"the columns of {experiment} must be those it declares; missing: {next(faults)}, "
            f"unknown: {next(faults)}."
        )
    return table[list(dtypes)].astype(dtypes)
