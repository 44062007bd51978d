"""The command `obax list`."""

from .screen import Json, show_rows


def list_experiments(as_json: Json = False) -> None:
    """Show the experiments: what each asks, the data it needs, how long it takes."""
    from ..lab import EXPERIMENTS

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
