"""Loops of 2^31 iterations and more: extents are numbers, whatever their type."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

import tilewright
from tilewright import te
from tilewright.ir.errors import VerificationError
from tilewright.ir.expr import IntImm
from tilewright.ir.func import Module
from tilewright.ir.stmt import For
from tilewright.ir.visit import statements
from tilewright.verify import verify

SHAPES = [(70000, 40000), (2**31 + 5,), (65536, 65536), (2**31 - 1, 3), (2**31,)]


def trips(m: Module) -> list[int]:
    """The iterations of every kernel, counted through one innermost loop."""
    found = []
    for f in m.funcs:
        extents = [axis.extent for axis in f.launch]
        extents += [s.extent for s in statements(f.body) if isinstance(s, For)]
        assert all(isinstance(e, IntImm) and e.value > 0 for e in extents), extents
        found.append(math.prod(int(e) for e in extents))
    return found


def added(shape: tuple[int, ...]) -> tuple[te.Tensor, te.Tensor]:
    A = te.placeholder(shape, "int8", name="A")
    return A, te.compute(shape, lambda *i: A[i] + te.const(1, "int8"), name="C")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("factor", [1, 64, 1000])
def test_fused_and_split_loops_cover_every_element(shape: tuple[int, ...], factor: int) -> None:
    A, C = added(shape)
    s = te.create_schedule(C.op)
    s[C].split(s[C].fuse(*C.op.axis), factor=factor)
    m = tilewright.lower(s, [A, C], "llvm")
    for f in m.funcs:
        verify(f)
    outer = next(s for s in statements(m.funcs[0].body) if isinstance(s, For))
    assert isinstance(outer.extent, IntImm)
    assert outer.extent.value in (math.prod(shape) // factor, -(-math.prod(shape) // factor))


@pytest.mark.parametrize(("shape", "target"), product(SHAPES, ["cuda -arch=sm_90a", "opencl"]))
def test_a_grid_has_all_blocks(shape: tuple[int, ...], target: str) -> None:
    A, C = added(shape)
    s = te.create_schedule(C.op)
    outer, inner = s[C].split(s[C].fuse(*C.op.axis), factor=1024)
    s[C].bind(inner, te.thread_axis("threadIdx.x"))
    s[C].bind(outer, te.thread_axis("blockIdx.x"))
    m = tilewright.lower(s, [A, C], target)
    verify(m.funcs[0])
    assert trips(m) == [-(-math.prod(shape) // 1024) * 1024]


def test_a_grid_beyond_the_target_is_refused() -> None:
    A, C = added((2**31, 4))
    s = te.create_schedule(C.op)
    s[C].bind(s[C].fuse(*C.op.axis), te.thread_axis("blockIdx.x"))
    m = tilewright.lower(s, [A, C], "cuda -arch=sm_90a")
    with pytest.raises(VerificationError, match="8589934592"):
        verify(m.funcs[0])


def test_a_fused_reduction_of_more_than_32_bits_counts_all() -> None:
    n = 70000
    A = te.placeholder((n,), "int8", name="A")
    a, b = te.reduce_axis((0, n), "a"), te.reduce_axis((0, n), "b")
    total = te.sum((A[a] * A[b]).astype("int64"), axis=[a, b], where=te.all(a < 3, b >= n - 2))
    B = te.compute((1,), lambda i: total, name="B")
    s = te.create_schedule(B.op)
    fused = s[B].fuse(*s[B].op.reduce_axis)
    s[B].split(fused, factor=n)
    found = np.zeros(1, "int64")
    tilewright.build(s, [A, B], "llvm")(np.ones(n, "int8"), found)
    assert found[0] == 6


def test_a_loop_that_is_trimmed_to_nothing_does_not_wrap():
    """Its end lies four thousand million below its beginning: in 32 bits that was a long loop
    (llvm-windows, seed 1095 of the fuzzer)."""
    a, p = te.placeholder((7,), "float32", name="a"), te.var("p", "int32")
    twice = te.compute((7,), lambda i: a[i] * 2.0, name="twice")

    def shifted(i: te.Var) -> te.Expr:
        inside = te.all(p * 2 + i >= 0, p * 2 + i < 7)
        return te.if_then_else(inside, twice[p * 2 + i], te.const(1, "float32"))

    out = te.compute((6,), shifted, name="out")
    s = te.create_schedule(out.op)
    copy = s.cache_write(out, "global")
    outer, _ = s[out].split(s[out].op.axis[0], 2)
    outer, _ = s[out].split(outer, nparts=1)
    s[copy].compute_at(s[out], outer)
    s[twice].split(s[twice].op.axis[0], factor=2)
    s[twice].compute_at(s[out], outer)
    s[twice].align_bounds(s[twice].op.axis[0], 3)
    kernel = tilewright.build(s, [a, out, p], target="llvm")
    values = np.arange(7, dtype="float32")
    for number in (2, 0, -1, -2_000_000_000, 2_000_000_000, -(2**31), 2**31 - 1):
        found = np.empty(6, "float32")
        kernel(values, found, number)
        at = number * 2 + np.arange(6)
        wanted = np.where((at >= 0) & (at < 7), values[np.clip(at, 0, 6)] * 2, 1)
        assert np.array_equal(found, wanted), number
