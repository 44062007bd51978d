"""A history as people read it: in words, as a table, as a picture; and one round of it in words.

A history is an `Info` whose leaves have the rounds on their last leading axis: `[T]` from `run`,
`[settings, T]` or `[settings, seeds, T]` from `sweep`. Everything here is on the host.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from .._support import drawing, messages, trees
from .._support.messages import counted

if TYPE_CHECKING:
    import pandas as pd

    from .record import Info

# What a round's solver may leave of |grad_y f| before its hypergradient is called rough.
ROUGH = 0.1
# How much larger than at the beginning the loss suffered must be for a run to have diverged.
DIVERGED = 1e6
NUMBERS = (
    "played_value",
    "outer_value",
    "inner_value",
    "hypergradient_norm",
    "inner_gradient_norm",
    "solver_residual",
)
COUNTS = (
    "gradients",
    "hvps",
    "cross_products",
    "evaluations",
    "window_terms",
    "cut_terms",
    "refused_terms",
)
AXES = {1: (), 2: ("run",), 3: ("setting", "seed")}
# Of x, in a table: more coordinates than this are left to those who ask for them.
MOST_COLUMNS = 64
MOST_LINES = 8


def check_history(info: Info) -> None:
    """Raise a `TypeError` for the record of one round."""
    if np.ndim(info.t) == 0:
        raise TypeError(
            "this Info is the record of one round; a history, which has a length, rounds to "
            "choose from, a summary, a table and a plot, comes from obax.run or obax.sweep."
        )


def at(info: Info, index: Any) -> Info:
    """Return an entry of the leading axis, or some of them; out of range is an `IndexError`."""
    check_history(info)
    length = info.t.shape[0]
    if isinstance(index, int | np.integer) and not -length <= index < length:
        raise IndexError(f"round {index} of a history of {length}.")
    return jax.tree.map(lambda leaf: leaf[index], info)


def coordinates(info: Info, most: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the coordinates of x with their names, `x`, `x[2]`, `x['a'][0]`; at most `most` of
    them."""
    axes, given = np.ndim(info.t), 0
    for path, leaf in jax.tree_util.tree_leaves_with_path(info.outer_var):
        array, name = np.asarray(leaf), trees.leaf_name(path, "x")
        for place in np.ndindex(array.shape[axes:]):
            if given == most:
                return
            given += 1
            yield name + (f"[{', '.join(map(str, place))}]" if place else ""), array[(..., *place)]


def size_of_x(info: Info) -> int:
    """Return how many coordinates x has."""
    axes = np.ndim(info.t)
    return sum(int(np.prod(leaf.shape[axes:])) for leaf in jax.tree.leaves(info.outer_var))


def to_pandas(info: Info) -> pd.DataFrame:
    """Return a table with a row for each round; the index counts rounds in the order of their
    arrival, from 1."""
    import pandas as pd

    check_history(info)
    shape = np.shape(info.t)
    columns: dict[str, Any] = {"t": info.t}
    columns |= {name: getattr(info, name) for name in NUMBERS}
    columns |= dict(coordinates(info, MOST_COLUMNS))
    if info.inner_step_size is not None:
        columns["inner_step_size"] = info.inner_step_size
    if info.at_edge is not None:
        columns["at_edge"] = info.at_edge
    columns |= {name: getattr(info, name) for name in ("accepted", *COUNTS)}
    names = [*AXES[len(shape)], "round"]
    levels = [np.arange(length) for length in shape[:-1]] + [np.arange(1, shape[-1] + 1)]
    index = pd.MultiIndex.from_product(levels, names=names) if len(shape) > 1 else None
    frame = pd.DataFrame(
        {name: np.asarray(value).reshape(-1) for name, value in columns.items()}, index=index
    )
    if index is None:
        frame.index = pd.Index(levels[0], name="round")
    return frame


