"""How long the presets take, against what `obax list` promises.

    python -m benchmarks.durations [--only NAME] [--preset quick] [--factor 1.5]

Runs each preset whose duration is said to be measured, one after the other, in a process of its
own and a folder that is thrown away; wall clock, from the command to the finished report. Exit code
1 if one takes longer than the promise times the factor, or less than the promise divided by it
twice over: then put the measured figure into the experiment's `Duration`. For a quiet machine: on a
busy one the processor's seconds, which stand beside, say more.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time

from obax.lab import EXPERIMENTS


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.durations", description=__doc__)
    parser.add_argument("--only", choices=EXPERIMENTS, action="append", help="may be repeated")
    parser.add_argument("--preset", default="quick", help="quick, or paper where it is measured")
    parser.add_argument("--factor", type=float, default=1.5, help="how far off is too far")
    options = parser.parse_args(arguments)
    missed = []
    print(f"{'experiment':26s}{'promised':>12s}{'wall, s':>10s}{'processor, s':>14s}")
    for name in options.only or EXPERIMENTS:
        promised = EXPERIMENTS[name].durations.get(options.preset)
        if promised is None or not promised.measured:
            continue
        wall, processor = measured(name, options.preset)
        print(f"{name:26s}{promised!s:>12s}{wall:10.0f}{processor:14.0f}", flush=True)
        if not judged(wall, promised.seconds, options.factor):
            missed.append(name)
    if missed:
        print(f"beyond the promise: {', '.join(missed)}", file=sys.stderr)
    return bool(missed)


def judged(seconds: float, promised: float, factor: float) -> bool:
    """Whether a promise is kept: not much longer, and not so short that it frightens people off."""
    return promised / factor**2 <= seconds <= promised * factor


def measured(name: str, preset: str) -> tuple[float, float]:
    """Seconds on the wall and of the processor."""
    with tempfile.TemporaryDirectory() as folder:
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        command = [sys.executable, "-m", "obax", "run", name, "--preset", preset]
        command += ["--out", f"{folder}/run", "--json"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, used


if __name__ == "__main__":
    sys.exit(main())
