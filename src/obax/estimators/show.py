"""What was learned, in words and as a figure."""

import math
from typing import TYPE_CHECKING

import numpy as np

from .._support.counting import counted
from .core import Core
from .intervals import reached
from .kernel import MULTIPLIED, WAVES
from .outcome import Hyperparameters

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RECENT, LONG = 20, 200
ENOUGH = 200
"""Rows before anything is suggested."""


def explain(core: Core) -> str:
    """A few sentences: how long, how well, what the hyperparameters came to, what was rejected."""
    rows, loss, _ = core.record.arrays()
    if not len(rows):
        text = "No row has been learned yet."
        if core.rejected.count:
            text += f" {core.rejected.count:,} rejected, {core.rejected.most_often()}."
        return text
    now = core.hyperparameters()
    mean = core.record.total / core.record.seen
    recent = float(loss[-RECENT:].mean())
    trend = "about as well as before"
    if recent < 0.9 * mean:
        trend = "better than on average"
    elif recent > 1.1 * mean:
        trend = "worse than on average: the stream may be drifting"
    what = "log loss" if core.options.classify else "loss (in deviations of the target)"
    penalty = now["penalty"]
    if isinstance(penalty, dict):
        order = sorted(penalty, key=penalty.__getitem__)
        penalty_words = (
            f"penalties from {penalty[order[0]]:.3g} ({order[0]}) to "
            f"{penalty[order[-1]]:.3g} ({order[-1]})"
        )
    else:
        penalty_words = f"penalty {core.options.penalty:.3g} -> {penalty:.3g}"
    text = (
        f"{counted(core.record.seen, 'row')} learned, mean {what} {mean:.4f}, lately {recent:.4f}: "
        f"{trend}. It looks back about {now['memory']:.0f} rows (forgetting "
        f"{now['forgetting']:.4f}; it began with {core.options.memory:.0f}), {penalty_words}, "
        f"inertia {core.options.inertia:.3g} -> {now['inertia']:.3g}."
    )
    text += _carried(now["members"])
    text += _columns(core, now)
    fixed = [
        name for name in ("penalty", "forgetting", "inertia") if name not in core.options.learn
    ]
    if fixed:
        text += f" Held fixed: {', '.join(fixed)}."
    for asked, found in reached(core).items():
        if not math.isnan(found):
            kind = "sets" if core.options.classify else "intervals"
            text += (
                f" Its {asked:.4g} {kind} held {found:.1%} of the rows since they were asked for."
            )
    if core.rejected.count:
        last = core.rejected[-1]
        rows_were = "rows were" if core.rejected.count > 1 else "row was"
        text += (
            f" {core.rejected.count:,} {rows_were} rejected, the last (row {last['row']:,}) "
            f"because {last['reason']}."
        )
    if core.pending.dropped:
        many = core.pending.dropped > 1
        were, labels = ("rows were", "their labels") if many else ("row was", "its label")
        text += f" {core.pending.dropped:,} {were} dropped before {labels} came."
    if core.ignored:
        limit = "max_memory" if len(core.names) < core.options.most_features else "max_features"
        text += (
            f" {counted(core.ignored, 'value')} of features beyond the first {len(core.names):,} "
            f"({limit}) {'was' if core.ignored == 1 else 'were'} ignored."
        )
    return text + _lags(core)


def _columns(core: Core, now: Hyperparameters) -> str:
    """What is made of the features."""
    if core.options.features == "fourier":
        held = "" if "bandwidth" in core.options.learn else " (held fixed)"
        return (
            f" It sees the features and {WAVES} random waves of them, bandwidth 1 -> "
            f"{now['bandwidth']:.3g}{held}, where two rows are about 1 apart."
        )
    if core.options.features == "interactions":
        count, some = len(core.names), min(len(core.names), MULTIPLIED)
        which = "all features" if some == count else f"the first {some} of {count} features"
        return f" It sees the features and the products of {which} with each other."
    return ""


def _lags(core: Core) -> str:
    """That lags are worth a try, where the last target alone predicts better than the model."""
    record, what = core.record, "label" if core.options.classify else "target"
    if core.options.lags:
        return f" It sees the last {core.options.lags} {what}(s)."
    if core.wide or record.seen < ENOUGH or record.repeat_total >= record.total:
        return ""
    return (
        f" The last {what} alone predicts better than the model (mean loss "
        f"{record.repeat_total / record.seen:.4f}): try lags=1."
    )


def _carried(members: object) -> str:
    """Who carries the prediction."""
    if not isinstance(members, dict) or len(members) == 1:
        return ""
    order = sorted(members, key=members.__getitem__, reverse=True)
    said = ", ".join(f"{name} {members[name]:.0%}" for name in order if members[name] >= 0.05)
    return f" Of {len(members)} members the prediction is carried by: {said}."


def drift(loss: np.ndarray) -> np.ndarray:
    """Recent loss over long-run loss, at each point of the record: above 1, it got harder."""
    return _rolling(loss, RECENT) / np.maximum(_rolling(loss, LONG), 1e-12)


def plot(core: Core) -> "Figure":
    """Loss, drift, hyperparameters and the members' shares against rows."""
    from matplotlib.figure import Figure

    rows, loss, x = core.record.arrays()
    curves = core.hyperparameters(x)
    curves.pop("forgetting")
    figure = Figure(figsize=(9, 2.2 * (2 + len(curves))), layout="constrained")
    axes = figure.subplots(2 + len(curves), 1, sharex=True)
    axes[0].plot(rows, loss, lw=0.6, alpha=0.4, label=f"mean of {core.record.stride} rows")
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
        if name not in ("logit_shifts", "members"):
            axis.set_yscale("log")
        axis.set_ylabel("memory, rows" if name == "memory" else name.replace("_", " "))
        if isinstance(curve, dict):
            axis.legend(loc="upper right", fontsize="small", ncols=3)
    for rejected in core.rejected:
        axes[0].axvline(rejected["row"], lw=0.4, color="tab:red", alpha=0.5)
    axes[-1].set_xlabel("row")
    return figure


def _rolling(values: np.ndarray, width: int) -> np.ndarray:
    """Mean of up to `width` values back."""
    sums = np.cumsum(np.insert(values, 0, 0.0))
    ends = np.arange(1, len(values) + 1)
    begins = np.maximum(ends - width, 0)
    return (sums[ends] - sums[begins]) / (ends - begins)
