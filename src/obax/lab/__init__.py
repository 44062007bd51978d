"""The experiments of the paper: a registry, typed configs, run folders.

Nothing heavy is loaded to look at what there is; work and findings load theirs when called.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from .._support.errors import UserError as UserError, nearest as nearest
from .comparison import COMPARE
from .dynamic_regression import DYNAMIC_REGRESSION
from .kit.config import as_dict, with_changes, with_overrides as with_overrides
from .kit.experiment import Experiment as Experiment, Part as Part
from .kit.folder import RunFolder as RunFolder
from .kit.reuse import finished_parts
from .loss_tuning import LOSS_TUNING
from .meta_learning import META_LEARNING
from .report import Findings

if TYPE_CHECKING:
    import pandas as pd
    from distributed import Client

    from ..integrations.dask import Seat
    from .comparison.own import compare as compare

T = TypeVar("T")
EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (DYNAMIC_REGRESSION, COMPARE, *LOSS_TUNING, *META_LEARNING)
}


def __getattr__(name: str) -> object:
    if name != "compare":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .comparison.own import compare

    return compare


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
    reuse: Sequence[str | Path] = (),
    on_part: Callable[[int, int, str], None] = lambda done, total, headline: None,
    client: "Client | None" = None,
    **settings: object,
) -> RunFolder:
    """Run an experiment, by its name, into a folder, or go on with one.

    The config is that of the preset unless one is given, with `settings` changed; the folder is by
    default a new one below `runs/`. `on_part(done, total, headline)` is called before the first
    part and after each. With `client`, a `dask.distributed.Client`, the workers of its cluster do
    the parts (docs/workers.md); the table is the same. Parts that the run folders of `reuse` have,
    of runs with other methods or numbers of seeds and else the same settings, are taken from there;
    run.json says of each where it came from. What the run found: `obax.lab.findings(folder)`.

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
    parts, headline = experiment.parts(config), ""
    # Looking at what is there also checks it.
    left = [part for part in parts if folder.part(part.name) is None]
    names, places = [part.name for part in left], [Path(one) for one in reuse]
    for name, table, about in finished_parts(experiment, config, names, places):
        folder.keep_part(name, table, **about)
    left = [part for part in left if part.name not in folder.info["parts"]]
    done = len(parts) - len(left)
    on_part(done, len(parts), headline)

    def on_change(seats: "list[Seat]") -> None:
        folder.keep_workers(seats)
        on_part(done, len(parts), f"{words(seats)}  {headline}")

    if client is None:
        folder.info.pop("workers", None)
        work = _one_by_one(experiment, left)
    else:
        from .kit.workers import tables, words

        work = tables(experiment, config, left, client, on_change)
    for name, table, seconds in work:
        folder.keep_part(name, table, seconds)
        # Through the disk, as after a resume, so that both give the same bytes.
        kept = folder.part(name)
        assert kept is not None
        done, headline = done + 1, experiment.headline(kept)
        on_part(done, len(parts), headline)
    folder.finish(pd.concat([folder.part(part.name) for part in parts], ignore_index=True))
    return folder


def _one_by_one(
    experiment: Experiment, parts: "Sequence[Part]"
) -> "Iterator[tuple[str, pd.DataFrame, float]]":
    """The parts in this process."""
    for part in parts:
        begun = time.perf_counter()
        table = experiment.work(part)
        yield part.name, table, time.perf_counter() - begun


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
