"""The page: self-contained, escaped, sortable; and in a real browser where there is one."""

import dataclasses
import json
import re

import pandas as pd
import pytest
from browser import FOUND, browser

from obax.lab import report
from obax.lab.kit.styles import own_style
from obax.lab.report import Answer, Claim, Figure, Findings, Series, Table, figures

INFO = {
    "experiment": "toy",
    "preset": "quick",
    "config": {"horizon": 3, "sizes": [1, 2]},
    "command": ["obax", "run", "toy"],
    "versions": {"jax": "1"},
    "commit": None,
    "machine": "m",
    "started": "then",
    "finished": "now",
    "parts": {"a": {"seconds": 1.0, "file": "f", "sha256": "0"}},
}


def figure(name="curves", title="Curves", **more):
    seeds = [[0.5, 1.0, 2.0], [1.5, 3.0, 4.0]]
    series = [
        Series("first <b>", [1, 10, 100], [1.0, 2.0, float("inf")], seeds=seeds, hover="all of it"),
        Series("OAGD, w = 1", [1, 10, 100], [3.0, 2.0, 1.0], [2, 1, 0.5], [4, 3, 2], steps=True),
    ]
    return Figure(name, title, "round t", "regret", series, "A caption.", **more)


def found(claims=True):
    frame = pd.DataFrame({"name": ["b", "a"], "value": [2.5, float("nan")], "n": [1, 2]})
    table = Table("t", "Numbers", "Cap.", frame)
    claim = Claim("C1", "it </script> falls", "it does & more", "partly", "T=3")
    answer = Answer("Does it fall?", "Yes: by 1.20 ± 0.30.", table, figure(log_x=True))
    others = [figure("more", "Others")]
    return Findings([answer], [claim] * claims, others, [], ["Words."])


@pytest.fixture
def page(tmp_path):
    return report.write(tmp_path, INFO, found())


def test_everything_is_in_the_page_and_escaped(page):
    text = page.read_text()
    assert "@@" not in re.sub(r"<script>.*?</script>", "", text, flags=re.S)
    assert "it &lt;/script&gt; falls" in text
    assert "it does &amp; more" in text
    assert 'data-value="2.5"' in text
    assert "obax run toy" in text
    charts = json.loads(re.search(r'id="charts">(.*?)</script>', text, re.S).group(1))
    assert list(charts) == ["chart-curves", "chart-more"]
    chart = charts["chart-curves"]
    thin, first, band, second = chart["data"]
    assert (first["name"], second["name"]) == ("first <b>", "OAGD, w = 1")
    assert first["y"] == [1.0, 2.0, None] and first["hovertemplate"].endswith("all of it</extra>")
    assert thin["y"] == [0.5, 1.0, 2.0, None, 1.5, 3.0, 4.0, None]
    assert band["y"] == [4.0, 3.0, 2.0, 0.5, 1.0, 2.0]
    assert second["line"]["color"] == own_style("OAGD, w = 1").colour
    axis = chart["layout"]["xaxis"]
    assert axis["title"]["text"] == "round t" and axis["type"] == "log" and axis["automargin"]


def test_a_page_answers_before_it_explains(page):
    """Question, answer, table and figure in this order, and only then what is folded."""
    text = page.read_text().split("<body>")[1].split("<script>")[0]
    order = ["<h1>Does it fall?", "Yes: by 1.20 ± 0.30.", "<table", 'role="img"', "<details>"]
    places = [text.index(words) for words in order]
    assert places == sorted(places)
    folded = text[places[-1] :]
    for words in (
        "claims: 1 partly",
        "1 more figure",
        "How it was measured",
        "Settings",
        "reproduce",
    ):
        assert words in folded and words not in text[: places[-1]]
    assert ">nan<" not in text


