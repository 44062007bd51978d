"""Wrong command lines, generated: each must end with a line in words and exit code 2."""

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path

from typer.testing import CliRunner

from obax import cli
from obax._support.messages import UserError

STREAM = {
    "checkpoint-every": ("0", "-1", "x", "nan"),
    "coverage": ("0", "1", "2", "nan", "-1", "x", "inf"),
    "penalty": ("nan", "-1", "inf", "x", "0"),
    "memory": ("nan", "-1", "0.5", "x", "1e9"),
    "inertia": ("nan", "-1", "x"),
    "learn": ("nothing", "penalty,no"),
    "lags": ("-1", "1.5", "nan", "x"),
    "members": ("x", "start"),
    "share": ("1", "-1", "nan", "x"),
    "max-keys": ("0", "3", "x"),
    **dict.fromkeys(("imbalance", "features", "task", "format", "drop", "id", "key"), ("zzz",)),
}
SETTINGS = {
    "horizon": ("nan", "0", "-3", "1.5", "inf", ""),
    **dict.fromkeys(("seeds", "windows", "decays", "noise"), ("nan", "-1", "x")),
    "nosuch": ("1",),
}


@dataclasses.dataclass(frozen=True)
class Command:
    """One wrong command line."""

    words: tuple[str, ...]

    def answer(self) -> str | None:
        """What is wrong with the answer; `None` if it is as it should be."""
        done = CliRunner().invoke(cli.app, self.words)
        error = done.exception
        # `cli.main` makes one line of these; a file that is not there names itself.
        told = isinstance(error, UserError) or (isinstance(error, OSError) and error.filename)
        if told or (isinstance(error, SystemExit) and done.exit_code == 2):
            return None
        return f"{' '.join(self.words)}: exit {done.exit_code}, {type(error).__name__}: {error}"


def commands(folder: Path) -> Iterator[Command]:
    """All of them; what they would write goes below `folder`."""
    rows, outs = folder / "few.csv", (str(folder / f"out{i}") for i in itertools.count())
    rows.write_text("a,b,up\n" + "".join(f"{i % 7},{i % 3},{i % 2}\n" for i in range(60)))
    stream = ("stream", str(rows), "--target", "up")
    run = ("run", "dynamic-regression")
    for option, values in STREAM.items():
        for value in values:
            yield Command((*stream, "--out", next(outs), f"--{option}", value))
    for setting, values in SETTINGS.items():
        for value in values:
            yield Command((*run, "--out", next(outs), "--set", f"{setting}={value}"))
    others: tuple[tuple[str, ...], ...] = (
        ("run", "nosuch"), (*run, "--preset", "nosuch"), (*run, "--seeds", "0"),
        (*run, "--resume"), (*run, "--resume", "--out", next(outs)), (*run, "--out", str(rows)),
        (*run, "--set", "x"), (*run, "--workers", "0"), (*run, "--scheduler", "x"),
        ("report", next(outs)), ("report", str(rows)), ("watch", next(outs)), ("nosuch",),
        ("stream", str(folder), "--target", "up"), ("stream", next(outs), "--target", "up"),
        ("stream", str(rows)), (*stream, "--out", str(folder)), ("data", "nosuch"),
        (*stream, "--out", str(folder / "no" / "such" / "out")), ("certify", "nosuch"),
        (*stream, "--out", next(outs), "--checkpoint", str(rows)), (*stream, "--start", "pooled"),
    )  # fmt: skip
    yield from map(Command, others)
