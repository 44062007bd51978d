"""The API pages, made from what each room of `obax` says is public: nothing to keep in step."""

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "obax"
# What people reach for first; all other rooms follow in the order of the alphabet.
FIRST = ("problem", "domain", "window", "algorithms", "hypergradient", "online", "regret")


def rooms() -> list[str]:
    """The public modules: those that `obax/__init__.py` imports as themselves."""
    found = {
        alias.name
        for line in ast.walk(ast.parse((SOURCE / "__init__.py").read_text()))
        if isinstance(line, ast.ImportFrom) and line.module is None
        for alias in line.names
    }
    return [name for name in FIRST if name in found] + sorted(found - {*FIRST})


def elsewhere() -> dict[str, str]:
    """The addresses of names that `obax/__init__.py` takes from files that are no rooms."""
    return {
        alias.name: f"obax.{line.module}.{alias.name}"
        for line in ast.walk(ast.parse((SOURCE / "__init__.py").read_text()))
        if isinstance(line, ast.ImportFrom) and line.module and line.level
        for alias in line.names
        if line.module not in rooms() and alias.asname == alias.name
    }


def address(room: str, name: str) -> str:
    """Where to look for a name: a file that is called like what it holds hides it."""
    inside = SOURCE / room / name
    hidden = inside.with_suffix(".py").exists() or inside.is_dir()
    return f"obax.{room}.{name}.{name}" if hidden else f"obax.{room}.{name}"


def public_names(room: str) -> Iterator[str]:
    """What is imported as itself or defined there, if its name has no underscore in front; also
    what is imported for type checkers and loaded when it is asked for."""
    file = SOURCE / f"{room}.py"
    package = not file.exists()
    lines = ast.parse((SOURCE / room / "__init__.py" if package else file).read_text()).body
    later = [inside for line in lines if isinstance(line, ast.If) for inside in line.body]
    for line in lines + later:
        if isinstance(line, ast.ImportFrom) and package and line.module is not None:
            yield from (alias.name for alias in line.names if alias.asname == alias.name)
        elif isinstance(line, ast.ClassDef | ast.FunctionDef) and not line.name.startswith("_"):
            yield line.name


def page(room: str) -> str:
    """The page of a room, in the words of mkdocstrings."""
    itself = {"show_root_heading": False, "show_root_toc_entry": False, "members": False}
    parts = [f"# obax.{room}\n", f"::: obax.{room}\n{_options(itself)}"]
    # States hold what the next step needs; they are shown after what people call.
    for name in sorted(public_names(room), key=lambda name: name.endswith("State")):
        parts.append(f"::: {address(room, name)}\n")
    return "\n".join(parts)


def index() -> str:
    """Every public name, by room, with a link."""
    lines = ["# API reference\n", "Every public name, by the room that it lives in. "]
    lines += ["What `obax/__init__.py` lists is reachable as `obax.NAME` too.\n"]
    for room in rooms():
        names = ", ".join(f"[`{name}`][{address(room, name)}]" for name in public_names(room))
        lines.append(f"**[obax.{room}]({room}.md)**: {names}\n")
    lines += [f"::: {place}\n" for place in elsewhere().values()]
    return "\n".join(lines)


def _options(options: dict[str, object]) -> str:
    lines = "".join(f"      {name}: {str(value).lower()}\n" for name, value in options.items())
    return "    options:\n" + lines
