"""A model does without what numba brings along; compiled functions of others still get it."""

import json
import os
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


def test_the_kernel_runs_after_its_source_was_dropped():
    code = (
        ROWS
        + """
from obax.estimators.kernel import kernel
assert kernel() is model._core._play
assert not any(getattr(o.library, "_shared_module", None) for o in kernel().overloads.values())
assert len(model.predict_proba_one({"a": 1.0})) == 2
"""
    )
    assert not loads_scipy(code)


def test_numba_by_itself_keeps_it(tmp_path):
    # Where this fails numba has stopped keeping it, and `drop_source` can go.
    file = tmp_path / "small.py"
    file.write_text(
        "import numba, sys\n"
        "from obax.estimators.kernel.lean import drop_source, spare_scipy\n"
        "spare_scipy()\n"
        "@numba.njit('float64(float64)', cache=True)\n"
        "def twice(x):\n"
        "    return 2.0 * x\n"
        "(overload,) = twice.overloads.values()\n"
        "kept = getattr(overload.library, '_shared_module', None) is not None\n"
        "print(kept, drop_source(twice)(3.0), overload.library._shared_module)\n"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    said = []
    for _ in range(2):
        run = subprocess.run(
            [sys.executable, file], check=True, capture_output=True, text=True, env=environment
        )
        said.append(run.stdout.split())
    assert said[1] == ["True", "6.0", "None"]
