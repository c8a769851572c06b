"""Loops keep what they compute, however they are split, fused, reordered, bound and marked.

Extents are prime, so that no factor divides any of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.support.schedules import assert_computes, everywhere, integers, on_cpu, on_gpu

import tilewright
from tilewright import te
from tilewright.schedule import Schedule

M, N, K = 13, 11, 7

A = integers(M, K, seed=1)
B = integers(K, N, seed=2)
X = integers(M, N, seed=3)
Primitive = Callable[[Any], None]


def threads(tag: str = "threadIdx.x") -> Any:
    return te.thread_axis(tag)


def matmul() -> tuple[Schedule, Any, list[Any]]:
    a, b = te.placeholder((M, K), name="A"), te.placeholder((K, N), name="B")
    k = te.reduce_axis((0, K), "k")
    c = te.compute((M, N), lambda i, j: te.sum(a[i, k] * b[k, j], k), name="C")
    s = te.create_schedule(c.op)
    return s, s[c], [a, b, c]


def elementwise() -> tuple[Schedule, Any, list[Any]]:
    x = te.placeholder((M, N), name="X")
    y = te.compute((M, N), lambda i, j: x[i, j] * 3.0 - 1.0, name="Y")
    s = te.create_schedule(y.op)
    return s, s[y], [x, y]


def check_matmul(target: str, schedule: Primitive) -> None:
    s, stage, args = matmul()
    schedule(stage)
    assert_computes(s, args, [A, B], A @ B, target)


def check_elementwise(target: str, schedule: Primitive) -> None:
    s, stage, args = elementwise()
    schedule(stage)
    assert_computes(s, args, [X], X * 3 - 1, target)


# -- on a CPU ------------------------------------------------------------------------------------


def split_by_factor(stage: Any) -> None:
    i, j = stage.op.axis
    (k,) = stage.op.reduce_axis
    for axis, factor in ((i, 4), (j, 3), (k, 2)):
        stage.split(axis, factor=factor)


def split_into_parts(stage: Any) -> None:
    i, j = stage.op.axis
    (k,) = stage.op.reduce_axis
    for axis, parts in ((i, 4), (j, 3), (k, 2)):
        stage.split(axis, nparts=parts)


def split_twice(stage: Any) -> None:
    i, j = stage.op.axis
    (k,) = stage.op.reduce_axis
    _, inner = stage.split(i, factor=6)
    stage.split(inner, factor=4)
    outer, _ = stage.split(j, nparts=5)
    stage.split(outer, nparts=2)
    _, inner = stage.split(k, nparts=2)
    stage.split(inner, factor=3)


def split_beyond_the_extent(stage: Any) -> None:
    i, j = stage.op.axis
    stage.split(i, factor=64)
    stage.split(j, nparts=64)
    stage.split(stage.op.reduce_axis[0], factor=16)


def fuse_all(stage: Any) -> None:
    stage.split(stage.fuse(*stage.op.axis), factor=10)


def fuse_parts(stage: Any) -> None:
    i, j = stage.op.axis
    io, ii = stage.split(i, factor=4)
    jo, ji = stage.split(j, factor=4)
    stage.reorder(io, jo, ii, ji)
    stage.fuse(io, jo)
    inner = stage.fuse(ii, ji)
    stage.split(inner, nparts=3)


def fuse_reduction(stage: Any) -> None:
    (k,) = stage.op.reduce_axis
    ko, ki = stage.split(k, factor=3)
    stage.split(stage.fuse(ko, ki), factor=4)


def fuse_nothing(stage: Any) -> None:
    stage.fuse()


def reduction_outermost(stage: Any) -> None:
    i, j = stage.op.axis
    (k,) = stage.op.reduce_axis
    ko, ki = stage.split(k, factor=3)
    stage.reorder(ko, i, ki, j)


def reduction_between_tiles(stage: Any) -> None:
    i, j = stage.op.axis
    io, jo, ii, ji = stage.tile(i, j, 4, 3)
    ko, ki = stage.split(stage.op.reduce_axis[0], factor=2)
    stage.reorder(io, jo, ko, ii, ki, ji)


def vector_in_a_reduction(stage: Any) -> None:
    i, j = stage.op.axis
    (k,) = stage.op.reduce_axis
    _, inner = stage.split(j, factor=4)
    stage.reorder(i, k, inner)
    stage.vectorize(inner)


def vector_outside_of_a_reduction(stage: Any) -> None:
    stage.vectorize(stage.split(stage.op.axis[1], factor=8)[1])


def vector_of_rows(stage: Any) -> None:
    stage.vectorize(stage.split(stage.op.axis[0], factor=4)[1])


def vector_of_everything(stage: Any) -> None:
    stage.vectorize(stage.split(stage.fuse(*stage.op.axis), factor=8)[1])


def vector_of_a_prime(stage: Any) -> None:
    stage.vectorize(stage.op.axis[1])


def unrolled(stage: Any) -> None:
    stage.unroll(stage.op.reduce_axis[0])
    stage.unroll(stage.split(stage.op.axis[1], factor=4)[1])


def unrolled_both(stage: Any) -> None:
    stage.unroll(*stage.op.reduce_axis, stage.op.axis[1])


def unrolled_by_pragma(stage: Any) -> None:
    stage.pragma(stage.op.axis[0], "auto_unroll_max_step", 16)
    stage.pragma(stage.op.axis[0], "unroll_explicit", True)


def parallel(stage: Any) -> None:
    outer, _ = stage.split(stage.op.axis[0], factor=3)
    stage.parallel(outer)


def parallel_inside(stage: Any) -> None:
    stage.parallel(stage.op.axis[1])


def parallel_and_vector(stage: Any) -> None:
    i, j = stage.op.axis
    fused = stage.fuse(i, stage.split(j, factor=4)[0])
    stage.parallel(fused)
    stage.vectorize(stage.leaf_iter_vars[1])


def neither_trimmed_nor_partitioned(stage: Any) -> None:
    outer, inner = stage.split(stage.op.axis[0], factor=4)
    stage.pragma(outer, "partition", False)
    stage.pragma(inner, "trim", False)


CPU_LOOPS = [
    split_by_factor, split_into_parts, split_twice, split_beyond_the_extent, fuse_all, fuse_parts,
    fuse_reduction, fuse_nothing, reduction_outermost, reduction_between_tiles,
    vector_in_a_reduction, vector_outside_of_a_reduction, vector_of_rows, vector_of_everything,
    vector_of_a_prime, unrolled, unrolled_both, unrolled_by_pragma, parallel, parallel_inside,
    parallel_and_vector, neither_trimmed_nor_partitioned,
]  # fmt: skip


@pytest.mark.parametrize("schedule", CPU_LOOPS)
@on_cpu
def test_a_cpu_schedule_computes_the_product(schedule: Primitive, target: str) -> None:
    check_matmul(target, schedule)


# -- on a GPU ------------------------------------------------------------------------------------


def blocks_only(stage: Any) -> None:
    stage.bind(stage.op.axis[0], threads("blockIdx.x"))


def threads_only(stage: Any) -> None:
    stage.bind(stage.op.axis[1], threads())


def blocks_and_threads(stage: Any) -> None:
    i, j = stage.op.axis
    io, jo, ii, ji = stage.tile(i, j, 4, 8)
    for axis, tag in ((io, "blockIdx.y"), (jo, "blockIdx.x"), (ii, "threadIdx.y")):
        stage.bind(axis, threads(tag))
    stage.bind(ji, threads())


def all_six(stage: Any) -> None:
    i, j = stage.op.axis
    axes = []
    for axis in (i, j):
        outer, inner = stage.split(axis, factor=5)
        axes += [*stage.split(outer, nparts=2), *stage.split(inner, factor=2)]
    bx, ser0, tx, ty, by, bz, ser1, tz = axes
    stage.reorder(bx, by, bz, tx, ty, tz, ser0, ser1)
    tags = [f"{level}Idx.{d}" for level in ("block", "thread") for d in "xyz"]
    for axis, tag in zip((bx, by, bz, tx, ty, tz), tags):
        stage.bind(axis, threads(tag))


def fused_over_the_grid(stage: Any) -> None:
    block, thread = stage.split(stage.fuse(*stage.op.axis), factor=32)
    stage.bind(block, threads("blockIdx.x"))
    stage.bind(thread, threads())


def strided_over_threads(stage: Any) -> None:
    """Each thread takes every eighth element."""
    _, thread = stage.split(stage.fuse(*stage.op.axis), factor=8)
    stage.bind(thread, te.thread_axis((0, 8), "threadIdx.x"))


def parts_over_threads(stage: Any) -> None:
    """Each thread takes neighbouring elements."""
    thread, _ = stage.split(stage.fuse(*stage.op.axis), nparts=8)
    stage.bind(thread, te.thread_axis((0, 8), "threadIdx.x"))


def reduction_outside_of_threads(stage: Any) -> None:
    i, j = stage.op.axis
    (k,) = stage.op.reduce_axis
    stage.reorder(k, i, j)
    stage.bind(i, threads("threadIdx.y"))
    stage.bind(j, threads("threadIdx.x"))


def virtual_threads(stage: Any) -> None:
    i, j = stage.op.axis
    block, rest = stage.split(i, factor=6)
    virtual, rest = stage.split(rest, nparts=2)
    thread, _ = stage.split(rest, nparts=2)
    stage.bind(block, threads("blockIdx.x"))
    stage.bind(virtual, threads("vthread"))
    stage.bind(thread, threads("threadIdx.y"))
    virtual, thread = stage.split(j, factor=4)
    stage.bind(virtual, te.thread_axis((0, 3), "vthread"))
    stage.bind(thread, threads("threadIdx.x"))


def virtual_threads_only(stage: Any) -> None:
    i, j = stage.op.axis
    stage.bind(j, threads("blockIdx.x"))
    stage.bind(stage.split(i, nparts=4)[0], threads("vthread"))


def vector_in_threads(stage: Any) -> None:
    i, j = stage.op.axis
    stage.bind(i, threads("blockIdx.x"))
    thread, inner = stage.split(j, factor=4)
    stage.bind(thread, threads())
    stage.vectorize(inner)


def unrolled_in_threads(stage: Any) -> None:
    i, j = stage.op.axis
    stage.bind(i, threads("blockIdx.x"))
    thread, inner = stage.split(j, nparts=4)
    stage.bind(thread, threads())
    stage.unroll(inner)
    stage.pragma(thread, "auto_unroll_max_step", 64)


GPU_LOOPS = [
    blocks_only, threads_only, blocks_and_threads, all_six, fused_over_the_grid,
    strided_over_threads, parts_over_threads, reduction_outside_of_threads, virtual_threads,
    virtual_threads_only, vector_in_threads, unrolled_in_threads,
]  # fmt: skip


@pytest.mark.parametrize("schedule", GPU_LOOPS)
@on_gpu
def test_a_gpu_schedule_computes_the_product(schedule: Primitive, target: str) -> None:
    check_matmul(target, schedule)


@pytest.mark.parametrize("schedule", [vector_in_threads, virtual_threads, all_six])
@on_gpu
def test_a_gpu_schedule_computes_elements(schedule: Primitive, target: str) -> None:
    check_elementwise(target, schedule)


@pytest.mark.parametrize("schedule", [vector_of_everything, vector_of_rows, parallel_and_vector])
@on_cpu
def test_a_cpu_schedule_computes_elements(schedule: Primitive, target: str) -> None:
    check_elementwise(target, schedule)


# -- what primitives return and leave ------------------------------------------------------------


class TestAxes:
    def test_split_replaces_an_axis_by_two_that_say_where_they_come_from(self) -> None:
        _, stage, _ = elementwise()
        i, j = stage.op.axis
        outer, inner = stage.split(i, factor=4)
        assert (outer.name, inner.name) == ("i.outer", "i.inner")
        assert stage.leaf_iter_vars == [outer, inner, j]

    def test_reorder_deals_the_places_of_the_named_axes_out_anew(self) -> None:
        _, stage, _ = matmul()
        i, j = stage.op.axis
        (k,) = stage.op.reduce_axis
        stage.reorder(k, i)
        assert stage.leaf_iter_vars == [k, j, i]

    def test_tile_puts_the_tiles_inside(self) -> None:
        _, stage, _ = matmul()
        (k,) = stage.op.reduce_axis
        made = stage.tile(*stage.op.axis, 4, 3)
        assert [a.name for a in made] == ["i.outer", "j.outer", "i.inner", "j.inner"]
        assert stage.leaf_iter_vars == [*made, k]

    def test_fuse_takes_a_list_as_well(self) -> None:
        _, stage, _ = elementwise()
        assert stage.fuse(list(stage.op.axis)).name == "i.j.fused"

    def test_fuse_of_no_axes_is_one_iteration(self) -> None:
        s, stage, args = elementwise()
        single = stage.fuse()
        assert stage.leaf_iter_vars[0] is single
        assert_computes(s, args, [X], X * 3 - 1, "llvm")

    def test_marking_the_same_axis_alike_twice_is_harmless(self) -> None:
        s, stage, args = elementwise()
        stage.unroll(stage.op.axis[1])
        stage.unroll(stage.op.axis[1])
        assert_computes(s, args, [X], X * 3 - 1, "llvm")


@everywhere
def test_a_symbolic_factor_of_a_split_is_an_argument(target: str) -> None:
    """Its products with indices are beyond the proofs, which are of affine programs."""
    m = te.var("m")
    x = te.placeholder((M, N), name="X")
    y = te.compute((M, N), lambda i, j: x[i, j] + 1.0, name="Y")
    s = te.create_schedule(y.op)
    outer, _ = s[y].split(y.op.axis[0], factor=m)
    if target != "llvm":
        s[y].bind(outer, te.thread_axis("blockIdx.x"))
    kernel = tilewright.build(s, [x, m, y], target, verify=False)
    out = np.empty_like(X)
    for factor in (1, 4, 13, 20):
        out[...] = np.nan
        kernel(X, factor, out)
        np.testing.assert_array_equal(out, X + 1)
