"""How much of obax the command `obax run dynamic-regression` runs through.

Print the functions that it calls, by file: `python tests/lab/test_call_path.py`.
"""

import collections
import contextlib
import io
import sys
import tempfile
import threading
from pathlib import Path

import jax
import pytest

import obax

TINY = {
    "horizon": "40",
    "seeds": "2",
    "tuning_seeds": "3",
    "scenarios": "paper",
    "stages": "2",
    "outer_dims": "1",
    "windows": "1,T",
    "window_sizes": "1,T",
    "decays": "1",
    "normalisations": "seen",
    "inner_steps": "2",
    "outer_step_sizes": "0.05",
    "inner_step_sizes": "0.05",
    "offline_points": "3",
    "curve_points": "10",
}
SOURCE, JAX = str(Path(obax.__file__).parent), str(Path(jax.__file__).parent)
OURS, ALL = 165, 370
"""The limits of functions of lab and the command line, and of all of obax. 0.2 had 1,120."""
CO_NEWLOCALS = 2
"""The flag of functions; the bodies of modules and classes do not have it."""


def called(command):
    """Return how often each function of obax is called by a command, by its code object.

    Functions that JAX calls while it traces a program are not counted.
    """
    counts, inside_jax = collections.Counter(), collections.Counter()

    def count(frame, event, argument):
        code, thread = frame.f_code, threading.get_ident()
        if code.co_filename.startswith(JAX):
            inside_jax[thread] += {"call": 1, "return": -1}.get(event, 0)
        elif event == "call" and code.co_filename.startswith(SOURCE) and is_function(code):
            counts[code] += inside_jax[thread] <= 0

    from obax.cli import app

    threading.setprofile(count)
    sys.setprofile(count)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            app(command, standalone_mode=False)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return +counts


def is_function(code):
    """Whether the code is that of a named function in a module, not of a template or lambda."""
    named = bool(code.co_flags & CO_NEWLOCALS) and not code.co_name.startswith("<")
    return named and code.co_filename.endswith(".py")


def run_tiny(folder):
    settings = [f"--set={key}={value}" for key, value in TINY.items()]
    return called(["run", "dynamic-regression", "--out", str(folder), "--json", *settings])


def package_of(code):
    return Path(code.co_filename).relative_to(SOURCE).parts[0].removesuffix(".py")


@pytest.mark.slow
def test_one_experiment_is_loaded_and_the_functions_on_its_way_are_few(tmp_path):
    codes = run_tiny(tmp_path / "run")
    ours = [code for code in codes if package_of(code) in ("lab", "cli")]
    folders = {Path(code.co_filename).parent.name for code in ours}
    assert not folders & {"loss_tuning", "meta_learning", "comparison"}
    assert len(ours) <= OURS, sorted(code.co_qualname for code in ours)
    assert len(codes) <= ALL, sorted(code.co_qualname for code in codes)


def test_the_count_notices_calls():
    """An instrument that sees nothing would pass every limit."""
    names = {code.co_name for code in called(["list", "--json"])}
    assert {"list_experiments", "find", "show_rows"} <= names


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        codes = run_tiny(Path(scratch) / "run")
    by_package = collections.Counter(map(package_of, codes))
    for package, number in by_package.most_common():
        print(f"{number:5} {package}")
    for code in sorted(codes, key=lambda code: (code.co_filename, code.co_firstlineno)):
        place = Path(code.co_filename).relative_to(SOURCE)
        print(f"{codes[code]:6} {place} {getattr(code, 'co_qualname', code.co_name)}")
    print(f"{sum(codes.values())} calls of {len(codes)} functions in", end=" ")
    print(f"{len({code.co_filename for code in codes})} files")
