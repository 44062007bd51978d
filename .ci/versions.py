"""Which versions: `python .ci/versions.py oldest | freeze | check FILE | contents DIST ...`.

`oldest` prints the lower bounds of pyproject.toml (core and tests) as constraints, `freeze` what is
installed of everything that obax may ask for, `check` fails unless the constraints are what is
installed, and `contents` unless a wheel and an sdist hold what they should and nothing else, and a
wheel is small.
"""

import re
import sys
import tarfile
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name
from pip._vendor.packaging.version import Version

ROOT = Path(__file__).parent.parent
# What may stand at the top of an sdist, and must be somewhere in a wheel.
SDIST = {
    "src",
    "tests",
    "docs",
    "examples",
    "benchmarks",
    ".ci",
    "build_backend",
    "CMakeLists.txt",
    "mkdocs.yml",
    "pyproject.toml",
    "PKG-INFO",
}
SDIST |= {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "CITATION.cff", "LICENSE", ".gitignore"}
WHEEL = (
    "obax/__init__.py",
    "obax/py.typed",
    "obax/lab/report/page.html",
    "licenses/LICENSE",
    "METADATA",
)
JUNK = re.compile(
    r"__pycache__|\.pyc$|\.so$|\.pyd$|\.log$|\.egg-info|\.(?:pytest|mypy|ruff)_cache|\.hypothesis|/runs/|\.obax$"
)
# The compiled engine, once in each wheel.
ENGINE = re.compile(r"obax/_engine(?:\.[\w-]+)?\.(?:so|pyd)$")
LARGEST, LARGEST_WHEEL = 500_000, 3_000_000


def asked(*extras: str) -> list[Requirement]:
    """What pyproject.toml asks for, with these extras, obax's own names for others followed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = [Requirement(line) for line in project["dependencies"]]
    for extra in extras:
        for line in map(Requirement, project["optional-dependencies"][extra]):
            found += asked(*line.extras) if line.name == "obax" else [line]
    return found


def oldest() -> dict[str, str]:
    """The lower bound of each package, the highest where it is asked for twice."""
    bounds: dict[str, Version] = {}
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    for line in [*asked("test"), *map(Requirement, build)]:
        lower = [Version(it.version) for it in line.specifier if it.operator in (">=", "==")]
        if not lower:
            raise SystemExit(f"pyproject.toml: {line} has no lower bound.")
        name = canonicalize_name(line.name)
        bounds[name] = max(bounds.get(name, lower[0]), *lower)
    return {name: str(version) for name, version in sorted(bounds.items())}


def freeze() -> dict[str, str]:
    """Name and version of all that is installed and asked for, by obax or by what obax asks for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    waiting = [(line, "") for line in asked(*project["optional-dependencies"])]
    waiting += [(Requirement("pip-audit"), "")]
    found: dict[str, str] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        line, extra = waiting.pop()
        place = (canonicalize_name(line.name), frozenset(line.extras))
        if place in seen or (line.marker and not line.marker.evaluate({"extra": extra})):
            continue
        try:
            found[place[0]] = metadata.version(line.name)
        except metadata.PackageNotFoundError:
            continue
        seen.add(place)
        for below in map(Requirement, metadata.requires(line.name) or ()):
            waiting += [(below, extra) for extra in ("", *line.extras)]
    # The installer is not ours to pin: a fresh environment brings its own.
    return {name: it for name, it in sorted(found.items()) if name not in ("pip", "setuptools")}


def check(file: Path) -> None:
    """The constraints are what is installed, not something near."""
    for line in map(Requirement, file.read_text().splitlines()):
        installed = metadata.version(line.name)
        if installed not in line.specifier:
            raise SystemExit(f"{line} was asked for, {installed} is installed.")


def contents(package: Path) -> None:
    """A release holds what it should and nothing else."""
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as wheel:
            sizes = {it.filename: it.file_size for it in wheel.infolist()}
        missing = [name for name in WHEEL if not any(it.endswith(name) for it in sizes)]
        if len(engines := [it for it in sizes if ENGINE.match(it)]) != 1:
            missing.append(f"one engine, but {len(engines)}")
        for name in engines:
            del sizes[name]
        if package.stat().st_size > LARGEST_WHEEL:
            raise SystemExit(f"{package.name}: {package.stat().st_size / 1e6:.1f} MB, too large.")
        foreign = [it for it in sizes if not re.match(r"obax(-[\d.]+\.dist-info)?/", it)]
    else:
        with tarfile.open(package) as sdist:
            sizes = {it.name.partition("/")[2]: it.size for it in sdist if it.isfile()}
        missing = [
            name for name in SDIST - {".gitignore"} if not any(it.startswith(name) for it in sizes)
        ]
        foreign = [it for it in sizes if it.partition("/")[0] not in SDIST]
    junk = [it for it in sizes if JUNK.search(it)] + foreign
    large = [it for it, size in sizes.items() if size > LARGEST]
    if missing or junk or large:
        raise SystemExit(
            f"{package.name}: missing {missing}, does not belong {junk}, too large {large}."
        )
    print(f"{package.name}: {len(sizes)} files, {package.stat().st_size / 1e6:.2f} MB")


def main(words: list[str]) -> None:
    """Do what the first word says."""
    match words:
        case ["oldest"]:
            print(*(f"{name}=={version}" for name, version in oldest().items()), sep="\n")
        case ["freeze"]:
            print(*(f"{name}=={version}" for name, version in freeze().items()), sep="\n")
        case ["check", file]:
            check(Path(file))
        case ["contents", *files] if files:
            for file in files:
                contents(Path(file))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
