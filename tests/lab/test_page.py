"""The page: self-contained, escaped, sortable; and in a real browser where there is one."""

import json
import re
import shutil
import subprocess

import pandas as pd
import pytest

from obax.lab import report
from obax.lab.report import Claim, Figure, Findings, Series, Table, figures

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


def found(title="Curves"):
    series = [
        Series("first <b>", [1, 10, 100], [1.0, 2.0, float("inf")], [0.5, 1.0, 2.0], [2, 3, 4]),
        Series("second", [1, 10, 100], [3.0, 2.0, 1.0], steps=True),
    ]
    figure = Figure("curves", title, "round t", "regret", series, "A caption.", log_x=True)
    frame = pd.DataFrame({"name": ["b", "a"], "value": [2.5, float("nan")], "n": [1, 2]})
    claim = Claim("C1", "it </script> falls", "it does & more", "partly", "T=3")
    return Findings([claim], [figure], [], ["Words."], Table("t", "Numbers", "Cap.", frame))


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
    (chart,) = charts.values()
    names = [trace["name"] for trace in chart["data"] if "name" in trace]
    assert names == ["first <b>", "second"]
    assert chart["data"][1]["y"] == [1.0, 2.0, None]
    assert chart["layout"]["xaxis"] == {"title": {"text": "round t"}, "type": "log"}


def test_figures_are_written_twice_the_same(tmp_path):
    report.write(tmp_path / "a", INFO, found())
    report.write(tmp_path / "b", INFO, found())
    for kind in ("png", "svg"):
        first, second = (tmp_path / run / "figures" / f"curves.{kind}" for run in "ab")
        assert first.read_bytes() == second.read_bytes()
        assert len(first.read_bytes()) > 1000


def test_figures_say_what_they_show():
    canvas = figures.draw(found().figures[0])
    axes = canvas.axes[0]
    assert axes.get_xlabel() == "round t"
    assert axes.get_ylabel() == "regret"
    assert axes.get_xscale() == "log"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["first <b>", "second"]


def test_several_runs_stand_side_by_side(tmp_path):
    other = INFO | {"config": {"horizon": 9, "sizes": [1, 2]}}
    file = report.write_comparison(tmp_path / "c.html", [(INFO, found()), (other, found())])
    text = file.read_text()
    assert "Side by side" in text
    assert "<th>horizon</th><td>3</td><td>9</td>" in text
    assert "<th>sizes</th>" not in text.split("Settings")[0]
    assert text.count("<section>") == 2


def test_unknown_verdicts_are_rejected():
    with pytest.raises(ValueError, match="verdict must be one of"):
        Claim("C1", "a", "b", "maybe", "c")


BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")

PROBE = """
<script>
window.problems = [];
window.addEventListener("error", event => window.problems.push(String(event.message)));
document.addEventListener("securitypolicyviolation", e => window.problems.push(e.blockedURI));
const error = console.error;
console.error = (...words) => { window.problems.push(words.join()); error(...words); };
</script>
"""
QUESTION = """
<script>
const chart = document.querySelector(".chart");
chart.on("plotly_hover", event => { window.hovered = event.points.map(point => point.y); });
const plot = document.querySelector(".nsewdrag"), box = plot.getBoundingClientRect();
const at = { bubbles: true, clientX: box.left + box.width / 2, clientY: box.top + box.height / 2 };
plot.dispatchEvent(new MouseEvent("mouseover", at));
plot.dispatchEvent(new MouseEvent("mousemove", at));
document.querySelectorAll("table.sortable thead th")[0].click();
setTimeout(() => {
  const answer = {
    problems: window.problems, hovered: window.hovered,
    requests: performance.getEntriesByType("resource").map(entry => entry.name),
    label: document.querySelector(".hoverlayer").textContent,
    first: document.querySelector("table.sortable tbody td").textContent,
    wide: document.documentElement.scrollWidth <= window.innerWidth
  };
  const note = document.createElement("pre");
  note.id = "answer"; note.textContent = JSON.stringify(answer); document.body.append(note);
}, 500);
</script>
"""


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine: the page is not opened")
def test_in_a_browser(page, tmp_path):
    text = page.read_text().replace("<title>", PROBE + "<title>", 1)
    probed = tmp_path / "probed.html"
    probed.write_text(text.replace("</body>", QUESTION + "</body>"))
    flags = "headless no-sandbox disable-gpu disable-quic no-first-run disable-sync dump-dom"
    flags += " disable-background-networking disable-component-update"
    flags += " virtual-time-budget=6000 window-size=500,900"
    quiet = [f"--{flag}" for flag in flags.split()]
    shown = subprocess.run(
        [BROWSER, *quiet, f"--user-data-dir={tmp_path / 'profile'}", probed.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
    )
    answer = json.loads(re.search(r'<pre id="answer">(.*?)</pre>', shown.stdout, re.S).group(1))
    assert answer["problems"] == []
    assert answer["requests"] == []
    assert answer["hovered"] == [2, 2]
    assert "first" in answer["label"]
    assert answer["first"] == "a"
    assert answer["wide"]
