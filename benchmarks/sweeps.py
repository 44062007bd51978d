"""A sweep over two devices against one: `python -m benchmarks.sweeps [--quick] [--json FILE]`.

160 settings x seeds in one compiled call; over two devices at least 1.6 times as fast as on one, in
one process on two quiet cores. There are two simulated devices here and not the eight of
`benchmarks.devices`: threads of devices that have nothing to do take the cores from those that
have (with eight the same sweep was 1.24 times as fast).
"""

import os
import sys

# Before JAX starts.
FLAG = "--xla_force_host_platform_device_count=2"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAG}"

import jax
import jax.numpy as jnp
import numpy as np

import obax
from obax.problems import dynamic_regression

from . import workload
from .harness import Result, compare, interleaved, run_chosen

SPEED_UP = 1.6
NOTE = """\
Times are medians in us per round, minima in brackets. A sweep over two devices is judged against
the same sweep on one, in the same process; both cores must be free."""


def sweep_over_two(quick: bool) -> list[Result]:
    """160 settings x seeds, w = 20, over two devices and on one."""
    horizon, repetitions, seeds = (50, 2, 5) if quick else (500, 11, 5)
    streams = [dynamic_regression(horizon, seed=seed) for seed in range(seeds)]
    rounds = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(one.rounds for one in streams))
    family = [
        workload.oagd(streams[0].problem, 20, outer_step_size=float(size), inner_steps=steps)
        for steps in (5, 10)
        for size in np.geomspace(1e-3, 1e-1, 16)
    ]
    state = workload.start(family[0], streams[0])
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("settings",))
    where = {"mesh": mesh, "axis": "settings"}

    def check(outputs: dict) -> None:
        one, two = (jax.tree.leaves(outputs[name]) for name in ("one", "two"))
        for a, b in zip(one, two, strict=True):
            np.testing.assert_allclose(a, b, 1e-3, 1e-3)

    contenders = {
        "two": lambda: obax.sweep(family, state, rounds, seeds=True, **where),
        "one": lambda: obax.sweep(family, state, rounds, seeds=True),
    }
    times = interleaved(contenders, repetitions, check, warm_up=1)
    name = f"sweep over {len(family) * seeds} on two devices against one"
    return [compare(name, times["two"], times["one"], 1 / SPEED_UP, horizon)]


def main(arguments: list[str] | None = None) -> int:
    chosen = {"sweep": sweep_over_two}
    return run_chosen("sweeps", __doc__, chosen, NOTE, "a smoke run", arguments)


if __name__ == "__main__":
    sys.exit(main())
