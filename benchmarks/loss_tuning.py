"""Time per round of online loss tuning: obax beside a plain PyTorch version of the released code.

    python -m benchmarks.loss_tuning [--quick] [--only mnist|adult|network] [--json FILE]

MNIST: the paper's network (4 blocks, 64 filters), batches of 128 images. Adult: 11 features, 200
hidden units, dropout 0.5, batches of 128. Random data of these shapes: nothing is learned here, and
nothing evaluated. Network: a gradient of the MNIST network, and a linearised gradient with five
Hessian-vector products, for each way to convolve. Exit code 1 if a limit is missed.
"""

import functools
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch

import obax
from obax import hypergradient, models
from obax.models import CONVOLUTIONS
from obax.problems import loss_tuning, loss_tuning_start

from .harness import Result, Timing, compare, interleaved, run_chosen
from .torch_loss_tuning import LossTuning, Settings, batch as torch_batch

SETTINGS = Settings(outer_step_size=1e-6, inner_step_size=1e-3)
NOTE = """\
Times are medians in ms per round, minima in brackets, compilation apart (ours / reference); the
reference is PyTorch, whose round has the curvature of each window term's own batch. The ratio is
the median over interleaved repetitions, and it is what is judged. Both make the same steps and
agree on x before anything is timed, on small networks with the blocks of the paper's text; timed is
PyTorch with the blocks of the released code, which cost it less. obax also keeps its record (two
losses, a gradient, the solver's residual) and its guard, PyTorch keeps nothing."""


class Task(NamedTuple):
    """A classifier and the shape of its data."""

    inputs: tuple[int, ...]
    classes: int
    build: Callable[..., tuple[Any, Any]]
    batch: int = 128


TASKS = {
    "mnist": Task((28, 28, 1), 10, models.cnn),
    "adult": Task((11,), 2, functools.partial(models.mlp, features=11, classes=2)),
}
# For the check of agreement and for quick runs. No dropout: the two draw different masks.
SMALL = {
    "mnist": Task(
        (8, 8, 1),
        3,
        functools.partial(models.cnn, image_shape=(8, 8, 1), classes=3, filters=8, blocks=3),
        16,
    ),
    "adult": Task(
        (11,),
        2,
        functools.partial(models.mlp, features=11, classes=2, hidden=20, dropout=0.0),
        16,
    ),
}
# Window and curvature of a line, w = 0 being OGD, and the limits on ours / PyTorch.
Line = tuple[int, str]
LINES: list[Line] = [(0, "own"), (1, "own"), (5, "own"), (10, "own"), (10, "current")]
QUICK: list[Line] = [(0, "own"), (2, "own"), (2, "current")]
LIMITS = {
    "mnist": {(10, "own"): 1.0, (10, "current"): 1 / 2.5},
    "adult": {(10, "own"): 1 / 5, (10, "current"): 1 / 5},
}


def rounds(task: Task, count: int) -> list[Any]:
    """Random rounds."""
    rng = np.random.default_rng(0)

    def batch() -> tuple[jax.Array, jax.Array]:
        inputs = rng.standard_normal((task.batch, *task.inputs), np.float32)
        return jnp.asarray(inputs), jnp.asarray(rng.integers(task.classes, size=task.batch))

    return [
        {
            "train": batch(),
            "valid": batch(),
            "class_weights": jnp.full(task.classes, task.classes, jnp.float32),
            "key": jnp.asarray([0, t], jnp.uint32),
        }
        for t in range(count)
    ]


@functools.cache
def optimiser() -> optax.GradientTransformation:
    """SGD with momentum and weight decay as PyTorch defines it."""
    return optax.chain(
        optax.add_decayed_weights(SETTINGS.weight_decay), optax.sgd(1.0, SETTINGS.momentum)
    )


