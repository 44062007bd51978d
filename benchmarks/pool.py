"""Ten thousand models, one per key: rows per second, memory, and whether a pooled start helps.

    python -m benchmarks.pool            # some three minutes on two quiet cores, and 3 GB
    python -m benchmarks.pool --quick    # everything is run, nothing is judged
    python -m benchmarks.pool --long     # memory over 10^7 rows as well

Rows of 10,000 keys in random order, 10 features, two classes, each row predicted and learned: by a
pool, by one River `LogisticRegression` behind its scaler per key in a dict, and by one
`StreamingClassifier` per key in a dict. All get the same chunk of rows in turn, so that a busy
machine is busy for all of them; what is judged is the wall-clock time of the second half, when
every key has its model. The exit code is 1 if a limit is missed.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from obax.estimators import Pool, StreamingClassifier

from .streams.report import MISSED, Table, verdict
from .streams.speed import river

FEATURES = 10
CHUNK = 10_000
LIMITS = {("pool", "River"): 2.0, ("pool, one member", "River"): 3.0, ("pool", "separate"): 4.0}
"""So many times as many rows per second."""
SAME = 1e-9
GROWTH = 8.0
"""MiB that memory may grow by in the last nine tenths of a long run: less than a byte a row."""
RECENT = 50
"""Rows of a new key that a start is judged by."""


def drawn(keys: int, rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keys, rows, labels: a linear truth of its own for each key."""
    rng = np.random.default_rng(seed)
    truth = np.random.default_rng(1).standard_normal((keys, FEATURES))
    mine = rng.integers(0, keys, rows)
    values = rng.standard_normal((rows, FEATURES))
    score = (values * truth[mine]).sum(axis=1) + rng.standard_normal(rows)
    return mine, values, score > 0


def part_speed(keys: int, rows: int, quick: bool) -> list[Table]:
    """Rows per second, and whether separate models say the same."""
    pools = {
        "pool": Pool(StreamingClassifier()),
        "pool, one member": Pool(StreamingClassifier(members="tuned")),
    }
    dicts: dict[str, dict] = {"River": {}, "separate": {}}
    make: dict[str, Callable] = {"River": lambda: river(2), "separate": StreamingClassifier}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in (*pools, *dicts)}
    said: dict[str, list] = {"pool": [], "separate": []}
    mine, values, labels = drawn(keys, rows)
    names = [f"feature {i}" for i in range(FEATURES)]
    for begin in range(0, rows, CHUNK):
        span = slice(begin, begin + CHUNK)
        lines = [dict(zip(names, line, strict=True)) for line in values[span].tolist()]
        some, goals = mine[span].tolist(), labels[span].tolist()
        for name, pool in pools.items():
            clock = _now()
            found = pool.progressive(some, values[span], goals)
            times[name].append(_since(clock))
            if name == "pool":
                said["pool"].append(_of_true(found, pool.classes_.tolist()))
        for name, models in dicts.items():
            told = []
            clock = _now()
            for key, row, label in zip(some, lines, goals, strict=True):
                model = models.get(key)
                if model is None:
                    model = models[key] = make[name]()
                told.append(model.predict_proba_one(row))
                model.learn_one(row, label)
            times[name].append(_since(clock))
            if name == "separate":
                said[name].append([one.get(True, 0.0) for one in told])
        print(f"{begin + len(some):,} rows", end="\r", flush=True, file=sys.stderr)
    half = len(times["pool"]) // 2
    later = rows - half * CHUNK
    rate, work = (
        {n: later / sum(t[i] for t in ts[half:]) for n, ts in times.items()} for i in (0, 1)
    )
    whole = {n: rows / sum(t[0] for t in ts) for n, ts in times.items()}
    table = [[n, round(whole[n]), round(rate[n]), round(work[n])] for n in times]
    ratios = []
    for (ours, theirs), limit in LIMITS.items():
        ratio = rate[ours] / rate[theirs]
        word = "-" if quick else verdict(-ratio, -limit)
        ratios.append([f"{ours} / {theirs}", round(ratio, 2), limit, word])
    apart = float(np.abs(np.concatenate(said["pool"]) - np.concatenate(said["separate"])).max())
    ratios.append(["largest difference from separate models", apart, SAME, verdict(apart, SAME)])
    title = f"Rows per second, {keys:,} keys, {rows:,} rows, {FEATURES} features, predict and learn"
    return [
        Table(
            title,
            ("models", "from the first row", "second half", "second half, per processor second"),
            table,
        ),
        Table("Ratios of the second half", ("what", "found", "limit", "verdict"), ratios),
    ]


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _since(then: tuple[float, float]) -> tuple[float, float]:
    """Seconds on the wall, and of processors."""
    return time.perf_counter() - then[0], time.process_time() - then[1]


def _of_true(found: np.ndarray, classes: list) -> np.ndarray:
    return found[:, classes.index(True)] if True in classes else np.zeros(len(found))


# ---- memory ----------------------------------------------------------------------------------


def resident() -> float:
    """MiB of this process now."""
    line = next(
        line for line in Path("/proc/self/status").read_text().splitlines() if "VmRSS" in line
    )
    return int(line.split()[1]) / 1024


