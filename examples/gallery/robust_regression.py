# %% [markdown]
# # Good on the group that is worst off
# Four groups need different models and one model has to serve them all. The follower puts its
# weight, on a simplex, where the model is worst (group-DRO): a min-max game with a constrained
# follower. The mean loss gets a little worse, that of the worst group much better; groups that are
# well served get the weight zero, exactly.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import obax

BLUE, GREY = "#0072b2", "#777777"
GROUPS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
stream = obax.problems.robust_regression(500, groups=4, features=3, samples=100, rho=1.0, seed=0)


# %% Robust: inner_domain=Simplex() is part of the problem; steps of the follower are projected.
def played(algorithm, weights):
    state = algorithm.init(stream.outer_var, weights, stream.example_round)
    return obax.run(algorithm, state, stream.rounds, record=lambda state: state.inner_var)[1]


robust = played(obax.OAGD(stream.problem, 0.1, 0.5, 5), stream.inner_var)
print(f"largest residual of the hypergradient's system: {float(robust.solver_residual.max()):.1e}")

# %% Plain: all groups count alike.
mean_loss = obax.Problem(lambda x, y, round: jnp.mean(obax.problems.group_losses(x, round)))
plain = obax.OGD(mean_loss, outer_step_size=0.1)
state = plain.init(stream.outer_var, None, stream.example_round)
_, plain = obax.run(plain, state, stream.rounds)


# %%
def smooth(values, width=25):
    return np.convolve(values, np.ones(width) / width, "valid")


losses = jax.vmap(obax.problems.group_losses)
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
runs = (("all alike", plain, GREY, "--"), ("robust", robust, BLUE, "-"))
for name, history, colour, dash in runs:
    each = np.asarray(losses(history.outer_var, stream.rounds))
    left.plot(smooth(each.max(axis=1)), dash, color=colour, label=f"worst group, {name}")
    middle = smooth(each.mean(axis=1))
    left.plot(middle, dash, color=colour, lw=0.9, alpha=0.6, label=f"mean of all, {name}")
left.set(xlabel="round", ylabel="loss, mean of 25 rounds", ylim=(0, None))
for index, colour in enumerate(GROUPS):
    weight = smooth(np.asarray(robust.recorded)[:, index])
    right.plot(weight, color=colour, label=f"group {index + 1}")
right.set(xlabel="round", ylabel="weight of a group, mean of 25", ylim=(-0.02, 1))
right.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
figure.savefig("robust_regression.png", dpi=90)
