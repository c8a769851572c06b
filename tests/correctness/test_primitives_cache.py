"""cache_read and cache_write: copies in another memory, that change nothing of what is computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support.schedules import (
    allocated_shapes,
    assert_computes,
    everywhere,
    integers,
    on_cpu,
    on_gpu,
)

import tilewright
from tilewright import te
from tilewright.ir.stmt import If
from tilewright.ir.visit import walk
from tilewright.schedule import Schedule

M, N, K = 13, 11, 7
A, B = integers(M, K, seed=1), integers(K, N, seed=2)


def matmul() -> tuple[Schedule, Any, Any, Any]:
    a, b = te.placeholder((M, K), name="A"), te.placeholder((K, N), name="B")
    k = te.reduce_axis((0, K), "k")
    c = te.compute((M, N), lambda i, j: te.sum(a[i, k] * b[k, j], k), name="C")
    return te.create_schedule(c.op), a, b, c


def threads(tag: str, extent: int | None = None) -> Any:
    return te.thread_axis(tag) if extent is None else te.thread_axis((0, extent), tag)


def tiled(s: Schedule, c: Any, ti: int = 4, tj: int = 4) -> tuple[Any, Any]:
    """Tiles over blocks, elements over threads: the last axis of each."""
    i, j = s[c].op.axis
    io, jo, ii, ji = s[c].tile(i, j, ti, tj)
    s[c].bind(io, threads("blockIdx.y"))
    s[c].bind(jo, threads("blockIdx.x"))
    s[c].bind(ii, threads("threadIdx.y", ti))
    s[c].bind(ji, threads("threadIdx.x", tj))
    return jo, ji


class TestCacheRead:
    @everywhere
    def test_at_the_root(self, target: str) -> None:
        s, a, b, c = matmul()
        copy = s.cache_read(a, "global", [c])
        if target != "llvm":
            tiled(s, c)
            s[copy].bind(copy.op.axis[0], threads("blockIdx.x"))
        assert_computes(s, [a, b, c], [A, B], A @ B, target)

    @pytest.mark.parametrize("scope", ["shared", "local", "global"])
    @on_cpu
    def test_of_a_tile_on_a_cpu(self, scope: str, target: str) -> None:
        s, a, b, c = matmul()
        copy = s.cache_read(b, scope, [c])
        jo, ji = s[c].split(c.op.axis[1], factor=4)
        s[c].reorder(jo, c.op.axis[0], ji)
        s[copy].compute_at(s[c], jo)
        assert allocated_shapes(s, [a, b, c], target) == {f"B.{scope}": (K, 4)}
        assert_computes(s, [a, b, c], [A, B], A @ B, target)

    @on_gpu
    def test_tiles_in_shared_memory_and_registers(self, target: str) -> None:
        s, a, b, c = matmul()
        sum_ = s.cache_write(c, "local")
        a_shared, b_shared = (s.cache_read(x, "shared", [sum_]) for x in (a, b))
        a_local, b_local = (s.cache_read(x, "local", [sum_]) for x in (a_shared, b_shared))
        _jo, ji = tiled(s, c)
        s[sum_].compute_at(s[c], ji)
        ko, ki = s[sum_].split(sum_.op.reduce_axis[0], factor=3)
        s[sum_].reorder(ko, ki, *sum_.op.axis)
        for shared in (a_shared, b_shared):
            s[shared].compute_at(s[sum_], ko)
            ty, rest = s[shared].split(s[shared].fuse(*shared.op.axis), nparts=4)
            tx, _ = s[shared].split(rest, nparts=4)
            s[shared].bind(ty, threads("threadIdx.y", 4))
            s[shared].bind(tx, threads("threadIdx.x", 4))
        for local in (a_local, b_local):
            s[local].compute_at(s[sum_], ki)
        assert allocated_shapes(s, [a, b, c], target) == {
            "A.shared": (4, 3), "B.shared": (3, 4), "C.local": (1, 1),
            "A.shared.local": (1, 1), "B.shared.local": (1, 1),
        }  # fmt: skip
        assert_computes(s, [a, b, c], [A, B], A @ B, target)

    @everywhere
    def test_for_one_of_several_readers(self, target: str) -> None:
        a = te.placeholder((M,), name="A")
        b = te.compute((M,), lambda i: a[i] + 1.0, name="B")
        c = te.compute((M,), lambda i: a[i] + b[M - 1 - i], name="C")
        s = te.create_schedule(c.op)
        copy = s.cache_read(a, "global", [c])
        assert [t.name for t in s[b].op.inputs] == ["A"]
        assert {t.name for t in s[c].op.inputs} == {"A.global", "B"}
        if target != "llvm":
            for t in (copy, b, c):
                s[t].bind(s[t].op.axis[0], threads("threadIdx.x"))
        x = integers(M)
        assert_computes(s, [a, c], [x], x + (x + 1)[::-1], target)

    @on_cpu
    def test_of_a_stage_for_all_of_its_readers(self, target: str) -> None:
        a = te.placeholder((M,), name="A")
        b = te.compute((M,), lambda i: a[i] + 1.0, name="B")
        c = te.compute((M,), lambda i: b[i] * 2.0, name="C")
        d = te.compute((M,), lambda i: b[i] * c[i], name="D")
        s = te.create_schedule(d.op)
        copy = s.cache_read(b, "local", [c, d])
        s[b].compute_at(s[copy], copy.op.axis[0])
        x = integers(M)
        assert_computes(s, [a, d], [x], (x + 1) * (x + 1) * 2, target)

    @on_cpu
    def test_of_part_of_a_padded_image(self, target: str) -> None:
        """The copy reads only what there is of the region that the guard allows."""
        a = te.placeholder((M,), name="A")
        b = te.compute(
            (M + 4,),
            lambda i: te.if_then_else(te.all(i >= 2, i < M + 2), a[i - 2], te.const(0, "float32")),
            name="B",
        )
        s = te.create_schedule(b.op)
        copy = s.cache_read(a, "local", [b])
        outer, _ = s[b].split(b.op.axis[0], factor=4)
        s[copy].compute_at(s[b], outer)
        assert allocated_shapes(s, [a, b], target) == {"A.local": (4,)}
        x = integers(M)
        assert_computes(s, [a, b], [x], np.pad(x, 2), target)


class TestSharedWithoutThreads:
    """TVM's threads all fill such a copy alike; here the first of them does, and the rest wait."""

    def one_row(self) -> tuple[Schedule, Any, Any, Any]:
        a = te.placeholder((5, 16), name="A")
        b = te.compute((5, 16), lambda i, j: a[i, 15 - j] * 2.0, name="B")
        s = te.create_schedule(b.op)
        copy = s.cache_read(a, "shared", [b])
        s[b].bind(b.op.axis[0], threads("blockIdx.x"))
        s[copy].compute_at(s[b], b.op.axis[0])
        return s, a, b, copy

    @on_gpu
    def test_no_axis_is_bound(self, target: str) -> None:
        s, a, b, _ = self.one_row()
        s[b].bind(b.op.axis[1], threads("threadIdx.x"))
        x = integers(5, 16)
        assert_computes(s, [a, b], [x], x[:, ::-1] * 2, target)
        (func,) = tilewright.lower(s, [a, b], target).funcs
        guards = [str(n.condition) for n in walk(func.body) if isinstance(n, If)]
        assert guards == ["threadIdx_x == 0"]

    @on_gpu
    def test_only_one_of_two_axes_is_bound(self, target: str) -> None:
        s, a, b, copy = self.one_row()
        ty, tx = s[b].split(b.op.axis[1], factor=4)
        s[b].bind(ty, threads("threadIdx.y"))
        s[b].bind(tx, threads("threadIdx.x"))
        s[copy].bind(s[copy].split(copy.op.axis[1], factor=4)[1], threads("threadIdx.x"))
        x = integers(5, 16)
        assert_computes(s, [a, b], [x], x[:, ::-1] * 2, target)
        (func,) = tilewright.lower(s, [a, b], target).funcs
        guards = [str(n.condition) for n in walk(func.body) if isinstance(n, If)]
        assert guards == ["threadIdx_y == 0"]

    @on_gpu
    def test_a_sum_in_shared_memory_is_added_up_once(self, target: str) -> None:
        a = te.placeholder((5, 9), name="A")
        k = te.reduce_axis((0, 9), "k")
        b = te.compute((5,), lambda i: te.sum(a[i, k], k), name="B")
        c = te.compute((5, 9), lambda i, j: a[i, j] - b[i], name="C")
        s = te.create_schedule(c.op)
        s[c].bind(c.op.axis[0], threads("blockIdx.x"))
        s[c].bind(c.op.axis[1], threads("threadIdx.x"))
        s[b].set_scope("shared")
        s[b].compute_at(s[c], c.op.axis[0])
        x = integers(5, 9)
        assert_computes(s, [a, c], [x], x - x.sum(1, keepdims=True), target)

    @on_gpu
    def test_stages_that_read_one_another(self, target: str) -> None:
        a = te.placeholder((5, 9), name="A")
        b = te.compute((5, 9), lambda i, j: a[i, j] + 1.0, name="B")
        c = te.compute((5, 9), lambda i, j: b[i, 8 - j] * 2.0, name="C")
        d = te.compute((5, 9), lambda i, j: c[i, j] + b[i, j], name="D")
        s = te.create_schedule(d.op)
        s[d].bind(d.op.axis[0], threads("blockIdx.x"))
        s[d].bind(d.op.axis[1], threads("threadIdx.x"))
        for t in (b, c):
            s[t].set_scope("shared")
            s[t].compute_at(s[d], d.op.axis[0])
        s[c].bind(c.op.axis[1], threads("threadIdx.x"))
        x = integers(5, 9)
        y = x + 1
        assert_computes(s, [a, d], [x], y[:, ::-1] * 2 + y, target)

    @on_gpu
    def test_an_output_that_only_blocks_divide(self, target: str) -> None:
        """Threads that another stage needs do not store the output twice."""
        a = te.placeholder((5, 16), name="A")
        k = te.reduce_axis((0, 16), "k")
        b = te.compute((5,), lambda i: te.sum(a[i, k], k), name="B")
        s = te.create_schedule(b.op)
        copy = s.cache_read(a, "shared", [b])
        s[b].bind(b.op.axis[0], threads("blockIdx.x"))
        s[copy].compute_at(s[b], b.op.axis[0])
        s[copy].bind(copy.op.axis[1], threads("threadIdx.x"))
        x = integers(5, 16)
        assert_computes(s, [a, b], [x], x.sum(1), target)


