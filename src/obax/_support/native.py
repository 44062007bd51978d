"""The compiled engine of the streaming models, and what to do where it is missing or too old."""

import functools
import hashlib
import warnings
from importlib import import_module
from pathlib import Path
from types import ModuleType

CHECKOUT = Path(__file__).parents[3]
MISSING = (
    "The streaming models need obax's compiled engine, which is missing here: install a C++20 "
    "compiler (g++, clang or Visual C++) and the headers of Python, then install obax again with "
    "`pip install --force-reinstall --no-deps --no-cache-dir`"
)


def engine() -> ModuleType:
    """Return the compiled engine; where there is none, an ImportError says what to install."""
    try:
        module = import_module("obax._engine")
    except ImportError as error:
        raise ImportError(f"{MISSING} ({error}).") from error
    # Only a module that was built in place knows its sources. They may have stayed behind.
    built_from = module.sources if (CHECKOUT / "CMakeLists.txt").exists() else ""
    if built_from and built_from != digest(CHECKOUT):
        warnings.warn(
            f"The files in {CHECKOUT / 'src' / 'engine'} changed after obax's engine was built: "
            f"build it again with `pip install -e {CHECKOUT}`.",
            stacklevel=2,
        )
    return module


@functools.cache
def loaded() -> ModuleType:
    """Return the compiled engine, looked for and compared with its sources once."""
    return engine()


def digest(checkout: Path) -> str:
    """Return a checksum of everything that the engine is compiled from."""
    files = sorted((checkout / "src" / "engine").rglob("*.[ch]pp"))
    checksum = hashlib.sha256()
    for file in [checkout / "CMakeLists.txt", *files]:
        content = file.read_bytes()
        checksum.update(f"{file.relative_to(checkout).as_posix()} {len(content)}\n".encode())
        checksum.update(content)
    return checksum.hexdigest()
