"""A round of online meta-learning against the same round in plain PyTorch, in one process.

    python -m benchmarks.meta_learning [--only NAME] [--quick] [--json FILE]

FC100 where its archive is at hand (OBAX_DATA), otherwise random images of its shape: 5-way 5-shot
with 25 query images, K = 20, beta = 0.1. OAGD is timed with a full window; MAML, ANIL and ITD-BiO
on one task, which is what their cost grows by in each round. Before anything is timed the
hypergradients must agree, in double precision. The closed form is held against the same in PyTorch,
and against PyTorch's implicit round, which it takes the place of. `memory` plays OAGD for many
rounds and watches what the process holds.
"""

import functools
import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import obax
from obax import datasets
from obax.hypergradient import CG
from obax.problems import embed_task, meta_learning

from . import torch_meta_learning as peer
from .harness import Result, Timing, interleaved, run_chosen
from .horizon import GROWTH_LIMIT, MIB, memory

BETA, STEPS, PROXIMITY, CG_STEPS = 0.1, 20, 0.1, 5
GOALS = {"implicit": 0.5, "head": 1.0, "prox": 1.0, "maml": 1.0, "anil": 1.0, "itd": 1.0}
CLOSED_FORM_GOAL = 0.1
AGREEMENT, SINGLE_AGREEMENT = 1e-6, 1e-2
METHODS = ("prox-w1", "prox-w5", "prox-w10", "implicit-w1", "implicit-w5", "implicit-w10")
METHODS += ("head-w1", "head-w5", "head-w10", "maml", "anil", "itd")
NOTE = """\
Seconds per round, median and minimum in brackets; OAGD with a full window, the others on one task.
Ours keeps the guard and the leader's step, the reference computes the hypergradient alone."""


def algorithm(name: str, steps: int) -> obax.OAGD | obax.ITD:
    """A method whose step of the leader is its hypergradient: alpha = 1."""
    kind, _, window = name.partition("-w")
    if kind in ("prox", "implicit", "head"):
        options = obax.Window(int(window), follower="each", normalise="seen", chunk=1)
        if kind == "prox":
            return obax.prox_linear(BETA, 1.0, window=options)
        solver = CG(max_steps=CG_STEPS)
        part = "head" if kind == "head" else "all"
        problem = meta_learning("implicit", part=part, proximity=PROXIMITY)
        return obax.OAGD(problem, 1.0, BETA, steps, options, solver)
    leader = "features" if kind == "itd" else "all"
    problem = meta_learning("plain", part="all" if kind == "maml" else "head", leader=leader)
    prepare = None if kind == "maml" else embed_task(problem)
    return obax.ITD(problem, 1.0, BETA, steps, capacity=2, tasks=1, prepare=prepare)


def reference(name: str, x: Any, tasks: list[Any], steps: int) -> Callable[[], np.ndarray]:
    """The same hypergradient in PyTorch."""
    kind = name.partition("-w")[0]
    near = {"steps": steps, "proximity": PROXIMITY, "budget": CG_STEPS}
    methods: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
        "prox": (peer.prox_linear, {}),
        "implicit": (peer.implicit, near),
        "head": (peer.implicit_head, near),
        "maml": (peer.maml, {"steps": steps}),
        "anil": (peer.head_only, {"steps": steps, "move_head": True}),
        "itd": (peer.head_only, {"steps": steps, "move_head": False}),
    }
    one, options = methods[kind]
    parameters, converted = peer.parameters(x), [peer.as_task(task) for task in tasks]
    return lambda: peer.as_numpy(peer.average(one, parameters, converted, beta=BETA, **options))


@eqx.filter_jit
def _advance(algorithm: Any, state: Any, round: Any) -> tuple[Any, jax.Array, jax.Array]:
    new, info = algorithm.step(state, round)
    return new, info.accepted, info.hvps


def ours(name: str, x: Any, tasks: list[Any], steps: int) -> Callable[[], Any]:
    """One step at a full window, always from the same state."""
    one = algorithm(name, steps)
    assert one.problem.inner_start is not None
    state = one.init(x, one.problem.inner_start(x), tasks[0])
    kept = getattr(state, "window", None)
    if kept is not None:
        # As if the tasks had been played, without playing them: x must still be x.
        for t, task in enumerate(tasks[:-1], 1):
            kept = kept.push(jnp.asarray(t, jnp.int32), task, jnp.asarray(True))
        state = eqx.tree_at(
            lambda s: (s.window, s.t), state, (kept, jnp.asarray(len(tasks), jnp.int32))
        )
    return lambda: _advance(one, state, tasks[-1])


def agree(name: str) -> None:
    """Raise unless obax and PyTorch come to the same hypergradient.

    In double precision, on a network that is just wide enough for the convolution of the timed one.
    In single precision two ways to add up the same convolution are too far apart after twenty
    steps: with 64 filters ANIL's hypergradient differs by 0.004 of its size from PyTorch's with
    XLA's own convolution, by 0.16 with sums over patches and by 0.04 with Winograd.
    """
    with jax.enable_x64(True):
        x = network(8)
        tasks = jax.tree.map(lambda leaf: np.asarray(leaf, _wide(leaf)), _tasks_of(name))
        taken, wanted = ours(name, x, tasks, STEPS)(), reference(name, x, tasks, STEPS)()
        hold_against(name, x, taken, wanted, AGREEMENT)


def hold_against(name: str, x: Any, taken: Any, wanted: np.ndarray, limit: float) -> None:
    """Raise unless the round was accepted and its step is the hypergradient of PyTorch."""
    state, accepted, _ = taken
    assert bool(accepted), f"{name}: the round was rejected"
    moved = jax.tree.map(jnp.subtract, x, state.outer_var)
    gradient = np.concatenate([np.asarray(leaf).reshape(-1) for leaf in jax.tree.leaves(moved)])
    error = np.linalg.norm(gradient - wanted) / np.linalg.norm(wanted)
    assert error < limit, f"{name}: the hypergradients differ by {error:.1e} of their size"


