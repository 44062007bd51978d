"""Wrong calls by signature: every public thing of the rooms below, every argument, one wrong at a
time, with values that follow from its default or its type. A name that is new is here by itself, or
fails a test until somebody says how it is called rightly."""

import functools
import inspect
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import obax

from .calls import COUNTS, FLAGS, OBJECTS, Call, problem

ROOMS = ("", "algorithms", "detectors", "domain", "hypergradient", "meta", "online", "problems",
         "regret", "replay", "theory", "window", "estimators", "callbacks", "testing")  # fmt: skip
BY_TYPE: dict[type, tuple[Any, ...]] = {
    bool: FLAGS,
    int: (-3, 1.5, math.nan, "3", [], object()),
    float: (math.nan, "0.1", [], {}, object(), 1j),
    str: ("no such word", 3, b"x", object()),
}
SEEDS = ("x", 1.5, [], object())


def things() -> dict[str, Callable[..., Any]]:
    """What can be called and is public, by name; what is only ever returned is not."""
    found: dict[str, Callable[..., Any]] = {}
    for room in ROOMS:
        place = getattr(obax, room) if room else obax
        for name in getattr(place, "__all__", None) or vars(place):
            one = getattr(place, name)
            ours = str(getattr(one, "__module__", "")).startswith(place.__name__)
            if (
                ours
                and callable(one)
                and name[0] != "_"
                and not (name in INSIDE | RESULTS or _is_result(one))
            ):
                # `regret.sweep` has a name that `obax.sweep` has too.
                key = name if found.get(name, one) is one else f"{room}.{name}"
                found[key] = one
    return found | {"compare": obax.lab.compare, "certify": obax.certify.certify}


def calls() -> Iterator[Call]:
    """All of them."""
    for name, thing in things().items():
        right, signature = RIGHT.get(name, dict)(), inspect.signature(thing)
        for parameter in signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD or (name, parameter.name) in TAKEN:
                continue
            for value in _wrong(parameter):
                make = functools.partial(_made, thing, {**right, parameter.name: value})
                if parameter.kind is parameter.VAR_POSITIONAL:  # by keyword it is another argument
                    make = functools.partial(thing, *signature.bind(**right).args, value)
                yield Call(name, parameter.name, value, make)


def _made(thing: Callable[..., Any], given: dict[str, Any]) -> object:
    made = thing(**given)
    # Estimators check their options when they are used, as scikit-learn asks for.
    return made.prepare() if thing.__module__.startswith("obax.estimators") else made


def _wrong(parameter: inspect.Parameter) -> tuple[Any, ...]:
    name, default = parameter.name, parameter.default
    if name == "seed":
        return SEEDS
    if name in BY_NAME:
        return BY_NAME[name]
    if type(default) in BY_TYPE:
        return BY_TYPE[type(default)]
    words = re.findall(r"\w+", str(parameter.annotation))
    kind = next((kind for kind in BY_TYPE if kind.__name__ in words), None)
    return (object(),) if kind is None or kind is str else BY_TYPE[kind]


def _is_result(one: Any) -> bool:
    """States, records and warnings: made by obax and handed to people."""
    made = (obax.algorithms.State, obax.Info, tuple, Warning, Exception, obax.online.Play)
    return inspect.isclass(one) and issubclass(one, made)


RESULTS = {
    "Algorithm", "Hypergradient", "Estimator", "Domain", "Unconstrained", "NonNegative", "Move",
    "Leader", "HypergradientCheck", "RegretCurve", "RegretCurves", "PathLengths", "Variations",
    "Comparator", "Instance", "RowsBefore", "StreamRow", "Table", "Tenant", "Played", "Detector",
    "Setting", "ConvexDynamic", "ConvexStatic", "NonconvexLocal", "StronglyConvexDynamic",
    "StronglyConvexStatic", "Dense", "Trial", "Case", "Reservoir", "Follower",
}  # fmt: skip
BY_NAME: dict[str, tuple[Any, ...]] = {
    "problem": (None, *OBJECTS), "window": OBJECTS, "estimator": OBJECTS, "solver": OBJECTS,
    "constants": (None, *OBJECTS), "algorithm": (None, *OBJECTS), "rounds": (3.0, "x", object()),
    "capacity": COUNTS, "label": OBJECTS, "cut": (3.0, "no such word", object()),
    "replay": OBJECTS, "seeds": FLAGS, "outer_when": OBJECTS, "mesh": OBJECTS,
    "radius": (-1.0, math.nan, "1", object()), "classes": COUNTS, "writer": (),
    "learn": ("penalty", 3, ("no such",)), "members": ("x", 2.5, ()),
    "order": (-1.0, *BY_TYPE[float]),
    "class_weight": ("x", 3, []), "imbalance": ("x", 3, []), "key": (3.0, None, object()),
    "folder": (3.0, ["x"], object()), "file": (3.0, ["x"], object()),
}  # fmt: skip


