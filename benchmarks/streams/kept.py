"""Results of the rivals, kept in a file: they are slow to get and do not change with our code.

python -m benchmarks.streams.kept FILE                    # play what is missing in it
python -m benchmarks.streams.kept FILE --part linear      # only the quick ones
"""

import argparse
import json
from pathlib import Path

from .data import Stream
from .rivals import OTHERS, linear, play
from .sources import SOURCES
from .work import here, in_parallel

FILE = Path(__file__).with_name("rivals.json")
SLOW = (
    *("River ARF(10)", "River ARF(10), scaled", "River HAT", "River HAT, scaled"),
    *("scikit-learn SGD", "scikit-learn SGD, rate 0.01"),
)
PARTS = ("linear", "slow", "all")


def read(path: Path = FILE) -> dict[str, dict]:
    """What is kept, by stream."""
    return json.loads(path.read_text()) if path.exists() else {}


def of(kept: dict[str, dict], data: Stream) -> dict[str, dict[str, float]]:
    """The rivals' results on this very stream; none where it has changed since."""
    entry = kept.get(data.name, {})
    return entry["rivals"] if entry.get("digest") == data.digest else {}


def river_best(rivals: dict[str, dict[str, float]]) -> float:
    """The least loss of River's linear model, default and eight settings, chosen in hindsight."""
    names = ("River default", *(name for name in rivals if name.startswith("River rate")))
    return min(rivals[name]["loss"] for name in names)


def names(kind: str, part: str = "all") -> list[str]:
    """The rivals of a part."""
    quick = [*linear(kind), *(name for name in OTHERS if name not in SLOW)]
    return {"linear": quick, "slow": list(SLOW), "all": [*quick, *SLOW]}[part]


def one(name: str, limit: int, missing: list[str]) -> dict:
    """The results of some rivals on a stream, with what says which stream it was."""
    data = here(name, limit)
    rivals = linear(data.kind) | OTHERS
    found = {rival: play(data, rivals[rival]) for rival in missing}
    return {
        "kind": data.kind,
        "rows": len(data.y),
        "digest": data.digest,
        "rivals": {rival: result for rival, result in found.items() if result is not None},
    }


def complete(path: Path, part: str) -> None:
    """Play what is missing, one rival at a time, and write the file after each."""
    kept, tasks = read(path), []
    for name, (kind, _) in SOURCES.items():
        data = here(name)
        if data is None:
            continue
        known = of(kept, data)
        tasks += [(name, len(data.y), [r]) for r in names(kind, part) if r not in known]
    # All streams with one rival, then with the next: the file is of use before it is complete.
    order = names("classes") + names("regression")
    tasks.sort(key=lambda task: order.index(task[2][0]))
    for (name, _, (rival,)), entry in in_parallel(one, tasks):
        old = kept.get(name, {})
        if old.get("digest") == entry["digest"]:
            entry["rivals"] = old["rivals"] | entry["rivals"]
        if "River default" in entry["rivals"]:
            entry["river_best"] = river_best(entry["rivals"])
        kept[name] = entry
        path.write_text(json.dumps(kept, indent=1))
        print(f"{name}: {rival}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", default=FILE)
    parser.add_argument("--part", choices=PARTS, default="all")
    arguments = parser.parse_args()
    complete(arguments.file, arguments.part)


if __name__ == "__main__":
    main()
