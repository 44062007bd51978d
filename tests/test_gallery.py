"""The gallery: scripts that are short, run and leave a picture; pages and notebooks follow."""

import ast
import json

import pytest

from examples.gallery import __main__ as gallery
from obax.testing import CASES, check_algorithm

QUICK = ("strategic_regression",)
PICTURE = b"\x89PNG"


@pytest.mark.parametrize(
    "name",
    [pytest.param(it, marks=() if it in QUICK else pytest.mark.slow) for it in gallery.names()],
)
def test_a_script_runs_and_leaves_its_picture(name, tmp_path):
    _, seconds = gallery.execute(name, tmp_path)
    data = (tmp_path / f"{name}.png").read_bytes()
    assert data.startswith(PICTURE) and 5_000 < len(data) < 100_000
    assert seconds < 2 * gallery.LIMIT


def own_algorithm():
    """The class of the script that shows how to write an algorithm, without its figure."""
    text = (gallery.HERE / "own_algorithm.py").read_text()
    (cell,) = [code for _, code in gallery.cells(text) if "class SignDescent" in code]
    namespace = {"__name__": "own_algorithm"}
    exec(cell, namespace)
    return namespace["SignDescent"]


@pytest.mark.parametrize("case", ["named leaves", "buffers"])
def test_the_algorithm_of_the_gallery_conforms(case):
    algorithm = own_algorithm()
    assert "does_not_recompile" in check_algorithm(algorithm, case=CASES[case]())


def test_the_conformance_check_sees_static_step_sizes():
    class Static(own_algorithm()):
        outer_step_size: float = 0.05
        inner_step_size: float = 0.1

    with pytest.raises(AssertionError, match="make numbers arrays and not static fields"):
        check_algorithm(Static, case=CASES["named leaves"]())


def test_a_script_that_fails_says_why(tmp_path):
    with pytest.raises(RuntimeError, match=r"(?s)nothing_of_the_kind failed.*No such file"):
        gallery.execute("nothing_of_the_kind", tmp_path)


@pytest.mark.parametrize("name", gallery.names())
def test_pages_and_notebooks_are_those_of_the_scripts(name):
    text = (gallery.HERE / f"{name}.py").read_text()
    assert len(text.splitlines()) <= 60
    page = (gallery.TARGET / f"{name}.md").read_text()
    made = gallery.page(name, text, "")
    assert page.startswith(made.rstrip("\n")), f"run python -m examples.gallery {name}"
    stored = (gallery.TARGET / f"{name}.ipynb").read_text()
    assert stored == gallery.notebook(text)
    book = json.loads(stored)
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            ast.parse("".join(cell["source"]))
    picture = (gallery.TARGET / f"{name}.png").read_bytes()
    assert picture.startswith(PICTURE) and len(picture) < 100_000
    assert f"({name}.md)" in (gallery.TARGET / "index.md").read_text()


def test_cells_are_words_and_code():
    text = "# %% [markdown]\n# # Title\n# words\n\n# %%\nx = 1\n\n# %% Why.\ny = 2\n"
    assert gallery.cells(text) == [
        ("markdown", "# Title\nwords"),
        ("code", "x = 1"),
        ("code", "# Why.\ny = 2"),
    ]
