"""The experiments of the paper: a registry, typed configs, run folders.

Nothing heavy is loaded to look at what there is; work and findings load theirs when called.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from .._support.errors import UserError as UserError, nearest as nearest
from .compare import COMPARE
from .dynamic_regression import DYNAMIC_REGRESSION
from .kit.config import as_dict, with_changes, with_overrides as with_overrides
from .kit.experiment import Experiment as Experiment, Part as Part
from .kit.folder import RunFolder as RunFolder
from .loss_tuning import LOSS_TUNING
from .meta_learning import META_LEARNING
from .report import Findings

T = TypeVar("T")
EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (DYNAMIC_REGRESSION, COMPARE, *LOSS_TUNING, *META_LEARNING)
}


def find(name: str) -> Experiment:
    """The experiment of that name, or a `UserError` that suggests one."""
    return _named("experiment", name, EXPERIMENTS)


def preset_of(experiment: Experiment, preset: str) -> object:
    """The config of a preset, or a `UserError` that suggests one."""
    return _named("preset", preset, experiment.presets)


def _named(what: str, name: str, known: Mapping[str, T]) -> T:
    if name not in known:
        hint = nearest(name, known)
        raise UserError(f"unknown {what} {name!r}.{hint} Known: {', '.join(known)}.")
    return known[name]


def run(
    experiment: str | Experiment,
    config: object = None,
    preset: str = "quick",
    out: str | Path | None = None,
    *,
    resume: bool = False,
    on_part: Callable[[int, int, str], None] = lambda done, total, headline: None,
    **settings: object,
) -> RunFolder:
    """Run an experiment, by its name, into a folder, or go on with one.

    The config is that of the preset unless one is given, with `settings` changed; the folder is by
    default a new one below `runs/`. `on_part(done, total, headline)` is called before the first
    part and after each. What the run found: `obax.lab.findings(folder)`.

        folder = obax.lab.run("dynamic-regression", seeds=2, horizon=500)
        obax.lab.report.write(folder.path, folder.info, obax.lab.findings(folder))
    """
    import pandas as pd

    if isinstance(experiment, str):
        experiment = find(experiment)
    config = with_changes(preset_of(experiment, preset) if config is None else config, settings)
    path = new_folder(f"{experiment.name}-{preset}") if out is None else Path(out)
    if resume:
        folder = RunFolder.resume(path, experiment.name, as_dict(config))
    else:
        folder = RunFolder.create(path, experiment.name, preset, as_dict(config))
    parts, tables, headline = experiment.parts(config), [], ""
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


def new_folder(stem: str) -> Path:
    """The first of runs/stem, runs/stem-2, ... that is not there."""
    path, number = Path("runs") / stem, 2
    while path.exists():
        path, number = Path("runs") / f"{stem}-{number}", number + 1
    return path


def findings(folder: RunFolder) -> Findings:
    """What a finished run says: claims, figures, tables, words."""
    experiment = find(folder.info["experiment"])
    return experiment.findings(experiment.config(folder), folder.table())