@functools.cache
def _instance() -> Any:
    return obax.problems.quadratic(4)


def _constants() -> obax.theory.Constants:
    return obax.theory.Constants(ell_f0=1.0, ell_f1=1.0, ell_g1=1.0, ell_g2=0.0, mu_g=1.0,
                                 mu_f=1.0, D=1.0, D_prime=1.0, M=1.0)  # fmt: skip


def _steps(**more: Any) -> dict[str, Any]:
    return {"problem": problem(), "outer_step_size": 0.1, "inner_step_size": 0.1, **more}


def _driven() -> dict[str, Any]:
    algorithm = obax.OAGD(problem(), 0.1, 0.1)
    return {"algorithm": algorithm, "state": algorithm.init(0.0, 0.0, jnp.zeros(()))}


def _swept() -> dict[str, Any]:
    given = _driven()
    return {"algorithms": [given["algorithm"]], "state": given["state"], "rounds": jnp.ones(4)}


def _decided() -> dict[str, Any]:
    one = _instance()
    decided = jnp.broadcast_to(one.outer_var, (4, *one.outer_var.shape))
    return {"problem": one.problem, "outer_vars": decided, "rounds": one.rounds}


def _streamed() -> dict[str, Any]:
    one = _instance()
    return {"problem": one.problem, "rounds": one.rounds}


def _fitted() -> Any:
    model = obax.estimators.StreamingRegressor()
    model.learn_one({"a": 1.0}, 1.0)
    return model


