"""The experiments of the paper: a registry, typed configs, run folders.

Nothing heavy is loaded to look at what there is; work and findings load theirs when called.
"""

from collections.abc import Callable
from pathlib import Path

from .._support.errors import UserError as UserError, nearest as nearest
from .compare import COMPARE
from .dynamic_regression import DYNAMIC_REGRESSION
from .kit import experiment as _kit
from .kit.config import with_changes, with_overrides as with_overrides
from .kit.experiment import Experiment as Experiment, Part as Part
from .kit.folder import RunFolder as RunFolder
from .loss_tuning import LOSS_TUNING
from .meta_learning import META_LEARNING
from .report import Findings

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (DYNAMIC_REGRESSION, COMPARE, *LOSS_TUNING, *META_LEARNING)
}


def find(name: str) -> Experiment:
    """The experiment of that name, or a `UserError` that suggests one."""
    if name not in EXPERIMENTS:
        known = ", ".join(EXPERIMENTS)
        raise UserError(f"unknown experiment {name!r}.{nearest(name, EXPERIMENTS)} Known: {known}.")
    return EXPERIMENTS[name]


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
    if isinstance(experiment, str):
        experiment = find(experiment)
    if config is None:
        config = preset_of(experiment, preset)
    config = with_changes(config, settings)
    path = new_folder(f"{experiment.name}-{preset}") if out is None else Path(out)
    return _kit.run(experiment, config, preset, path, resume=resume, on_part=on_part)


def preset_of(experiment: Experiment, preset: str) -> object:
    """The config of a preset, or a `UserError` that suggests one."""
    if preset not in experiment.presets:
        known, hint = ", ".join(experiment.presets), nearest(preset, experiment.presets)
        raise UserError(f"unknown preset {preset!r}.{hint} Known: {known}.")
    return experiment.presets[preset]


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
