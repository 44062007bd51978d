"""Hyperparameters by name, and descriptions of a model as text and as a figure."""

import math
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .._support import native
from .._support.messages import counted
from .options import Options

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .model import Model

RECENT, LONG = 20, 200
"""Points of the history in its two running means."""
ENOUGH = 200
"""Rows before anything is suggested."""

Values = float | np.ndarray
Hyperparameters = dict[str, Values | dict[Hashable, Values]]
"""By name; a dict by feature or class where there is one for each."""


def hyperparameters(model: "Model", x: np.ndarray | None = None) -> Hyperparameters:
    """Return the hyperparameters by name. `x`, which may have rows, holds their logarithms and the
    members' shares; it defaults to the present ones."""
    with model.lock:
        x = model.engine.x if x is None else x
        return named(model.options, model.engine.spec, x, model.names, model.labels)


def named(
    options: Options,
    spec: Any,
    x: np.ndarray,
    names: Mapping[Hashable, int],
    labels: Mapping[Hashable, int],
) -> Hyperparameters:
    """Return x by the names of hyperparameters, features, classes and members."""
    part = {name: x[..., slice(*span)] for name, span in spec.spans.items()}
    penalty, memory = np.exp(part["penalty"]), np.exp(part["memory"][..., 0])
    found: Hyperparameters = {
        "penalty": _each(penalty, names) if options.per_feature else _value(penalty[..., 0]),
        "forgetting": _value(memory / (1 + memory)),
        "memory": _value(memory),
        "inertia": _value(np.exp(part["inertia"][..., 0])),
    }
    if options.features == "fourier":
        found["bandwidth"] = _value(np.exp(part["bandwidth"][..., 0]))
    if options.imbalance == "weights":
        found["class_weights"] = _each(np.exp(part["class_weights"]), labels)
    if options.imbalance == "logits":
        found["logit_shifts"] = _each(part["logit_shifts"], labels)
    found["members"] = {name: _value(x[..., spec.width + i]) for i, name in enumerate(spec.members)}
    return found


def _each(values: np.ndarray, positions: Mapping[Hashable, int]) -> dict[Hashable, Values]:
    return {name: _value(values[..., i]) for name, i in positions.items()}


def _value(value: np.ndarray) -> Values:
    return float(value) if np.ndim(value) == 0 else np.asarray(value)


def joined(
    whole: Hyperparameters, parts: list[Hyperparameters], sizes: list[int]
) -> Hyperparameters:
    """Join the hyperparameters of stretches of `sizes` rows under the names of `whole`, which has
    none; NaN where a stretch does not know a feature, class or member yet."""
    names: Hyperparameters = {}
    for name, values in whole.items():
        own: list[Any] = [part.get(name) for part in parts]
        if isinstance(values, dict):
            names[name] = joined(values, [part or {} for part in own], sizes)  # type: ignore
        else:
            filled = (
                np.full(size, np.nan) if part is None else part
                for part, size in zip(own, sizes, strict=True)
            )
            names[name] = np.concatenate([values, *filled])
    return names


def history(model: "Model") -> dict[str, Any]:
    """Return row numbers, the mean loss since the number before, and hyperparameters then."""
    with model.lock:
        rows, loss, x = model.engine.history()
        return {"row": rows, "loss": loss} | hyperparameters(model, x)


def mean_loss(model: "Model") -> float:
    """Return the mean loss of predicting a row before it was learned."""
    with model.lock:
        return float(model.engine.total_loss) / max(int(model.engine.learned), 1)


def explain(model: "Model") -> str:
    """Return a few sentences: how long, how well, what the hyperparameters came to, and what was
    rejected."""
    with model.lock:
        engine, options, rejected = model.engine, model.options, model.rejected
        _, loss, _ = engine.history()
        if not len(loss):
            text = "No row has been learned yet."
            if rejected.count:
                text += f" {rejected.count:,} rejected, {rejected.most_often()}."
            return text
        now, mean, recent = hyperparameters(model), mean_loss(model), float(loss[-RECENT:].mean())
        trend = "about as well as before"
        if recent < 0.9 * mean:
            trend = "better than on average"
        elif recent > 1.1 * mean:
            trend = "worse than on average: the stream may be drifting"
        what = "log loss" if options.classify else "loss (in deviations of the target)"
        text = (
            f"{counted(int(engine.learned), 'row')} learned, mean {what} {mean:.4f}, lately "
            f"{recent:.4f}: {trend}. It looks back about {now['memory']:.0f} rows (forgetting "
            f"{now['forgetting']:.4f}; it began with {options.memory:.0f}), "
            f"{_penalty(now['penalty'], options.penalty)}"
            f"inertia {options.inertia:.3g} -> {now['inertia']:.3g}."
        )
        text += _carried(now["members"]) + _columns(model, now)
        fixed = [name for name in ("penalty", "forgetting", "inertia") if name not in options.learn]
        if fixed:
            text += f" Held fixed: {', '.join(fixed)}."
        for coverage, covered in engine.coverages().items():
            if not math.isnan(covered):
                kind = "sets" if options.classify else "intervals"
                text += (
                    f" Its {coverage:.4g} {kind} held {covered:.1%} of the rows since they were "
                    f"asked for."
                )
        return text + _left_out(model) + _lags(model)


