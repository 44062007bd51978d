"""The journal of `obax serve`: what is answered is never lost, whenever the server is killed."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import httpx
import numpy as np
import pytest

import obax
from obax._support.messages import UserError
from obax.estimators import StreamingClassifier
from obax.serve.journal import Journal
from obax.serve.model import Saves, ServedModel
from obax.serve.protocol import RequestError

SERVE = [sys.executable, "-m", "obax", "serve", "--port", "0"]


def entries(path, contained=0, written=False):
    journal = Journal(path, written)
    return list(journal.replay(contained))


def written(path, bodies):
    journal = Journal(path, written=True)
    list(journal.replay(0))
    for body in bodies:
        journal.append("learn", body)
    return journal.path


def test_entries_come_back_in_their_order(tmp_path):
    written(tmp_path / "m.obax", [b'{"a":1}', b'{\n"a":\r\n2}'])
    expected = [("learn", b'{"a":1}'), ("learn", b'{ "a": 2}')]
    assert entries(tmp_path / "m.obax") == expected
    # Those that the checkpoint contains are left out.
    assert entries(tmp_path / "m.obax", contained=1) == expected[1:]
    assert entries(tmp_path / "m.obax", contained=7) == []


def test_an_older_checkpoint_is_not_given_a_journal_that_lacks_entries(tmp_path):
    path = tmp_path / "m.obax"

    async def play(rows):
        model = ServedModel("m", StreamingClassifier(), path, Saves(journal=True))
        for _ in range(rows):
            await model.learn(b'{"row":{"a":1},"target":1}')
        await model.save()
        await model.learn(b'{"row":{"a":1},"target":1}')
        return model.rows

    assert asyncio.run(play(2)) == 3
    older = path.read_bytes()
    assert asyncio.run(play(2)) == 6
    path.write_bytes(older)
    with pytest.raises(UserError, match="goes on with entry 6, but its checkpoint ends with 2"):
        asyncio.run(play(0))


def test_a_line_that_was_cut_off_is_removed_and_a_damaged_one_is_an_error(tmp_path):
    file = written(tmp_path / "m.obax", [b'{"a":1}', b'{"a":2}', b'{"a":3}'])
    whole = file.read_bytes()
    for size in range(len(whole) - 1, len(whole) - 10, -1):
        file.write_bytes(whole[:size])
        assert len(entries(tmp_path / "m.obax", written=True)) == 2
        assert file.read_bytes() == whole[: whole.rindex(b"\n", 0, -1) + 1]
    file.write_bytes(whole.replace(b'"a":1', b'"a":7'))
    with pytest.raises(UserError, match="is damaged at byte 0"):
        entries(tmp_path / "m.obax")


def test_a_full_disk_refuses_the_request_and_leaves_the_journal_whole(tmp_path, monkeypatch):
    model = ServedModel("m", StreamingClassifier(), tmp_path / "m.obax", Saves(journal=True))
    body = b'{"row":{"a":1},"target":1}'
    asyncio.run(model.learn(body))
    write = os.write
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:5]))
        with pytest.raises(RequestError, match="the disk is full"):
            asyncio.run(model.learn(body))
    asyncio.run(model.learn(body))
    assert model.rows == 2 and len(entries(tmp_path / "m.obax")) == 2


def test_a_model_is_not_given_the_journal_of_another(tmp_path):
    written(tmp_path / "m.obax", [b'{"row":{"a":1},"target":1}'])
    obax.save(tmp_path / "m.obax", StreamingClassifier().prepare())
    with pytest.raises(UserError, match="belongs to another one"):
        ServedModel("m", None, tmp_path / "m.obax", Saves(journal=True))


def test_without_a_journal_one_that_was_left_is_learned_too(tmp_path):
    async def first():
        model = ServedModel("m", StreamingClassifier(), tmp_path / "m.obax", Saves(journal=True))
        await model.save()
        await model.learn(b'{"row":{"a":1},"target":1}')

    async def second():
        model = ServedModel("m", None, tmp_path / "m.obax", Saves())
        assert model.rows == 1
        await model.save()

    asyncio.run(first())
    asyncio.run(second())
    assert not list(tmp_path.glob("*journal*"))
    assert obax.load(tmp_path / "m.obax").learned_ == 1


@contextmanager
def started(folder, options):
    """A server that was started, and its address; it is killed at the end."""
    arguments = [*SERVE, str(folder), "--new", "classifier", "--name", "m", *options]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        try:
            line = process.stdout.readline()
            assert line.startswith("Serving m on http://"), line
            yield process, line.split()[3]
        finally:
            process.kill()


def kill_and_restart(folder, kills, seed, options=("--journal", "--checkpoint-rows", "20")):
    """Kill a server at random moments while a client sends rows one by one, some of them under an
    id that their labels come with later; check that each answered row is there after a restart."""
    draw = random.Random(seed)
    X = np.random.default_rng(seed).standard_normal((100_000, 2)).round(3).tolist()
    rows = [{"a": a, "b": b} for a, b in X]
    labels = ["up" if a > b else "down" for a, b in X]
    answered, number = 0, 0
    for kill in range(kills + 1):
        with (
            started(folder, options) as (process, address),
            httpx.Client(base_url=address, timeout=20) as client,
        ):
            metrics = client.get("/metrics").text
            learned = next(
                int(float(line.split()[1]))
                for line in metrics.splitlines()
                if line.startswith('obax_rows_learned{model="m"}')
            )
            # One request was in progress when the server was killed.
            assert answered <= learned <= answered + 1, f"{answered} answered, {learned} learned"
            answered = number = learned
            if kill == kills:
                process.terminate()
                assert process.wait(timeout=30) == 0
                break
            until = time.monotonic() + draw.expovariate(1 / 0.1)
            while time.monotonic() < until:
                learn(client, number, rows[number], labels[number])
                number = answered = number + 1
            # In the middle of a request, as often as not.
            if draw.random() < 0.5:
                process.send_signal(signal.SIGKILL)
                with pytest.raises(httpx.TransportError):
                    while True:
                        learn(client, number, rows[number], labels[number])
                        number = answered = number + 1
    plain = StreamingClassifier()
    for row, label in zip(rows[:number], labels, strict=False):
        plain.learn_one(row, label)
    found = obax.load(folder / "m.obax")
    assert (found.learned_, found.mean_loss_) == (number, plain.mean_loss_)
    assert found.hyperparameters_ == plain.hyperparameters_
    return number


def learn(client, number, row, label):
    if number % 3 == 0:
        answer = client.post("/v2/models/m/infer", json={"id": f"r{number}", "row": row})
        # After a restart the row may wait already, or be learned.
        assert answer.status_code == 200, answer.text
        body = {"id": f"r{number}", "target": label}
    else:
        body = {"row": row, "target": label}
    answer = client.post("/v2/models/m/learn", json=body)
    assert answer.status_code == 200 and answer.json()["learned"] == 1, answer.text


def test_kills_lose_no_answered_row(tmp_path):
    assert kill_and_restart(tmp_path, 3, seed=0) > 3


def test_without_a_journal_the_same_client_sees_that_rows_are_lost(tmp_path):
    with pytest.raises(AssertionError, match="learned"):
        kill_and_restart(tmp_path, 3, seed=0, options=("--checkpoint-rows", "100000"))


@pytest.mark.slow
def test_two_hundred_kills_lose_no_answered_row(tmp_path):
    assert kill_and_restart(tmp_path, 200, seed=1) > 200
