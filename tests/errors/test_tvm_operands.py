"""Operands of topi's functions that do not fit one another."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright import te, tvm
from tilewright.ir.errors import LanguageError


def _of(*shape: int) -> te.Tensor:
    return te.placeholder(shape, name=f"T{len(shape)}")


def _back(nn: Any, channels: int, more: int = 0) -> te.Tensor:
    weight, sizes = _of(channels, 4, 3, 3), ((2, 2), (0, 0), "float32", (more, more))
    return nn.conv2d_transpose_nchw(_of(1, 3, 8, 8), weight, *sizes)


@pytest.mark.parametrize(("declare", "problem"), [
    (lambda nn: nn.dense(_of(8, 8), _of(4, 3)), "sums over extents of T2 and T2: 8 and 3"),
    (lambda nn: nn.matmul(_of(8, 4), _of(5, 3)), "matmul sums over extents .*: 4 and 5"),
    (lambda nn: tvm.topi.matmul(_of(8, 4), _of(5, 3)), "matmul sums over extents .*: 4 and 5"),
    (lambda nn: nn.batch_matmul(_of(2, 8, 4), _of(2, 3, 5)), "batch_matmul sums over .*: 4 and 5"),
    (lambda nn: nn.batch_matmul(_of(2, 8, 4), _of(3, 5, 4)), "batch_matmul has batches of: 2 and"),
    (lambda nn: nn.batch_matmul(_of(8, 4), _of(5, 4)), "batch_matmul takes batches of matrices"),
    (lambda nn: nn.matmul(_of(8), _of(8, 3)), "matmul takes matrices, or batches of them"),
    (lambda nn: nn.conv2d(_of(8, 8), _of(8, 8), 1, 0, 1), "data in the layout NCHW has as many"),
    (lambda nn: nn.conv2d(_of(1, 3, 8, 8), _of(4, 3, 3), 1, 0, 1), "a filter in the layout OIHW"),
    (lambda nn: nn.conv2d(_of(1, 3, 8, 8), _of(4, 5, 3, 3), 1, 0, 1), "channels .*: 3 and 5"),
    (lambda nn: nn.group_conv2d_nchw(_of(1, 6, 8, 8), _of(4, 2, 3, 3), 1, 0, 1, 3),
     "3 groups do not divide 4 channels"),
    (lambda nn: _back(nn, 5), "channels of data, and of a filter: 3 and 5"),
    (lambda nn: _back(nn, 3, -1), "output_padding is at least 0"),
    (lambda nn: tvm.topi.reshape(_of(3, 4), (5, 2)), "reshape of T2 has elements: 12 and 10"),
    (lambda nn: tvm.topi.concatenate((_of(3, 4), _of(2, 5)), 0), "dimension 1: 4 and 5"),
    (lambda nn: tvm.topi.concatenate((_of(3, 4), _of(2)), 0), "of other dimensions"),
    (lambda nn: tvm.topi.transpose(_of(3, 4), (0, 0)), "transpose has each axis of"),
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
