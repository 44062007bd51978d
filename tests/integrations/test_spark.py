"""A pool in Spark Structured Streaming: killed and restarted, and equal to a plain pool.

The tests need pyspark; the slow one starts a local cluster of two executors, which needs Java 17.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import obax
from obax.estimators import Pool, StreamingRegressor

pytest.importorskip("pyspark", minversion="4")

from spark_job import initial

from obax.integrations.spark import Learner

ROWS, FILES, KILLS = 600, 12, 5


class State:
    """A state of Spark's state store, in memory."""

    value = None

    def getValueState(self, name, schema):
        return self

    def exists(self):
        return self.value is not None

    def get(self):
        return self.value

    def update(self, value):
        self.value = value


def rows_of(count, seed=0):
    draw = np.random.default_rng(seed)
    numbers = draw.standard_normal((count, 2)).round(3)
    return [
        {
            "t": t,
            "shop": f"shop {draw.integers(12)}",
            "a": a,
            "b": b,
            "target": None if t % 50 == 7 else "up" if a > b else "down",
        }
        for t, (a, b) in enumerate(numbers.tolist())
    ]


def played_by_a_plain_pool(rows, pool):
    names = rows[0].keys() - {"t", "shop", "target"}
    features = [{name: row[name] for name in names} for row in rows]
    keys, targets = [row["shop"] for row in rows], [row["target"] for row in rows]
    return pool.play(keys, features, targets)


def in_one_shard(rows, pool, batch, order="t"):
    """What the rows come to in one shard, batch by batch, in frames of any size."""
    state, parts = State(), []
    for begin in range(0, len(rows), batch):
        frame = pd.DataFrame(rows[begin : begin + batch]).assign(obax_shard=0)
        learner = Learner(pool, 1, "target", frozenset({"t"}), order)
        learner.init(state)
        parts += learner.handleInputRows((0,), iter([frame.iloc[3:], frame.iloc[:3]]), None)
    return pd.concat(parts).sort_values("t", ignore_index=True)


def test_batches_of_a_shard_are_a_plain_pool():
    # Words too: their columns are shared by the keys of a shard, as by those of a pool.
    rows = [row | {"place": f"p{i % 3}"} for i, row in enumerate(rows_of(300))]
    found = in_one_shard(rows, initial(), 70)
    expected = played_by_a_plain_pool(rows, initial())
    assert found["probability"].fillna(0).tolist() == expected.predictions.max(axis=1).tolist()
    labelled = found["target"].notna().to_numpy()
    assert found["loss"].notna().tolist() == labelled.tolist()
    assert found["loss"][labelled].tolist() == np.asarray(expected.loss)[labelled].tolist()
    assert "obax_shard" not in found and found["rejected"].isna().all()
    # Without the order of the rows it is another trajectory.
    other = in_one_shard(rows, initial(), 70, order=None)
    assert other["loss"].tolist() != found["loss"].tolist()


def test_numbers_and_rejected_rows():
    rows = [{"t": t, "shop": "s", "a": float(t), "target": 2.0 * t} for t in range(60)]
    rows[20] |= {"shop": None}
    rows[30] |= {"a": 1e300}
    found = in_one_shard(rows, Pool(StreamingRegressor(), "shop", shards=1), 20)
    assert found["prediction"].iloc[-1] == pytest.approx(118, abs=5)
    reasons = found["rejected"].dropna().to_dict()
    assert reasons.keys() == {20, 30} and "key is missing" in reasons[20]
    assert found["loss"].isna().sum() == 2


def completed(folder):
    return [path for path in folder.glob("checkpoint/commits/*") if path.name.isdigit()]


def started(folder):
    """A query on a local cluster of two executors, in a group of processes of its own."""
    here = Path(__file__).parent
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    if "SPARK_HOME" not in environment:
        import pyspark

        environment["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    command = [sys.executable, str(here / "spark_job.py"), "local-cluster[2,1,700]", str(folder)]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=log, env=environment, start_new_session=True
        )


def executors(group):
    """The processes of the executors of a query."""
    import psutil

    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if "CoarseGrainedExecutorBackend" in " ".join(process.info["cmdline"] or ())
        and os.getpgid(process.pid) == group
    ]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("java") is None, reason="no Java on this machine")
def test_kills_lose_and_double_no_row(tmp_path):
    rows, draw = rows_of(ROWS), random.Random(0)
    (tmp_path / "in").mkdir()
    size = ROWS // FILES
    for file in range(FILES):
        text = "".join(json.dumps(row) + "\n" for row in rows[file * size : (file + 1) * size])
        path = tmp_path / "in" / f"{file:03}.json"
        path.write_text(text)
        # Spark takes the files in the order of their times.
        os.utime(path, (1_700_000_000 + file, 1_700_000_000 + file))
    for kill in range(KILLS + 1):
        process, before = started(tmp_path), len(completed(tmp_path))
        try:
            wanted = before + draw.randint(1, 2)
            until = time.monotonic() + 600
            while kill < KILLS and len(completed(tmp_path)) < wanted:
                assert process.poll() is None, (tmp_path / "log").read_text()[-3000:]
                assert time.monotonic() < until, "no batch was completed"
                time.sleep(0.05)
            if kill == KILLS:
                # At last one executor alone is killed; Spark starts another one.
                while not (running := executors(process.pid)):
                    time.sleep(0.1)
                running[0].kill()
                assert process.wait(timeout=900) == 0, (tmp_path / "log").read_text()[-3000:]
            time.sleep(draw.uniform(0, 1))
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    # A batch that was repeated may have taken two files.
    assert KILLS < len(completed(tmp_path)) <= FILES
    names = json_lines(tmp_path / "out" / "_spark_metadata")
    found = pd.concat(pd.read_parquet(tmp_path / "out" / name) for name in names)
    found = found.sort_values("t", ignore_index=True)
    assert found["t"].tolist() == list(range(ROWS))
    plain = initial()
    expected = played_by_a_plain_pool(rows, plain)
    assert found["probability"].fillna(0).tolist() == expected.predictions.max(axis=1).tolist()
    labelled = [row["target"] is not None for row in rows]
    assert found["loss"][labelled].tolist() == np.asarray(expected.loss)[labelled].tolist()
    pools = [obax.load(path) for path in sorted((tmp_path / "pools").iterdir())]
    assert sum(pool.learned_ for pool in pools) == plain.learned_
    assert {key for pool in pools for key in pool} == set(plain)


def json_lines(folder):
    """The names of the files that Spark's sink has committed."""
    names = set()
    for path in folder.iterdir():
        if path.name.split(".")[0].isdigit():
            entries = [json.loads(line) for line in path.read_text().splitlines()[1:]]
            names |= {Path(entry["path"]).name for entry in entries}
    return sorted(names)
