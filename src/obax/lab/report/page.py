"""One self-contained HTML page: it opens offline and asks nothing of the network.

It answers before it explains: question, answer, a small table, a figure; what comes after is
folded, and its charts are drawn when it is opened.
"""

import dataclasses
import itertools
import json
import math
import shlex
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from typing import Any

import pandas as pd

from ..._support.counting import counted
from ..kit.numbers import readable
from ..kit.styles import CYCLE, DASHES, Style
from ..kit.verdict import RULE, VERDICTS
from . import Answer, Claim, Figure, Findings, Table

MARKS = dict(zip(VERDICTS, ("yes", "partly", "noise", "no", "open"), strict=True))
Named = tuple[str, dict[str, Any], Findings]


def page(info: dict[str, Any], findings: Findings) -> str:
    """The report of one run."""
    charts: dict[str, Any] = {}
    head = f'<p class="what">obax run {escape(info["experiment"])}, {escape(info["preset"])}</p>'
    body = head + _run("", info, findings, charts)
    return _filled(f"obax: {info['experiment']}", body, charts)


def comparison(runs: Sequence[Named]) -> str:
    """The report of several runs: their answers, their figures over each other, then each."""
    charts: dict[str, Any] = {}
    experiments = list(dict.fromkeys(info["experiment"] for _, info, _ in runs))
    questions = dict.fromkeys(found.answers[0].question for _, _, found in runs)
    blocks = [
        f'<p class="what">{counted(len(runs), "run")} of {escape(", ".join(experiments))}</p>'
    ]
    blocks.append(f"<h1>{escape(' '.join(questions))}</h1>")
    said = "".join(
        _named_row(name, f"{info['experiment']} ({info['preset']})", found.answers[0].words)
        for name, info, found in runs
    )
    blocks.append(_scroll("Answers", _grid("", ("run", "experiment", "answer"), said)))
    overlays = [_overlay(figures) for figures in _shared(runs) if len(figures) > 1]
    leading = {found.answers[0].figure.name for _, _, found in runs}
    for figure, styles in overlays:
        if figure.name in leading:
            blocks.append(_figure(figure, "both", charts, styles))
    more = [
        _figure(figure, "both", charts, s) for figure, s in overlays if figure.name not in leading
    ]
    blocks.append(_folded(counted(len(more), "more figure"), "".join(more)))
    blocks.append(_folded("What differs: settings and verdicts", _differences(runs)))
    for name, info, found in runs:
        blocks.append(_folded(f"All of {name}", _run(f"{name}-", info, found, charts, "h3")))
    return _filled(f"obax: {', '.join(experiments)}", "".join(blocks), charts)


def _filled(title: str, body: str, charts: dict[str, Any]) -> str:
    # plotly is slow to import and only needed here.
    from plotly.offline import get_plotlyjs

    template = resources.files(__package__).joinpath("page.html").read_text()
    # In this order: what comes later may hold anything, and is put in once.
    filled = {
        "title": escape(title),
        "body": body,
        # "</" would end the script early; JSON allows the slash to be escaped.
        "charts": json.dumps(charts, allow_nan=False).replace("</", "<\\/"),
        "plotly": get_plotlyjs().replace("</script", "<\\/script"),
    }
    for key, value in filled.items():
        template = template.replace(f"@@{key}@@", value)
    return template


def _run(
    of: str, info: dict[str, Any], findings: Findings, charts: dict[str, Any], heading: str = "h1"
) -> str:
    """Of one run; `of` goes before the names of its charts."""
    blocks, headings = [], itertools.chain([heading], itertools.repeat("h2"))
    for answer, tag in zip(findings.answers, headings, strict=False):
        blocks.append(_answer(answer, tag, of, charts))
    figures = "".join(_figure(figure, of, charts) for figure in findings.figures)
    tables = "".join(_table(table) for table in findings.tables)
    words = "".join(f"<p>{escape(paragraph)}</p>" for paragraph in findings.paragraphs)
    claims = _claims(findings.claims) if findings.claims else ""
    blocks.append(_folded(f"What the paper claims: {findings.verdicts()}", claims))
    blocks.append(_folded(counted(len(findings.figures), "more figure"), figures))
    blocks.append(_folded(counted(len(findings.tables), "more table"), tables))
    blocks.append(_folded("How it was measured", words))
    blocks.append(_folded("Settings", _settings(info)))
    blocks.append(_folded("How to reproduce it", _reproduce(info)))
    return f"<section>{''.join(blocks)}</section>"


