"""check_hypergradient: right where it should be, and the right words where not."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import obax
from benchmarks.check import Scaled, softmax
from obax import datasets, hypergradient as hg

pytestmark = pytest.mark.usefixtures("quick_compilation")


def outer(x, y, r):
    return jnp.sum((y - r) ** 2) + 0.1 * jnp.sum(x**2)


def inner(x, y, r):
    return jnp.sum(jnp.log(jnp.cosh(y - x * r))) + 0.5 * jnp.sum(y**2)


R = jnp.array([1.0, -0.5])
X, Y = jnp.array([0.3, 0.7]), jnp.zeros(2)


def answer(x, r):
    """The fixed point y = -tanh(y - x r)."""
    y = np.zeros(2)
    for _ in range(200):
        y = y - 0.4 * (np.tanh(y - np.asarray(x * r)) + y)
    return jnp.asarray(y)


def test_a_sound_problem_is_ok():
    check = obax.check_hypergradient(obax.Problem(outer, inner), X, answer(X, R), R)
    assert check.ok
    assert check.relative_error < 1e-8
    assert check.messages == ()
    assert str(check).startswith("hypergradient OK: relative error ")
    assert check.smallest_eigenvalue >= 1.0
    assert check.distance < 1e-6
    assert check.estimate.shape == (2,)


def test_every_estimator_that_is_right_is_ok():
    for estimator in (hg.CG(), hg.Neumann(200, 0.4)):
        check = obax.check_hypergradient(
            obax.Problem(outer, inner), X, answer(X, R), R, estimator=estimator
        )
        assert check.ok, str(check)


def test_single_precision_input_and_pytrees():
    problem = obax.Problem(
        lambda x, y, r: outer(x["s"], y[0], r), lambda x, y, r: inner(x["s"], y[0], r)
    )
    x = {"s": X.astype(jnp.float32)}
    y = (answer(X, R).astype(jnp.float32),)
    check = obax.check_hypergradient(problem, x, y, R.astype(jnp.float32))
    assert check.ok, str(check)
    assert set(check.estimate) == {"s"}


def test_a_hyperparameter_that_reaches_nothing():
    problem = obax.Problem(
        lambda x, y, r: jnp.sum((y - r) ** 2), lambda x, y, r: inner(x["used"], y, r)
    )
    check = obax.check_hypergradient(problem, {"unused": X, "used": X}, answer(X, R), R)
    assert not check.ok
    message = "\n".join(check.messages)
    assert "outer_var['unused'] does not reach the inner loss" in message
    assert "exactly zero" in message
    assert "['used'] does not" not in message
    assert "NOT OK" in str(check)
    assert message in str(check).replace("\n- ", "\n")


def test_a_stopped_gradient_is_found():
    problem = obax.Problem(outer, lambda x, y, r: inner(jax.lax.stop_gradient(x), y, r))
    check = obax.check_hypergradient(problem, X, answer(X, R), R)
    assert not check.ok
    assert check.relative_error > 1e-2


def test_a_direct_effect_only_is_a_note():
    problem = obax.Problem(outer, lambda x, y, r: jnp.sum((y - r) ** 2))
    check = obax.check_hypergradient(problem, X, R, R)
    assert check.ok
    assert any(m.startswith("note: outer_var does not reach") for m in check.messages)


def test_an_unsolved_system():
    problem = obax.Problem(
        outer, lambda x, y, r: 0.5 * y @ jnp.diag(jnp.array([1.0, 100.0])) @ y - y @ (x * r)
    )
    y = X * R / jnp.array([1.0, 100.0])
    check = obax.check_hypergradient(problem, X, y, R, estimator=hg.Neumann(2, 0.01))
    assert not check.ok
    assert "the linear system H v = grad_y f is not solved" in str(check)
    assert "Neumann" in str(check)
    assert check.residual > 1e-3


def test_an_inner_problem_that_is_not_convex():
    problem = obax.Problem(
        outer,
        lambda x, y, r: 0.5 * y[0] ** 2 - 0.5 * y[1] ** 2 - y @ (x * r),
        inner_argmin=lambda x, r: jnp.array([1.0, -1.0]) * x * r,
    )
    check = obax.check_hypergradient(problem, X, jnp.array([1.0, -1.0]) * X * R, R)
    assert not check.ok
    assert "not strongly convex" in str(check)
    np.testing.assert_allclose(check.smallest_eigenvalue, -1.0, rtol=1e-8)


def test_an_inner_problem_without_a_minimum():
    problem = obax.Problem(outer, lambda x, y, r: jnp.sum(y * (1.0 + x**2)))
    check = obax.check_hypergradient(problem, X, Y, R)
    assert not check.ok
    assert "could not be solved" in str(check)


def test_a_follower_that_is_not_there_yet_is_told_how_far():
    check = obax.check_hypergradient(obax.Problem(outer, inner), X, Y + 3.0, R)
    assert "inner_var is not the follower's answer" in str(check)
    far = float(jnp.linalg.norm(Y + 3.0 - answer(X, R)))
    np.testing.assert_allclose(check.distance, far / (1 + np.linalg.norm(answer(X, R))), rtol=1e-5)
    assert check.ok


def test_a_wrong_closed_form_is_found():
    problem = obax.Problem(outer, inner, inner_argmin=lambda x, r: x * r)
    check = obax.check_hypergradient(problem, X, X * R, R)
    assert not check.ok
    assert "|grad_y g|" in str(check)


def test_a_loss_that_is_not_smooth():
    """Rounding has a derivative of zero and differences of one."""
    problem = obax.Problem(lambda x, y, r: jnp.sum(jnp.round(1e5 * y) / 1e5), inner)
    check = obax.check_hypergradient(problem, X, answer(X, R), R)
    assert not check.ok
    assert "is a loss not smooth here" in str(check)


def test_buffers_and_no_follower():
    problem = obax.Problem(
        lambda x, y, r, b: outer(x, y, r) + b,
        lambda x, y, r, b: (inner(x, y, r) + b, b),
        has_buffers=True,
    )
    check = obax.check_hypergradient(problem, X, answer(X, R), R, buffers=jnp.asarray(2.0))
    assert check.ok, str(check)
    alone = obax.check_hypergradient(
        obax.Problem(lambda x, y, r: jnp.sum(jnp.sin(x) * r)), X, None, R
    )
    assert alone.ok, str(alone)
    np.testing.assert_allclose(alone.estimate, jnp.cos(X) * R, rtol=1e-12)


COMPLAINTS = [
    (
        lambda: obax.check_hypergradient(
            obax.Problem(outer, inner), X, Y, R, estimator=hg.Unrolled()
        ),
        r"estimator must be one that can be evaluated at a point, but got Unrolled\(\)",
    ),
    (
        lambda: obax.check_hypergradient(obax.Problem(outer, inner), jnp.arange(2), Y, R),
        "outer_var must be a floating-point array",
    ),
    (
        lambda: obax.check_hypergradient(obax.Problem(lambda x, y, r: y, inner), X, Y, R),
        "outer must return a scalar loss",
    ),
]


@pytest.mark.parametrize(("make", "message"), COMPLAINTS)
def test_complaints(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_at_the_optimum_nothing_is_wrong():
    problem = obax.Problem(lambda x, y, r: (y - r) ** 2, lambda x, y, r: (y - x) ** 2)
    assert obax.check_hypergradient(problem, 2.0, 2.0, jnp.asarray(2.0)).ok


@pytest.mark.parametrize(
    ("outer", "inner", "words"),
    [
        (lambda x, y, r: 0 * y + 3.0, lambda x, y, r: (y - x) ** 2, "both exactly zero"),
        (lambda x, y, r: jnp.round(10 * y), lambda x, y, r: (y - x) ** 2, "both exactly zero"),
        (
            lambda x, y, r: (y - r) ** 2,
            lambda x, y, r: (y - jax.lax.stop_gradient(x)) ** 2,
            "a gradient is stopped",
        ),
        (lambda x, y, r: jnp.log(-1 - y**2), lambda x, y, r: (y - x) ** 2, "not finite"),
    ],
)
def test_silent_zeros_are_not_silent(outer, inner, words):
    check = obax.check_hypergradient(obax.Problem(outer, inner), 1.0, 1.0, jnp.asarray(2.0))
    assert not check.ok
    assert words in str(check)


def multiplied(x, y, r):
    return jnp.exp(x["rate"]) * (inner(x["used"], y, r) + 0.1 * jnp.exp(x["decay"]) * jnp.sum(y**2))


def test_a_learning_rate_is_named_and_a_weight_decay_is_not():
    """The optimum does not depend on what only multiplies the inner loss."""
    x = {"rate": 0.2, "decay": -0.3, "used": X}
    squares = lambda x, y, r: jnp.sum((y - r) ** 2)  # noqa: E731
    check = obax.check_hypergradient(obax.Problem(squares, multiplied), x, Y, R)
    assert check.verdict == "wrong"
    (message,) = (m for m in check.messages if "multiplies" in m)
    assert message.startswith("outer_var['rate'] only multiplies the inner loss")
    assert "Unrolled(), obax.RTHO or obax.ITD" in message
    own = lambda x, y, r: squares(x, y, r) + x["rate"] ** 2  # noqa: E731
    check = obax.check_hypergradient(obax.Problem(own, multiplied), x, Y, R)
    assert check.ok and any(m.startswith("note: outer_var['rate'] only") for m in check.messages)


def test_a_leader_that_only_says_where_the_follower_starts_is_named():
    problem = obax.Problem(
        lambda x, y, r: jnp.sum((y - r) ** 2),
        lambda x, y, r: jnp.sum((y - 2 * r) ** 2),
        inner_start=lambda x: x,
    )
    check = obax.check_hypergradient(problem, X, Y, R)
    assert check.verdict == "wrong" and "by inner_start" in str(check)


def test_a_point_at_which_x_happens_to_have_no_effect_is_ok():
    problem = obax.Problem(
        lambda x, y, r: jnp.sum((y - r) ** 2), lambda x, y, r: jnp.sum((y - x**2 * r) ** 2)
    )
    check = obax.check_hypergradient(problem, jnp.zeros(2), Y, R)
    assert check.ok and not any("does not reach" in m for m in check.messages), str(check)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("free", [0, 1])
def test_a_follower_that_is_held_by_its_set_has_the_condition_of_what_is_free(scale, free):
    """In single precision, and with a scale of the loss that a direction without any freedom does
    not have."""
    target = jnp.asarray([5.0, 0.1 if free else 5.0], jnp.float32)

    def low(x, y, r):
        x, y = x.astype(jnp.float32), y.astype(jnp.float32)
        return scale * jnp.sum((y - target * x) ** 2).astype(float)

    squares = lambda x, y, r: jnp.sum((y.astype(jnp.float32) - 2) ** 2)  # noqa: E731
    problem = obax.Problem(squares, low, inner_domain=obax.Box(-1.0, 1.0))
    check = obax.check_hypergradient(problem, jnp.asarray([1.0, 1.0]), Y, R)
    assert check.ok, str(check)
    np.testing.assert_allclose(check.smallest_eigenvalue, 2 * scale if free else 1.0, rtol=1e-3)
    assert any("inner_domain hold the follower" in m for m in check.messages) == (not free)


def test_a_wrong_formula_is_named():
    problem = obax.Problem(
        lambda x, y, r: (y - r) ** 2, lambda x, y, r: (y - x) ** 2, None, lambda x, r: x + 1
    )
    assert "its formula is wrong" in str(
        obax.check_hypergradient(problem, 1.0, 1.0, jnp.asarray(2.0))
    )


SIZES = [
    pytest.param(100, 10, id="1,000"),
    pytest.param(785, 10, id="7,850", marks=pytest.mark.slow),
    pytest.param(1000, 100, id="100,000", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("features", "classes"), SIZES)
def test_a_follower_of_many_parameters(features, classes):
    """Softmax regression with ridge 1e-3: a descent does not reach y*(x)."""
    check = obax.check_hypergradient(*softmax(features, classes))
    assert check.ok and check.relative_error < 1e-6, str(check)
    np.testing.assert_allclose(check.smallest_eigenvalue, 2e-3, rtol=1e-2)


@pytest.mark.parametrize(("features", "classes"), SIZES)
@pytest.mark.parametrize("factor", [-1.0, 0.1])
def test_a_wrong_estimate_is_found_at_every_size(features, classes, factor):
    check = obax.check_hypergradient(*softmax(features, classes), estimator=Scaled(factor))
    assert not check.ok
    np.testing.assert_allclose(check.relative_error, abs(1 - factor), rtol=1e-4)


@pytest.mark.parametrize(("features", "classes"), SIZES[1:])
@pytest.mark.parametrize(
    ("reach", "words"),
    [
        (lambda x: -7.0, "does not reach the inner loss"),
        (jax.lax.stop_gradient, "a gradient is stopped"),
    ],
)
def test_a_leader_that_does_not_reach_is_found_at_every_size(features, classes, reach, words):
    check = obax.check_hypergradient(*softmax(features, classes, reach=reach))
    assert not check.ok and words in str(check)


@pytest.mark.slow
@pytest.mark.skipif("OBAX_DATA" not in os.environ, reason="needs the real data sets")
def test_mnist_linear():
    """7,840 parameters on real images, whose Hessian is far from well-conditioned."""
    data = datasets.mnist()
    problem, x, _, _ = softmax(784, 10, rows=2)
    rows = np.asarray(data.train_inputs[:1000], np.float64).reshape(2, 500, 784) / 255
    labels = np.asarray(data.train_labels[:1000], np.int32).reshape(2, 500)
    round = {"a": jnp.asarray(rows), "b": jnp.asarray(labels)}
    check = obax.check_hypergradient(problem, x, jnp.zeros((784, 10)), round)
    assert check.ok and check.relative_error < 1e-6, str(check)
