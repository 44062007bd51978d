"""The warning that a leader cannot reach its follower: where it is due, and nowhere else."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import obax
from obax import hypergradient as hg
from obax.leader_check import unreached

A, B = jax.random.normal(jax.random.key(0), (8, 3)), jax.random.normal(jax.random.key(1), (8,))
ROUND = {"a": A, "b": B, "label": jnp.arange(8) % 3, "key": jax.random.key(2)}
W = jnp.ones(3)


def loss(y, round=ROUND):
    return 0.5 * jnp.mean((round["a"] @ y - round["b"]) ** 2)


def outer(x, y, round):
    return loss(y, round)


def found(inner, x=0.3, outer=outer, y=W, **options):
    steps = options.pop("through_steps", False)
    x = jax.tree.map(jnp.asarray, x)
    problem = obax.Problem(outer, inner, **options)
    return unreached(problem, x, y, jax.eval_shape(lambda: ROUND), None, steps)


MULTIPLIES = {
    "a rate": lambda x, y, r: jnp.exp(x) * loss(y, r),
    "of each sample": lambda x, y, r: 0.5 * jnp.mean(x * (r["a"] @ y - r["b"]) ** 2),
    "of both terms": lambda x, y, r: jnp.exp(x) * loss(y, r) + jnp.exp(x) * jnp.sum(y**2),
    "divides": lambda x, y, r: (loss(y, r) + 0.1 * jnp.sum(y**2)) / (1 + x**2) + x**2,
    "softplus": lambda x, y, r: jax.jit(lambda x: jax.nn.softplus(x))(x) * loss(y, r),
}
NO_CROSS = {
    "not there": lambda x, y, r: loss(y, r),
    "added": lambda x, y, r: loss(y, r) + x**2,
    "stopped": lambda x, y, r: loss(y, r) + jax.lax.stop_gradient(x) * jnp.sum(y**2),
    "compared": lambda x, y, r: loss(jnp.where(x > jnp.asarray([0.1, 0.2, 0.5]), y, 0.0), r),
    "rounded": lambda x, y, r: loss(y * jnp.round(x), r),
}
REACHES = {
    "weight decay": lambda x, y, r: loss(y, r) + jnp.exp(x) * jnp.sum(y**2),
    "both": lambda x, y, r: jnp.exp(x) * loss(y, r) + jnp.exp(2 * x) * jnp.sum(y**2),
    "scaled weights": lambda x, y, r: loss(x * y, r),
    "noise": lambda x, y, r: loss(y, {**r, "a": r["a"] + x * jax.random.normal(r["key"], (8, 3))}),
    "in a loop": lambda x, y, r: jax.lax.fori_loop(0, 3, lambda i, v: v + x * jnp.sum(y**2), 0.0),
    "shared function": lambda x, y, r: f(x, 1.0) * loss(y, r) + f(x, 2.0) * jnp.sum(y**2),
}
f = jax.jit(lambda x, power: jnp.abs(x) ** power)


@pytest.mark.parametrize("name", MULTIPLIES)
def test_what_multiplies_the_loss_is_named(name):
    (message,) = found(MULTIPLIES[name]).values()
    assert "only multiplies the inner loss" in message
    # Through the follower's steps it is fine, also where outer depends on it on purpose.
    assert not found(MULTIPLIES[name], through_steps=True)
    assert found(MULTIPLIES[name], outer=lambda x, y, r: loss(y, r) + x**2)


@pytest.mark.parametrize("name", NO_CROSS)
@pytest.mark.parametrize("through_steps", [False, True])
def test_what_has_no_cross_derivative_is_named(name, through_steps):
    (message,) = found(NO_CROSS[name], through_steps=through_steps).values()
    assert "reaches neither the follower" in message
    # A direct effect on the leader's own loss is a problem like any other.
    own = lambda x, y, r: loss(y, r) + x**2  # noqa: E731
    assert not found(NO_CROSS[name], outer=own, through_steps=through_steps)


@pytest.mark.parametrize("name", REACHES)
def test_what_reaches_the_follower_is_left_alone(name):
    assert not found(REACHES[name])


def test_vectors_and_class_weights_are_no_rates():
    logits = lambda y, r: r["a"] * y  # noqa: E731

    def weighted(x, y, r):
        rows = -jax.nn.log_softmax(logits(y, r))[jnp.arange(8), r["label"]]
        return jnp.mean(jnp.exp(x)[r["label"]] * rows)

    assert not found(weighted, jnp.zeros(3))
    assert not found(lambda x, y, r: x[0] * loss(y, r) + x[1] * jnp.sum(y**2), jnp.ones(2))
    # Two numbers that are made alike are not the same.
    norm = jax.jit(lambda v: jnp.sum(v**2))
    assert not found(
        lambda x, y, r: norm(x) * loss(y, r) + norm(x + 1) * jnp.sum(y**2), jnp.ones(2)
    )
    assert found(lambda x, y, r: norm(x) * loss(y, r) + norm(x) * jnp.sum(y**2), jnp.ones(2))


def test_leaves_are_named_one_by_one():
    x = {"rate": 0.1, "decay": 0.1, "forgotten": 0.0}
    inner = lambda x, y, r: x["rate"] * (loss(y, r) + x["decay"] * jnp.sum(y**2))  # noqa: E731
    assert set(found(inner, x)) == {"outer_var['rate']", "outer_var['forgotten']"}
    assert set(found(inner, x, through_steps=True)) == {"outer_var['forgotten']"}


def test_of_a_module_only_the_whole_is_missed():
    linear = eqx.nn.Linear(3, 3, key=jax.random.key(0))
    weight = lambda x, y, r: loss(x["net"].weight @ y, r)  # noqa: E731
    assert not found(weight, {"net": linear})
    assert set(found(lambda x, y, r: loss(y, r), {"net": linear})) == {"outer_var['net']"}


def test_a_start_is_seen_by_those_who_go_through_the_steps():
    start = lambda x: x  # noqa: E731
    (message,) = found(lambda x, y, r: loss(y, r), W, inner_start=start).values()
    assert "only by where it starts" in message
    assert not found(lambda x, y, r: loss(y, r), W, inner_start=start, through_steps=True)
    tied = lambda x, y, r: loss(y, r) + jnp.sum((y - x) ** 2)  # noqa: E731
    assert not found(tied, W, inner_start=start)


def rate(x, y, round):
    return jnp.exp(x["log_rate"]) * loss(y, round)


RATE = obax.Problem(outer, rate)
METHODS = {
    "OAGD": (lambda p: obax.OAGD(p, 0.1, 0.1), True),
    "SOBOW": (lambda p: obax.SOBOW(p, 0.1, 0.1), True),
    "SOGD": (lambda p: obax.SOGD(p), True),
    "Unrolled": (lambda p: obax.OAGD(p, 0.1, 0.1, 2, hypergradient=hg.Unrolled()), False),
    "ITD": (lambda p: obax.ITD(p, 0.1, 0.1, capacity=2), False),
    "RTHO": (lambda p: obax.RTHO(p, 0.1, 0.1), False),
    "OGD": (lambda p: obax.OGD(p, inner_step_size=0.1), False),
}


@pytest.mark.parametrize("name", METHODS)
def test_init_warns_once_and_names_who(name):
    make, warned = METHODS[name]
    x = {"log_rate": jnp.asarray(0.0)}
    if not warned:
        make(RATE).init(x, W, ROUND)
        return
    words = r"outer_var\['log_rate'\] only multiplies.*Unrolled\(\), obax.RTHO or obax.ITD"
    with pytest.warns(obax.LeaderWarning, match=words) as caught:
        make(RATE).init(x, W, ROUND)
    assert len(caught) == 1 and caught[0].filename == __file__


def test_the_warning_is_right():
    """A rate that CG drives on and on, and that `Unrolled` brings to rest."""
    ends = {}
    rounds = jax.tree.map(lambda leaf: jnp.stack([leaf] * 300), {k: ROUND[k] for k in "ab"})
    for name, estimator in {"cg": hg.CG(), "unrolled": hg.Unrolled()}.items():
        algorithm = obax.OAGD(
            obax.Problem(lambda x, y, r: loss(y, r), rate, inner_start=lambda x: jnp.zeros(3)),
            1.0, 0.1, 5, hypergradient=estimator,
        )  # fmt: skip
        with warnings.catch_warnings(action="ignore", category=obax.LeaderWarning):
            state = algorithm.init({"log_rate": jnp.asarray(0.0)}, W, {k: ROUND[k] for k in "ab"})
        _, history = obax.run(algorithm, state, rounds, on_rejected="skip")
        ends[name] = np.asarray(history.outer_var["log_rate"])
    best = 1 / np.linalg.eigvalsh(np.asarray(A.T @ A) / 8)
    settled = 0.1 * np.exp(ends["unrolled"][-1])
    assert np.abs(np.diff(ends["unrolled"][-5:])).max() < 1e-3
    assert best.min() < settled < 2 * best.max()
    # Past every rate with which the steps still settle.
    assert 0.1 * np.exp(ends["cg"].max()) > 2 * best.min() or np.all(np.diff(ends["cg"]) > 0)