class TestCacheWrite:
    @pytest.mark.parametrize("scope", ["local", "shared", "global"])
    @on_cpu
    def test_a_tile_of_the_output(self, scope: str, target: str) -> None:
        s, a, b, c = matmul()
        sum_ = s.cache_write(c, scope)
        _io, jo, _, _ = s[c].tile(*s[c].op.axis, 4, 4)
        s[sum_].compute_at(s[c], jo)
        (k,) = sum_.op.reduce_axis
        i, j = sum_.op.axis
        s[sum_].reorder(k, i, j)
        s[sum_].vectorize(j)
        assert allocated_shapes(s, [a, b, c], target) == {f"C.{scope}": (4, 4)}
        assert_computes(s, [a, b, c], [A, B], A @ B, target)

    @on_gpu
    def test_a_register(self, target: str) -> None:
        s, a, b, c = matmul()
        sum_ = s.cache_write(c, "local")
        _, ji = tiled(s, c)
        s[sum_].compute_at(s[c], ji)
        assert_computes(s, [a, b, c], [A, B], A @ B, target)

    @on_gpu
    def test_shared_memory_then_a_copy(self, target: str) -> None:
        s, a, b, c = matmul()
        sum_ = s.cache_write(c, "shared")
        s[c].bind(c.op.axis[0], threads("blockIdx.x"))
        s[c].bind(c.op.axis[1], threads("threadIdx.x"))
        s[sum_].compute_at(s[c], c.op.axis[0])
        s[sum_].bind(sum_.op.axis[1], threads("threadIdx.x"))
        assert_computes(s, [a, b, c], [A, B], A @ B, target)

    @on_cpu
    def test_of_a_stage_that_others_read(self, target: str) -> None:
        a = te.placeholder((M,), name="A")
        b = te.compute((M,), lambda i: a[i] + 1.0, name="B")
        c = te.compute((M,), lambda i: b[M - 1 - i] * 2.0, name="C")
        s = te.create_schedule([b.op, c.op])
        inner = s.cache_write(b, "local")
        s[inner].compute_at(s[b], s[b].op.axis[0])
        x = integers(M)
        assert_computes(s, [a, b, c], [x], [x + 1, (x + 1)[::-1] * 2], target)

    @on_cpu
    def test_of_several_outputs(self, target: str) -> None:
        a = te.placeholder((M,), name="A")
        b, c = te.compute((M,), lambda i: (a[i] + 1.0, a[i] * 2.0), name="B")
        s = te.create_schedule(b.op)
        inner = s.cache_write([b, c], "local")
        s[inner[0]].compute_at(s[b], s[b].op.axis[0])
        assert [t.name for t in inner] == ["B.local.v0", "B.local.v1"]
        x = integers(M)
        assert_computes(s, [a, b, c], [x], [x + 1, x * 2], target)

    @on_cpu
    def test_keeps_the_start_and_the_condition_of_a_reduction(self, target: str) -> None:
        a = te.placeholder((M, N), name="A")
        k = te.reduce_axis((0, N), "k")
        b = te.compute(
            (M,), lambda i: te.sum(a[i, k], k, where=k > i - 3, init=a[i, 0] + 1.0), name="B"
        )
        s = te.create_schedule(b.op)
        inner = s.cache_write(b, "local")
        outer, _ = s[b].split(b.op.axis[0], factor=4)
        s[inner].compute_at(s[b], outer)
        x = integers(M, N)
        mask = np.arange(N) > np.arange(M)[:, None] - 3
        assert_computes(s, [a, b], [x], (x * mask).sum(1) + x[:, 0] + 1, target)

    @on_cpu
    def test_the_axes_of_the_output_stay_and_those_of_the_sum_move(self, target: str) -> None:
        s, a, b, c = matmul()
        (k,) = c.op.reduce_axis
        i, j = c.op.axis
        sum_ = s.cache_write(c, "local")
        assert list(s[c].op.axis) == [i, j]
        assert list(s[c].op.reduce_axis) == []
        assert list(sum_.op.reduce_axis) == [k]
        assert_computes(s, [a, b, c], [A, B], A @ B, target)
