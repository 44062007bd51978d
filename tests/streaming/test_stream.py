"""`obax stream`: CSV and JSON lines, faults, and kills at random moments."""

import ast
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from obax import cli, streaming
from obax.checkpoint import Folder
from obax.cli.stream import Screen
from obax.estimators import StreamingClassifier, Table
from obax.streaming import Input, Job, Output
from obax.streaming.score import Score
from obax.streaming.source import MAX_LINE_BYTES, Source

pytestmark = pytest.mark.usefixtures("quick_compilation")


def write_rows(path, n, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, 3))
    label = (rows @ [1.0, -1.0, 0.5] > 0).astype(int)
    lines = ["a,b,c,up"]
    lines += [f"{a:.4f},{b:.4f},{c:.4f},{y}" for (a, b, c), y in zip(rows, label, strict=True)]
    path.write_text("\n".join(lines) + "\n")
    return lines


def stream(*arguments, source=None):
    return CliRunner().invoke(cli.app, ["stream", *map(str, arguments)], input=source)


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_csv_and_json_lines_give_the_same_answers(tmp_path):
    lines = write_rows(tmp_path / "rows.csv", 150)
    names = lines[0].split(",")
    rows = [dict(zip(names, line.split(","), strict=True)) for line in lines[1:]]
    as_json = [
        json.dumps({n: float(v) if n != "up" else v for n, v in row.items()}) for row in rows
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(as_json))
    for kind in ("csv", "jsonl"):
        done = stream(
            tmp_path / f"rows.{kind}", "--target", "up", "--out", tmp_path / f"{kind}.out"
        )
        assert done.exit_code == 0, done.output
        assert "150 rows, 0 rejected" in done.output
    assert (tmp_path / "csv.out").read_bytes() == (tmp_path / "jsonl.out").read_bytes()
    found = read(tmp_path / "csv.out")
    assert [one["t"] for one in found] == list(range(1, 151))
    said = [one["prediction"] == row["up"] for one, row in zip(found, rows, strict=True)]
    assert np.mean(said[50:]) > 0.85
    names = {"penalty", "forgetting", "memory", "inertia", "members"}
    assert set(found[-1]["hyperparameters"]) == names


def test_faulty_lines_are_rejected_and_others_learned(tmp_path):
    lines = write_rows(tmp_path / "rows.csv", 20)
    lines[5:5] = ["1,2", "x,1,1,1", '"open,1,1,1', "1e30,1,1,1", "", "1,1,1,", ",,,1"]
    path = tmp_path / "faulty.csv"
    path.write_bytes("\n".join(lines).encode() + b"\n\xff\xfe,1,1,1\n")
    done = stream(path, "--target", "up", "--out", tmp_path / "out")
    assert "27 rows, 5 rejected" in done.output
    found = read(tmp_path / "out")
    reasons = [one["rejected"] for one in found if "rejected" in one]
    for reason, words in zip(
        reasons, ("2 fields", "'a' is 'x'", "not CSV", "beyond", "not UTF-8"), strict=True
    ):
        assert words in reason
    unlabelled = found[8]
    assert "loss" not in unlabelled and unlabelled["prediction"] in ("0", "1")


def test_json_faults(tmp_path):
    text = '{"a": 1, "y": true}\n[1]\n{oops\n{"a": null, "y": false}\n' + "[" * 5000 + "\n"
    (tmp_path / "rows").write_text(text)
    done = stream(
        tmp_path / "rows", "--target", "y", "--format", "jsonl", "--out", tmp_path / "out"
    )
    assert "5 rows, 3 rejected" in done.output
    assert [one.get("prediction", "rejected") for one in read(tmp_path / "out")] == [
        None,
        "rejected",
        "rejected",
        True,
        "rejected",
    ]


