"""Kills (-9) at random moments: taken up again, it ends with the bytes of a run left alone."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

HOME = Path(__file__).parents[2]
TINY = ("--set", "horizon=30", "--set", "scenarios=paper", "--seeds", "1")
AT_ONCE = 0.25
"""Of the kills, so many come at any moment, the others once something has been written."""
LONGEST, SHORTEST, START = 1.0, 1e-3, 3.0
"""Seconds from the first write to the kill, drawn on a logarithmic scale; and from the start."""
TO_THE_END = 0.2
"""Of the kills of a worker, so many leave the rest alone until it is done."""
POLL, PATIENCE = 0.01, 60_000


class Victim(NamedTuple):
    """Something that can be started again and again, and the files that it ends with."""

    name: str
    count: int
    """Kills at full size."""
    command: Callable[[Path], list[str]]
    results: tuple[str, ...]
    """Patterns of files; of several, the last by name."""
    prey: Callable[[int, random.Random], int] = lambda process, draw: process
    """Which process is killed."""
    is_over: Callable[[Path], bool] = lambda folder: False
    """Whether nothing is left to lose: the table is there, and what remains is the report."""
    writes: int = 1
    """After how many of them a kill comes, at most: what takes seconds between one and the next
    would otherwise die at its first, the lock, over and over again."""


def victims(folder: Path, *, small: bool) -> list[Victim]:
    """300 kills in all."""
    obax, rows = [sys.executable, "-m", "obax"], folder / "rows.csv"
    _write_rows(rows, 8_000 if small else 60_000)

    def stream(folder: Path, *more: str) -> list[str]:
        paths = ["--out", str(folder / "out"), "--checkpoint", str(folder / "ck")]
        return [*obax, "stream", str(rows), "--target", "up", *paths,
                "--checkpoint-every", "200", *more]  # fmt: skip

    def run(folder: Path, *more: str) -> list[str]:
        again = ["--resume"] if (folder / "run" / "run.json").is_file() else []
        return [*obax, "run", "dynamic-regression", *TINY, "--out", str(folder / "run"), *again,
                *more]  # fmt: skip

    def rounds(way: str) -> Callable[[Path], list[str]]:
        module = "benchmarks.attack.victim"
        return lambda folder: [sys.executable, "-m", module, way, str(folder)]

    def has_table(folder: Path) -> bool:
        return (folder / table[0]).is_file()

    streamed, played, table = ("out", "ck/*.obax"), ("end", "ck/*.obax"), ("run/metrics.parquet",)
    pool = ("--key", "who", "--max-keys", "8")
    return [
        Victim("obax stream", 100, stream, streamed),
        Victim("obax stream --key (pool)", 50, lambda f: stream(f, *pool), streamed),
        Victim("play", 50, rounds("play"), played),
        Victim("run", 25, rounds("run"), played),
        Victim("obax run", 25, run, table, is_over=has_table, writes=10),
        Victim("obax run --workers", 50, lambda f: run(f, "--workers", "2"), table, _anyone,
               has_table, writes=10),
    ]  # fmt: skip


def kill(victim: Victim, folder: Path, count: int, seed: int = 0) -> Iterator[str | None]:
    """Of each kill: what is wrong, or `None`. Bytes are compared when it came to its end at last,
    which tells of all kills on the way."""
    place = folder / victim.name.replace(" ", "-")
    whole = _fresh(place / "whole")
    _finish(victim, whole)
    expected = _bytes(victim, whole)
    draw, done, chain = random.Random(seed), 0, 0
    broken = _fresh(place / "killed-0")
    while done + chain < count:
        killed = _kill_once(victim, broken, draw)
        chain += killed
        if not killed or victim.is_over(broken):
            # It came to its end before the kill: from the beginning again.
            _finish(victim, broken)
            yield from [_fault(victim, broken, expected)] * chain
            done, chain = done + chain, 0
            shutil.rmtree(broken)
            broken = _fresh(place / f"killed-{done}-{draw.randrange(10**9)}")
    if chain:
        _finish(victim, broken)
    yield from [_fault(victim, broken, expected)] * chain


def _kill_once(victim: Victim, folder: Path, draw: random.Random) -> bool:
    """Whether there was something to kill."""
    with subprocess.Popen(victim.command(folder), stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, cwd=HOME,
                          env=_environment(folder)) as process:  # fmt: skip
        if draw.random() < AT_ONCE:
            time.sleep(draw.uniform(0.0, START))
        else:
            for _ in range(draw.randint(1, victim.writes)):
                before = _newest(folder)
                _wait(process, lambda before=before: _newest(folder) != before)
            time.sleep(SHORTEST * (LONGEST / SHORTEST) ** draw.random())
        if process.poll() is not None:
            return False
        prey = victim.prey(process.pid, draw)
        try:
            os.kill(prey, signal.SIGKILL)
        except ProcessLookupError:
            prey = process.pid
            process.kill()
        if prey != process.pid:
            # Whoever started it is to go on without it: to the end, or until it is killed too.
            if draw.random() < TO_THE_END:
                _wait(process, lambda: False)
            else:
                time.sleep(draw.uniform(0.0, START))
                process.kill()
    return True


def _wait(process: subprocess.Popen, ready: Callable[[], bool]) -> None:
    """Until it is ready or has ended. Turns are counted and not seconds: a machine on which others
    work may stop all of this for a while."""
    for _ in range(PATIENCE):
        if process.poll() is not None or ready():
            return
        time.sleep(POLL)
    process.kill()
    raise RuntimeError(f"{process.args} came to nothing in {PATIENCE * POLL:g} s")


def _newest(folder: Path) -> int:
    """When something in the folder was last written."""
    found = 0
    for file in folder.rglob("*"):
        try:
            found = max(found, file.stat().st_mtime_ns)
        except FileNotFoundError:
            continue
    return found


def _anyone(process: int, draw: random.Random) -> int:
    """The process, or one that it or its children started."""
    found = [process]
    for one in found:
        for children in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                found += map(int, children.read_text().split())
            except OSError:
                continue
    return draw.choice(found)


def _fault(victim: Victim, folder: Path, expected: list[bytes]) -> str | None:
    try:
        found = _bytes(victim, folder)
    except (OSError, IndexError) as error:
        return f"{victim.name}: {type(error).__name__}: {error}"
    return None if found == expected else f"{victim.name}: other bytes"


def _bytes(victim: Victim, folder: Path) -> list[bytes]:
    return [sorted(folder.glob(pattern))[-1].read_bytes() for pattern in victim.results]


def _fresh(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def _environment(folder: Path) -> dict[str, str]:
    """All attempts of a victim share compiled programs (`obax.enable_compilation_cache`), of which
    kills may leave a part: otherwise most of them would fall into the same compilations."""
    return os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(folder.parent / "programs"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.05",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
    }


def _finish(victim: Victim, folder: Path) -> None:
    command = victim.command(folder)
    environment = _environment(folder)
    done = subprocess.run(command, capture_output=True, text=True, cwd=HOME, env=environment)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-500:]}")


def _write_rows(path: Path, count: int) -> None:
    rng = np.random.default_rng(0)
    values, who = rng.standard_normal((count, 3)), rng.integers(0, 20, count)
    up = (values @ [1.0, -1.0, 0.5] > 0).astype(int)
    lines = [
        f"{a:.4f},{b:.4f},{c:.4f},{k},{y}" for (a, b, c), k, y in zip(values, who, up, strict=True)
    ]
    path.write_text("a,b,c,who,up\n" + "\n".join(lines) + "\n")
