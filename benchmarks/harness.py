"""How things are timed, and how what came out is judged and shown."""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import jax
from rich.console import Console
from rich.table import Table

from . import history


class Timing(NamedTuple):
    """Seconds: the first call, which compiles, and every later one."""

    first: float
    runs: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.runs)

    @property
    def best(self) -> float:
        return min(self.runs)

    @property
    def compilation(self) -> float:
        return max(0.0, self.first - self.median)


class Result(NamedTuple):
    """One line of the table. `ratio` and `ratio_best` are None where only a number is reported; a
    `limit` of None means that the line is for information and is not judged."""

    name: str
    ours: str
    reference: str
    compilation: str
    ratio: float | None
    ratio_best: float | None
    limit: float | None
    detail: dict[str, Any]

    @property
    def passed(self) -> bool | None:
        if self.limit is None or self.ratio is None:
            return None
        return self.ratio <= self.limit


def clock(function: Callable[[], Any]) -> float:
    """Seconds until the results of `function` are there."""
    begin = time.perf_counter()
    jax.block_until_ready(function())
    return time.perf_counter() - begin


def interleaved(
    contenders: Mapping[str, Callable[[], Any]],
    repetitions: int,
    check: Callable[[dict[str, Any]], None] | None = None,
    warm_up: int = 2,
) -> dict[str, Timing]:
    """Time contenders in turn, A B C A B C ..., so that a noisy machine is noisy to all of them.

    `check` sees what the first calls returned, before anything is timed, and raises if the
    contenders do not do the same thing.
    """
    first, outputs = {}, {}
    for name, function in contenders.items():
        begin = time.perf_counter()
        outputs[name] = jax.block_until_ready(function())
        first[name] = time.perf_counter() - begin
    if check is not None:
        check(outputs)
    for _ in range(warm_up):
        for function in contenders.values():
            clock(function)
    runs: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repetitions):
        for name, function in contenders.items():
            runs[name].append(clock(function))
    return {name: Timing(first[name], runs[name]) for name in contenders}


def compare(
    name: str, ours: Timing, reference: Timing, limit: float | None, rounds: int, **detail: Any
) -> Result:
    """Ours against a reference, in us per round.

    What is judged is the median over repetitions of the ratio of neighbours: the two were measured
    within milliseconds of each other. The ratio of the two minima stands beside it.
    """
    ratio = statistics.median(a / b for a, b in zip(ours.runs, reference.runs, strict=True))
    return Result(
        name,
        microseconds(ours, rounds),
        microseconds(reference, rounds),
        f"{ours.compilation:.2f} / {reference.compilation:.2f}",
        ratio,
        ours.best / reference.best,
        limit,
        {
            "rounds": rounds,
            "ours_us": [1e6 * run / rounds for run in ours.runs],
            "reference_us": [1e6 * run / rounds for run in reference.runs],
            "compilation_s": [ours.compilation, reference.compilation],
            **detail,
        },
    )


def microseconds(timing: Timing, rounds: int) -> str:
    """Median and minimum in us per round."""
    return f"{1e6 * timing.median / rounds:.3g} ({1e6 * timing.best / rounds:.3g})"


def machine() -> dict[str, Any]:
    """Where and with what this was measured."""
    packages = ("jax", "jaxlib", "equinox", "lineax", "numba", "numpy", "torch", "torchopt")
    versions = {}
    for package in packages:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    cpu = next(
        (
            line.split(":", 1)[1].strip()
            for line in _lines("/proc/cpuinfo")
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "load": os.getloadavg(),
        "python": platform.python_version(),
        "versions": versions,
    }


def run_chosen(
    name: str,
    about: str | None,
    benchmarks: Mapping[str, Callable[[bool], list[Result]]],
    note: str,
    smoke: str,
    arguments: list[str] | None,
) -> int:
    """A command with `--quick`, `--only`, `--pin` and `--json`: what was asked for, judged."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=about)
    parser.add_argument("--quick", action="store_true", help=smoke)
    parser.add_argument("--only", choices=benchmarks, action="append", help="may be repeated")
    parser.add_argument("--pin", action="store_true", help="stay on one core (Linux)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all repetitions")
    options = parser.parse_args(arguments)
    if options.pin:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    results: list[Result] = []
    for chosen in options.only or benchmarks:
        print(f"{chosen} ...", file=sys.stderr, flush=True)
        # What one benchmark compiled must not hide the compile time of the next.
        jax.clear_caches()
        results += benchmarks[chosen](options.quick)
    return report(results, note, options.json, quick=options.quick)


def report(results: list[Result], note: str, file: Path | None, *, quick: bool) -> int:
    """Print the table, write the JSON file, and say whether all limits held (0) or not (1).

    A quick run shows the limits but does not judge by them: it returns 0.
    """
    where = machine()
    console = Console(width=None if Console().is_terminal else 150)
    table = Table(title="obax benchmarks" + (" (quick: a smoke run, not a measurement)" * quick))
    for heading in ("what", "ours", "reference", "compile s", "ratio", "of minima", "limit", ""):
        right = heading not in ("what", "")
        table.add_column(heading, justify="right" if right else "left", no_wrap=heading != "what")
    words = {True: "[green]pass[/]", False: "[bold red]MISSED[/]", None: "reported"}
    for result in results:
        table.add_row(
            result.name,
            result.ours,
            result.reference,
            result.compilation,
            _number(result.ratio),
            _number(result.ratio_best),
            "" if result.limit is None else f"<= {result.limit:.3g}",
            "not judged" if quick and result.limit is not None else words[result.passed],
        )
    console.print(table)
    console.print(note, highlight=False)
    versions = ", ".join(f"{name} {version}" for name, version in where["versions"].items())
    load = " ".join(f"{value:.2f}" for value in where["load"])
    console.print(f"{where['cpu']}, {where['cores']} cores, load {load}; {versions}")
    if file is not None:
        rows = [{**result._asdict(), "passed": result.passed} for result in results]
        file.write_text(json.dumps({"machine": where, "quick": quick, "results": rows}, indent=1))
    if not quick:
        measured = [(result.name, result.ratio, result.limit) for result in results]
        history.keep(
            measured, f"{where['cpu']}, {where['cores']} cores, load {where['load'][0]:.1f}"
        )
    missed = [result.name for result in results if result.passed is False]
    if missed and not quick:
        console.print(f"[bold red]missed:[/] {'; '.join(missed)}")
    return 1 if missed and not quick else 0


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _lines(path: str) -> list[str]:
    file = Path(path)
    return file.read_text().splitlines() if file.exists() else []
