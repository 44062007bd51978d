# %% [markdown]
# # Which sources can be trusted?
# Ten sources feed a stream; four of them report the opposite of what is true, and nobody says
# which. A few clean samples in each round are enough for the leader to find out: it weighs the
# sources, the follower learns from what they say.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

import obax

BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#777777"
stream = obax.problems.hyper_cleaning(600, sources=10, bad=4, seed=0)
learner = obax.OAGD(stream.problem, 2.0, 0.3, 10, hypergradient=obax.hypergradient.CG(max_steps=5))


# %%
def played(algorithm, weights):
    state = algorithm.init(weights, stream.inner_var, stream.example_round)
    return obax.run(algorithm, state, stream.rounds)[1]


trusting = obax.OGD(stream.problem, inner_step_size=0.3, inner_steps=10)
everyone = played(trusting, stream.outer_var)
told = played(trusting, stream.outer_var.at[:6].set(6.0).at[6:].set(-6.0))
learned = played(learner, stream.outer_var)
weights = np.asarray(jax.nn.sigmoid(learned.outer_var))


# %%
def smooth(values, width=50):
    return np.convolve(np.asarray(values), np.ones(width) / width, "valid")


figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
left.plot(weights[:, :6], color=BLUE, lw=1.2)
left.plot(weights[:, 6:], color=ORANGE, lw=1.2)
left.set(xlabel="round", ylabel="weight of a source", xlim=(0, 800), ylim=(0, 1))
left.text(605, weights[-1, :6].mean(), "good sources", color=BLUE, va="center")
left.text(605, weights[-1, 6:].mean() + 0.03, "bad sources", color=ORANGE, va="center")
for name, history, colour, dash in (
    ("all trusted alike", everyone, GREY, "--"),
    ("weights learned online", learned, BLUE, "-"),
    ("bad sources known in advance", told, GREEN, ":"),
):
    right.plot(smooth(history.played_value), dash, color=colour, label=name)
right.set(xlabel="round", ylabel="loss suffered, mean of 50", yscale="log")
figure.legend(loc="outside lower center", ncols=3, frameon=False)
figure.savefig("hyper_cleaning.png", dpi=90)
