"""The benchmark of pools: that it runs, checks what it compares, and complains."""

import json

import numpy as np
import pytest

pytest.importorskip("river")

from benchmarks import pool as bench


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(bench, "CHUNK", 300)


def test_models_are_compared_on_the_same_rows():
    rates, ratios = bench.part_speed(10, 900, quick=False)
    assert [row[0] for row in rates.rows] == ["pool", "pool, one member", "River", "separate"]
    assert all(rate > 0 for row in rates.rows for rate in row[1:])
    found = {row[0]: row for row in ratios.rows}
    assert found["largest difference from separate models"][1:] == [0.0, bench.SAME, "met"]


def test_a_limit_that_is_missed_and_predictions_that_differ_are_told(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(bench, "LIMITS", {("pool", "River"): 1e9})
    progressive = bench.Pool.progressive
    monkeypatch.setattr(bench.Pool, "progressive", lambda *a: progressive(*a) + 1e-6)
    monkeypatch.setattr(bench, "drawn", lambda keys, rows, draw=bench.drawn: draw(10, 300))
    whole = bench.part_speed
    monkeypatch.setattr(bench, "part_speed", lambda *_: whole(10, 300, False))
    assert bench.main(["--only", "speed", "--json", str(tmp_path / "out.json")]) == 1
    told = capsys.readouterr().out
    assert "pool / River" in told.split("missed:")[1] and "largest difference" in told
    assert len(json.loads((tmp_path / "out.json").read_text())) == 2


def test_streams_of_the_start():
    for kind in ("steady", "drifting", "noisy"):
        keys, values, labels = bench.shops(kind, 20, 4000, 0)
        mine = np.flatnonzero(keys == 3)
        # What is true of a key's first rows is true of its last ones, unless it drifts.
        weights = [
            np.linalg.lstsq(values[at], labels[at] - 0.5)[0] for at in np.split(mine[:150], 3)
        ]
        same = weights[0] @ weights[2] / np.linalg.norm(weights[0]) / np.linalg.norm(weights[2])
        assert same > 0.5 if kind == "steady" else kind == "noisy" or same < 0.3
