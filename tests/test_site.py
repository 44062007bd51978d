"""The site: every page in the navigation, every public name in the reference, and a build that
sees a broken link. And the release: versions, contents, audit."""

import importlib.util
import io
import json
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pandas as pd
import pytest
from browser import FOUND as CHROMIUM, browser

import obax
from benchmarks import history
from obax.lab.report import Answer, Figure, Findings, Table

ROOT = Path(__file__).parent.parent


def module(path):
    found = importlib.util.spec_from_file_location(f"site_{path.stem}", path)
    loaded = importlib.util.module_from_spec(found)
    found.loader.exec_module(loaded)
    return loaded


reference = module(ROOT / "docs" / "reference.py")
versions = module(ROOT / ".ci" / "versions.py")
audit = module(ROOT / ".ci" / "audit.py")
# Pages that are made from files outside docs/: see docs/hooks.py.
OUTSIDE = {"index.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks.md"}


def nav_pages(text):
    """The pages that the navigation names; `folder/*` stands for a folder."""
    lines = text.split("\nnav:\n")[1].splitlines()
    return set(
        re.findall(r"([\w/-]+(?:\.md|/\*))$", "\n".join(it for it in lines if "#" not in it), re.M)
    )


def lost(named, pages):
    """Pages that the navigation leaves out, and names in it that are no page."""
    folders = {name.removesuffix("*") for name in named if name.endswith("/*")}
    left_out = {it for it in pages if it not in named and not any(map(it.startswith, folders))}
    return left_out, {it for it in named if it.endswith(".md")} - pages - OUTSIDE


def test_the_navigation_has_every_page_and_no_other():
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    named = nav_pages((ROOT / "mkdocs.yml").read_text())
    left_out, unknown = lost(named, pages)
    assert not left_out, f"add to nav in mkdocs.yml: {sorted(left_out)}"
    assert not unknown, f"in nav, but no page: {sorted(unknown)}"
    assert lost(named, pages | {"attic.md"}) == ({"attic.md"}, set())
    assert lost(named, pages - {"tour.md"}) == (set(), {"tour.md"})


def test_every_public_name_is_in_the_reference():
    rooms = {room: {*reference.public_names(room)} for room in reference.rooms()}
    below = set().union(*rooms.values())
    assert {*obax.__all__} <= below | {*rooms} | {*reference.elsewhere()}
    assert all(f"::: {place}\n" in reference.index() for place in reference.elsewhere().values())
    assert {"OAGD", "OAGDState", "Info"} <= rooms["algorithms"]
    assert "run" in rooms["lab"] and "COMPARE" not in rooms["lab"]
    assert "::: obax.window.Window\n" in reference.page("window")
    # The function, not the file of the same name that it lives in.
    assert "::: obax.regret.local.local\n" in reference.page("regret")


def test_the_readme_says_true_things_about_versions():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = (ROOT / "README.md").read_text()
    python = project["requires-python"].removeprefix(">=")
    jax = versions.oldest()["jax"].removesuffix(".0")
    for badge in (
        f"version {obax.__version__}",
        f"Python {python}+",
        f"JAX {jax}+",
        project["license"],
    ):
        assert f"`{badge}`" in text
    assert re.search(
        rf"^## (Unreleased|{re.escape(obax.__version__)})$",
        (ROOT / "CHANGELOG.md").read_text(),
        re.M,
    )


