"""Which versions the numbers depend on."""

import functools
import hashlib
import platform
from importlib import metadata
from pathlib import Path

from .. import __version__

PACKAGES = ("jax", "jaxlib", "equinox", "optax", "lineax", "numpy", "pandas")


def versions() -> dict[str, str]:
    """Of Python, obax and what the numbers depend on."""
    found = {"python": platform.python_version(), "obax": __version__}
    return found | {name: metadata.version(name) for name in PACKAGES}


@functools.cache
def source() -> str:
    """A short checksum of obax as it is installed here: two checkouts may bear one version."""
    root, total = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        total.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()[:12]
