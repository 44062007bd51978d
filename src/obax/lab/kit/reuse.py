"""Parts of an earlier run taken over into a new one, instead of being computed again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..._support.errors import UserError
from .config import as_dict
from .folder import RunFolder
from .table import typed

if TYPE_CHECKING:
    import pandas as pd

    from .experiment import Experiment


def finished_parts(
    experiment: Experiment, config: Any, names: Sequence[str], folders: Sequence[Path]
) -> Iterator[tuple[str, pd.DataFrame, dict[str, Any]]]:
    """Of the parts with these names those that earlier runs have: name, table, and what run.json is
    to say of it. An earlier run, finished or not, must be of the same experiment with the same
    settings, but for those that choose parts; settings that it did not know are as usual."""
    left = list(names)
    for path in folders:
        earlier = RunFolder.open(path, experiment.name)
        theirs, ours = as_dict(experiment.config(earlier)), as_dict(config)
        other = sorted(key for key in ours.keys() - experiment.choosing if ours[key] != theirs[key])
        if other:
            raise UserError(
                f"the parts of {path} cannot be used: it was run with other settings "
                f"({', '.join(other)})."
            )
        about = {"from": str(path.resolve()), "commit": earlier.info["commit"]}
        for name in [name for name in left if name in earlier.info["parts"]]:
            table = earlier.part(name)
            assert table is not None
            # A setting that methods did not have then.
            absent = {column: None for column in experiment.columns if column not in table}
            table = typed(table.assign(**absent), experiment.name, experiment.columns)
            seconds = earlier.info["parts"][name]["seconds"]
            left.remove(name)
            yield name, table, {**about, "seconds": seconds}
