"""Algorithms and states in words: `OAGD(alpha=0.1, beta=0.05, K=10, window=20 x 0.9, CG(5))`."""

from typing import Any

from .._support import messages
from ..hypergradient import Hypergradient
from ..window import Window

# The paper's symbols, which are shorter than the names of the arguments.
SYMBOLS = {"outer_step_size": "alpha", "inner_step_size": "beta", "inner_steps": "K"}


def settings(algorithm: Any) -> list[tuple[str, str]]:
    """Return the arguments of an algorithm besides its problem, as pairs of a symbol or name and
    the formatted value."""
    pairs = []
    for name, value in messages.changed_fields(algorithm):
        if name == "problem":
            continue
        if isinstance(value, Window):
            if value.size == 1:
                continue
            words = repr(value).removeprefix("Window(").removesuffix(")")
        elif isinstance(value, Hypergradient):
            words = repr(value)
        elif name.endswith("_optimiser"):
            words = "optax"
        else:
            words = messages.format_value(value)
        pairs.append((SYMBOLS.get(name, name), words))
    return pairs


def algorithm_words(algorithm: Any) -> str:
    """Return the repr of an algorithm."""
    has_follower = algorithm.problem.inner is not None
    parts = [
        value if name == "hypergradient" else f"{name}={value}"
        for name, value in settings(algorithm)
        # Without a follower nobody asks the estimator.
        if has_follower or name != "hypergradient"
    ]
    return f"{type(algorithm).__name__}({', '.join(parts)})"


def state_words(state: Any) -> str:
    """Return the repr of a state: t, x and y."""
    named = ("t", "outer_var", "inner_var")
    parts = [f"{name}={messages.format_value(getattr(state, name))}" for name in named]
    return f"{type(state).__name__}({', '.join(parts)})"
