# %% [markdown]
# # A learning rate that tunes itself
# Inputs grow threefold halfway, so that a good learning rate becomes one that diverges. A learning
# rate does not change the follower's optimum, only its way there: the leader must differentiate
# the steps (`Unrolled`). With `CG`, which differentiates the optimum, the rate runs away;
# `check_hypergradient` says so before.

# %%
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import obax
from obax.hypergradient import CG, Unrolled

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#777777"
rng, T = np.random.default_rng(0), 600
a = np.where(np.arange(T) < 300, 0.5, 1.5)[:, None, None] * rng.normal(size=(T, 20, 5))
model = np.cumsum(0.05 * rng.normal(size=(T, 5)), axis=0) + 1.0
b = np.einsum("tnd,td->tn", a, model) + 0.1 * rng.normal(size=(T, 20))
rounds = tuple(jnp.asarray(part, float) for part in (a[:, :10], b[:, :10], a[:, 10:], b[:, 10:]))


# %% exp(x) multiplies the inner loss: with inner_step_size = 1 it is the learning rate.
def inner(x, y, round):
    return jnp.exp(x) * 0.5 * jnp.mean((round[0] @ y - round[1]) ** 2)


def outer(x, y, round):
    return 0.5 * jnp.mean((round[2] @ y - round[3]) ** 2)


problem = obax.Problem(outer, inner, obax.Box(-6.0, 4.0))


def played(how, speed):
    algorithm = obax.OAGD(problem, None, 1.0, 3, None, how(), outer_optimiser=optax.adam(speed))
    state = algorithm.init(jnp.asarray(-3.0), jnp.zeros(5), tuple(leaf[0] for leaf in rounds))
    return obax.run(algorithm, state, rounds, on_rejected="skip")[1]


runs = {"held at its start": played(Unrolled, 0.0)}
runs |= {"Unrolled": played(Unrolled, 0.05), "CG": played(CG, 0.05)}
first = tuple(leaf[0] for leaf in rounds)
print(obax.check_hypergradient(problem, -3.0, jnp.zeros(5), first).messages[0])

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
looks = ((GREY, "--"), (BLUE, "-"), (ORANGE, "-."))
for (name, history), (colour, dash) in zip(runs.items(), looks, strict=True):
    losses = np.minimum(np.asarray(history.played_value), 1e3)
    left.plot(np.convolve(losses, np.ones(20) / 20, "valid"), dash, color=colour, label=name)
    right.plot(np.exp(history.outer_var), dash, color=colour)
left.set(xlabel="round", ylabel="loss suffered, mean of 20", yscale="log")
right.set(xlabel="round", ylabel="learning rate", yscale="log")
figure.legend(loc="outside lower center", ncols=3, frameon=False)
figure.savefig("learning_rate.png", dpi=90)
