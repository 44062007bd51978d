"""Time and memory of a round, method by method.

    python -m benchmarks.methods [--quick] [--only NAME] [--json FILE]

Every method is timed beside OAGD with w = 1, in turn. Nothing is judged.
"""

import sys
from typing import Any

import equinox as eqx
import jax

import obax
from obax import hypergradient as hg
from obax.problems import dynamic_regression, quadratic

from .harness import Result, compare, interleaved, run_chosen

REFERENCE = "OAGD, w = 1"
NOTE = """\
Median us per round, the minimum in brackets; the ratio is that to OAGD with w = 1 (K = 5, 5 steps
of CG), timed in turn. State: what is kept between rounds. Scratch: what XLA sets aside for a round
of the live step. OAGD keeps the rounds of its window, SOBOW and OBBO the hypergradients of
theirs."""


def methods(problem: obax.Problem, sizes: tuple[int, ...]) -> dict[str, obax.Algorithm]:
    alpha, beta, steps = 1e-2, 2e-2, 5
    cold, warm = hg.CG(max_steps=5), hg.CG(max_steps=5, warm_start=True)
    ratio = beta / alpha
    found: dict[str, obax.Algorithm] = {
        REFERENCE: obax.OAGD(problem, alpha, beta, steps, hypergradient=cold),
        "SOGD": obax.SOGD(problem, 1e6, ratio, ratio),
        "ZO-SOGD, 1 direction": obax.ZOSOGD(problem, 1e6, ratio, ratio),
        "FSOBO": obax.FSOBO(problem, alpha, beta),
        "AOBO, up to 10 steps": obax.AOBO(problem, alpha, beta, 1e-2, 10, cold),
        "SOBOW, w = 1": obax.SOBOW(problem, alpha, beta, hypergradient=warm),
    }
    for w in sizes:
        window, current = obax.Window(w), obax.Window(w, curvature="current")
        found |= {
            f"OAGD own, w = {w}": obax.OAGD(problem, alpha, beta, steps, window, cold),
            f"OAGD current, w = {w}": obax.OAGD(problem, alpha, beta, steps, current, cold),
            f"SOBOW, w = {w}": obax.SOBOW(problem, alpha, beta, window, warm),
            f"OBBO, w = {w}": obax.OBBO(problem, alpha, beta, steps, window, cold),
            f"OBBO adaptive, w = {w}": obax.OBBO(
                problem, alpha, beta, steps, window, cold, geometry="adaptive"
            ),
        }
    return found


def memory(algorithm: obax.Algorithm, state: Any, example_round: Any) -> tuple[int, int]:
    """Bytes of the state, and of what a compiled step needs besides arguments and results."""
    kept = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    dynamic, static = eqx.partition(algorithm, eqx.is_array)
    step = jax.jit(lambda dynamic, state, round: eqx.combine(dynamic, static).step(state, round))
    compiled = step.lower(dynamic, state, example_round).compile()
    return kept, int(compiled.memory_analysis().temp_size_in_bytes)


def on_stream(name: str, stream: Any, quick: bool) -> list[Result]:
    results = []
    contenders = methods(stream.problem, (10,) if quick else (10, 100))
    states = {
        label: algorithm.init(stream.outer_var, stream.inner_var, stream.example_round)
        for label, algorithm in contenders.items()
    }

    def runner(label: str) -> Any:
        return lambda: obax.run(contenders[label], states[label], stream.rounds, on_rejected="skip")

    for label, algorithm in contenders.items():
        jax.clear_caches()
        times = interleaved(
            {"ours": runner(label), "reference": runner(REFERENCE)}, 3 if quick else 15
        )
        kept, scratch = memory(algorithm, states[label], stream.example_round)
        line = compare(label, times["ours"], times["reference"], None, stream.horizon)
        text = f"{name}: {label}; state {_size(kept)}, scratch {_size(scratch)}"
        detail = line.detail | {"state_bytes": kept, "scratch_bytes": scratch}
        results.append(line._replace(name=text, detail=detail))
    return results


def _size(count: int) -> str:
    return f"{count} B" if count < 10_000 else f"{count / 1024:.0f} KiB"


def on_regression(quick: bool) -> list[Result]:
    return on_stream("regression, d2 = 5", dynamic_regression(200 if quick else 2_000), quick)


def on_quadratic(quick: bool) -> list[Result]:
    stream = quadratic(20 if quick else 200, 10, 100, seed=1)
    return on_stream("quadratic, d1 = 10, d2 = 100", stream, quick)


BENCHMARKS = {"regression": on_regression, "quadratic": on_quadratic}


def main(arguments: list[str] | None = None) -> int:
    return run_chosen("methods", __doc__, BENCHMARKS, NOTE, "a smoke run", arguments)


if __name__ == "__main__":
    sys.exit(main())