def _answer(answer: Answer, tag: str, of: str, charts: dict[str, Any]) -> str:
    return (
        f"<{tag}>{escape(answer.question)}</{tag}>"
        f'<p class="answer">{escape(answer.words)}</p>'
        f"{_table(answer.table, heading=False)}{_figure(answer.figure, of, charts)}"
    )


def _folded(summary: str, inside: str) -> str:
    """Details under a summary; nothing where there is nothing."""
    if not inside:
        return ""
    return f"<details><summary>{escape(summary)}</summary>{inside}</details>"


def _figure(
    figure: Figure, of: str, charts: dict[str, Any], styles: Sequence[Style] | None = None
) -> str:
    name = f"chart-{of}{figure.name}"
    charts[name] = _chart(figure, figure.styles() if styles is None else styles)
    return (
        f'<figure><h4>{escape(figure.title)}</h4><div class="chart" id="{escape(name)}" '
        f'role="img" tabindex="0" aria-label="{escape(figure.words())}"></div>'
        f"<figcaption>{escape(figure.note())}</figcaption></figure>"
    )


def _settings(info: dict[str, Any]) -> str:
    rows = "".join(_named_row(str(key), _plain(value)) for key, value in info["config"].items())
    return _scroll("Settings", f"<table>{rows}</table>")


def _reproduce(info: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in info["versions"].items())
    seconds = {name: part["seconds"] for name, part in info["parts"].items()}
    slowest = sorted(seconds, key=lambda name: -seconds[name])[:8]
    timing = "".join(f"<tr>{_cells(name, f'{seconds[name]:.2f}')}</tr>" for name in slowest)
    return (
        f"<pre>{escape(shlex.join(info['command']))}</pre>"
        f"<p>{escape(versions)}. Commit {escape(str(info['commit'] or 'unknown'))}. "
        f"{escape(info['machine'])}. Started {escape(info['started'])}, finished "
        f"{escape(str(info['finished']))}; {counted(len(seconds), 'part')}, "
        f"{sum(seconds.values()):.1f} s of work; the slowest:</p>"
        f"{_grid('', ('part', 'seconds'), timing)}"
    )


def _claims(claims: Sequence[Claim]) -> str:
    rows = "".join(
        f'<tr>{_cells(c.id, c.claimed, c.measured)}<td><span class="verdict {MARKS[c.verdict]}">'
        f"{escape(c.verdict)}</span></td>{_cells(c.setting)}</tr>"
        for c in claims
    )
    head = ("claim", "claimed", "measured", "verdict", "setting")
    grid = _grid("claims", head, rows)
    return f'{_scroll("Claims", grid)}<p class="note">{escape(RULE)}</p>'


def _table(table: Table, heading: bool = True) -> str:
    rows = "".join(
        "<tr>" + "".join(_cell(value) for value in row) + "</tr>"
        for row in table.frame.itertuples(index=False)
    )
    head = "".join(
        f'<th scope="col"><button type="button">{escape(str(name))}</button></th>'
        for name in table.frame.columns
    )
    grid = f'<table class="sortable"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    title = f"<h3>{escape(table.title)}</h3>" if heading else ""
    return f'{title}{_scroll(table.title, grid)}<p class="note">{escape(table.caption)}</p>'


def _scroll(name: str, inside: str) -> str:
    """A part that may be wider or longer than the page: the keyboard can reach and move it."""
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(name)}">{inside}</div>'
    )


