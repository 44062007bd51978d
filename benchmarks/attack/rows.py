"""Rows of garbage: every one is learned or rejected and counted, and the model stays finite."""

import json
import math
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from obax.estimators import Pool, StreamingClassifier, StreamingRegressor
from obax.streaming import Input, Job, Output

VALUES = (
    0.0, 1.0, -1.0, 1e-300, 1e300, -1e308, math.nan, math.inf, -math.inf, None, "word", "", "1.5",
    True, b"x", (1, 2), [1], {}, 10**400, 1j, np.float32(3), np.nan, object(),
)  # fmt: skip
PIECES = (
    b'"', b",", b"\xff", b"\x00", b"nan", b"1e999", b"-inf", b"{", b"}", b"[", b"NaN", b":", b"'",
    b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"\\u0000", b";" * 50, b"9" * 400,
)  # fmt: skip
THOUSAND = 1000
NAMES = ("a", "b", "c", "d", "", "é", 7, ("t", 1))


def garbage(count: int, seed: int = 0) -> Iterator[str | None]:
    """Of every thousand rows: what is wrong, or `None`."""
    draw = random.Random(seed)
    models = StreamingClassifier(max_features=12), StreamingRegressor(max_features=12)
    for number in range(count // THOUSAND):
        model = models[number % 2]
        rows = [_row(draw) for _ in range(THOUSAND)]
        targets = [_target(draw, number % 2 == 1) for _ in rows]
        before = model.rejected_.count if number > 1 else 0
        try:
            played = model.play(rows, targets)
        except Exception as error:
            yield f"raw {type(error).__name__}: {error}"
            continue
        rejected = sum(reason is not None for reason in played.rejected)
        if model.rejected_.count - before != rejected:
            yield f"{rejected} rows were rejected, {model.rejected_.count - before} counted"
        elif not math.isfinite(model.mean_loss_):
            yield f"the mean loss is {model.mean_loss_}"
        else:
            yield None


def _row(draw: random.Random) -> dict:
    if draw.random() < 0.5:
        return {name: draw.gauss(0, 1) for name in NAMES[:4]}
    return {draw.choice(NAMES): draw.choice(VALUES) for _ in range(draw.randint(0, 5))}


def _target(draw: random.Random, number: bool) -> object:
    if draw.random() < 0.2:
        return draw.choice(VALUES)
    return draw.gauss(0, 1) if number else draw.choice(("up", "down"))


def lines(count: int, folder: Path, seed: int = 0) -> Iterator[str | None]:
    """The same of lines of CSV and JSON with bytes changed, as `obax stream` reads them: one line
    is written of each, in valid JSON, and those rejected are counted."""
    draw = random.Random(seed)
    for number in range(count // THOUSAND):
        kind = ("csv", "jsonl")[number % 2]
        given = b"".join(_line(draw, kind) for _ in range(THOUSAND))
        source, out = folder / f"garbage.{kind}", folder / "garbage.out"
        source.write_bytes(b"a,b,up\n" * (kind == "csv") + given)
        try:
            model = StreamingClassifier(max_features=12)
            job = Job(model, Input(source, "up", kind), Output(out, overwrite=True))
            job.run()
            found = [
                json.loads(line, parse_constant=_refuse)
                for line in out.read_bytes().split(b"\n")[:-1]
            ]
        except Exception as error:
            yield f"raw {type(error).__name__}: {error}"
            continue
        rejected = sum("rejected" in line for line in found)
        if len(found) != THOUSAND or job.rows != THOUSAND:
            yield f"{THOUSAND} lines, {job.rows} rows, {len(found)} answers"
        elif rejected != job.model.rejected_.count or not math.isfinite(job.model.mean_loss_):
            yield f"{rejected} rejected, {job.model.rejected_.count} counted"
        else:
            yield None


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def _line(draw: random.Random, kind: str) -> bytes:
    """One line that is not blank, half of the time spoilt."""
    a, b, up = draw.gauss(0, 1), draw.gauss(0, 1), draw.choice(("x", "y"))
    text = f"{a:.3f},{b:.3f},{up}" if kind == "csv" else json.dumps({"a": a, "b": b, "up": up})
    line = bytearray(text.encode())
    if draw.random() < 0.5:
        for _ in range(draw.randint(1, 5)):
            place = draw.randrange(len(line))
            if draw.random() < 0.3:
                line[place:place] = draw.choice(PIECES)
            else:
                line[place] = draw.randrange(256)
        # What ends a line or looks like nothing would make two lines of one, or none.
        line = bytearray(one for one in line if one not in b"\r\n")
    return (bytes(line) if line.strip() else b"?") + b"\n"


def threads(seconds: float, count: int = 8) -> str | None:
    """Learners and readers on one model and one pool: counters equal to what was learned."""
    model, pool = StreamingClassifier().prepare(), Pool(StreamingClassifier(), max_keys=6)
    end, faults = time.monotonic() + seconds, []
    done, pooled = [0] * count, [0] * count

    def work(number: int) -> None:
        draw = random.Random(number)
        try:
            while time.monotonic() < end:
                row = {name: draw.gauss(0, 1) for name in draw.sample("abcdefgh", 4)}
                keys, rows = [draw.randrange(20) for _ in range(5)], [row] * 5
                if number % 2:
                    model.predict_proba_one(row)
                    model.explain()
                    pool.predict_many(keys, rows)
                else:
                    model.learn_one(row, draw.random() < 0.5)
                    done[number] += 1
                    pool.learn_many(keys, rows, [draw.random() < 0.5] * 5)
                    pooled[number] += 5
        except Exception as error:
            faults.append(f"{type(error).__name__}: {error}")

    workers = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if faults:
        return faults[0]
    given, learned = (sum(done), sum(pooled)), (model.learned_, pool.learned_)
    return None if learned == given else f"{given} rows were given, {learned} learned"
