"""Copies of an algorithm with different step sizes, of which the best one plays.

Each copy i has step sizes of its own: the leader takes normalised steps of length d_i, the follower
steps of gamma_i / L_t. With the loss suffered l_t(i) = f_t(x_t(i), y_t(i)) and a discount c,

    S_t(i) = c S_{t-1}(i) + l_t(i),      the copy that plays in round t + 1 is  argmin_i S_t(i).

In a trial all copies learn. When it ends, the two with the least scores go on and the others are
dropped. Trials begin in round 1, at growing intervals, and where the loss has risen, as long as
they are a small share of all rounds. In a trial after the first, dropped copies begin with the pair
(x, y) and the score of the copy that plays. Where the longest steps won a trial, those of the next
one are ten times longer; where the shortest won, ten times shorter.

Since a trial began, the race has suffered at most as much as any copy that has learned in all
rounds since, plus what `state.switch_cost` has grown by: the sum of l_t(i_t) - l_t(i_{t+1}) over
the rounds t after which another copy plays. docs/theory.md has the proof.
"""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._support import trees
from .._support.checks import BelowOne, Count, Kind, check, instance_of, is_numeric, is_traced
from .._support.trees import PyTree
from ..hypergradient import Estimate, Remedy
from ..rounds import RoundSpec
from ..steps import CurvatureStep, NormalisedStep
from .base import Algorithm, State
from .descent import Follower
from .record import Info, Leader, Move

KEPT = 2
"""Copies that go on between trials."""
SHARE = 18
"""A trial begins only where at most one round in so many has been in trials after the first; where
the loss has risen, one trial more may have been."""
GROWTH = 2
"""The factor from the round in which a trial begins to that in which the next one is due."""
RISE = 2.0
"""A trial begins where the recent loss is this many times the usual one."""
FACTOR = 10.0
"""The factor by which steps become longer where the longest ones won a trial."""


ANY = Annotated[Any, instance_of(Algorithm, "an algorithm such as obax.OAGD(problem)")]

NUMBERS = Annotated[
    Any,
    Kind(
        "one or more numbers > 0",
        lambda v: is_traced(v) or (is_numeric(v) and np.ndim(v) == 1 and np.all(np.asarray(v) > 0)),
    ),
]


class Trials(NamedTuple):
    """When trials begin and end."""

    left: Int[Array, ""]
    """The number of rounds that the current trial has left; 0 between trials."""
    rounds: Int[Array, ""]
    """The number of rounds that have been in trials."""
    next: Int[Array, ""]
    """The round in which the next trial is due."""
    factor: Float[Array, ""]
    """The factor on the step lengths when it begins."""
    recent: Float[Array, " 2"]
    """Discounted sums of the loss suffered and of weights, over some five rounds."""
    usual: Float[Array, " 2"]
    """The same over some fifty rounds."""


class RaceState(State):
    """The pair that plays, and all copies."""

    copies: PyTree
    """The states of the copies, stacked."""
    scales: Float[Array, " copies"]
    """The lengths of the leader's steps."""
    scores: Float[Array, " copies"]
    kept: Int[Array, " kept"]
    """The copies that go on between trials."""
    playing: Int[Array, ""]
    trials: Trials
    switch_cost: Float[Array, ""]
    """How much more copies that played lost than those that replaced them, in the rounds before
    they were replaced."""


