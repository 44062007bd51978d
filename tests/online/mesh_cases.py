"""A small problem, its stream and its methods, for the programs that play them on many devices."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import obax

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


def unstacked(rounds):
    return [jax.tree.map(lambda leaf, t=t: leaf[t], rounds) for t in range(HORIZON)]
