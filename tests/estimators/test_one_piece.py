"""Kernels that are compiled as one piece, and four numbers at a time."""

import numba
import numpy as np
import pytest
from numba import float64
from numba.core import codegen

from obax.estimators.kernel import algebra
from obax.estimators.kernel.whole import as_one


@numba.njit
def square(x):
    return x * x


def compiled():
    @numba.njit(float64(float64), error_model="numpy")
    def play(x):
        return square(x) / (x - 2.0)

    return play


def test_what_is_called_inside_is_not_made_ready_and_works_all_the_same_after():
    before = codegen.JITCodeLibrary._finalize_final_module, codegen.create_pass_builder
    with as_one("compiled", compact=True):
        play = compiled()
        inner = next(iter(square.overloads.values()))
        assert inner.library.get_pointer_to_function(inner.fndesc.llvm_func_name) == 0
    assert play(3.0) == 9.0 and np.isinf(play(2.0))
    # A call from Python of what has no machine code would end the process.
    assert not square.overloads and square(3.0) == 9.0
    assert before == (codegen.JITCodeLibrary._finalize_final_module, codegen.create_pass_builder)


def test_all_is_as_before_after_an_error():
    before = codegen.JITCodeLibrary._finalize_final_module
    with pytest.raises(ZeroDivisionError), as_one("compiled", compact=True):
        raise ZeroDivisionError
    assert codegen.JITCodeLibrary._finalize_final_module is before


def test_another_numba_compiles_every_function_for_itself(monkeypatch):
    monkeypatch.delattr(codegen.JITCPUCodegen, "set_env")
    before = codegen.create_pass_builder
    with as_one("compiled", compact=True):
        assert codegen.create_pass_builder is before


@pytest.mark.parametrize("d", [1, 3, 4, 9, 33, 41])
def test_products_and_solutions(d):
    rng = np.random.default_rng(d)
    root = rng.standard_normal((d, 2 * d))
    matrix, lines = root @ root.T / d + np.eye(d), rng.standard_normal((2, d))
    out = np.full((2, d), np.nan)
    algebra.multiply_lines(matrix, lines, out)
    np.testing.assert_allclose(out, lines @ matrix, rtol=1e-12, atol=1e-12)
    factors = matrix.copy()
    done = algebra.factorise if d > algebra.SMALL else algebra.invert
    assert done(factors) if d > algebra.SMALL else done(factors, np.empty(d), np.empty(d))
    algebra.solve(factors, lines, out)
    np.testing.assert_allclose(out, np.linalg.solve(matrix, lines.T).T, rtol=1e-9, atol=1e-12)
    lifted = matrix.copy()
    algebra.lift(lifted, 0.5, 3.0, lines[0])
    expected = 0.5 * matrix + 3.0 * np.outer(lines[0], lines[0])
    np.testing.assert_allclose(lifted, expected, rtol=1e-12, atol=1e-12)
    algebra.add(lifted, matrix)
    np.testing.assert_allclose(lifted, expected + matrix, rtol=1e-12, atol=1e-12)
