"""Strides that are variables are read off the arrays of a call."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright import te, tvm
from tilewright.ir.errors import ArgumentError

WIDE = np.arange(96, dtype="float32").reshape(8, 12)
VIEWS = (
    WIDE[:, :6], WIDE[:, ::2], WIDE[::-1, :6], WIDE[:, 11:5:-1], WIDE[:, :6].copy(),
    np.broadcast_to(WIDE[:1, :6], (8, 6)), np.arange(48, dtype="float32").reshape(6, 8).T,
)  # fmt: skip


def added(target: str, rows: object) -> tilewright.Kernel:
    a = te.placeholder((rows, 6), name="A", strides=[te.var("s"), te.var("t")])
    b = te.compute((rows, 6), lambda i, j: a[i, j] + 1.0, name="B")
    s = te.create_schedule(b.op)
    i, j = b.op.axis
    if target == "llvm":
        s[b].vectorize(s[b].split(j, factor=4)[1])
    else:
        s[b].bind(i, te.thread_axis("blockIdx.x"))
        s[b].bind(j, te.thread_axis("threadIdx.x"))
    return tilewright.build(s, [a, b], target)


@pytest.mark.parametrize("rows", [8, te.var("n")], ids=str)
@pytest.mark.parametrize(
    "target", ["llvm", "sim", pytest.param("opencl", marks=pytest.mark.needs_opencl)]
)
def test_views_are_read_where_they_lie(target, rows):
    run = added(target, rows)
    for x in VIEWS:
        y = np.zeros((8, 6), "float32")
        if target == "llvm" or min(x.strides) >= 0:
            run(x, y)
            np.testing.assert_array_equal(y, x + 1)
        else:
            with pytest.raises(ArgumentError, match="A has negative strides: pass np.asc"):
                run(x, y)


def test_a_result_has_strides_too_but_no_element_twice():
    a = te.placeholder((8, 6), name="A")
    b = te.compute((8, 6), lambda i, j: a[i, j] * 2.0, name="B")
    lies = tvm.tir.decl_buffer((8, 6), "float32", name="B", strides=[te.var("s"), te.var("t")])
    run = tvm.build(te.create_schedule(b.op), [a, b], "llvm", binds={b: lies})
    x, wide = np.ones((8, 6), "float32"), np.zeros((8, 12), "float32")
    run(x, wide[:, 1::2])
    assert wide[:, 1::2].min() == 2
    assert wide[:, ::2].max() == 0
    twice = np.lib.stride_tricks.as_strided(wide, (8, 6), (4, 4))
    with pytest.raises(ArgumentError, match=r"is written, but elements share memory: strides \[1"):
        run(x, twice)


def test_a_stride_that_its_type_does_not_hold_is_refused():
    far = np.lib.stride_tricks.as_strided(np.zeros(8, "float32"), (8, 6), (1 << 35, 4))
    with pytest.raises(ArgumentError, match="a stride of 8589934592, which int32 does not hold"):
        added("llvm", 8)(far, np.zeros((8, 6), "float32"))


def test_a_stride_of_one_element_is_any_that_another_array_needs():
    n, m = te.var("n", least=1), te.var("m")
    s = te.var("s", least=1)
    a, b = (te.placeholder((e, 6), name=x, strides=[s, 1]) for e, x in ((n, "A"), (m, "B")))
    c = te.compute((m, 6), lambda i, j: a[0, j] + b[i, j], name="C")
    run = tilewright.build(te.create_schedule(c.op), [a, b, c], "llvm")
    for rows in (1, 8):
        y = np.zeros((rows, 6), "float32")
        run(WIDE[:1, :6], WIDE[:rows, 6:], y)
        np.testing.assert_array_equal(y, WIDE[:1, :6] + WIDE[:rows, 6:])
