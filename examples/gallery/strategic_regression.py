# %% [markdown]
# # Those who are judged respond
# A rule scores people by their features; people spend effort where the rule rewards it (Harris,
# Heidari, Wu, 2021). Here all of that effort is gaming: it raises the score and not the outcome.
# Regression that does not see this is fooled; a leader that differentiates the response finds the
# weaker rule that is best, which is known in closed form.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

import obax

BLUE, GREEN, GREY = "#0072b2", "#009e73", "#777777"
COST = 0.7
stream = obax.problems.strategic_regression(600, 2, cost=COST, genuine=0.0, drift=0.02, seed=3)
theta = np.asarray(stream.rounds["theta"])
best = np.stack([obax.problems.strategic_rule(one, COST, 0) for one in theta])

# %% The leader sees how people respond; the follower is people who adapt in steps.
learner = obax.OAGD(stream.problem, 0.2, 0.5, 3, hypergradient=obax.hypergradient.CG(max_steps=3))
state = learner.init(stream.outer_var, stream.inner_var, stream.example_round)
learned = np.asarray(obax.run(learner, state, stream.rounds)[1].outer_var)


# %% Regression on what was shown, as if nobody responded: y is held fixed in the gradient.
def naive_step(rule, round):
    response = stream.problem.inner_argmin(rule, round)
    return rule - 0.2 * jax.grad(stream.problem.outer)(rule, response, round), rule


_, naive = jax.lax.scan(naive_step, stream.outer_var, stream.rounds)


# %%
@jax.vmap
def loss(rule, round):
    return stream.problem.outer(rule, stream.problem.inner_argmin(rule, round), round)


figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
for name, rules, colour, dash in (
    ("blind to the response", np.asarray(naive), GREY, "--"),
    ("leader who sees it", learned, BLUE, "-"),
    ("best rule, closed form", best, GREEN, ":"),
):
    left.plot(np.cumsum(loss(jax.numpy.asarray(rules), stream.rounds)), dash, color=colour)
    right.plot(np.linalg.norm(rules, axis=1), dash, color=colour, label=name)
left.set(xlabel="round", ylabel="loss so far, after the response")
right.set(xlabel="round", ylabel="strength of the rule |x|", ylim=(0, None))
figure.legend(loc="outside lower center", ncols=3, frameon=False)
figure.savefig("strategic_regression.png", dpi=90)
