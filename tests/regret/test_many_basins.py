"""Comparators of losses with several minima: against dense grids, and the evidence for them."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import obax
from obax import regret

pytestmark = pytest.mark.usefixtures("quick_compilation")
BASINS, SIDE = 30, 10.0


def bumpy(x, y, r):
    """A bowl with up to 30 Gaussian wells and a ripple."""
    gaps = x - r["centres"]
    wells = r["depths"] * jnp.exp(-0.5 * jnp.sum((gaps / r["widths"][:, None]) ** 2, axis=1))
    bowl = r["bowl"][0] * jnp.sum((x - r["centres"][0]) ** 2)
    ripple = r["bowl"][1] * jnp.sum(1 - jnp.cos(r["bowl"][2] * (x - r["centres"][1])))
    return bowl - jnp.sum(wells) + ripple


def draw(rng, count, dim):
    """Random losses with 1 to 30 basins, wide and narrow, in bowls and in ripples."""
    basins = rng.integers(1, BASINS + 1, count)
    masks = np.arange(BASINS) < basins[:, None]
    widths = SIDE * np.exp(rng.uniform(np.log(0.02), np.log(0.3), (count, BASINS)))
    depths = rng.uniform(0.1, 1.0, (count, BASINS)) * masks
    ripples = rng.integers(0, 2, count) * rng.uniform(0.2, 1.0, count)
    # At most 30 wells of the ripple, too.
    waves = rng.uniform(0.3, 9.0 if dim == 1 else 1.7, count)
    bowl = np.stack([rng.uniform(0, 0.01, count), ripples, waves], axis=1)
    centres = rng.uniform(-0.9 * SIDE, 0.9 * SIDE, (count, BASINS, dim))
    named = {"centres": centres, "widths": widths, "depths": depths, "bowl": bowl}
    return {name: jnp.asarray(value) for name, value in named.items()}


def lowest_on_grid(rounds, dim):
    axis = np.linspace(-SIDE, SIDE, 20_001 if dim == 1 else 401)
    points = np.stack(np.meshgrid(*[axis] * dim), axis=-1).reshape(-1, dim)
    whole = jax.jit(jax.vmap(lambda x, r: bumpy(x, None, r), (0, None)))
    return np.array([
        float(jnp.min(whole(points, jax.tree.map(lambda leaf, t=t: leaf[t], rounds))))
        for t in range(len(rounds["bowl"]))
    ])  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("dim", [1, 2])
def test_no_wrong_comparator_goes_without_a_flag(dim):
    """100 random losses in each dimension, on a box."""
    rounds = draw(np.random.default_rng(dim), 100, dim)
    problem = obax.Problem(bumpy, domain=obax.Box(-SIDE, SIDE))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", regret.SeveralMinimaWarning)
        found = regret.outer_solutions(problem, rounds, outer_start=jnp.zeros(dim))
    values = np.asarray(jax.vmap(lambda x, r: bumpy(x, None, r))(found.outer_var, rounds))
    wrong = values > lowest_on_grid(rounds, dim) + 1e-6
    flagged = np.asarray(found.lower_estimate)
    silent = wrong & ~flagged
    print(f"dim {dim}: {wrong.sum()} wrong, {flagged.sum()} flagged, {silent.sum()} silent")
    assert not np.any(silent)
    assert wrong.mean() <= 0.1


@pytest.mark.slow
def test_a_narrow_well_beside_a_wide_one_is_seen_or_flagged():
    """50 losses in two dimensions: a wide well that is nearly convex, and a narrow one."""
    rng = np.random.default_rng(1)
    rounds = {
        "wide": jnp.asarray(rng.uniform(-0.9, 0.9, (50, 2))),
        "narrow": jnp.asarray(rng.uniform(-0.9, 0.9, (50, 2))),
        "width": jnp.asarray(np.exp(rng.uniform(np.log(0.08), np.log(0.3), 50))),
        "depth": jnp.asarray(rng.uniform(0.3, 1.0, 50)),
    }

    def loss(x, y, r):
        gap = jnp.sum((x - r["narrow"]) ** 2) / r["width"] ** 2
        return jnp.log1p(jnp.sum((x - r["wide"]) ** 2)) - r["depth"] * jnp.exp(-0.5 * gap)

    problem = obax.Problem(loss, domain=obax.Box(-1.0, 1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", regret.SeveralMinimaWarning)
        found = regret.outer_solutions(problem, rounds, outer_start=jnp.zeros(2))
    axis = np.linspace(-1.0, 1.0, 201)
    points = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    values = jax.vmap(lambda x, r: loss(x, None, r))(found.outer_var, rounds)
    on_grid = jax.jit(jax.vmap(lambda r: jnp.min(jax.vmap(lambda x: loss(x, None, r))(points))))
    wrong = np.asarray(values > on_grid(rounds) + 1e-6)
    assert not np.any(wrong & ~np.asarray(found.lower_estimate))


@pytest.mark.slow
@pytest.mark.parametrize("dim", [1, 2])
def test_convex_losses_are_not_flagged(dim):
    """100 random convex losses, steep, flat, quadratic and not, on a box and without one."""
    rng = np.random.default_rng(dim)

    def convex(x, y, r):
        u = r["matrix"] @ (x - r["centre"][:dim])
        smooth = jnp.sum(jnp.logaddexp(u, -u)) * r["kind"][0] + jnp.sum(u**4) * r["kind"][1]
        return r["kind"][3] * (smooth + 0.5 * jnp.sum(u**2) * r["kind"][2])

    kinds = rng.integers(0, 2, (100, 3)).astype(float)
    kinds[kinds.sum(axis=1) == 0] = 1.0
    scales = 10.0 ** rng.uniform(-6, 6, (100, 1))
    rounds = {
        "matrix": jnp.asarray(rng.normal(size=(100, dim, dim))),
        "centre": jnp.asarray(rng.uniform(-SIDE, SIDE, (100, dim + 1))),
        "kind": jnp.asarray(np.concatenate([kinds, scales], axis=1)),
    }
    for domain in (obax.Box(-SIDE, SIDE), None):
        problem = obax.Problem(convex, domain=domain)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", regret.ComparatorWarning)
            found = regret.outer_solutions(problem, rounds, outer_start=jnp.zeros(dim))
        flagged, descents = np.asarray(found.lower_estimate), np.asarray(found.descents)
        print(f"dim {dim}, {domain}: {flagged.sum()} flagged, {(descents > 0).sum()} scanned")
        assert flagged.mean() <= 0.05
