"""How good are rough hypergradients on small networks?

Run with `python -m benchmarks.network_hypergradients`.


A tanh network of one hidden layer learns classes from a stream of batches. The leader has a weight
decay for each layer and a weight for each class. At several rounds of a run, each estimator's
hypergradient is compared with the exact one, which is computed in float64 with the whole Hessian
(`Dense`): the cosine between the two, and the residual that the estimator reports. Nothing is
timed.
"""

import operator

import jax
import jax.numpy as jnp
import numpy as np

import obax
from obax.hypergradient import CG, GMRES, Dense, Hypergradient, Neumann, Nystrom

ROUNDS, BATCH, INPUTS, HIDDEN, CLASSES = 300, 64, 6, 12, 3
STEP = 0.5
"""The follower's step size, beta."""
LOOKS = (30, 60, 100, 150, 200, 250, 299)
ESTIMATORS = {
    "CG()": CG(),
    "CG(5)": CG(max_steps=5),
    "CG(5, damping=0.1)": CG(max_steps=5, damping=0.1),
    "CG(20, damping=0.1)": CG(max_steps=20, damping=0.1),
    "CG(20, damping=0.01)": CG(max_steps=20, damping=0.01),
    "Neumann(5, 0.1)": Neumann(5, 0.1),
    "Neumann(5, beta / 2)": Neumann(5, STEP / 2),
    "Neumann(20, beta / 2)": Neumann(20, STEP / 2),
    "Neumann(100, beta / 2)": Neumann(100, STEP / 2),
    "GMRES(1)": GMRES(max_steps=1),
    "Nystrom(20)": Nystrom(20),
}


def rounds_of(seed: int) -> dict[str, jax.Array]:
    """Return batches to train and to validate on, of a task that a network can learn."""
    rng = np.random.default_rng(seed)
    inputs = rng.standard_normal((ROUNDS, 2, BATCH, INPUTS))
    scores = np.tanh(inputs @ rng.standard_normal((INPUTS, 8))) @ rng.standard_normal((8, CLASSES))
    labels = np.argmax(scores + 0.5 * rng.standard_normal(scores.shape), axis=-1)
    return {"inputs": jnp.asarray(inputs), "labels": jnp.asarray(labels)}


def start(seed: int) -> dict[str, jax.Array]:
    """Return the network's first parameters."""
    keys = jax.random.split(jax.random.key(seed))
    hidden = jax.random.normal(keys[0], (INPUTS, HIDDEN)) / INPUTS**0.5
    return {"hidden": hidden, "head": jax.random.normal(keys[1], (HIDDEN, CLASSES)) / HIDDEN**0.5}


def losses(y: dict[str, jax.Array], inputs: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the cross-entropy of each sample."""
    scores = jax.nn.log_softmax(jnp.tanh(inputs @ y["hidden"]) @ y["head"])
    return -jnp.take_along_axis(scores, labels[:, None], axis=1)[:, 0]


def make_problem() -> obax.Problem:
    """Return the problem of the network and its leader."""

    def inner(x: dict, y: dict, r: dict) -> jax.Array:
        weights, decays = jnp.exp(x["weights"])[r["labels"][0]], jnp.exp(x["decay"])
        penalty = decays[0] * jnp.sum(y["hidden"] ** 2) + decays[1] * jnp.sum(y["head"] ** 2)
        return jnp.mean(weights * losses(y, r["inputs"][0], r["labels"][0])) + 0.5 * penalty

    def outer(x: dict, y: dict, r: dict) -> jax.Array:
        return jnp.mean(losses(y, r["inputs"][1], r["labels"][1]))

    return obax.Problem(outer, inner)


def flat(tree: dict) -> np.ndarray:
    """Return the numbers of a tree."""
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def points(decay: float, seed: int, steps: int = 5) -> list:
    """Return (x, y, round) at some rounds of a run whose leader is held."""
    problem, rounds = make_problem(), rounds_of(seed)
    x = {"decay": jnp.full(2, decay), "weights": jnp.zeros(CLASSES)}
    algorithm = obax.OGD(problem, inner_step_size=STEP, inner_steps=steps)
    at = lambda t: jax.tree.map(lambda leaf: leaf[t], rounds)  # noqa: E731
    state = algorithm.init(x, start(seed), at(0))
    _, history = obax.run(algorithm, state, rounds, record=lambda state: state.inner_var)
    return [(x, jax.tree.map(operator.itemgetter(t), history.recorded), at(t)) for t in LOOKS]


def compare(
    decay: float, seeds: int = 3, estimators: dict[str, Hypergradient] = ESTIMATORS
) -> dict[str, tuple[float, float, float, float]]:
    """Return for each estimator the smallest and the median cosine, the share of residuals above 1,
    and the largest residual."""
    problem, found = make_problem(), {name: [] for name in estimators}
    exact = jax.jit(lambda *at: Dense().at(problem, *at).value)
    tried = {
        name: jax.jit(lambda *at, one=one: one.at(problem, *at, carry=one.init(at[1])))
        for name, one in estimators.items()
    }
    for seed in range(seeds):
        for at in points(decay, seed):
            truth = flat(exact(*at))
            for name, one in tried.items():
                estimate = one(*at)
                value = flat(estimate.value)
                lengths = np.linalg.norm(value) * np.linalg.norm(truth)
                # A hypergradient of zero has no direction.
                cosine = value @ truth / lengths if lengths > 0 else 0.0
                found[name].append((cosine, float(estimate.residual)))
    result = {}
    for name, pairs in found.items():
        cosines, residuals = map(np.asarray, zip(*pairs, strict=True))
        above = float(np.mean(residuals > 1))
        result[name] = cosines.min(), np.median(cosines), above, residuals.max()
    return result


def main() -> None:
    """Print a table for each weight decay."""
    for decay in (-7.0, -5.0, -3.0):
        print(f"weight decay exp({decay:g}) = {np.exp(decay):.1e}")
        print("| estimator | smallest cosine | median cosine | residual above 1 | largest |")
        print("|---|---|---|---|---|")
        for name, (least, middle, above, largest) in compare(decay).items():
            print(f"| `{name}` | {least:.2f} | {middle:.2f} | {above:.0%} | {largest:.2g} |")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
