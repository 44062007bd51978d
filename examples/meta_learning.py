"""Adapt your own model to a stream of tasks: each task is a new wave, seen at ten points.

Run it: python examples/meta_learning.py
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import obax
from obax.problems import task_logits


class Model(eqx.Module):
    """Yours: anything with `.features` and `.head`, whose arrays are its parameters."""

    features: obax.models.Linear
    head: obax.models.Linear


def hidden(features, inputs):
    """Yours: the features of a batch."""
    return jnp.tanh(features(inputs))


def task(rng):
    """Yours: the next task. Above or below a wave of its own height and phase?"""
    height, phase = rng.uniform(0.5, 2.0), rng.uniform(0, np.pi)

    def batch(size):
        inputs = rng.uniform(-2, 2, (size, 2)).astype(np.float32)
        above = inputs[:, 1] > height * np.sin(2 * inputs[:, 0] + phase)
        return inputs, above.astype(np.int32)

    return {"support": batch(10), "query": batch(50)}


def accuracy(model, tasks):
    """After one step of adaptation to each task's ten points."""
    right = [np.mean(np.argmax(judged(model, t), axis=1) == t["query"][1]) for t in tasks]
    return f"{np.mean(right):.3f} ± {1.96 * np.std(right) / len(right) ** 0.5:.3f}"


keys = jax.random.split(jax.random.key(0))
linear = obax.models.Linear
model = Model(linear(keys[0], 2, 32), linear(keys[1], 32, 2))
algorithm = obax.prox_linear(0.5, 3e-3, window=10, outer_optimiser=optax.adam(1.0), features=hidden)


@jax.jit
def judged(model, task):
    """Logits on the query of the model, adapted to the support."""
    adapted = obax.adapt(algorithm, model, task)
    return task_logits(algorithm.problem, model, adapted, task["query"][0])


rng = np.random.default_rng(0)
held_out = [task(np.random.default_rng([1, i])) for i in range(300)]
state = algorithm.init(model, model, task(rng))
print(f"before any task: {accuracy(model, held_out)} right on new tasks")
for now, _ in obax.play(algorithm, state, (task(rng) for _ in range(1000))):
    state = now
print(f"after 1000 tasks: {accuracy(state.outer_var, held_out)}, with the last ten in memory")
