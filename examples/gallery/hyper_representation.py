# %% [markdown]
# # Features that all tasks share
# Every round is a new task: ten inputs, six samples to learn from, and a target that depends on the
# inputs only through two features, the same for all tasks. Six samples are too few for ten
# inputs and enough for two features. The leader learns the features, the follower each task's head.
# It ends below the true features of length one: it makes its own longer, which the ridge of the
# head shrinks less.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

import obax
from obax.problems import subspace_error

BLUE, GREEN, GREY = "#0072b2", "#009e73", "#777777"
stream = obax.problems.hyper_representation(1500, inputs=10, features=2, support=6, seed=0)
teacher = stream.rounds["teacher"][0]


# %%
def played(algorithm, features):
    state = algorithm.init(features, stream.inner_var, stream.example_round)
    return obax.run(algorithm, state, stream.rounds)[1]


holds = obax.OGD(stream.problem, inner_step_size=0.1, inner_steps=40)
learns = obax.OAGD(stream.problem, 0.03, 0.1, 40, hypergradient=obax.hypergradient.CG(max_steps=2))
histories = {
    "features held at random": played(holds, stream.outer_var),
    "features learned online": played(learns, stream.outer_var),
    "true features, of length one": played(holds, teacher),
}
away = jax.vmap(lambda x: subspace_error(x, teacher))(
    histories["features learned online"].outer_var
)


# %% What counts is the loss on the query, once the follower has learned from the support.
def smooth(values, width=50):
    return np.convolve(np.asarray(values), np.ones(width) / width, "valid")


figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
left.plot(away, color=BLUE)
left.set(xlabel="task", ylabel="sine of the angle to the true features", ylim=(0, 1.02))
colours = zip((GREY, BLUE, GREEN), ("--", "-", ":"), strict=True)
for (name, history), (colour, dash) in zip(histories.items(), colours, strict=True):
    right.plot(smooth(history.outer_value), dash, color=colour, label=name)
    print(f"{name}: loss of the last 500 tasks {np.mean(history.outer_value[-500:]):.3f}")
right.set(xlabel="task", ylabel="loss of a task, mean of 50", yscale="log")
figure.legend(loc="outside lower center", ncols=3, frameon=False)
figure.savefig("hyper_representation.png", dpi=90)
