"""The parts of an experiment on the workers of a Dask cluster. Only the driver writes files.

A worker receives the name of the experiment, its settings and the name of a part, and returns the
rows as Parquet. Files of data sets that a worker does not have are sent to it once.
"""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..._support.messages import UserError
from ...integrations.dask import GONE, Seat, on_workers
from ...integrations.job_queue import results
from .config import as_dict
from .experiment import Experiment
from .run_folder import read_parquet, to_parquet, typed

if TYPE_CHECKING:
    import pandas as pd
    from distributed import Client


def run_parts(
    experiment: Experiment,
    config: object,
    names: Sequence[str],
    client: Client,
    on_change: Callable[[list[Seat]], None],
) -> Iterator[tuple[str, pd.DataFrame, float]]:
    """Yield the name, rows and seconds of every part in the order in which they finish."""
    from .. import EXPERIMENTS, find

    if experiment.name not in EXPERIMENTS or find(experiment.name) is not experiment:
        raise UserError(
            f"workers find an experiment by its name, but {experiment.name!r} is not one of "
            f"`obax list`; run it without workers."
        )
    jobs = {name: (experiment.name, as_dict(config), name) for name in names}
    welcome = functools.partial(share_data, client, experiment.files)
    for name, (data, seconds) in results(client, work, jobs, welcome=welcome, on_change=on_change):
        yield name, typed(read_parquet(data), experiment.name, experiment.columns), seconds


def work(experiment_name: str, config: dict[str, object], part: str) -> tuple[bytes, float]:
    """Do a part on a worker. Return its rows as Parquet and the seconds that it took."""
    from .. import find

    experiment = find(experiment_name)
    parts = experiment.parts(experiment.settings(config))
    _, rows, seconds = experiment.run_part(part, parts[part])
    return to_parquet(rows), seconds


def describe(seats: Sequence[Seat]) -> str:
    """Return the number of workers and of running parts, for a progress bar.

    >>> describe([Seat("0", "here", job="seed0"), Seat("1", "here", trouble="other versions")])
    '1 running, 1 worker, 1 not used: other versions'
    """
    used = [seat for seat in seats if not seat.trouble]
    running = sum(seat.job is not None for seat in used)
    words = f"{running} running, {len(used)} worker{'s' * (len(used) != 1)}"
    if len(used) < len(seats):
        words += f", {len(seats) - len(used)} not used: {max(seat.trouble for seat in seats)}"
    return words


def share_data(client: Client, files: Sequence[str], addresses: list[str]) -> dict[str, str]:
    """Send the files that the driver reads to the workers that lack them or have other ones.

    Return the problem of each worker that cannot be used, by address.
    """
    ours = checksums(files)
    problems, lacking = {}, []
    for address, theirs in on_workers(client, checksums, files, workers=addresses).items():
        if isinstance(theirs, OSError):
            problems[address] = GONE
        elif isinstance(theirs, Exception):
            problems[address] = f"its data cannot be looked at ({theirs})."
        elif more := [file for file in files if theirs[file] and not ours[file]]:
            problems[address] = (
                f"it has data that this machine lacks ({', '.join(more)}), so that its tables "
                f"would be different; put it into the folder of OBAX_DATA here too."
            )
        elif theirs != ours:
            lacking.append(address)
    if lacking:
        from ...datasets import find

        contents = {path.name: path.read_bytes() for path in map(find, files) if path is not None}
        on_workers(client, receive, contents, workers=lacking)
    return problems


def checksums(files: Sequence[str]) -> dict[str, str]:
    """Return the checksum of each file on this machine, empty for those that are missing."""
    from ...datasets import find

    paths = {file: find(file) for file in files}
    return {
        file: "" if path is None else hashlib.sha256(path.read_bytes()).hexdigest()
        for file, path in paths.items()
    }


def receive(contents: dict[str, bytes]) -> None:
    """Store files of data sets on a worker and use them from now on."""
    folder = Path(tempfile.mkdtemp(prefix="obax-data-"))
    for name, data in contents.items():
        (folder / Path(name).name).write_bytes(data)
    os.environ["OBAX_DATA"] = str(folder)
