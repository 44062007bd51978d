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

import obax
from obax.online.axes import Axes
from obax.online.mesh import collect, on_mesh
from obax.past import RingBuffer, Terms

from .mesh_cases import START, algorithm, apart, first, stream, unstacked

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
    leaf = jax.tree.leaves(buffer_of(spread))[0]
    return {
        "history": apart(history, spread_history),
        "state": apart(alone, collect(method, spread)),
        "live": apart(history.played_value[:2], live),
        "shape": leaf.shape,
        "shards": [shard.data.shape for shard in leaf.addressable_shards],
        "collectives": [len(found) for found in lines],
        "in the solver's loop": [
            sum("while/body/jvp" in line for line in found) for found in lines
        ],
    }


def simulated(names):
    axis = lambda name: None if name == "mutant: buffer on every device" else "w"  # noqa: E731
    return {name: examined(name, axis(name)) for name in names}


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
