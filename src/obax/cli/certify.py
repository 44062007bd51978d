"""The command `obax certify`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from .._support.messages import UserError
from .screen import Json, console, documented, errors, print_error, print_json, progress, show_rows

if TYPE_CHECKING:
    from ..certify import Certificates


@documented
def certify(
    settings: Annotated[list[str] | None, Option("--setting", metavar="NAME")] = None,
    problems: int = 20,
    horizon: int = 256,
    seed: int = 0,
    out: Path | None = None,
    mutants: bool = False,
    as_json: Json = False,
) -> None:
    """Check the bounds of the theory against measured regret, on verified problems.

    - `settings`: A setting, or streaming for its three; may be repeated. Default: all.
    - `problems`: Problems drawn for each setting.
    - `horizon`: T, the number of rounds.
    - `seed`: The seed of all draws.
    - `out`: A folder for certify.json and the figure.
    - `mutants`: Break steps, bounds and constants on purpose; show which checks notice.
    """
    from .. import certify as certificates
    from ..certify import output
    from ..certify.mutants import hunt

    if out is not None and out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file, not a folder. Choose another --out.")
    try:
        certificates.check_arguments(settings, problems, horizon)
    except ValueError as error:
        raise UserError(str(error)) from error
    try:
        with progress("certify", as_json) as on_part:
            if mutants:
                caught = hunt(settings, seed=seed, on_part=on_part)
            else:
                result = certificates.certify(settings, problems, horizon, seed, on_part=on_part)
    except certificates.AssumptionError as error:
        print_error(str(error))
        raise typer.Exit(1) from error
    except KeyboardInterrupt:
        errors.print("\nInterrupted: nothing was certified.", highlight=False)
        raise typer.Exit(130) from None
    if mutants:
        if not as_json:
            console.print("[bold]Mutants[/], and the claims that fail because of them")
        show_rows(output.mutant_rows(caught), as_json=as_json)
        if not as_json:
            console.print("\n[bold]Mutants that can be noticed[/], and how many each part notices")
            show_rows(output.mutant_counts(caught), as_json=False)
        failures = [
            f"nobody noticed {one.mutant} in {one.setting}" for one in caught if one.survived
        ]
    else:
        written = None if out is None else output.write(result, out)
        if as_json:
            print_json(result.to_dict())
        else:
            _show(result)
            if written is not None:
                console.print(f"\n{written} has all of this, with a figure beside it.")
        failures = [f"violated: {violation.sentence}" for violation in result.violations]
    for failure in failures:
        print_error(f"{failure}.")
    if failures:
        raise typer.Exit(1)


def _show(result: "Certificates") -> None:
    from ..certify import output

    console.print(output.answer(result), highlight=False)
    console.print(f"\n[bold]Regret beside its bound[/], T = {result.horizon}, at every t")
    show_rows(output.setting_rows(result), as_json=False)
    for line in output.notes(result):
        console.print(line, style="dim", highlight=False, markup=False)
    if not result.game:
        return
    console.print("\n[bold]Lower-bound game[/], means over seeds with 95% intervals")
    show_rows(output.game_rows(result), as_json=False)
    console.print("\n[bold]Comparability example[/], growth of path lengths")
    show_rows(output.example_rows(result), as_json=False)