def summary(info: Info) -> str:
    """Return a few lines on what happened, and whether the hypergradients can be trusted."""
    check_history(info)
    played, accepted = (np.asarray(part) for part in (info.played_value, info.accepted))
    *runs, rounds = accepted.shape
    count = int(np.prod(runs, dtype=int))
    lines = [counted(rounds, "round") + (f" in each of {counted(count, 'run')}" if runs else "")]
    rejected = int(np.sum(~accepted))
    lines[0] += f", {rejected:,} rejected" if rejected else ", none rejected"
    if not accepted.any():
        return lines[0] + ": nothing was learned."
    tenth = max(1, rounds // 10)
    first, last = (
        _mean(played[..., part], accepted[..., part])
        for part in (slice(tenth), slice(-tenth, None))
    )
    began, ended = _ends(tenth)
    lines.append(
        f"loss suffered: {_mean(played, accepted)} on average, {first} {began}, {last} {ended}"
    )
    lines += [_divergence_words(info, accepted), _step_words(info, accepted)]
    lines += [_residual_words(info, accepted), _follower_words(info, accepted)]
    lines += [_window_words(info, accepted), *_edge_words(info)]
    return "\n".join(line for line in lines if line)


def _ends(tenth: int) -> tuple[str, str]:
    """Return the words for the first and for the last tenth of a run."""
    if tenth == 1:
        return "in the first round", "in the last"
    return f"in the first {tenth:,} rounds", f"in the last {tenth:,}"


def _mean(values: np.ndarray, counted: np.ndarray) -> str:
    return f"{np.mean(values[counted]):.4g}" if counted.any() else "nothing"


def _residual_words(info: Info, accepted: np.ndarray) -> str:
    residual = np.asarray(info.solver_residual)[accepted]
    if not (np.asarray(info.hvps)[accepted] > 0).any() and not (residual > 0).any():
        return ""
    worst, rough = float(np.max(residual)), int(np.sum(~(residual <= ROUGH)))
    # A method without products with H has no system to solve.
    solves = bool((np.asarray(info.hvps)[accepted] > 0).any())
    what = "linear systems of the hypergradient" if solves else "hypergradient"
    cure = "more solver steps, or a ridge term in the inner loss" if solves else "more inner steps"
    words = f"{what}: largest relative residual {worst:.2g}, "
    if not rough:
        return words + f"never above {ROUGH}"
    return (
        f"{words}above {ROUGH} in {rough:,} of {counted(residual.size, 'round')}: there the "
        f"hypergradient is rough ({cure})"
    )


def _follower_words(info: Info, accepted: np.ndarray) -> str:
    if info.follower is None:
        return ""
    slope = np.where(accepted, np.asarray(info.inner_gradient_norm), np.nan)
    tenth = max(1, slope.shape[-1] // 10)
    first, last = (
        _mean(part, np.isfinite(part)) for part in (slope[..., :tenth], slope[..., -tenth:])
    )
    began, ended = _ends(tenth)
    return f"follower: |grad_y g| after learning {first} {began}, {last} {ended}"


def _step_words(info: Info, accepted: np.ndarray) -> str:
    """Return the follower's step sizes, where they were not given."""
    if info.inner_step_size is None:
        return ""
    sizes = np.asarray(info.inner_step_size)[accepted]
    low, middle, high = np.quantile(sizes, (0, 0.5, 1))
    return f"step sizes of the follower, adapted: {middle:.2g}, from {low:.2g} to {high:.2g}"


def _divergence_words(info: Info, accepted: np.ndarray) -> str:
    """Return that the loss grew without end, at which level, and what to do; an empty string where
    it did not."""
    played = np.abs(np.where(accepted, np.asarray(info.played_value), np.nan))
    slope = np.where(accepted, np.asarray(info.inner_gradient_norm), np.nan)
    tenth = max(1, played.shape[-1] // 10)

    def growth(values: np.ndarray) -> float:
        first, last = (values[..., part] for part in (slice(tenth), slice(-tenth, None)))
        if not (np.isfinite(first).any() and np.isfinite(last).any()):
            return 0.0
        began = float(np.nanmedian(first))
        return float(np.nanmax(last)) / began if began > 0 else 0.0

    if growth(played) < DIVERGED:
        return ""
    level = "inner" if growth(slope) > DIVERGED**0.5 else "outer"
    return (
        f"the run diverged: the loss became {growth(played):.2g} times what it was; use a smaller "
        f"{level}_step_size, or leave it out"
    )


def _window_words(info: Info, accepted: np.ndarray) -> str:
    """Return how often the window was cut and how many rounds left it; an empty string if it was
    always whole."""
    cut, refused, terms = (
        np.asarray(part)[accepted]
        for part in (info.cut_terms, info.refused_terms, info.window_terms)
    )
    parts = []
    if (cuts := int(np.sum(cut > 0))) > 0:
        parts.append(f"cut {counted(cuts, 'time')}")
    if (lost := int(np.sum(refused))) > 0:
        parts.append(f"{counted(lost, 'past round')} left it, NaN or Inf at a later x or y")
    return f"window: {', '.join(parts)}; {np.mean(terms):.4g} terms on average" if parts else ""


def _edge_words(info: Info) -> Iterator[str]:
    """Yield whether x lay at an edge of its domain; nothing if it has none."""
    if info.at_edge is None:
        return
    edge, size = np.asarray(info.at_edge), size_of_x(info)
    touched = int(np.sum(edge > 0))
    if not touched:
        yield "x: never at an edge of its domain"
        return
    last = int(np.sum(edge[..., -1])) if edge.ndim == 1 else None
    now = f"; in the last, {last:,} of {counted(size, 'coordinate')}" if last is not None else ""
    yield f"x: at an edge of its domain in {touched:,} of {counted(edge.size, 'round')}{now}"


def words(info: Info) -> str:
    """Return the repr: the losses of a round, or those of the first and the last round of a
    history."""
    if np.ndim(info.t) == 0:
        parts = [f"t={messages.format_value(info.t)}"]
        parts += [f"{name}={messages.format_short(getattr(info, name))}" for name in NUMBERS]
        parts += [
            f"accepted={messages.format_value(info.accepted)}",
            f"x={messages.format_value(info.outer_var)}",
        ]
        return f"Info({', '.join(parts)})"
    *runs, rounds = np.shape(info.t)
    shape = " x ".join([*(f"{n:,}" for n in runs), counted(rounds, "round")])
    if not trees.is_concrete(info.played_value):
        return f"Info({shape})"
    if np.ndim(info.t) > 1:
        return f"Info({shape}, rejected={int(np.sum(~np.asarray(info.accepted))):,})"
    parts = [
        f"{name}={'..'.join(messages.format_short(getattr(info, name)[at]) for at in (0, -1))}"
        for name in NUMBERS
    ]
    return f"Info({shape}, {', '.join(parts)}, rejected={int(info.rejected):,})"


def plot(info: Info, file: Any = None) -> Any:
    """Draw one figure with four panels: loss suffered, x, residual of the solver, gradient of the
    follower."""
    check_history(info)
    shape = np.shape(info.t)
    accepted = np.asarray(info.accepted).reshape(-1, shape[-1])
    # Rounds of the moving mean.
    span = max(1, shape[-1] // 20)

    def lines(values: Any) -> list[np.ndarray]:
        """Return a line for each run, with gaps where a round was rejected."""
        array = np.asarray(values, np.float64).reshape(accepted.shape)
        return [np.where(kept, line, np.nan) for kept, line in zip(accepted, array, strict=True)]

    def curves(values: Any) -> dict[str, list[np.ndarray]]:
        """Return the lines by setting, where there are several settings; each with its seeds."""
        drawn = lines(values)
        if len(shape) == 1:
            return {"": drawn}
        seeds = len(drawn) // shape[0]
        return {f"{AXES[len(shape)][0]} {i}": drawn[i * seeds : (i + 1) * seeds]
                for i in range(shape[0])}  # fmt: skip

    suffered = lines(info.played_value)
    smooth = {name: [drawing.moving_mean(one, span) for one in some]
              for name, some in curves(info.played_value).items()}  # fmt: skip
    if len(shape) == 1:
        smooth = {drawing.FAINT: suffered, f"mean of {span:,}": smooth[""]}
    size, coordinates_of_x = size_of_x(info), dict(coordinates(info, MOST_LINES))
    named = {name: lines(values) for name, values in coordinates_of_x.items()}
    if size == 1:
        named = curves(*coordinates_of_x.values())
    of = f" (first {MOST_LINES} of {size:,})" if size > MOST_LINES else ""
    panels = [
        drawing.Panel("loss suffered", smooth, log=drawing.spans_decades(suffered)),
        drawing.Panel(f"x{of}", named),
        drawing.Panel("residual of the solver", curves(info.solver_residual), True, ROUGH),
        drawing.Panel("|grad_y g| after learning", curves(info.inner_gradient_norm), True),
    ]
    return drawing.figure(panels, "round", file)
