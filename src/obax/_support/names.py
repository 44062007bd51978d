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
    `from .module import *` for all names that the `__init__.py` of the module lists or imports.
    """
    this, table = sys.modules[package], dict[str, str]()
    for module, name in _imports(package):
        public = _imports(f"{package}{module}") if name == "*" else [(module, name)]
        table |= {name: module for _, name in public}

    def __getattr__(name: str) -> object:
        if name not in table:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        # `from . import name`: a module itself.
        is_module = table[name] == "."
        imported = importlib.import_module(table[name] + name * is_module, package)
        value = imported if is_module else getattr(imported, name)
        setattr(this, name, value)
        return value

    return [*table], __getattr__, lambda: sorted({*vars(this), *table})


def _imports(package: str) -> list[tuple[str, str]]:
    """Return the module, as in a relative import, and the name of each import of a package.

    The package need not have been run. Imports for type checkers come before all others.
    """
    spec = importlib.util.find_spec(package)
    lines = ast.parse(spec.loader.get_source(package)).body  # type: ignore[union-attr]
    lines = next((line.body for line in lines if isinstance(line, ast.If)), lines)
    return [
        ("." * line.level + (line.module or ""), alias.asname or alias.name)
        for line in lines
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
    ]


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