def test_the_one_address_is_that_of_the_paper():
    """The project has none of its own: what is said to be one must be where the paper is."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (paper,) = project["urls"].values()
    assert re.fullmatch(r"https://arxiv\.org/abs/\d{4}\.\d{5}", paper)
    assert f'url: "{paper}"' in (ROOT / "CITATION.cff").read_text()
    assert f"]({paper})" in (ROOT / "README.md").read_text()


FIELDS = ("Verdict", "Paper", "obax", "Setting and seeds", "Command")


def claims(text):
    """The entries of the page: the claim, its words, and what the entry says of each field."""
    entries = re.split(r"^\*\*(C\d)\.\*\* ", text.split("## Beyond the paper")[0], flags=re.M)[1:]
    for name, entry in zip(entries[::2], entries[1::2], strict=True):
        fields = re.findall(r"^(?::   |    - )([\w ]+): (.+)$", entry, re.M)
        yield name, entry.splitlines()[0], dict(fields)


def complaints(text):
    """What the page of results leaves out: a claim, a field, or a verdict in the usual words."""
    verdicts = re.compile(r"\*\*(reproduced|partly|within noise|not |only the )")
    entries = list(claims(text))
    found = [f"C{i}" for i in range(1, 9) if f"C{i}" not in {name for name, _, _ in entries}]
    for name, words, fields in entries:
        missing = [field for field in FIELDS if not fields.get(field)]
        if missing or not verdicts.search(fields["Verdict"]):
            found.append(f"{name} {words}")
    return found


def test_every_claim_has_its_entry_and_every_entry_its_verdict():
    text = (ROOT / "docs" / "results.md").read_text()
    assert len(list(claims(text))) == 24 and complaints(text) == []
    assert complaints(text.replace("**C8.**", "C8.")) == ["C8"]
    before, entry = text.split("**C8.** Lower-bound game")
    for mutant in (
        re.sub("    - Paper: .*\n", "", entry, count=1),
        entry.replace("Verdict: **reproduced**", "Verdict: we liked it", 1),
    ):
        assert len(complaints(f"{before}**C8.** Lower-bound game{mutant}")) == 1


def test_the_figure_of_a_page_is_found_where_the_report_has_it():
    """Also where it stands under an answer; and a name that no figure has is said."""
    pictures = module(ROOT / "docs" / "pictures.py")
    figures = [Figure(name, "", "", "", [], "") for name in ("time", "test", "test-later")]
    table = Table("", "", "", pd.DataFrame())
    found = Findings(
        [Answer("Why?", "So.", table, figures[1])], [], [figures[0], figures[2]], [], []
    )
    assert pictures.figure_of(found, "adult") == "test"
    with pytest.raises(SystemExit, match=r"dynamic-regression: no figure 'regret' among .*time"):
        pictures.figure_of(found, "dynamic-regression")


def test_pictures_are_small_and_drawn_by_a_command():
    script = (ROOT / "docs" / "pictures.py").read_text()
    for picture in (ROOT / "docs" / "pictures").glob("*.png"):
        assert picture.stat().st_size < 150_000, picture.name
        assert f'"{picture.stem}"' in script or picture.stem == "speed"


def test_lower_bounds_are_versions_and_exact_ones_satisfy_them():
    oldest = versions.oldest()
    assert oldest["jax"] == "0.8.1" and "river" in oldest and "pytest" in oldest
    lines = (ROOT / ".ci" / "constraints.txt").read_text().splitlines()[1:]
    exact = dict(line.split("==") for line in lines)
    for name, version in oldest.items():
        assert versions.Version(exact[name]) >= versions.Version(version)


def test_another_version_than_the_constraint_is_seen(tmp_path):
    (tmp_path / "wrong.txt").write_text("pytest==0.0.1\n")
    with pytest.raises(SystemExit, match=r"pytest==0.0.1 was asked for"):
        versions.check(tmp_path / "wrong.txt")


def test_junk_in_a_release_is_seen(tmp_path):
    wheel, sdist = tmp_path / "obax-0.2.0-cp311-any.whl", tmp_path / "obax-0.2.0.tar.gz"
    whole = [f"obax-0.2.0.dist-info/{name}" if name[0] in "lM" else name for name in versions.WHEEL]
    whole.append("obax/_engine.cpython-311-x86_64-linux-gnu.so")
    for extra, said in (
        ((), None),
        (("obax/__pycache__/a.pyc",), "pyc"),
        (("runs/x",), "runs/x"),
        (("obax/kernel.so",), "kernel.so"),
        (("obax/_engine.abi3.so",), "one engine, but 2"),
    ):
        with zipfile.ZipFile(wheel, "w") as file:
            for name in (*whole, *extra):
                file.writestr(name, "")
        if said is None:
            versions.contents(wheel)
            continue
        with pytest.raises(SystemExit, match=said):
            versions.contents(wheel)
    for sizes, said in (({}, "one engine, but 0"), ({whole[-1]: 3_100_000}, "too large")):
        with zipfile.ZipFile(wheel, "w") as file:
            for name in whole[:-1]:
                file.writestr(name, "")
            for name, size in sizes.items():
                file.writestr(name, bytes(size))
        with pytest.raises(SystemExit, match=said):
            versions.contents(wheel)
    with tarfile.open(sdist, "w:gz") as file:
        for name in (*versions.SDIST, "site/index.html"):
            header = tarfile.TarInfo(f"obax-0.2.0/{name}")
            file.addfile(header, io.BytesIO())
    with pytest.raises(SystemExit, match=r"does not belong \['site/index.html'\]"):
        versions.contents(sdist)


FOUND = {"name": "jinja2", "version": "2.10", "vulns": [{"id": "HOLE-1", "fix_versions": ["2.11"]}]}
SOUND = {"name": "numpy", "version": "2.4", "vulns": []}
SKIPPED = {"name": "jax", "skip_reason": "not found"}


@pytest.mark.parametrize(
    "said, code, words",
    [
        ([FOUND, SOUND], 1, "jinja2 2.10: HOLE-1, mended in 2.11"),
        ([SOUND, SKIPPED], 0, "1 packages, 0 known holes; 1 not known there"),
        ([SKIPPED], 0, "NOT DONE, not found"),
        (None, 0, "NOT DONE, no network"),
    ],
)
def test_the_audit_judges_by_what_was_looked_at(said, code, words, capsys):
    text = json.dumps({"dependencies": said}) if said else ""
    script = f"import sys; print({text!r}); print('no network', file=sys.stderr)"
    assert audit.audit([sys.executable, "-S", "-c", script]) == code
    assert words in capsys.readouterr().out


def test_a_benchmark_adds_what_it_judged(tmp_path, monkeypatch):
    file = tmp_path / "history.jsonl"
    monkeypatch.setenv("OBAX_HISTORY", str(file))
    for ratio in (1.5, 2.5):
        history.keep([("run", ratio, 2.0), ("reported only", 3.0, None)], "a machine")
    lines = history.read(file)
    assert [line["ratio"] for line in lines] == [1.5, 2.5]
    assert "| run | 2.5 | 2 | **missed** | 1.5 |" in history.table(lines)
    history.draw(lines, tmp_path / "speed.png")
    assert (tmp_path / "speed.png").stat().st_size > 1000
    monkeypatch.setenv("OBAX_HISTORY", "none")
    history.keep([("run", 1.0, 2.0)], "a machine")
    assert len(history.read(file)) == 2
    file.write_text(file.read_text() + '{"date": "today"}\n')
    with pytest.raises(ValueError, match="line 3: expected an object"):
        history.read(file)


def test_links_mean_the_same_on_the_site_and_in_the_repository():
    pytest.importorskip("mkdocs")
    pytest.importorskip("latex2mathml")
    hooks = module(ROOT / "docs" / "hooks.py")
    assert hooks.relinked("[a](../benchmarks/README.md#x)", "streams.md") == "[a](benchmarks.md#x)"
    assert hooks.relinked("![a](docs/pictures/a.png)", "index.md") == "![a](pictures/a.png)"
    assert hooks.relinked("[a](../../examples/a.py)", "gallery/a.md") == "[a](../examples/a.py)"
    assert (
        hooks.relinked("[a](https://example.org), [b](#b)", "faq.md")
        == "[a](https://example.org), [b](#b)"
    )
    assert "<msup>" in hooks.mathml("x^2", False, "a.md")
    for unknown in (r"\nosuchcommand x", r"\begin{nosuch} a & b \end{nosuch}"):
        with pytest.raises(Exception, match=r"not known|cannot draw"):
            hooks.mathml(unknown, False, "a.md")
    nav = [{"Start": [{"Tour": "tour.md"}]}, {"API": ["api/index.md", "api/window.md"]}]
    text = hooks.llms_text(nav, "What it is.")
    assert "- [A ten-minute tour](tour.html): How does a hyperparameter" in text
    assert "(api/window.html)" in text


def test_formulas_figures_and_signatures_are_readable():
    pytest.importorskip("mkdocs")
    pytest.importorskip("latex2mathml")
    hooks, signatures = module(ROOT / "docs" / "hooks.py"), module(ROOT / "docs" / "doctests.py")
    # Space around the names of functions, but none before a bracket.
    assert 'lspace="0.17em" rspace="0.17em" movablelimits="false">ln<' in hooks.mathml(
        r"T \ln N", False, "a.md"
    )
    assert 'rspace="0em" movablelimits="false">cos<' in hooks.mathml(r"\cos(w)", False, "a.md")
    assert "<mi>ln</mi>" not in hooks.mathml(r"\ln(1/x) + T \ln x", False, "a.md")
    # A long formula scrolls on a phone, and so does a figure of two panels; a short one does not.
    assert 'class="formula"' in hooks.mathml("+".join("abcdefghijklm"), False, "a.md")
    assert 'class="formula"' not in hooks.mathml("a + b", False, "a.md")
    wide, narrow = "gallery/few_shot.png", "gallery/dynamic_regression.png"
    assert 'class="figure wide"' in hooks.framed(f'<img src="{wide}">', "a.md")
    assert 'class="figure"' in hooks.framed(f'<img src="{narrow}">', "a.md")
    assert signatures.plain_default("option(0.001, within('penalty'))") == "0.001"
    assert signatures.plain_default("Window(1)") == "Window(1)"


def build(folder, config="mkdocs.yml"):
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--config-file",
        config,
        "--site-dir",
        str(folder),
    ]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The whole site, built once."""
    pytest.importorskip("material")
    folder = tmp_path_factory.mktemp("built") / "site"
    run = build(folder)
    assert run.returncode == 0, run.stderr
    return folder


