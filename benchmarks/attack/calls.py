"""Wrong calls, generated: every argument of every public thing with values that it cannot have.

A wrong call is answered well if it is an error of ours (raised by code of obax) that names the
argument. It fails if the value is taken, or if the error comes out of JAX or NumPy.
"""

import dataclasses
import math
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import obax
from obax import checkpoint, estimators, hypergradient, theory
from obax._support.messages import UserError

HOME = str(Path(obax.__file__).parent)
OURS = (ValueError, UserError)
NUMBERS: tuple[Any, ...] = (-1.0, math.nan, math.inf, "0.1", [], {}, 1j, object(), True)
COUNTS: tuple[Any, ...] = (0, -3, 1.5, math.nan, "3", [], object(), True)
WORDS: tuple[Any, ...] = ("no such word", 3, None, [], b"x", object())
OBJECTS: tuple[Any, ...] = ("a word", 3.0, [], object())
FLAGS: tuple[Any, ...] = ("no", 0, 1.0, None, [], object())
SCHEDULES: tuple[Any, ...] = (
    lambda t: jnp.float32(-1.0), lambda t: "word", lambda t: jnp.ones(2), lambda: 1.0,
    lambda t: jnp.where(t > 5000, -1.0, 1.0),
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Call:
    """One wrong call."""

    what: str
    argument: str
    value: Any
    make: Callable[[], object]

    def answer(self) -> str | None:
        """What is wrong with the answer; `None` if it is as it should be."""
        try:
            self.make()
        except Exception as error:
            # Where it was raised: the words may be wrapped, the last frame of ours counts.
            last = traceback.extract_tb(error.__traceback__)[-1].filename
            if not last.startswith(HOME):
                return f"raw {type(error).__name__} from {last}: {str(error)[:80]}"
            if not isinstance(error, OURS):
                return f"raw {type(error).__name__}: {str(error)[:80]}"
            if self.argument.split(".")[-1] not in str(error):
                return f"does not name it: {str(error)[:120]}"
            return None
        return "taken"

    def __str__(self) -> str:
        return f"{self.what}({self.argument}={self.value!r})"


def problem() -> obax.Problem:
    return obax.Problem(
        outer=lambda x, y, round: 0.5 * jnp.sum((y - round) ** 2),
        inner=lambda x, y, round: 0.5 * jnp.sum((y - x) ** 2),
    )


def _each(what: str, kind: Callable[..., object], right: dict[str, Any],
          wrong: dict[str, tuple[Any, ...]], finish: Callable[[Any], object] = lambda made: made,
          ) -> Iterator[Call]:  # fmt: skip
    """`kind` with one argument wrong at a time."""
    for name, values in wrong.items():
        for value in values:
            given = {**right, name: value}
            yield Call(what, name, value, lambda given=given: finish(kind(**given)))


def algorithms() -> Iterator[Call]:
    bilevel = problem()
    steps = {"outer_step_size": 0.1, "inner_step_size": 0.1}
    bad_steps = dict.fromkeys(steps, (*NUMBERS, 0.0, *SCHEDULES))
    optimisers = {f"{level}_optimiser": OBJECTS for level in ("outer", "inner")}
    named: dict[str, tuple[dict[str, Any], dict[str, tuple[Any, ...]]]] = {
        "OAGD": (steps, {**bad_steps, **optimisers, "inner_steps": COUNTS, "window": OBJECTS,
                         "hypergradient": OBJECTS, "problem": (None, *OBJECTS)}),
        "OGD": (steps, {**bad_steps, **optimisers, "inner_steps": COUNTS,
                        "problem": (None, *OBJECTS)}),
        "AutoBalance": ({**steps, "capacity": 4}, {**bad_steps, **optimisers, "capacity": COUNTS,
                        "outer_every": COUNTS, "outer_rounds": COUNTS, "passes": COUNTS,
                        "hypergradient": OBJECTS, "problem": (None, *OBJECTS)}),
        "SOBOW": (steps, {**bad_steps, "window": OBJECTS, "hypergradient": OBJECTS}),
        "FSOBO": (steps, {**bad_steps, "dual_step_size": (*NUMBERS, *SCHEDULES)}),
        "AOBO": (steps, {**bad_steps, "tolerance": NUMBERS, "max_inner_steps": COUNTS,
                         "hypergradient": OBJECTS}),
        "F2OBO": (steps, {**bad_steps, "penalty": NUMBERS, "growth": NUMBERS, "tolerance": NUMBERS,
                          "max_inner_steps": COUNTS}),
        "WOBO": (steps, {**bad_steps, "inner_steps": COUNTS, "window": OBJECTS,
                         "tolerance": NUMBERS, "max_outer_steps": COUNTS,
                         "hypergradient": OBJECTS}),
        "OBBO": (steps, {**bad_steps, "inner_steps": COUNTS, "window": OBJECTS, "geometry": WORDS,
                         "damping": NUMBERS}),
        "SOGD": ({}, dict.fromkeys((
            "offset", "inner_ratio", "dual_ratio", "scale", "inner_momentum", "dual_momentum",
            "outer_momentum", "radius"), NUMBERS)),
        "ZOSOGD": ({}, {"smoothing": NUMBERS, "directions_per_round": COUNTS, "offset": NUMBERS}),
        "ITD": ({**steps, "capacity": 4}, {**bad_steps, "capacity": COUNTS, "first_order": FLAGS,
                "rematerialise": FLAGS, "chunk": COUNTS, "inner_steps": COUNTS}),
        "RTHO": (steps, {**bad_steps, "inner_steps": COUNTS, "proximal": FLAGS,
                         "horizon": NUMBERS}),
    }  # fmt: skip
    for name, (right, wrong) in named.items():
        yield from _each(name, getattr(obax, name), {"problem": bilevel, **right}, wrong)


def parts() -> Iterator[Call]:
    """Windows, domains, estimators of the hypergradient, problems, constants."""
    yield from _each("Window", obax.Window, {"size": 4}, {
        "size": COUNTS, "decay": (*NUMBERS, 0.0, 1.5), "weights": ("x", [1.0], [2.0] * 4, 3.0),
        "follower": WORDS, "curvature": WORDS, "normalise": WORDS, "chunk": COUNTS,
    })  # fmt: skip
    yield from _each("Box", obax.Box, {"lower": -1.0, "upper": 1.0}, {
        "lower": (math.nan, "x", None, object(), 2.0),
        "upper": (math.nan, "x", None, object(), -2.0),
    })  # fmt: skip
    yield from _each("Ball", obax.Ball, {"radius": 1.0}, {"radius": NUMBERS})
    yield from _each("Simplex", obax.Simplex, {}, {"scale": NUMBERS})
    krylov = {"max_steps": COUNTS, "rtol": NUMBERS, "atol": NUMBERS}
    yield from _each("CG", hypergradient.CG, {}, {**krylov, "damping": NUMBERS,
                     "warm_start": FLAGS})  # fmt: skip
    yield from _each("GMRES", hypergradient.GMRES, {}, {**krylov, "restart": COUNTS})
    right: dict[str, Any] = {"terms": 3, "step_size": 0.1}
    yield from _each("Neumann", hypergradient.Neumann, right, {"terms": COUNTS,
                     "step_size": NUMBERS})  # fmt: skip
    yield from _each("FixedPoint", hypergradient.FixedPoint, {"step_size": 0.1}, {
        "step_size": NUMBERS, "max_steps": COUNTS, "rtol": NUMBERS})  # fmt: skip
    yield from _each("Nystrom", hypergradient.Nystrom, {"rank": 2}, {"rank": COUNTS,
                     "damping": NUMBERS})  # fmt: skip
    yield from _each("Unrolled", hypergradient.Unrolled, {}, {"rematerialise": FLAGS})
    f = problem().outer
    yield from _each("Problem", obax.Problem, {"outer": f, "inner": f}, {
        "outer": (None, *OBJECTS), "inner": OBJECTS, "domain": OBJECTS, "inner_argmin": OBJECTS,
        "outer_argmin": OBJECTS, "inner_start": OBJECTS, "has_buffers": FLAGS})  # fmt: skip
    constants = {"ell_f0": 1.0, "ell_f1": 1.0, "ell_g1": 1.0, "ell_g2": 0.0, "mu_g": 1.0}
    yield from _each("Constants", theory.Constants, constants, {
        name: (-1.0, math.nan, math.inf, "x", None, object()) for name in constants})  # fmt: skip


def models() -> Iterator[Call]:
    common: dict[str, tuple[Any, ...]] = {
        "penalty": (*NUMBERS, None), "memory": (*NUMBERS, 0.5, 1e9), "inertia": (*NUMBERS, None),
        "learn": ("penalty", 3, ("no such",), {"x"}), "members": ("x", 3, (), ("start",), None),
        "share": (-0.1, 1.0, math.nan, "x", None), "per_feature": FLAGS, "features": WORDS,
        "lags": (-1, 1.5, "x", None, True), "step_size": NUMBERS, "horizon": (*NUMBERS, 1.0),
        "scale_memory": (*NUMBERS, 1.0), "max_features": COUNTS, "max_categories": COUNTS,
        "max_pending": COUNTS,
    }  # fmt: skip
    only = {
        "StreamingClassifier": {"imbalance": ("x", 3, []), "max_classes": COUNTS,
                                "class_weight": ("x", 3, {"a": -1.0}, {"a": "x"}, [])},
        "StreamingRegressor": {"loss": WORDS, "delta": NUMBERS},
    }  # fmt: skip
    for name, more in only.items():
        kind = getattr(estimators, name)
        yield from _each(name, kind, {}, {**common, **more}, lambda made: made.prepare())
    fresh = estimators.StreamingClassifier
    yield from _each("Pool", estimators.Pool, {"model": fresh()}, {
        "model": (None, *OBJECTS), "max_keys": COUNTS, "shards": COUNTS, "start": WORDS,
    })  # fmt: skip
    given: dict[str, Any] = {"X": [[1.0]], "y": [0]}
    for value in (range(9), 3, "ab", [], [[0, 1]]):
        yield Call("partial_fit", "classes", value, lambda value=value: fresh(
            max_classes=8).partial_fit(**given, classes=value))  # fmt: skip
    for value in (-1.0, math.nan, "x", object(), math.inf):
        yield Call("learn_one", "w", value, lambda value=value: fresh().learn_one(
            {"a": 1.0}, True, w=value))  # fmt: skip
    for value in (None, 3, "x", [1, 2], object()):
        yield Call("learn_one", "x", value, lambda value=value: fresh().learn_one(value, True))


def drivers() -> Iterator[Call]:
    algorithm = obax.OAGD(problem(), 0.1, 0.1)
    state = algorithm.init(0.0, 0.0, jnp.zeros(()))
    rounds = jnp.ones(4)
    right: dict[str, Any] = {"algorithm": algorithm, "state": state, "rounds": rounds}
    both: dict[str, tuple[Any, ...]] = {
        "algorithm": (None, *OBJECTS), "state": (None, *OBJECTS), "progress": FLAGS,
        "other_input": FLAGS, "keep": COUNTS, "on_round": ("a word", 3.0, object()),
        "checkpoint_dir": (3.0, ["x"], object()), "mesh": OBJECTS,
    }  # fmt: skip
    yield from _each("run", obax.run, right, both | {"record": OBJECTS})
    yield from _each("run", obax.run, {**right, "on_round": print}, {"every": COUNTS})
    yield from _each("run", obax.run, {**right, "checkpoint_dir": "/nowhere/at/all"}, {
        "checkpoint_every": COUNTS})  # fmt: skip
    yield from _each("run", obax.run, right, {
        "on_rejected": WORDS, "rounds": ("x", 3.0, None, jnp.ones((2, 2)), jnp.ones(2, int), [1.0],
                                         jnp.ones(0)),
    })  # fmt: skip
    live: dict[str, Any] = {"algorithm": algorithm, "state": state, "source": [jnp.ones(())]}
    yield from _each("play", obax.play, live, both | {"source": (None, 3.0, object())})
    yield from _each("play", obax.play, live, {
        "on_rejected": WORDS, "checkpoint_every": COUNTS, "keep": COUNTS,
    }, lambda game: list(game))  # fmt: skip
    start: dict[str, Any] = {"outer_var": 0.0, "inner_var": 0.0, "example_round": jnp.zeros(())}
    yield from _each("init", algorithm.init, start, {
        "outer_var": (math.nan, "x", None, 0, [], object()),
        "inner_var": (math.nan, "x", None, 0, [], object()),
    })  # fmt: skip
    windowed = obax.OAGD(problem(), 0.2, 0.1, window=obax.Window(2))
    sweeps: dict[str, Any] = {"algorithms": [algorithm], "state": state, "rounds": rounds}
    yield from _each("sweep", obax.sweep, sweeps, {
        "state": (None, *OBJECTS), "seeds": FLAGS, "record": OBJECTS,
        "algorithms": ([], None, 3.0, "x", [3.0], [algorithm, windowed]),
        "rounds": (3.0, None, jnp.ones((2, 2))),
    })  # fmt: skip
    for value in ("no such file", "/", ""):
        yield Call("load", value, value, lambda value=value: checkpoint.load(value, like=state))
    for value in (np.array(["x"]), object(), {"a": object()}):
        yield Call("save", "state", value, lambda value=value: checkpoint.to_bytes(value))


def calls() -> list[Call]:
    """All of them: those that need a thought, and those that follow from signatures."""
    from . import surface

    return [*algorithms(), *parts(), *models(), *drivers(), *surface.calls()]