def watched(keys: int, rows: int) -> dict[str, float]:
    """A pool in this process: bytes per key, MiB after a tenth of the rows and after all."""
    pool = Pool(StreamingClassifier())
    pool.learn_many([-1], np.zeros((1, FEATURES)), [True])
    before, begin, tenth = resident(), time.perf_counter(), 0.0
    for chunk in range(0, rows, CHUNK):
        pool.learn_many(*drawn(keys, min(CHUNK, rows - chunk), seed=chunk))
        if not tenth and chunk + CHUNK >= rows / 10:
            # Every key, so that what is left cannot be new ones.
            everyone = np.arange(keys)
            pool.learn_many(everyone, np.zeros((keys, FEATURES)), everyone % 2 == 0)
            tenth = resident()
    seconds = time.perf_counter() - begin
    after = resident()
    return {
        "keys": len(pool),
        "bytes": pool.bytes_per_key_,
        "measured": (tenth - before) * 2**20 / keys,
        "growth": after - tenth,
        "MiB": after,
        "rate": rows / seconds,
    }


def part_memory(keys: int, rows: int, quick: bool) -> Table:
    """In a process of its own, because one that has freed memory hides a leak."""
    command = [sys.executable, "-m", "benchmarks.pool", "--watch", str(keys), str(rows)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    lines = [
        ["bytes per key, state and history", found["bytes"], None, "-"],
        ["bytes per key, measured (room doubles, Python's own)", found["measured"], None, "-"],
        [
            "MiB more after the last 9/10 of rows",
            found["growth"],
            GROWTH,
            "-" if quick else verdict(found["growth"], GROWTH),
        ],
        ["MiB of the process", found["MiB"], None, "-"],
        ["rows per second", found["rate"], None, "-"],
    ]
    title = f"Memory, {keys:,} keys, {rows:,} rows"
    return Table(title, ("what", "found", "limit", "verdict"), lines)


# ---- start -----------------------------------------------------------------------------------


def shops(kind: str, keys: int, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Streams that keys have in common: `steady`, one truth each; `drifting`, truths that turn;
    `noisy`, labels of which a third is wrong."""
    rng = np.random.default_rng(seed)
    mine = rng.integers(0, keys, rows)
    values = rng.standard_normal((rows, FEATURES))
    order = np.argsort(mine, kind="stable")
    age = np.empty(rows)
    heads = np.searchsorted(mine[order], mine[order])
    age[order] = np.arange(rows) - heads
    one, two = rng.standard_normal((2, keys, FEATURES))
    turn = age[:, None] / (30.0 if kind == "drifting" else np.inf)
    truth = np.cos(turn) * one[mine] + np.sin(turn) * two[mine]
    right = (values * truth).sum(axis=1) > 0
    wrong = rng.random(rows) < (0.33 if kind == "noisy" else 0.02)
    return mine, values, right ^ wrong


def part_start(quick: bool) -> Table:
    """New keys in a pool of keys like them: the loss of their first rows."""
    old, new, many = (15, 10, 200) if quick else (100, 300, 1000)
    lines = []
    for kind in ("steady", "drifting", "noisy"):
        first = shops(kind, old, old * many, 0)
        later = shops(kind, new, 60 * new, 1)
        losses = []
        for start in ("default", "pooled"):
            pool = Pool(StreamingClassifier(), start=start)
            pool.learn_many(*first)
            played = pool.play(later[0] + old, *later[1:])
            early = [played.loss[np.flatnonzero(later[0] == key)[:RECENT]] for key in range(new)]
            losses.append(np.array([loss.mean() for loss in early]))
        change = losses[1] - losses[0]
        middle, reach = change.mean(), 1.96 * change.std(ddof=1) / new**0.5
        word = "helps" if middle + reach < 0 else "hurts" if middle - reach > 0 else "no difference"
        relative = f"{100 * middle / losses[0].mean():+.1f}%"
        lines.append([kind, losses[0].mean(), losses[1].mean(), relative, f"{reach:.2g}", word])
    title = f"start='pooled': mean log loss of the first {RECENT} rows of {new} new keys"
    columns = ("streams", "default", "pooled", "change", "95% interval, +-", "pooled")
    return Table(title, columns, lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--only", action="append", choices=("speed", "memory", "many", "start"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--watch", nargs=2, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.watch:
        print(json.dumps(watched(*options.watch)))
        return 0
    quick, only = options.quick, options.only or ("speed", "memory", "many", "start")
    tables: list[Table] = []
    if "speed" in only:
        keys, rows = (200, 20_000) if quick else (10_000, 300_000)
        tables += part_speed(keys, rows, quick)
    if "memory" in only:
        keys, rows = (200, 20_000) if quick else (10_000, 10_000_000 if options.long else 1_000_000)
        tables.append(part_memory(keys, rows, quick))
    if "many" in only:
        tables.append(part_memory(1000 if quick else 100_000, 20_000 if quick else 500_000, True))
    if "start" in only:
        tables.append(part_start(quick))
    for table in tables:
        print(table, flush=True)
    print(f"\n{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    if options.json is not None:
        found = {table.title: [list(row) for row in table.rows] for table in tables}
        options.json.write_text(json.dumps(found, indent=1))
    missed = [f"{table.title}: {row[0]}" for table in tables for row in table.rows if MISSED in row]
    if missed:
        print(f"missed: {'; '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
