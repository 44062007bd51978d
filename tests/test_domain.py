"""Domains: projections as properties, diameters in closed form, every complaint."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import obax

SETTINGS = settings(derandomize=True, deadline=None, max_examples=25, database=None)
SIZE = 4

numbers = st.floats(-50.0, 50.0, allow_subnormal=False)
vectors = st.lists(numbers, min_size=SIZE, max_size=SIZE).map(np.array)
seeds = st.integers(0, 2**31)


def members_of(domain, rng, count=20):
    """Points of the set that were not made with its projection."""
    if isinstance(domain, obax.Box):
        return rng.uniform(domain.lower, domain.upper, (count, SIZE))
    if isinstance(domain, obax.Ball):
        direction = rng.standard_normal((count, SIZE))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        center = 0.0 if domain.center is None else np.asarray(domain.center)
        return center + float(domain.radius) * rng.uniform(0, 1, (count, 1)) * direction
    if isinstance(domain, obax.Simplex):
        return float(domain.scale) * rng.dirichlet(np.full(SIZE, 0.5), count)
    if isinstance(domain, obax.NonNegative):
        return rng.exponential(5.0, (count, SIZE))
    return rng.normal(0.0, 20.0, (count, SIZE))


DOMAINS = {
    "unconstrained": lambda: obax.Unconstrained(),
    "box": lambda: obax.Box(-1.0, 2.5),
    "box-of-arrays": lambda: obax.Box(
        jnp.array([-1.0, 0.0, 2.0, -30.0]), jnp.array([1.0, 0.0, 3.0, 30.0])
    ),
    "ball": lambda: obax.Ball(3.0),
    "ball-elsewhere": lambda: obax.Ball(0.5, center=jnp.array([1.0, -2.0, 3.0, 0.0])),
    "simplex": lambda: obax.Simplex(),
    "scaled-simplex": lambda: obax.Simplex(7.0),
    "non-negative": lambda: obax.NonNegative(),
}

each_domain = pytest.mark.parametrize("make", DOMAINS.values(), ids=DOMAINS)


@each_domain
@SETTINGS
@given(point=vectors, other=vectors, seed=seeds)
def test_projection_is_the_nearest_member(make, point, other, seed):
    domain = make()
    project = eqx.filter_jit(domain.project)
    near = np.asarray(project(jnp.asarray(point)))
    scale = 1 + np.linalg.norm(point)
    # In the set, and the projection of a member is the member.
    assert domain.contains(jnp.asarray(near))
    np.testing.assert_allclose(project(jnp.asarray(near)), near, atol=1e-12 * scale)
    # The variational inequality <point - near, z - near> <= 0 for all members z says: nearest.
    members = members_of(domain, np.random.default_rng(seed))
    assert np.max((members - near) @ (point - near)) <= 1e-10 * scale**2
    # Non-expansive.
    far = np.asarray(project(jnp.asarray(other)))
    assert np.linalg.norm(near - far) <= np.linalg.norm(point - other) + 1e-12 * scale


@each_domain
def test_members_are_contained_and_stay(make):
    domain = make()
    for member in members_of(domain, np.random.default_rng(0)):
        assert domain.contains(jnp.asarray(member))
        np.testing.assert_allclose(domain.project(jnp.asarray(member)), member, atol=1e-12)


OUTSIDE = {
    "box": [0.0, 0.0, 0.0, 2.5 + 1e-6],
    "box-of-arrays": [0.0, 1e-6, 2.0, 0.0],
    "ball": [0.0, 3.0 + 1e-6, 0.0, 0.0],
    "ball-elsewhere": [0.0, 0.0, 0.0, 0.0],
    "simplex": [0.5, 0.5, 0.5, -0.5],
    "scaled-simplex": [0.25, 0.25, 0.25, 0.25],
    "non-negative": [1.0, 1.0, -1e-6, 1.0],
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_is_outside_is_not_contained(name):
    assert not DOMAINS[name]().contains(jnp.array(OUTSIDE[name]))
    assert not DOMAINS[name]().contains(jnp.full(SIZE, jnp.nan))


DIAMETERS = {
    "unconstrained": np.inf,
    "box": 3.5 * np.sqrt(SIZE),
    "box-of-arrays": np.sqrt(4.0 + 0.0 + 1.0 + 3600.0),
    "ball": 6.0,
    "ball-elsewhere": 1.0,
    "simplex": np.sqrt(2.0),
    "scaled-simplex": 7.0 * np.sqrt(2.0),
    "non-negative": np.inf,
}


@pytest.mark.parametrize("name", DIAMETERS)
def test_diameter(name):
    diameter = DOMAINS[name]().diameter(jnp.zeros(SIZE))
    assert diameter.shape == ()
    np.testing.assert_allclose(diameter, DIAMETERS[name], rtol=1e-14)


def test_a_simplex_of_one_number_is_a_point():
    assert obax.Simplex(3.0).diameter(jnp.zeros(1)) == 0.0
    assert obax.Simplex(3.0).project(jnp.array([-5.0])) == jnp.array([3.0])


def test_leaves_are_taken_together():
    tree = {"a": jnp.array([3.0, 0.0]), "b": jnp.array(4.0)}
    flat = jnp.array([3.0, 0.0, 4.0])
    for domain in (obax.Ball(1.0), obax.Simplex(), obax.NonNegative(), obax.Box(-1.0, 1.0)):
        projected = domain.project(tree)
        np.testing.assert_allclose(
            np.append(projected["a"], projected["b"]), domain.project(flat), atol=1e-15
        )
        np.testing.assert_allclose(domain.diameter(tree), domain.diameter(flat))
        assert domain.contains(projected)
        assert not domain.contains({"a": jnp.array([-9.0, 9.0]), "b": jnp.array(9.0)})


def test_box_with_a_bound_for_each_leaf():
    box = obax.Box({"a": 0.0, "b": jnp.array([-1.0, -2.0])}, {"a": 1.0, "b": jnp.zeros(2)})
    x = {"a": jnp.full(3, 5.0), "b": jnp.array([-5.0, -5.0])}
    projected = box.project(x)
    np.testing.assert_array_equal(projected["a"], np.ones(3))
    np.testing.assert_array_equal(projected["b"], [-1.0, -2.0])
    np.testing.assert_allclose(box.diameter(x), np.sqrt(3 * 1.0 + 1.0 + 4.0))
    box.check_matches(x)


@each_domain
def test_single_precision_stays(make):
    point = jnp.full(SIZE, 3.0, jnp.float32)
    domain = obax.Ball(3.0) if isinstance(make(), obax.Ball) else make()
    assert domain.project(point).dtype == jnp.float32
    # Whatever the rounding of the projection is, its result must pass the test of membership.
    assert domain.contains(domain.project(point))


def test_bounds_are_leaves_and_can_be_swept():
    boxes = jax.vmap(lambda bound: obax.Box(-bound, bound).project(jnp.full(2, 9.0)))
    np.testing.assert_array_equal(boxes(jnp.array([1.0, 2.0])), [[1.0, 1.0], [2.0, 2.0]])


COMPLAINTS = [
    (lambda: obax.Box(1.0, -1.0), "Box.lower must be <= Box.upper.*1.0 and -1.0"),
    (lambda: obax.Box(jnp.array([0.0, 2.0]), 1.0), "Box.lower must be <= Box.upper"),
    (lambda: obax.Box("a", 1.0), "Box.lower must be a number, but got 'a'"),
    (lambda: obax.Box(0.0, True), "Box.upper must be a number, but got True"),
    (lambda: obax.Box(np.nan, 1.0), "Box.lower must be finite, but got nan"),
    (lambda: obax.Box(0.0, np.inf), "Box.upper must be finite, but got inf"),
    (lambda: obax.Box(0.0, object()), "Box.upper must be a number.*of type object"),
    (lambda: obax.Box(0.0, jnp.array(1j)), "Box.upper must be a number.*complex"),
    (lambda: obax.Box({"a": 0.0}, 1.0), "Box.lower and Box.upper must have one structure"),
    (lambda: obax.Ball(0.0), "Ball.radius must be a number > 0, but got 0.0"),
    (lambda: obax.Ball(-1), "Ball.radius must be a number > 0, but got -1"),
    (lambda: obax.Ball(None), "Ball.radius must be a number, but got None"),
    (lambda: obax.Ball(1.0, center=jnp.array([0, 1])), "Ball.center must be a floating-point.*int"),
    (lambda: obax.Simplex(0.0), "Simplex.scale must be a number > 0, but got 0.0"),
]


@pytest.mark.parametrize(("make", "message"), COMPLAINTS)
def test_complaints(make, message):
    with pytest.raises(ValueError, match=message):
        make()


MISMATCHES = [
    (lambda: obax.Box({"a": 0.0}, {"a": 1.0}), "Box bounds must be scalars or have the structure"),
    (
        lambda: obax.Box(jnp.zeros(3), jnp.ones(3)),
        r"Box bounds.*outer_var of shape \(2,\), but have shape \(3,\)",
    ),
    (lambda: obax.Ball(1.0, center=jnp.zeros(3)), "Ball.center must match outer_var.*3"),
    (
        lambda: obax.Ball(1.0, center={"a": jnp.zeros(2)}),
        "Ball.center must have the structure of outer_var",
    ),
]


@pytest.mark.parametrize(("make", "message"), MISMATCHES)
def test_a_domain_that_does_not_fit_the_variable(make, message):
    problem = obax.Problem(lambda x, y, round: jnp.sum(x**2), domain=make())
    with pytest.raises(ValueError, match=message):
        obax.OGD(problem, outer_step_size=0.1).init(jnp.zeros(2), None, jnp.zeros(()))


@pytest.mark.parametrize(
    ("domain", "point", "edges"),
    [
        (obax.Box(-1.0, 2.0), [-1.0, 0.5, 2.0], [True, False, True]),
        (obax.Box(jnp.array([0.0, 0.0, 0.0]), 1.0), [0.5, 0.0, 1.0], [False, True, True]),
        (obax.Ball(1.0), [0.6, 0.8, 0.0], [True, True, True]),
        (obax.Ball(1.0), [0.6, 0.7, 0.0], [False, False, False]),
        (obax.Simplex(), [0.5, 0.5, 0.0], [False, False, True]),
        (obax.NonNegative(), [0.0, 3.0, 0.0], [True, False, True]),
        (obax.Unconstrained(), [0.0, 1e9, -1e9], [False, False, False]),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_edges_are_where_a_point_cannot_move_both_ways(domain, point, edges, dtype):
    inside = domain.project(jnp.asarray(point, dtype))
    assert domain.edges(inside).tolist() == edges
