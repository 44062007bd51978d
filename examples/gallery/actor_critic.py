# %% [markdown]
# # Actor and critic on a drifting system
# The leader is a policy u = -x s, the follower a critic that values it by the Bellman equation.
# The system drifts; what the best policy would be is known from the Riccati equation, and the
# actor keeps near it.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import obax

BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#777777"
stream = obax.problems.actor_critic(1000, states=2, controls=1, drift=0.4, period=500, seed=0)
best = np.asarray(stream.rounds["policy"])[:, 0]


# %% An exact critic costs a solve; ten steps on its Bellman error from where it was are enough.
def played(outer_step_size):
    actor = obax.OAGD(stream.problem, outer_step_size, 0.1, 10)
    state = actor.init(best[:1], stream.inner_var, stream.example_round)
    return np.asarray(obax.run(actor, state, stream.rounds)[1].outer_var)


@jax.vmap
def cost(policy, round):
    return stream.problem.outer(policy, stream.problem.inner_argmin(policy, round), round)


kept = np.broadcast_to(best[:1], (1000, 1, 2))
policies = {"first best policy, kept": kept, "actor-critic": played(0.02)}
least = stream.rounds["value"]
excess = {name: cost(jnp.asarray(x), stream.rounds) - least for name, x in policies.items()}

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
colours = {"first best policy, kept": (GREY, "--"), "actor-critic": (BLUE, "-")}
for name, values in excess.items():
    left.plot(values, colours[name][1], color=colours[name][0], label=name)
left.set(xlabel="round", ylabel="cost above that of Riccati's policy", ylim=(0, None))
for index in range(2):
    right.plot(policies["actor-critic"][:, 0, index], color=BLUE)
    (line,) = right.plot(best[:, index], ":", color=GREEN, lw=2)
    right.text(1010, best[-1, index], f"x[{index}]", va="center")
line.set_label("Riccati's policy")
right.set(xlabel="round", ylabel="policy", xlim=(0, 1090))
handles = [*left.get_legend_handles_labels()[0], line]
figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
figure.savefig("actor_critic.png", dpi=90)
