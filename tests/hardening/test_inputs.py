"""`obax stream` and files of odd kinds: devices, pipes, links, other encodings, endless lines."""

import json
import os
import subprocess
import sys
import threading

import pytest
from typer.testing import CliRunner

from obax import cli
from obax._support import files
from obax.checkpoint import Folder
from obax.estimators import StreamingClassifier
from obax.streaming import Checkpoint, Input, Job, Output, source

HEADER, LINES = "a,b,up\n", [f"{i % 7},{i % 3},{i % 2}\n" for i in range(60)]
ROWS = HEADER + "".join(LINES)


def stream(*arguments):
    return CliRunner().invoke(cli.app, ["stream", *map(str, arguments), "--target", "up"])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (ROWS.encode("utf-16-le"), "zero bytes in its first line.*UTF-16LE"),
        (ROWS.encode("utf-32"), "is UTF-32"),
        (ROWS.replace("a,", "\xe9,").encode("latin-1"), "header is not UTF-8 .byte 0xe9.*LATIN1"),
        (b"\x89PNG\r\n\x1a\n" + ROWS.encode(), "not UTF-8 .byte 0x89"),
        (ROWS.replace("\n", "\r").encode(), "carriage return alone"),
        (ROWS.replace("\n", "\r").encode() * 3000, "carriage return alone"),
        (b"<!DOCTYPE html>\n<html></html>\n", "HTML"),
        (ROWS.replace(",", ";").encode(), "separated by commas, not by ';'"),
        (ROWS.replace(",", "\t").encode(), r"separated by commas, not by '\\t'"),
    ],
)
def test_what_is_no_csv_is_said_at_once(tmp_path, data, words):
    (tmp_path / "rows.csv").write_bytes(data)
    done = stream(tmp_path / "rows.csv", "--out", tmp_path / "out")
    assert done.exit_code
    with pytest.raises(Exception, match=words):
        raise done.exception


def test_a_field_over_several_lines_is_no_row(tmp_path):
    (tmp_path / "rows.csv").write_text(HEADER + '"x\ny",1,0\n' * 3 + "".join(LINES))
    assert stream(tmp_path / "rows.csv", "--out", tmp_path / "out").exit_code == 0
    answers = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    # Neither half is taken for one: `y",1,0` has three fields.
    assert ["quoted field" in answer.get("rejected", "") for answer in answers] == (
        [True] * 6 + [False] * 60
    )


@pytest.mark.parametrize("chunk", [7, 64, 10**6])
def test_an_endless_line_is_one_row_however_it_comes(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(source, "MAX_LINE_BYTES", 100)
    monkeypatch.setattr(source, "CHUNK_BYTES", chunk)
    text = HEADER + LINES[0] + "9" * 950 + "\n" + "".join(LINES[1:]) + "8" * 333
    (tmp_path / "rows.csv").write_text(text)
    assert stream(tmp_path / "rows.csv", "--out", tmp_path / "out").exit_code == 0
    answers = (tmp_path / "out").read_text().splitlines()
    assert len(answers) == 62
    assert ["longer than" in answer for answer in answers] == [False, True] + [False] * 59 + [True]


def test_a_checkpoint_within_an_endless_line(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "MAX_LINE_BYTES", 100)
    monkeypatch.setattr(source, "CHUNK_BYTES", 64)
    text = HEADER + "".join(LINES[:4]) + "9" * 950 + "\n" + "".join(LINES[4:])
    (tmp_path / "rows.csv").write_text(text)

    def job(name):
        (tmp_path / name).mkdir(exist_ok=True)
        model = StreamingClassifier()
        rows, out = Input(tmp_path / "rows.csv", "up"), Output(tmp_path / name / "out")
        return Job(model, rows, out, Checkpoint(tmp_path / name / "ck", every=5))

    job("whole").run()
    stopped = job("stopped")
    for count in (4, 1):
        stopped.play(stopped.source.take(count))
    assert stopped.source.position.inside
    stopped.save()
    stopped.close()
    job("stopped").run()
    assert (tmp_path / "stopped/out").read_bytes() == (tmp_path / "whole/out").read_bytes()


def test_devices_and_pipes_as_output(tmp_path):
    (tmp_path / "rows.csv").write_text(ROWS)
    same = tmp_path / "rows.csv", "--checkpoint-every", "20"
    # Which says that it can be cut, and cannot be synced.
    for _ in range(2):
        done = stream(*same, "--checkpoint", tmp_path / "ck", "--out", "/dev/null")
        assert done.exit_code == 0, done.exception
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    read = []
    reader = threading.Thread(target=lambda: read.append(fifo.read_bytes()))
    reader.start()
    assert stream(*same, "--checkpoint", tmp_path / "other", "--out", fifo).exit_code == 0
    reader.join()
    assert len(read[0].splitlines()) == 60


def test_a_pipe_with_a_name_as_input(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    writer = threading.Thread(target=lambda: fifo.write_text(ROWS))
    writer.start()
    assert stream(fifo, "--out", tmp_path / "out").exit_code == 0
    writer.join()
    assert len((tmp_path / "out").read_text().splitlines()) == 60
    assert "is not a file" in str(stream(tmp_path, "--out", tmp_path / "no").exception)


@pytest.mark.slow
def test_standard_output_may_be_thrown_away(tmp_path):
    (tmp_path / "rows.csv").write_text(ROWS)
    words = ["stream", "rows.csv", "--target", "up", "--checkpoint", "ck"]
    for _ in range(2):
        done = subprocess.run([sys.executable, "-m", "obax", *words], cwd=tmp_path,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)  # fmt: skip
        assert done.returncode == 0, done.stderr


def test_a_file_is_no_folder_for_checkpoints(tmp_path):
    notes, nowhere = tmp_path / "notes", tmp_path / "link"
    notes.write_text("a person's\n")
    nowhere.symlink_to(tmp_path / "gone")
    for path in (notes, nowhere):
        with pytest.raises(ValueError, match=r"must go to a folder, but .* is none"):
            Folder(path)
    assert notes.read_text() == "a person's\n"


def test_a_link_in_place_of_the_lock_cuts_nobodys_file(tmp_path):
    notes = tmp_path / "notes"
    notes.write_text("a person's\n")
    (tmp_path / "ck").mkdir()
    (tmp_path / "ck" / files.LOCK_NAME).symlink_to(notes)
    with pytest.raises(OSError, match=r"\.lock"):
        Folder(tmp_path / "ck")
    assert notes.read_text() == "a person's\n"
