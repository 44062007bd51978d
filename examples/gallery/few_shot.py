# %% [markdown]
# # Few-shot tasks: learn what all of them share
# Each round is a new task: six samples with ten inputs, too few for a regression of its own. All
# tasks use the same two directions of the inputs, and nobody says which. The leader learns
# features, the follower a ridge head on the task's samples.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import obax

BLUE, GREEN, GREY = "#0072b2", "#009e73", "#777777"
stream = obax.problems.hyper_representation(1500, inputs=10, features=2, seed=0)
problem, teacher = stream.problem, stream.rounds["teacher"][0]

# %%
learner = obax.OAGD(problem, 0.05, 0.1, 30, hypergradient=obax.hypergradient.Dense())
state = learner.init(stream.outer_var, stream.inner_var, stream.example_round)
_, history = obax.run(learner, state, stream.rounds)


# %% The loss on a new task's query once a head was fitted to its support.
@jax.vmap
def adapted_loss(features, round):
    return problem.outer(features, problem.inner_argmin(features, round), round)


@jax.vmap
def alone(round):
    """Ridge regression of the task on all inputs."""
    every = jnp.eye(10)
    return problem.outer(every, problem.inner_argmin(every, round), round)


def smooth(values, width=100):
    return np.convolve(np.asarray(values), np.ones(width) / width, "valid")


angle = jax.vmap(lambda x: obax.problems.subspace_error(x, teacher))(history.outer_var)
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
known = jnp.broadcast_to(3 * teacher, history.outer_var.shape)  # so large that ridge costs little
for name, losses, colour, dash in (
    ("each task alone, ridge on all inputs", alone(stream.rounds), GREY, "--"),
    ("features learned online", adapted_loss(history.outer_var, stream.rounds), BLUE, "-"),
    ("features known in advance", adapted_loss(known, stream.rounds), GREEN, ":"),
):
    left.plot(np.arange(99, 1500), smooth(losses), dash, color=colour, label=name)
left.set(xlabel="task", ylabel="loss on new samples, mean of 100", ylim=(0, None))
right.plot(angle, color=BLUE)
right.set(xlabel="task", ylabel="sine of the angle to the true features", ylim=(0, 1))
figure.legend(loc="outside lower center", ncols=3, frameon=False)
figure.savefig("few_shot.png", dpi=90)
