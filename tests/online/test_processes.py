"""Two real processes that play together over loopback (gloo), in time or not at all."""

import os
import signal
import socket
import subprocess
import sys
import time
from json import loads
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REQUIRED = ("own", "current", "each", "sobow", "itd")


def together(folder, *parts, seconds=600):
    """What both processes find; a failure in one, or no answer in time, fails with the words and
    the stacks of both."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "JAX_PLATFORMS": "cpu"}
    said = [folder / f"said-{index}" for index in (0, 1)]
    children = []
    for index, file in enumerate(said):
        given = [index, port, folder, *parts]
        command = [sys.executable, "-m", "tests.online.on_processes", *map(str, given)]
        # A file, not a pipe, which would hold up who fills it while the other is read.
        with file.open("wb") as out:
            children.append(
                subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=out)
            )
    try:
        why = waited(children, time.monotonic() + seconds)
    finally:
        for child in children:
            child.kill()
            child.wait()
    words = [file.read_text(errors="replace") for file in said]
    if why is not None:
        pytest.fail("\n".join([why, *(f"process {i}:\n{text}" for i, text in enumerate(words))]))
    lines = [text.splitlines() for text in words]
    return [loads(next(line for line in reversed(one) if line.startswith("{"))) for one in lines]


def waited(children, end):
    """Why it went wrong, or `None`; whoever is still there then has written its stack."""
    while any(child.poll() is None for child in children):
        failed = [i for i, child in enumerate(children) if child.poll() not in (None, 0)]
        late = time.monotonic() > end
        if failed or late:
            for child in children:
                if child.poll() is None:
                    child.send_signal(signal.SIGUSR1)
            time.sleep(1)
            return f"process {failed[0]} failed" if failed else "no answer in time"
        time.sleep(0.05)
    codes = [child.returncode for child in children]
    return None if codes == [0, 0] else f"exit codes {codes}"


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    return together(tmp_path_factory.mktemp("short"), "current", "faults")


def test_two_processes_have_the_trajectory_of_one(short):
    for each in short:
        assert max(each["current"].values()) < 1e-12


ENDED = "process 1 has no more rounds, while others have"
LINE = "process 1 has stopped: OSError: the line went dead"
SHAPE = "must have the shape [2], the part of this process, or [4], all of it, but has [1]"
SHAPES = (
    "must have the shape [6, 2], the part of this process, or [6, 4], all of it, but has [6, 1]"
)
STOPPED = "process 1 has stopped: ValueError: "
NAN = "round 3 (counted from 0) was rejected: round is not finite"
LOCK = "another process writes to the folder"
BACK = "process 1 has stopped: OSError: no space left for a callback"
FULL = "process 0 has stopped: OSError: [Errno 28] No space left on device"
FAULTS = {
    # What process 0 is told, then process 1.
    "fewer rounds": (("ProcessError", ENDED), ("ProcessError", ENDED)),
    "a source that fails": (("ProcessError", LINE), ("OSError", "the line went dead")),
    "another shape": (("ProcessError", f"{STOPPED}round {SHAPE}"), ("ValueError", SHAPE)),
    "NaN": (("RejectedRoundError", NAN),) * 2,
    "a callback": (("ProcessError", BACK), ("OSError", "no space")),
    "a full disk": (("OSError", "No space left on device"), ("ProcessError", FULL)),
    "a lock": (("LockedError", LOCK), ("ProcessError", f"LockedError: {LOCK}")),
    "own folders": (("ValueError", "process 0 has 000000000006.obax, process 1 has nothing"),) * 2,
    "another algorithm": (("ValueError", "algorithm must be the same in all processes"),) * 2,
    "another start": (("ValueError", "state must be the same in all processes"),) * 2,
    "run: fewer rounds": (("ValueError", "process 0 has 5, process 1 has 4"),) * 2,
    "run: another shape": (("ProcessError", f"{STOPPED}rounds {SHAPES}"), ("ValueError", SHAPES)),
    "run: a callback": (("ProcessError", BACK), ("OSError", "no space")),
    "run: a full disk": (("OSError", "No space left on device"), ("ProcessError", FULL)),
    "run: NaN": (("RejectedRoundError", NAN),) * 2,
    "a mesh of others": (("ValueError", "mesh must have devices of this process alone"),) * 2,
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_what_stops_one_process_stops_both(short, name):
    for found, (kind, words) in zip(short, FAULTS[name], strict=True):
        assert found["faults"][name][0] == kind
        assert words in found["faults"][name][1]


def test_both_processes_resume_after_errors(short):
    for each in short:
        assert each["faults"]["nothing"] is None
        assert {*each["faults"]} == {*FAULTS, "nothing"}


@pytest.mark.slow
def test_two_processes(tmp_path):
    for each in together(tmp_path, *REQUIRED, "checkpoints", "sweep", seconds=1500):
        for name in REQUIRED:
            assert max(each[name].values()) < 1e-12
        found = each["checkpoints"]
        # Seven rounds played, saved after three and six; written by one, read by both.
        assert found["play"]["rounds"] == 4
        assert found["play"]["state"] < 1e-12
        assert max(found["run"].values()) < 1e-12
        assert found["saved"] == 0
        # The checkpoint of six rounds goes on without a mesh, and each process writes its own.
        assert found["alone"]["state"] < 1e-12
        assert "000000000009.obax" in found["alone"]["files"]
        assert each["sweep"] < 1e-12


# The harness: what it would hide if it waited.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "seconds", "words"),
    [("stuck", 60, "no answer in time"), ("fails", 600, "process 1 failed")],
)
def test_who_waits_is_seen(tmp_path, part, seconds, words):
    begin = time.monotonic()
    with pytest.raises(pytest.fail.Exception) as failure:
        together(tmp_path, part, seconds=seconds)
    assert time.monotonic() - begin < seconds + 15
    message = str(failure.value)
    assert message.startswith(words)
    # Both are seen where they stand: one in its sleep or error, the other in a driver.
    assert "in stuck" in message or "ZeroDivisionError: on purpose" in message
    assert "in trajectory" in message
