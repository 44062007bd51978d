"""What was measured, and when: every whole run of a benchmark adds its judged lines to a file.

    python -m benchmarks.history            # the page docs/speed.md and its picture, from the file

A line of `history.jsonl` is a JSON object: date, commit (with "+" if files had changed), machine,
benchmark, ratio, limit. Lines are added and never rewritten; quick runs add nothing, and neither
does any run with `OBAX_HISTORY=none`.
"""

import argparse
import datetime
import json
import math
import os
import subprocess
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
FILE = Path(__file__).parent / "history.jsonl"
FIELDS = {"date", "commit", "machine", "benchmark", "ratio", "limit"}
BEGIN, END = "<!-- history -->", "<!-- end -->"


def keep(measured: Iterable[tuple[str, float | None, float | None]], machine: str) -> None:
    """Add lines (benchmark, ratio, limit) to the file; those without a limit stay out."""
    file = os.environ.get("OBAX_HISTORY", str(FILE))
    if file == "none":
        return
    same = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": machine,
    }
    with Path(file).open("a") as lines:
        for name, ratio, limit in measured:
            if ratio is not None and limit is not None and math.isfinite(ratio):
                line = {**same, "benchmark": name, "ratio": float(f"{ratio:.4g}"), "limit": limit}
                lines.write(json.dumps(line) + "\n")


def read(file: Path = FILE) -> list[dict[str, Any]]:
    """Every line, oldest first; one that is not whole is named."""
    found = []
    for number, text in enumerate(file.read_text().splitlines() if file.exists() else (), 1):
        try:
            line = json.loads(text)
        except ValueError:
            line = None
        if not isinstance(line, dict) or set(line) != FIELDS:
            raise ValueError(
                f"{file}, line {number}: expected an object of {sorted(FIELDS)}, got {text!r}."
            )
        found.append(line)
    return sorted(found, key=lambda line: line["date"])


def commit() -> str:
    """The commit that was measured, or "unknown" outside a repository."""

    def git(*words: str) -> str:
        run = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        return run.stdout.strip() if run.returncode == 0 else ""

    found = git("rev-parse", "--short", "HEAD")
    return found + "+" * bool(git("status", "--porcelain", "--untracked-files=no")) or "unknown"


def table(lines: list[dict[str, Any]]) -> str:
    """The latest measurement of every benchmark, and how it stood before."""
    if not lines:
        return "Nothing has been measured yet."
    rows = ["| benchmark | latest | limit | | before | commit | date | machine |", "|---" * 8 + "|"]
    for name in dict.fromkeys(line["benchmark"] for line in lines):
        own = [line for line in lines if line["benchmark"] == name]
        last, before = own[-1], ", ".join(f"{line['ratio']:.3g}" for line in own[-4:-1])
        verdict = "met" if last["ratio"] <= last["limit"] else "**missed**"
        rows.append(
            f"| {name} | {last['ratio']:.3g} | {last['limit']:.3g} | {verdict} | {before or '-'} "
            f"| {last['commit']} | {last['date'][:10]} | {last['machine']} |"
        )
    return "\n".join(rows)


def draw(lines: list[dict[str, Any]], file: Path) -> None:
    """A panel for each benchmark: its ratio from run to run, and its limit."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(line["benchmark"] for line in lines))
    columns = min(3, len(names)) or 1
    rows = -(-len(names) // columns) or 1
    canvas = Figure(figsize=(3.0 * columns, 1.9 * rows), layout="constrained")
    panels = canvas.subplots(rows, columns, squeeze=False).ravel()
    for axes in panels[len(names) :]:
        axes.axis("off")
    for axes, name in zip(panels, names, strict=False):
        own = [line for line in lines if line["benchmark"] == name]
        axes.plot([line["ratio"] for line in own], "o-", color="#0072B2", markersize=4)
        axes.plot([line["limit"] for line in own], "--", color="#D55E00", linewidth=1)
        axes.axhline(own[-1]["limit"], ls="--", color="#D55E00", linewidth=1)
        axes.set_ylim(0, 1.15 * max(max(line["ratio"], line["limit"]) for line in own))
        axes.set_xticks(range(len(own)), [line["commit"] for line in own], fontsize=6, rotation=45)
        axes.set_title(textwrap.fill(name, 44), fontsize=7)
        axes.tick_params(axis="y", labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    canvas.savefig(file, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "speed.md")
    parser.add_argument("--figure", type=Path, default=ROOT / "docs" / "pictures" / "speed.png")
    said = parser.parse_args()
    lines = read()
    text = said.page.read_text()
    before, rest = text.split(BEGIN, 1)
    said.page.write_text(f"{before}{BEGIN}\n{table(lines)}\n{END}{rest.split(END, 1)[1]}")
    draw(lines, said.figure)


if __name__ == "__main__":
    main()
