"""Progressive validation on streams against River, scikit-learn and Vowpal Wabbit; limits judged.

    python -m benchmarks.streams                        # all; exit code 1 if a limit is missed
    python -m benchmarks.streams --quick                # the first 1,000 rows, a smoke run
    python -m benchmarks.streams --only starts --stream stagger --json out.json
    python -m benchmarks.streams --read out.json --figure docs/streams.png \\
        --page docs/streams.md --page benchmarks/README.md

Every model is tested on a row and then trained on it, in the order of the stream. Needs OBAX_DATA
for two of the streams and `pip install -e '.[river,sklearn]'`. Results of rivals are read from
`rivals.json`, which `python -m benchmarks.streams.kept` completes; `older` says what `--only older`
needs.
"""

import argparse
import dataclasses
import json
import os
import platform
import sys
from pathlib import Path

from .. import history
from . import kept, page
from .beyond import part_features, part_intervals
from .losses import part_starts, part_table
from .million import part_million
from .older import part_older
from .report import Table
from .sources import ROWS, SOURCES
from .speed import part_process, part_speed

ON_STREAMS = {
    "table": part_table,
    "starts": part_starts,
    "intervals": part_intervals,
    "features": part_features,
}
ON_ITS_OWN = {
    "speed": part_speed,
    "process": part_process,
    "older": part_older,
    "million": part_million,
}
PARTS = (*ON_STREAMS, *ON_ITS_OWN)


def run(parts: list[str], names: list[str], quick: bool, rivals: Path) -> dict[str, Table]:
    """The tables of some parts, printed as they get ready."""
    results, limit, tables = kept.read(rivals), 1000 if quick else ROWS, {}
    for part in parts:
        if part in ON_STREAMS:
            tables[part] = ON_STREAMS[part](names, limit, results)
        else:
            tables[part] = ON_ITS_OWN[part](quick)
        print(tables[part], flush=True)
    return tables


def missed(tables: dict[str, Table]) -> list[str]:
    """What missed its limit, and in which part."""
    return [f"{part}: {name}" for part, table in tables.items() for name in table.missed]


def worst(table: Table) -> tuple[str, float, float]:
    """The stream that is farthest from its rival, for the history."""
    column = list(table.columns).index("ours / better of it and untuned")
    ratios = [row[column] for row in table.rows if isinstance(row[column], float)]
    return f"streams, the worst ratio of {len(ratios)}", max(ratios), 1.01


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=PARTS)
    parser.add_argument("--stream", action="append", choices=list(SOURCES))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rivals", type=Path, default=kept.FILE)
    parser.add_argument("--json", type=Path, help="write the tables")
    parser.add_argument("--read", type=Path, help="tables of an earlier run, in place of a run")
    parser.add_argument(
        "--page", type=Path, action="append", default=[], help="put the tables into this page"
    )
    parser.add_argument("--figure", type=Path, help="draw the table of losses")
    said = parser.parse_args(words)
    if said.read:
        tables = {part: Table(**table) for part, table in json.loads(said.read.read_text()).items()}
    else:
        tables = run(
            said.only or list(PARTS), said.stream or list(SOURCES), said.quick, said.rivals
        )
        load = os.getloadavg()[0]
        where = f"{platform.machine()}, {os.cpu_count()} cores, load {load:.1f}"
        print(f"\n{where}")
        if "table" in tables and not (said.quick or said.stream):
            history.keep([worst(tables["table"])], where)
    if said.json:
        plain = {part: dataclasses.asdict(table) for part, table in tables.items()}
        said.json.write_text(json.dumps(plain, indent=1))
    for path in said.page:
        page.fill(path, tables)
    if said.figure:
        page.figure(said.figure, tables["table"])
    for name in missed(tables):
        print(f"missed, {name}")
    return 1 if missed(tables) else 0


if __name__ == "__main__":
    sys.exit(main())
