"""One writer to a folder, and folders that hold anything."""

import asyncio
import json
import os
import socket
import subprocess
import sys

import pytest
from running_server import running

from obax._support import files
from obax._support.messages import UserError
from obax.checkpoint import Folder
from obax.lab.framework.run_folder import RunFolder
from obax.serve.app import watch_application
from obax.serve.guard import Bounds
from obax.serve.page import read as read_page
from obax.serve.run import MAX_CONNECTIONS

HOLD = """
import sys
from pathlib import Path
from obax._support import files

class Owner: pass

owner = Owner()
files.lock_folder(Path(sys.argv[1]), owner)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def other(tmp_path):
    """Another process that writes to the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def test_a_second_writer_is_refused_in_words_until_the_first_has_gone(tmp_path, other):
    part = tmp_path / ".000000000001.obax.x.part"
    part.write_bytes(b"being written")
    for begin in (
        lambda: Folder(tmp_path),
        lambda: RunFolder.create(tmp_path, "dynamic-regression", "quick", {}),
    ):
        with pytest.raises(UserError, match=rf"written to by process {other.pid} on "):
            begin()
    assert part.exists() and not (tmp_path / "run.json").exists()
    # Killed, it leaves its name in the file and nothing that keeps others out.
    other.kill()
    other.wait()
    assert json.loads((tmp_path / files.LOCK_NAME).read_text())["process"] == other.pid
    folder = Folder(tmp_path)
    assert json.loads((tmp_path / files.LOCK_NAME).read_text())["process"] == os.getpid()
    assert not part.exists()
    folder.close()


def test_a_folder_is_free_again_when_its_holders_have_gone(tmp_path):
    def taken():
        command = [sys.executable, "-c", HOLD, str(tmp_path)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        return done.returncode != 0

    first, second = Folder(tmp_path), Folder(tmp_path)
    first.close()
    first.close()
    assert taken()
    del second
    assert not taken()


def test_a_run_that_was_killed_at_once_can_be_started(tmp_path):
    (tmp_path / ".run.json.abc.part").write_text("{")
    RunFolder.create(tmp_path, "dynamic-regression", "quick", {})
    assert not list(tmp_path.glob(".*.part"))
    with pytest.raises(UserError, match="is not empty"):
        RunFolder.create(tmp_path, "dynamic-regression", "quick", {})


@pytest.mark.parametrize(
    "text",
    ["", "[", "[]", "null", "{}", '{"history": 1}', '{"history": {"row": {}}, "curves": []}'],
)
def test_watch_answers_any_folder(tmp_path, text):
    assert read_page(tmp_path)["trouble"]
    (tmp_path / "watch.json").write_text(text)
    assert read_page(tmp_path)["trouble"]
    json.dumps(read_page(tmp_path))
    (tmp_path / "watch.json").write_text("[" * 10**5)
    assert read_page(tmp_path)["trouble"]


SLOW = 1000


@pytest.fixture
def many_files():
    """Both ends of a thousand connections are files of this process."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 3 * SLOW:
        pytest.skip(f"a process may open only {hard} files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 3 * SLOW), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
def test_watch_serves_while_a_thousand_connections_hang(tmp_path, many_files):
    hanging = []
    with running(watch_application(tmp_path, Bounds()), asyncio.Event()) as client:
        address = client.base_url.host, client.base_url.port
        try:
            for _ in range(SLOW):
                connection = socket.create_connection(address)
                connection.sendall(b"GET / HTT")
                hanging.append(connection)
            answer = client.get("/data.json")
            assert answer.status_code == 200 and "trouble" in answer.json()
            # The mutant: without a limit none of them would have been closed.
            assert sum(is_closed(connection) for connection in hanging) >= SLOW - MAX_CONNECTIONS
        finally:
            for connection in hanging:
                connection.close()


def is_closed(connection):
    """Return whether the server has closed this connection."""
    connection.settimeout(0.05)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True