def test_regression(tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((80, 2))
    text = "a,b,y\n" + "".join(f"{a},{b},{3 * a - b}\n" for a, b in rows)
    (tmp_path / "rows.csv").write_text(text)
    arguments = ("--target", "y", "--task", "regress", "--out", tmp_path / "out")
    assert stream(tmp_path / "rows.csv", *arguments).exit_code == 0
    said = [one["prediction"] for one in read(tmp_path / "out")]
    assert np.corrcoef(said[40:], (rows @ [3.0, -1.0])[40:])[0, 1] > 0.95


def test_row_numbers_agree_in_output_and_rejections(tmp_path):
    """`t` of the output and `row` of `rejected_` count the same lines, readable or not."""
    lines = write_rows(tmp_path / "rows.csv", 12)
    lines[3:3] = ["1,2", "x,1,1,1"]
    lines[8:8] = ["", "1,2,3", "1e30,1,1,1"]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    rows = [line for line in lines[1:] if line]
    objects = [dict(zip("abcy", line.split(","), strict=False)) for line in rows]
    as_json = [
        json.dumps({n: v if n == "y" or v == "x" else float(v) for n, v in one.items()})
        if len(one) == 4
        else "no json"
        for one in objects
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(as_json))
    for kind, target in (("csv", "up"), ("jsonl", "y")):
        out = tmp_path / f"{kind}.out"
        rows = Input(tmp_path / f"rows.{kind}", target, kind)
        job = Job(StreamingClassifier(), rows, Output(out))
        assert job.run() == 16
        told = [(one["t"], one["rejected"]) for one in read(out) if "rejected" in one]
        kept = [(one["row"], one["reason"]) for one in job.model.rejected_]
        assert told == kept and [t for t, _ in told] == [3, 4, 8, 9]
        assert job.score.rows == 12


def test_missing_column_raises_at_the_header(tmp_path):
    write_rows(tmp_path / "rows.csv", 5)
    for arguments in (("--target", "upp"), ("--target", "up", "--drop", "upp")):
        done = stream(tmp_path / "rows.csv", *arguments, "--out", tmp_path / "out")
        assert "Did you mean 'up'?" in str(done.exception) and arguments[-2] in str(done.exception)
        assert (tmp_path / "out").read_text() == ""


def test_exit_code_1_if_nothing_was_learned(tmp_path):
    write_rows(tmp_path / "rows.csv", 120)
    refused = (tmp_path / "rows.csv").read_text().replace("\n", "x\n").replace("upx", "up")
    (tmp_path / "rows.csv").write_text(refused)
    arguments = ("--target", "up", "--task", "regress", "--overwrite", "--out", tmp_path / "out")
    done = stream(tmp_path / "rows.csv", *arguments)
    assert done.exit_code == 1
    assert "warning: none of 120 rows was learned: 120 were rejected" in done.stderr
    assert "is not a number" in done.stderr.splitlines()[-1]
    # Fewer than a hundred end with 1 too, but are not worth a warning on the way.
    (tmp_path / "few.csv").write_text("".join(refused.splitlines(keepends=True)[:50]))
    done = stream(tmp_path / "few.csv", *arguments)
    assert done.exit_code == 1 and "warning" not in done.stderr
    # Objects of JSON have no header: it is told when none had the target.
    (tmp_path / "rows.jsonl").write_text('{"a": 1.5, "label": 1}\n' * 100)
    done = stream(tmp_path / "rows.jsonl", "--target", "labels", "--out", tmp_path / "other")
    assert done.exit_code == 1
    assert "none has a value for 'labels'. Did you mean 'label'?\n" in done.stderr
    # One row that is learned is enough.
    (tmp_path / "rows.csv").write_text(refused + "1,1,1,2\n")
    done = stream(tmp_path / "rows.csv", *arguments)
    assert done.exit_code == 0 and "the last 100 rows were all rejected" in done.stderr


def test_score_equals_the_score_of_the_output(tmp_path):
    lines = write_rows(tmp_path / "rows.csv", 2500)
    out = tmp_path / "out"
    done = stream(tmp_path / "rows.csv", "--target", "up", "--out", out, "--coverage", 0.9)
    found, labels = read(out), [line.split(",")[-1] for line in lines[1:]]
    right = np.mean([one["prediction"] == y for one, y in zip(found, labels, strict=True)])
    inside = np.mean([y in one["set"] for one, y in zip(found, labels, strict=True)])
    loss = np.mean([one["loss"] for one in found])
    said = done.stderr.splitlines()
    expected = f"accuracy {right:.4g}, coverage {inside:.4g} (requested: 0.9), mean loss {loss:.4g}"
    assert expected in said[-1] and abs(inside - 0.9) < 0.02
    # While it ran, after 1,000 rows and twice as many.
    assert [line.split(" rows")[0] for line in said[1:-1]] == ["obax: 1,024", "obax: 2,048"]


def test_progress_on_a_terminal(tmp_path, capsys):
    write_rows(tmp_path / "rows.csv", 40)
    screen = Screen(renew=True)
    rows, out = Input(tmp_path / "rows.csv", "up"), Output(tmp_path / "out")
    job = Job(StreamingClassifier(), rows, out, on_batch=screen.show)
    job.run()
    screen.print("done")
    # The rest of the sequence that clears a line is left out away from a terminal.
    begin, shown, last = capsys.readouterr().err.split("\r")
    assert begin == "" and "40 rows, 0 rejected; accuracy" in shown and last == "done\n"


def test_the_score_and_intervals_of_numbers(tmp_path):
    rng = np.random.default_rng(0)
    a, noise = rng.standard_normal((2, 600))
    y = 3 * a + noise
    text = "a,y\n" + "".join(f"{i},{j}\n" for i, j in zip(a, y, strict=True))
    (tmp_path / "rows.csv").write_text(text)
    arguments = ("--target", "y", "--task", "regress", "--out", tmp_path / "out")
    done = stream(tmp_path / "rows.csv", *arguments, "--coverage", 0.8)
    found = read(tmp_path / "out")
    errors = np.array([one["prediction"] for one in found]) - y
    expected = f"RMSE {np.sqrt(np.mean(errors**2)):.4g}, MAE {np.mean(np.abs(errors)):.4g}"
    assert expected in done.stderr
    assert found[0]["low"] is None and found[0]["high"] is None
    inside = [one["low"] <= j <= one["high"] for one, j in zip(found[1:], y[1:], strict=True)]
    assert abs(np.mean(inside) - 0.8) < 0.02


def test_a_score_keeps_few_points_and_comes_back_from_a_checkpoint():
    score, other = Score(False), Score(False)
    rng = np.random.default_rng(0)
    wrong = rng.random(3000) < np.linspace(0.5, 0.1, 3000)
    for i, error in enumerate(wrong):
        score.add(float(error), covered=False)
        if i == 700:
            other = Score(**json.loads(json.dumps(score.to_dict())))
        elif i > 700:
            other.add(float(error), covered=False)
    assert other == score and len(score.points) < 256
    assert score.means == {"accuracy": pytest.approx(1 - wrong.mean())}
    rows, curve = score.curves["row"], score.curves["accuracy"]
    stride = int(rows[1] - rows[0])
    expected = 1 - wrong[: stride * len(rows)].reshape(-1, stride).mean(axis=1)
    np.testing.assert_allclose(curve, expected)


def test_options_are_those_of_the_estimators(tmp_path):
    write_rows(tmp_path / "rows.csv", 30)
    for i, (given, options) in enumerate(
        (
            ("--learn penalty,inertia --memory 50 --penalty 1 --imbalance weights",
             {"learn": ("penalty", "inertia"), "memory": 50.0, "penalty": 1.0,
              "imbalance": "weights"}),
            ("--learn none --imbalance none --members tuned,start --share 0.01",
             {"learn": (), "members": ("tuned", "start"), "share": 0.01}),
            ("--members tuned --features interactions --lags 2",
             {"members": "tuned", "features": "interactions", "lags": 2}),
        )
    ):  # fmt: skip
        out, folder = tmp_path / f"{i}.out", tmp_path / f"{i}"
        arguments = ("--target", "up", "--out", out, "--checkpoint", folder)
        done = stream(tmp_path / "rows.csv", *arguments, *given.split())
        assert done.exit_code == 0, done.exception
        model = StreamingClassifier(**options)
        found, _ = Folder(folder).latest(like=model)
        assert found.get_params() == model.get_params()
    for arguments, message in (
        (("--imbalance", "weights", "--task", "regress"), "not an option of --task regress"),
        (("--memory", "long"), "memory must be a number, but is 'long'"),
        (("--share", "some"), "share must be a number, but is 'some'"),
        (("--learn", "penality"), "learn must be a tuple of some of"),
        (("--coverage", "1"), "coverage must be a number between 0 and 1"),
    ):
        done = stream(tmp_path / "rows.csv", "--target", "up", *arguments)
        assert message in str(done.exception)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing.csv", "--target", "y"), "is not a file"),
        (("-", "--target", "y", "--task", "guess"), "--task must be"),
        (("-", "--target", "y", "--format", "xml"), "--format must be"),
        (("-", "--target", "y", "--penalty", "-1"), "penalty must be a number from"),
    ],
)
def test_invalid_arguments_of_the_command(arguments, message):
    done = stream(*arguments, source="")
    assert message in str(done.exception)


