"""A model does without SciPy; compiled functions of others that need it still get it."""

import json
import subprocess
import sys

import pytest

ROWS = """
from obax.estimators import StreamingClassifier
model = StreamingClassifier()
for i in range(5):
    model.predict_proba_one({"a": float(i)})
    model.learn_one({"a": float(i)}, i % 2)
"""
SPARED = "from obax.estimators.kernel.lean import spare_scipy; spare_scipy()\n"
EMPTY = """
import numba
numba.njit("void()")(lambda: None)
"""
SOLVE = """
import numba, numpy
twice = 2 * numpy.eye(2)
found = numba.njit(lambda a: numpy.linalg.solve(a, a.T) + numpy.dot(a, a))(twice)
assert found.tolist() == [[5.0, 0.0], [0.0, 5.0]]
"""


def loads_scipy(code):
    """Whether a fresh process that runs the code has SciPy's linear algebra at its end."""
    code += "\nimport json, sys; print(json.dumps('scipy.linalg' in sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return json.loads(run.stdout)


def test_a_model_learns_without_scipy():
    assert not loads_scipy(ROWS)


def test_numba_by_itself_does_load_it():
    # Where this fails numba has stopped looking, and `kernel/lean.py` can go.
    assert loads_scipy(EMPTY)
    assert not loads_scipy(SPARED + EMPTY)


@pytest.mark.slow
def test_linear_algebra_of_others_still_compiles():
    assert loads_scipy(ROWS + SOLVE)
