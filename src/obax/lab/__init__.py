"""The experiments of the paper: a registry, typed configs, run folders."""

from .._support.errors import UserError as UserError, nearest as nearest
from .compare import COMPARE
from .dynamic_regression import DYNAMIC_REGRESSION
from .kit.config import with_overrides as with_overrides
from .kit.experiment import Experiment as Experiment, Part as Part, run as run
from .kit.folder import RunFolder as RunFolder
from .loss_tuning import LOSS_TUNING
from .meta_learning import META_LEARNING

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
