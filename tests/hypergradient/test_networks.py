"""Rough hypergradients on a small network: the documented recipe is right, and others are told."""

import warnings

import jax
import jax.numpy as jnp
import pytest

import obax
from benchmarks import network_hypergradients as bench
from obax.hypergradient import CG, Neumann

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_compilation")]
RECIPE = Neumann(20, bench.STEP / 2)
EXACT_ENOUGH = 0.95


def test_the_recipe_points_where_the_exact_hypergradient_does():
    """With a weight decay of exp(-3); without damping CG does not, at its worst."""
    tried = {"recipe": RECIPE, "CG": CG(), "damped": CG(max_steps=5, damping=0.1)}
    found = bench.compare(-3.0, seeds=2, estimators=tried)
    least, middle, above, _ = found["recipe"]
    assert middle > EXACT_ENOUGH and least > 0 and above == 0
    assert found["damped"][1] > EXACT_ENOUGH and found["damped"][2] == 0
    assert found["CG"][2] > 0


def run(decay, estimator):
    rounds = bench.rounds_of(0)
    algorithm = obax.OAGD(bench.make_problem(), 1e-3, bench.STEP, 5, hypergradient=estimator)
    x = {"decay": jnp.full(2, decay), "weights": jnp.zeros(bench.CLASSES)}
    first = jax.tree.map(lambda leaf: leaf[0], rounds)
    return obax.run(algorithm, algorithm.init(x, bench.start(0), first), rounds)


def test_a_run_with_the_recipe_is_not_warned_of_and_one_without_is():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(-3.0, RECIPE)
    with pytest.warns(obax.HypergradientWarning, match="cannot be trusted"):
        run(-7.0, CG())