def algorithm(task: Task, window: int, curvature: str, settings: Settings) -> obax.Algorithm:
    """OAGD as in the paper's deep experiments, or OGD for a window of 0."""
    problem = loss_tuning(task.classes, link="sigmoid", outer_training=True)
    if window == 0:
        return obax.OGD(
            problem, inner_step_size=settings.inner_step_size, inner_optimiser=optimiser()
        )
    image = len(task.inputs) == 3
    return obax.OAGD(
        problem,
        settings.outer_step_size,
        settings.inner_step_size,
        window=obax.Window(
            window,
            settings.decay,
            follower="window",
            curvature=curvature,
            normalise="seen",
            # Ten batches of images at once need gigabytes; ten of a table fit the caches.
            chunk=1 if image else None,
        ),
        hypergradient=hypergradient.Neumann(settings.terms, settings.neumann_step),
        outer_optimiser=optimiser(),
        inner_optimiser=optimiser(),
    )


class Ours:
    """A compiled step with its state, which is donated."""

    def __init__(self, task: Task, window: int, curvature: str, settings: Settings):
        played = algorithm(task, window, curvature, settings)
        self.dynamic, static = eqx.partition(played, eqx.is_array)
        self.compiled = jax.jit(
            lambda dynamic, state, round: eqx.combine(dynamic, static).step(state, round),
            donate_argnums=1,
        )
        model, buffers = task.build(jax.random.key(0))
        self.state = played.init(
            loss_tuning_start(task.classes), model, rounds(task, 1)[0], buffers=buffers
        )

    def fill(self, past: list[Any]) -> None:
        """A window that is full, without playing its rounds."""
        window = getattr(self.state, "window", None)
        for t, round in enumerate(past, start=1):
            if window is not None:
                window = window.push(jnp.asarray(t, jnp.int32), round, jnp.asarray(True))
        t = jnp.asarray(len(past) + 1, jnp.int32)
        self.state = eqx.tree_at(lambda state: state.t, self.state, t)
        if window is not None:
            self.state = eqx.tree_at(lambda state: state.window, self.state, window)

    def step(self, round: Any) -> Any:
        self.state, info = self.compiled(self.dynamic, self.state, round)
        return self.state.outer_var, info.accepted


def check(name: str) -> None:
    """Both move x in the same way, also while the window fills."""
    task, settings = SMALL[name], SETTINGS._replace(outer_step_size=1e-2, neumann_step=0.1)
    ours = Ours(task, 2, "own", settings)
    peer = LossTuning(ours.state.inner_var, task.classes, 2, settings)
    start = np.repeat([1.0, 0.0], task.classes)
    for t, round in enumerate(rounds(task, 4), start=1):
        peer.remember(round)
        expected = peer.step().numpy() - start
        x, accepted = ours.step(round)
        moved = np.concatenate([x["gamma"], x["delta"]]) - start
        if not accepted or np.linalg.norm(moved - expected) > 1e-2 * np.linalg.norm(expected):
            raise AssertionError(
                f"{name}, round {t}: x moved by {moved}, with PyTorch by {expected}."
            )


def against_torch(name: str, quick: bool) -> list[Result]:
    """All lines of a task; those that share w share the PyTorch round."""
    check(name)
    task = (SMALL if quick else TASKS)[name]
    # Two threads cost a network this small more than they give: the peer gets what suits it.
    torch.set_num_threads(1 if name == "adult" else torch.get_num_threads())
    played, repetitions = (20, 7) if name == "adult" else (1, 3)
    lines = QUICK if quick else LINES
    results = []
    for window in dict.fromkeys(window for window, _ in lines):
        curvatures = [curvature for size, curvature in lines if size == window]
        results += _window(name, task, window, curvatures, played, repetitions)
    return results