def test_a_wide_logarithmic_axis_has_powers_of_ten_alone(page, tmp_path):
    """And a narrow one, or a linear one, what plotly chooses."""
    narrow = figure("narrow", log_y=True)
    findings = dataclasses.replace(found(), figures=[narrow])
    text = report.write(tmp_path / "b", INFO, findings).read_text()
    charts = json.loads(re.search(r'id="charts">(.*?)</script>', text, re.S).group(1))
    assert charts["chart-curves"]["layout"]["xaxis"]["dtick"] == 1
    assert "dtick" not in charts["chart-curves"]["layout"]["yaxis"]
    assert "dtick" not in charts["chart-narrow"]["layout"]["yaxis"]


def test_nothing_is_shown_empty(tmp_path):
    text = report.write(tmp_path, INFO, found(claims=False)).read_text()
    body = text.split("<body>")[1].split("<script>")[0]
    assert "claims" not in body and "more table" not in body
    assert found(claims=False).verdicts() == ""


def test_figures_are_written_twice_the_same(tmp_path):
    report.write(tmp_path / "a", INFO, found())
    report.write(tmp_path / "b", INFO, found())
    for kind in ("png", "svg"):
        first, second = (tmp_path / run / "figures" / f"curves.{kind}" for run in "ab")
        assert first.read_bytes() == second.read_bytes()
        assert len(first.read_bytes()) > 1000


def test_figures_say_what_they_show():
    canvas = figures.draw(figure(log_x=True))
    axes = canvas.axes[0]
    assert axes.get_xlabel() == "round t"
    assert axes.get_ylabel() == "regret"
    assert axes.get_xscale() == "log"
    (legend,) = canvas.legends
    assert [text.get_text() for text in legend.get_texts()] == ["first <b>", "OAGD, w = 1"]
    # Outside: below the axes, where it hides nothing.
    canvas.draw_without_rendering()
    assert legend.get_window_extent().y1 <= axes.get_tightbbox().y0 + 1
    assert axes.lines[0].get_linewidth() < axes.lines[2].get_linewidth()


def test_several_runs_are_laid_over_each_other_by_their_folders(tmp_path):
    other = INFO | {"config": {"horizon": 9, "sizes": [1, 2]}}
    runs = [(INFO, found()), (other, found())]
    text = report.write_comparison(tmp_path / "c.html", runs, ["mine", "yours"]).read_text()
    assert "<th>horizon</th><td>3</td><td>9</td>" in text
    assert "<th>sizes</th>" not in text.split("All of mine")[0]
    charts = json.loads(re.search(r'id="charts">(.*?)</script>', text, re.S).group(1))
    drawn = [trace for trace in charts["chart-bothcurves"]["data"] if "name" in trace]
    assert [trace["name"] for trace in drawn] == [
        "first <b> (mine)", "OAGD, w = 1 (mine)", "first <b> (yours)", "OAGD, w = 1 (yours)",
    ]  # fmt: skip
    # The colour is the method's, the dash is the run's.
    lines = [(trace["line"]["color"], trace["line"]["dash"]) for trace in drawn]
    assert lines[0][0] == lines[2][0] != lines[1][0] == lines[3][0]
    assert lines[0][1] == lines[1][1] != lines[2][1] == lines[3][1]


def test_methods_of_one_colour_are_told_apart_where_the_dash_is_the_runs(tmp_path):
    """And the figure says of which data both are."""
    names = ("OAGD, w = 10", "OAGD, w = 10, leader held", "AutoBalance")
    series = [Series(name, [1, 2], [1.0, 2.0]) for name in names]
    of = [Figure("test", f"Accuracy ({d})", "t", "y", series, f"{d}.") for d in ("Adult", "MNIST")]
    assert len({style.colour for style in of[0].styles()}) == 2
    runs = [
        (INFO, dataclasses.replace(found(), answers=[dataclasses.replace(answer, figure=figure)]))
        for figure in of
        for answer in found().answers
    ]
    text = report.write_comparison(tmp_path / "c.html", runs, ["mine", "yours"]).read_text()
    assert "Accuracy (Adult); Accuracy (MNIST)" in text and "Adult. MNIST. The dash says" in text
    charts = json.loads(re.search(r'id="charts">(.*?)</script>', text, re.S).group(1))
    drawn = [trace["line"] for trace in charts["chart-bothtest"]["data"] if "name" in trace]
    assert len({(line["color"], line["dash"]) for line in drawn}) == len(drawn) == 6
    assert [line["color"] for line in drawn[:3]] == [line["color"] for line in drawn[3:]]
    # What can keep its own colour does.
    assert [drawn[i]["color"] for i in (0, 2)] == [of[0].styles()[i].colour for i in (0, 2)]


