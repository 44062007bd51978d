"""Every Python block of the README and the docs runs, and prints what the page says it prints."""

import contextlib
import inspect
import io
import re
from pathlib import Path

import jax
import pytest

import obax
from obax import algorithms

pytestmark = pytest.mark.usefixtures("quick_compilation")

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Words, tables and pictures only.
WITHOUT_CODE = {
    "faq.md",
    "glossary.md",
    "guides.md",
    "results.md",
    "serve.md",
    "speed.md",
    "workers.md",
    "start.md",
    "streaming-models.md",
}
BLOCK = re.compile(r"```python\n(.*?)```(?:\s*```text\n(.*?)```)?", re.S)


# Half a minute of compilation each.
LONG = ("loss-tuning.md", "meta-learning.md", "regret.md", "methods.md", "histories.md")


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow if page.name in LONG else (), id=page.name)
        for page in PAGES
    ],
)
def test_blocks_print_what_the_page_says(page):
    text = page.read_text()
    blocks = BLOCK.findall(text)
    namespace: dict = {}
    # As a reader would run it: ordinary promotion, and double precision only where asked for.
    double = '"jax_enable_x64", True' in text
    with jax.enable_x64(double), jax.numpy_dtype_promotion("standard"):
        for code, expected in blocks:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(code, str(page), "exec"), namespace)
            if expected:
                assert printed.getvalue().split() == expected.split()
    assert bool(blocks) != (page.name in WITHOUT_CODE)


def section(page, title):
    return page.split(f"## {title}\n")[1].split("\n## ")[0]


def missing_packages(table, packages):
    return {name for name in packages if f"`{name}`" not in table}


def test_every_package_is_in_the_table_of_packages():
    source = Path(obax.__file__).parent
    files = {path.name for path in source.glob("*.py")} - {"__init__.py", "__main__.py"}
    folders = {f"{path.parent.name}/" for path in source.glob("*/__init__.py")}
    table = section((ROOT / "CONTRIBUTING.md").read_text(), "The packages")
    assert missing_packages(table, files | folders) == set()
    assert missing_packages(table, {"attic/"}) == {"attic/"}


def test_the_files_to_touch_are_there():
    text = section((ROOT / "CONTRIBUTING.md").read_text(), "Which files you touch")
    named = {name for name in re.findall(r"`([\w/]+\.(?:py|md))`", text) if "NAME" not in name}
    # Files of an experiment stand in its own folder.
    paths = named - {"config.py", "findings.py", "__init__.py"}
    assert len(paths) >= 8
    for path in paths:
        assert (ROOT / path).is_file() or (ROOT / "src" / "obax" / path).is_file(), path


def test_the_readme_names_the_methods_that_take_optax():
    names = [name for name in algorithms.__all__ if not name.endswith("State")]
    takes = {
        name
        for name in names
        if {"outer_optimiser", "inner_optimiser"}
        <= set(inspect.signature(getattr(algorithms, name)).parameters)
    }
    row = re.search(
        r"any optax transformation on either level of (.*) \|", (ROOT / "README.md").read_text()
    )
    assert set(re.findall(r"`(\w+)`", row[1])) == takes