class Race(Algorithm):
    """Copies of an algorithm with different step sizes, of which the best one plays.

    **Arguments:**

    - `algorithm`: one that can be used without step sizes, such as `obax.OAGD(problem)`. Its own
      step sizes are not used.
    - `outer_scales`: the lengths of the leader's steps, in units of 1 + |x_1|.
    - `inner_factors`: the follower's steps, in units of 1 / L_t; see `obax.steps.CurvatureStep`.
    - `trial`: how many rounds the first trial has; later ones have half as many.
    - `discount`: c, by which older losses count less.

    There is a copy for each scale with each factor, and memory for all of them.

    >>> import obax
    >>> game = obax.problems.quadratic(horizon=200)
    >>> race = obax.Race(obax.OAGD(game.problem))
    >>> race
    Race(OAGD, 8 copies)
    >>> state = race.init(game.outer_var, game.inner_var, game.example_round)
    >>> state, history = obax.run(race, state, game.rounds)
    >>> print(f"{history.played_value.mean():.2f}")
    0.23
    """

    followers = ("none", "free", "constrained")

    algorithm: Algorithm
    outer_scales: tuple[float, ...] = eqx.field(static=True)
    inner_factors: Float[Array, " factors"]
    trial: int = eqx.field(static=True)
    discount: float = eqx.field(static=True)

    def __init__(
        self,
        algorithm: Algorithm,
        *,
        outer_scales: Sequence[float] = (1e-3, 1e-2, 0.1, 1.0),
        inner_factors: Sequence[float] | Array = (0.1, 0.5),
        trial: int = 40,
        discount: float = 0.95,
    ):
        check(algorithm, "algorithm", ANY)
        rules: dict[str, Any] = {"outer_step_size": NormalisedStep()}
        if algorithm.problem.inner is not None:
            rules["inner_step_size"] = CurvatureStep()
        self.problem, self.algorithm = algorithm.problem, dataclasses.replace(algorithm, **rules)
        self.outer_scales = tuple(check(outer_scales, "outer_scales", NUMBERS))
        self.inner_factors = jnp.asarray(check(inner_factors, "inner_factors", NUMBERS), float)
        self.trial = check(trial, "trial", Count)
        self.discount = check(discount, "discount", BelowOne)

    @property
    def copies(self) -> int:
        """How many copies there are: one for each scale with each factor."""
        factors = 1 if self.problem.inner is None else len(self.inner_factors)
        return len(self.outer_scales) * factors

    @property
    def remedy(self) -> Remedy:
        return self.algorithm.remedy

    def moves_level(self, level: str) -> bool:
        """Return False: the copies move."""
        return False

    def __repr__(self) -> str:
        return f"Race({type(self.algorithm).__name__}, {self.copies} copies)"

    def first_state(self, x: PyTree, y: PyTree, buffers: PyTree, round_spec: RoundSpec) -> State:
        copy = self.algorithm.first_state(x, y, buffers, round_spec)
        number, norm = self.copies, trees.norm(x)
        each = jnp.asarray(self.outer_scales, norm.dtype) * (1 + norm)
        scales, zero = jnp.repeat(each, number // len(each)), jnp.zeros_like(norm)
        sums = jnp.stack([zero, zero])
        return RaceState(
            **vars(super().first_state(x, y, buffers, round_spec)),
            copies=jax.tree.map(lambda leaf: jnp.stack([leaf] * number), copy),
            scales=scales,
            scores=jnp.zeros_like(scales),
            kept=jnp.arange(min(KEPT, number), dtype=jnp.int32),
            playing=jnp.asarray(number // 2, jnp.int32),
            trials=Trials(
                left=jnp.asarray(self.trial, jnp.int32),
                rounds=jnp.zeros((), jnp.int32),
                next=jnp.asarray(GROWTH * self.trial, jnp.int32),
                factor=zero + 1,
                recent=sums,
                usual=sums,
            ),
            switch_cost=zero,
        )

    def update(self, state: RaceState, round: PyTree) -> Move:
        in_trial = state.trials.left > 0
        everyone = jnp.arange(len(state.scales), dtype=jnp.int32)
        copies, infos, losses = jax.lax.cond(
            in_trial,
            lambda: self._learn(state, round, everyone),
            lambda: self._learn(state, round, state.kept),
        )
        scores = jnp.minimum(self.discount * state.scores + losses, _largest(losses))
        best = jnp.argmin(scores).astype(state.playing.dtype)
        lost = losses[state.playing] - losses[best]
        trials, begins, ends = self._schedule(state, losses[state.playing], best)
        kept = jnp.where(ends, jnp.argsort(scores)[: len(state.kept)].astype(jnp.int32), state.kept)
        # Dropped copies go on from the copy that plays.
        fresh = begins & ~jnp.isin(everyone, kept)
        copies = jax.tree.map(lambda leaf: _where(fresh, leaf[best], leaf), copies)
        memory = {
            "copies": copies,
            "scales": jnp.where(begins, state.scales * state.trials.factor, state.scales),
            "scores": jnp.where(begins, scores[best], scores),
            "kept": kept,
            "playing": best,
            "trials": trials,
            "switch_cost": state.switch_cost + jnp.where(best == state.playing, 0, lost),
        }
        pair = jax.tree.map(lambda leaf: leaf[best], copies)
        follower = Follower(pair.inner_var, (), pair.buffers)
        played = jax.tree.map(lambda leaf: leaf[state.playing], infos)
        counted = infos.hvps, infos.cross_products, infos.gradients
        counts = [jnp.sum(count, dtype=jnp.int32) for count in counted]
        estimate = Estimate(played.hypergradient_norm, played.solver_residual, None, *counts)
        evaluations = jnp.sum(infos.evaluations, dtype=jnp.int32)
        leader = Leader(pair.outer_var)
        return Move(leader, follower, estimate, evaluations=evaluations, memory=memory)

    def _learn(
        self, state: RaceState, round: PyTree, which: Int[Array, " n"]
    ) -> tuple[PyTree, Info, Float[Array, " copies"]]:
        """Return all copies after a round in which some of them learn, their records, which are
        zero for the others, and the losses that they suffered, infinite for the others."""
        factors = jnp.tile(self.inner_factors.astype(state.scales.dtype), len(self.outer_scales))

        def one(scale: Array, factor: Array, copy: State) -> tuple[State, Info]:
            algorithm = eqx.tree_at(lambda a: a.outer_step_size.scale, self.algorithm, scale)
            if self.problem.inner is not None:
                algorithm = eqx.tree_at(lambda a: a.inner_step_size.factor, algorithm, factor)
            return algorithm.step(copy, round)

        chosen = jax.tree.map(lambda leaf: leaf[which], state.copies)
        after, info = jax.vmap(one)(state.scales[which], factors[which], chosen)
        copies = jax.tree.map(lambda leaf, new: leaf.at[which].set(new), state.copies, after)
        number = len(state.scales)
        infos = jax.tree.map(
            lambda leaf: jnp.zeros((number, *leaf.shape[1:]), leaf.dtype).at[which].set(leaf), info
        )
        # A copy that rejects a round, or has diverged, must not play.
        loss = jnp.where(info.accepted, info.played_value, jnp.inf).astype(state.scores.dtype)
        losses = jnp.full(number, jnp.inf, loss.dtype).at[which].set(loss)
        return copies, infos, jnp.minimum(losses, _largest(losses))

    def _schedule(
        self, state: RaceState, loss: Array, best: Array
    ) -> tuple[Trials, Bool[Array, ""], Bool[Array, ""]]:
        """Return when trials are, whether one begins with the next round, and whether one ends with
        this round."""
        trials, t = state.trials, state.t
        left = jnp.maximum(trials.left - 1, 0)
        rounds = trials.rounds + (trials.left > 0).astype(jnp.int32)
        ends = (trials.left > 0) & (left == 0)
        seen = jnp.stack([loss, jnp.ones_like(loss)])
        recent, usual = 0.8 * trials.recent + 0.2 * seen, 0.98 * trials.usual + 0.02 * seen
        risen = recent[0] / recent[1] > RISE * usual[0] / usual[1]
        length = max(1, self.trial // 2)
        spent = SHARE * (rounds - self.trial)
        due = (t >= trials.next) & (spent <= t) | risen & (spent <= t + SHARE * length)
        begins = (trials.left == 0) & due
        longest = state.scales[best] == jnp.max(state.scales)
        shortest = state.scales[best] == jnp.min(state.scales)
        won = jnp.where(longest, FACTOR, jnp.where(shortest, 1 / FACTOR, 1.0))
        won = won.astype(trials.factor.dtype)
        factor = jnp.where(ends, won, trials.factor)
        # What an end of the scales has won is tried again at once.
        following = jnp.where(begins, GROWTH * t, jnp.where(ends & (won != 1), t, trials.next))
        left = jnp.where(begins, length, left)
        return Trials(left, rounds, following, factor, recent, usual), begins, ends


def _largest(losses: Array) -> Array:
    """Return a loss that is larger than any other and finite, also in a sum."""
    return jnp.asarray(1e-3 * jnp.finfo(losses.dtype).max, losses.dtype)


def _where(which: Bool[Array, " n"], new: Array, leaves: Array) -> Array:
    """Return stacked leaves with one value in place of some of them."""
    return jnp.where(which.reshape(-1, *[1] * new.ndim), new, leaves)
