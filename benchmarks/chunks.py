"""How many terms of a window at once: memory and time of a round, w = 50 batches of MNIST's size.

    python -m benchmarks.chunks [--quick] [--only all|five|chosen] [--json FILE]

OAGD with its own curvature in each term, a convolutional network of 3 blocks and 8 filters as the
follower, batches of 128 images. `chosen` is `Window(chunk=None)`, which picks by memory; `all` and
`five` say 50 and 5. Each in a process of its own (Linux): the peak of what it held, and the median
time, of the rounds after the first, which compiles. Judged: the choice takes at most 1.15 of the
lesser memory, and of the lesser time, of the two.
"""

import functools
import json
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import obax
from obax import models
from obax.problems import loss_tuning, loss_tuning_start

from .harness import Result, run_chosen
from .horizon import MIB

WINDOW = 50
CHUNKS = {"all": WINDOW, "five": 5, "chosen": None}
NOTE = "The peak is that of the whole process, JAX itself included; seconds per round."


def measured(chunk: int | None, window: int, rounds: int) -> dict[str, float]:
    """Peak memory in MiB and seconds of each round, in this process."""
    rng = np.random.default_rng(0)

    def batch() -> tuple[jax.Array, jax.Array]:
        images = rng.standard_normal((128, 28, 28, 1), np.float32)
        return jnp.asarray(images), jnp.asarray(rng.integers(10, size=128))

    def one(t: int) -> dict[str, object]:
        weights = jnp.full(10, 10, jnp.float32)
        key = jnp.asarray([0, t], jnp.uint32)
        return {"train": batch(), "valid": batch(), "class_weights": weights, "key": key}

    problem = loss_tuning(10, link="sigmoid", outer_training=True)
    follower = models.cnn(jax.random.key(0), filters=8, blocks=3)
    algorithm = obax.OAGD(
        problem,
        1e-6,
        1e-3,
        window=obax.Window(window, 0.9, curvature="own", normalise="seen", chunk=chunk),
        hypergradient=obax.hypergradient.Neumann(5, 0.01),
    )
    state = algorithm.init(loss_tuning_start(10), follower[0], one(1), buffers=follower[1])
    took, begun = [], time.perf_counter()
    for _, info in obax.play(algorithm, state, (one(t) for t in range(1, rounds + 1))):
        assert info.accepted
        took.append(time.perf_counter() - begun)
        if len(took) == 1:
            # What compiling took is not what a round takes: from here on the peak is a new one.
            Path("/proc/self/clear_refs").write_text("5")
        begun = time.perf_counter()
    (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    seconds = statistics.median(took[1:])
    return {"peak": int(peak) * 1024 / MIB, "seconds": seconds, "first": took[0]}


@functools.cache
def in_a_process(name: str, quick: bool) -> dict[str, float]:
    window, rounds = (4, 2) if quick else (WINDOW, 4)
    chunk = CHUNKS[name] and min(CHUNKS[name], window)
    script = "import json; from benchmarks.chunks import measured; "
    script += f"print(json.dumps(measured({chunk}, {window}, {rounds})))"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    return json.loads(done.stdout.splitlines()[-1])


def against_the_best(name: str, quick: bool) -> list[Result]:
    """Memory and time; the choice beside the better of the two that say a number."""
    ours = in_a_process(name, quick)
    if name == "chosen":
        said = [in_a_process(other, quick) for other in ("all", "five")]
        best = {key: min(one[key] for one in said) for key in ours}
    else:
        best = ours
    limit = 1.15 if name == "chosen" else None
    label = f"w = {WINDOW}, chunk {CHUNKS[name]}"
    first = f"{ours['first']:.0f}"
    return [
        Result(f"{label}: {what}", f"{ours[key]:.4g}", f"{best[key]:.4g}", first,
               ours[key] / best[key], None, limit, ours)
        for key, what in (("peak", "peak memory, MiB"), ("seconds", "seconds of a round"))
    ]  # fmt: skip


BENCHMARKS = {name: functools.partial(against_the_best, name) for name in CHUNKS}


def main(arguments: list[str] | None = None) -> int:
    return run_chosen("chunks", __doc__, BENCHMARKS, NOTE, "w = 4, two rounds", arguments)


if __name__ == "__main__":
    sys.exit(main())
