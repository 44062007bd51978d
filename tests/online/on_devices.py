"""A program that the tests of devices start in processes of their own: what it finds, as JSON.

    python -m tests.online.on_devices NAME ...      8 simulated devices

The number of devices must be known before JAX starts.
"""

import json
import os
import re
import sys
from contextlib import contextmanager

FLAG = "--xla_force_host_platform_device_count=8"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAG}"

import jax
import jax.numpy as jnp
import numpy as np

import obax
from obax.online.mesh import Axes, collect, on_mesh
from obax.round_buffer import RingBuffer, Terms
from tests.online.mesh_cases import START, algorithm, apart, first, stream, unstacked

jax.config.update("jax_enable_x64", True)
KINDS = "all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter"
COLLECTIVE = re.compile(rf" ({KINDS})(-start)?\(")


def buffer_of(state):
    return next(held for held in vars(state).values() if isinstance(held, RingBuffer))


def collectives(method, state, rounds, axes):
    """The lines of the compiled program of one round that send something."""
    placed, there = on_mesh(method, state, axes)
    round = axes.put_rounds(first(rounds), state.round_spec, stacked=False)
    text = jax.jit(lambda *given: placed.step(*given)).lower(there, round).compile().as_text()
    return [line.strip() for line in text.splitlines() if COLLECTIVE.search(line)]


def examined(name, window_axis="w"):
    mesh = jax.make_mesh((4, 2), ("w", "b"))
    axes = Axes.of(mesh, window_axis, "b")
    where = {"mesh": mesh, "window_axis": window_axis, "batch_axis": "b"}
    rounds, method, larger = stream(), algorithm(name, 8), algorithm(name, 16)
    state = method.init(*START, first(rounds))
    with_past = larger.init(*START, first(rounds))
    alone, history = obax.run(method, state, rounds)
    with mutant(name):
        spread, spread_history = obax.run(method, state, rounds, **where)
        live = history.played_value[:2]
        if name == "current":
            steps = obax.play(method, state, unstacked(rounds)[:2], **where)
            live = jnp.stack([info.played_value for _, info in steps])
        lines = [
            collectives(method, state, rounds, axes),
            collectives(larger, with_past, rounds, axes),
        ]
    kept = jax.tree.leaves(buffer_of(spread).rounds)
    return {
        "history": apart(history, spread_history),
        "state": apart(alone, collect(method, spread)),
        "live": apart(history.played_value[:2], live),
        "shapes": [leaf.shape for leaf in kept],
        "shards": [shards(leaf) for leaf in kept],
        "collectives": [len(found) for found in lines],
        "in the solver's loop": [
            sum("while/body/jvp" in line for line in found) for found in lines
        ],
    }


def shards(leaf):
    return [shard.data.shape for shard in leaf.addressable_shards]


def sharded_follower():
    """Parameters that lie as their owner says stay there, and the window over the other axis."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 4), ("w", "p"))
    problem = obax.Problem(
        outer=lambda x, y, round: jnp.mean((y["m"] - round) ** 2) / 2,
        inner=lambda x, y, round: jnp.sum((y["m"] - round) ** 2 + jnp.exp(x) * y["m"] ** 2) / 2,
    )
    method = obax.OAGD(problem, 0.1, 0.1, 2, obax.Window(4, curvature="current"))
    rounds = np.random.default_rng(0).normal(size=(6, 8))
    there = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("p"))
    plain = method.init(0.0, {"m": np.zeros(8)}, rounds[0])
    state = method.init(0.0, {"m": jax.device_put(np.zeros(8), there)}, rounds[0])
    alone, history = obax.run(method, plain, rounds)
    spread, spread_history = obax.run(method, state, rounds, mesh=mesh, window_axis="w")
    return {
        "history": apart(history, spread_history),
        "state": apart(alone, collect(method, spread)),
        "shards": shards(spread.inner_var["m"]),
    }


def swept():
    """Settings x seeds: each device has its part of them."""
    problem = obax.Problem(outer=lambda x, y, round: (x - round) ** 2 / 2)
    settings = [obax.OGD(problem, outer_step_size=size) for size in (0.1, 0.2, 0.3, 0.4)]
    state = settings[0].init(0.0, None, np.zeros(()))
    rounds = np.random.default_rng(0).normal(size=(4, 5))
    mesh = jax.make_mesh((8,), ("s",))
    alone, history = obax.sweep(settings, state, rounds, seeds=True)
    spread = obax.sweep(settings, state, rounds, seeds=True, mesh=mesh, axis="s")
    try:
        obax.sweep(settings[:3], state, rounds, seeds=True, mesh=mesh, axis="s")
    except ValueError as error:
        told = str(error)
    return {"apart": apart((alone, history), spread), "told": told}


def simulated(names):
    axis = lambda name: None if name == "mutant: buffer on every device" else "w"  # noqa: E731
    others = {"sharded follower": sharded_follower, "sweep": swept}
    return {
        name: others[name]() if name in others else examined(name, axis(name)) for name in names
    }


@contextmanager
def mutant(name):
    """A fault in what spreads the window, which the tests must see."""
    window, terms = obax.Window, Terms
    kept = window.map, terms.shares

    def term_by_term(self, function, *stacked):
        each = [
            function(*jax.tree.map(lambda leaf, i=i: leaf[i], stacked)) for i in range(self.size)
        ]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)

    def mean_of_means(self):
        return kept[1](self) / 4

    if not name.startswith("mutant"):
        yield
        return
    # Programs are found again by what they are of, and the fault is in none of that.
    jax.clear_caches()
    if name == "mutant: term by term":
        window.map = term_by_term
    if name == "mutant: a wrong mean over devices":
        terms.shares = mean_of_means
    try:
        yield
    finally:
        window.map, terms.shares = kept
        jax.clear_caches()


if __name__ == "__main__":
    print(json.dumps(simulated(sys.argv[1:])))
