"""The description of an experiment: its presets, its parts, its findings and their texts.

Presets are read without loading JAX, because `obax list` must not wait for it.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ..._support.messages import UserError
from .config import as_dict, from_dict
from .results import Claim, Figure, Findings, Table
from .run_folder import RunFolder, typed

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

    @classmethod
    @functools.cache
    def of(cls, package: str, name: str) -> Experiment:
        """Return the experiment of a package, whose modules are loaded when they are used.

        `config` has `Config` and `COLUMNS`, `work` has `parts`, and `findings` has `findings` and
        `headline`. `presets.toml` has what `obax list` shows, and settings: those of all presets,
        of each size, of each study.
        """
        config = importlib.import_module(f"{package}.config")
        path = Path(str(config.__file__)).with_name("presets.toml")
        entries = tomllib.loads(path.read_text(encoding="utf-8"))
        about = entries[name]
        common, changes = about.pop("settings", {}), about.pop("changes", {})
        sizes, presets = entries["sizes"][about.pop("sizes")], {}
        for study, of_study in {"": {}, **about.pop("studies", {})}.items():
            for size, of_size in sizes.items():
                # The study in the size of the paper has the name of the study alone.
                preset = f"{study}-{size}".removesuffix("-paper" if study else "").lstrip("-")
                values = common | of_size | of_study | changes.get(preset, {})
                presets[preset] = from_dict(config.Config, values)
        return cls(
            name,
            presets=presets,
            columns=config.COLUMNS,
            parts=functools.partial(_call, f"{package}.work", "parts"),
            make_findings=functools.partial(_call, f"{package}.findings", "findings"),
            headline=functools.partial(_call, f"{package}.findings", "headline"),
            files=tuple(about.pop("files", ())),
            chooses_parts=frozenset(entries.get("chooses_parts", ())),
            **about,
        )

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

    def run_part(
        self, name: str, work: Callable[[], pd.DataFrame]
    ) -> tuple[str, pd.DataFrame, float]:
        """Do the work of a part. Return its name, its rows as they are stored, and the seconds."""
        begun = time.perf_counter()
        rows = typed(work(), self.name, self.columns)
        return name, rows, time.perf_counter() - begun

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
        self, config: Any, names: Sequence[str], folders: Iterable[Path]
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


def _call(module: str, function: str, *arguments: object) -> Any:
    """Load a module and call one of its functions."""
    return getattr(importlib.import_module(module), function)(*arguments)


def without_missing_evidence(claim: Claim, kinds: set[str], windows: set[int] | None) -> Claim:
    """Return the claim, not tested if a kind of method or a window that it is about is missing."""
    missing = [kind for kind in claim.kinds if kind not in kinds]
    missing += [f"w = {w}" for w in claim.windows if windows is not None and w not in windows]
    if not missing or claim.verdict == "not tested":
        return claim
    words = f"these runs cannot tell: {', '.join(missing)} did not run"
    return dataclasses.replace(claim, measured=words, verdict="not tested")


class Texts:
    """The texts of a report: the jinja2 templates in `report.toml` beside the experiment's modules.

    Each is filled with the `values` of the report and stripped of its line breaks.
    """

    def __init__(self, module: str, **values: Any):
        import jinja2

        path = Path(module).with_name("report.toml")
        self.templates: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        self._environment = jinja2.Environment(undefined=jinja2.StrictUndefined)
        self.values = values

    def fill(self, template: str, **values: Any) -> str:
        """Return a template filled with the values of the report and these ones."""
        filled = self._environment.from_string(template).render(self.values | values)
        return " ".join(filled.split())

    def __call__(self, name: str, **values: Any) -> str:
        """Return a text of the section [texts]."""
        return self.fill(self.templates["texts"][name], **values)

    def table(self, name: str, frame: pd.DataFrame, **values: Any) -> Table:
        """Return a table with the title and caption of the section [tables]."""
        about = {k: self.fill(v, **values) for k, v in self.templates["tables"][name].items()}
        return Table(name, frame=frame, **about)

    def figure(self, key: str, series: Sequence[Any], name: str = "", **values: Any) -> Figure:
        """Return a figure with the texts of the section [figures]; `name` is the key by default."""
        texts = self.templates["figures"][key].items()
        about: dict[str, Any] = {k: self.fill(v, **values) for k, v in texts}
        about |= {axis: bool(about.get(axis)) for axis in ("log_x", "log_y")}
        return Figure(name or key, series=series, **about)

    def claim(self, key: str, measured: str, verdict: str, setting: str, **values: Any) -> Claim:
        """Return a claim with the texts of the section [claims], and what it is about."""
        about = self.templates["claims"][key]
        kinds = [self.fill(kind, **values) for kind in about["kinds"]]
        id, claimed = (self.fill(about[name], **values) for name in ("id", "claimed"))
        return Claim(id, claimed, measured, verdict, setting, kinds, about.get("windows", ()))

    def paragraphs(self) -> list[str]:
        """Return the paragraphs on how it was measured, without those that are empty."""
        return list(filter(None, map(self.fill, self.templates["paragraphs"]["method"])))
