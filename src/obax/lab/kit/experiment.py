"""What an experiment is, and how one is run: part by part, each saved as soon as it is done.

Its settings are read without loading what it works with: `obax list` must not wait for JAX.
"""

from __future__ import annotations

import dataclasses
import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..._support import atomic
from ..._support.errors import UserError
from ..report import Findings
from .config import as_dict, from_dict
from .folder import RunFolder
from .table import typed

if TYPE_CHECKING:
    import pandas as pd


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

    `columns` are those that its table has besides the core ones, with their types. `findings` reads
    nothing but the config and the table, so that a report can be made again at any time.
    """

    name: str
    summary: str
    data: str
    presets: Mapping[str, Any]
    durations: Mapping[str, str]
    columns: Mapping[str, type]
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

    def work(self, part: Part) -> pd.DataFrame:
        """Do a part; its rows as they are stored."""
        return typed(part.work(), self.name, self.columns)


def later(module: str, name: str) -> Callable:
    """The function of that name, whose module is loaded when it is called."""

    def call(*arguments: object) -> object:
        return getattr(importlib.import_module(module), name)(*arguments)

    return call


def run(
    experiment: Experiment,
    config: object,
    preset: str,
    out: Path,
    *,
    resume: bool = False,
    on_part: Callable[[int, int, str], None] = lambda done, total, headline: None,
) -> RunFolder:
    """Run an experiment into a folder, or go on with one.

    `on_part(done, total, headline)` is called before the first part and after each.
    """
    import pandas as pd

    folder = _folder_for(experiment, config, preset, out, resume)
    parts = experiment.parts(config)
    tables = []
    headline = ""
    for done, part in enumerate(parts):
        on_part(done, len(parts), headline)
        table = folder.part(part.name)
        if table is None:
            begun = time.perf_counter()
            table = experiment.work(part)
            folder.keep_part(part.name, table, time.perf_counter() - begun)
            # Through the disk, as after a resume, so that both give the same bytes.
            table = folder.part(part.name)
            assert table is not None
        headline = experiment.headline(table)
        tables.append(table)
    on_part(len(parts), len(parts), headline)
    folder.finish(pd.concat(tables, ignore_index=True))
    return folder


def _folder_for(
    experiment: Experiment, config: object, preset: str, out: Path, resume: bool
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
