"""Processor time of imports and of the light commands, each in a process of its own."""

import resource
import statistics
import subprocess
import sys

from .harness import Result

LIBRARIES = "import jax, equinox, optax"
# A person's first line; the names load the rooms that every script needs.
OURS = "import obax; obax.OAGD, obax.run, obax.Problem"
COMMAND = "import sys; from obax.cli import main; sys.argv = {words!r}; main()"
LIMIT, SECONDS = 1.25, 0.5


def imports_against_libraries(quick: bool) -> list[Result]:
    """`import obax` against the libraries it stands on; `obax --version` and `obax list` against
    half a second."""
    cases = {
        "libraries": LIBRARIES,
        "import obax and its core names": OURS,
        "import obax": "import obax",
        "obax --version": COMMAND.format(words=["obax", "--version"]),
        "obax list": COMMAND.format(words=["obax", "list"]),
    }
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(2 if quick else 7):
        for name, code in cases.items():
            times[name].append(_processor_seconds(code))
    reference = times.pop("libraries")
    results = []
    for name, runs in times.items():
        command = name.startswith("obax ")
        base = [SECONDS] * len(runs) if command else reference
        ratio = statistics.median(a / b for a, b in zip(runs, base, strict=True))
        results.append(
            Result(
                f"{name}, processor seconds, against "
                + ("half a second" if command else LIBRARIES),
                f"{statistics.median(runs):.3g} s",
                f"{statistics.median(base):.3g} s",
                "",
                ratio,
                min(runs) / min(base),
                1.0 if command else LIMIT,
                {"ours_s": runs, "reference_s": base},
            )
        )
    return results


def _processor_seconds(code: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