SEEN = """(() => {
  const pictures = [...document.images].filter(one => !one.alt || !one.naturalWidth);
  const dark = getComputedStyle(document.body).backgroundColor.match(/\\d+/g)[0] < 100;
  return [pictures.map(one => one.src), dark];
})()"""


def seen(shown, page, width, dark):
    """What is wrong with a page at this width, by day or by night."""
    shown.problems.clear()
    shown.open(page.as_uri(), width, dark=dark)
    pictures, night = shown.run(SEEN)
    found = [f"picture without words, or none: {source}" for source in pictures]
    found += ["wider than the window"] * shown.wider(width)
    found += ["light by night" if dark else "dark by day"] * (night != dark)
    return found + shown.problems


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: no page is opened")
def test_every_page_in_a_browser(site, tmp_path):
    """On a phone by night and on a wide screen by day; and planted faults are seen."""
    # What a server sends for a page that is not there; from a file it finds nothing.
    pages = sorted({*site.rglob("*.html")} - {site / "404.html"})
    planted = site / "planted.html"
    text = (site / "glossary.html").read_text()
    wrong = (
        '<div style="width: 900px">wide</div><img src="none.png"><script>nothing.at.all</script>'
    )
    planted.write_text(text.replace("</h1>", f"</h1>{wrong}").replace("prefers-color", "none"))
    with browser(tmp_path / "profile") as shown:
        for width, dark in ((390, True), (1400, False)):
            found = {page.name: seen(shown, page, width, dark) for page in pages}
            assert not {name: faults for name, faults in found.items() if faults}
        faults = " ".join(seen(shown, planted, 390, True))
    planted.unlink()
    for fault in ("picture", "wider", "light by night", "Uncaught"):
        assert fault in faults


