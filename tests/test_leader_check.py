"""The warning that a leader cannot reach its follower: where it is due, and nowhere else."""

import equinox as eqx
import jax
import jax.numpy as jnp
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


def unreached_by(inner, x=0.3, outer=outer, y=W, **options):
    x = jax.tree.map(jnp.asarray, x)
    problem = obax.Problem(outer, inner, **options)
    return unreached(problem, x, y, jax.eval_shape(lambda: ROUND), None)


NO_CROSS = {
    "not there": lambda x, y, r: loss(y, r),
    "added": lambda x, y, r: loss(y, r) + x**2,
    "stopped": lambda x, y, r: loss(y, r) + jax.lax.stop_gradient(x) * jnp.sum(y**2),
    "compared": lambda x, y, r: loss(jnp.where(x > jnp.asarray([0.1, 0.2, 0.5]), y, 0.0), r),
    "rounded": lambda x, y, r: loss(y * jnp.round(x), r),
    "stopped in a loop": lambda x, y, r: jax.lax.scan(
        lambda v, a: (v + jax.lax.stop_gradient(x) * jnp.sum(y**2), None), loss(y, r), r["a"]
    )[0],
}
REACHES = {
    "weight decay": lambda x, y, r: loss(y, r) + jnp.exp(x) * jnp.sum(y**2),
    "both": lambda x, y, r: jnp.exp(x) * loss(y, r) + jnp.exp(2 * x) * jnp.sum(y**2),
    "scaled weights": lambda x, y, r: loss(x * y, r),
    "noise": lambda x, y, r: loss(y, {**r, "a": r["a"] + x * jax.random.normal(r["key"], (8, 3))}),
    "a rate": lambda x, y, r: jnp.exp(x) * loss(y, r),
    "in a loop": lambda x, y, r: jax.lax.fori_loop(0, 3, lambda i, v: v + x * jnp.sum(y**2), 0.0),
    "shared function": lambda x, y, r: f(x, 1.0) * loss(y, r) + f(x, 2.0) * jnp.sum(y**2),
}
f = jax.jit(lambda x, power: jnp.abs(x) ** power)


@pytest.mark.parametrize("name", NO_CROSS)
def test_what_has_no_cross_derivative_is_named(name):
    assert unreached_by(NO_CROSS[name]) == ["outer_var"]
    # A direct effect on the leader's own loss is a problem like any other.
    own = lambda x, y, r: loss(y, r) + x**2  # noqa: E731
    assert not unreached_by(NO_CROSS[name], outer=own)


@pytest.mark.parametrize("name", REACHES)
def test_what_reaches_the_follower_is_left_alone(name):
    assert not unreached_by(REACHES[name])


def test_losses_that_cannot_be_differentiated_twice_are_left_alone():
    @jax.custom_vjp
    def once(y):
        return jnp.sum(y**2)

    def back(y, slope):
        shape = jax.ShapeDtypeStruct(y.shape, y.dtype)
        return (slope * jax.pure_callback(lambda y: 2 * y, shape, y),)

    once.defvjp(lambda y: (once(y), y), back)
    assert not unreached_by(lambda x, y, r: once(y - x))


def test_leaves_are_named_one_by_one():
    x = {"rate": 0.1, "decay": 0.1, "forgotten": 0.0}
    inner = lambda x, y, r: x["rate"] * (loss(y, r) + x["decay"] * jnp.sum(y**2))  # noqa: E731
    assert unreached_by(inner, x) == ["outer_var['forgotten']"]


def test_of_a_module_only_the_whole_is_missed():
    linear = eqx.nn.Linear(3, 3, key=jax.random.key(0))
    weight = lambda x, y, r: loss(x["net"].weight @ y, r)  # noqa: E731
    assert not unreached_by(weight, {"net": linear})
    assert unreached_by(lambda x, y, r: loss(y, r), {"net": linear}) == ["outer_var['net']"]


def test_a_start_is_an_effect():
    assert not unreached_by(lambda x, y, r: loss(y, r), W, inner_start=lambda x: x)


PROBLEM = obax.Problem(outer, lambda x, y, r: jnp.exp(x["decay"]) * jnp.sum(y**2) + loss(y, r))
METHODS = {
    "OAGD": lambda p: obax.OAGD(p, 0.1, 0.1),
    "SOGD": lambda p: obax.SOGD(p),
    "ITD": lambda p: obax.ITD(p, 0.1, 0.1, capacity=2),
    "Unrolled": lambda p: obax.OAGD(p, 0.1, 0.1, 2, hypergradient=hg.Unrolled()),
}


@pytest.mark.parametrize("name", METHODS)
def test_init_warns_once(name):
    x = {"decay": jnp.asarray(0.0), "forgotten": jnp.asarray(0.0)}
    words = r"outer_var\['forgotten'\] reaches neither the follower .* nor outer"
    with pytest.warns(obax.LeaderWarning, match=words) as caught:
        METHODS[name](PROBLEM).init(x, W, ROUND)
    assert len(caught) == 1 and caught[0].filename == __file__


def test_a_leader_that_is_held_anyway_is_not_warned_of():
    obax.OGD(PROBLEM, inner_step_size=0.1).init(
        {"forgotten": jnp.asarray(0.0), "decay": 0.0}, W, ROUND
    )
