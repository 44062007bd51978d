"""A program that the tests of devices start in processes of their own: what it finds, as JSON.

    python -m tests.online.on_devices NAME ...                      8 simulated devices
    python -m tests.online.on_devices --process ID PORT FOLDER      one of two processes

The number of devices must be known before JAX starts.
"""

import json
import os
import re
import sys
from contextlib import contextmanager
from pathlib import Path

PROCESSES = "--process" in sys.argv
DEVICES = 2 if PROCESSES else 8
FLAG = f"--xla_force_host_platform_device_count={DEVICES}"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAG}"

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import obax
from obax.online.mesh import Axes, collect, on_mesh
from obax.past import RingBuffer, Terms

jax.config.update("jax_enable_x64", True)
KINDS = "all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter"
COLLECTIVE = re.compile(rf" ({KINDS})(-start)?\(")
HORIZON, BATCH, FEATURES = 10, 8, 3
START = {"p": np.asarray(-1.0)}, {"m": np.zeros(FEATURES), "c": np.zeros(())}


def problem():
    def inner(x, y, round):
        size = jnp.sum(y["m"] ** 2) + y["c"] ** 2
        fit = round["a"] @ y["m"] + y["c"] - round["b"]
        return jnp.mean(fit**2) / 2 + jnp.exp(x["p"]) * size / 2

    def outer(x, y, round):
        return jnp.mean((round["v"] @ y["m"] + y["c"] - round["u"]) ** 2) / 2

    return obax.Problem(outer=outer, inner=inner)


class Doubled(eqx.Module):
    """A detector that keeps two rounds where the loss is twice the last one."""

    def init(self):
        return jnp.asarray(jnp.inf)

    def observe(self, memory, loss):
        return loss, jnp.where(loss > 2 * memory, 2, 2**31 - 1)


def stream(batch=BATCH):
    random = np.random.default_rng(0)
    tables = {name: random.normal(size=(HORIZON, batch, FEATURES)) for name in ("a", "v")}
    return tables | {name: random.normal(size=(HORIZON, batch)) for name in ("b", "u")}


def algorithm(name, w):
    window = lambda **how: obax.Window(w, 0.9, **how)  # noqa: E731
    oagd = lambda **rest: obax.OAGD(problem(), 0.1, 0.1, 3, **rest)  # noqa: E731
    warm = obax.hypergradient.CG(4, warm_start=True)
    match name:
        case "own" | "mutant: term by term":
            return oagd(window=window())
        case "own, warm start":
            return oagd(window=window(), hypergradient=warm)
        case "own, in chunks":
            return oagd(window=window(chunk=1))
        case "current" | "mutant: a wrong mean over devices" | "mutant: buffer on every device":
            return oagd(window=window(curvature="current"))
        case "current, in chunks":
            return oagd(window=window(curvature="current", chunk=1))
        case "each":
            return oagd(window=window(follower="each", normalise="seen"))
        case "window":
            return oagd(window=window(follower="window", curvature="current"))
        case "average":
            return oagd(window=window(follower="average", curvature="window"))
        case "cut":
            return oagd(window=window(follower="window", curvature="current", cut=Doubled()))
        case "replay":
            replay = obax.Replay(w, recency=20)
            return oagd(window=obax.Window(4, replay=replay), hypergradient=warm)
        case "sobow":
            return obax.SOBOW(problem(), 0.1, 0.1, window())
        case "itd":
            return obax.ITD(problem(), 0.1, 0.1, 2, capacity=w)
        case "itd, some":
            return obax.ITD(problem(), 0.1, 0.1, 2, capacity=w, tasks=3)
    raise ValueError(name)


def first(rounds):
    return jax.tree.map(lambda leaf: leaf[0], rounds)


def apart(one, other):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return max(float(np.max(np.abs(np.asarray(a, float) - np.asarray(b, float)))) for a, b in pairs)


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


def unstacked(rounds):
    return [jax.tree.map(lambda leaf, t=t: leaf[t], rounds) for t in range(HORIZON)]


def one_of_two(index, port, folder):
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", 2, index, initialization_timeout=60)
    # The batch lies over the two processes, the window over the two devices of each.
    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 2), ("b", "w"))
    where = {"mesh": mesh, "window_axis": "w", "batch_axis": "b"}
    rounds, found = stream(), {}
    half = jax.tree.map(lambda leaf: np.split(leaf, 2, axis=1)[index], rounds)
    for name in ("own", "current", "each", "itd", "sobow"):
        method = algorithm(name, 4)
        state = method.init(*START, first(rounds))
        alone, history = obax.run(method, state, rounds)
        spread, spread_history = obax.run(method, state, half, **where)
        found[name] = {
            "history": apart(history, spread_history),
            "state": apart(alone, collect(method, spread)),
        }
    # `method`, `state` and `alone` are the last ones.
    if index == 1:
        obax.checkpoint.atomic.write_bytes = None
    saved = {"checkpoint_dir": folder, "checkpoint_every": 3} | where
    for _ in obax.play(method, state, unstacked(half)[:7], **saved):
        pass
    again = obax.play(method, state, unstacked(half), **saved)
    rest = list(again)
    found["resumed"] = {"rounds": len(rest), "state": apart(alone, collect(method, rest[-1][0]))}
    loaded = obax.load(Path(folder) / "000000000006.obax", like=state)
    loaded, _ = obax.run(method, loaded, jax.tree.map(lambda leaf: leaf[6:], rounds))
    found["without a mesh"] = apart(alone, loaded)
    obax.save(Path(folder) / "whole.obax", spread)
    back = obax.load(Path(folder) / "whole.obax", like=spread)
    found["saved"] = apart(collect(method, back), collect(method, spread))
    # One process has a NaN; both must be told.
    half["a"][3, 0, 0] = np.nan if index == 0 else 0.0
    try:
        obax.run(method, state, half, **where)
    except obax.RejectedRoundError as error:
        found["rejected"] = [error.index, str(error)]
    return found


if __name__ == "__main__":
    if PROCESSES:
        _, index, port, folder = sys.argv[1:]
        print(json.dumps(one_of_two(int(index), port, folder)))
    else:
        print(json.dumps(simulated(sys.argv[1:])))
