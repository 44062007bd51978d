"""What `obax watch` shows of a stream."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._support.messages import counted
from ..estimators import Pool
from ..serve import page
from .results import rounded, select

if TYPE_CHECKING:
    from .job import Job

MAX_KEYS = 50
"""How many keys of a pool are shown, the worst first."""
MAX_REJECTED = 20
GREY_DOTS = {"colour": "#808080", "dash": "dot"}
QUESTION = "How well is this stream predicted, each row before it is learned?"


def write_page(job: "Job", *, done: bool = False) -> None:
    """Write the page of a stream into its checkpoint folder."""
    assert job.folder is not None
    model, score = job.model, job.score
    seconds = max(time.monotonic() - job.started, 1e-9)
    curves = rounded(score.curves)
    rows = curves.pop("row")
    charts = [
        page.chart(_title(name), "row", page.smoothed(name, rows, curve))
        for name, curve in curves.items()
    ]
    means = {name: f"{value:.4g}" for name, value in score.means.items()}
    if score.coverage is not None:
        requested = {"name": "requested", "x": rows, "y": [score.coverage] * len(rows)}
        charts[-1]["curves"].append(requested | GREY_DOTS)
        means[f"coverage, requested {score.coverage:g}"] = means.pop("coverage")
    main = "MAE" if score.numbers else "accuracy"
    # A job that is resumed after its end has processed nothing.
    new = job.rows - job.first_row
    speed = {"rows per second": f"{new / seconds:,.1f}"} if new else {}
    facts = {
        "rows": f"{job.rows:,}",
        **speed,
        **means,
        "mean loss": f"{model.mean_loss_:.4g}",
        "rejected": f"{model.rejected_.count:,}",
    }
    table: list[list[str]] = []
    if isinstance(model, Pool):
        # A pool of models has no history of its own.
        table, facts["keys"] = worst_keys(model), f"{len(model):,}"
    else:
        charts += history_charts(model)
    page.write(
        Path(job.folder.path),
        "stream",
        [one for one in charts if any(curve["x"] for curve in one["curves"])],
        facts.items(),
        question=QUESTION,
        answer=page.summary(_title(main), curves[main], counted(job.rows, "row")),
        table=table,
        rejected=[
            {"row": one["row"], "reason": one["reason"]} for one in model.rejected_[-MAX_REJECTED:]
        ],
        text=model.explain(),
        done=done,
    )


def history_charts(model: Any) -> list[dict[str, Any]]:
    """Return the charts of the loss and of each hyperparameter."""
    history = model.hyperparameter_history_
    every = slice(None, None, max(1, len(history["row"]) // page.MAX_POINTS))
    rows = history.pop("row")[every].tolist()
    loss = rounded(history.pop("loss")[every])
    charts = [page.chart("Loss before learning", "row", page.smoothed("loss", rows, loss))]
    for name, curve in rounded(select(history, every)).items():
        many = curve if isinstance(curve, dict) else {name: curve}
        # Forgetting says the same as memory, and the share of a single member is always 1.
        if name == "forgetting" or (name == "members" and len(many) == 1):
            continue
        drawn = {label: (rows, values) for label, values in many.items()}
        charts.append(page.chart(_title(name), "row", drawn, log=name != "members"))
    return charts


def worst_keys(pool: Pool) -> list[list[str]]:
    """Return the keys with the largest loss as a table, the head first."""
    table = pool.tenants(MAX_KEYS)
    columns = list(table.columns)
    cells = [
        [str(row["key"]), *(_cell(row[name]) for name in columns[1:])]
        for row in table.to_dict("records")
    ]
    return [[f"{columns[0]}, worst first", *columns[1:]], *cells]


def _cell(value: float) -> str:
    """Return a number as a table shows it; counts have all their digits."""
    if value != value:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def _title(name: str) -> str:
    if name == "members":
        return "Members' shares of the prediction"
    return f"{name[0].upper()}{name[1:]}".replace("_", " ")
