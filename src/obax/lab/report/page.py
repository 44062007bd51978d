"""One self-contained HTML page: it opens offline and asks nothing of the network."""

import html
import json
import shlex
from collections.abc import Sequence
from importlib import resources
from typing import Any

import pandas as pd

from ..kit.verdict import RULE
from .figures import COLOURS
from .findings import Claim, Figure, Findings, Table

PLOTLY_DASHES = ("solid", "dash", "dashdot", "dot", "longdashdot", "longdash", "solid", "dash")
MARKS = {
    "reproduced": "yes",
    "partly": "partly",
    "within noise": "noise",
    "not reproduced": "no",
    "not tested": "open",
}


def page(title: str, runs: Sequence[tuple[dict[str, Any], Findings]]) -> str:
    """The report of one run, or of several side by side."""
    template = resources.files(__package__).joinpath("page.html").read_text()
    charts: dict[str, Any] = {}
    sections = [_run(info, findings, index, charts) for index, (info, findings) in enumerate(runs)]
    compared = _comparison(runs) if len(runs) > 1 else ""
    # In this order: what comes later may hold anything, and is put in once.
    filled = {
        "title": html.escape(title),
        "columns": str(min(len(runs), 3)),
        "comparison": compared,
        "runs": "\n".join(sections),
        # "</" would end the script early; JSON allows the slash to be escaped.
        "charts": json.dumps(charts, allow_nan=False).replace("</", "<\\/"),
        "plotly": _plotly().replace("</script", "<\\/script"),
    }
    for key, value in filled.items():
        template = template.replace(f"@@{key}@@", value)
    return template


def _plotly() -> str:
    # plotly is slow to import and only needed here.
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()


def _run(info: dict[str, Any], findings: Findings, index: int, charts: dict[str, Any]) -> str:
    blocks = [
        f"<h2>{html.escape(info['experiment'])} <small>{html.escape(info['preset'])}</small></h2>"
    ]
    blocks.append(_what_was_run(info))
    if findings.claims:
        blocks.append("<h3>Claims</h3>" + _claims(findings.claims))
    blocks += [f"<p>{html.escape(paragraph)}</p>" for paragraph in findings.paragraphs]
    for figure in findings.figures:
        name = f"chart-{index}-{figure.name}"
        charts[name] = _chart(figure)
        blocks.append(
            f'<figure><h4>{html.escape(figure.title)}</h4><div class="chart" id="{name}" '
            f'role="img" aria-label="{html.escape(figure.title)}"></div>'
            f"<figcaption>{html.escape(figure.caption)}</figcaption></figure>"
        )
    blocks += [_table(table) for table in (findings.summary, *findings.tables)]
    blocks.append(_reproduce(info))
    return f"<section>{''.join(blocks)}</section>"


def _what_was_run(info: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><th>{html.escape(str(key))}</th><td>{html.escape(_plain(value))}</td></tr>"
        for key, value in info["config"].items()
    )
    seconds = sum(part["seconds"] for part in info["parts"].values())
    return (
        f"<p>Started {html.escape(info['started'])}, finished "
        f"{html.escape(str(info['finished']))}; {len(info['parts'])} parts, {seconds:.1f} s of "
        f"work.</p>"
        f"<details><summary>Settings</summary><table>{rows}</table></details>"
    )


def _reproduce(info: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in info["versions"].items())
    slow = sorted(info["parts"].items(), key=lambda part: -part[1]["seconds"])[:8]
    timing = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{part['seconds']:.2f}</td></tr>"
        for name, part in slow
    )
    return (
        f"<h3>How to reproduce</h3><pre>{html.escape(shlex.join(info['command']))}</pre>"
        f"<p>{html.escape(versions)}. Commit {html.escape(str(info['commit'] or 'unknown'))}. "
        f"{html.escape(info['machine'])}.</p>"
        f"<details><summary>Slowest parts</summary><table><thead><tr><th>part</th>"
        f"<th>seconds</th></tr></thead><tbody>{timing}</tbody></table></details>"
    )