def test_resuming_with_other_settings_raises(tmp_path):
    write_rows(tmp_path / "rows.csv", 30)
    same = (tmp_path / "rows.csv", "--out", tmp_path / "out", "--checkpoint", tmp_path / "ck")
    assert stream(*same, "--target", "up").exit_code == 0
    other = stream(*same, "--target", "a", "--task", "classify")
    assert "other settings" in str(other.exception)
    assert "other settings" in str(stream(*same, "--target", "up", "--memory", 5).exception)
    # Taken up when there is nothing left, it leaves everything as it was.
    before = (tmp_path / "out").read_bytes()
    assert stream(*same, "--target", "up").exit_code == 0
    assert (tmp_path / "out").read_bytes() == before
    (tmp_path / "out").write_bytes(b"")
    assert "shorter than the checkpoint" in str(stream(*same, "--target", "up").exception)


def test_lines_split_anywhere_and_long_lines(tmp_path):
    reader, writer = os.pipe()
    source = Source(Input(reader, "y", "jsonl"))
    os.write(writer, b'{"a": 1, "y"')
    os.write(writer, b': 2}\n{"a": 3,')
    assert source.take(10).rows == [{"a": 1}]
    os.write(writer, b' "y": 4}')
    os.close(writer)
    assert source.take(10).targets == [4]
    assert len(source.take(10)) == 0 and source.position.offset == 33
    os.close(reader)
    path = tmp_path / "long"
    path.write_bytes(b"x" * (MAX_LINE_BYTES + 10**5) + b"\n" + b'{"a": 1}\n')
    source, rows = Source(Input(path, "y", "jsonl")), []
    while batch := source.take(10):
        rows += batch.rows
    source.close()
    assert "longer than" in rows[0].rejected[0] and rows[-1] == {"a": 1}


