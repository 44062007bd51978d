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
    model, now = served.model, numbers(served)
    facts = {
        "rows learned": f"{served.rows:,}",
        "mean loss": f"{now['mean_loss']:.4g}",
        "rejected": f"{int(now['rows_rejected']):,}",
        "rows waiting for labels": f"{int(now['pending_labels']):,}",
        "checkpoint": "none: read only"
        if served.journal is None
        else f"{now['checkpoint_age_seconds']:.0f} s ago",
    }
    charts: list[dict[str, Any]] = []
    table: list[list[str]] = []
    answer = "Nothing has been learned yet."
    if served.pool is not None:
        facts["keys"] = f"{len(served.pool):,}"
        table = worst_keys(served.pool) if len(served.pool) else []
        answer = f"Mean loss {now['mean_loss']:.4g} over {counted(served.rows, 'row')}."
    elif served.rows:
        charts = history_charts(model)
        losses = model.hyperparameter_history_["loss"].tolist()
        answer = page.summary("Loss", losses, counted(served.rows, "row"))
    shown = [{"row": one["row"], "reason": one["reason"]} for one in model.rejected_]
    return page.Page(
        served.name,
        charts,
        facts.items(),
        question=QUESTION,
        answer=answer,
        table=table,
        rejected=shown[-MAX_REJECTED:],
        text=model.explain(),
    ).contents()
