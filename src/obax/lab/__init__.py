"""The experiments of the paper: settings, run folders, reports.

Listing the experiments loads nothing heavy, and running one loads only that one.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from .._support.messages import UserError as UserError, nearest
from .framework.config import as_dict, with_changes, with_overrides as with_overrides
from .framework.experiment import Experiment as Experiment
from .framework.results import Findings
from .framework.run_folder import RunFolder as RunFolder

if TYPE_CHECKING:
    from distributed import Client

    from ..integrations.dask import Seat
    from . import report as report
    from .comparison.compare import compare as compare

T = TypeVar("T")
EXPERIMENTS = {
    "dynamic-regression": "obax.lab.dynamic_regression",
    "compare": "obax.lab.comparison",
    "mnist-imbalance": "obax.lab.loss_tuning",
    "mnist-shift": "obax.lab.loss_tuning",
    "adult": "obax.lab.loss_tuning",
    "tadpole": "obax.lab.loss_tuning",
    "fc100": "obax.lab.meta_learning",
    "miniimagenet": "obax.lab.meta_learning",
}
"""The module that makes each experiment, with its function `experiment(name)`."""
FORMER_NAMES = {
    "mnist-window": ("mnist-imbalance", "window"),
    "adult-inner-step": ("adult", "inner-step"),
    "adult-outer-step": ("adult", "outer-step"),
    "tadpole-inner-step": ("tadpole", "inner-step"),
    "tadpole-outer-step": ("tadpole", "outer-step"),
    "fc100-window": ("fc100", "window"),
    "miniimagenet-inner-steps": ("miniimagenet", "inner-steps"),
}
"""Experiments of earlier versions that are presets now."""


def __getattr__(name: str) -> Any:
    if name == "compare":
        from .comparison.compare import compare

        return compare
    if name == "report":
        return importlib.import_module(f"{__name__}.report")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def find(name: str) -> Experiment:
    """Return the experiment of that name, or raise a `UserError` that suggests one."""
    if name in FORMER_NAMES:
        experiment, preset = FORMER_NAMES[name]
        raise UserError(
            f"{name} is a preset now: obax run {experiment} --preset {preset} (or {preset}-quick)."
        )
    return importlib.import_module(_known("experiment", name, EXPERIMENTS)).experiment(name)


def preset_of(experiment: Experiment, preset: str) -> object:
    """Return the configuration of a preset, or raise a `UserError` that suggests one."""
    return _known("preset", preset, experiment.presets)


def _known(what: str, name: str, known: Mapping[str, T]) -> T:
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
    reuse: Sequence[str | Path] = (),
    on_part: Callable[[int, int, str], None] = lambda done, total, headline: None,
    client: "Client | None" = None,
    **settings: object,
) -> RunFolder:
    """Run an experiment into a folder, or continue one.

    The configuration is that of the preset unless one is given, changed by `settings`. The folder
    is a new one in `runs/` by default. `on_part(done, total, headline)` is called before the first
    part and after each. With `client`, a `dask.distributed.Client`, the workers of its cluster do
    the parts (docs/workers.md); the table is the same. Parts that the run folders in `reuse` have
    are taken from there, if those runs differ only in their methods or seeds; run.json records the
    origin of each part. `obax.lab.findings(folder)` returns what the run found.

        folder = obax.lab.run("dynamic-regression", seeds=2, horizon=500)
        obax.lab.report.write(folder.path, folder.info, obax.lab.findings(folder))
    """
    import pandas as pd

    from .watch_page import WatchPage

    if isinstance(experiment, str):
        experiment = find(experiment)
    config = with_changes(preset_of(experiment, preset) if config is None else config, settings)
    path = new_folder(f"{experiment.name}-{preset}") if out is None else Path(out)
    if resume:
        folder = RunFolder.resume(path, experiment.name, as_dict(config))
    else:
        folder = RunFolder.create(path, experiment.name, preset, as_dict(config))
    page, parts, headline = WatchPage(folder), experiment.parts(config), ""
    # Reading the finished parts also checks them.
    tables = {name: folder.read_part(name) for name in parts if name in folder.info["parts"]}
    left = [name for name in parts if name not in tables]
    for name, rows, origin in experiment.finished_parts(config, left, map(Path, reuse)):
        tables[name] = folder.save_part(name, rows, **origin)
    left = [name for name in left if name not in tables]
    page.update(now=True)
    on_part(len(tables), len(parts), headline)
    work: Any
    if client is None:
        folder.info.pop("workers", None)
        work = (experiment.run_part(name, parts[name]) for name in left)
    else:
        from .framework import workers

        def on_change(seats: "list[Seat]") -> None:
            folder.save_workers(seats)
            page.update()
            on_part(len(tables), len(parts), f"{workers.describe(seats)}  {headline}")

        work = workers.run_parts(experiment, config, left, client, on_change)
    for name, rows, seconds in work:
        tables[name] = folder.save_part(name, rows, seconds)
        headline = experiment.headline(tables[name])
        page.update()
        on_part(len(tables), len(parts), headline)
    folder.finish(pd.concat([tables[name] for name in parts], ignore_index=True))
    page.update(now=True)
    return folder


def new_folder(stem: str) -> Path:
    """Return the first of runs/stem, runs/stem-2, ... that does not exist."""
    path, number = Path("runs") / stem, 2
    while path.exists():
        path, number = Path("runs") / f"{stem}-{number}", number + 1
    return path


def findings(folder: RunFolder) -> Findings:
    """Return the findings of a finished run: answers, claims, figures, tables."""
    experiment = find(folder.info["experiment"])
    return experiment.findings(experiment.config(folder), folder.table())