def test_csv_batch_is_a_table(tmp_path):
    """By columns in the order of their names."""
    path = tmp_path / "rows.csv"
    path.write_text("a,b,id,y\n2,3,7,up\n1,2\n na ,1_0,7,?\nword,1e3,7, down \n")
    source = Source(Input(path, "y", drop=("id",)))
    batch = source.take(10)
    source.close()
    assert isinstance(batch.rows, Table) and batch.rows.names == ["a", "b"]
    np.testing.assert_array_equal(
        batch.rows.values, [[2, 3], [np.nan, np.nan], [np.nan, 10], [np.nan, 1000]]
    )
    assert batch.rows.words == {0: [None, None, None, "word"]}
    assert batch.rows.rejected == {1: "2 fields where the header has 4"}
    assert batch.targets == ["up", None, None, "down"]


def private(text):
    """Private names that are reached for on anything but `self`."""
    return [
        ast.unparse(node)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and not (isinstance(node.value, ast.Name) and node.value.id == "self")
    ]


def test_only_public_methods_of_the_estimators_are_used():
    found = private("self._x + model._made.rejected, job.model._y(), model.__doc__")
    assert sorted(found) == ["job.model._y", "model._made"]
    rooms = Path(streaming.__path__[0]), Path(cli.__path__[0])
    files = [*rooms[0].glob("*.py"), rooms[1] / "stream.py"]
    assert len(files) == 14
    for file in files:
        assert private(file.read_text()) == [], file


def test_play_equals_progressive_and_hyperparameters():
    rng = np.random.default_rng(0)
    table = Table(["a", "b"], rng.standard_normal((40, 2)))
    labels = [
        None if i % 10 == 9 else "up" if a > 0 else "down" for i, (a, _) in enumerate(table.values)
    ]
    table.values[5, 0] = np.inf
    model, other = StreamingClassifier(), StreamingClassifier()
    played = model.play(Table(table.names, table.values), labels)
    taught = [i for i, label in enumerate(labels) if label is not None]
    said = other.progressive(Table(table.names, table.values[taught]), [labels[i] for i in taught])
    order = np.argsort(played.classes)
    np.testing.assert_array_equal(played.predictions[np.ix_(taught, order)], said)
    assert [i for i, reason in enumerate(played.rejected) if reason] == [5]
    assert model.rejected_.count == 1 and other.rejected_.count == 1
    assert played.hyperparameters["memory"][-1] == model.hyperparameters_["memory"]
    learned = [i for i in taught if i != 5]
    assert model.mean_loss_ == pytest.approx(played.loss[learned].mean(), rel=1e-6)
    with pytest.raises(ValueError, match="a column for each of 1 names"):
        Table(["a"], np.zeros((3, 2)))


