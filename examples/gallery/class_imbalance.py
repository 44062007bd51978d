# %% [markdown]
# # Rare classes that count
# Of three classes one is rare, and becomes common halfway while another becomes rare. The leader
# learns a weight for each class from the class-balanced loss of the round; the follower is softmax
# regression on the weighted loss.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import obax

BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#777777"
rng, T, N = np.random.default_rng(0), 800, 64
shares = np.where(np.arange(T)[:, None] < T // 2, [0.80, 0.17, 0.03], [0.03, 0.17, 0.80])
labels = np.array([rng.choice(3, N, p=share) for share in shares])
centres = np.array([[0.0, 0.0], [1.5, 0.0], [0.7, 1.3]])
inputs = np.concatenate([centres[labels] + rng.normal(size=(T, N, 2)), np.ones((T, N, 1))], axis=2)
rounds = {"inputs": jnp.asarray(inputs, float), "labels": jnp.asarray(labels)}


# %%
def losses(y, round):
    scores = jax.nn.log_softmax(round["inputs"] @ y)
    return -jnp.take_along_axis(scores, round["labels"][:, None], axis=1)[:, 0]


def balanced(x, y, round):
    count = (own := jax.nn.one_hot(round["labels"], 3)).sum(axis=0)
    return jnp.sum((losses(y, round) @ own) / jnp.maximum(count, 1)) / jnp.sum(count > 0)


def weighted(x, y, round):
    weights = jnp.exp(x - x.mean())[round["labels"]]
    return jnp.mean(weights * losses(y, round)) + 1e-3 * jnp.sum(y**2)


problem = obax.Problem(balanced, weighted, obax.Box(-4.0, 4.0))
learner = obax.OAGD(problem, 1.0, 0.5, 5, hypergradient=obax.hypergradient.CG(max_steps=5))
fixed = obax.OGD(problem, inner_step_size=0.5, inner_steps=5)
start = (jnp.zeros(3), jnp.zeros((3, 3)), jax.tree.map(lambda leaf: leaf[0], rounds))
learned, plain = (obax.run(one, one.init(*start), rounds)[1] for one in (learner, fixed))

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
runs = (("equal weights", plain, GREY, "--"), ("learned online", learned, BLUE, "-"))
for name, history, colour, dash in runs:
    values = np.convolve(np.asarray(history.played_value), np.ones(40) / 40, "valid")
    left.plot(np.arange(39, T), values, dash, color=colour, label=name)
left.set(xlabel="round", ylabel="class-balanced loss, mean of 40")
weights = np.exp(learned.outer_var - np.mean(learned.outer_var, axis=1, keepdims=True))
kinds = {"common, then rare": ORANGE, "as it was": GREY, "rare, then common": GREEN}
for weight, (name, colour) in zip(weights.T, kinds.items(), strict=True):
    right.plot(weight, color=colour)
    right.text(T + 10, weight[-1], name, color=colour, va="center")
right.set(xlabel="round", ylabel="weight of a class", yscale="log", xlim=(0, 1280))
figure.legend(loc="outside lower center", ncols=2, frameon=False)
figure.savefig("class_imbalance.png", dpi=90)