def _penalty(penalty: Any, start: float) -> str:
    if not isinstance(penalty, dict):
        return f"penalty {start:.3g} -> {penalty:.3g}, "
    if not penalty:  # No feature has come yet.
        return ""
    low, high = min(penalty, key=penalty.__getitem__), max(penalty, key=penalty.__getitem__)
    return f"penalties from {penalty[low]:.3g} ({low}) to {penalty[high]:.3g} ({high}), "


def _left_out(model: "Model") -> str:
    """Describe rows that were rejected or dropped, and values that were ignored."""
    rejected, dropped, text = model.rejected, model.pending.dropped, ""
    if rejected.count:
        last = rejected[-1]
        rows_were = "rows were" if rejected.count > 1 else "row was"
        text += (
            f" {rejected.count:,} {rows_were} rejected, the last (row {last['row']:,}) "
            f"because {last['reason']}."
        )
    if dropped:
        were, labels = ("rows were", "their labels") if dropped > 1 else ("row was", "its label")
        text += f" {dropped:,} {were} dropped before {labels} came."
    if model.ignored:
        full = model.most_features >= model.options.most_features
        limit = "max_features" if full else "max_memory"
        text += (
            f" {counted(model.ignored, 'value')} of features beyond the first "
            f"{len(model.names):,} ({limit}) {'was' if model.ignored == 1 else 'were'} ignored."
        )
    if "underflow" in model.warned:
        text += " Some values are too small to be learned from: give them in other units."
    return text


def _columns(model: "Model", now: Hyperparameters) -> str:
    """Describe the columns that are computed from the features."""
    options, engine = model.options, native.loaded()
    if options.features == "fourier":
        held = "" if "bandwidth" in options.learn else " (held fixed)"
        return (
            f" It sees the features and {engine.WAVES} random waves of them, bandwidth 1 -> "
            f"{now['bandwidth']:.3g}{held}, where two rows are about 1 apart."
        )
    if options.features == "interactions":
        count, some = len(model.names), min(len(model.names), engine.MULTIPLIED)
        which = "all features" if some == count else f"the first {some} of {count} features"
        return f" It sees the features and the products of {which} with each other."
    return ""


def _lags(model: "Model") -> str:
    """Suggest lags if the last target alone predicts better than the model."""
    engine, what = model.engine, "label" if model.options.classify else "target"
    if model.options.lags:
        return f" It sees the last {model.options.lags} {what}(s)."
    if model.sparse or engine.learned < ENOUGH or engine.repeat_loss >= engine.total_loss:
        return ""
    return (
        f" The last {what} alone predicts better than the model (mean loss "
        f"{engine.repeat_loss / engine.learned:.4f}): try lags=1."
    )


def _carried(members: object) -> str:
    """Name the members with the largest shares."""
    if not isinstance(members, dict) or len(members) == 1:
        return ""
    order = sorted(members, key=members.__getitem__, reverse=True)
    large = ", ".join(f"{name} {members[name]:.0%}" for name in order if members[name] >= 0.05)
    return f" Of {len(members)} members the prediction is carried by: {large}."


def drift(loss: np.ndarray) -> np.ndarray:
    """Return recent loss over long-run loss at each point of the history: above 1, it got worse."""
    return _rolling(loss, RECENT) / np.maximum(_rolling(loss, LONG), 1e-12)


def plot(model: "Model") -> "Figure":
    """Return a figure of loss, drift, hyperparameters and the members' shares against rows."""
    from matplotlib.figure import Figure

    with model.lock:
        curves, stride = history(model), int(model.engine.stride)
        rejected_rows = [rejected["row"] for rejected in model.rejected]
    rows, loss, _ = (curves.pop(name) for name in ("row", "loss", "forgetting"))
    figure = Figure(figsize=(9, 2.2 * (2 + len(curves))), layout="constrained")
    axes = figure.subplots(2 + len(curves), 1, sharex=True)
    axes[0].plot(rows, loss, lw=0.6, alpha=0.4, label=f"mean of {stride} rows")
    axes[0].plot(rows, _rolling(loss, RECENT), lw=1.5, label=f"over {RECENT} points")
    axes[0].set_ylabel("loss before learning")
    axes[0].legend(loc="upper right", fontsize="small")
    axes[1].plot(rows, drift(loss), lw=1.2, color="tab:red")
    axes[1].axhline(1, lw=0.6, color="grey")
    axes[1].set_ylabel("drift: recent / long-run")
    for axis, (name, curve) in zip(axes[2:], curves.items(), strict=True):
        by_name = curve if isinstance(curve, dict) else {name: curve}
        for label, values in list(by_name.items())[:12]:
            axis.plot(rows, values, lw=1.2, label=str(label))
        if by_name and name not in ("logit_shifts", "members"):
            axis.set_yscale("log")
        axis.set_ylabel("memory, rows" if name == "memory" else name.replace("_", " "))
        if isinstance(curve, dict) and curve:
            axis.legend(loc="upper right", fontsize="small", ncols=3)
    for row in rejected_rows:
        axes[0].axvline(row, lw=0.4, color="tab:red", alpha=0.5)
    axes[-1].set_xlabel("row")
    return figure


def _rolling(values: np.ndarray, width: int) -> np.ndarray:
    """Return the running mean over up to `width` values."""
    sums = np.cumsum(np.insert(values, 0, 0.0))
    ends = np.arange(1, len(values) + 1)
    begins = np.maximum(ends - width, 0)
    return (sums[ends] - sums[begins]) / (ends - begins)
