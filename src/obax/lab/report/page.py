"""One self-contained HTML page: it opens offline and asks nothing of the network."""

import itertools
import json
import math
import shlex
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from typing import Any

import pandas as pd

from ..kit.verdict import RULE, VERDICTS
from . import Claim, Figure, Findings, Table
from .figures import COLOURS

PLOTLY_DASHES = ("solid", "dash", "dashdot", "dot", "longdashdot", "longdash", "solid", "dash")
MARKS = dict(zip(VERDICTS, ("yes", "partly", "noise", "no", "open"), strict=True))


def page(title: str, runs: Sequence[tuple[dict[str, Any], Findings]]) -> str:
    """The report of one run, or of several side by side."""
    # plotly is slow to import and only needed here.
    from plotly.offline import get_plotlyjs

    template = resources.files(__package__).joinpath("page.html").read_text()
    charts: dict[str, Any] = {}
    sections = [_run(info, findings, index, charts) for index, (info, findings) in enumerate(runs)]
    compared = _comparison(runs) if len(runs) > 1 else ""
    # In this order: what comes later may hold anything, and is put in once.
    filled = {
        "title": escape(title),
        "columns": str(min(len(runs), 3)),
        "comparison": compared,
        "runs": "\n".join(sections),
        # "</" would end the script early; JSON allows the slash to be escaped.
        "charts": json.dumps(charts, allow_nan=False).replace("</", "<\\/"),
        "plotly": get_plotlyjs().replace("</script", "<\\/script"),
    }
    for key, value in filled.items():
        template = template.replace(f"@@{key}@@", value)
    return template


def _run(info: dict[str, Any], findings: Findings, index: int, charts: dict[str, Any]) -> str:
    blocks = [f"<h2>{escape(info['experiment'])} <small>{escape(info['preset'])}</small></h2>"]
    blocks.append(_what_was_run(info))
    if findings.claims:
        blocks.append("<h3>Claims</h3>" + _claims(findings.claims))
    blocks += [f"<p>{escape(paragraph)}</p>" for paragraph in findings.paragraphs]
    for figure in findings.figures:
        name = f"chart-{index}-{figure.name}"
        charts[name] = _chart(figure)
        blocks.append(
            f'<figure><h4>{escape(figure.title)}</h4><div class="chart" id="{name}" '
            f'role="img" aria-label="{escape(figure.title)}"></div>'
            f"<figcaption>{escape(figure.caption)}</figcaption></figure>"
        )
    blocks += [_table(table) for table in (findings.summary, *findings.tables)]
    blocks.append(_reproduce(info))
    return f"<section>{''.join(blocks)}</section>"


def _what_was_run(info: dict[str, Any]) -> str:
    rows = "".join(_named_row(str(key), _plain(value)) for key, value in info["config"].items())
    seconds = sum(part["seconds"] for part in info["parts"].values())
    return (
        f"<p>Started {escape(info['started'])}, finished {escape(str(info['finished']))}; "
        f"{len(info['parts'])} parts, {seconds:.1f} s of work.</p>"
        f"<details><summary>Settings</summary><table>{rows}</table></details>"
    )


def _reproduce(info: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in info["versions"].items())
    seconds = {name: part["seconds"] for name, part in info["parts"].items()}
    slowest = sorted(seconds, key=lambda name: -seconds[name])[:8]
    timing = "".join(f"<tr>{_cells(name, f'{seconds[name]:.2f}')}</tr>" for name in slowest)
    return (
        f"<h3>How to reproduce</h3><pre>{escape(shlex.join(info['command']))}</pre>"
        f"<p>{escape(versions)}. Commit {escape(str(info['commit'] or 'unknown'))}. "
        f"{escape(info['machine'])}.</p><details><summary>Slowest parts</summary>"
        f"{_grid('<table>', ('part', 'seconds'), timing)}</details>"
    )


def _claims(claims: Sequence[Claim]) -> str:
    rows = "".join(
        f'<tr>{_cells(c.id, c.claimed, c.measured)}<td><span class="verdict {MARKS[c.verdict]}">'
        f"{escape(c.verdict)}</span></td>{_cells(c.setting)}</tr>"
        for c in claims
    )
    head = ("claim", "claimed", "measured", "verdict", "setting")
    grid = _grid('<table class="claims">', head, rows)
    return f'<div class="scroll">{grid}</div><p class="rule">{escape(RULE)}</p>'


