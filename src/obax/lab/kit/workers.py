"""The parts of an experiment on the workers of a Dask cluster; the driver alone writes.

What travels is plain: the name of the experiment, its settings, the name of a part; and back its
table as Parquet. Files of data sets that a worker does not have are sent to it once.
"""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..._support.errors import UserError
from ...integrations.dask import GONE, Seat, on_workers
from ...integrations.desk import results
from .config import as_dict
from .experiment import Experiment, Part
from .folder import parquet, read_parquet
from .table import typed

if TYPE_CHECKING:
    import pandas as pd
    from distributed import Client


def tables(
    experiment: Experiment,
    config: object,
    parts: Sequence[Part],
    client: Client,
    on_change: Callable[[list[Seat]], None],
) -> Iterator[tuple[str, pd.DataFrame, float]]:
    """Name, table and seconds of every part, in the order in which they come back."""
    from .. import EXPERIMENTS

    if EXPERIMENTS.get(experiment.name) is not experiment:
        raise UserError(
            f"workers find an experiment by its name, but {experiment.name!r} is not one of "
            f"`obax list`; run it without workers."
        )
    jobs = {part.name: (experiment.name, as_dict(config), part.name) for part in parts}
    welcome = functools.partial(share_data, client, experiment.files)
    for name, (data, seconds) in results(client, work, jobs, welcome=welcome, on_change=on_change):
        yield name, typed(read_parquet(data), experiment.name, experiment.columns), seconds


def words(seats: Sequence[Seat]) -> str:
    """Who does what, for a progress bar.

    >>> words([Seat("0", "here", job="seed0"), Seat("1", "here", trouble="other versions")])
    '1 running, 1 worker, 1 not used: other versions'
    """
    used = [seat for seat in seats if not seat.trouble]
    running = sum(seat.job is not None for seat in used)
    said = f"{running} running, {len(used)} worker{'s' * (len(used) != 1)}"
    if len(used) < len(seats):
        said += f", {len(seats) - len(used)} not used: {max(seat.trouble for seat in seats)}"
    return said


def work(experiment: str, config: dict[str, object], part: str) -> tuple[bytes, float]:
    """On a worker: the table of a part, as Parquet, and the seconds that it took."""
    from .. import find

    found = find(experiment)
    parts = {one.name: one for one in found.parts(found.settings(config))}
    begun = time.perf_counter()
    return parquet(found.work(parts[part])), time.perf_counter() - begun


def share_data(client: Client, files: Sequence[str], addresses: list[str]) -> dict[str, str]:
    """Give every worker the files that the driver reads, where its own are missing or different;
    say what is wrong with those that have some that the driver does not."""
    ours = checksums(files)
    troubles, needy = {}, []
    for address, theirs in on_workers(client, checksums, files, workers=addresses).items():
        if isinstance(theirs, OSError):
            troubles[address] = GONE
        elif isinstance(theirs, Exception):
            troubles[address] = f"its data cannot be looked at ({theirs})."
        elif more := [file for file in files if theirs[file] and not ours[file]]:
            troubles[address] = (
                f"it has data that is not at hand here ({', '.join(more)}), so that its "
                f"tables would be others; put it into the folder of OBAX_DATA here too."
            )
        elif theirs != ours:
            needy.append(address)
    if needy:
        from ...datasets import find

        sent = {path.name: path.read_bytes() for path in map(find, files) if path is not None}
        on_workers(client, receive, sent, workers=needy)
    return troubles


def checksums(files: Sequence[str]) -> dict[str, str]:
    """Of the files that are found here; empty for those that are not."""
    from ...datasets import find

    found = {file: find(file) for file in files}
    return {
        file: "" if path is None else hashlib.sha256(path.read_bytes()).hexdigest()
        for file, path in found.items()
    }


def receive(files: dict[str, bytes]) -> None:
    """On a worker: files of data sets, to be found from now on."""
    folder = Path(tempfile.mkdtemp(prefix="obax-data-"))
    for name, data in files.items():
        (folder / Path(name).name).write_bytes(data)
    os.environ["OBAX_DATA"] = str(folder)
