"""`obax stream` against people's own files, ends of every kind, and inputs that are none."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from obax import cli
from obax.estimators import StreamingClassifier
from obax.streaming import Checkpoint, Input, Job, Output, Stop, StreamError
from obax.streaming.input_checks import Ends, check_first_bytes, check_header
from obax.streaming.results import to_json
from obax.streaming.signals import reader_has_gone

ROWS = "a,b,up\n" + "".join(f"{i % 7},{i % 3},{i % 2}\n" for i in range(60))


def stream(*arguments, source=None):
    return CliRunner().invoke(cli.app, ["stream", *map(str, arguments)], input=source)


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(ROWS)
    return path


def test_the_input_is_never_the_output(rows, tmp_path):
    (tmp_path / "link.csv").symlink_to(rows)
    os.link(rows, tmp_path / "hard.csv")
    for out in (rows, tmp_path / "link.csv", tmp_path / "hard.csv"):
        done = stream(rows, "--target", "up", "--out", out, "--overwrite")
        assert "same file as the input" in str(done.exception)
        assert rows.read_text() == ROWS


def test_an_output_that_is_not_this_streams_is_left_alone(rows, tmp_path):
    out, folder = tmp_path / "out", tmp_path / "ck"
    out.write_text("a person's notes\n")
    same = (rows, "--target", "up", "--checkpoint", folder)
    assert "not the output of this stream" in str(stream(*same, "--out", out).exception)
    assert out.read_text() == "a person's notes\n"
    assert stream(*same, "--out", out, "--overwrite").exit_code == 0
    # Taken up with another file that is there and long enough, which would be cut.
    other = tmp_path / "other"
    other.write_text("x" * 10**5)
    assert "not what this stream has written" in str(stream(*same, "--out", other).exception)
    assert other.read_text() == "x" * 10**5
    assert stream(*same, "--out", out).exit_code == 0


def test_a_start_killed_before_its_first_checkpoint_knows_its_output(rows, tmp_path):
    out, folder = tmp_path / "out", tmp_path / "ck"
    same = (rows, "--target", "up", "--checkpoint", folder, "--out", out)
    assert stream(*same).exit_code == 0
    whole = out.read_bytes()
    for file in folder.glob("*.obax"):
        file.unlink()
    assert stream(*same).exit_code == 0
    assert out.read_bytes() == whole


@pytest.mark.parametrize("change", ["replaced", "cut", "rotated"])
def test_another_input_is_known(rows, tmp_path, change):
    same = ("--target", "up", "--checkpoint", tmp_path / "ck", "--out", tmp_path / "out")
    assert stream(rows, *same).exit_code == 0
    lines = ROWS.splitlines(keepends=True)
    changed = {
        "replaced": ROWS.replace("6,", "5,"),
        "cut": "".join(lines[:40]),
        "rotated": "".join(lines[:1] + lines[30:] + lines[1:30]),
    }[change]
    rows.write_text(changed)
    assert "is not the one of the checkpoint" in str(stream(rows, *same).exception)
    assert stream(rows, *same, "--other-input").exit_code == 0
    # One that went on is the same input.
    rows.write_text(ROWS + "1,1,1\n")
    fresh = ("--target", "up", "--checkpoint", tmp_path / "2", "--out", tmp_path / "out2")
    assert stream(rows, *fresh).exit_code == 0
    rows.write_text(ROWS + "1,1,1\n2,2,0\n")
    assert stream(rows, *fresh).exit_code == 0
    assert len((tmp_path / "out2").read_text().splitlines()) == 62
    # A pipe that starts again is held to the same.
    rows.write_text(ROWS.replace("3,", "4,") * 2)
    with (
        rows.open("rb") as pipe,
        pytest.raises(StreamError, match="is not the one of the checkpoint"),
    ):
        model, out = StreamingClassifier(), tmp_path / "out2"
        Job(model, Input(pipe.fileno(), "up"), Output(out), Checkpoint(tmp_path / "2"))


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (gzip.compress(ROWS.encode()), "csv", "gzip"),
        (ROWS.encode("utf-16"), "csv", "UTF-16"),
        (b"PK\x03\x04xx", "csv", "spreadsheet"),
        (b'\n[{"a": 1},\n', "jsonl", "one array of JSON"),
        (b'{\n "a": 1\n}\n', "jsonl", "over several lines"),
        (b'{"a": 1, "up": 2}\n', "csv", "--format jsonl"),
        (b"a,a,up\n", "csv", "has 'a' more than once"),
        (b"1,2,0\n3,4,1\n", "csv", "must name the columns, but it holds numbers"),
        (b"a,b,upp\n", "csv", "Did you mean 'upp'?"),
    ],
)
def test_what_is_no_table_is_said_at_once(tmp_path, text, kind, words):
    path, out = tmp_path / "rows", tmp_path / "out"
    path.write_bytes(text)
    done = stream(path, "--target", "up", "--format", kind, "--out", out)
    assert words in str(done.exception), done.exception
    assert out.read_bytes() == b""


def test_marks_and_quotes(tmp_path):
    path, out = tmp_path / "rows.csv", tmp_path / "out"
    path.write_bytes(b'\xef\xbb\xbfup,a\r\n1,2\r\n0,"3\n4"\r\n1,5\r\n')
    done = stream(path, "--target", "up", "--out", out)
    assert done.exit_code == 0, done.exception
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert "must end on the line it begins on" in found[1]["rejected"]
    assert "prediction" in found[0] and "prediction" in found[3]


def test_what_is_written_is_json():
    def strict(text):
        raise AssertionError(text)

    line = to_json({"id": float("nan"), "set": [float("inf"), {"x": (1, -float("inf"))}], "t": 1.5})
    assert json.loads(line, parse_constant=strict) == {
        "id": None, "set": [None, {"x": [1, None]}], "t": 1.5
    }  # fmt: skip
    # The mutant: plain json would have written a word that is not JSON.
    with pytest.raises(AssertionError):
        json.loads(json.dumps({"id": float("nan")}), parse_constant=strict)


def test_the_checks_of_a_beginning_pass_what_is_right():
    check_first_bytes(ROWS.encode(), "csv")
    check_first_bytes(b'{"a": 1}\n', "jsonl")
    check_header(["a", "b"], {"--target": ("b",)})
    with pytest.raises(StreamError, match="no 'c'"):
        check_header(["a", "b"], {"--drop": ("c",)})
    seen = Ends()
    for part in (b"x" * 900, b"y" * 900, b"z" * 10):
        seen.add(part)
    assert seen == Ends.from_dict(seen.to_dict()) and seen.head == b"x" * 900 + b"y" * 124
    assert seen.tail == b"x" * 114 + b"y" * 900 + b"z" * 10


def test_a_stop_is_noted_and_wakes_who_waits():
    before = signal.getsignal(signal.SIGTERM)
    reader, writer = os.pipe()
    stop = Stop()
    try:
        os.write(writer, b"x")
        assert stop.wait(reader) and not stop
        os.read(reader, 1)
        signal.raise_signal(signal.SIGTERM)
        assert not stop.wait(reader) and stop.signal == signal.SIGTERM
    finally:
        stop.close()
    assert signal.getsignal(signal.SIGTERM) is before
    with os.fdopen(writer, "wb", buffering=0) as out:
        assert not reader_has_gone(out)
        os.close(reader)
        assert reader_has_gone(out)


def launch(tmp_path, *more, **given):
    command = [sys.executable, "-m", "obax", "stream", "-", "--target", "up", "--continues"]
    command += ["--checkpoint", tmp_path / "ck", *more]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, **given)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_polite_stop_loses_nothing(tmp_path, number):
    """Stopped between two checkpoints, everything that was predicted stays, and the rest of a pipe
    goes on where it was."""
    lines = ROWS.splitlines(keepends=True)
    header, body = lines[0], lines[1:] * 40
    whole = launch(tmp_path / "whole", "--out", tmp_path / "whole.out")
    _, told = whole.communicate((header + "".join(body)).encode(), timeout=300)
    assert whole.returncode == 0, told
    out = tmp_path / "out"
    first = launch(tmp_path, "--out", out)
    first.stdin.write((header + "".join(body[:1700]) + body[1700][:3]).encode())
    first.stdin.flush()
    deadline = time.monotonic() + 300
    while not (out.is_file() and out.read_bytes().count(b"\n") >= 1700):
        assert time.monotonic() < deadline and first.poll() is None
        time.sleep(0.02)
    first.send_signal(number)
    told = first.stderr.read().decode()
    assert first.wait(60) == 128 + number
    first.stdin.close()
    first.stderr.close()
    assert f"stopped by {number.name} at row 1,700; the same command goes on" in told
    assert out.read_bytes().count(b"\n") == 1700
    second = launch(tmp_path, "--out", out)
    _, told = second.communicate((body[1700][3:] + "".join(body[1701:])).encode(), timeout=300)
    assert second.returncode == 0, told
    assert out.read_bytes() == (tmp_path / "whole.out").read_bytes()


@pytest.mark.slow
def test_a_reader_that_leaves_ends_it_quietly(tmp_path):
    process = launch(tmp_path, stdout=subprocess.PIPE)
    process.stdin.write(ROWS.encode())
    process.stdin.flush()
    assert b'"t": 1' in process.stdout.readline()
    process.stdout.close()
    process.stdin.write(ROWS.split("\n", 1)[1].encode())
    process.stdin.close()
    told = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait(60) == 0 and "Traceback" not in told and "Broken" not in told
    assert list((tmp_path / "ck").glob("*.obax"))
