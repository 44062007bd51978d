"""The settings of the paper: one problem, from its draw to regret beside bound."""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import theory
from ...algorithms import OAGD
from ...hypergradient import Dense, Hypergradient
from ...problem import Problem
from ...theory import Constants, Setting
from ...window import Window
from ..families.catalogue import FAMILIES, Drawn, draw
from ..families.ingredients import Numbers
from ..verify import POINTS, AssumptionError, Check, verify
from . import claims, play
from .play import Steps

# Largest residual of a comparator. Its loss is then off by the square of it.
COMPARATOR_TOLERANCE = 1e-7
# The promised order in words, and evaluated on measured path lengths.
ORDERS: dict[str, tuple[str, Callable[[dict[str, Numbers]], Numbers]]] = {
    "strongly_convex_dynamic": (
        "1 + min(P_1 + Y_1, P_2 + Y_2 + squared gradients)",
        lambda a: 1.0 + np.minimum(
            a["P_1"] + a["Y_1"], a["P_2"] + a["Y_2"] + a["squared_gradients"]
        ),
    ),
    "strongly_convex_static": (
        "1 + log T + Y_bar_2", lambda a: 1.0 + np.log(a["T"]) + a["Y_bar_2"]
    ),
    "convex_dynamic": ("1 + S_1 + Y_2", lambda a: 1.0 + a["P_1"] + a["Y_1"] + a["Y_2"]),
    "convex_static": (
        "sqrt(T) + Y_bar_1 + Y_bar_2", lambda a: np.sqrt(a["T"]) + a["Y_bar_1"] + a["Y_bar_2"]
    ),
    "nonconvex_local": ("T / W + H_1 + H_2", lambda a: a["T"] / a["W"] + a["H_1"] + a["H_2"]),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A problem that was verified and played, with curves over t = 1..T. `checks` are those of the
    assumptions, all of which hold; `steps` those of the steps of the proof."""

    drawn: Any
    """A `Drawn` or a stream: an object with a `family`, a `number` and a `where` for messages."""
    checks: tuple[Check, ...]
    steps: tuple[Check, ...]
    regret: Numbers
    bound: Numbers
    printed: Numbers
    order: Numbers

    @property
    def ratio(self) -> float:
        """Largest regret / bound over t."""
        return float(self.ratios.max())

    @property
    def ratios(self) -> Numbers:
        """Regret / bound at every t."""
        return self.regret / self.bound

    def exceeds(self, curve: Numbers) -> int | None:
        """Return the first round, from 1, at which the regret is above the curve by more than
        rounding; a NaN is above everything."""
        below = self.regret <= curve + 1e-9 * (1.0 + np.abs(curve))
        return None if below.all() else int(np.argmin(below)) + 1


# Growth is judged from this T on.
GROWTH_FROM = 64


@dataclasses.dataclass(frozen=True)
class Certified(abc.ABC):
    """A setting that can be certified: its problems, how they are measured, and their growth.

    - `order`: the promised order of the regret, in words; `printed`: whether the paper prints a
      bound; `unchanged`: the mutation that changes nothing.
    - `families`: of problems, by turns; growth is fitted on the first, and judged on horizons of at
      least `growth_from`.
    - `remarks`: entries that `certify.json` adds to every check.
    """

    name: str
    order: str
    families: tuple[Callable[..., Any], ...]
    unchanged: Any
    printed: bool
    growth_from: int
    remarks: dict[str, int]

    @abc.abstractmethod
    def outcome(self, number: int, horizon: int, seed: int, mutation: Any) -> Outcome:
        """Draw, verify, play and measure one problem."""

    @abc.abstractmethod
    def growth(
        self, outcomes: list[Outcome], horizon: int, seed: int, mutation: Any
    ) -> tuple[Numbers, Numbers, Numbers]:
        """Return horizons, and at each the mean regret and the promised order."""

    @abc.abstractmethod
    def assumptions(self, outcome: Outcome) -> tuple[str, ...]:
        """Return the assumptions of the theorem."""


@dataclasses.dataclass(frozen=True)
class Mutation:
    """A fault made on purpose: in the steps, the window, the problem, the hypergradient or the
    algorithm that are played (while those prescribed are checked), in the bound, or in the
    constants that everything is derived from."""

    name: str = "none"
    steps: Callable[[Steps], Steps] = lambda steps: steps
    window: Callable[[Window], Window] = lambda window: window
    problem: Callable[[Problem], Problem] = lambda problem: problem
    hypergradient: Hypergradient = Dense()  # noqa: RUF009
    algorithm: type[OAGD] = OAGD
    bound: float = 1.0
    constants: Callable[[Constants], Constants] = lambda constants: constants


UNCHANGED = Mutation()


def prescribe(drawn: Drawn) -> Setting:
    """Return steps and bound for a drawn problem, with the largest alpha that the theorem allows,
    or a share of it where the family asks for one."""
    make, constants = getattr(theory, drawn.setting), drawn.constants
    if drawn.share == 1.0:
        return make(constants)
    return make(constants, outer_step_size=drawn.share * make(constants).outer_step_size)


def outcome_of(
    drawn: Drawn, seed: int, mutation: Mutation = UNCHANGED, examined: bool = True
) -> Outcome:
    """Play, verify and measure a problem, in float64. Raise `AssumptionError` if it is not what its
    family says. Without `examined` neither the problem nor the steps of the proof are tested."""
    constants = mutation.constants(drawn.constants)
    drawn = drawn._replace(instance=dataclasses.replace(drawn.instance, constants=constants))
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        return _outcome(drawn, seed, mutation, examined)


def _outcome(drawn: Drawn, seed: int, mutation: Mutation, examined: bool) -> Outcome:
    name, window, promised = drawn.setting, drawn.window, prescribe(drawn)
    # Constants are static: with them, every problem would be compiled anew.
    instance = dataclasses.replace(drawn.instance, constants=None)
    played, accepted = play.play(
        dataclasses.replace(instance, problem=mutation.problem(instance.problem)),
        mutation.window(window), mutation.steps(Steps.of(promised)), mutation.hypergradient,
        mutation.algorithm,
    )  # fmt: skip
    checks: tuple[Check, ...] = ()
    steps: tuple[Check, ...] = ()
    if examined:
        # Assumptions are made on X, which a mutant may leave.
        inside = jax.vmap(instance.problem.domain.project)(played.x)
        checks = verify(
            instance.problem, instance.rounds, drawn.constants, name, outer_var=instance.outer_var,
            inner_var=instance.inner_var, outer_vars=inside, window=window,
            seed=(seed, drawn.number), where=drawn.where,
        )  # fmt: skip
    if not bool(jnp.all(accepted)):
        raise RuntimeError(f"{drawn.where}: OAGD rejected round {int(jnp.argmin(accepted)) + 1}.")
    if name.endswith("dynamic"):
        measured = play.dynamic(instance, played.x, type(promised).bound)
    elif name.endswith("static"):
        measured = play.static(instance, played.x, jnp.asarray(horizons(instance.horizon)))
    else:
        measured = play.local(instance, played.x, window)
    residual = float(jnp.max(measured.residual))
    if not residual <= COMPARATOR_TOLERANCE:
        raise AssumptionError(
            f"{drawn.where}: its comparator was not reached, residual {residual:.3g}.",
            "known comparator",
            None,
        )
    T, W = np.arange(1.0, instance.horizon + 1.0), float(np.sum(window.weights))
    known = {"T": T, "W": np.full(len(T), W)} | jax.tree.map(np.asarray, measured.arguments)
    if examined:
        # Of a static setting the comparator of the whole horizon, which comes last.
        best = measured.best[-1] if name.endswith("static") else measured.best
        alpha = jnp.asarray(claims.at(promised.outer_step_size, T))
        along = play.measure_along(instance, played, best, alpha, window)
        steps = claims.checks(promised, jax.tree.map(np.asarray, along), W, known)
    own = {name: known[name] for name in promised.measures}
    curves = (
        np.asarray(measured.curve),
        mutation.bound * promised.bound(**own),
        promised.printed_bound(**own),
        ORDERS[name][1](known),
    )
    if name.endswith("static"):
        curves = tuple(map(_each_horizon, curves))  # type: ignore[assignment]
    return Outcome(drawn, checks, steps, *curves)


def horizons(T: int) -> list[int]:
    """Return 1, for the first round, and T/8, T/4, T/2 and T, at which growth is fitted."""
    return [1, T // 8, T // 4, T // 2, T] if T >= 16 else [1, 1, T // 4, T // 2, T]


def _each_horizon(curves: Numbers) -> Numbers:
    """Return the curve against x* of the whole horizon, and at each h the value against the x* of
    the first h rounds, which is the definition. `curves` has one curve for each h."""
    whole = curves[-1].copy()
    for own, h in zip(curves, horizons(len(whole)), strict=True):
        whole[h - 1] = own[h - 1]
    return whole


# At its prescribed step the strongly convex dynamic leader needs at least 1 / (alpha mu_f) = 128
# rounds to arrive, so its growth is fitted over T, 2T, 4T and 8T.
STRETCH, GROWTH_PROBLEMS = {"strongly_convex_dynamic": 8}, 4


@dataclasses.dataclass(frozen=True)
class PaperSetting(Certified):
    """One of the five settings of the paper. The path lengths of its first family are sublinear."""

    stretch: int = 1

    @classmethod
    def of(cls, name: str) -> "PaperSetting":
        """Return a setting by its name."""
        stretch, remarks = STRETCH.get(name, 1), {"points_per_round": POINTS + 2}
        least = GROWTH_FROM * (2 * stretch if stretch > 1 else 1)
        families = FAMILIES[name]
        return cls(
            name, ORDERS[name][0], families, UNCHANGED, True, least, remarks, stretch=stretch
        )

    def outcome(self, number: int, horizon: int, seed: int, mutation: Mutation) -> Outcome:
        """Draw, verify, play and measure one problem."""
        return outcome_of(draw(self.name, number, horizon, seed), seed, mutation)

    def growth(
        self, outcomes: list[Outcome], horizon: int, seed: int, mutation: Mutation
    ) -> tuple[Numbers, Numbers, Numbers]:
        """Return horizons, and at each the mean regret and the promised order."""
        if self.stretch > 1:
            # The problem and the steps of the proof are not examined again on the long horizon.
            growing = [
                outcome_of(
                    draw(self.name, index * len(self.families), self.stretch * horizon, seed),
                    seed,
                    mutation,
                    examined=False,
                )
                for index in range(min(GROWTH_PROBLEMS, len(outcomes)))
            ]
        else:
            first = self.families[0].__name__
            growing = [outcome for outcome in outcomes if outcome.drawn.family == first]
        at = np.array(horizons(len(growing[0].regret))[1:])
        regret, order = (
            np.mean([getattr(outcome, curve) for outcome in growing], axis=0)[at - 1]
            for curve in ("regret", "order")
        )
        return at, regret, order

    def assumptions(self, outcome: Outcome) -> tuple[str, ...]:
        """Return the assumptions of the theorem."""
        return prescribe(outcome.drawn).assumptions
