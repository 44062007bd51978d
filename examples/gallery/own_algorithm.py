# %% [markdown]
# # Your own algorithm in one file
# A leader that steps by the *sign* of each entry of its hypergradient, whatever its size. You write
# the update of one round. Checks, state, record, the guard against NaN, `run`, `play`, sweeps and
# checkpoints come with the base class. `obax.testing.check_algorithm` passes on it.

# %%
import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import obax
from obax.hypergradient import CG, Hypergradient

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#777777"


class SignDescent(obax.Algorithm):
    """x_{t+1} = projection of  x_t - alpha sign(h_t)."""

    # Arrays, so that another step size does not compile the program again.
    outer_step_size: jax.Array = eqx.field(converter=jnp.asarray, default=0.05)
    inner_step_size: jax.Array = eqx.field(converter=jnp.asarray, default=0.1)
    inner_steps: int = 5
    hypergradient: Hypergradient = CG(max_steps=5)

    def update(self, state, round):
        follower = self.follow(state, round, self.inner_steps)
        estimate = self.estimate(self.hypergradient, state, follower, round)
        estimate = estimate._replace(value=jax.tree.map(jnp.sign, estimate.value))
        leader = self.lead(state, estimate.value)
        return obax.Move(leader, follower, estimate, gradients=self.inner_steps)


# %% On a drifting quadratic stream whose best decisions are known.
stream = obax.problems.quadratic(400, 5, 8, drift=0.03, box=3.0, seed=0)


def regret_of(algorithm):
    state = algorithm.init(stream.outer_var, stream.inner_var, stream.example_round)
    _, history = obax.run(algorithm, state, stream.rounds)
    return np.asarray(obax.regret.dynamic(stream.problem, history, stream.rounds))


figure, axis = plt.subplots(figsize=(8, 3.6), layout="constrained")
for name, algorithm, colour, dash in (
    ("x held (OGD)", obax.OGD(stream.problem, inner_step_size=0.1, inner_steps=5), GREY, "--"),
    ("OAGD", obax.OAGD(stream.problem, 0.1, 0.1, 5, hypergradient=CG(max_steps=5)), BLUE, "-"),
    ("SignDescent, ours", SignDescent(stream.problem), ORANGE, "-."),
):
    axis.plot(regret_of(algorithm), dash, color=colour, label=name)
axis.set(xlabel="round", ylabel="dynamic regret", yscale="log")
axis.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
figure.savefig("own_algorithm.png", dpi=90)