def _table(table: Table) -> str:
    rows = "".join(
        "<tr>" + "".join(_cell(value) for value in row) + "</tr>"
        for row in table.frame.itertuples(index=False)
    )
    grid = _grid('<table class="sortable">', table.frame.columns, rows)
    return (
        f"<h3>{escape(table.title)}</h3><p>{escape(table.caption)}</p>"
        f'<div class="scroll tall">{grid}</div>'
    )


def _grid(table: str, head: Iterable[object], rows: str) -> str:
    return f"{table}<thead><tr>{_cells(*head, tag='th')}</tr></thead><tbody>{rows}</tbody></table>"


def _named_row(name: str, *values: str) -> str:
    return f"<tr>{_cells(name, tag='th')}{_cells(*values)}</tr>"


def _cells(*values: object, tag: str = "td") -> str:
    return "".join(f"<{tag}>{escape(str(value))}</{tag}>" for value in values)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return f"<td>{'yes' if value else 'no'}</td>"
    if isinstance(value, int | float):
        if pd.isna(value):
            return '<td class="number" data-value="">-</td>'
        text = str(value) if isinstance(value, int) else f"{value:.4g}"
        return f'<td class="number" data-value="{value!r}">{text}</td>'
    return f"<td>{escape(str(value))}</td>"


def _comparison(runs: Sequence[tuple[dict[str, Any], Findings]]) -> str:
    """Settings that differ, and the verdicts beside each other."""
    rows = []
    keys = dict.fromkeys(key for info, _ in runs for key in info["config"])
    for key in ("experiment", "preset", *keys):
        values = [_plain(info.get(key, info["config"].get(key, "-"))) for info, _ in runs]
        if len(set(values)) > 1 or key == "experiment":
            rows.append(_named_row(key, *values))
    verdicts = [{claim.id: claim.verdict for claim in found.claims} for _, found in runs]
    for claim in dict.fromkeys(itertools.chain(*verdicts)):
        rows.append(_named_row(claim, *(of_run.get(claim, "-") for of_run in verdicts)))
    head = ("", *(f"run {index + 1}" for index in range(len(runs))))
    grid = _grid("<table>", head, "".join(rows))
    return f'<h2>Side by side</h2><div class="scroll">{grid}</div>'


def _chart(figure: Figure) -> dict[str, Any]:
    traces: list[dict[str, Any]] = []
    for index, series in enumerate(figure.series):
        colour, x = COLOURS[index % len(COLOURS)], _numbers(series.x)
        low = series.lower(figure.log_y)
        if low is not None and series.high is not None:
            band: dict[str, Any] = {"x": x + x[::-1], "fill": "toself", "fillcolor": colour + "2e"}
            band |= {"hoverinfo": "skip", "y": _numbers([*series.high, *reversed(low)])}
            band |= {"line": {"width": 0}, "showlegend": False, "legendgroup": series.label}
            traces.append(band)
        dash, shape = PLOTLY_DASHES[index % len(PLOTLY_DASHES)], "hv" if series.steps else "linear"
        traces.append(
            {
                "x": x,
                "y": _numbers(series.mean),
                "name": series.label,
                "legendgroup": series.label,
                "mode": "lines+markers" if len(x) < 15 else "lines",
                "line": {"color": colour, "dash": dash, "width": 2, "shape": shape},
                "hovertemplate": f"%{{y:.4g}}<extra>{series.hover or '%{fullData.name}'}</extra>",
            }
        )
    axis = lambda label, log: {"title": {"text": label}, "type": "log" if log else "linear"}  # noqa: E731
    layout = {
        "xaxis": axis(figure.x_label, figure.log_x),
        "yaxis": axis(figure.y_label, figure.log_y),
        # Whole settings, not their first letters.
        "hoverlabel": {"namelength": -1},
    }
    return {"data": traces, "layout": layout}


def _numbers(values: Iterable[float]) -> list[float | None]:
    """JSON has no word for what is not finite."""
    return [float(value) if math.isfinite(value) else None for value in values]


def _plain(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
