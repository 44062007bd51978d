"""`obax.testing` finds what is wrong with an algorithm or a problem, each by its name."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import obax
from obax import testing
from obax.algorithms.base import Algorithm
from obax.hypergradient import Estimate

pytestmark = pytest.mark.usefixtures("quick_compilation")

CASE = testing.CASES["no follower"]()
TRACED = []


class Sound(Algorithm):
    """Projected gradient descent: a whole algorithm in a few lines, as somebody outside writes."""

    followers = ("none", "free", "constrained")
    outer_step_size: jax.Array = eqx.field(converter=jnp.asarray, default=0.1)

    def update(self, state, round):
        gradient = jax.grad(self.problem.outer)(state.outer_var, None, round)
        return obax.Move(self.moved(state, gradient), self.start(state), Estimate(gradient))

    def moved(self, state, gradient):
        return self.lead(state, gradient)


class ChangesDtype(Sound):
    def moved(self, state, gradient):
        leader = self.lead(state, gradient)
        return leader._replace(outer_var=leader.outer_var.astype(jnp.float16))


class RecordsItsNextDecision(Sound):
    def step(self, state, round):
        after, info = Sound.step(self, state, round)
        return after, eqx.tree_at(lambda i: i.outer_var, info, after.outer_var)


class SuffersAfterLearning(Sound):
    def step(self, state, round):
        after, info = Sound.step(self, state, round)
        loss = self.problem.outer(after.outer_var, None, round)
        return after, eqx.tree_at(lambda i: i.played_value, info, loss)


class CountsItsTraces(Sound):
    """Another constant in every compiled function."""

    def moved(self, state, gradient):
        TRACED.append(1)
        return self.lead(state, gradient * (1 + len(TRACED)))


class StaticStep(Sound):
    outer_step_size: float = eqx.field(static=True, default=0.1)


class IgnoresItsStep(Sound):
    def moved(self, state, gradient):
        x = state.outer_var - 0.1 * gradient
        return obax.Leader(self.problem.domain.project(x))


class WithoutGuard(Sound):
    def step(self, state, round):
        after, info = Sound.step(self, state, round)
        move = self.update(state, round)
        return dataclasses.replace(after, outer_var=move.leader.outer_var), info


class CountsRejectedRounds(Sound):
    def step(self, state, round):
        after, info = Sound.step(self, state, round)
        return dataclasses.replace(after, t=state.t + 1), info


class LeavesItsDomain(Sound):
    def moved(self, state, gradient):
        return obax.Leader(state.outer_var - self.outer_step_size * gradient - 0.3)


class NotUnderVmap(Sound):
    def moved(self, state, gradient):
        shape = jax.ShapeDtypeStruct(gradient.shape, gradient.dtype)
        same = jax.pure_callback(lambda g: np.asarray(g), shape, gradient)
        return self.lead(state, same)


MUTANTS = {
    ChangesDtype: "dtype_is_kept",
    RecordsItsNextDecision: "suffers_before_learning",
    SuffersAfterLearning: "suffers_before_learning",
    CountsItsTraces: "scan_is_the_loop",
    StaticStep: "does_not_recompile",
    IgnoresItsStep: "does_not_recompile",
    WithoutGuard: "rejects_nan",
    CountsRejectedRounds: "rejects_nan",
    LeavesItsDomain: "stays_in_its_domain",
    NotUnderVmap: "vmap_is_the_loop",
}


def test_an_algorithm_from_outside_passes():
    assert testing.check_algorithm(Sound(CASE.problem), case=CASE) == list(testing.CHECKS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_every_mutant_is_caught_by_name(mutant):
    with pytest.raises(testing.ConformanceError) as caught:
        testing.check_algorithm(mutant(CASE.problem), case=CASE)
    assert caught.value.check == MUTANTS[mutant]
    assert str(caught.value).startswith(f"{MUTANTS[mutant]}: ")


def test_use_of_future_rounds_is_found():
    """What a stream cannot show, a look at the whole of it does: the check itself."""
    trial = testing.Trial(CASE, lambda problem, factor: Sound(problem, factor * 0.1))
    real = trial.run

    def peeking(rounds, **options):
        state, history = real(rounds, **options)
        shift = jnp.sum(rounds[-1])
        return state, eqx.tree_at(lambda h: h.outer_value, history, history.outer_value + shift)

    trial.run = peeking
    with pytest.raises(testing.ConformanceError, match="future_is_not_seen"):
        testing.CHECKS["future_is_not_seen"](trial)


def test_state_that_is_not_saved_is_found():
    trial = testing.Trial(CASE, lambda problem, factor: Sound(problem, factor * 0.1))
    real = trial.run

    def forgetful(rounds, state=None, **options):
        return real(rounds, state=None if state is None else trial.state, **options)

    trial.run = forgetful
    with pytest.raises(testing.ConformanceError, match="resumes"):
        testing.CHECKS["resumes"](trial)


@pytest.mark.slow
def test_an_algorithm_of_the_tree_on_every_ready_problem():
    problem = obax.Problem(lambda x, y, r: (y - r) ** 2, lambda x, y, r: (y - x) ** 2)
    testing.check_algorithm(obax.OAGD(problem, 0.1, 0.1))


# --- problems -------------------------------------------------------------------------------------


def outer(x, y, r):
    return jnp.sum((y - r) ** 2)


def inner(x, y, r):
    return jnp.sum((y - x) ** 2)


RNG = np.random.default_rng(0)
R, X = jnp.array([1.0, 2.0]), jnp.array([0.5, 0.25])
GOOD = obax.Problem(outer, inner, obax.Box(-3.0, 3.0), lambda x, r: x, lambda r: r)


class NotAProjection(obax.Domain):
    def project(self, x):
        return 0.5 * x

    def contains(self, x):
        return jnp.all(jnp.abs(x) < 1)


def test_a_sound_problem_passes():
    testing.check_problem(GOOD, R, X)
    # At its own best decision, where its hypergradient is zero.
    testing.check_problem(GOOD, R)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"inner_argmin": lambda x, r: x + 1.0}, "inner_argmin_is_right"),
        ({"outer_argmin": lambda r: r + 5.0}, "outer_argmin_is_in_the_domain"),
        ({"domain": NotAProjection()}, "domain_projects"),
        ({"outer": lambda x, y, r: outer(x, y, r) + RNG.random()}, "losses_are_functions"),
        ({"outer": lambda x, y, r: jnp.log(-1 - jnp.sum(y**2))}, "losses_are_finite"),
        ({"outer": lambda x, y, r: outer(x, y, r) * np.float64(2)}, "precision_is_kept"),
        ({"outer": lambda x, y, r: outer(x, y, r) if y[0] > 0 else 0.0}, "fits_together"),
        ({"outer": lambda x, y, r: y}, "fits_together"),
        (
            {"inner": lambda x, y, r: inner(jax.lax.stop_gradient(x), y, r)},
            "hypergradient_is_right",
        ),
    ],
)
def test_every_wrong_problem_is_named(change, name):
    with pytest.raises(testing.ConformanceError) as caught:
        testing.check_problem(dataclasses.replace(GOOD, **change), R, X, X)
    assert caught.value.check == name


def test_the_point_of_a_check_must_be_given():
    with pytest.raises(ValueError, match="outer_var must be given"):
        testing.check_problem(obax.Problem(outer, inner), R)
    with pytest.raises(ValueError, match="inner_var must be given"):
        testing.check_problem(obax.Problem(outer, inner), R, X)