@pytest.mark.slow
def test_the_site_builds_and_asks_for_nothing_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    for page in pages:
        assert not re.search(
            r'<(?:script|link|img|iframe)[^>]*(?:src|href)="(?:https?:)?//', page.read_text()
        ), page
    listed = re.findall(r"\]\(([^)]*\.html)\)", (site / "llms.txt").read_text())
    assert len(listed) > 30 and all((site / name).is_file() for name in listed)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mistake",
    [
        "[gone](no-such-page.md)",
        "[gone](tour.md#no-such-place)",
        "[gone][obax.no_such_name]",
        r"$\nosuchcommand$",
    ],
)
def test_a_strict_build_sees_a_mistake(mistake, tmp_path):
    pytest.importorskip("material")
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "page.md").write_text(f"# Page\n\n{mistake}\n")
    (docs / "tour.md").write_text("# Tour\n\nText.\n")
    text = (ROOT / "mkdocs.yml").read_text()
    settings = text.split("\nnav:\n")[0].replace("docs_dir: docs", f"docs_dir: {docs}")
    settings = settings.replace("hooks: [", f"hooks: [{ROOT}/").replace(
        "extensions: [docs", f"extensions: [{ROOT}/docs"
    )
    settings += "\nnav: [{Page: page.md}, {Tour: tour.md}]\n"
    settings = settings.replace("extra_css: [site.css]", "").replace(
        "omitted_files: warn", "omitted_files: ignore"
    )
    (tmp_path / "mkdocs.yml").write_text(settings)
    run = build(tmp_path / "site", str(tmp_path / "mkdocs.yml"))
    assert run.returncode != 0 and ("WARNING" in run.stderr or "ERROR" in run.stderr)
    assert (
        "gone" in run.stderr
        or "no-such" in run.stderr
        or "no_such" in run.stderr
        or "nosuch" in run.stderr
    )
