"""The page: self-contained, escaped, sortable; and in a real browser where there is one."""

import dataclasses
import re

import pandas as pd
import pytest
from browser import FOUND, browser

from obax.lab import report
from obax.lab.report import Answer, Claim, Figure, Findings, Series, Table, figures
from obax.lab.report.figures import colour_of

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
        Series(
            "first <b>", [1, 10, 100], [1.0, 2.0, float("inf")],
            seeds=seeds, details="all <of> it",
        ),
        Series(
            "OAGD, w = 1", [1, 10, 100], [3.0, 2.0, 1.0], [2, 1, 0.5], [4, 3, 2], True,
            kind="OAGD", w=1,
        ),
    ]  # fmt: skip
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
    assert "{{" not in text and "{%" not in text
    assert "it &lt;/script&gt; falls" in text
    assert "it does &amp; more" in text
    assert 'data-value="2.5"' in text and '<td class="number" data-value="">-</td>' in text
    assert "obax run toy" in text and "first <b>" not in text
    drawings = re.findall(r"<svg.*?</svg>", text, re.S)
    assert len(drawings) == 2
    for drawing, title in zip(drawings, ("Curves", "Others"), strict=True):
        assert (
            f'aria-label="{title}: regret against round t. At the end: first &lt;b&gt;' in drawing
        )
        # Words for the pointer, in the colours of the methods and of the page.
        assert "<title>all &lt;of&gt; it</title>" in drawing
        assert "<title>OAGD, w = 1</title>" in drawing
        assert colour_of("OAGD", 1) in drawing
        assert "currentColor" in drawing and figures.INK not in drawing
        assert "var(--line)" in drawing and figures.GRID not in drawing
        assert f"fill: {figures.PAPER}" not in drawing


def test_true_and_false_are_words_in_a_table(tmp_path):
    """As in the table of the comparison, whose page they once stopped."""
    frame = pd.DataFrame({"as good": [True, False], "mixed": [None, "1.0 ± 0.2"]})
    shown = found()
    table = Table("t", "Numbers", "Cap.", frame)
    text = report.write(tmp_path, INFO, dataclasses.replace(shown, tables=[table])).read_text()
    assert "<td>yes</td>" in text and "<td>no</td>" in text
    assert '<td class="value">1.0 ± 0.2</td>' in text


def test_a_page_has_every_name_once(page):
    names = re.findall(r' id="([^"]+)"', page.read_text())
    # The two figures may share definitions, such as those of ticks, which are equal.
    assert not [name for name in names if re.fullmatch(r"[a-z]+\d?_\d+", name)]


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


def test_unknown_verdicts_are_rejected():
    with pytest.raises(ValueError, match="verdict must be one of"):
        Claim("C1", "a", "b", "maybe", "c")


INK = "getComputedStyle(document.querySelector('figure svg text')).fill"
DRAWN = """
[...document.querySelectorAll('figure svg')].filter(
  one => one.checkVisibility() && one.getBoundingClientRect().width > 100).length
"""


@pytest.mark.slow
@pytest.mark.skipif(FOUND is None, reason="no Chromium on this machine: the page is not opened")
def test_in_a_browser(page, tmp_path):
    """On a phone and a wide screen, by day and night, by keyboard and screen reader."""
    with browser(tmp_path / "profile") as shown:
        for width, dark in ((390, False), (1440, True)):
            shown.open(page.as_uri(), width, dark=dark)
            assert shown.run(DRAWN) == 1
            assert not shown.wider(width)
            assert shown.run(INK) == ("rgb(232, 234, 237)" if dark else "rgb(27, 31, 36)")
            # What a screen reader says of the figure and of what can be pressed.
            description = shown.named("image", "img", "graphics-document")[0]
            assert description.startswith(
                "Curves: regret against round t. At the end: first <b> diverged"
            )
            assert "Numbers" in shown.named("region") and "name" in shown.named("button")
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
        shown.open(page.as_uri(), 390)
        shown.run("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        assert shown.run(DRAWN) == 2
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
