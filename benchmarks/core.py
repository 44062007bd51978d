"""Speed and memory of the core, against the limits of its specification.

    python -m benchmarks.core [--quick] [--only NAME] [--pin] [--json FILE]

Exit code 1 if a limit is missed. `benchmarks/README.md` says how to read the table.
"""

import sys

from . import check, compiled, horizon, imports, live
from .harness import run_chosen

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
    return run_chosen("core", __doc__, BENCHMARKS, NOTE, "a smoke run of a few seconds", arguments)


if __name__ == "__main__":
    sys.exit(main())
