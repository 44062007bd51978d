"""What an experiment is.

Its settings are read without loading what it works with: `obax list` must not wait for JAX.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..._support.errors import UserError
from ..report import Findings
from .config import from_dict
from .durations import Duration as Duration, promised
from .folder import RunFolder
from .table import typed
from .verdict import not_run

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
    nothing but the config and the table, so that a report can be made again at any time. `files`
    are those of data sets that it reads if they are at hand: workers must have the same ones.
    `choosing` are the settings that say which parts there are and change none of them, such as the
    methods: a run may take parts over from one that differs in these.
    """

    name: str
    question: str
    summary: str
    data: str
    presets: Mapping[str, Any]
    durations: Mapping[str, Duration]
    columns: Mapping[str, type]
    parts: Callable[[Any], Sequence[Part]]
    findings: Callable[[Any, pd.DataFrame], Findings]
    headline: Callable[[pd.DataFrame], str]
    files: tuple[str, ...] = ()
    choosing: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        # Here, so that no experiment can pass a verdict on what it did not run.
        object.__setattr__(
            self, "findings", _within_evidence(self.findings, self.name, self.columns)
        )

    def config(self, folder: RunFolder) -> Any:
        """The config that a run folder was made with."""
        try:
            return self.settings(folder.info["config"])
        except (TypeError, ValueError) as error:
            raise UserError(
                f"{folder.path / 'run.json'} does not fit this version of {self.name}: {error}."
            ) from error

    def settings(self, values: dict[str, object]) -> Any:
        """The config again, from what `as_dict` made of it."""
        return from_dict(type(self.presets["quick"]), values)

    def work(self, part: Part) -> pd.DataFrame:
        """Do a part; its rows as they are stored."""
        return typed(part.work(), self.name, self.columns)


def _within_evidence(
    findings: Callable[[Any, pd.DataFrame], Findings], name: str, columns: Iterable[str]
) -> Callable[[Any, pd.DataFrame], Findings]:
    """Findings whose claims are not tested where a method that they name did not run; from a table
    that has all its columns."""

    @functools.wraps(findings)
    def checked(config: Any, table: pd.DataFrame) -> Findings:
        if lost := sorted({*columns} - {*table.columns}):
            raise UserError(
                f"the table was made by an older version of {name}: it lacks {', '.join(lost)}. "
                f"Run it again: obax run {name}"
            )
        found = findings(config, table)
        if not found.claims or "kind" not in table:
            return found
        windows = table["w"].dropna().unique() if "w" in table else None
        claims = []
        for claim in found.claims:
            missing = not_run(claim.claimed, table["kind"].unique(), windows)
            if missing and claim.verdict != "not tested":
                words = f"these runs cannot tell: {', '.join(missing)} did not run"
                claim = dataclasses.replace(claim, measured=words, verdict="not tested")
            claims.append(claim)
        return dataclasses.replace(found, claims=claims)

    return checked


def described(
    package: str,
    presets: Mapping[str, Any],
    *,
    name: str,
    kind: tuple[str, ...] = (),
    headline: Callable[[pd.DataFrame], str] | None = None,
    **about: Any,
) -> Experiment:
    """The experiment of a package, by its `work.parts` and `findings.findings`, which may be told
    the `kind` that it is one of."""
    return Experiment(
        name=name,
        presets=presets,
        durations={preset: promised(name, preset, config) for preset, config in presets.items()},
        parts=later(f"{package}.work", "parts"),
        findings=functools.partial(later(f"{package}.findings", "findings"), *kind),
        headline=headline or later(f"{package}.findings", "headline"),
        **about,
    )


def later(module: str, name: str) -> Callable:
    """The function of that name, whose module is loaded when it is called."""

    def call(*arguments: object) -> object:
        return getattr(importlib.import_module(module), name)(*arguments)

    return call


def seed_by_seed(config: Any, compare: Callable[[Any, Any, int], pd.DataFrame]) -> list[Part]:
    """`compare(config, method, seed)` as parts, in an order that loads the data of a seed once."""
    return [
        Part(f"seed{seed}-{name}", functools.partial(compare, config, method, seed))
        for seed in range(config.seeds)
        for name, method in config.runs().items()
        if seed < config.seeds_of(method)
    ]