def test_unknown_verdicts_are_rejected():
    with pytest.raises(ValueError, match="verdict must be one of"):
        Claim("C1", "a", "b", "maybe", "c")


HOVER = """
new Promise(done => {
  const chart = document.querySelector(".chart");
  chart.on("plotly_hover", event => done(event.points.map(point => point.y)));
  const plot = chart.querySelector(".nsewdrag"), box = plot.getBoundingClientRect();
  const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
  const at = { bubbles: true, clientX: x, clientY: y };
  plot.dispatchEvent(new MouseEvent("mouseover", at));
  plot.dispatchEvent(new MouseEvent("mousemove", at));
})
"""
PAPER = "document.querySelector('.chart').layout.paper_bgcolor"


@pytest.mark.slow
@pytest.mark.skipif(FOUND is None, reason="no Chromium on this machine: the page is not opened")
def test_in_a_browser(page, tmp_path):
    """Phone and wide, day and night, by mouse, by keyboard and by ear; and nothing goes wrong."""
    with browser(tmp_path / "profile") as shown:
        for width, dark in ((390, False), (1440, True)):
            shown.open(page.as_uri(), width, dark=dark)
            shown.until("document.querySelectorAll('.chart .nsewdrag').length === 1")
            assert not shown.wider(width)
            shown.until(f"{PAPER} === '{'#16191d' if dark else '#ffffff'}'")
            # What a screen reader says of the figure and of what can be pressed.
            (said,) = shown.named("image", "img", "graphics-document")
            assert said.startswith("Curves: regret against round t. At the end: first <b> diverged")
            assert "Numbers" in shown.named("region") and "name" in shown.named("button")
        assert shown.run(HOVER) == [2, 2]
        # By the keyboard: to the first heading of the table, and sort.
        shown.run("document.querySelector('.sortable button').focus()")
        shown.press("Enter")
        assert shown.run("document.querySelector('.sortable td').textContent") == "a"
        assert shown.run("document.querySelector('th').getAttribute('aria-sort')") == "ascending"
        # Tab leads past the figure to what is folded, and Enter opens it.
        for _ in range(20):
            if shown.run("document.activeElement.tagName") == "SUMMARY":
                break
            shown.press("Tab")
        shown.press("Enter")
        shown.until("document.querySelector('details').open")
        shown.run("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        shown.until("document.querySelectorAll('.chart .nsewdrag').length === 2")
        shown.open(page.as_uri(), 390)
        shown.run("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        shown.until("document.querySelectorAll('.chart .nsewdrag').length === 2")
        assert not shown.wider(390)
        assert shown.run("performance.getEntriesByType('resource').map(one => one.name)") == []
        assert shown.problems == []


@pytest.mark.slow
@pytest.mark.skipif(FOUND is None, reason="no Chromium on this machine: the page is not opened")
def test_the_browser_notices_what_is_wrong(page, tmp_path):
    """An error, and a part that is too wide, planted on purpose."""
    text = page.read_text().replace("</body>", "<script>nothing.at.all;</script></body>")
    planted = tmp_path / "planted.html"
    planted.write_text(text.replace("<h1>", '<div style="width: 900px">wide</div><h1>'))
    with browser(tmp_path / "profile") as shown:
        shown.open(planted.as_uri(), 390)
        assert shown.wider(390)
        assert shown.problems
