"""`obax watch`: what the page is told, and that nothing else is served."""

import ast
import asyncio
import http.client
import json
import re
import types
from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from browser import FOUND, browser
from running_server import running
from typer.testing import CliRunner

import obax.lab
from obax import cli
from obax.estimators import StreamingClassifier
from obax.lab import RunFolder
from obax.lab.framework.playing import timed
from obax.lab.report import Answer, Figure, Findings, Series, Table
from obax.lab.report.figures import colour_of
from obax.lab.watch_page import write_page
from obax.serve.app import page_and_policy, watch_application
from obax.serve.guard import Bounds
from obax.serve.page import read as read_page
from obax.streaming import Checkpoint, Input, Job, Output

pytestmark = pytest.mark.usefixtures("quick_compilation")


@pytest.fixture(scope="module")
def stream_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stream")
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((300, 2))
    text = "a,b,y\n" + "".join(f"{a},{b},{int(a > b)}\n" for a, b in rows) + "x,1,1\n"
    (folder / "rows.csv").write_text(text)
    job = Job(
        StreamingClassifier(members=("tuned", "start")),
        Input(folder / "rows.csv", "y"),
        Output(folder / "out.jsonl", coverage=0.8),
        Checkpoint(folder / "ck"),
    )
    assert job.run() == 301
    return folder / "ck"


@pytest.fixture(scope="module")
def address(stream_folder):
    application = watch_application(stream_folder, Bounds())
    with running(application, asyncio.Event()) as client:
        yield client.base_url.host, client.base_url.port


def get(address, path="/", method="GET", **headers):
    connection = http.client.HTTPConnection(*address, timeout=10)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


def test_the_data_of_a_stream(address):
    answer, body = get(address, "/data.json")
    data = json.loads(body)
    assert answer.status == 200 and data["trouble"] is None and data["done"]
    assert dict(data["facts"])["rows"] == "301" and dict(data["facts"])["rejected"] == "1"
    assert data["question"].startswith("How well is this stream predicted")
    said = re.fullmatch(r"Accuracy (0\.\d+) ± (0\.\d+) over 301 rows, recently .*", data["answer"])
    assert float(said[1]) > 0.9 and 0 < float(said[2]) < 0.1
    assert [chart["title"] for chart in data["charts"]] == [
        "Accuracy",
        "Coverage",
        "Loss before learning",
        "Penalty",
        "Memory",
        "Inertia",
        "Members' shares of the prediction",
    ]
    facts = dict(data["facts"])
    assert (
        float(facts["accuracy"]) > 0.9 and abs(float(facts["coverage, requested 0.8"]) - 0.8) < 0.1
    )
    by_title = {chart["title"]: chart for chart in data["charts"]}
    asked = by_title["Coverage"]["curves"][-1]
    assert asked["name"] == "requested" and set(asked["y"]) == {0.8}
    members = by_title["Members' shares of the prediction"]
    assert not members["log"] and "tuned" in [curve["name"] for curve in members["curves"]]
    assert sum(curve["y"][-1] for curve in members["curves"]) == pytest.approx(1, abs=1e-3)
    curve = data["charts"][0]["curves"][0]
    assert curve["x"][-1] == 300 and len(curve["x"]) == len(curve["y"])
    (rejected,) = data["rejected"]
    assert rejected["row"] == 301 and "feature 'a' is 'x', not a number" in rejected["reason"]


@pytest.mark.slow
@pytest.mark.skipif(FOUND is None, reason="no Chromium on this machine: the page is not opened")
def test_in_a_browser(address, tmp_path):
    with browser(tmp_path / "profile") as shown:
        for width, dark in ((390, True), (1440, False)):
            shown.open(f"http://127.0.0.1:{address[1]}/", width, dark=dark)
            shown.until("document.querySelectorAll('canvas').length > 1")
            assert not shown.wider(width)
            assert shown.named("heading")[0].startswith("How well is this stream predicted")
            # Folded charts are not read out; the open one says where its curves end.
            (said,) = shown.named("image", "img")
            assert said.startswith("Accuracy. Last values: accuracy: ")
        shown.run("document.querySelector('summary').focus()")
        shown.press("Enter")
        shown.until("document.getElementById('folded').open")
        assert len(shown.named("image", "img")) == 7
        assert shown.problems == []


def test_only_the_page_and_only_for_this_machine(address):
    assert address[0] == "127.0.0.1"
    answer, body = get(address)
    assert answer.status == 200 and b"<script>" in body
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert get(address, method="HEAD")[1] == b""
    for path in ("/watch.json", "/../rows.csv", "/data.json/x"):
        assert get(address, path)[0].status == 404
    for method in ("POST", "PUT", "DELETE"):
        assert get(address, method=method)[0].status == 405
    assert get(address, Host="evil.example")[0].status == 403
    assert get(address, Host=f"localhost:{address[1]}")[0].status == 200


def test_the_page_asks_nobody_else():
    body, policy = page_and_policy()
    text = body.decode()
    assert not re.search(r"https?:|//[a-z]|@import|url\(|\bsrc=|href=", text)
    assert not re.search(r"\son\w+=|\sstyle=", text)
    assert policy.count("sha256-") == 2


def shown(folder):
    """The page of a run folder, written now."""
    write_page(folder)
    return read_page(folder.path)


