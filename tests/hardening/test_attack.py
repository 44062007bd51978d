"""`python -m benchmarks.attack`, a little of each; and that its judges see what goes wrong."""

import json
import os
import random
import subprocess
import sys

import pytest

from benchmarks.attack import files, kills, long, rows
from benchmarks.attack.__main__ import Attack, Outcome, main, merged, outcome, shown
from obax._support import files as support_files
from obax.estimators.rejected import Rejected
from obax.streaming import results


def test_garbage_of_every_kind(tmp_path):
    assert [*rows.garbage(2000)] == [None, None]
    assert [*rows.lines(2000, tmp_path)] == [None, None]


def test_garbage_that_is_not_counted_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(Rejected, "add", lambda self, *given: None)
    assert all("counted" in fault for fault in rows.garbage(2000))
    assert all("counted" in fault for fault in rows.lines(2000, tmp_path))


def test_answers_that_are_not_json_are_seen(tmp_path, monkeypatch):
    def odd(result):
        return json.dumps(result | {"loss": float("nan")})

    monkeypatch.setattr("obax.streaming.job.to_json", odd)
    assert results.to_json is not odd
    assert "NaN is not JSON" in next(rows.lines(1000, tmp_path))


def test_damaged_and_crafted_files():
    assert {*files.damaged(300)} == {None} == {*files.crafted(100)}


def test_damage_that_nobody_notices_is_seen(monkeypatch):
    cases = files._cases()
    # Checksums that always fit, and bytes of leaves flipped: another state.
    monkeypatch.setattr(support_files, "checksum", lambda data: "0" * 64)
    blind = [(files.checkpoint.to_bytes(like), like) for _, like in cases[2:]]
    monkeypatch.setattr(files, "_cases", lambda: blind)

    def flipped(data, draw):
        changed = bytearray(data)
        begin = data.index(b"\x00\x00\xf0\x3f")  # 1.0 in the array
        changed[begin] ^= 1
        return bytes(changed)

    monkeypatch.setattr(files, "_changed", flipped)
    monkeypatch.setattr("zipfile.ZipExtFile._update_crc", lambda self, data: None)
    assert {*files.damaged(3)} == {"another state"}


def test_threads_that_share_a_model_and_a_pool(monkeypatch):
    assert rows.threads(0.5) is None
    learn = rows.StreamingClassifier.learn_one
    draw = random.Random(0)

    def forgetful(self, *given):
        if draw.random() < 0.9:
            learn(self, *given)

    monkeypatch.setattr(rows.StreamingClassifier, "learn_one", forgetful)
    assert "rows were given" in rows.threads(0.5)


# Counts to 300 in a file, from wherever it was: or, the mutant, from 0 into what is there.
COUNT = """
import sys, time, pathlib
file = pathlib.Path(sys.argv[1]) / "end"
lines = file.read_text().splitlines() if file.exists() else []
begin = 0 if sys.argv[2] == "mutant" else len(lines)
with file.open("a" if sys.argv[2] == "mutant" else "w") as out:
    out.write("".join(line + "\\n" for line in lines if sys.argv[2] != "mutant"))
    for i in range(begin, 300):
        out.write(f"{i}\\n")
        out.flush()
        time.sleep(0.001)
"""


@pytest.mark.parametrize(("way", "survives"), [("right", True), ("mutant", False)])
def test_kills(tmp_path, way, survives):
    victim = kills.Victim(
        "counter", 4, lambda folder: [sys.executable, "-c", COUNT, str(folder), way], ("end",)
    )
    found = [*kills.kill(victim, tmp_path, 4)]
    assert len(found) == 4
    assert (found == [None] * 4) == survives, found


def test_anyone_finds_the_children():
    code = "import subprocess, sys; subprocess.run(['sleep', '60'])"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            draw, found = random.Random(0), set()
            while len(found) < 2:
                found.add(kills._anyone(process.pid, draw))
            assert process.pid in found
        finally:
            for one in sorted(found, reverse=True):
                os.kill(one, 9)


def test_outcomes_are_honest_and_add_up(tmp_path, capsys):
    assert outcome(Attack(4, lambda: [None, "x"], 2))[:2] == (4, 2)
    fewer = outcome(Attack(4, lambda: [None, None]))
    assert fewer.survived == 2 and fewer.failures == ["2 of 4 were tried"]
    file = tmp_path / "all.json"
    assert main(["--quick", "--only", "wrong commands", "--json", str(file)]) == 0
    kept = merged(file, True)
    assert kept["wrong commands"].tried == kept["wrong commands"].survived > 70
    spoilt = kept | {"live rounds": Outcome(5, 0, 1.0, ["grew by 9 MiB"])}
    file.write_text(json.dumps({"quick": True, "outcomes": spoilt}))
    assert main(["--quick", "--only", "crafted", "--json", str(file)]) == 1
    said = capsys.readouterr().out
    assert "wrong commands" in said and "crafted" in said and "grew by 9 MiB" in said
    assert len(shown(merged(file, True)).columns) == 6
    with pytest.raises(SystemExit, match="with --quick"):
        merged(file, False)


@pytest.mark.slow
def test_one_kill_of_each(tmp_path):
    victims = kills.victims(tmp_path, small=True)
    assert sum(one.count for one in victims) == 300
    found = {one.name: [*kills.kill(one, tmp_path, 1)] for one in victims}
    assert found == {name: [None] for name in found} and len(found) == 6


@pytest.mark.slow
def test_what_goes_on_for_long():
    assert long.live(20_000) is None and long.programs(80) is None
    hoard = "counts = []", "compiling.MOST_PROGRAMS = 10**9\ncounts = []"
    assert "mappings" in long._grown(long.PROGRAMS.replace(*hoard), 80, long.SOME, "mappings", 4)
    leak = "    if game", "    kept.append(bytearray(2**12))\n    if game"
    script = "kept = []\n" + long.ROUNDS.replace(*leak)
    assert "MiB" in long._grown(script, 20_000, 16.0, "MiB")
