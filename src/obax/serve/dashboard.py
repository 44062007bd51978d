"""What the page of `obax serve` shows of a model."""

from typing import Any

from .._support.messages import counted
from ..streaming.page import MAX_REJECTED, history_charts, worst_keys
from . import page
from .metrics import numbers
from .model import ServedModel

QUESTION = "How well is this model predicting, each row before it is learned?"


def page_of_model(served: ServedModel) -> dict[str, Any]:
    """Return what the page shows of a model now."""
    model, values = served.model, numbers(served)
    shown = page.Page(
        served.name,
        facts=[(name.replace("_", " "), _shown(value)) for name, value in values.items()],
        question=QUESTION,
        answer="Nothing has been learned yet.",
        rejected=[
            {"row": one["row"], "reason": one["reason"]} for one in model.rejected_[-MAX_REJECTED:]
        ],
        text=model.explain(),
    )
    rows = counted(served.rows, "row")
    if served.pool is not None and len(served.pool):
        shown.table = worst_keys(served.pool)
        shown.answer = f"Mean loss {values['mean_loss']:.4g} over {rows}."
    elif served.pool is None and served.rows:
        shown.charts = history_charts(model)
        losses = model.hyperparameter_history_["loss"].tolist()
        shown.answer = page.summary("Loss", losses, rows)
    return shown.contents()


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value.is_integer() else f"{value:,.4g}"
