"""The command `obax run`."""

import contextlib
import dataclasses
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from .._support.messages import UserError
from . import screen
from .screen import Assignments, Json, console, documented, errors, print_error


@documented
def run(
    name: Annotated[str, Argument()],
    preset: str | None = None,
    seeds: int | None = None,
    out: Path | None = None,
    settings: Assignments = None,
    resume: bool = False,
    reuse: Annotated[list[Path] | None, Option(metavar="DIR")] = None,
    workers: Annotated[int | None, Option(min=1)] = None,
    scheduler: Annotated[str | None, Option(metavar="tcp://HOST:PORT")] = None,
    as_json: Json = False,
) -> None:
    """Run an experiment and write its report.

    - `name`: An experiment, see `obax list`.
    - `preset`: quick (the default), paper (the sizes of the paper), or another.
    - `seeds`: The number of seeds.
    - `out`: The run folder; by default a new one below runs/.
    - `settings`: Change a setting; may be repeated.
    - `resume`: Continue an interrupted run in --out.
    - `reuse`: Take finished parts from an earlier run; may be repeated.
    - `workers`: Processes of this machine that do the parts.
    - `scheduler`: The Dask cluster that does the parts.
    """
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
    cluster: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    lost: tuple[type[Exception], ...] = ()
    if workers or scheduler:
        from ..integrations import dask

        cluster = dask.local(workers) if workers else dask.connect(str(scheduler))
        lost = (dask.ClusterLost,)
    try:
        with cluster as client, screen.progress(name, as_json) as on_part:
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
    except KeyboardInterrupt:
        errors.print(
            f"\nInterrupted. Finished parts are saved; continue with:\n  {again}", highlight=False
        )
        raise typer.Exit(130) from None
    except lost as error:
        print_error(f"{error} Finished parts are saved; continue, with workers or without: {again}")
        raise typer.Exit(1) from None
    if as_json:
        claims = [dataclasses.asdict(claim) for claim in findings.claims]
        answers = [{"question": one.question, "answer": one.words} for one in findings.answers]
        screen.print_json(
            {"folder": str(path), "report": str(page), "answers": answers, "claims": claims}
        )
        return
    screen.show_findings(findings)
    reused = [entry["from"] for entry in folder.info["parts"].values() if "from" in entry]
    for place in dict.fromkeys(reused):
        console.print(f"{reused.count(place)} parts were taken from {place}", soft_wrap=True)
    console.print(f"\nFigures, claims, grids and settings: open {page}")