def _wide(leaf: Any) -> Any:
    return np.float64 if np.issubdtype(np.asarray(leaf).dtype, np.floating) else None


def network(filters: int) -> Any:
    """The paper's, or one with fewer filters."""
    return obax.models.cnn(jax.random.key(0), (32, 32, 3), 5, filters=filters)[0]


def measure(name: str, quick: bool) -> list[Result]:
    """One method; the closed form also against the implicit round of the same window."""
    filters, repetitions = (8, 1) if quick else (64, 3)
    agree(name)
    x, tasks = network(filters), _tasks_of(name)
    contenders = {
        "ours": ours(name, x, tasks, STEPS),
        "torch": reference(name, x, tasks, STEPS),
    }
    replaced = name.replace("prox", "implicit")
    if replaced != name:
        contenders["implicit"] = reference(replaced, x, tasks, STEPS)
    kind = name.partition("-w")[0]
    first: dict[str, Any] = {}

    def look(outputs: dict[str, Any]) -> None:
        # The closed form takes one step, after which single precision is close still.
        limit = SINGLE_AGREEMENT if kind == "prox" else np.inf
        hold_against(name, x, outputs["ours"], outputs["torch"], limit)
        first.update(outputs)

    peer.products.clear()
    times = interleaved(contenders, repetitions, look, warm_up=0)
    label = f"{name}, {filters} filters"
    if kind in ("implicit", "head"):
        # The two may meet a direction without positive curvature at different steps.
        theirs = len(peer.products) // (1 + repetitions)  # the call that compiles, and the timed
        label += f" (products of CG: {int(first['ours'][2])} / {theirs})"
    goal = GOALS[kind]
    found = [compared(label, times["ours"], times["torch"], goal)]
    if replaced != name:
        label += ", against torch's implicit"
        found.append(compared(label, times["ours"], times["implicit"], CLOSED_FORM_GOAL))
    return found


def compared(name: str, ours: Timing, reference: Timing, limit: float) -> Result:
    """Like `harness.compare`, in seconds."""
    ratio = statistics.median(a / b for a, b in zip(ours.runs, reference.runs, strict=True))
    return Result(
        name,
        f"{ours.median:.3g} ({ours.best:.3g})",
        f"{reference.median:.3g} ({reference.best:.3g})",
        f"{ours.compilation:.1f} / {reference.compilation:.1f}",
        ratio,
        ours.best / reference.best,
        limit,
        {"ours_s": ours.runs, "reference_s": reference.runs},
    )


@functools.cache
def _stream() -> datasets.fewshot.TaskStream:
    try:
        data = datasets.fewshot.fc100().train
        return datasets.fewshot.TaskStream(data.images, data.labels)
    except datasets.DataError:
        return _random_stream()


def _random_stream() -> datasets.fewshot.TaskStream:
    images = np.random.default_rng(0).integers(0, 256, (100, 32, 32, 3), np.uint8)
    return datasets.fewshot.TaskStream(images, np.repeat(np.arange(5), 20))


def _tasks_of(name: str) -> list[Any]:
    """As many as the window holds, or one."""
    count = int(name.partition("-w")[2] or 1)
    return [jax.tree.map(jnp.asarray, _stream().task(t)) for t in range(1, count + 1)]


def memory_of_rounds(quick: bool) -> list[Result]:
    """Resident memory of OAGD with w = 10, each follower in a process of its own."""
    rounds, every = (40, 5) if quick else (200, 10)
    found = []
    for name in ("prox-w10", "implicit-w10"):
        script = "import json; from benchmarks.meta_learning import watch; "
        script += f"print(json.dumps(watch({name!r}, {rounds}, {every})))"
        command = [sys.executable, "-c", script]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        measured = json.loads(printed.splitlines()[-1])
        # A task that is not let go of would be 0.6 MiB per round.
        middle = len(measured["resident"]) // 2
        early, late = (
            statistics.median(half) / MIB
            for half in (measured["resident"][1:middle], measured["resident"][middle:])
        )
        found.append(
            Result(
                f"{name}, 4 filters: growth of memory in MiB, second half of {rounds} rounds",
                f"{late:.1f} MiB",
                f"{early:.1f} MiB",
                "",
                late - early,
                None,
                GROWTH_LIMIT,
                measured,
            )
        )
    return found


def watch(name: str, rounds: int, every: int) -> dict[str, list[int]]:
    """Play new tasks with one inner step and look at this process's memory now and then."""
    one, x = algorithm(name, 1), network(4)
    assert one.problem.inner_start is not None
    stream = _random_stream()
    state = one.init(x, one.problem.inner_start(x), stream.task(1))
    tasks = (stream.task(t) for t in range(1, rounds + 1))
    samples: dict[str, list[int]] = {"rounds": [], "resident": []}
    for t, _ in enumerate(obax.play(one, state, tasks, on_rejected="skip"), 1):
        if t % every == 0:
            for column, value in zip(samples, (t, memory()[0]), strict=True):
                samples[column].append(value)
    return samples


BENCHMARKS = {name: functools.partial(measure, name) for name in METHODS}
BENCHMARKS["memory"] = memory_of_rounds


def main(arguments: list[str] | None = None) -> int:
    smoke = "8 filters, one repetition"
    return run_chosen("meta_learning", __doc__, BENCHMARKS, NOTE, smoke, arguments)


if __name__ == "__main__":
    sys.exit(main())
