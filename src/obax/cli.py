"""The command line: `obax list | run | report | certify | data`.

Exit codes: 0 done; 1 a certificate was violated or a run failed; 2 something in the call is to be
mended; 130 interrupted.
"""

import dataclasses
import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table as ScreenTable

from . import __version__, datasets
from .streaming.command import stream
from .watch.command import watch

app = typer.Typer(
    name="obax",
    help="Online bilevel optimisation: tune hyperparameters while the data is still arriving.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
# Away from a terminal nobody wants lines folded at 80 columns.
console = Console(width=None if sys.stdout.isatty() else 160)
errors = Console(stderr=True)
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"obax {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    pass


@app.command("list")
def list_experiments(as_json: Json = False) -> None:
    """Show the experiments: what each shows, the data it needs, how long it takes."""
    from .experiments import EXPERIMENTS

    rows = [
        {
            "name": experiment.name,
            "shows": experiment.summary,
            "data": experiment.data,
            **{preset: experiment.durations[preset] for preset in experiment.presets},
        }
        for experiment in EXPERIMENTS.values()
    ]
    _show_rows(rows, as_json)


@app.command()
def run(
    name: Annotated[str, typer.Argument(help="An experiment, see `obax list`.")],
    preset: Annotated[
        str | None,
        typer.Option(help="quick (the default), paper (its sizes), or another of `obax list`."),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run folder; by default a new one below runs/.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; may be repeated."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an interrupted run in --out.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run an experiment and write its report."""
    from . import experiments, report
    from .experiments import RunFolder, UserError

    experiment = experiments.find(name)
    if resume:
        if out is None:
            raise UserError("--resume needs --out, the folder of the run to go on with.")
        stored = RunFolder.open(out)
        if stored.info["experiment"] != name:
            raise UserError(f"{out} holds a run of {stored.info['experiment']}, not of {name}.")
        preset = preset or stored.info["preset"]
    preset = preset or "quick"
    if preset not in experiment.presets:
        known = ", ".join(experiment.presets)
        hint = experiments.nearest(preset, experiment.presets)
        raise UserError(f"unknown preset {preset!r}.{hint} Known: {known}.")
    changes = list(settings or ()) + ([] if seeds is None else [f"seeds={seeds}"])
    start = experiment.presets[preset]
    if resume and preset == stored.info["preset"]:
        start = experiment.config(stored)
    config = experiments.with_overrides(start, changes)
    path = out or _new_folder(f"{name}-{preset}")

    try:
        with _bar(as_json) as bar:
            task = bar.add_task(name, total=None, now="")

            def on_part(done: int, total: int, headline: str) -> None:
                bar.update(task, completed=done, total=total, now=headline)

            folder = experiments.run(
                experiment, config, preset, path, resume=resume, on_part=on_part
            )
            findings = experiment.findings(config, folder.table())
            page = report.write(folder.path, folder.info, findings)
    except KeyboardInterrupt:
        errors.print(
            f"\nInterrupted. What was finished is saved; go on with:\n"
            f"  {shlex.join(['obax', 'run', name, '--out', str(path), '--resume'])}",
            highlight=False,
        )
        raise typer.Exit(130) from None
    if as_json:
        claims = [dataclasses.asdict(claim) for claim in findings.claims]
        _print_json({"folder": str(path), "report": str(page), "claims": claims})
        return
    _show_frame(findings.summary)
    for claim in findings.claims:
        console.print(f"[bold]{claim.id}[/] {claim.verdict}: {claim.claimed}")
        console.print(f"   {claim.measured}", highlight=False, style="dim")
    console.print(f"\nTable, figures and checkpoints are in {path}")
    console.print(f"Open {page}")


@app.command("report")
def rebuild_report(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run folders.")],
    out: Annotated[Path, typer.Option(help="The page for several runs side by side.")] = Path(
        "comparison.html"
    ),
    as_json: Json = False,
) -> None:
    """Write the report of a run again, or one page with several runs side by side."""
    from . import experiments, report
    from .experiments import RunFolder

    runs = []
    for path in folders:
        folder = RunFolder.open(path)
        experiment = experiments.find(folder.info["experiment"])
        findings = experiment.findings(experiment.config(folder), folder.table())
        runs.append((folder, findings))
    if len(runs) == 1:
        folder, findings = runs[0]
        page = report.write(folder.path, folder.info, findings)
    else:
        page = report.write_comparison(out, [(folder.info, found) for folder, found in runs])
    if as_json:
        _print_json({"report": str(page)})
    else:
        console.print(f"Open {page}")


@app.command()
def certify(
    settings: Annotated[
        list[str] | None,
        typer.Option("--setting", metavar="NAME", help="A setting; may be repeated. Default: all."),
    ] = None,
    problems: Annotated[int, typer.Option(help="Problems drawn for each setting.")] = 20,
    horizon: Annotated[int, typer.Option(help="T, the number of rounds.")] = 256,
    seed: Annotated[int, typer.Option(help="Of all draws.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="A folder for certify.json and the figure.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Hold the bounds of the theory against measured regret, on verified problems."""
    from . import certify as certificates
    from .certify import _output
    from .experiments import UserError

    if out is not None and out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file, not a folder. Choose another --out.")
    try:
        certificates.check_arguments(settings, problems, horizon)
    except ValueError as error:
        raise UserError(str(error)) from error
    with _bar(as_json) as bar:
        task = bar.add_task("certify", total=None, now="")

        def on_part(done: int, total: int, now: str) -> None:
            bar.update(task, completed=done, total=total, now=now)

        try:
            found = certificates.certify(settings, problems, horizon, seed, on_part=on_part)
        except certificates.AssumptionError as error:
            errors.print(f"obax: {error}", highlight=False, markup=False, soft_wrap=True)
            raise typer.Exit(1) from error
        except KeyboardInterrupt:
            errors.print("\nInterrupted: nothing was certified.", highlight=False)
            raise typer.Exit(130) from None
    written = None if out is None else _output.write(found, out)
    if as_json:
        _print_json(found.to_dict())
    else:
        _show_certificates(found)
        if written is not None:
            console.print(f"\n{written} and a figure beside it hold all of this.")
    for violation in found.violations:
        errors.print(
            f"obax: violated: {violation.sentence}.", highlight=False, markup=False, soft_wrap=True
        )
    if not found.ok:
        raise typer.Exit(1)


@app.command()
def data(
    name: Annotated[
        str | None, typer.Argument(help="A data set: fetch it, if its files are not here.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 1 unless all files are here and whole.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show which data sets are here, whether they are whole, and how to get the others."""
    from .experiments import UserError, nearest

    how = {dataset.name: dataset for dataset in datasets.DATASETS}
    if name is not None and name not in how:
        hint = nearest(name, how)
        raise UserError(f"unknown data set {name!r}.{hint} Known: {', '.join(how)}.")
    if name is not None and not check:
        # What is here already is shown below, even where its checksum is another.
        datasets.fetch(name, verify=False)
    found = [status for status in datasets.status() if name in (None, status.dataset)]
    rows = [
        {
            "data set": status.dataset,
            "file": status.file,
            "state": status.state,
            "where": str(status.path) if status.path else "-",
        }
        for status in found
    ]
    _show_rows(rows, as_json)
    if not as_json:
        _show_how([how[status.dataset] for status in found if status.path is None])
    if check and any(status.state != "verified" for status in found):
        raise typer.Exit(1)


def _show_how(missing: list[datasets.DataSet]) -> None:
    for dataset in {dataset.name: dataset for dataset in missing}.values():
        console.print(f"To get [bold]{dataset.name}[/] ({dataset.what}): {dataset.how}.")
    if missing:
        console.print(
            f"`obax data NAME` downloads one. Or put the files into a folder and set OBAX_DATA to "
            f"it, or into {datasets.cache_folder()}.",
            soft_wrap=True,
        )


app.command()(stream)
app.command()(watch)


def _show_certificates(found: Any) -> None:
    from .certify import _output

    console.print(f"[bold]Regret beside its bound[/], T = {found.horizon}, at every t")
    _show_rows(_output.setting_rows(found), as_json=False)
    for line in _output.notes(found):
        console.print(line, style="dim", highlight=False, markup=False)
    console.print("\n[bold]Lower-bound game[/], means over seeds with 95% intervals")
    _show_rows(_output.game_rows(found), as_json=False)
    console.print("\n[bold]Comparability example[/], growth of path lengths")
    _show_rows(_output.example_rows(found), as_json=False)


def _new_folder(stem: str) -> Path:
    """The first of runs/stem, runs/stem-2, ... that is not there."""
    path, number = Path("runs") / stem, 2
    while path.exists():
        path, number = Path("runs") / f"{stem}-{number}", number + 1
    return path


def _bar(quiet: bool) -> Progress:
    """Parts done, time gone, time left and the current figure; silent away from a terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[now]}"),
        console=errors,
        disable=quiet or not errors.is_terminal,
    )


def _show_frame(table: Any) -> None:
    rows = [dict(zip(table.frame.columns, row, strict=True)) for row in table.frame.values]
    console.print(f"\n[bold]{table.title}[/]")
    _show_rows(rows, as_json=False)
    console.print(table.caption, style="dim")


def _show_rows(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        _print_json(rows)
        return
    # Rows may lack a column that others have, such as a preset.
    columns = list(dict.fromkeys(column for row in rows for column in row))
    table = ScreenTable(*columns, box=None, header_style="bold", pad_edge=False)
    for row in rows:
        table.add_row(*(str(row.get(column, "")) for column in columns))
    console.print(table, highlight=False)


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2))


def main() -> None:
    """Run the command line: one readable line and exit code 2 where a person can mend it."""
    from .experiments import UserError

    try:
        app(standalone_mode=True)
    except (UserError, OSError) as error:
        errors.print(f"obax: {error}", highlight=False, markup=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        errors.print("\nobax: interrupted.")
        sys.exit(130)
