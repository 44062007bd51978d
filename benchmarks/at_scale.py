"""What a key costs: rows per second and bytes, in one process, in two, and in Spark.

    python -m benchmarks.at_scale            # one process and two, about a minute on 2 cores
    python -m benchmarks.at_scale --spark    # and a local Spark cluster of two executors (Java 17)
    python -m benchmarks.at_scale --quick    # everything small

Rows of keys in random order, 10 features, two classes, each predicted and then learned, in chunks
of 20,000. Two processes have half of the keys each (`Pool.part`). Spark reads files of 20,000 rows,
a batch each, keeps 16 shards and writes files. Seconds are those on the wall; processor seconds
hardly depend on what else the machine does. The figures of docs/at-scale.md are printed by this.
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from obax.checkpoint import from_bytes, to_bytes
from obax.estimators import Pool, StreamingClassifier

from .pool import CHUNK, FEATURES, drawn

NAMES = [f"x{j}" for j in range(FEATURES)]
SPARK_CHUNK = 2 * CHUNK


def new_pool(members: str = "auto") -> Pool:
    return Pool(StreamingClassifier(members=members), "key", shards=1)


def learn(
    keys: int, rows: int, part: int = 0, of: int = 1, members: str = "auto"
) -> dict[str, float]:
    """Learn the rows of one part of the keys in this process; return what it took."""
    mine, values, labels = drawn(keys, rows)
    kept = np.flatnonzero(mine % of == part)
    mine, values, labels = mine[kept], values[kept], labels[kept]
    pool, before = new_pool(members), resident_bytes()
    # The first row of each key makes its model.
    first = np.unique(mine, return_index=True)[1]
    pool.learn_many(mine[first].tolist(), values[first], labels[first])
    begun, processor = time.perf_counter(), time.process_time()
    for begin in range(0, len(mine), CHUNK):
        span = slice(begin, begin + CHUNK)
        pool.progressive(mine[span].tolist(), values[span], labels[span])
    found = {"rows": len(mine), "seconds": time.perf_counter() - begun}
    found["processor"] = time.process_time() - processor
    found["memory"] = (resident_bytes() - before) / len(pool)
    begun = time.process_time()
    data = to_bytes(pool)
    found["save"], begun = (time.process_time() - begun) / len(pool), time.process_time()
    from_bytes(data, new_pool(members), "the bytes")
    found["load"] = (time.process_time() - begun) / len(pool)
    return found | {"state": len(data) / len(pool), "keys": len(pool)}


def resident_bytes() -> int:
    """The memory of this process (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def line(name: str, found: list[dict[str, float]]) -> str:
    rows, seconds = sum(f["rows"] for f in found), max(f["seconds"] for f in found)
    processor = sum(f["processor"] for f in found)
    keys = sum(f["keys"] for f in found)
    return (
        f"{name}: {keys:,.0f} keys, {rows:,.0f} rows, {rows / seconds:,.0f} rows per second, "
        f"{1e6 * processor / rows:.1f} us of processor per row, {found[0]['memory']:,.0f} bytes "
        f"per key in memory, {found[0]['state']:,.0f} in a checkpoint, "
        f"{1e6 * found[0]['save']:.0f} us of processor to save a key, "
        f"{1e6 * found[0]['load']:.0f} us to load it"
    )


def spark(keys: int, rows: int) -> str:
    """Run a query on a local cluster, and return a line about its batches."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in").mkdir()
        mine, values, labels = drawn(keys, rows)
        for number, begin in enumerate(range(0, rows, SPARK_CHUNK)):
            span = slice(begin, begin + SPARK_CHUNK)
            lines = (
                json.dumps(
                    {"t": t, "key": f"k{key}", "target": str(bool(label))}
                    | dict(zip(NAMES, row, strict=True))
                )
                for t, (key, row, label) in enumerate(
                    zip(mine[span].tolist(), values[span].tolist(), labels[span], strict=True),
                    begin,
                )
            )
            path = folder / "in" / f"{number:04}.json"
            path.write_text("\n".join(lines) + "\n")
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
        command = [sys.executable, "-m", "benchmarks.at_scale", "--spark-job", name]
        environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        import pyspark

        environment.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
        batches = json.loads(done.stdout.splitlines()[-1])
    # The first batch starts the Python workers and makes the models.
    seconds = sum(batch["seconds"] for batch in batches[1:])
    learned = sum(batch["rows"] for batch in batches[1:])
    return (
        f"Spark, two executors: {keys:,} keys, {learned:,} rows in {len(batches) - 1} batches, "
        f"{learned / seconds:,.0f} rows per second"
    )


def spark_job(folder: Path) -> list[dict[str, Any]]:
    """Run the query; return rows and seconds of each batch."""
    from pyspark.sql import SparkSession

    from obax.integrations.spark import learn as learn_in_spark

    builder = SparkSession.builder.master("local-cluster[2,1,2048]")
    settings = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
                "spark.executor.memory": "1500m", "spark.sql.shuffle.partitions": "2",
                "spark.ui.enabled": "false"}  # fmt: skip
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    schema = ", ".join(["t long", "key string", "target string", *(f"{n} double" for n in NAMES)])
    rows = session.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    learned = learn_in_spark(rows.json(str(folder / "in")), new_pool(), drop=["t"], order="t")
    writer = learned.writeStream.format("parquet").option("path", str(folder / "out"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return [
        {
            "rows": one["numInputRows"],
            "seconds": one["durationMs"]["triggerExecution"] / 1e3,
        }
        for one in map(as_dict, query.recentProgress)
        if one["numInputRows"]
    ]


def as_dict(progress: Any) -> dict[str, Any]:
    """The progress of a batch, which is a dict in some versions of Spark."""
    return progress if isinstance(progress, dict) else json.loads(progress.json)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--spark-job", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.spark_job:
        print(json.dumps(spark_job(arguments.spark_job)))
        return
    keys, rows = (200, 4000) if arguments.quick else (arguments.keys, arguments.rows)
    with multiprocessing.get_context("spawn").Pool(2) as workers:
        print(line("one process", workers.starmap(learn, [(keys, rows)])), flush=True)
    with multiprocessing.get_context("spawn").Pool(1) as workers:
        found = workers.starmap(learn, [(keys, rows, 0, 1, "tuned")])
        print(line("one process, one member", found), flush=True)
    with multiprocessing.get_context("spawn").Pool(2) as workers:
        parts = workers.starmap(learn, [(keys, rows, part, 2) for part in range(2)], chunksize=1)
        print(line("two processes", parts), flush=True)
    if arguments.spark:
        print(spark(keys, rows), flush=True)


if __name__ == "__main__":
    main()
