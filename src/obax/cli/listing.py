"""The command `obax list`."""

from .screen import Json, console, show_rows


def list_experiments(as_json: Json = False) -> None:
    """Show the experiments: what each asks, the data it needs, how long it takes."""
    from ..lab import EXPERIMENTS
    from ..lab.kit import durations

    rows = [
        {
            "name": experiment.name,
            "asks": experiment.question,
            **({"shows": experiment.summary} if as_json else {}),
            "data": experiment.data,
            **{preset: str(experiment.durations[preset]) for preset in experiment.presets},
        }
        for experiment in EXPERIMENTS.values()
    ]
    show_rows(rows, as_json)
    if not as_json:
        where = f" on {durations.machines()}" if durations.machines() else ""
        console.print(
            f"\nTimes: measured{where}; of other presets only the run itself says what is left. "
            f"To run one: obax run NAME",
            highlight=False,
            style="dim",
        )
