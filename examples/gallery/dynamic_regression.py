# %% [markdown]
# # A model that tunes its own regularisation
# A regression whose true model jumps twice. The penalty starts strong, which costs nothing in the
# first stage and much in the others. Learned online, from the loss on a validation sample of each
# round, it loses about as little as the best penalty that hindsight could pick.

# %%
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import obax

BLUE, GREEN, GREY = "#0072b2", "#009e73", "#777777"
stream = obax.problems.dynamic_regression(1500, stages=3, noise=3.0, correlation=0.5, seed=0)
start = jnp.zeros(1)  # exp(0) = 1, a strong penalty

# %% Learned: the leader follows the hypergradient, averaged over the last 20 rounds.
window = obax.Window(20, follower="average", curvature="window", normalise="seen")
learner = obax.OAGD(stream.problem, 1.0, 0.05, 10, window)
state = learner.init(start, stream.inner_var, stream.example_round)
_, learned = obax.run(learner, state, stream.rounds)


# %% Fixed: the same follower with the leader held still, at its start and on a grid.
def losses_with(penalty):
    still = obax.OAGD(stream.problem, 1.0, 0.05, 10, window, outer_when=lambda t: t < 0)
    state = still.init(jnp.full(1, penalty), stream.inner_var, stream.example_round)
    return np.asarray(obax.run(still, state, stream.rounds)[1].played_value)


grid = np.arange(-7.0, 1.0)
fixed = {penalty: losses_with(penalty) for penalty in grid}
best = min(grid, key=lambda penalty: fixed[penalty].sum())

# %%
rounds = np.arange(1, stream.horizon + 1)
figure, (above, below) = plt.subplots(2, 1, figsize=(8, 5), sharex=True, layout="constrained")
for name, losses, colour, dash in (
    ("held at its start", fixed[0.0], GREY, "--"),
    ("learned online", np.asarray(learned.played_value), BLUE, "-"),
    (f"best fixed one in hindsight, e^{best:.0f}", fixed[best], GREEN, ":"),
):
    above.plot(rounds, np.cumsum(losses) / rounds, dash, color=colour, label=name)
above.set(ylabel="mean loss suffered so far", ylim=(0, None))
below.plot(rounds, np.exp(learned.outer_var[:, 0]), color=BLUE)
below.axhline(1.0, ls="--", color=GREY)
below.axhline(np.exp(best), ls=":", color=GREEN)
below.set(yscale="log", ylabel="penalty", xlabel="round")
above.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
figure.savefig("dynamic_regression.png", dpi=90)