def test_a_run_folder_part_by_part(tmp_path):
    folder = RunFolder.create(tmp_path / "run", "dynamic-regression", "quick", {})
    assert shown(folder)["charts"] == []
    columns = ["experiment", "method", "w", "S", "seed", "t", "metric", "value"]
    rows = [
        ["e", f"OAGD, w = {w}", w, stages, seed, t, metric, float(t * w + seed + stages)]
        for w, stages in ((1, 3), (10, 3), (10, 6))
        for seed in (0, 1)
        for t in range(1, 5)
        for metric in ("loss", "regret")
    ]
    folder.save_part("one", pd.DataFrame(rows, columns=columns), 2.0)
    data = shown(folder)
    assert not data["done"] and dict(data["facts"])["parts done"] == "1"
    assert [chart["title"] for chart in data["charts"]] == ["loss", "regret"]
    curves = data["charts"][0]["curves"]
    assert [curve["name"] for curve in curves] == [
        "OAGD, w = 1",
        "OAGD, w = 10, S = 3",
        "OAGD, w = 10, S = 6",
    ]
    assert curves[1]["x"] == [1, 2, 3, 4] and curves[1]["y"] == [13.5, 23.5, 33.5, 43.5]
    # What a part has come to is not what its checksum says: told, not drawn.
    (folder.path / "checkpoints" / "one.parquet").write_bytes(b"half")
    assert "checksum" in shown(folder)["trouble"]


def test_a_finished_run_is_answered(tmp_path, monkeypatch):
    folder = RunFolder.create(tmp_path / "run", "dynamic-regression", "quick", {})
    columns = ["experiment", "method", "seed", "t", "metric", "value"]
    table = pd.DataFrame([["e", "OGD", 0, t, "loss", 1.0 / t] for t in (1, 2)], columns=columns)
    folder.save_part("one", table, 1.0)
    running = shown(folder)
    assert running["question"].startswith("Can a model tune") and running["table"] == []
    assert running["answer"] == "Not known yet: 1 part done."
    folder.finish(table)
    curve = Series("learned", [1, 2], [1.0, float("inf")], kind="OAGD", w=1)
    small = Table("t", "T", "c", pd.DataFrame({"stream": ["a"], "gain": ["+1.0 ± 0.2"]}))
    answer = Answer("Q?", "Yes: 1.0 ± 0.2.", small, Figure("f", "F", "t", "y", [curve], "c"))
    calls = []

    def found(run):
        calls.append(run.path)
        return Findings([answer], [], [], [], [])

    monkeypatch.setattr(obax.lab, "findings", found)
    data = shown(folder)
    assert read_page(folder.path) == data
    assert (data["question"], data["answer"], data["trouble"]) == ("Q?", "Yes: 1.0 ± 0.2.", None)
    assert data["table"] == [["stream", "gain"], ["a", "+1.0 ± 0.2"]]
    (drawn,) = data["charts"][0]["curves"]
    assert drawn["y"] == [1.0, None] and drawn["colour"] == colour_of("OAGD", 1)
    # Read once, not with every look.
    assert len(calls) == 1


class Doubtful(eqx.Module):
    """Rejects what is beyond 3, as far as an experiment can see."""

    def step(self, state, round):
        accepted = jnp.abs(round) < 3
        return jnp.where(accepted, state + round, state), types.SimpleNamespace(accepted=accepted)


def test_rejected_rounds_of_a_run_are_counted_once(tmp_path):
    """An experiment writes the count so far, in several rounds of each run; watch says the sum over
    the runs of what each came to."""
    folder = RunFolder.create(tmp_path / "run", "mnist-shift", "quick", {})
    rows = []
    for method, w in (("OAGD, w = 1", 1), ("OAGD, w = 9", 9), ("fixed", None)):
        for seed in (0, 1):
            rounds = [jnp.asarray(5.0 if t < seed + (w or 0) // 3 else 1.0) for t in range(6)]
            for now in timed(Doubtful(), jnp.asarray(0.0), rounds):
                at = ["e", method, w, seed, now.t]
                rows += [[*at, "rejected", float(now.rejected)], [*at, "loss", 1.0]]
    columns = ["experiment", "method", "w", "seed", "t", "metric", "value"]
    table = pd.DataFrame(rows, columns=columns).astype({"w": "Int64"})
    folder.save_part("one", table[table.w.notna()], 1.0)
    folder.save_part("two", table[table.w.isna()], 1.0)
    # 0 + 1 for w = 1, 3 + 4 for w = 9, 0 + 1 for the fixed one.
    assert dict(shown(folder)["facts"])["rejected"] == "9"


def test_experiments_write_the_metric_that_watch_reads():
    room = Path(obax.lab.__path__[0])
    words = {
        node.value
        for path in room.rglob("*.py")
        if path.name not in ("findings.py", "run_folder.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant)
    }
    assert "rejected" in words and "refused" not in words


def test_a_folder_in_trouble_is_told_not_raised(tmp_path):
    (tmp_path / "watch.json").write_text("{half")
    assert read_page(tmp_path)["trouble"]
    assert "neither a run" in read_page(tmp_path / "nothing")["trouble"]
    done = CliRunner().invoke(cli.app, ["watch", str(tmp_path / "nothing")])
    assert "neither a run" in str(done.exception)


def test_a_running_stream_is_followed(tmp_path, monkeypatch):
    """What is shown moves while the stream runs, before any checkpoint."""
    (tmp_path / "rows.csv").write_text("a,y\n" + "1.0,1\n2.0,0\n" * 40)
    rows, out = Input(tmp_path / "rows.csv", "y"), Output(tmp_path / "out")
    job = Job(StreamingClassifier(), rows, out, Checkpoint(tmp_path / "ck", every=10_000))
    job.play(job.source.take(10))
    first = read_page(tmp_path / "ck")
    monkeypatch.setattr("obax.streaming.job.PAGE_SECONDS", 0.0)
    job.play(job.source.take(30))
    second = read_page(tmp_path / "ck")
    assert (dict(first["facts"])["rows"], dict(second["facts"])["rows"]) == ("10", "40")
    assert not second["done"]
    job.close()
