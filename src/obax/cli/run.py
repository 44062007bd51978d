"""The command `obax run`."""

import contextlib
import dataclasses
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from .._support.messages import UserError
from .screen import Json, console, errors, print_error, print_json, progress_bar, show_findings


def run(
    name: Annotated[str, typer.Argument(help="An experiment, see `obax list`.")],
    preset: Annotated[
        str | None,
        typer.Option(help="quick (the default), paper (the sizes of the paper), or another."),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="The number of seeds.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run folder; by default a new one below runs/.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; may be repeated."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue an interrupted run in --out.")
    ] = False,
    reuse: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR", help="Take finished parts from an earlier run; may be repeated."
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes of this machine that do the parts.")
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="tcp://HOST:PORT", help="The Dask cluster that does the parts."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run an experiment and write its report."""
    from .. import lab
    from ..lab import RunFolder, report

    if workers and scheduler:
        raise UserError("--workers starts a cluster and --scheduler uses one: give only one.")
    experiment = lab.find(name)
    if resume:
        if out is None:
            raise UserError("--resume needs --out, the folder of the run to continue.")
        stored = RunFolder.open(out, name)
        preset = preset or stored.info["preset"]
    preset = preset or "quick"
    start = lab.preset_of(experiment, preset)
    changes = list(settings or ()) + ([] if seeds is None else [f"seeds={seeds}"])
    if resume and preset == stored.info["preset"]:
        start = experiment.config(stored)
    config = lab.with_overrides(start, changes)
    path = out or lab.new_folder(f"{name}-{preset}")

    again = shlex.join(["obax", "run", name, "--out", str(path), "--resume"])

    try:
        with _cluster(workers, scheduler) as client, progress_bar(as_json) as bar:
            task = bar.add_task(name, total=None, now="")

            def on_part(done: int, total: int, headline: str) -> None:
                bar.update(task, completed=done, total=total, now=headline)

            folder = lab.run(
                experiment,
                config,
                preset,
                path,
                resume=resume,
                reuse=reuse or (),
                on_part=on_part,
                client=client,
            )
            findings = lab.findings(folder)
            page = report.write(folder.path, folder.info, findings)
        if note := getattr(client, "note", ""):
            errors.print(note, highlight=False)
    except KeyboardInterrupt:
        errors.print(
            f"\nInterrupted. Finished parts are saved; continue with:\n  {again}", highlight=False
        )
        raise typer.Exit(130) from None
    except _cluster_errors(workers, scheduler) as error:
        print_error(f"{error} Finished parts are saved; continue, with workers or without: {again}")
        raise typer.Exit(1) from None
    if as_json:
        claims = [dataclasses.asdict(claim) for claim in findings.claims]
        answers = [{"question": one.question, "answer": one.words} for one in findings.answers]
        print_json({"folder": str(path), "report": str(page), "answers": answers, "claims": claims})
        return
    show_findings(findings)
    reused = [entry["from"] for entry in folder.info["parts"].values() if "from" in entry]
    for place in dict.fromkeys(reused):
        console.print(f"{reused.count(place)} parts were taken from {place}", soft_wrap=True)
    console.print(f"\nFigures, claims, grids and settings: open {page}")


def _cluster(workers: int | None, scheduler: str | None) -> contextlib.AbstractContextManager[Any]:
    """Return a client of the requested cluster, or an empty context."""
    if not workers and not scheduler:
        return contextlib.nullcontext()
    from ..integrations import dask

    return dask.Starting(workers) if workers else dask.connect(str(scheduler))


def _cluster_errors(workers: int | None, scheduler: str | None) -> tuple[type[Exception], ...]:
    """Return the errors of a lost cluster. Without a cluster there are none, and no Dask."""
    if not workers and not scheduler:
        return ()
    from ..integrations.dask import ClusterLost

    return (ClusterLost,)
