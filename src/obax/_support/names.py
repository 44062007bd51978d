"""Public names that are imported when they are first used (PEP 562), and versions of packages."""

import ast
import functools
import hashlib
import importlib
import importlib.util
import platform
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

# The numbers depend on these.
PACKAGES = ("jax", "jaxlib", "equinox", "optax", "lineax", "numpy", "pandas")


def lazy_names(package: str) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` of a package that lists its names once.

    The list is the imports below `if TYPE_CHECKING:` in its `__init__.py`, in the form that type
    checkers read: `from .module import name as name`, `from . import module as module`, or
    `from .module import *` for all that the `__init__.py` of the module imports, which is read and
    not run.
    """
    this = sys.modules[package]
    (listed,) = (line for line in _lines(package) if isinstance(line, ast.If))
    table: dict[str, str | None] = {}
    for module, name in _imports(listed.body):
        names = [name]
        if name == "*":
            names = [public for _, public in _imports(_lines(f"{package}.{module}"))]
        table |= dict.fromkeys(names, module)

    def __getattr__(name: str) -> object:
        if name not in table:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = table[name]
        imported = importlib.import_module(f"{package}.{module or name}")
        value = getattr(imported, name) if module else imported
        setattr(this, name, value)
        return value

    return [*table], __getattr__, lambda: sorted({*vars(this), *table})


def _lines(module: str) -> list[ast.stmt]:
    """Return the statements of a module, which need not have been run."""
    spec = importlib.util.find_spec(module)
    return ast.parse(spec.loader.get_source(module)).body  # type: ignore[union-attr]


def _imports(lines: list[ast.stmt]) -> list[tuple[str | None, str]]:
    """Return module (`None` where a module itself is imported) and name of each import."""
    imports = [line for line in lines if isinstance(line, ast.ImportFrom)]
    return [(line.module, alias.asname or alias.name) for line in imports for alias in line.names]


def versions() -> dict[str, str]:
    """Return the versions of Python, obax and what the numbers depend on."""
    from .. import __version__

    packages = {name: metadata.version(name) for name in PACKAGES}
    return {"python": platform.python_version(), "obax": __version__} | packages


@functools.cache
def source() -> str:
    """Return a short checksum of the files of obax: two checkouts may have one version."""
    root, total = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        total.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()[:12]
