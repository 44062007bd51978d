"""The public names: all there, loaded when asked for, and without JAX where none is needed."""

import subprocess
import sys

import pytest

import obax

CONTRACT = """
Problem Box Window OAGD run play sweep check_hypergradient save load hypergradient.CG
hypergradient.Dense hypergradient.Neumann hypergradient.Unrolled regret.dynamic regret.static
regret.local regret.path_lengths theory.Constants problems models datasets estimators certify
testing.check_algorithm testing.check_problem callbacks.Watch
checkpoint lab lab.run estimators.StreamingClassifier Algorithm Info RejectedRoundError
""".split()  # noqa: SIM905


@pytest.mark.parametrize("name", CONTRACT)
def test_every_name_of_the_contract_resolves(name):
    found = obax
    for part in name.split("."):
        found = getattr(found, part)


def test_every_listed_name_resolves_and_shows():
    for name in obax.__all__:
        assert getattr(obax, name) is not None
        assert name in dir(obax)


def test_a_name_of_the_algorithms_is_a_name_of_obax():
    # One line of one `__init__` for a new algorithm: see CONTRIBUTING.
    listed = {*obax.algorithms.__all__}
    assert listed >= {"OAGD", "AOBOState", "Move"} and listed <= {*obax.__all__}
    assert all(getattr(obax, name) is getattr(obax.algorithms, name) for name in listed)


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'obax' has no attribute 'OADG'"):
        _ = obax.OADG


HEAVY = "heavy = [m for m in ('jax', 'pandas', 'scipy', 'numpy') if m in sys.modules]"
COMMAND = """
sys.argv = {words!r}
try:
    from obax.cli import main
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
"""
# The listing itself; what the lab loads to be listed is the lab's own test.
STUB = """
import types
import obax
lab = sys.modules["obax.lab"] = obax.lab = types.ModuleType("obax.lab")
lab.EXPERIMENTS, lab.find = {}, None
"""


@pytest.mark.parametrize(
    "code",
    [
        "import obax; obax.__version__; dir(obax)",
        COMMAND.format(words=["obax", "--version"]),
        STUB + COMMAND.format(words=["obax", "list"]),
        STUB + COMMAND.format(words=["obax", "data", "--help"]),
    ],
    ids=["import", "version", "list", "help"],
)
def test_light_calls_load_nothing_heavy(code):
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\n{HEAVY}\nassert not heavy, heavy"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_core_names_load_no_slow_part_of_scipy():
    code = "import sys, obax; obax.OAGD, obax.run, obax.problems, obax.Problem\n"
    check = "assert not {'scipy.signal', 'scipy.stats', 'pandas', 'matplotlib'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code + check], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
