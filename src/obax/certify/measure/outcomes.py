"""One setting, from drawing its problems to regret beside bound for each of them."""

import dataclasses
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ... import theory
from ...theory import Constants, Setting
from ...window import Window
from ..families.catalogue import Drawn, draw
from ..families.ingredients import Numbers
from ..verify import POINTS, AssumptionError, Check, check_frame, judge, radii, raise_if_failed
from . import claims, play
from .along import Along, measure_along
from .evidence import Evidence, Points
from .play import Batch, Steps

# How many problems go into one compiled call: enough to fill the cores, few enough for memory.
BATCH = 100
# What a comparator may be off by. Its loss is then off by the square of it.
COMPARATOR_TOLERANCE = 1e-7


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A problem that was verified and played: curves over t = 1..T. `checks` are of assumptions,
    all of which hold; `steps` of what the proof says of every round."""

    drawn: Drawn
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
    make, constants = getattr(theory, drawn.setting), known_constants(drawn)
    if drawn.share == 1.0:
        return make(constants)
    return make(constants, outer_step_size=drawn.share * make(constants).outer_step_size)


def known_constants(drawn: Drawn) -> Constants:
    """The constants of a drawn problem, which every family gives."""
    constants = drawn.instance.constants
    assert constants is not None
    return constants


def outcomes(
    setting: str,
    problems: int,
    horizon: int,
    seed: int,
    on_batch: Callable[[int], None] = lambda done: None,
    stride: int = 1,
    mutation: Mutation = HONEST,
    examined: bool = True,
) -> list[Outcome]:
    """Draw, play, verify and measure the problems of one setting.

    `on_batch` is told how many problems are done. With a `stride` only every so many-th problem is
    drawn: with the number of families, those of the first. Raises `AssumptionError` for a problem
    that is not what its family says. Without `examined` neither the problem nor the steps of the
    proof are looked at, which is enough for growth, where the horizon is long.
    """
    numbers = range(0, problems * stride, stride)
    drawn = [_mutated(draw(setting, number, horizon, seed), mutation) for number in numbers]
    results: list[Outcome] = []
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        groups = _groups(drawn)
        # One shape, one compilation: groups are cut into parts of one size, and a short part is
        # filled up with its last problem.
        longest = max(map(len, groups))
        size = -(-longest // -(-longest // BATCH))
        for group in groups:
            for start in range(0, len(group), size):
                part = group[start : start + size]
                filled = [*part, *[part[-1]] * (size - len(part))]
                results += _batch(filled, seed, mutation, examined)[: len(part)]
                on_batch(len(results))
    return sorted(results, key=lambda outcome: outcome.drawn.number)


def _mutated(drawn: Drawn, mutation: Mutation) -> Drawn:
    constants = mutation.constants(known_constants(drawn))
    return drawn._replace(instance=dataclasses.replace(drawn.instance, constants=constants))


def _groups(drawn: Sequence[Drawn]) -> list[list[Drawn]]:
    """Problems with one window, since its size is compiled in."""
    groups: dict[tuple[float, ...], list[Drawn]] = {}
    for one in drawn:
        groups.setdefault(tuple(np.asarray(one.window.weights)), []).append(one)
    return list(groups.values())


def _batch(drawn: list[Drawn], seed: int, mutation: Mutation, examined: bool) -> list[Outcome]:
    setting, window = drawn[0].setting, drawn[0].window
    prescribed = [prescribe(one) for one in drawn]
    batch = play.stack([one.instance for one in drawn], prescribed)
    played, accepted = play.play(batch, window, mutation.steps(batch.steps))
    checks = _verified(drawn, batch, played.x, seed) if examined else [()] * len(drawn)
    if not bool(jnp.all(accepted)):
        row, t = np.argwhere(~np.asarray(accepted))[0]
        raise RuntimeError(f"{drawn[row].where}: OAGD rejected round {t + 1}.")
    at = jnp.asarray(horizons(played.x.shape[1]))
    if setting.endswith("dynamic"):
        measured = play.dynamic(batch, played.x, type(prescribed[0]).bound)
    elif setting.endswith("static"):
        measured = play.static(batch, played.x, at)
    else:
        measured = play.local(batch, played.x, window)
    steps = _steps(batch, prescribed, played, measured, window) if examined else [()] * len(drawn)
    curve, arguments, residual, _ = jax.tree.map(np.asarray, measured)
    _reached(drawn, residual)
    found = []
    for row, (one, promised) in enumerate(zip(drawn, prescribed, strict=True)):
        own = {name: values[row] for name, values in arguments.items()}
        suffered, bound, printed, order = _curves(promised, curve[row], own, one)
        found.append(
            Outcome(one, checks[row], steps[row], suffered, mutation.bound * bound, printed, order)
        )
    return found


def _steps(
    batch: Batch,
    prescribed: list[Setting],
    played: play.Played,
    measured: play.Measured,
    window: Window,
) -> list[tuple[Check, ...]]:
    """What the proof claims of every round, for every problem."""
    # Of a static setting the comparator of the whole horizon, which comes last.
    static = prescribed[0].name.endswith("static")
    best = measured.best[:, -1] if static else measured.best
    rounds, W = np.arange(1.0, played.x.shape[1] + 1.0), float(np.sum(window.weights))
    alpha = jnp.asarray(np.stack([claims.at(one.outer_step_size, rounds) for one in prescribed]))
    along = jax.tree.map(np.asarray, measure_along(batch, played, best, alpha, window))
    return [
        claims.checks(
            promised,
            Along(*(values[row] for values in along)),
            W,
            {name: np.asarray(values[row]) for name, values in measured.arguments.items()},
        )
        for row, promised in enumerate(prescribed)
    ]


def _verified(
    drawn: list[Drawn], batch: Batch, played: Array, seed: int
) -> list[tuple[Check, ...]]:
    """The checks of every problem, made at random points and at the decisions played."""
    setting, points = drawn[0].setting, []
    shape = (POINTS, played.shape[1], played.shape[2], batch.inner_var.shape[1])
    for one in drawn:
        constants = known_constants(one)
        check_frame(one.instance.problem, constants, setting, one.window)
        points.append(Points.draw((seed, one.number), shape, radii(constants)))
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *points)
    found = jax.tree.map(np.asarray, play.evidence(batch, played, stacked, setting))
    checks = []
    for row, one in enumerate(drawn):
        constants = known_constants(one)
        diameter = float(one.instance.problem.domain.diameter(one.instance.outer_var))
        own = Evidence(*(values[row] for values in found))
        checks.append(judge(own, constants, setting, diameter))
        raise_if_failed(checks[-1], one.where)
    return checks


def _reached(drawn: list[Drawn], residual: Numbers) -> None:
    worst = residual.reshape(len(drawn), -1).max(axis=1)
    if not np.all(worst <= COMPARATOR_TOLERANCE):
        row = int(np.argmax(np.where(np.isnan(worst), np.inf, worst)))
        raise AssumptionError(
            f"{drawn[row].where}: its comparator was not reached, residual {worst[row]:.3g}.",
            "known comparator",
            None,
        )


def horizons(T: int) -> list[int]:
    """T/8, T/4, T/2 and T, at which growth is fitted, and the first round."""
    return [1, T // 8, T // 4, T // 2, T] if T >= 16 else [1, 1, T // 4, T // 2, T]


def _curves(
    setting: Setting, curve: Numbers, arguments: dict[str, Numbers], drawn: Drawn
) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Regret, bound, printed bound and promised order at every t."""
    T = np.arange(1, curve.shape[-1] + 1)
    if setting.name.endswith("static"):
        rows = []
        names = ("Y_bar_2",) if setting.name.startswith("strongly") else ("Y_bar_1", "Y_bar_2")
        for row, h in enumerate(horizons(len(T))):
            own = {"T": T} | {name: arguments[name][row] for name in names}
            order = np.log(T) + 1.0 if len(names) == 1 else np.sqrt(T)
            order = order + sum(own[name] for name in names)
            rows.append((h, curve[row], setting.bound(**own), setting.printed_bound(**own), order))
        # x* of the whole horizon at every t, and at each h its own x*, which is the definition.
        result = tuple(values.copy() for values in rows[-1][1:])
        for h, *values in rows:
            for whole, own_values in zip(result, values, strict=True):
                whole[h - 1] = own_values[h - 1]
        return result  # type: ignore[return-value]
    if setting.name == "nonconvex_local":
        W = float(np.sum(np.asarray(drawn.window.weights)))
        arguments = {"T": T, "W": np.full(len(T), W)} | arguments
        order = T / W + arguments["H_1"] + arguments["H_2"]
    elif setting.name == "convex_dynamic":
        order = 1.0 + arguments["P_1"] + arguments["Y_1"] + arguments["Y_2"]
    else:
        squared = arguments["P_2"] + arguments["Y_2"] + arguments["squared_gradients"]
        order = 1.0 + np.minimum(arguments["P_1"] + arguments["Y_1"], squared)
    return curve, setting.bound(**arguments), setting.printed_bound(**arguments), order
