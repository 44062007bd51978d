"""`check_hypergradient` at sizes: is it right, in both directions, and how long does it take?

Softmax regression whose ridge is the leader: 18 parameters, 1,000 (100 features x 10 classes, ridge
1e-3), 7,850 (MNIST-linear) and 100,000. A verdict that is wrong ends the benchmark.
"""

import functools
import statistics
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import obax
from obax import hypergradient as hg

from .harness import Result, clock

# Features, classes, seconds that a check may take once it is compiled.
SIZES = {"18": (9, 2, 1.0), "1,000": (100, 10, 5.0), "7,850": (785, 10, 10.0),
         "100,000": (1000, 100, 60.0)}  # fmt: skip


def softmax(
    features: int, classes: int, rows: int = 200, reach: Any = lambda x: x
) -> tuple[obax.Problem, Any, Any, Any]:
    """The problem, x, y and the round. `reach` is what of x gets to the follower's loss."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((2, rows, features))
    truth = rng.standard_normal((features, classes)) / np.sqrt(features)
    b = np.argmax(a @ truth + rng.gumbel(size=(2, rows, classes)), axis=2)
    round = {"a": jnp.asarray(a), "b": jnp.asarray(b)}

    def loss(y: Any, round: Any, part: int) -> Any:
        logits = jax.nn.log_softmax(round["a"][part] @ y)
        return -jnp.mean(jnp.take_along_axis(logits, round["b"][part, :, None], axis=1))

    problem = obax.Problem(
        lambda x, y, round: loss(y, round, 1),
        lambda x, y, round: loss(y, round, 0) + jnp.exp(reach(x)) * jnp.sum(y**2),
    )
    return problem, float(np.log(1e-3)), jnp.zeros((features, classes)), round


class Scaled(hg.Hypergradient):
    """A mutant: the right hypergradient times a factor."""

    factor: float = eqx.field(static=True)

    def __call__(
        self, inner: Any, outer_var: Any, inner_var: Any, outer_gradient: Any, carry: Any = None
    ) -> hg.Estimate:
        found = hg.CG()(inner, outer_var, inner_var, outer_gradient)
        return found._replace(value=jax.tree.map(lambda leaf: self.factor * leaf, found.value))


def _sound(point: Any, name: str) -> None:
    found = obax.check_hypergradient(*point)
    if not (found.ok and found.relative_error < 1e-6):
        raise RuntimeError(f"{name} parameters: a sound problem is called {found}")


def check_at_sizes(quick: bool) -> list[Result]:
    results = []
    for name, (features, classes, limit) in list(SIZES.items())[: 2 if quick else None]:
        point = softmax(features, classes)

        sound = functools.partial(_sound, point, name)
        first = clock(sound)
        runs = [clock(sound) for _ in range(1 if quick else 3)]
        # The other direction, where compilation allows.
        for factor in (-1.0, 0.1):
            if obax.check_hypergradient(*point, estimator=Scaled(factor)).ok:
                raise RuntimeError(f"{name} parameters: {factor} times the truth passes")
        for reach in (jax.lax.stop_gradient, lambda x: -7.0):
            if obax.check_hypergradient(*softmax(features, classes, reach=reach)).ok:
                raise RuntimeError(f"{name} parameters: a leader that does not reach passes")
        seconds = statistics.median(runs)
        results.append(
            Result(
                f"check_hypergradient, softmax of {name} parameters, and four mutants caught",
                f"{seconds:.3g} s",
                f"{limit:g} s",
                f"{max(0.0, first - seconds):.2f}",
                seconds / limit,
                min(runs) / limit,
                1.0,
                {"ours_s": runs},
            )
        )
    return results
