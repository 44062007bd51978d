"""Several devices: how much a round sends.

    python -m benchmarks.devices [--quick] [--json FILE]

Exit code 1 if a limit is missed. What is sent is read from the compiled program and depends on no
clock; the last table *extrapolates* from it. How much faster a sweep is: `benchmarks.sweeps`.
"""

import os
import sys

# Before JAX starts.
DEVICES = 8
FLAG = f"--xla_force_host_platform_device_count={DEVICES}"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAG}"

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.table import Table

import obax

from .harness import Result, run_chosen
from .messages import Messages, flops_per_term, of_round

# Assumed of the machine that is extrapolated to: not measured.
FLOPS, BANDWIDTH, LATENCY = 5e10, 1e9, 2e-5
NOTE = "Read from the compiled programs: no clock is involved."


def network() -> tuple[obax.Problem, tuple, dict]:
    """784-64-10, batches of 64: the offsets of a loss tuned online, some 51,000 parameters."""

    def logits(y: dict, images: jax.Array) -> jax.Array:
        return jnp.tanh(images @ y["in"]) @ y["out"]

    def loss(offsets: jax.Array, y: dict, round: dict) -> jax.Array:
        chances = jax.nn.log_softmax(logits(y, round["images"]) + offsets)
        return -jnp.mean(jnp.sum(round["labels"] * chances, axis=1))

    problem = obax.Problem(
        outer=lambda x, y, round: loss(jnp.zeros(10), y, round),
        inner=lambda x, y, round: loss(x, y, round),
    )
    start = jnp.zeros(10), {"in": jnp.zeros((784, 64)), "out": jnp.zeros((64, 10))}
    return problem, start, {"images": jnp.zeros((64, 784)), "labels": jnp.zeros((64, 10))}


def messages(quick: bool) -> dict[str, list[Messages]]:
    """What a round sends, by method, for two windows and two numbers of devices each."""
    problem, start, example = network()
    solver = obax.hypergradient.CG(5)
    own = lambda w: obax.OAGD(problem, 0.1, 0.1, 5, obax.Window(w), solver)  # noqa: E731
    current = lambda w: obax.OAGD(  # noqa: E731
        problem, 0.1, 0.1, 5, obax.Window(w, curvature="current"), solver
    )
    sobow = lambda w: obax.SOBOW(problem, 0.1, 0.1, obax.Window(w))  # noqa: E731
    methods = {"OAGD current": current, "OAGD own": own, "SOBOW": sobow}
    cases = [(8, 2), (16, 2)] if quick else [(8, 2), (16, 2), (8, 8), (16, 8)]
    if quick:
        methods = {"OAGD current": current}
    found: dict[str, list[Messages]] = {}
    for name, make in methods.items():
        for axis in ("window", "batch"):
            if not (axis == "window" and name == "SOBOW"):
                found[f"{name}, {axis}"] = [
                    of_round(make(w), start, example, axis, w, devices) for w, devices in cases
                ]
    return found


def communication(quick: bool) -> list[Result]:
    """Bytes and collectives, which must not depend on the window: judged by their ratio."""
    console, results = Console(width=140), []
    table = Table(title="What a round sends: 784-64-10 network (51,000 parameters), batch 64")
    for heading in ("method, axis", "w", "devices", "sums", "KiB", "of them per CG step", "KiB"):
        table.add_column(heading, justify="left" if "axis" in heading else "right")
    found = messages(quick)
    for name, lines in found.items():
        for one in lines:
            kib = [f"{bytes / 1024:.1f}" for bytes in (one.bytes, one.bytes_in_loop)]
            row = (one.window, one.devices, one.count, kib[0], one.count_in_loop, kib[1])
            table.add_row(name, *map(str, row))
        few, many = lines[0], lines[1]
        ratio = many.count / few.count
        detail = {"lines": [one._asdict() for one in lines]}
        counts = f"{many.count} (w = {many.window})", f"{few.count} (w = {few.window})"
        results.append(Result(f"collectives, {name}", *counts, "", ratio, None, 1.0, detail))
    console.print(table)
    console.print(_extrapolation(found))
    return results


def _extrapolation(found: dict[str, list[Messages]]) -> Table:
    """Seconds of a round with w = 256 terms if nothing but these counts mattered."""
    table = Table(
        title=f"EXTRAPOLATION, not measured: w = 256 on N devices of {FLOPS:.0e} flop/s, "
        f"{BANDWIDTH:.0e} B/s, {LATENCY:.0e} s a message"
    )
    headings = ("method", "Mflop a term", "N = 1: ms", "16", "64", "256", "messages", "speed-up")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for name, lines in found.items():
        if not name.endswith("window"):
            continue
        term = flops_per_term(*lines[:2])
        machine = FLOPS, BANDWIDTH, LATENCY
        times = {n: lines[0].seconds(term, 256, n, *machine) for n in (1, 16, 64, 256)}
        work = [f"{1e3 * sum(time):.3g}" for time in times.values()]
        rest = f"{1e3 * times[256][1]:.3g}", f"{sum(times[1]) / sum(times[256]):.3g}"
        table.add_row(name.split(",")[0], f"{term / 1e6:.3g}", *work, *rest)
    return table


BENCHMARKS = {"communication": communication}


def main(arguments: list[str] | None = None) -> int:
    return run_chosen("devices", __doc__, BENCHMARKS, NOTE, "a smoke run", arguments)


if __name__ == "__main__":
    sys.exit(main())
