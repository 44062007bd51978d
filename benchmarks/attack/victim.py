"""`python -m benchmarks.attack.victim play|run FOLDER`: rounds with checkpoints, to be killed."""

import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import obax

ROUNDS = 4000
EVERY = 50


def main(way: str, folder: Path) -> None:
    """Play to the end, from wherever it was; the end is a file of its own."""
    problem = obax.Problem(
        outer=lambda x, y, round: 0.5 * jnp.sum((y - round) ** 2),
        inner=lambda x, y, round: 0.5 * jnp.sum((y - x) ** 2),
    )
    algorithm = obax.OAGD(problem, 0.1, 0.1, window=obax.Window(5))
    rounds = np.random.default_rng(0).normal(size=(ROUNDS, 2)).astype(np.float32)
    state = algorithm.init(jnp.zeros(2), jnp.zeros(2), rounds[0])
    saved = {"checkpoint_dir": folder / "ck", "checkpoint_every": EVERY}
    if way == "run":
        end: object = obax.run(algorithm, state, jnp.asarray(rounds), **saved)
    else:
        *_, (end, _) = obax.play(algorithm, state, list(rounds), **saved)
    obax.save(folder / "end", end)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
