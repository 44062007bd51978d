"""The version of jaxlib that computes wrong sums: excluded, warned of, and guarded."""

import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import jaxlib
import pytest

from obax._support import compiling
from obax._support.compiling import LARGEST_RIGHT, WRONG_JAXLIB, JaxlibWarning, compiled

ROOT = Path(__file__).parents[2]
# A jaxlib of any version that gives itself the number of the wrong one.
IMPORT = """
import jaxlib, warnings
jaxlib.__version__ = {version!r}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import obax
    obax.OAGD, obax.run
print(*(one.category.__name__ for one in caught if "jaxlib" in str(one.message)))
"""


def warned_at_import(version, flags=""):
    done = subprocess.run(
        [sys.executable, "-c", IMPORT.format(version=version)],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT / "src"), "XLA_FLAGS": flags, "PATH": ""},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_wrong_version_is_excluded():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (line,) = (line for line in project["dependencies"] if line.startswith("jaxlib"))
    assert f"!={WRONG_JAXLIB}" in line


def test_the_wrong_version_is_warned_of_at_import():
    assert warned_at_import(WRONG_JAXLIB) == ["JaxlibWarning"]
    assert warned_at_import("0.10.1") == []


def test_with_the_setting_of_xla_there_is_nothing_to_warn_of():
    if jaxlib.__version__ != WRONG_JAXLIB:
        pytest.skip("other versions may not know the setting")
    assert warned_at_import(WRONG_JAXLIB, f"--{compiling.SETTING}=") == []


@pytest.mark.parametrize(
    ("version", "size", "warns"),
    [
        (WRONG_JAXLIB, LARGEST_RIGHT + 1, True),
        (WRONG_JAXLIB, LARGEST_RIGHT, False),
        ("0.10.1", LARGEST_RIGHT + 1, False),
    ],
)
def test_large_arrays_inside_of_somebodys_jit_are_warned_of(monkeypatch, version, size, warns):
    monkeypatch.setattr(jaxlib, "__version__", version)
    # What makes JAX refuse options inside of another compiled function.
    monkeypatch.setattr(compiling, "OPTIONS", {"xla_cpu_enable_fast_math": False})
    inside = compiled(lambda x: 2 * x)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        jax.jit(lambda x: inside(x) + 1)(jnp.ones(size))
    assert [one.category for one in caught] == [JaxlibWarning] * warns
