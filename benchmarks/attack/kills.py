"""Kills (-9) at random moments: taken up again, it ends with the bytes of a run left alone."""

import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

TINY = ("--set", "horizon=60", "--seeds", "2")
PLAY = """
import sys
import jax.numpy as jnp
import numpy as np
import obax

problem = obax.Problem(
    outer=lambda x, y, round: 0.5 * jnp.sum((y - round) ** 2),
    inner=lambda x, y, round: 0.5 * jnp.sum((y - x) ** 2),
)
algorithm = obax.OAGD(problem, 0.1, 0.1, window=obax.Window(5))
rounds = [jnp.asarray(x) for x in np.random.default_rng(0).normal(size=(4000, 2)).astype("f4")]
start = algorithm.init(jnp.zeros(2), jnp.zeros(2), rounds[0])
game = obax.play(algorithm, start, rounds, checkpoint_dir=sys.argv[1], checkpoint_every=50)
for state, _ in game:
    pass
obax.save(sys.argv[2], state)
"""


class Victim(NamedTuple):
    """Something that can be started again and again, and the file that it ends with."""

    name: str
    command: Callable[[Path], list[str]]
    result: Callable[[Path], bytes]
    begun: Callable[[Path], bool]


def victims(rows: Path) -> list[Victim]:
    """Stream, keyed stream, play and run; `rows` is a CSV to stream."""
    obax = [sys.executable, "-m", "obax"]

    def stream(folder: Path, *more: str) -> list[str]:
        paths = ["--out", str(folder / "out"), "--checkpoint", str(folder / "ck")]
        return [*obax, "stream", str(rows), "--target", "up", *paths,
                "--checkpoint-every", "200", *more]  # fmt: skip

    def run(folder: Path) -> list[str]:
        again = ["--resume"] if (folder / "run" / "run.json").is_file() else []
        return [*obax, "run", "dynamic-regression", *TINY, "--out", str(folder / "run"), *again]

    def has_checkpoint(folder: Path) -> bool:
        return any((folder / "ck").glob("*.obax"))

    return [
        Victim("stream", stream, lambda f: (f / "out").read_bytes(), has_checkpoint),
        Victim("stream --key", lambda f: stream(f, "--key", "who"),
               lambda f: (f / "out").read_bytes(), has_checkpoint),
        Victim("play", lambda f: [sys.executable, "-c", PLAY, str(f / "ck"), str(f / "end")],
               lambda f: (f / "end").read_bytes(), has_checkpoint),
        Victim("run", run, lambda f: (f / "run" / "metrics.parquet").read_bytes(),
               lambda f: (f / "run" / "run.json").is_file()),
    ]  # fmt: skip


def write_rows(path: Path, count: int) -> None:
    rng = np.random.default_rng(0)
    values, who = rng.standard_normal((count, 3)), rng.integers(0, 20, count)
    up = (values @ [1.0, -1.0, 0.5] > 0).astype(int)
    lines = [
        f"{a:.4f},{b:.4f},{c:.4f},{k},{y}" for (a, b, c), k, y in zip(values, who, up, strict=True)
    ]
    path.write_text("a,b,c,who,up\n" + "\n".join(lines) + "\n")


def kill(victim: Victim, folder: Path, count: int, seed: int = 0) -> Iterator[str | None]:
    """Of each kill: what is wrong, or `None`; the last one stands for all, since bytes are compared
    at the end."""
    whole, broken = folder / "whole", folder / "killed"
    for place in (whole, broken):
        place.mkdir(parents=True)
    _finish(victim.command(whole))
    draw, done = random.Random(seed), 0
    while done < count:
        process = _start(victim.command(broken))
        deadline = time.monotonic() + 600
        while process.poll() is None and not victim.begun(broken) and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(draw.random() * 3.0)
        if process.poll() is not None:
            # It came to its end before the kill: from the beginning again.
            fault = _same(victim, broken, whole)
            broken = folder / f"killed-{done}"
            broken.mkdir()
            if fault:
                yield fault
            continue
        process.kill()
        process.wait()
        done += 1
        if done < count:
            yield None
    _finish(victim.command(broken))
    yield _same(victim, broken, whole)


def _same(victim: Victim, one: Path, other: Path) -> str | None:
    return None if victim.result(one) == victim.result(other) else "other bytes"


def _start(command: list[str]) -> subprocess.Popen:
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _finish(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-500:]}")
