"""Every Python block of the README and the docs runs, and prints what the page says it prints."""

import contextlib
import io
import re
from pathlib import Path

import jax
import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"```python\n(.*?)```(?:\s*```text\n(.*?)```)?", re.S)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
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
    assert blocks or page.name in {"dynamic-regression.md"}
