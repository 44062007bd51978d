"""Tune the loss of your own classifier on your own stream: one class in ten is the rare one.

Run it: python examples/loss_tuning.py
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import obax
from obax.problems import balanced_weights, loss_tuning, loss_tuning_start


def classifier(params, inputs, buffers, *, training, key):
    """Yours: the logits of each row. It carries no statistics, so the buffers pass through."""
    hidden = jnp.tanh(inputs @ params["hidden"] + params["shift"])
    return hidden @ params["head"], buffers


def batch(rng, size=128):
    """Yours: the next rows and their labels."""
    labels = (rng.random(size) < 0.1).astype(np.int32)
    inputs = rng.standard_normal((size, 8)) + 0.9 * labels[:, None]
    return inputs.astype(np.float32), labels


rng = np.random.default_rng(0)
weights = balanced_weights(batch(rng, 5000)[1], classes=2)


def a_round():
    """Rows to learn from, rows to judge by, and a key for dropout (not used here)."""
    key = np.zeros(2, np.uint32)
    return {"train": batch(rng), "valid": batch(rng), "class_weights": weights, "key": key}


sgd = optax.sgd(1.0, momentum=0.9)
test_inputs, test_labels = batch(rng, 20_000)
for name, first in (("plain cross-entropy", 10**9), ("tuned while learning", 30)):
    algorithm = obax.OAGD(
        loss_tuning(classes=2, predict=classifier),
        outer_step_size=1e-3,
        inner_step_size=0.05,
        window=obax.Window(5, 0.9, follower="window", curvature="current", normalise="seen"),
        # A network's Hessian is not positive definite: a short Neumann series, not CG.
        hypergradient=obax.hypergradient.Neumann(terms=5, step_size=0.5),
        outer_optimiser=sgd,
        inner_optimiser=sgd,
        outer_when=lambda t, first=first: t >= first,
    )
    keys = jax.random.split(jax.random.key(0))
    params = {
        "hidden": 0.3 * jax.random.normal(keys[0], (8, 16)),
        "shift": jnp.zeros(16),
        "head": 0.3 * jax.random.normal(keys[1], (16, 2)),
    }
    state = algorithm.init(loss_tuning_start(2), params, a_round(), buffers=())
    for now, _ in obax.play(algorithm, state, (a_round() for _ in range(300))):
        state = now
    logits, _ = classifier(state.inner_var, test_inputs, (), training=False, key=None)
    right = np.argmax(logits, axis=1) == test_labels
    common, rare = right[test_labels == 0].mean(), right[test_labels == 1].mean()
    print(f"{name}: balanced accuracy {(common + rare) / 2:.3f} ({common:.3f} and {rare:.3f})")
    print("  gamma", state.outer_var["gamma"], "Delta", state.outer_var["delta"])
