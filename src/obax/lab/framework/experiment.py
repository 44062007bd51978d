"""The description of an experiment: its presets, its parts and its findings.

Presets are read without loading JAX, because `obax list` must not wait for it.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ..._support.messages import UserError
from .config import as_dict, from_dict
from .results import Claim, Findings
from .run_folder import RunFolder
from .table import typed

if TYPE_CHECKING:
    import pandas as pd

Parts: TypeAlias = "Mapping[str, Callable[[], pd.DataFrame]]"


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One experiment.

    - `columns`: the columns of its table besides the core ones, with their types.
    - `parts(config)`: pieces of work by name. Each returns rows of the table and is stored when it
      is done. Parts may share compiled functions, but never results: a part must give the same rows
      whether or not the others ran in the same process.
    - `make_findings(config, table)`: the content of the report. It reads nothing else, so that a
      report can be written again at any time.
    - `headline(rows)`: what the progress bar shows after a part.
    - `takes`: how long presets take, as measured.
    - `files`: the files of data sets that it reads if they are on this machine. Dask workers must
      have the same ones.
    - `chooses_parts`: the settings that decide which parts there are and change none of them, such
      as the methods. A run may reuse the parts of another one that differs in these.
    """

    name: str
    question: str
    summary: str
    data: str
    presets: Mapping[str, Any]
    columns: Mapping[str, type]
    parts: Callable[[Any], Parts]
    make_findings: Callable[[Any, pd.DataFrame], Findings]
    headline: Callable[[pd.DataFrame], str]
    takes: str = "not measured"
    files: tuple[str, ...] = ()
    chooses_parts: frozenset[str] = frozenset()

    def settings(self, values: dict[str, object]) -> Any:
        """Return the configuration that `as_dict` wrote."""
        return from_dict(type(next(iter(self.presets.values()))), values)

    def config(self, folder: RunFolder) -> Any:
        """Return the configuration of a run folder."""
        try:
            return self.settings(folder.info["config"])
        except (TypeError, ValueError) as error:
            raise UserError(
                f"{folder.path / 'run.json'} does not fit this version of {self.name}: {error}."
            ) from error

    def run_part(self, work: Callable[[], pd.DataFrame]) -> pd.DataFrame:
        """Do the work of a part and return its rows as they are stored."""
        return typed(work(), self.name, self.columns)

    def findings(self, config: Any, table: pd.DataFrame) -> Findings:
        """Return the findings. A claim about a method that was not run becomes "not tested"."""
        if lost := sorted({*self.columns} - {*table.columns}):
            raise UserError(
                f"the table was made by an older version of {self.name}: it lacks "
                f"{', '.join(lost)}. Run it again: obax run {self.name}"
            )
        findings = self.make_findings(config, table)
        if "kind" not in table:
            return findings
        kinds = set(table["kind"].dropna())
        windows = set(table["w"].dropna()) if "w" in table else None
        claims = [without_missing_evidence(claim, kinds, windows) for claim in findings.claims]
        return dataclasses.replace(findings, claims=claims)

    def finished_parts(
        self, config: Any, names: Sequence[str], folders: Sequence[Path]
    ) -> Iterator[tuple[str, pd.DataFrame, dict[str, Any]]]:
        """Yield the parts with these names that earlier runs have: name, rows, origin.

        An earlier run, finished or not, must have the same settings except for those that choose
        parts. A setting that it did not have yet counts as its default.
        """
        left = list(names)
        for path in folders:
            earlier = RunFolder.open(path, self.name)
            theirs, ours = as_dict(self.config(earlier)), as_dict(config)
            other = sorted(k for k in ours.keys() - self.chooses_parts if ours[k] != theirs[k])
            if other:
                raise UserError(
                    f"the parts of {path} cannot be used: it was run with other settings "
                    f"({', '.join(other)})."
                )
            origin = {"from": str(path.resolve()), "commit": earlier.info["commit"]}
            for name in [name for name in left if name in earlier.info["parts"]]:
                rows = earlier.read_part(name)
                # Columns of options that methods did not have then.
                absent = {column: None for column in self.columns if column not in rows}
                rows = typed(rows.assign(**absent), self.name, self.columns)
                left.remove(name)
                seconds = earlier.info["parts"][name]["seconds"]
                yield name, rows, {**origin, "seconds": seconds}


def without_missing_evidence(claim: Claim, kinds: set[str], windows: set[int] | None) -> Claim:
    """Return the claim, not tested if a kind of method or a window that it is about is missing."""
    missing = [kind for kind in claim.kinds if kind not in kinds]
    missing += [f"w = {w}" for w in claim.windows if windows is not None and w not in windows]
    if not missing or claim.verdict == "not tested":
        return claim
    words = f"these runs cannot tell: {', '.join(missing)} did not run"
    return dataclasses.replace(claim, measured=words, verdict="not tested")


def experiment_of(
    package: str,
    presets: Mapping[str, Any],
    *,
    headline: tuple[str, str] | None = None,
    **about: Any,
) -> Experiment:
    """Return the experiment whose parts and findings are in the modules of a package."""
    return Experiment(
        presets=presets,
        parts=load_when_called(f"{package}.work", "parts"),
        make_findings=load_when_called(f"{package}.findings", "findings"),
        headline=load_when_called(*(headline or (f"{package}.findings", "headline"))),
        **about,
    )


def load_when_called(module: str, name: str) -> Callable:
    """Return a function that loads the module of another function when it is called."""

    def call(*arguments: object) -> object:
        return getattr(importlib.import_module(module), name)(*arguments)

    return call
