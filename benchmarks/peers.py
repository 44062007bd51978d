"""obax against PyTorch libraries on the same round and the same data.

    python -m benchmarks.peers [--quick] [--json FILE]

Nothing is judged: the table says what came out.
"""

import sys
import warnings
from collections import deque
from typing import Any

import jax
import numpy as np
import torch

import obax

from . import torch_rounds, workload
from .harness import Result, compare, interleaved, run_chosen

PEERS = {
    "torchopt, ImplicitMetaGradientModule": torch_rounds.with_torchopt,
    "plain torch.autograd": torch_rounds.with_autograd,
}
NOTE = """\
Times are medians in us per round, minima in brackets; ours is obax, the reference is the peer, and
a ratio of 0.001 says that obax takes a thousandth of the time. obax keeps its full record and
guard, the peers only x_t and the loss played. All play the same data and agree on both."""


def against_peers(quick: bool) -> list[Result]:
    """`run` and `play` against each peer, on the same rounds."""
    rounds, repetitions = (50, 3) if quick else (400, 5)
    # torchopt 0.7.3 calls functorch, which torch has renamed.
    warnings.filterwarnings("ignore", category=FutureWarning, module="torchopt")
    # One thread is the fastest for tensors of five numbers.
    torch.set_num_threads(1)
    stream = workload.instance()
    algorithm = workload.oagd(stream.problem)
    state = workload.start(algorithm, stream)
    some = jax.tree.map(lambda leaf: leaf[:rounds], stream.rounds)
    live = workload.unstacked(some, as_numpy=True)
    names = {"obax.run": "run", "obax.play": "play"}
    contenders: dict[str, Any] = {
        "obax.run": lambda: obax.run(algorithm, state, some),
        "obax.play": lambda: deque(obax.play(algorithm, state, live), maxlen=1),
    }
    contenders |= {name: peer(stream, rounds) for name, peer in PEERS.items()}

    def check(outputs: dict[str, Any]) -> None:
        history = outputs["obax.run"][1]
        for name in PEERS:
            xs, values = outputs[name]
            np.testing.assert_allclose(history.outer_var[:, 0], xs, 1e-4, err_msg=name)
            np.testing.assert_allclose(history.played_value, values, 1e-3, 1e-5, err_msg=name)
        ((last, _),) = outputs["obax.play"]
        np.testing.assert_allclose(outputs["obax.run"][0].outer_var, last.outer_var, 1e-4)

    times = interleaved(contenders, repetitions, check, warm_up=1)
    results = [
        compare(f"{names[ours]} against {peer}", times[ours], times[peer], None, rounds)
        for peer in PEERS
        for ours in names
    ]
    return [
        result._replace(name=f"{result.name}: {1 / result.ratio:,.0f} times as fast")
        for result in results
        if result.ratio is not None
    ]


BENCHMARKS = {"peers": against_peers}


def main(arguments: list[str] | None = None) -> int:
    return run_chosen("peers", __doc__, BENCHMARKS, NOTE, "a smoke run of a few seconds", arguments)


if __name__ == "__main__":
    sys.exit(main())