def _claims(claims: Sequence[Claim]) -> str:
    rows = "".join(
        f"<tr><td>{html.escape(c.id)}</td><td>{html.escape(c.claimed)}</td>"
        f'<td>{html.escape(c.measured)}</td><td><span class="verdict {MARKS[c.verdict]}">'
        f"{html.escape(c.verdict)}</span></td><td>{html.escape(c.setting)}</td></tr>"
        for c in claims
    )
    return (
        '<div class="scroll"><table class="claims"><thead><tr><th>claim</th><th>claimed</th>'
        "<th>measured</th><th>verdict</th><th>setting</th></tr></thead><tbody>"
        f'{rows}</tbody></table></div><p class="rule">{html.escape(RULE)}</p>'
    )


def _table(table: Table) -> str:
    head = "".join(f"<th>{html.escape(str(column))}</th>" for column in table.frame.columns)
    rows = "".join(
        "<tr>" + "".join(_cell(value) for value in row) + "</tr>"
        for row in table.frame.itertuples(index=False)
    )
    return (
        f"<h3>{html.escape(table.title)}</h3><p>{html.escape(table.caption)}</p>"
        f'<div class="scroll tall"><table class="sortable"><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return f"<td>{'yes' if value else 'no'}</td>"
    if isinstance(value, int | float):
        if pd.isna(value):
            return '<td class="number" data-value="">-</td>'
        text = str(value) if isinstance(value, int) else f"{value:.4g}"
        return f'<td class="number" data-value="{value!r}">{text}</td>'
    return f"<td>{html.escape(str(value))}</td>"


def _comparison(runs: Sequence[tuple[dict[str, Any], Findings]]) -> str:
    """Settings that differ, and the verdicts beside each other."""
    names = [f"run {index + 1}" for index in range(len(runs))]
    head = "".join(f"<th>{name}</th>" for name in names)
    rows = []
    keys = dict.fromkeys(key for info, _ in runs for key in info["config"])
    for key in ("experiment", "preset", *keys):
        values = [_plain(info.get(key, info["config"].get(key, "-"))) for info, _ in runs]
        if len(set(values)) > 1 or key == "experiment":
            cells = "".join(f"<td>{html.escape(value)}</td>" for value in values)
            rows.append(f"<tr><th>{html.escape(key)}</th>{cells}</tr>")
    claims = dict.fromkeys(claim.id for _, findings in runs for claim in findings.claims)
    for claim_id in claims:
        found = [
            next((c.verdict for c in findings.claims if c.id == claim_id), "-")
            for _, findings in runs
        ]
        cells = "".join(f"<td>{html.escape(verdict)}</td>" for verdict in found)
        rows.append(f"<tr><th>{html.escape(claim_id)}</th>{cells}</tr>")
    return (
        f'<h2>Side by side</h2><div class="scroll"><table><thead><tr><th></th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _chart(figure: Figure) -> dict[str, Any]:
    traces: list[dict[str, Any]] = []
    for index, series in enumerate(figure.series):
        colour = COLOURS[index % len(COLOURS)]
        x = [_number(v) for v in series.x]
        low = series.lower(figure.log_y)
        if low is not None and series.high is not None:
            band = {
                "x": x + x[::-1],
                "fill": "toself",
                "fillcolor": colour + "2e",
                "hoverinfo": "skip",
            }
            band["y"] = [_number(v) for v in [*series.high, *list(low)[::-1]]]
            traces.append(
                band | {"line": {"width": 0}, "showlegend": False, "legendgroup": series.label}
            )
        traces.append(
            {
                "x": x,
                "y": [_number(v) for v in series.mean],
                "name": series.label,
                "legendgroup": series.label,
                "mode": "lines+markers" if len(x) < 15 else "lines",
                "line": {
                    "color": colour,
                    "dash": PLOTLY_DASHES[index % len(PLOTLY_DASHES)],
                    "width": 2,
                    "shape": "hv" if series.steps else "linear",
                },
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


def _number(value: float) -> float | None:
    number = float(value)
    return number if number == number and abs(number) != float("inf") else None


def _plain(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
