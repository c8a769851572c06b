"""Tensors: elements and slices, several from one operation, from a library's function."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support.schedules import apply, assert_computes, everywhere, integers, on_cpu, on_gpu

from tilewright import te
from tilewright.ir.errors import LoweringError, TargetError

POSITIVE = np.linspace(0.05, 9, 37, dtype=np.float32)


@on_cpu
def test_elements_and_slices(target: str) -> None:
    a = te.placeholder((4, 5, 6), name="A")
    row = a[1]
    part = a[2, 1:4]
    b = te.compute(
        (2, 3),
        lambda i, j: (
            a[i, j, 0] + a[i][j][1] + a(i, j, 2) + row[j, i] + part[j, i] + part[j][3:5][i]
        ),
        name="B",
    )
    s = te.create_schedule(b.op)
    x = integers(4, 5, 6)
    head = x[:2, :3]
    want = head[..., 0] + head[..., 1] + head[..., 2] + x[1, :3, :2].T
    want = want + x[2, 1:4, :2].T + x[2, 1:4, 3:5].T
    assert_computes(s, [a, b], [x], want, target)


@everywhere
def test_tensors_without_dimensions(target: str) -> None:
    a = te.placeholder((), name="A")
    b = te.compute((), lambda: a * 2.0 + 1.0, name="B")
    c = te.compute((3,), lambda i: b + a() + i, name="C")
    s = te.create_schedule([b.op, c.op])
    if target != "llvm":
        s[b].bind(s[b].fuse(), te.thread_axis("threadIdx.x"))
        s[c].bind(c.op.axis[0], te.thread_axis("threadIdx.x"))
    x = np.asarray(3.0, np.float32)
    expected = [np.asarray(7.0, np.float32), np.array([10, 11, 12], np.float32)]
    assert_computes(s, [a, b, c], [x], expected, target)


@everywhere
def test_one_operation_makes_several_tensors(target: str) -> None:
    a = te.placeholder((13, 5), name="A")
    total, flag = te.compute((13, 5), lambda i, j: (a[i, j] + 1.0, a[i, j] > 0.0), name="both")
    assert (total.name, flag.name, flag.dtype) == ("both.v0", "both.v1", "bool")
    s = te.create_schedule(total.op)
    if target == "llvm":
        s[flag].vectorize(s[flag].split(s[flag].op.axis[1], factor=4)[1])
    else:
        s[total].bind(total.op.axis[0], te.thread_axis("threadIdx.x"))
    x = integers(13, 5)
    assert_computes(s, [a, total, flag], [x], [x + 1, x > 0], target)


@on_cpu
def test_names_that_no_language_has_are_made_fit(target: str) -> None:
    a = te.placeholder((7,), name="my tensor!")
    b = te.compute((7,), lambda i: a[i] + 1.0, name="float")
    c = te.compute((7,), lambda i: b[i] * 2.0, name="a.b")
    d = te.compute((7,), lambda i: c[i] - b[i], name="a_b")
    s = te.create_schedule(d.op)
    x = integers(7)
    assert_computes(s, [a, d], [x], x + 1, target)


@on_gpu
def test_names_that_a_kernel_cannot_have_are_made_fit(target: str) -> None:
    a = te.placeholder((7,), name="int")
    b = te.compute((7,), lambda threadIdx: a[threadIdx] + 1.0, name="for")
    c = te.compute((7,), lambda i: b[i] * 2.0, name="kernel")
    s = te.create_schedule(c.op)
    for t in (b, c):
        s[t].bind(t.op.axis[0], te.thread_axis("threadIdx.x"))
    x = integers(7)
    assert_computes(s, [a, c], [x], (x + 1) * 2, target)


# -- libraries -----------------------------------------------------------------------------------


class TestExtern:
    @on_cpu
    def test_a_function_of_the_c_library_in_an_expression(self, target: str) -> None:
        x = np.linspace(-5, 5, 21)
        found = apply(
            lambda v: te.call_extern("float64", "cbrt", v), x, types=["float64"], target=target
        )
        np.testing.assert_allclose(found, np.cbrt(x), rtol=1e-14)

    @on_cpu
    def test_a_stage_that_a_c_function_fills(self, target: str) -> None:
        a = te.placeholder((7,), name="A")
        b = te.compute((7,), lambda i: a[i] + 1.0, name="B")
        c = te.extern(
            (7,), [b], lambda ins, outs: te.call_extern("int32", "memcpy", outs[0], ins[0], 28),
            name="C",
        )  # fmt: skip
        d = te.compute((7,), lambda i: c[i] * b[i], name="D")
        s = te.create_schedule(d.op)
        x = integers(7)
        assert_computes(s, [a, d], [x], (x + 1) ** 2, target)

    @on_cpu
    def test_a_stage_that_fills_several_tensors(self, target: str) -> None:
        a = te.placeholder((6,), "int32", name="A")

        def fill(ins: Any, outs: Any) -> Any:
            from tilewright.ir.stmt import Evaluate, seq

            return seq(
                Evaluate(te.call_extern("int32", "memcpy", outs[0], ins[0], 24)),
                Evaluate(te.call_extern("int32", "memset", outs[1], 0, 24)),
            )

        b, c = te.extern([(6,), (6,)], [a], fill, name="E", dtype=["int32", "int32"])
        s = te.create_schedule(b.op)
        x = integers(6, type="int32")
        assert_computes(s, [a, b, c], [x], [x, np.zeros_like(x)], target)

    def test_a_function_that_there_is_not_is_named(self) -> None:
        with pytest.raises(TargetError, match="no C function 'no_such_function'"):
            apply(
                lambda v: te.call_extern("float32", "no_such_function", v),
                POSITIVE, types=["float32"], target="llvm",
            )  # fmt: skip

    @on_gpu
    def test_a_c_function_is_none_of_a_gpu(self, target: str) -> None:
        with pytest.raises((TargetError, LoweringError), match="no_such_function"):
            apply(
                lambda v: te.call_extern("float32", "no_such_function", v),
                POSITIVE, types=["float32"], target=target,
            )  # fmt: skip
