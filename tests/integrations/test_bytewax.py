"""A pool in a Bytewax flow: the same answers, also after a crash."""

import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("bytewax")

import bytewax.operators as op
from bytewax.connectors.files import FileSink
from bytewax.dataflow import Dataflow
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import TestingSink, TestingSource, run_main

import obax.estimators
import obax.integrations.bytewax as room
from obax.estimators import Pool, StreamingClassifier

ROOT = Path(__file__).parents[2]


def drawn(count=300, seed=0):
    rng = np.random.default_rng(seed)
    rows = []
    for t in range(count):
        who, (a, b) = int(rng.integers(12)), rng.standard_normal(2).tolist()
        rows.append({"t": t, "who": f"w{who}", "a": a, "b": b, "y": (a > 0) == (who % 2 == 0)})
    return rows


def expected(rows, pool=None):
    """What the pool itself says."""
    pool = pool or Pool(StreamingClassifier(), key="who")
    features = [{"a": row["a"], "b": row["b"]} for row in rows]
    played = pool.play([row["who"] for row in rows], features, [row["y"] for row in rows])
    return played.loss


def flow_of(source, sink, pool=None, **options):
    flow = Dataflow("pool")
    rows = op.input("rows", flow, source)
    pool = pool or Pool(StreamingClassifier(), key="who")
    said = room.learn("learn", rows, pool, target="y", drop=("t",), **options)
    lines = op.map("line", said, lambda pair: ("out", json.dumps(pair[1])))
    op.output("out", lines, sink)
    return flow


def losses(lines, count):
    """By the row, each of which must be there once."""
    found = {row["t"]: result["loss"] for row, result in map(json.loads, lines)}
    assert len(lines) == len(found) == count
    return [found[t] for t in range(count)]


def test_a_flow_predicts_what_the_pool_predicts():
    rows, out = drawn(), []
    run_main(flow_of(TestingSource(rows, batch_size=25), TestingSink(out), shards=3))
    found = losses([line for _, line in out], len(rows))
    np.testing.assert_allclose(found, expected(rows), rtol=1e-5)
    row, result = json.loads(out[-1][1])
    assert result["key"] == row["who"] and set(result["hyperparameters"]) > {"memory", "penalty"}


def test_a_flow_goes_on_where_the_pool_was_and_leaves_it_alone():
    rows, later, out = drawn(), drawn(100, 1), []
    pool, same = (Pool(StreamingClassifier(), key="who", max_keys=6) for _ in range(2))
    for one in (pool, same):
        expected(rows, one)
    run_main(flow_of(TestingSource(later, batch_size=10), TestingSink(out), pool, shards=2))
    found = losses([line for _, line in out], len(later))
    assert pool.rows == len(rows)
    np.testing.assert_allclose(found, expected(later, same), rtol=1e-5)


def test_bad_keys_are_rejected_with_a_reason():
    rows = [{"who": None, "a": 1.0, "y": True}, {"a": 1.0, "y": True}]
    rows += [{"who": ["x"], "a": 1.0, "y": True}, {"who": "w", "a": 1.0, "y": True}]
    out = []
    run_main(flow_of(TestingSource(rows), TestingSink(out)))
    told = [json.loads(line)[1].get("rejected") for _, line in out]
    assert sorted(map(str, told))[0] == "None" and sum("missing" in str(one) for one in told) == 2
    assert sum("not hashable" in str(one) for one in told) == 1
    with pytest.raises(ValueError, match="shards must be an integer >= 1"):
        flow_of(TestingSource(rows), TestingSink(out), shards=0)


def crashed(tmp_path, rows):
    """A flow that aborts twice and is taken up again; the lines it leaves."""
    (tmp_path / "store").mkdir()
    init_db_dir(tmp_path / "store", 1)
    recovery = RecoveryConfig(str(tmp_path / "store"), backup_interval=timedelta(0))
    for cut in (90, 200, len(rows)):
        # One at a time: Bytewax's source for tests does not count those that it has passed.
        source = [*rows[:cut], *([TestingSource.ABORT()] if cut < len(rows) else []), *rows[cut:]]
        flow = flow_of(TestingSource(source, batch_size=15), FileSink(tmp_path / "out"), shards=3)
        run_main(flow, epoch_interval=timedelta(0), recovery_config=recovery)
    return (tmp_path / "out").read_text().splitlines()


def test_a_crash_loses_no_row_and_doubles_none(tmp_path):
    rows = drawn()
    found = losses(crashed(tmp_path, rows), len(rows))
    np.testing.assert_allclose(found, expected(rows), rtol=1e-5)


def test_a_snapshot_without_its_state_is_found(tmp_path, monkeypatch):
    """Mutant: models that begin anew after a crash say something else."""
    fresh = room.to_bytes(Pool(StreamingClassifier(), key="who", shards=1))
    monkeypatch.setattr(room.Learner, "snapshot", lambda self: fresh)
    rows = drawn()
    found = losses(crashed(tmp_path, rows), len(rows))
    assert not np.allclose(found, expected(rows), rtol=1e-2)


def test_snapshots_are_plain_bytes():
    learner = room.Learner(lambda row: Pool(StreamingClassifier(), key="who"), None, "y", {"t"})
    learner.on_batch(drawn(50))
    state = learner.snapshot()
    assert type(state) is bytes and state[:2] == b"PK"
    again = room.Learner(None, (state, Pool(StreamingClassifier(), key="who")), "y", {"t"})
    assert again.snapshot() == state
    with pytest.raises(ValueError, match="Bytewax's recovery store"):
        room.Learner(None, (state[:-100], Pool(StreamingClassifier(), key="who")), "y", {"t"})


def test_nothing_else_imports_bytewax():
    files = [path for path in (ROOT / "src").rglob("*.py") if "import bytewax" in path.read_text()]
    assert files == [Path(room.__file__).resolve()]
    assert Path(obax.estimators.__file__).is_relative_to(ROOT)


@pytest.mark.slow
def test_the_example_is_killed_and_recovers():
    command = [sys.executable, str(ROOT / "examples" / "bytewax_pool.py"), "1500", "5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("killed with") == 5 and "each row once" in done.stdout
