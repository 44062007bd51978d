"""Public names that are imported when they are first asked for (PEP 562)."""

import ast
import importlib
import sys
from collections.abc import Callable


def lazy_names(
    package: str,
) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """`__all__`, `__getattr__` and `__dir__` of a package that lists its names once.

    The list is the imports below `if TYPE_CHECKING:` in its `__init__.py`, in the form that type
    checkers read: `from .room import name as name`, or `from . import room as room`.
    """
    module = sys.modules[package]
    table = _table(module.__loader__.get_source(package))  # type: ignore[union-attr]

    def __getattr__(name: str) -> object:
        if name not in table:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        room = table[name]
        found = importlib.import_module(f"{package}.{room or name}")
        value = getattr(found, name) if room else found
        setattr(module, name, value)
        return value

    return [*table], __getattr__, lambda: sorted({*vars(module), *table})


def _table(source: str) -> dict[str, str | None]:
    """The room of each name; `None` for a room itself."""
    return {
        alias.name: statement.module
        for branch in ast.parse(source).body
        if isinstance(branch, ast.If) and ast.unparse(branch.test) == "TYPE_CHECKING"
        for statement in branch.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
