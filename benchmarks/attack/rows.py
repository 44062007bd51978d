"""Rows of garbage: every one is learned or rejected and counted, and the model stays finite."""

import math
import random
import threading
import time
from collections.abc import Iterator

import numpy as np

from obax.estimators import StreamingClassifier, StreamingRegressor

VALUES = (
    0.0, 1.0, -1.0, 1e-300, 1e300, -1e308, math.nan, math.inf, -math.inf, None, "word", "", "1.5",
    True, b"x", (1, 2), [1], {}, 10**400, 1j, np.float32(3), np.nan, object(),
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


def threads(seconds: float, count: int = 8) -> str | None:
    """Learners and readers on one model: counters equal to what was learned."""
    model = StreamingClassifier().prepare()
    end, done, faults = time.monotonic() + seconds, [0] * count, []

    def work(number: int) -> None:
        draw = random.Random(number)
        try:
            while time.monotonic() < end:
                row = {name: draw.gauss(0, 1) for name in draw.sample("abcdefgh", 4)}
                if number % 2:
                    model.predict_proba_one(row)
                    model.explain()
                else:
                    model.learn_one(row, draw.random() < 0.5)
                    done[number] += 1
        except Exception as error:
            faults.append(f"{type(error).__name__}: {error}")

    workers = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if faults:
        return faults[0]
    learned = model.learned_
    return None if learned == sum(done) else f"{sum(done)} rows were given, {learned} learned"
