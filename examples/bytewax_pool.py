"""A model for each shop in a Bytewax flow that is killed and recovers.

Rows of 40 shops come from a CSV file; what is predicted for each, before it is learned, goes to a
file of JSON lines. A first process is killed (-9) while it works. A second one takes the flow up
from the recovery folder: it reads on in the CSV where the last snapshot was taken, with the models
as they were then, and cuts the output back to it. In the end no row is missing and none is there
twice, and the output is the same as that of a flow that nobody killed.

    pip install 'obax[bytewax]'
    python examples/bytewax_pool.py
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import bytewax.operators as op
import numpy as np
from bytewax.connectors.files import CSVSource, FileSink
from bytewax.dataflow import Dataflow
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import cluster_main

from obax.estimators import Pool, StreamingClassifier
from obax.integrations.bytewax import learn


def flow(source: Path, out: Path, wait: float = 0.0) -> Dataflow:
    """CSV in, predictions out; `wait` so many seconds for each batch, as a slow source would."""

    def parsed(row: dict) -> dict:
        numbers = {name: float(row[name]) for name in ("price", "stock")}
        return {"t": row["t"], "shop": row["shop"], "sold": row["sold"], **numbers}

    def line(pair: tuple) -> str:
        row, result = pair
        time.sleep(wait)
        return json.dumps({"t": row["t"]} | result)

    graph = Dataflow("shops")
    rows = op.map("parse", op.input("rows", graph, CSVSource(source, batch_size=20)), parsed)
    pool = Pool(StreamingClassifier(), key="shop")
    predictions = learn("learn", rows, pool, target="sold", drop=("t",), shards=4)
    # All to one file, whose sink is keyed too.
    lines = op.map("line", predictions, lambda pair: (str(out), line(pair[1])))
    op.output("out", lines, FileSink(out))
    return graph


def run(source: Path, out: Path, recovery: Path, wait: float = 0.0) -> None:
    """The flow in this process, with a snapshot after each batch."""
    config = RecoveryConfig(str(recovery), backup_interval=timedelta(0))
    cluster_main(
        flow(source, out, wait), [], 0, epoch_interval=timedelta(0), recovery_config=config
    )


def write_rows(path: Path, count: int) -> None:
    """Shops that sell at different prices."""
    rng = np.random.default_rng(0)
    lines = ["t,shop,price,stock,sold"]
    for t in range(count):
        shop, price, stock = rng.integers(40), rng.normal(), rng.normal()
        sold = "yes" if (price < 0) == (shop % 2 == 0) else "no"
        lines.append(f"{t},shop {shop},{price:.4f},{stock:.4f},{sold}")
    path.write_text("\n".join(lines) + "\n")


def killed(arguments: list[str], out: Path, after: int) -> int:
    """Start a process and kill it when there are so many lines; how many there were."""
    process = subprocess.Popen([sys.executable, __file__, *arguments])
    count = lambda: out.read_bytes().count(b"\n") if out.exists() else 0  # noqa: E731
    while process.poll() is None and count() < after:
        time.sleep(0.02)
    if process.poll() is None:
        os.kill(process.pid, signal.SIGKILL)
    process.wait()
    return count()


def main(rows: int = 600, kills: int = 1) -> None:
    """Killed, recovered, compared."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source, out, whole = (folder / n for n in ("rows.csv", "out.jsonl", "whole.jsonl"))
        write_rows(source, rows)
        for recovery in ("recovery", "other"):
            (folder / recovery).mkdir()
            init_db_dir(folder / recovery, 1)
        for kill in range(kills):
            after = rows * (kill + 1) // (kills + 2)
            there = killed([str(source), str(out), str(folder / "recovery"), "0.001"], out, after)
            print(f"killed with {there} of {rows} lines written")
        run(source, out, folder / "recovery")
        run(source, whole, folder / "other")
        found = [json.loads(line) for line in out.read_text().splitlines()]
        assert sorted(int(one["t"]) for one in found) == list(range(rows)), "lost or doubled rows"
        by_t = [sorted(path.read_text().splitlines()) for path in (out, whole)]
        assert by_t[0] == by_t[1], "other predictions than without a kill"
        print(f"recovered: {len(found)} lines, each row once, the same as without a kill")


if __name__ == "__main__":
    if len(sys.argv) > 4:
        run(*map(Path, sys.argv[1:4]), float(sys.argv[4]))
    else:
        main(*map(int, sys.argv[1:]))
