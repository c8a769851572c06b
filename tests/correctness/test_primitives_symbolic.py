"""Symbolic extents: one kernel serves every size, whether or not the schedule divides it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support.schedules import call, everywhere, integers, on_cpu

import tilewright
from tilewright import te
from tilewright.ir.errors import ArgumentError, ScheduleError

SIZES = [1, 2, 7, 8, 9, 31, 64]


@everywhere
def test_a_layer_of_any_batch(target: str) -> None:
    """A batch of rows times a matrix, with a bias."""
    n = te.var("n")
    x, w = te.placeholder((n, 6), name="X"), te.placeholder((6, 5), name="W")
    bias = te.placeholder((5,), name="bias")
    k = te.reduce_axis((0, 6), "k")
    y = te.compute((n, 5), lambda i, j: te.sum(x[i, k] * w[k, j], k), name="Y")
    z = te.compute((n, 5), lambda i, j: te.max(y[i, j] + bias[j], 0.0), name="Z")
    s = te.create_schedule(z.op)
    outer, inner = s[z].split(z.op.axis[0], factor=8)
    s[y].compute_at(s[z], outer if target == "llvm" else inner)
    if target == "llvm":
        s[z].parallel(outer)
        s[z].vectorize(z.op.axis[1])
    else:
        s[z].bind(outer, te.thread_axis("blockIdx.x"))
        s[z].bind(inner, te.thread_axis("threadIdx.x"))
    kernel = tilewright.build(s, [x, w, bias, z], target)
    b, c = integers(6, 5, seed=2), integers(5, seed=3)
    for size in SIZES:
        a = integers(size, 6, seed=size)
        (found,) = call(kernel, [x, w, bias, z], [a, b, c])
        np.testing.assert_array_equal(found, np.maximum(a @ b + c, 0))


@pytest.mark.parametrize("how", ["factor", "nparts", "fused", "vector", "reversed"])
@everywhere
def test_every_split_of_a_symbolic_extent(how: str, target: str) -> None:
    n = te.var("n")
    a = te.placeholder((n, 3), name="A")
    b = te.compute((n, 3), lambda i, j: a[n - 1 - i, j] * 2.0, name="B")
    s = te.create_schedule(b.op)
    i, j = b.op.axis
    if how == "fused":
        i = s[b].fuse(i, j)
    outer, inner = s[b].split(i, **{"nparts" if how == "nparts" else "factor": 8})
    if how == "reversed":
        s[b].reorder(inner, outer)
    if how == "vector":
        s[b].vectorize(j)
    if target != "llvm":
        thread, block = (outer, inner) if how == "nparts" else (inner, outer)
        s[b].bind(thread, te.thread_axis("threadIdx.x"))
        s[b].bind(block, te.thread_axis("blockIdx.x"))
    # With nparts a thread times a symbolic extent is an index, which the proofs do not reach.
    kernel = tilewright.build(s, [a, b], target, verify=how != "nparts")
    for size in SIZES:
        x = integers(size, 3, seed=size)
        (found,) = call(kernel, [a, b], [x])
        np.testing.assert_array_equal(found, x[::-1] * 2)


@everywhere
def test_a_symbolic_reduction(target: str) -> None:
    n, m = te.var("n"), te.var("m")
    a = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), "k")
    b = te.compute((n,), lambda i: te.sum(a[i, k], k), name="B")
    s = te.create_schedule(b.op)
    _, ki = s[b].split(k, factor=16)
    if target != "llvm":
        s[b].bind(b.op.axis[0], te.thread_axis("blockIdx.x"))
        s[b].bind(ki, te.thread_axis("threadIdx.x"))
    kernel = tilewright.build(s, [a, b], target)
    for rows, size in ((1, 1), (3, 15), (4, 16), (2, 50)):
        x = integers(rows, size)
        (found,) = call(kernel, [a, b], [x])
        np.testing.assert_array_equal(found, x.sum(1))


@everywhere
def test_shapes_that_are_expressions_of_an_extent(target: str) -> None:
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute(
        (2 * n + 2,),
        lambda i: te.if_then_else(te.all(i > 0, i <= n * 2), a[(i - 1) // 2], 0.0),
        name="B",
    )
    s = te.create_schedule(b.op)
    outer, inner = s[b].split(b.op.axis[0], factor=8)
    if target != "llvm":
        s[b].bind(outer, te.thread_axis("blockIdx.x"))
        s[b].bind(inner, te.thread_axis("threadIdx.x"))
    kernel = tilewright.build(s, [a, b], target)
    for size in SIZES:
        x = integers(size, seed=size)
        (found,) = call(kernel, [a, b], [x])
        np.testing.assert_array_equal(found, np.pad(np.repeat(x, 2), 1))
    with pytest.raises(ArgumentError):
        kernel(integers(4), np.zeros(9, np.float32))


@on_cpu
def test_a_symbolic_halo_is_kept_tile_by_tile(target: str) -> None:
    n = te.var("n")
    a = te.placeholder((n + 2,), name="A")
    b = te.compute((n + 2,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((n,), lambda i: b[i] + b[i + 1] * b[i + 2], name="C")
    s = te.create_schedule(c.op)
    outer, _ = s[c].split(c.op.axis[0], factor=8)
    s[b].compute_at(s[c], outer)
    kernel = tilewright.build(s, [n, a, c], target)
    for size in SIZES:
        x = integers(size + 2, seed=size)
        y = x + 1
        found = np.full(size, np.nan, np.float32)
        kernel(size, x, found)
        np.testing.assert_array_equal(found, y[:-2] + y[1:-1] * y[2:])


@on_cpu
def test_a_variable_in_the_expression_is_an_argument(target: str) -> None:
    scale: Any = te.var("scale")
    a = te.placeholder((9,), "int32", name="A")
    b = te.compute((9,), lambda i: a[i] * scale, name="B")
    s = te.create_schedule(b.op)
    kernel = tilewright.build(s, [a, scale, b], target)
    x, found = integers(9, type="int32"), np.empty(9, np.int32)
    for value in (-3, 0, 5):
        kernel(x, value, found)
        np.testing.assert_array_equal(found, x * value)


@on_cpu
def test_a_layout_leaves_a_symbolic_index_as_it_is(target: str) -> None:
    n = te.var("n")
    a = te.placeholder((n, 8), name="A")
    b = te.compute((n, 8), lambda i, c: a[i, c] + 1.0, name="B")
    d = te.compute((n, 8), lambda i, c: b[i, 7 - c] * 2.0, name="D")
    s = te.create_schedule(d.op)
    s[b].transform_layout(lambda i, c: [c // 4, i, c % 4])
    kernel = tilewright.build(s, [a, d], target)
    for size in SIZES:
        x = integers(size, 8, seed=size)
        (found,) = call(kernel, [a, d], [x])
        np.testing.assert_array_equal(found, (x[:, ::-1] + 1) * 2)
    for mapping in (lambda i, c: [i // 4, i % 4, c], lambda i, c: [i * 8 + c], lambda i, c: [c]):
        s = te.create_schedule(d.op)
        with pytest.raises(ScheduleError, match="an index whose extent is symbolic"):
            s[b].transform_layout(mapping)
