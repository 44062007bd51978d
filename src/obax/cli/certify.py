"""The command `obax certify`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .screen import Json, console, errors, print_json, progress_bar, show_rows

if TYPE_CHECKING:
    from ..certify import Certificates


def certify(
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--setting",
            metavar="NAME",
            help="A setting, or streaming for its three; may be repeated. Default: all.",
        ),
    ] = None,
    problems: Annotated[int, typer.Option(help="Problems drawn for each setting.")] = 20,
    horizon: Annotated[int, typer.Option(help="T, the number of rounds.")] = 256,
    seed: Annotated[int, typer.Option(help="Of all draws.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="A folder for certify.json and the figure.")
    ] = None,
    mutants: Annotated[
        bool,
        typer.Option(
            "--mutants",
            help="Break steps, bounds and constants on purpose; show which checks notice.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Hold the bounds of the theory against measured regret, on verified problems."""
    from .. import certify as certificates
    from .._support.errors import UserError
    from ..certify import output
    from ..certify.mutants import hunt

    if out is not None and out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file, not a folder. Choose another --out.")
    try:
        certificates.check_arguments(settings, problems, horizon)
    except ValueError as error:
        raise UserError(str(error)) from error
    with progress_bar(as_json) as bar:
        task = bar.add_task("certify", total=None, now="")

        def on_part(done: int, total: int, now: str) -> None:
            bar.update(task, completed=done, total=total, now=now)

        try:
            if mutants:
                caught = hunt(settings, seed=seed, on_part=on_part)
            else:
                found = certificates.certify(settings, problems, horizon, seed, on_part=on_part)
        except certificates.AssumptionError as error:
            errors.print(f"obax: {error}", highlight=False, markup=False, soft_wrap=True)
            raise typer.Exit(1) from error
        except KeyboardInterrupt:
            errors.print("\nInterrupted: nothing was certified.", highlight=False)
            raise typer.Exit(130) from None
    if mutants:
        if not as_json:
            console.print("[bold]Mutants[/], and the claims that fail because of them")
        show_rows(output.mutant_rows(caught), as_json=as_json)
        wrong = [f"nobody noticed {one.mutant} in {one.setting}" for one in caught if one.survived]
    else:
        written = None if out is None else output.write(found, out)
        if as_json:
            print_json(found.to_dict())
        else:
            _show(found)
            if written is not None:
                console.print(f"\n{written} and a figure beside it hold all of this.")
        wrong = [f"violated: {violation.sentence}" for violation in found.violations]
    for sentence in wrong:
        errors.print(f"obax: {sentence}.", highlight=False, markup=False, soft_wrap=True)
    if wrong:
        raise typer.Exit(1)


def _show(found: "Certificates") -> None:
    from ..certify import output

    console.print(output.answer(found), highlight=False)
    console.print(f"\n[bold]Regret beside its bound[/], T = {found.horizon}, at every t")
    show_rows(output.setting_rows(found), as_json=False)
    for line in output.notes(found):
        console.print(line, style="dim", highlight=False, markup=False)
    if not found.game:
        return
    console.print("\n[bold]Lower-bound game[/], means over seeds with 95% intervals")
    show_rows(output.game_rows(found), as_json=False)
    console.print("\n[bold]Comparability example[/], growth of path lengths")
    show_rows(output.example_rows(found), as_json=False)
