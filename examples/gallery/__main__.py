"""Execute the gallery: `python -m examples.gallery [NAME ...]`.

Each script is run in a process of its own, in `docs/gallery`, where it leaves its picture; beside
it come a page (title, picture, code, what it printed) and a notebook.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
TARGET = ROOT / "docs" / "gallery"
LIMIT = 60
"""Seconds of processor time, and lines."""


def names() -> list[str]:
    """The scripts, by name."""
    return sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith("__"))


def cells(text: str) -> list[tuple[str, str]]:
    """(kind, content) of each cell of a script; what follows `# %%` on its line is a comment."""
    found = []
    for part in re.split(r"^# %%", text, flags=re.M)[1:]:
        head, _, body = part.partition("\n")
        if "[markdown]" in head:
            lines = [line.removeprefix("#").removeprefix(" ") for line in body.strip().splitlines()]
            found.append(("markdown", "\n".join(lines)))
        elif body.strip():
            comment = f"# {head.strip()}\n" if head.strip() else ""
            found.append(("code", comment + body.strip()))
    return found


def notebook(text: str) -> str:
    """The script as a notebook without outputs."""
    made = []
    for number, (kind, content) in enumerate(cells(text)):
        cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
        cell["source"] = content.splitlines(keepends=True)
        if kind == "code":
            cell |= {"execution_count": None, "outputs": []}
        made.append(cell)
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    whole = {"cells": made, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1) + "\n"


def page(name: str, text: str, printed: str) -> str:
    """Title and words, the picture, the code, what it printed."""
    (_, words), *rest = cells(text)
    title = words.splitlines()[0].removeprefix("# ")
    code = "\n\n".join(content for kind, content in rest if kind == "code")
    parts = [words, f"![{title}]({name}.png)"]
    parts.append(
        f"Made by `python -m examples.gallery {name}`; as a notebook: [{name}.ipynb]({name}.ipynb)."
    )
    # Not `python` alone: the tests of the docs run those blocks, and this one has been run.
    parts.append(f"```py\n{code}\n```")
    if printed.strip():
        parts.append(f"```text\n{printed.strip()}\n```")
    return "\n\n".join(parts) + "\n"


def index() -> str:
    """The page of pages."""
    lines = [
        "# Gallery",
        "",
        "Each is one script of at most 60 lines, run in less than a minute on one core.",
        "",
    ]
    for name in names():
        (_, words), *_ = cells((HERE / f"{name}.py").read_text())
        title = words.splitlines()[0].removeprefix("# ")
        lines += [f"## [{title}]({name}.md)", "", f"[![{title}]({name}.png)]({name}.md)", ""]
    return "\n".join(lines)


def execute(name: str, folder: Path) -> tuple[str, float]:
    """Run a script in a folder, in one process; what it printed, and its processor time."""
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"MPLBACKEND": "agg", "PYTHONPATH": path}
    script = str(HERE / f"{name}.py")
    before = os.times()
    done = subprocess.run(
        [sys.executable, script], cwd=folder, env=environment, capture_output=True, text=True
    )
    after = os.times()
    if done.returncode:
        raise RuntimeError(f"{name} failed:\n{done.stderr[-3000:]}")
    spent = after.children_user + after.children_system
    return done.stdout, spent - before.children_user - before.children_system


def main(arguments: list[str] | None = None) -> int:
    """Exit code 1 if a script takes longer than it may."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="scripts; by default all")
    given = parser.parse_args(arguments)
    if unknown := set(given.names) - set(names()):
        parser.error(f"no script {', '.join(sorted(unknown))}; there are {', '.join(names())}")
    TARGET.mkdir(parents=True, exist_ok=True)
    late = False
    for name in given.names or names():
        began = time.perf_counter()
        printed, seconds = execute(name, TARGET)
        text = (HERE / f"{name}.py").read_text()
        (TARGET / f"{name}.md").write_text(page(name, text, printed))
        (TARGET / f"{name}.ipynb").write_text(notebook(text))
        late |= seconds > LIMIT
        print(f"{name}: {seconds:.0f} s of processor time, {time.perf_counter() - began:.0f} s")
    (TARGET / "index.md").write_text(index())
    return int(late)


if __name__ == "__main__":
    sys.exit(main())