def _grid(kind: str, head: Iterable[object], rows: str) -> str:
    return (
        f'<table class="{kind}"><thead><tr>{_cells(*head, tag="th")}</tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )


def _named_row(name: str, *values: str) -> str:
    return f"<tr>{_cells(name, tag='th')}{_cells(*values)}</tr>"


def _cells(*values: object, tag: str = "td") -> str:
    return "".join(f"<{tag}>{escape(str(value))}</{tag}>" for value in values)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return f"<td>{'yes' if value else 'no'}</td>"
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return '<td class="number" data-value="">-</td>'
    if isinstance(value, int | float):
        # A setting as it was set, a measurement to three digits.
        short = isinstance(value, int) or len(repr(value)) <= 5
        text = f"{value:g}" if short and abs(value) < 1e6 else readable(value)
        return f'<td class="number" data-value="{value!r}">{text}</td>'
    kind = (
        ' class="value"' if "±" in str(value) else ' class="long"' if len(str(value)) > 24 else ""
    )
    return f"<td{kind}>{escape(str(value))}</td>"


def _shared(runs: Sequence[Named]) -> Iterable[list[tuple[str, Figure]]]:
    """Figures by their name, each with the run that it is from."""
    found: dict[str, list[tuple[str, Figure]]] = {}
    for name, _, findings in runs:
        for figure in findings.every_figure():
            found.setdefault(figure.name, []).append((name, figure))
    return found.values()


def _overlay(figures: list[tuple[str, Figure]]) -> tuple[Figure, list[Style]]:
    """One figure of several runs: the colour is the method's, the dash is the run's. Methods that
    have one colour and differ in their dash elsewhere take a free one here."""
    series, styles = [], []
    own = {
        one.label: style.colour
        for _, figure in figures
        for one, style in zip(figure.series, figure.styles(), strict=True)
    }
    free = iter(colour for colour in CYCLE if colour not in own.values())
    colours: dict[str, str] = {}
    for label, colour in own.items():
        colours[label] = next(free, colour) if colour in colours.values() else colour
    for (run, figure), dash in zip(figures, itertools.cycle(DASHES)):
        for one in figure.series:
            series.append(dataclasses.replace(one, label=f"{one.label} ({run})", method=""))
            styles.append(Style(colours[one.label], dash))
    # Each run says of itself what differs, such as the data.
    titles, captions = (
        list(dict.fromkeys(getattr(figure, what) for _, figure in figures))
        for what in ("title", "caption")
    )
    said = [*captions, f"The dash says which run: {', '.join(run for run, _ in figures)}."]
    title, caption = "; ".join(titles), " ".join(said)
    return dataclasses.replace(figures[0][1], series=series, title=title, caption=caption), styles


def _differences(runs: Sequence[Named]) -> str:
    """Settings that differ, and the verdicts beside each other."""
    rows = []
    keys = dict.fromkeys(key for _, info, _ in runs for key in info["config"])
    for key in ("experiment", "preset", *keys):
        values = [_plain(info.get(key, info["config"].get(key, "-"))) for _, info, _ in runs]
        if len(set(values)) > 1 or key == "experiment":
            rows.append(_named_row(key, *values))
    verdicts = [{claim.id: claim.verdict for claim in found.claims} for _, _, found in runs]
    for claim in dict.fromkeys(itertools.chain(*verdicts)):
        rows.append(_named_row(claim, *(of_run.get(claim, "-") for of_run in verdicts)))
    head = ("", *(name for name, _, _ in runs))
    return _scroll("What differs", _grid("", head, "".join(rows)))


def _chart(figure: Figure, styles: Sequence[Style]) -> dict[str, Any]:
    traces: list[dict[str, Any]] = []
    for series, (colour, dash) in zip(figure.series, styles, strict=True):
        x, shape = _numbers(series.x), "hv" if series.steps else "linear"
        silent = {"hoverinfo": "skip", "showlegend": False, "legendgroup": series.label}
        if series.low is not None and series.high is not None:
            around = _numbers([*series.high, *reversed(series.low)])
            band = {"x": x + x[::-1], "y": around, "fill": "toself", "fillcolor": colour + "2e"}
            traces.append(band | {"line": {"width": 0}} | silent)
        if series.seeds:
            # One trace for all of them: a gap after each.
            each = [value for seed in series.seeds for value in [*_numbers(seed), None]]
            line = {"color": colour, "width": 0.8, "shape": shape}
            thin = {"x": [*x, None] * len(series.seeds), "y": each, "mode": "lines", "line": line}
            traces.append(thin | {"opacity": 0.4} | silent)
        traces.append(
            {
                "x": x,
                "y": _numbers(series.mean),
                "name": series.label,
                "legendgroup": series.label,
                "mode": "lines+markers" if len(x) < 15 and not series.steps else "lines",
                "line": {"color": colour, "dash": dash, "width": 2, "shape": shape},
                "hovertemplate": f"%{{y:.4g}}<extra>{series.hover or '%{fullData.name}'}</extra>",
            }
        )

    def axis(label: str, log: bool, along: str) -> dict[str, Any]:
        # The name keeps its distance from the numbers, however many digits they have.
        title = {"text": label, "standoff": 8}
        own: dict[str, Any] = {"type": "log" if log else "linear"}
        shown = [value for trace in traces for value in trace[along] if value and value > 0]
        if log and shown and max(shown) >= 100 * min(shown):
            # Powers of ten alone: the twos and fives between them look like values of their own.
            own["dtick"] = 1
        return {"title": title, "automargin": True} | own

    layout = {
        "xaxis": axis(figure.x_label, figure.log_x, "x"),
        "yaxis": axis(figure.y_label, figure.log_y, "y"),
        # Whole settings, not their first letters.
        "hoverlabel": {"namelength": -1},
    }
    return {"data": traces, "layout": layout}


def _numbers(values: Iterable[float]) -> list[float | None]:
    """To six digits; JSON has no word for what is not finite."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]


def _plain(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
