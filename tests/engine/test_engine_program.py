"""The engine's own tests, a C++ program, under AddressSanitizer and UndefinedBehaviorSanitizer."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The tests, compiled with both sanitizers."""
    folder = tmp_path_factory.mktemp("engine")
    options = ["-DOBAX_MODULE=OFF", "-DOBAX_TESTS=ON", "-DOBAX_SANITIZE=ON"]
    for words in (["-S", ROOT, "-B", folder, *options], ["--build", folder, "--parallel", "2"]):
        done = subprocess.run(["cmake", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / "engine_tests"


def run(program, *names):
    return subprocess.run([program, *names], capture_output=True, text=True, check=False)


def test_the_engine_passes_its_own_tests(program):
    done = run(program)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.search(r"(\d+) tests, 0 failed", done.stdout)[1]) > 0


@pytest.mark.parametrize(
    "name, said",
    [
        ("a_read_beyond_the_end", "heap-buffer-overflow"),
        ("a_read_after_the_end_of_life", "heap-use-after-free"),
        ("a_sum_that_overflows", "signed integer overflow"),
        ("a_check_that_fails", "FAILED a_check_that_fails: .*hidden"),
        ("no_such_test", "0 tests"),
    ],
)
def test_a_fault_is_seen(program, name, said):
    done = run(program, name)
    assert done.returncode != 0
    assert re.search(said, done.stdout + done.stderr)