def _window(
    name: str, task: Task, window: int, curvatures: list[str], played: int, repetitions: int
) -> list[Result]:
    *past, now = rounds(task, max(window, 1))
    contenders: dict[str, Callable[[], Any]] = {}
    for curvature in curvatures:
        ours = Ours(task, window, curvature, SETTINGS)
        ours.fill(past)
        contenders[curvature] = functools.partial(_repeat, ours.step, now, played)
    model, _ = task.build(jax.random.key(0))
    peer = LossTuning(model, task.classes, window, SETTINGS, released=True)
    for round in [*past, now]:
        peer.remember(round)
    contenders["torch"] = functools.partial(_repeat, lambda _: peer.step(), now, played)
    times: dict[str, Timing] = interleaved(contenders, repetitions, warm_up=1)
    what = "OGD" if window == 0 else f"OAGD, w = {window}"
    return [
        compare(
            f"{name}, {what}" + (f", {curvature}" if window else ""),
            times[curvature],
            times["torch"],
            LIMITS[name].get((window, curvature)),
            # In thousands of rounds, which makes the figures milliseconds.
            1000 * played,
        )
        for curvature in curvatures
    ]


PRODUCTS = 5
SLOW = ("native", "products")


def convolutions(quick: bool) -> list[Result]:
    """What `models.cnn(convolution=...)` costs in derivatives of the parametric cross-entropy."""
    task = (SMALL if quick else TASKS)["mnist"]
    round, x = rounds(task, 1)[0], loss_tuning_start(task.classes)
    problem = loss_tuning(task.classes, link="sigmoid")
    torch_loss = LossTuning(task.build(jax.random.key(0))[0], task.classes, 0, SETTINGS)
    train = torch_batch(round, "train")

    def torch_products() -> Any:
        slope = torch.autograd.grad(
            torch_loss.inner_loss(train), torch_loss.parameters, create_graph=True
        )
        v = torch_loss.parameters
        for _ in range(PRODUCTS):
            v = torch.autograd.grad(slope, torch_loss.parameters, v, retain_graph=True)
        return v

    contenders: dict[str, Any] = {
        "torch gradient": lambda: torch.autograd.grad(
            torch_loss.inner_loss(train), torch_loss.parameters
        ),
        "torch products": torch_products,
    }
    kinds = {"gradient": "gradient", "products": f"linearised, {PRODUCTS} products"}
    # XLA's own second derivatives take minutes at full size.
    lines = [(m, k) for k in kinds for m in CONVOLUTIONS if quick or (m, k) != SLOW]
    for method in CONVOLUTIONS:
        model, buffers = task.build(jax.random.key(0), convolution=method)

        def gradient(y: Any, round: Any, buffers: Any = buffers) -> Any:
            return jax.grad(lambda y: problem.inner_loss(x, y, round, buffers)[0])(y)

        def products(y: Any, round: Any, gradient: Any = gradient) -> Any:
            _, hvp = jax.linearize(lambda y: gradient(y, round), y)
            return jax.lax.fori_loop(0, PRODUCTS, lambda _, v: hvp(v), y)

        for what, function in (("gradient", gradient), ("products", products)):
            if (method, what) in lines:
                contenders[f"{method} {what}"] = functools.partial(jax.jit(function), model, round)
    times = interleaved(contenders, 2 if quick else 5, warm_up=1)
    return [
        compare(
            f"network, {method}: {kinds[what]}",
            times[f"{method} {what}"],
            times[f"torch {what}"],
            None,
            1000,
        )
        for method, what in lines
    ]


def _repeat(step: Callable[[Any], Any], round: Any, times: int) -> Any:
    last = None
    for _ in range(times):
        last = jax.block_until_ready(step(round))
    return last


BENCHMARKS: dict[str, Callable[[bool], list[Result]]] = {
    **{name: functools.partial(against_torch, name) for name in TASKS},
    "network": convolutions,
}


def main(arguments: list[str] | None = None) -> int:
    smoke = "a smoke run on small networks"
    return run_chosen("loss_tuning", __doc__, BENCHMARKS, NOTE, smoke, arguments)


if __name__ == "__main__":
    sys.exit(main())
