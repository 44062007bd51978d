"""A full disk: the message names the file, and nothing half written replaces what is good."""

import errno
import io
import os
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

import obax
from obax import callbacks, checkpoint, cli
from obax._support import files
from obax.estimators import Pool, StreamingRegressor

STATE = {"x": jnp.arange(3.0), "n": 2}
needs_full = pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="the system has no /dev/full"
)
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class FullFile(io.FileIO):
    """A file on a disk that is full."""

    def write(self, data):
        raise FULL


@pytest.mark.parametrize("stage", ["mkdir", "mkstemp", "write", "fsync", "replace"])
def test_a_full_disk_leaves_the_good_file_and_names_it(tmp_path, monkeypatch, stage):
    """Wherever it is noticed: no half-written file takes the place of a whole one."""
    file = tmp_path / "here" / "state.obax"
    checkpoint.save(file, STATE)
    before = file.read_bytes()

    def full(*_, **__):
        raise FULL

    where = {
        "mkdir": (Path, "mkdir", full),
        "mkstemp": (tempfile, "mkstemp", full),
        "write": (os, "fdopen", lambda handle, mode: FullFile(handle, mode)),
        "fsync": (os, "fsync", full),
        "replace": (Path, "replace", full),
    }
    with monkeypatch.context() as patch:
        patch.setattr(*where[stage])
        with pytest.raises(OSError, match=r"No space left on device: .*here/state\.obax") as error:
            checkpoint.save(file, {"w": np.ones(1000)})
    assert error.value.errno == errno.ENOSPC
    assert file.read_bytes() == before
    assert [one.name for one in file.parent.iterdir()] == ["state.obax"]


def test_every_writer_names_the_file_of_a_full_disk(tmp_path, monkeypatch):
    """Checkpoint folders, run folders, an estimator, certificates: each by way of one writer."""
    model = StreamingRegressor()
    model.learn_one({"a": 1.0}, 2.0)
    folder = checkpoint.Folder(tmp_path / "stream")
    folder.save(1, model, {})
    first = sorted(folder.path.iterdir())

    def full(descriptor):
        raise FULL

    monkeypatch.setattr("os.fsync", full)
    for write, name in (
        (lambda: folder.save(2, model, {}), str(folder.path)),
        (lambda: obax.save(tmp_path / "model", model), "model"),
        (lambda: files.write_text(tmp_path / "run.json", "{}"), r"run\.json"),
    ):
        with pytest.raises(OSError, match=f"No space left on device: .*{name}"):
            write()
    assert sorted(folder.path.iterdir()) == first
    folder.close()


@needs_full
def test_a_stream_onto_a_full_disk_names_its_output(tmp_path, monkeypatch, capsys):
    """The real thing, without privileges: a device that is always full."""
    rows = tmp_path / "rows.csv"
    rows.write_text("a,y\n" + "1,2\n" * 50)
    words = ["obax", "stream", str(rows), "--target", "y", "--task", "regress"]
    monkeypatch.setattr(sys, "argv", [*words, "--out", "/dev/full"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert "No space left on device: '/dev/full'" in said
    assert "Traceback" not in said


@needs_full
def test_lines_of_a_callback_name_their_file(tmp_path, monkeypatch):
    file = tmp_path / "lines.jsonl"
    file.symlink_to("/dev/full")
    lines = callbacks.JSONLines(file)
    monkeypatch.setattr(callbacks, "metrics", lambda info: {})
    with pytest.raises(OSError, match=r"No space left on device: .*lines\.jsonl"):
        lines(None, SimpleNamespace(t=1))
    with pytest.raises(OSError, match="No space left"):
        lines.close()


def test_a_pool_that_cannot_put_models_aside_keeps_them(tmp_path, monkeypatch):
    """The one that was to go stays in memory, and learns on when there is room again."""
    pool = Pool(StreamingRegressor(), max_keys=2, folder=tmp_path, shards=1)
    pool.learn_many(["a", "b"] * 5, [[float(i)] for i in range(10)], range(10))
    store = pool.models
    said = pool.predict_many(["a", "b"], [[1.0], [1.0]]).to_list()
    real = store.file

    class Full:
        def seek(self, offset):
            return real.seek(offset)

        def write(self, data):
            raise FULL

    store.file = Full()
    with pytest.raises(
        OSError, match=r"No space left on device: .*for models of a pool beyond max"
    ):
        pool.learn_many(["c"], [[1.0]], [1.0])
    store.file = real
    assert pool.predict_many(["a", "b"], [[1.0], [1.0]]).to_list() == said
    pool.learn_many(["c"], [[1.0]], [1.0])
    assert pool.predict_many(["a", "b"], [[1.0], [1.0]]).to_list() == said


def test_a_folder_that_cannot_be_locked_for_want_of_room_is_named_and_let_go(tmp_path, monkeypatch):
    def full(path, text):
        raise FULL

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.write_text", full)
        with pytest.raises(OSError, match=r"No space left on device: .*there/\.lock"):
            checkpoint.Folder(tmp_path / "there")
    checkpoint.Folder(tmp_path / "there").close()
