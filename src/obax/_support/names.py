"""Public names that are imported when they are first asked for (PEP 562)."""

import ast
import importlib
import importlib.util
import sys
from collections.abc import Callable


def lazy_names(package: str) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """`__all__`, `__getattr__` and `__dir__` of a package that lists its names once.

    The list is the imports below `if TYPE_CHECKING:` in its `__init__.py`, in the form that type
    checkers read: `from .room import name as name`, `from . import room as room`, or
    `from .room import *` for all that the `__init__.py` of the room imports, which is read and
    not run.
    """
    module = sys.modules[package]
    (listed,) = (line for line in _lines(package) if isinstance(line, ast.If))
    table: dict[str, str | None] = {}
    for room, name in _imports(listed.body):
        names = [name] if name != "*" else [it for _, it in _imports(_lines(f"{package}.{room}"))]
        table |= dict.fromkeys(names, room)

    def __getattr__(name: str) -> object:
        if name not in table:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        room = table[name]
        found = importlib.import_module(f"{package}.{room or name}")
        value = getattr(found, name) if room else found
        setattr(module, name, value)
        return value

    return [*table], __getattr__, lambda: sorted({*vars(module), *table})


def _lines(module: str) -> list[ast.stmt]:
    """The statements of a module that need not have been run."""
    found = importlib.util.find_spec(module)
    return ast.parse(found.loader.get_source(module)).body  # type: ignore[union-attr]


def _imports(lines: list[ast.stmt]) -> list[tuple[str | None, str]]:
    """Room (`None` where a room itself is imported) and name."""
    found = [line for line in lines if isinstance(line, ast.ImportFrom)]
    return [(line.module, alias.asname or alias.name) for line in found for alias in line.names]
