"""Operands of topi's functions that do not fit one another."""

from __future__ import annotations

import pytest

from tilewright import te, tvm
from tilewright.ir.errors import LanguageError


def _of(*shape: int) -> te.Tensor:
    return te.placeholder(shape, name=f"T{len(shape)}")


@pytest.mark.parametrize(("declare", "problem"), [
    (lambda nn: nn.dense(_of(8, 8), _of(4, 3)), "sums over 8 of T2 and 3 of T2"),
    (lambda nn: nn.matmul(_of(8, 4), _of(5, 3)), "matmul sums over 4 of T2 and 5 of T2"),
    (lambda nn: nn.batch_matmul(_of(2, 8, 4), _of(2, 3, 5)), "batch_matmul sums over 4 of"),
    (lambda nn: nn.matmul(_of(8), _of(8, 3)), "matmul takes matrices, or batches of them"),
    (lambda nn: nn.conv2d(_of(8, 8), _of(8, 8), 1, 0, 1), "data in the layout NCHW has as many"),
    (lambda nn: nn.conv2d(_of(1, 3, 8, 8), _of(4, 3, 3), 1, 0, 1), "a filter in the layout OIHW"),
])  # fmt: skip
def test_operands_that_do_not_fit_are_refused_where_they_are_declared(declare, problem):
    with pytest.raises(LanguageError, match=problem):
        declare(tvm.topi.nn)


def test_extents_that_are_symbolic_may_fit():
    n = te.var("n")
    assert tvm.topi.nn.dense(te.placeholder((4, n)), _of(3, 8)).ndim == 2


def test_a_declaration_takes_a_function():
    with pytest.raises(LanguageError, match="compute C takes a function of indices, got 3"):
        te.compute((8, 8), 3, name="C")
