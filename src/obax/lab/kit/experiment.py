"""What an experiment is, and how one is run: part by part, each saved as soon as it is done."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ..._support import atomic
from ..._support.errors import UserError
from ..report import Findings
from .config import as_dict, from_dict
from .folder import COLUMNS, RunFolder


@dataclasses.dataclass(frozen=True)
class Part:
    """A piece of work that is saved when it is done: `work()` gives rows of the table.

    Parts of one experiment may share compiled functions, never results: each must come out the same
    whether or not the others ran in the same process.
    """

    name: str
    work: Callable[[], pd.DataFrame]


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One experiment: its settings, its parts, and what its table says.

    `findings` reads nothing but the config and the table, so that a report can be made again at any
    time.
    """

    name: str
    summary: str
    data: str
    presets: dict[str, Any]
    durations: dict[str, str]
    parts: Callable[[Any], Sequence[Part]]
    findings: Callable[[Any, pd.DataFrame], Findings]
    headline: Callable[[pd.DataFrame], str]

    def config(self, folder: RunFolder) -> Any:
        """The config that a run folder was made with."""
        try:
            return from_dict(type(self.presets["quick"]), folder.info["config"])
        except (TypeError, ValueError) as error:
            raise UserError(
                f"{folder.path / 'run.json'} does not fit this version of {self.name}: {error}."
            ) from error


def run(
    experiment: Experiment,
    config: Any,
    preset: str,
    out: Path,
    *,
    resume: bool = False,
    on_part: Callable[[int, int, str], None] = lambda done, total, headline: None,
) -> RunFolder:
    """Run an experiment into a folder, or go on with one.

    `on_part(done, total, headline)` is called before the first part and after each.
    """
    folder = _folder_for(experiment, config, preset, out, resume)
    parts = experiment.parts(config)
    tables = []
    headline = ""
    for done, part in enumerate(parts):
        on_part(done, len(parts), headline)
        table = folder.part(part.name)
        if table is None:
            begun = time.perf_counter()
            table = part.work()
            table.insert(0, "experiment", experiment.name)
            folder.keep_part(part.name, table[list(COLUMNS)], time.perf_counter() - begun)
            # Through the disk, as after a resume, so that both give the same bytes.
            table = folder.part(part.name)
            assert table is not None
        headline = experiment.headline(table)
        tables.append(table)
    on_part(len(parts), len(parts), headline)
    folder.finish(pd.concat(tables, ignore_index=True))
    return folder


def _folder_for(
    experiment: Experiment, config: Any, preset: str, out: Path, resume: bool
) -> RunFolder:
    if not resume:
        return RunFolder.create(out, experiment.name, preset, as_dict(config))
    folder = RunFolder.open(out)
    if folder.info["experiment"] != experiment.name:
        raise UserError(
            f"{out} holds a run of {folder.info['experiment']}, not of {experiment.name}."
        )
    if folder.info["config"] != as_dict(config):
        stored, wanted = folder.info["config"], as_dict(config)
        keys = sorted(k for k in stored.keys() | wanted.keys() if stored.get(k) != wanted.get(k))
        raise UserError(
            f"{out} was run with other settings ({', '.join(keys)}); --resume goes on with the "
            f"same ones. Leave out --set, --seeds and --preset, or choose another --out."
        )
    atomic.sweep_up(out)
    return folder