def test_prepare_checks_options_and_learns_nothing():
    model = StreamingClassifier().prepare()
    assert model.prepare() is model and model.explain() == "No row has been learned yet."
    assert model.rejected_.count == 0 and model.mean_loss_ == 0
    with pytest.raises(ValueError, match="memory must be a number from"):
        StreamingClassifier(memory=0.0).prepare()


COVERAGE = ("--coverage", "0.9")
KEYED = ("--key", "shop", "--max-keys", "7", "--start", "pooled")
"""With all that could differ from one start to the next: models on disk, medians of the others."""


def launch(folder, rows, *, pipe=None, every=100, options=COVERAGE):
    command = [sys.executable, "-m", "obax", "stream", "-" if pipe else str(rows)]
    command += ["--target", "up", "--out", str(folder / "out"), "--checkpoint", str(folder / "ck")]
    command += ["--checkpoint-every", str(every), *options]
    # What one start compiles, the next one finds.
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(rows.parent / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    if pipe:
        with rows.open("rb") as file:
            return subprocess.Popen(command, env=environment, stdin=file, stderr=subprocess.PIPE)
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)


def finish(process):
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors.decode()


def kill_and_resume(tmp_path, kills, rows, *, seed=0, pipe=False, options=COVERAGE):
    """Kill at random moments, resume, and compare with the run that was left alone."""
    path = tmp_path / "rows.csv"
    lines = write_rows(path, rows)
    # A column of keys, one of them missing now and then.
    shops = ["shop", *(f"s{i * i % 31}" if i % 97 else "" for i in range(rows))]
    path.write_text("".join(f"{line},{shop}\n" for line, shop in zip(lines, shops, strict=True)))
    options = (*options, *(() if "--key" in options else ("--drop", "shop")))
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    finish(launch(tmp_path / "whole", path, options=options))
    draw = random.Random(seed)
    folder, done = tmp_path / "killed", 0
    while done < kills:
        process = launch(folder, path, pipe=pipe, options=options)
        # From the first checkpoint of this start on, so that every start gets somewhere.
        known = {file.name for file in (folder / "ck").glob("*.obax")}
        while process.poll() is None and (
            {file.name for file in (folder / "ck").glob("*.obax")} <= known
        ):
            time.sleep(0.002)
        time.sleep(draw.random() * 0.05)
        ended = process.poll() is not None
        process.send_signal(signal.SIGKILL)
        process.communicate()
        done += 1
        if ended:
            break
    finish(launch(folder, path, pipe=pipe, options=options))
    assert (folder / "out").read_bytes() == (tmp_path / "whole" / "out").read_bytes()
    assert not list(folder.rglob("*.part"))
    return done


def test_kills_leave_the_output_identical(tmp_path):
    assert kill_and_resume(tmp_path, 1, 4000) == 1


@pytest.mark.slow
def test_kills_of_many_models_leave_the_output_identical(tmp_path):
    assert kill_and_resume(tmp_path, 2, 4000, options=KEYED) == 2
    found = read(tmp_path / "killed" / "out")
    assert len({one.get("key") for one in found}) > 15
    assert sum("rejected" in one for one in found) == 42


@pytest.mark.slow
def test_fifty_kills_of_many_models_leave_the_output_identical(tmp_path):
    assert kill_and_resume(tmp_path, 50, 60_000, options=KEYED) == 50


@pytest.mark.slow
def test_kills_of_a_pipe_leave_the_output_identical(tmp_path):
    assert kill_and_resume(tmp_path, 5, 20_000, pipe=True) == 5


@pytest.mark.slow
def test_a_hundred_kills_leave_the_output_identical(tmp_path):
    assert kill_and_resume(tmp_path, 100, 100_000) == 100
