"""Problem: what is called how, and every complaint."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import obax


def square(x, y, round):
    return jnp.sum((x - round) ** 2)


def pair(x, y, round):
    return jnp.sum((x - y) ** 2) + round


def test_without_buffers_losses_look_alike():
    problem = obax.Problem(square, pair)
    x, y, r = jnp.array(1.0), jnp.array(3.0), jnp.array(2.0)
    assert problem.outer_loss(x, y, r) == 1.0
    loss, buffers = problem.inner_loss(x, y, r, None)
    assert (loss, buffers) == (6.0, None)
    assert isinstance(problem.domain, obax.Unconstrained)


def test_with_buffers_they_are_passed_back():
    problem = obax.Problem(
        lambda x, y, r, b: x + b, lambda x, y, r, b: (y * b, b + 1.0), has_buffers=True
    )
    x, y, r, b = jnp.array(1.0), jnp.array(3.0), jnp.array(2.0), jnp.array(5.0)
    assert problem.outer_loss(x, y, r, b) == 6.0
    assert problem.inner_loss(x, y, r, b) == (15.0, 6.0)


def test_checking_evaluates_shapes_only():
    def loss(x, y, round):
        assert isinstance(round, jax.core.Tracer)
        return jnp.sum(x * round)

    obax.Problem(loss).check(jnp.zeros(2), None, jax.ShapeDtypeStruct((2,), jnp.float64))


CONSTRUCTION = [
    (lambda: obax.Problem(3), r"outer must be a function \(x, y, round\) -> scalar, but got 3"),
    (lambda: obax.Problem(square, "g"), "inner must be a function.*but got 'g'"),
    (lambda: obax.Problem(square, domain=(0, 1)), r"domain must be an obax domain.*\(0, 1\)"),
    (lambda: obax.Problem(square, pair, inner_argmin=1), "inner_argmin must be a function"),
    (lambda: obax.Problem(square, pair, outer_argmin=1), "outer_argmin must be a function"),
    (lambda: obax.Problem(square, pair, inner_start=1), "inner_start must be a function x -> y"),
    (lambda: obax.Problem(square, inner_argmin=square), "inner_argmin needs a follower"),
    (lambda: obax.Problem(square, inner_start=square), "inner_start needs a follower"),
    (lambda: obax.Problem(square, has_buffers=True), "has_buffers needs a follower"),
]


@pytest.mark.parametrize(("make", "message"), CONSTRUCTION)
def test_complaints_at_construction(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def started(problem, x=0.0, y=0.0, round=0.0, buffers=None):
    if problem.inner is None:
        algorithm = obax.OGD(problem, outer_step_size=0.1)
    else:
        algorithm = obax.OAGD(problem, 0.1, 0.1)
    return algorithm.init(x, y, jnp.asarray(round), buffers=buffers)


def with_buffers(inner):
    return obax.Problem(lambda x, y, r, b: x * y, inner, has_buffers=True)


ONES = np.ones(2)
STARTS = [
    (
        lambda: started(obax.Problem(lambda x, y, r: x - r, pair), jnp.zeros(2), jnp.zeros(2)),
        r"outer must return a scalar loss.*but returns float64\[2\]; take a mean or a sum",
    ),
    (
        lambda: started(obax.Problem(square, lambda x, y, r: (y, y))),
        r"inner must return a scalar loss.*but returns float64\[\], float64\[\]",
    ),
    (
        lambda: started(obax.Problem(lambda x, y, r: None, pair)),
        "outer must return a scalar loss.*but returns nothing",
    ),
    (
        lambda: started(obax.Problem(lambda x, y, r: jnp.sum(x > r), pair)),
        r"outer must return a scalar loss \(one floating-point number.*int",
    ),
    (lambda: started(obax.Problem(square, pair), x=0), "outer_var must be a floating-point.*int64"),
    (
        lambda: started(obax.Problem(square, pair), y={"w": jnp.arange(2)}),
        r"inner_var\['w'\] must be a floating-point array, but its dtype is int64; write 0.0",
    ),
    (
        lambda: started(obax.Problem(square, pair), x="me"),
        "outer_var must be a floating-point.*str",
    ),
    (lambda: started(obax.Problem(square, pair), x=()), "outer_var must have at least one array"),
    (lambda: started(obax.Problem(square, pair), y=None), "inner_var must be None if and only if"),
    (lambda: started(obax.Problem(square), y=0.0), "inner_var must be None if and only if"),
    (
        lambda: started(obax.Problem(square, pair), buffers={"m": jnp.zeros(())}),
        "buffers must be given if and only if.*has_buffers is False and buffers is given",
    ),
    (
        lambda: started(with_buffers(lambda x, y, r, b: (y * x, b))),
        "buffers must be given if and only if.*has_buffers is True and buffers is None",
    ),
    (
        lambda: started(with_buffers(lambda x, y, r, b: y * x), buffers=jnp.zeros(())),
        r"inner must return \(loss, buffers\)",
    ),
    (
        lambda: started(with_buffers(lambda x, y, r, b: (y * x, ONES)), buffers=jnp.zeros(())),
        r"inner's new buffers must match buffers: expected float64\[\], but got float64\[2\]",
    ),
    (
        lambda: started(with_buffers(lambda x, y, r, b: (y * x, (b, b))), buffers=jnp.zeros(())),
        "inner's new buffers must have the structure of buffers",
    ),
    (
        lambda: started(obax.Problem(square, pair, inner_argmin=lambda x, r: x * ONES)),
        r"inner_argmin\(x, round\) must match inner_var: expected float64\[\].*float64\[2\]",
    ),
    (
        lambda: started(obax.Problem(square, pair, outer_argmin=lambda r: (r, r))),
        r"outer_argmin\(round\) must have the structure of outer_var",
    ),
    (
        lambda: started(obax.Problem(square, pair, inner_start=lambda x: x.astype(jnp.float32))),
        r"inner_start\(x\) must match inner_var: expected float64\[\].*float32\[\]",
    ),
    (
        lambda: started(obax.Problem(square, pair, obax.Box(-1.0, 1.0)), x=3.0),
        r"outer_var must start in the domain Box.*3\.0.*problem.domain.project\(outer_var\) = 1\.0",
    ),
    (
        lambda: obax.OAGD(obax.Problem(square, pair), 0.1, 0.1).init(0.0, 0.0, {"name": "a"}),
        r"example_round\['name'\] must be an array, but is a str: 'a'",
    ),
]


@pytest.mark.parametrize(("make", "message"), STARTS)
def test_complaints_at_the_start(make, message):
    with pytest.raises(ValueError, match=message):
        make()
