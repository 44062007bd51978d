"""Speed and memory of the core, against the limits of its specification.

    python -m benchmarks.core [--quick] [--only NAME] [--pin] [--json FILE]

Exit code 1 if a limit is missed. `benchmarks/README.md` says how to read the table.
"""

import argparse
import os
import sys
from pathlib import Path

import jax

from . import check, compiled, horizon, imports, live
from .harness import Result, report

BENCHMARKS = {
    "kernel": compiled.run_against_kernel,
    "live": live.play_against_dispatch,
    "sweep": compiled.sweep_against_run,
    "horizon": horizon.late_against_early,
    "memory": horizon.memory_of_live_rounds,
    "imports": imports.imports_against_libraries,
    "check": check.check_at_sizes,
}
NOTE = """\
Times are medians in us per round, minima in brackets; compilation is apart (ours / reference). The
ratio is the median over interleaved repetitions, and it is what is judged. The limits on run are
judged against the kernel that keeps the same record and guard as obax; the kernels without them, or
compiled for d2 = 5, are reported. One compilation of a kernel serves all windows."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.core", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run of a few seconds")
    parser.add_argument("--only", choices=BENCHMARKS, action="append", help="may be repeated")
    parser.add_argument("--pin", action="store_true", help="stay on one core (Linux)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all repetitions")
    options = parser.parse_args(arguments)
    if options.pin:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    results: list[Result] = []
    for name in options.only or BENCHMARKS:
        print(f"{name} ...", file=sys.stderr, flush=True)
        # What one benchmark compiled must not hide the compile time of the next.
        jax.clear_caches()
        results += BENCHMARKS[name](options.quick)
    return report(results, NOTE, options.json, quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
