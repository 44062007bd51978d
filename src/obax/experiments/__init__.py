"""The experiments of the paper: a registry, typed configs, run folders."""

from .._validate import nearest as nearest
from ._config import UserError as UserError, with_overrides as with_overrides
from ._experiment import Experiment as Experiment, Part as Part, run as run
from ._folder import RunFolder as RunFolder
from .compare import COMPARE
from .dynamic_regression import DYNAMIC_REGRESSION
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
