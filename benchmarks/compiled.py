"""`obax.run` against the hand-written kernel, and `obax.sweep` against `obax.run`."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import obax
from obax.problems import Instance

from . import kernel, workload
from .harness import Result, compare, interleaved

SETTINGS = ((1, "own", 6.0), (100, "own", 1.5), (100, "current", None))
KERNELS = {
    "kernel": "the kernel",
    "bare": "the kernel without record and guard",
    "fixed": "the kernel compiled for d2 = 5",
}


def run_against_kernel(quick: bool) -> list[Result]:
    """Time per round of `run`, with its record and guard, against numba."""
    horizon, repetitions = (500, 5) if quick else (workload.HORIZON, 31)
    kernels = ("kernel",) if quick else tuple(KERNELS)
    stream = workload.instance(horizon)
    keys = [f"w = {window}, {curvature}" for window, curvature, _ in SETTINGS]
    contenders = {}
    for key, (window, curvature, _) in zip(keys, SETTINGS, strict=True):
        contenders[f"{key}: obax"] = _runner(
            workload.oagd(stream.problem, window, curvature), stream
        )
        for label in kernels:
            dimension = stream.inner_var.size if label == "fixed" else 0
            contenders[f"{key}: {label}"] = kernel.caller(
                stream, window, curvature, recorded=label != "bare", dimension=dimension
            )

    def check(outputs: dict[str, Any]) -> None:
        for key in keys:
            history = outputs[f"{key}: obax"][1]
            for label in kernels:
                played = outputs[f"{key}: {label}"]
                np.testing.assert_allclose(history.outer_var[:, 0], played.outer_vars, 1e-4)
                if label != "bare":
                    agree(history, played)
        agree_on_bad_rounds()

    times = interleaved(contenders, repetitions, check)
    results = [
        compare(
            f"run, {key}, against {KERNELS[label]}",
            times[f"{key}: obax"],
            times[f"{key}: {label}"],
            limit if label == "kernel" else None,
            horizon,
        )
        for key, (_, _, limit) in zip(keys, SETTINGS, strict=True)
        for label in kernels
    ]
    own, current = times["w = 100, own: obax"], times["w = 100, current: obax"]
    results.append(compare("run, w = 100: current against own", current, own, 0.5, horizon))
    return results


def agree(history: obax.Info, played: kernel.Played, tolerance: float = 1e-4) -> None:
    """Raise unless kernel and obax played the same game, round for round.

    What is on record for a rejected round is whatever NaN made of it, and is not compared.
    """
    accepted = np.asarray(history.accepted)
    np.testing.assert_array_equal(accepted, played.history["accepted"], "accepted")
    for name in (*kernel.FLOATS, *kernel.INTEGERS):
        ours = np.asarray(getattr(history, name)).reshape(-1)[accepted]
        theirs = played.history[name][accepted]
        if name in kernel.INTEGERS and name != "hvps":
            np.testing.assert_array_equal(ours, theirs, name)
        elif name == "hvps":
            # The last CG step is decided by rounding: the work is the same, not every count.
            np.testing.assert_allclose(ours.mean(), theirs.mean(), 0.02, err_msg=name)
        elif name == "solver_residual":
            # Where grad_y f is itself at the level of rounding, so is all of its residual.
            apart = np.mean(np.abs(ours - theirs) > 1e-3)
            assert apart < 0.02, f"{name}: {apart:.1%} of the rounds disagree"
        else:
            size = float(np.sqrt(np.mean(ours**2)))
            np.testing.assert_allclose(ours, theirs, tolerance, tolerance * size, err_msg=name)


def agree_on_bad_rounds() -> None:
    """The kernel's guard is obax's: rounds with NaN and Inf leave no trace in x, y and window."""
    stream = workload.instance(300)
    (a, b), (va, vb) = stream.rounds["training"], stream.rounds["validation"]
    rounds = {
        "training": (a.at[150, 2].set(jnp.nan), b),
        "validation": (va, vb.at[200].set(jnp.inf)),
    }
    stream = type(stream)(stream.problem, rounds, stream.outer_var, stream.inner_var)
    for window, curvature, _ in (*SETTINGS, (7, "own", None)):
        algorithm = workload.oagd(stream.problem, window, curvature)
        state = workload.start(algorithm, stream)
        _, history = obax.run(algorithm, state, rounds, on_rejected="skip")
        assert int(history.rejected) == 2
        agree(history, kernel.caller(stream, window, curvature)())


def sweep_against_run(quick: bool) -> list[Result]:
    """160 settings x seeds in one compiled call against one `run`."""
    horizon, repetitions = (200, 3) if quick else (workload.HORIZON, 11)
    seeds = 5
    streams = [workload.instance(horizon, seed) for seed in range(seeds)]
    stream = streams[0]
    rounds = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(s.rounds for s in streams))
    sizes = np.geomspace(1e-3, 1e-1, 16)
    family = [
        workload.oagd(stream.problem, outer_step_size=float(size), inner_steps=steps)
        for steps in (5, 10)
        for size in sizes
    ]
    one = workload.oagd(stream.problem, outer_step_size=float(sizes[-1]), inner_steps=10)
    state = workload.start(one, stream)
    single, many = _runner(one, stream), lambda: obax.sweep(family, state, rounds, seeds=True)

    def check(outputs: dict[str, Any]) -> None:
        (_, histories), (_, history) = outputs["sweep"], outputs["run"]
        np.testing.assert_allclose(histories.outer_var[-1, 0], history.outer_var, 1e-3, 1e-3)

    times = interleaved({"sweep": many, "run": single}, repetitions, check)
    name = f"sweep over {len(family) * seeds} against one run"
    return [compare(name, times["sweep"], times["run"], 25.0, horizon)]


def _runner(algorithm: obax.OAGD, stream: Instance) -> Callable[[], Any]:
    state = workload.start(algorithm, stream)
    return lambda: obax.run(algorithm, state, stream.rounds)
