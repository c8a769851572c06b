"""Where results are kept: scopes, padded strides, aligned bounds, predicates, prefetching."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support.chain import N, X, chain, stencil
from tests.support.found import agree
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
from tilewright.ir.stmt import Allocate, Evaluate
from tilewright.ir.visit import walk
from tilewright.schedule import Schedule


class TestStorage:
    def strides(self, s: Schedule, args: list[Any], target: str = "llvm") -> dict[str, Any]:
        found = {}
        for func in tilewright.lower(s, args, target).funcs:
            for node in walk(func.body):
                if isinstance(node, Allocate):
                    found[node.buffer.name] = tuple(e.value for e in node.buffer.strides)
        return found

    @on_gpu
    def test_storage_align_pads_rows(self, target: str) -> None:
        n = 16
        a = te.placeholder((n, n), name="A")
        b = te.compute((n, n), lambda i, j: a[j, i], name="B")
        s = te.create_schedule(b.op)
        shared = s.cache_read(a, "shared", [b])
        _i, j = b.op.axis
        s[b].bind(s[b].fuse(), te.thread_axis("blockIdx.x"))
        s[b].bind(j, te.thread_axis("threadIdx.x"))
        s[shared].compute_at(s[b], s[b].leaf_iter_vars[0])
        s[shared].bind(shared.op.axis[1], te.thread_axis("threadIdx.x"))
        s[shared].storage_align(shared.op.axis[0], 16, 1)
        assert self.strides(s, [a, b], target)["A.shared"] == (17, 1)
        x = integers(n, n)
        assert_computes(s, [a, b], [x], x.T.copy(), target)

    @on_cpu
    def test_align_bounds_computes_whole_vectors(self, target: str) -> None:
        s, a, b, c = chain()
        outer, _ = s[c].split(c.op.axis[0], factor=8)
        s[b].compute_at(s[c], outer)
        s[b].align_bounds(b.op.axis[0], 4)
        (size,) = allocated_shapes(s, [a, c], target)["B"]
        assert size % 4 == 0
        assert size >= 10
        s[b].vectorize(s[b].split(b.op.axis[0], factor=4)[1])
        assert_computes(s, [a, c], [X], stencil(X), target)

    @everywhere
    def test_double_buffer_fills_the_next_tile_early(self, target: str) -> None:
        n = 32
        a = te.placeholder((6, n), name="A")
        k = te.reduce_axis((0, n), "k")
        b = te.compute((6,), lambda i: te.sum(a[i, k] * 2.0, k), name="B")
        s = te.create_schedule(b.op)
        cached = s.cache_read(a, "shared", [b])
        ko, _ = s[b].split(k, factor=5)
        s[cached].compute_at(s[b], ko)
        s[cached].double_buffer()
        if target != "llvm":
            s[b].bind(b.op.axis[0], te.thread_axis("threadIdx.x"))
            s[cached].bind(cached.op.axis[0], te.thread_axis("threadIdx.x"))
        shapes = set()
        for func in tilewright.lower(s, [a, b], target).funcs:
            shapes |= {
                node.buffer.constant_shape for node in walk(func.body) if isinstance(node, Allocate)
            }
        assert any(shape and shape[0] == 2 for shape in shapes), shapes
        x = integers(6, n)
        assert_computes(s, [a, b], [x], (x * 2).sum(1), target)

    @on_gpu
    def test_a_store_predicate_lets_some_threads_store(self, target: str) -> None:
        a = te.placeholder((4, 5), name="A")
        k = te.reduce_axis((0, 5), "k")
        b = te.compute((4,), lambda i: te.sum(a[i, k], k), name="B")
        s = te.create_schedule(b.op)
        thread = te.thread_axis((0, 8), "threadIdx.x")
        s[b].env_threads([thread])
        s[b].set_store_predicate(thread.var.equal(3))
        x = integers(4, 5)
        assert_computes(s, [a, b], [x], x.sum(1), target)

    @on_gpu
    def test_of_threads_without_an_axis_the_first_stores(self, target: str) -> None:
        a = te.placeholder((4, 5), name="A")
        k = te.reduce_axis((0, 5), "k")
        b = te.compute((4,), lambda i: te.sum(a[i, k], k), name="B")
        s = te.create_schedule(b.op)
        s[b].env_threads(
            [te.thread_axis((0, 2), "blockIdx.x"), te.thread_axis((0, 8), "threadIdx.y")]
        )
        x = integers(4, 5)
        assert_computes(s, [a, b], [x], x.sum(1), target)

    @pytest.mark.parametrize("scope", ["local", "shared", "warp", "global"])
    @on_cpu
    def test_every_scope_is_memory_on_a_cpu(self, scope: str, target: str) -> None:
        s, a, b, c = chain()
        outer, _ = s[c].split(c.op.axis[0], factor=8)
        s[c].parallel(outer)
        s[b].compute_at(s[c], outer)
        s[b].set_scope(scope)
        assert_computes(s, [a, c], [X], stencil(X), target)


class TestWarps:
    """Memory that 32 neighbours along threadIdx.x share, whatever the target has for warps."""

    @pytest.mark.parametrize("shift", [0, 1])
    @pytest.mark.parametrize("threads", [32, 20])
    @on_gpu
    def test_lanes_read_what_others_loaded(self, threads: int, shift: int, target: str) -> None:
        a = te.placeholder((4, threads), name="A")
        b = te.compute((4, threads), lambda i, j: a[i, (j + shift) % threads] * 2.0, name="B")
        s = te.create_schedule(b.op)
        copied = s.cache_read(a, "warp", [b])
        i, j = b.op.axis
        thread = te.thread_axis("threadIdx.x")
        s[b].bind(i, te.thread_axis("blockIdx.x"))
        s[b].bind(j, thread)
        s[copied].compute_at(s[b], i)
        s[copied].bind(copied.op.axis[1], thread)
        x = integers(4, threads)
        assert_computes(s, [a, b], [x], np.roll(x, -shift, 1) * 2, target)

    @pytest.mark.parametrize(("x", "y", "z"), [(16, 2, 1), (32, 3, 1), (24, 2, 2), (8, 1, 4)])
    @on_gpu
    def test_every_row_has_its_own(self, x: int, y: int, z: int, target: str) -> None:
        rows = x * y * z * 2
        a = te.placeholder((rows, 5), name="A")
        b = te.compute((rows, 5), lambda i, j: a[i, j] * 2.0, name="B")
        c = te.compute((rows, 5), lambda i, j: b[i // x * x + (i + 3) % x, j] + 1.0, name="C")
        s = te.create_schedule(c.op)
        block, i = s[c].split(c.op.axis[0], x * y * z)
        upper, i = s[c].split(i, x * y)
        middle, lower = s[c].split(i, x)
        thread = te.thread_axis("threadIdx.x")
        s[c].bind(block, te.thread_axis("blockIdx.x"))
        s[c].bind(upper, te.thread_axis("threadIdx.z"))
        s[c].bind(middle, te.thread_axis("threadIdx.y"))
        s[c].bind(lower, thread)
        s[b].set_scope("warp")
        s[b].compute_at(s[c], c.op.axis[1])
        s[b].bind(s[b].split(b.op.axis[0], x)[1], thread)
        n = integers(rows, 5)
        moved = np.roll(n.reshape(-1, x, 5), -3, 1).reshape(rows, 5)
        assert_computes(s, [a, c], [n], moved * 2 + 1, target)

    @on_gpu
    def test_each_32_of_a_row_have_their_own(self, target: str) -> None:
        a = te.placeholder((2, 96), name="A")
        b = te.compute((2, 96), lambda i, j: a[i, j // 32 * 32 + 31 - j % 32] * 2.0, name="B")
        s = te.create_schedule(b.op)
        copied = s.cache_read(a, "warp", [b])
        thread = te.thread_axis("threadIdx.x")
        s[b].bind(b.op.axis[0], te.thread_axis("threadIdx.y"))
        s[b].bind(b.op.axis[1], thread)
        s[copied].compute_at(s[b], b.op.axis[0])
        s[copied].bind(copied.op.axis[1], thread)
        x = integers(2, 96)
        assert_computes(s, [a, b], [x], x.reshape(2, 3, 32)[:, :, ::-1].reshape(2, 96) * 2, target)


class TestPrefetch:
    def hints(self, s: Schedule, args: list[Any]) -> list[str]:
        (func,) = tilewright.lower(s, args, "llvm").funcs
        return [str(x) for x in walk(func.body) if isinstance(x, Evaluate)]

    def test_asks_for_what_a_later_iteration_reads(self) -> None:
        s, a, b, c = chain(32)
        outer, _ = s[b].split(b.op.axis[0], factor=8)
        s[b].prefetch(a, outer, 2)
        assert self.hints(s, [a, c]) == ["T.prefetch(A[T.min(i_outer * 8 + 16, 31)])"]
        x = integers(32)
        assert_computes(s, [a, c], [x], stencil(x), "llvm")

    def test_may_lie_behind_the_end_on_a_cpu(self) -> None:
        s, a, b, c = chain(32)
        s[b].prefetch(a, b.op.axis[0], 2)
        text = tilewright.build(s, [a, c], "llvm").source
        assert "call void @llvm.prefetch" in text
        assert "smin" not in text

    def test_of_a_stage_in_between(self) -> None:
        s, a, b, c = chain()
        s[c].prefetch(b, c.op.axis[0], 4)
        assert any("T.prefetch(B[" in hint for hint in self.hints(s, [a, c]))
        assert_computes(s, [a, c], [X], stencil(X), "llvm")

    @on_gpu
    def test_is_a_hint_on_a_gpu(self, target: str) -> None:
        a = te.placeholder((4, N), name="A")
        b = te.compute((4, N), lambda i, j: a[i, j] + 1.0, name="B")
        s = te.create_schedule(b.op)
        i, j = b.op.axis
        s[b].bind(i, te.thread_axis("threadIdx.x"))
        s[b].prefetch(a, i, 1)
        s[b].prefetch(a, j, 4)
        x = integers(4, N)
        assert_computes(s, [a, b], [x], x + 1, target)

    @everywhere
    @pytest.mark.parametrize("type", ["float16", "bfloat16", "bool", "uint8", "int64"])
    def test_takes_every_type(self, type: str, target: str) -> None:
        a = te.placeholder((4, 8), type, name="A")
        b = te.compute((4, 8), lambda i, j: te.cast("float32", a[i, j]), name="B")
        s = te.create_schedule(b.op)
        if target != "llvm":
            s[b].bind(b.op.axis[0], te.thread_axis("threadIdx.x"))
        s[b].prefetch(a, b.op.axis[1], 1)
        agree(s, [a], [b], target)
