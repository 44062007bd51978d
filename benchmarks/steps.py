"""Step sizes that adapt, against the best of 15 fixed pairs in hindsight.

    python -m benchmarks.steps                 # 600 rounds, five seeds
    python -m benchmarks.steps --only cleaning --seeds 2

The pairs are alpha in {0.01, 0.032, 0.1, 0.32, 1} times the scale of the problem and beta in
{0.1, 0.32, 1} / L, with L the mean of the largest inner curvature at the start. Smaller beta are
left out on purpose: a follower that hardly moves lowers the loss suffered, f_t(x_t, y_t), on some
problems, which is why f_t(x_t, y*_t(x_t)), the loss behind the exact follower, stands beside it.
Rules and constants were chosen on the problems marked "chosen on" before the others were run.
"""

import argparse
import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import obax
from obax import problems

STEPS = 5
ALPHAS, BETAS = (0.01, 0.0316, 0.1, 0.316, 1.0), (0.1, 0.32, 1.0)


class Setting(NamedTuple):
    """A ready problem, the scale of its leader's steps, and whether rules were chosen on it."""

    make: Callable[..., problems.Instance]
    scale: float = 1.0
    chosen_on: bool = False


def settings(rounds: int) -> dict[str, Setting]:
    """Return the fourteen problems."""
    of = functools.partial
    quadratic = of(problems.quadratic, rounds)
    regression = of(problems.dynamic_regression, rounds)
    strategic = of(problems.strategic_regression, rounds)
    cleaning = of(problems.hyper_cleaning, rounds)
    robust = of(problems.robust_regression, rounds)
    ill = {"outer_dim": 5, "inner_dim": 10, "condition": 30.0, "outer_condition": 20.0}
    noisy = {"noise": 3.0, "correlation": 0.5}
    return {
        "quadratic": Setting(quadratic, 1.0, True),
        "quadratic, still": Setting(of(quadratic, drift=0.0), 1.0, True),
        "quadratic, fast": Setting(of(quadratic, drift=0.3), 1.0, True),
        "quadratic, ill-conditioned": Setting(of(quadratic, **ill), 1.0, True),
        "regression": Setting(of(regression, 3), 1.0, True),
        "regression, noisy": Setting(of(regression, 3, **noisy), 1.0, True),
        "regression, 5 penalties": Setting(of(regression, 1, 5, noise=1.0, samples=8), 1.0, True),
        "strategic": Setting(strategic, 1.0, True),
        "strategic, genuine": Setting(of(strategic, 5, genuine=0.5, noise=0.3), 1.0, True),
        "cleaning": Setting(cleaning, 10.0),
        "cleaning, noisy": Setting(of(cleaning, noise=1.0, samples=2), 10.0),
        "robust": Setting(robust, 1.0),
        "robust, few samples": Setting(of(robust, rho=0.1, samples=5, drift=0.05), 1.0),
        "representation": Setting(of(problems.hyper_representation, rounds), 0.3),
    }


class Score(NamedTuple):
    """Mean losses of a run: suffered, and behind the exact follower."""

    suffered: float
    exact: float
    rejected: int


def play(algorithm: obax.Algorithm, stream: problems.Instance) -> Score:
    """Return the score of an algorithm."""
    start = algorithm.init(stream.outer_var, stream.inner_var, stream.example_round)
    _, history = obax.run(algorithm, start, stream.rounds, on_rejected="skip")
    return score(stream, history)


def score(stream: problems.Instance, history: obax.Info) -> Score:
    """Return the score of a history."""
    exact = exact_losses(stream.problem, history.outer_var, stream.rounds)
    return Score(
        float(jnp.mean(history.played_value)), float(jnp.mean(exact)), int(history.rejected)
    )


@eqx.filter_jit
def exact_losses(problem: obax.Problem, xs: jax.Array, rounds: dict) -> jax.Array:
    """Return f_t(x_t, y*_t(x_t)) of each round."""
    return jax.vmap(lambda x, r: problem.outer(x, problem.inner_argmin(x, r), r))(xs, rounds)


def best_fixed(stream: problems.Instance, scale: float) -> Score:
    """Return the least loss suffered and the least exact loss over the pairs."""
    curvature = mean_curvature(stream)
    pairs = [(scale * a, b / curvature) for a in ALPHAS for b in BETAS]
    algorithms = [obax.OAGD(stream.problem, *pair, STEPS) for pair in pairs]
    start = algorithms[0].init(stream.outer_var, stream.inner_var, stream.example_round)
    _, histories = obax.sweep(algorithms, start, stream.rounds)
    scores = [
        score(stream, jax.tree.map(lambda leaf, k=k: leaf[k], histories)) for k in range(len(pairs))
    ]
    sound = [one for one in scores if not one.rejected and np.isfinite(one.suffered)]
    return Score(min(s.suffered for s in sound), min(s.exact for s in sound), 0)


def mean_curvature(stream: problems.Instance) -> float:
    """Return the mean over rounds of the largest eigenvalue of the inner Hessian at the start."""
    hessian = jax.hessian(lambda y, r: stream.problem.inner(stream.outer_var, y, r))
    matrices = jax.vmap(lambda r: hessian(stream.inner_var, r))(stream.rounds)
    return float(jnp.mean(jnp.linalg.norm(matrices, ord=2, axis=(1, 2))))


def rules(problem: obax.Problem) -> dict[str, obax.Algorithm]:
    """Return the algorithms that are compared."""
    return {"no step sizes": obax.OAGD(problem), "race": obax.Race(obax.OAGD(problem))}


def rows(chosen: list[str] | None, rounds: int, seeds: int) -> Iterator[tuple[str, list[str]]]:
    """Yield a line of the table for each problem, with ratios to the best fixed pair."""
    for name, setting in settings(rounds).items():
        if chosen and not any(name.startswith(word) for word in chosen):
            continue
        ratios: dict[str, list[tuple[float, float, int]]] = {}
        for seed in range(seeds):
            stream = setting.make(seed=seed)
            best = best_fixed(stream, setting.scale)
            for rule, algorithm in rules(stream.problem).items():
                mine = play(algorithm, stream)
                ratio = mine.suffered / best.suffered, mine.exact / best.exact, mine.rejected
                ratios.setdefault(rule, []).append(ratio)
        cells = []
        for each in ratios.values():
            suffered, exact, rejected = np.array(each).T
            cells += [f"{suffered.mean():.2f} ({suffered.max():.2f})", f"{exact.mean():.2f}"]
            cells[-1] += f", {int(rejected.sum())} rejected" if rejected.any() else ""
        yield name + " (chosen on)" * setting.chosen_on, cells


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=600)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", action="append", help="problems whose name begins so")
    options = parser.parse_args()
    names = rules(problems.quadratic(2).problem)
    print("| problem | " + " | ".join(f"{name} | exact follower" for name in names) + " |")
    print("|" + "---|" * (1 + 2 * len(names)))
    for name, cells in rows(options.only, options.rounds, options.seeds):
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
