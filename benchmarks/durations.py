"""How long the presets take, and whether `obax list` promises it.

    python -m benchmarks.durations [--only NAME] [--preset quick] [--keep] [--runs DIR]
    python -m benchmarks.durations --from DIR [--keep]

Runs the preset of each experiment, one after the other, in a process of its own and a folder that
is thrown away, or left below `--runs DIR` with its report to look at; wall clock, from the command
to the finished report. `--keep` writes what came out to `src/obax/lab/kit/durations.json`, which
`obax list` reads. Without it the promise is judged: exit code 1 if a run takes longer than the
promise times the factor, or less than it divided by the factor twice over, or if nobody has
measured that preset as it is now. For a quiet machine: on a busy one the processor's seconds, which
stand beside, say more.

What takes many hours need not be run to its end: `--from DIR` reads the clock of the parts that a
run of a preset has finished, also of one with fewer seeds (`obax run NAME --preset reduced
--seeds 1 --out DIR`), and takes every other seed to be as long. `obax list` then says from how many
parts.
"""

import argparse
import contextlib
import datetime
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import fmean

from obax import datasets
from obax.lab import EXPERIMENTS, Experiment, RunFolder, find
from obax.lab.kit import durations
from obax.lab.kit.reuse import finished_parts

from .harness import machine
from .history import commit


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.durations", description=__doc__)
    parser.add_argument("--only", choices=EXPERIMENTS, action="append", help="may be repeated")
    parser.add_argument("--preset", default="quick", help="quick, or another that ends in time")
    parser.add_argument("--keep", action="store_true", help="what obax list says from now on")
    parser.add_argument("--runs", metavar="DIR", help="where the run folders stay")
    parser.add_argument("--from", dest="run", metavar="DIR", type=Path, help="of a run's parts")
    parser.add_argument("--factor", type=float, default=1.5, help="how far off is too far")
    options = parser.parse_args(arguments)
    if options.run:
        return from_parts(options.run, options.keep)
    missed = []
    print(f"{'experiment':26s}{'promised':>20s}{'wall, s':>10s}{'processor, s':>14s}  data")
    for name in options.only or EXPERIMENTS:
        experiment = EXPERIMENTS[name]
        if options.preset not in experiment.presets:
            continue
        promise = experiment.durations[options.preset]
        wall, processor = measured(name, options.preset, options.runs)
        data = data_of(experiment.files)
        print(f"{name:26s}{promise!s:>20s}{wall:10.0f}{processor:14.0f}  {data}", flush=True)
        if options.keep:
            keep(experiment, options.preset, wall, processor)
        elif promise.seconds is None or not judged(wall, promise.seconds, options.factor):
            missed.append(name)
    if missed:
        print(f"not as promised: {', '.join(missed)}", file=sys.stderr)
    return bool(missed)


def keep(
    experiment: Experiment, preset: str, wall: float, processor: float | None, **about: str
) -> None:
    """Write it down, with where and when."""
    where = machine()
    line = {
        "seconds": round(wall, 1),
        "processor": processor and round(processor, 1),
        "data": data_of(experiment.files),
        "machine": f"{where['cores']} cores of {where['cpu']}",
        "commit": commit(),
        "date": datetime.date.today().isoformat(),
    }
    durations.keep(experiment.name, preset, experiment.presets[preset], **line | about)


def from_parts(path: Path, kept: bool) -> int:
    """Work out how long a preset takes from the parts of it that a run folder has."""
    folder = RunFolder.open(path)
    experiment, preset = find(folder.info["experiment"]), folder.info["preset"]
    names = [part.name for part in experiment.parts(experiment.presets[preset])]
    clock = defaultdict(list)
    for name, _, about in finished_parts(experiment, experiment.presets[preset], names, [path]):
        clock[without_seed(name)].append(about["seconds"])
    if lacking := {without_seed(name) for name in names} - {*clock}:
        print(f"{path} has no finished part of {', '.join(sorted(lacking))}.", file=sys.stderr)
        return 1
    seconds = sum(fmean(clock[without_seed(name)]) for name in names)
    parts = f"{sum(map(len, clock.values()))} of {len(names)}"
    print(f"{experiment.name} {preset}: {durations.Duration(seconds, parts)}")
    if kept:
        ran = (folder.info["commit"] or "unknown")[:7]
        keep(experiment, preset, seconds, None, parts=parts, commit=ran)
    return 0


def without_seed(part: str) -> str:
    """What parts that differ in their seed alone have in common."""
    return re.sub(r"^seed\d+-", "", part)


def judged(seconds: float, promised: float, factor: float) -> bool:
    """Whether a promise is kept: not much longer, and not so short that it frightens people off."""
    return promised / factor**2 <= seconds <= promised * factor


def data_of(files: tuple[str, ...]) -> str:
    """What an experiment that reads these files, if they are at hand, works with here."""
    return "real" if files and all(map(datasets.find, files)) else "generated"


def measured(name: str, preset: str, runs: str | None = None) -> tuple[float, float]:
    """Seconds on the wall and of the processor."""
    with contextlib.nullcontext(runs) if runs else tempfile.TemporaryDirectory() as folder:
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        command = [sys.executable, "-m", "obax", "run", name, "--preset", preset]
        command += ["--out", f"{folder}/{name}-{preset}", "--json"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, used


if __name__ == "__main__":
    sys.exit(main())
