"""The command `obax list`."""

from .screen import Json, console, show_rows


def list_experiments(as_json: Json = False) -> None:
    """Show the experiments: their questions, data, presets and measured times."""
    from .. import lab

    experiments = map(lab.find, lab.EXPERIMENTS)
    rows = [
        {
            "name": experiment.name,
            "asks": experiment.question,
            **({"shows": experiment.summary} if as_json else {}),
            "data": experiment.data,
            "presets": ", ".join(experiment.presets),
            "takes": experiment.takes,
        }
        for experiment in experiments
    ]
    show_rows(rows, as_json)
    if not as_json:
        console.print(
            "\nTimes: measured on two cores of an AMD EPYC, with the real data where it is free; "
            "other presets were not measured. To run one: obax run NAME --preset PRESET",
            highlight=False,
            style="dim",
        )
