"""`python -m benchmarks.attack [--quick] [--only WORD ...] [--json FILE]`: what was tried, what
survived.

| attack | survived means |
|---|---|
| kills | killed (-9) and taken up again, it ends with the bytes of a run left alone |
| garbage rows | objects: learned or rejected, counted, and the model finite |
| garbage lines | `obax stream`: an answer to each in valid JSON, those rejected counted |
| damaged checkpoints | an error in words, or the exact state |
| crafted checkpoints | an error in words, or a state |
| wrong calls | an error of ours that names the argument |
| wrong commands | a line in words and exit code 2 |
| programs in a process | no crash, and memory mappings flat |
| threads | no error, and a model and a pool have learned as many rows as were given |
| live rounds | memory flat |

At full size it takes the best part of an hour; with `--json` parts of it may be run one after the
other, and the table is of all that the file holds.
"""

import argparse
import json
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from . import calls, commands, files, kills, long, rows


class Attack(NamedTuple):
    """So many tries; each answer is of `unit` of them: what is wrong, or `None`."""

    tries: int
    answers: Callable[[], Iterable[str | None]]
    unit: int = 1


class Outcome(NamedTuple):
    """A line of the table."""

    tried: int
    survived: int
    seconds: float
    failures: list[str]


def outcome(attack: Attack) -> Outcome:
    """Tries that were never made are failures."""
    begin = time.monotonic()
    answers = list(attack.answers())
    faults = [answer for answer in answers if answer is not None]
    if (made := attack.unit * len(answers)) != attack.tries:
        faults.append(f"{made:,} of {attack.tries:,} were tried")
    survived = attack.unit * answers.count(None)
    return Outcome(attack.tries, survived, time.monotonic() - begin, faults)


def attacks(quick: bool, folder: Path) -> dict[str, Attack]:
    """By name."""

    def size(full: int, small: int) -> int:
        return small if quick else full

    found: dict[str, Attack] = {}
    for victim in kills.victims(folder, small=quick):
        count = size(victim.count, 1)
        found[f"kills: {victim.name}"] = Attack(
            count, lambda victim=victim, count=count: kills.kill(victim, folder, count)
        )
    number, damaged, crafted = size(500_000, 2_000), size(10_000, 300), size(500, 100)
    found["garbage rows"] = Attack(number, lambda: rows.garbage(number), rows.THOUSAND)
    found["garbage lines"] = Attack(number, lambda: rows.lines(number, folder), rows.THOUSAND)
    found["damaged checkpoints"] = Attack(damaged, lambda: files.damaged(damaged))
    found["crafted checkpoints"] = Attack(crafted, lambda: files.crafted(crafted))
    table = calls.calls()
    found["wrong calls"] = Attack(len(table), lambda: (call.answer() for call in table))
    lines = [*commands.commands(folder)]
    found["wrong commands"] = Attack(len(lines), lambda: (line.answer() for line in lines))
    programs, live, seconds = size(2_000, 80), size(10_000_000, 20_000), size(60, 2)
    found["programs in a process"] = Attack(programs, lambda: [long.programs(programs)], programs)
    found["8 threads, seconds"] = Attack(seconds, lambda: [rows.threads(seconds)], seconds)
    found["live rounds"] = Attack(live, lambda: [long.live(live)], live)
    return found


def shown(outcomes: dict[str, Outcome]) -> Table:
    """What the page has too: attack, tried, survived, failures."""
    table = Table("attack", title="obax under attack")
    for heading in ("tried", "survived", "seconds", "a second"):
        table.add_column(heading, justify="right")
    table.add_column("failures")
    for name, one in outcomes.items():
        words = "; ".join(one.failures[:3])[:160] or "none"
        rate = f"{one.tried / max(one.seconds, 1e-9):,.3g}"
        numbers = f"{one.tried:,}", f"{one.survived:,}", f"{one.seconds:,.0f}", rate
        table.add_row(name, *numbers, words)
    return table


def merged(file: Path | None, quick: bool) -> dict[str, Outcome]:
    """What earlier calls wrote, if they were of the same size."""
    if file is None or not file.is_file():
        return {}
    kept: dict[str, Any] = json.loads(file.read_text())
    if kept["quick"] != quick:
        raise SystemExit(f"{file} is of a run {'with' if kept['quick'] else 'without'} --quick.")
    return {name: Outcome(*one) for name, one in kept["outcomes"].items()}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attack", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few of each, to see that it works")
    parser.add_argument("--only", action="append", metavar="WORD",
                        help="the attack, or those whose name has it; may be repeated")  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE",
                        help="add to the outcomes in it, and show them all")  # fmt: skip
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    outcomes: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory() as folder:
        known = attacks(given.quick, Path(folder))
        for name, attack in known.items():
            if given.only and not any(
                word == name if word in known else word in name for word in given.only
            ):
                continue
            print(f"{name}: {attack.tries:,} ...", file=sys.stderr, flush=True)
            outcomes[name] = outcome(attack)
            if given.json is not None:
                # Another part may be under way at the same time.
                kept = merged(given.json, given.quick) | {name: outcomes[name]}
                text = json.dumps({"quick": given.quick, "outcomes": kept}, indent=1)
                given.json.write_text(text)
    outcomes = merged(given.json, given.quick) | outcomes
    outcomes = {name: outcomes[name] for name in known if name in outcomes}
    Console(width=150).print(shown(outcomes))
    return 1 if any(one.failures for one in outcomes.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
