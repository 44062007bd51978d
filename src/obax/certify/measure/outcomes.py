"""One setting, from drawing its problems to regret beside bound for each of them."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import theory
from ...theory import Constants, Setting
from ..families.catalogue import Drawn, draw
from ..families.ingredients import Numbers
from ..verify import AssumptionError, Check, verify
from . import claims, play
from .play import Steps

# What a comparator may be off by. Its loss is then off by the square of it.
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
    """A problem that was verified and played: curves over t = 1..T. `checks` are of assumptions,
    all of which hold; `steps` of what the proof says of every round."""

    drawn: Any
    """`Drawn`, or a stream: what has a `family`, a `number` and a `where` for messages."""
    checks: tuple[Check, ...]
    steps: tuple[Check, ...]
    regret: Numbers
    bound: Numbers
    printed: Numbers
    order: Numbers

    @property
    def ratio(self) -> float:
        """The largest regret / bound over t."""
        return float(self.ratios.max())

    @property
    def ratios(self) -> Numbers:
        """regret / bound at every t."""
        return self.regret / self.bound

    def exceeds(self, curve: Numbers) -> int | None:
        """The first round, from 1, at which the regret is above the curve by more than rounding;
        a NaN is above everything."""
        held = self.regret <= curve + 1e-9 * (1.0 + np.abs(curve))
        return None if held.all() else int(np.argmin(held)) + 1


@dataclasses.dataclass(frozen=True)
class Mutation:
    """Something made wrong on purpose, to see who complains: the steps that are played (while those
    prescribed are checked), the bound, or the constants that all is derived from."""

    name: str = "none"
    steps: Callable[[Steps], Steps] = lambda steps: steps
    bound: float = 1.0
    constants: Callable[[Constants], Constants] = lambda constants: constants


HONEST = Mutation()


def prescribe(drawn: Drawn) -> Setting:
    """Steps and bound for a drawn problem: the largest alpha that the theorem allows, or a share
    of it where the family asks for one."""
    make, constants = getattr(theory, drawn.setting), drawn.constants
    if drawn.share == 1.0:
        return make(constants)
    return make(constants, outer_step_size=drawn.share * make(constants).outer_step_size)


def outcomes(
    setting: str,
    problems: int,
    horizon: int,
    seed: int,
    on_problem: Callable[[int], None] = lambda done: None,
    stride: int = 1,
    mutation: Mutation = HONEST,
    examined: bool = True,
) -> list[Outcome]:
    """Draw, play, verify and measure the problems of one setting.

    `on_problem` is told how many problems are done. With a `stride` only every so many-th problem
    is drawn: with the number of families, those of the first. Raises `AssumptionError` for a
    problem that is not what its family says. Without `examined` neither the problem nor the steps
    of the proof are looked at, which is enough for growth, where the horizon is long.
    """
    results: list[Outcome] = []
    for number in range(0, problems * stride, stride):
        drawn = draw(setting, number, horizon, seed)
        constants = mutation.constants(drawn.constants)
        drawn = drawn._replace(instance=dataclasses.replace(drawn.instance, constants=constants))
        with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
            results.append(_outcome(drawn, seed, mutation, examined))
        on_problem(len(results))
    return results


def _outcome(drawn: Drawn, seed: int, mutation: Mutation, examined: bool) -> Outcome:
    name, window, promised = drawn.setting, drawn.window, prescribe(drawn)
    # Constants are static: with them, every problem would be compiled anew.
    instance = dataclasses.replace(drawn.instance, constants=None)
    played, accepted = play.play(instance, window, mutation.steps(Steps.of(promised)))
    checks: tuple[Check, ...] = ()
    steps: tuple[Check, ...] = ()
    if examined:
        checks = verify(
            instance.problem, instance.rounds, drawn.constants, name, outer_var=instance.outer_var,
            inner_var=instance.inner_var, outer_vars=played.x, window=window,
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
    own = {argument: known[argument] for argument in inspect.signature(promised.bound).parameters}
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
    """T/8, T/4, T/2 and T, at which growth is fitted, and the first round."""
    return [1, T // 8, T // 4, T // 2, T] if T >= 16 else [1, 1, T // 4, T // 2, T]


def _each_horizon(curves: Numbers) -> Numbers:
    """From curves for each h that with x* of the whole horizon, and at each h that with its own x*,
    which is the definition."""
    whole = curves[-1].copy()
    for own, h in zip(curves, horizons(len(whole)), strict=True):
        whole[h - 1] = own[h - 1]
    return whole