RIGHT: dict[str, Callable[[], dict[str, Any]]] = {
    "OGD": lambda: {"problem": problem(), "inner_step_size": 0.1},
    **dict.fromkeys(("OAGD", "SOBOW", "FSOBO", "AOBO", "F2OBO", "WOBO", "OBBO", "RTHO"),
                    _steps),
    **dict.fromkeys(("SOGD", "ZOSOGD"), lambda: {"problem": problem()}),
    **dict.fromkeys(("AutoBalance", "ITD"), lambda: _steps(capacity=4)),
    "Problem": lambda: {"outer": problem().outer, "inner": problem().inner},
    "Box": lambda: {"lower": -1.0, "upper": 1.0},
    "Ball": lambda: {"radius": 1.0},
    "Window": lambda: {"size": 4},
    "Race": lambda: {"algorithm": obax.OAGD(problem())},
    "Replay": lambda: {"capacity": 8},
    "Neumann": lambda: {"terms": 3, "step_size": 0.1},
    "FixedPoint": lambda: {"step_size": 0.1},
    "Nystrom": lambda: {"rank": 2},
    "run": lambda: {**_driven(), "rounds": jnp.ones(4)},
    "play": lambda: {**_driven(), "source": [np.ones(())]},
    "sweep": _swept,
    "regret.sweep": lambda: {
        **_decided(), "measure": obax.regret.dynamic, "outer_vars": _decided()["outer_vars"][None],
    },
    "check": lambda: {"result": obax.regret.dynamic(*_decided().values())},
    "merge": lambda: {"models": [_fitted()]},
    "collect": _driven,
    "check_hypergradient": lambda: {"problem": problem(), "outer_var": 0.0, "inner_var": 0.0,
                                    "round": jnp.zeros(())},
    "adapt": lambda: {
        "algorithm": obax.OAGD(
            obax.Problem(problem().outer, problem().inner, inner_start=lambda x: 0.0 * x), 0.1, 0.1
        ),
        "outer_var": jnp.zeros(()), "round": jnp.zeros(()),
    },
    "meta_learning": lambda: {"step_size": 0.1},
    "prox_linear": lambda: {"step_size": 0.1, "outer_step_size": 0.1},
    **dict.fromkeys(("quadratic", "online_minmax", "lower_bound_game", "comparability",
                     "actor_critic", "hyper_cleaning", "hyper_representation", "robust_regression",
                     "strategic_regression", "dynamic_regression"), lambda: {"horizon": 4}),
    **dict.fromkeys(("dynamic", "static", "local", "local_past"), _decided),
    "projected": lambda: {**_decided(), "step_size": 0.1},
    "interval": lambda: {**_decided(), "start": 1, "stop": 2},
    "staged": lambda: {**_decided(), "stages": 2},
    "played": lambda: {**_streamed(), "losses": jnp.ones(4)},
    **dict.fromkeys(("path_lengths", "variations", "outer_solutions", "static_solution"),
                    _streamed),
    "stage_solutions": lambda: {**_streamed(), "stages": 2},
    "inner_solution": lambda: _decided(),
    "bound_arguments": lambda: {
        **_streamed(), "bound": obax.theory.convex_static(_constants()).bound,
    },
    "path_of": lambda: {"points": jnp.ones((4, 2))},
    "Constants": lambda: {"ell_f0": 1.0, "ell_f1": 1.0, "ell_g1": 1.0, "ell_g2": 0.0,
                          "mu_g": 1.0},
    **dict.fromkeys(("convex_dynamic", "convex_static", "nonconvex_local",
                     "strongly_convex_dynamic", "strongly_convex_static"),
                    lambda: {"constants": _constants()}),
    "DiscountedRidge": lambda: {"memory": 100.0, "penalty": 1.0, "inertia": 1.0},
    "SharedMixture": lambda: {"members": 3},
    **dict.fromkeys(("InverseSqrtTime", "InverseTime"), lambda: {"scale": 1.0}),
    "LogarithmicInnerSteps": lambda: {"kappa_g": 2.0},
    "estimate_constants": lambda: {**_streamed(), "outer_var": _instance().outer_var,
                                   "inner_var": _instance().inner_var, "key": jax.random.key(0)},
    "whole": lambda: {"tree": _instance()},
    "save": lambda: {"path": "/nowhere/at/all", "state": jnp.ones(2)},
    "load": lambda: {"path": "/nowhere/at/all", "like": jnp.ones(2)},
    "windowed": lambda: {"instance": obax.problems.dynamic_regression(6), "window": obax.Window(2)},
    "loss_tuning": lambda: {"classes": 3, "predict": lambda model, inputs: inputs},
    "loss_tuning_start": lambda: {"classes": 3},
    "balanced_weights": lambda: {"labels": jnp.arange(3), "classes": 3},
    "compare": lambda: {
        **_streamed(), "algorithms": {"mine": obax.OAGD(_instance().problem, 0.1, 0.1)},
        "outer_var": _instance().outer_var, "inner_var": _instance().inner_var,
    },
    "Pool": lambda: {"model": obax.estimators.StreamingClassifier()},
    "JSONLines": lambda: {"file": "/nowhere/at/all"},
    "Watch": lambda: {"folder": "/nowhere/at/all"},
    "check_algorithm": lambda: {"algorithm": obax.OAGD(problem(), 0.1, 0.1)},
    "check_problem": lambda: {"problem": problem(), "round": jnp.zeros(()), "outer_var": 1.0,
                              "inner_var": 0.0},
}  # fmt: skip
TAKEN = {
    # Any tree may be one to be held as it is, and any word a title, a name or a place.
    ("whole", "tree"), ("Watch", "title"), ("MLflow", "experiment"), ("MLflow", "tracking_uri"),
    ("WandB", "project"),
    # What a file must hold is known once it is there.
    ("load", "like"),
    # As many as there are.
    ("ITD", "tasks"),
}  # fmt: skip
INSIDE = {"subspace_error", "batch_features", "embed_task", "task_logits", "group_losses",
          "strategic_rule", "metrics", "coordinates", "size_of_x", "critic_matrix"}  # fmt: skip
"""Called by losses and reports, with arrays of theirs."""
