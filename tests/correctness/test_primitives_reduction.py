"""Reductions: rfactor, across threads, over tuples, from a start, under a condition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support.schedules import assert_computes, everywhere, integers, on_cpu, on_gpu, run

import tilewright
from tilewright import te
from tilewright.arith.conditions import conjuncts
from tilewright.ir.expr import Call
from tilewright.ir.stmt import Allocate
from tilewright.ir.visit import walk
from tilewright.schedule import Schedule

M, K = 5, 101
X = integers(M, K, seed=4)


def row_sums(k_extent: int = K) -> tuple[Schedule, Any, Any, Any]:
    a = te.placeholder((M, k_extent), name="A")
    k = te.reduce_axis((0, k_extent), "k")
    b = te.compute((M,), lambda i: te.sum(a[i, k], k), name="B")
    return te.create_schedule(b.op), a, b, k


def bind_rows(s: Schedule, b: Any, target: str) -> None:
    if target != "llvm":
        s[b].bind(s[b].op.axis[0], te.thread_axis("blockIdx.x"))


argmax = te.comm_reducer(
    lambda a, b: (te.if_then_else(a[1] >= b[1], a[0], b[0]), te.max(a[1], b[1])),
    lambda index, value: (te.const(-1, index), te.min_value(value)),
    name="argmax",
)


class TestRfactor:
    @pytest.mark.parametrize("factor", [4, 7, 128])
    @pytest.mark.parametrize("inner", [True, False])
    @everywhere
    def test_of_either_half_of_a_split(self, factor: int, inner: bool, target: str) -> None:
        s, a, b, k = row_sums()
        parts = s[b].split(k, factor=factor)
        partial = s.rfactor(b, parts[inner])
        if target != "llvm":
            for t in (partial, b):
                s[t].bind(s[t].op.axis[-1], te.thread_axis("blockIdx.x"))
        assert_computes(s, [a, b], [X], X.sum(1), target)

    @pytest.mark.parametrize("place", [0, 1, -1])
    @on_cpu
    def test_puts_the_axis_where_it_is_asked_to(self, place: int, target: str) -> None:
        s, a, b, k = row_sums()
        _, ki = s[b].split(k, factor=8)
        partial = s.rfactor(b, ki, place)
        sizes = [8, M] if place == 0 else [M, 8]
        assert [int(e) for e in partial.shape] == sizes
        assert_computes(s, [a, b], [X], X.sum(1), target)

    @on_cpu
    def test_of_the_whole_reduction_leaves_none_in_the_new_stage(self, target: str) -> None:
        s, a, b, k = row_sums()
        partial = s.rfactor(b, k)
        assert partial.op.reduce_axis == ()
        assert_computes(s, [a, b], [X], X.sum(1), target)

    @on_cpu
    def test_of_two_axes_leaves_out_what_adds_nothing(self, target: str) -> None:
        a = te.placeholder((M, 6, 5, 9), name="A")
        k, m, n = (
            te.reduce_axis((0, extent), name) for extent, name in ((6, "k"), (5, "m"), (9, "n"))
        )
        b = te.compute(
            (M,),
            lambda i: te.sum(a[i, k, m, n], axis=[k, m, n], where=te.all(k + m < 7, n < i, m <= i)),
            name="B",
        )
        s = te.create_schedule(b.op)
        partial = s.rfactor(b, [k, m], -1)
        assert [int(e) for e in partial.shape] == [M, 6, 5]
        assert [axis.name for axis in s[partial].op.reduce_axis] == ["n"]
        (i,), (k, m) = s[b].op.axis, s[b].op.reduce_axis
        found = {str(c) for c in conjuncts(s[b].op.body[0].condition)}
        assert found == {str(k.var + m.var < 7), str(m.var <= i.var)}
        x = integers(M, 6, 5, 9)
        at = np.indices(x.shape)
        inside = (at[1] + at[2] < 7) & (at[3] < at[0]) & (at[2] <= at[0])
        assert_computes(s, [a, b], [x], (x * inside).sum((1, 2, 3)), target)

    @on_cpu
    def test_a_condition_that_reads_memory_is_said_once(self, target: str) -> None:
        a, c = te.placeholder((M, 6, 9), name="A"), te.placeholder((6,), "int32", name="C")
        k, n = te.reduce_axis((0, 6), "k"), te.reduce_axis((0, 9), "n")
        b = te.compute((M,), lambda i: te.sum(a[i, k, n], axis=[k, n], where=c[k] > 0), name="B")
        s = te.create_schedule(b.op)
        s.rfactor(b, k)
        assert c not in s[b].op.inputs
        x, y = integers(M, 6, 9), integers(6, type="int32", seed=1)
        assert_computes(s, [a, c, b], [x, y], x.sum(2) @ (y > 0), target)

    @on_cpu
    def test_as_vector_lanes(self, target: str) -> None:
        s, a, b, k = row_sums()
        _, ki = s[b].split(k, factor=8)
        partial = s.rfactor(b, ki, 1)
        s[partial].compute_at(s[b], s[b].op.axis[0])
        (ko,) = partial.op.reduce_axis
        lane = partial.op.axis[1]
        s[partial].reorder(ko, lane)
        s[partial].vectorize(lane)
        assert_computes(s, [a, b], [X], X.sum(1), target)

    @on_cpu
    def test_of_a_fused_and_split_reduction(self, target: str) -> None:
        a = te.placeholder((M, 7, 9), name="A")
        k, m = te.reduce_axis((0, 7), "k"), te.reduce_axis((2, 9), "m")
        b = te.compute((M,), lambda i: te.sum(a[i, k, m], [k, m]), name="B")
        s = te.create_schedule(b.op)
        _, inner = s[b].split(s[b].fuse(k, m), factor=10)
        s.rfactor(b, inner)
        x = integers(M, 7, 9)
        assert_computes(s, [a, b], [x], x[:, :, 2:].sum((1, 2)), target)

    @everywhere
    def test_keeps_the_condition_and_the_start(self, target: str) -> None:
        a = te.placeholder((M, K), name="A")
        k = te.reduce_axis((0, K), "k")
        b = te.compute((M,), lambda i: te.sum(a[i, k], k, where=k % 3 != 1, init=a[i, 0]), name="B")
        s = te.create_schedule(b.op)
        _, ki = s[b].split(k, factor=8)
        partial = s.rfactor(b, ki)
        if target != "llvm":
            s[partial].bind(partial.op.axis[0], te.thread_axis("threadIdx.x"))
            s[b].bind(s[b].op.axis[0], te.thread_axis("threadIdx.x"))
        kept = np.arange(K) % 3 != 1
        assert_computes(s, [a, b], [X], X[:, kept].sum(1) + X[:, 0], target)

    @everywhere
    def test_of_tuples(self, target: str) -> None:
        a = te.placeholder((M, K), name="A")
        k = te.reduce_axis((0, K), "k")
        at, best = te.compute((M,), lambda i: argmax((k, a[i, k]), axis=k), name="best")
        s = te.create_schedule(at.op)
        ko, _ = s[at].split(k, nparts=4)
        partial = s.rfactor(at, ko)
        assert len(partial) == 2
        if target != "llvm":
            s[partial[0]].bind(partial[0].op.axis[0], te.thread_axis("threadIdx.x"))
            s[at].bind(s[at].op.axis[0], te.thread_axis("threadIdx.x"))
        x = np.random.default_rng(0).permutation(M * K).reshape(M, K).astype(np.float32)
        expected = [x.argmax(1).astype(np.int32), x.max(1)]
        assert_computes(s, [a, at, best], [x], expected, target)


class TestAcrossThreads:
    @pytest.mark.parametrize("threads", [2, 32, 33, 100])
    @on_gpu
    def test_a_bound_reduction(self, threads: int, target: str) -> None:
        s, a, b, k = row_sums()
        _, ki = s[b].split(k, factor=threads)
        s[b].bind(ki, te.thread_axis("threadIdx.x"))
        bind_rows(s, b, target)
        assert_computes(s, [a, b], [X], X.sum(1), target)

    @pytest.mark.parametrize("threads", [16, 32, 96])
    @on_gpu
    def test_as_tvm_writes_it(self, threads: int, target: str) -> None:
        s, a, b, k = row_sums()
        _, ki = s[b].split(k, factor=threads)
        partial = s.rfactor(b, ki)
        tx = te.thread_axis("threadIdx.x")
        s[b].bind(s[b].op.axis[0], te.thread_axis("blockIdx.x"))
        s[b].bind(s[b].op.reduce_axis[0], tx)
        s[partial].compute_at(s[b], s[b].op.reduce_axis[0])
        s[b].set_store_predicate(tx.var.equal(0))
        assert_computes(s, [a, b], [X], X.sum(1), target)

    @on_gpu
    def test_several_rows_a_block(self, target: str) -> None:
        s, a, b, k = row_sums()
        _, ki = s[b].split(k, factor=16)
        outer, inner = s[b].split(b.op.axis[0], factor=3)
        s[b].bind(outer, te.thread_axis("blockIdx.x"))
        s[b].bind(inner, te.thread_axis("threadIdx.y"))
        s[b].bind(ki, te.thread_axis("threadIdx.x"))
        assert_computes(s, [a, b], [X], X.sum(1), target)

    @on_gpu
    def test_over_two_thread_axes(self, target: str) -> None:
        a = te.placeholder((M, 6, 9), name="A")
        k, m = te.reduce_axis((0, 6), "k"), te.reduce_axis((0, 9), "m")
        b = te.compute((M,), lambda i: te.max(a[i, k, m], axis=[k, m]), name="B")
        s = te.create_schedule(b.op)
        s[b].bind(k, te.thread_axis("threadIdx.y"))
        s[b].bind(s[b].split(m, factor=4)[1], te.thread_axis("threadIdx.x"))
        bind_rows(s, b, target)
        x = integers(M, 6, 9)
        assert_computes(s, [a, b], [x], x.max((1, 2)), target)

    @on_gpu
    def test_the_result_stays_where_a_consumer_in_the_block_reads_it(self, target: str) -> None:
        a = te.placeholder((M, K), name="A")
        k = te.reduce_axis((0, K), "k")
        b = te.compute((M,), lambda i: te.sum(a[i, k], k), name="B")
        c = te.compute((M, K), lambda i, j: a[i, j] * K - b[i], name="C")
        s = te.create_schedule(c.op)
        _outer, inner = s[c].split(c.op.axis[1], factor=32)
        s[c].bind(c.op.axis[0], te.thread_axis("blockIdx.x"))
        s[c].bind(inner, te.thread_axis("threadIdx.x"))
        s[b].set_scope("shared")
        s[b].compute_at(s[c], c.op.axis[0])
        s[b].bind(s[b].split(k, factor=32)[1], te.thread_axis("threadIdx.x"))
        assert_computes(s, [a, c], [X], X * K - X.sum(1, keepdims=True), target)

    @pytest.mark.parametrize("threads", [16, 80])
    @on_gpu
    def test_of_tuples_in_one_warp_and_in_many(self, threads: int, target: str) -> None:
        a = te.placeholder((M, K), name="A")
        k = te.reduce_axis((0, K), "k")
        at, best = te.compute((M,), lambda i: argmax((k, a[i, k]), axis=k), name="best")
        s = te.create_schedule(at.op)
        s[at].bind(s[at].split(k, factor=threads)[1], te.thread_axis("threadIdx.x"))
        bind_rows(s, at, target)
        x = np.random.default_rng(0).permutation(M * K).reshape(M, K).astype(np.float32)
        expected = [x.argmax(1).astype(np.int32), x.max(1)]
        assert_computes(s, [a, at, best], [x], expected, target)

    @on_gpu
    def test_with_a_condition_and_a_start(self, target: str) -> None:
        a = te.placeholder((M, K), name="A")
        k = te.reduce_axis((0, K), "k")
        b = te.compute(
            (M,), lambda i: te.sum(a[i, k], k, where=k >= i * 9, init=a[i, 1] * 2.0), name="B"
        )
        s = te.create_schedule(b.op)
        s[b].bind(s[b].split(k, factor=24)[1], te.thread_axis("threadIdx.x"))
        bind_rows(s, b, target)
        mask = np.arange(K) >= np.arange(M)[:, None] * 9
        assert_computes(s, [a, b], [X], (X * mask).sum(1) + X[:, 1] * 2, target)

    def test_a_warp_shuffles_and_needs_no_shared_memory(self) -> None:
        s, a, b, k = row_sums()
        s[b].bind(s[b].split(k, factor=32)[1], te.thread_axis("threadIdx.x"))
        bind_rows(s, b, "sim")
        (func,) = tilewright.lower(s, [a, b], "sim").funcs
        nodes = list(walk(func.body))
        assert any(isinstance(n, Call) and n.name.startswith("shuffle") for n in nodes)
        assert not any(isinstance(n, Allocate) and n.buffer.scope == "shared" for n in nodes)


class TestReducers:
    @pytest.mark.parametrize("type", ["float32", "int32", "int8", "uint8", "float64", "int64"])
    @everywhere
    def test_sum_prod_min_and_max(self, type: str, target: str) -> None:
        a = te.placeholder((M, 6), type, name="A")
        x = np.random.default_rng(3).integers(1, 4, (M, 6)).astype(type)
        for reduce, numpy in ((te.sum, np.sum), (te.prod, np.prod), (te.min, np.min),
                              (te.max, np.max)):  # fmt: skip
            k = te.reduce_axis((0, 6), "k")
            b = te.compute((M,), lambda i, k=k, reduce=reduce: reduce(a[i, k], axis=k), name="B")
            s = te.create_schedule(b.op)
            bind_rows(s, b, target)
            assert b.dtype == type
            expected = np.asarray(numpy(x, axis=1)).astype(type)
            assert_computes(s, [a, b], [x], expected, target)

    @everywhere
    def test_the_extremes_of_nothing(self, target: str) -> None:
        a = te.placeholder((4,), name="A")
        rows = []
        for reduce in (te.sum, te.prod, te.min, te.max):
            k = te.reduce_axis((0, 4), "k")
            rows.append(
                te.compute((1,), lambda i, k=k, r=reduce: r(a[k], axis=k, where=k > 9), name="B")
            )
        s = te.create_schedule([r.op for r in rows])
        for r in rows:
            bind_rows(s, r, target)
        found = run(s, [a, *rows], [integers(4)], target)
        assert [float(f[0]) for f in found] == [0.0, 1.0, np.inf, -np.inf]

    @everywhere
    def test_where_skips_what_is_out_of_bounds(self, target: str) -> None:
        a = te.placeholder((M, K), name="A")
        k = te.reduce_axis((0, 5), "k")
        b = te.compute(
            (M, K),
            lambda i, j: te.sum(a[i, j + k - 2], k, where=te.all(j + k >= 2, j + k < K + 2)),
            name="B",
        )
        s = te.create_schedule(b.op)
        bind_rows(s, b, target)
        padded = np.pad(X, ((0, 0), (2, 2)))
        expected = sum(padded[:, t : t + K] for t in range(5))
        assert_computes(s, [a, b], [X], np.asarray(expected, np.float32), target)

    @on_cpu
    def test_starts_of_every_reducer(self, target: str) -> None:
        a = te.placeholder((M, 6), name="A")
        x = integers(M, 6)
        cases: list[tuple[Any, Any]] = [
            (te.sum, x.sum(1) + 3), (te.prod, x.prod(1) * 3),
            (te.min, np.minimum(x.min(1), 3)), (te.max, np.maximum(x.max(1), 3)),
        ]  # fmt: skip
        for reduce, expected in cases:
            k = te.reduce_axis((0, 6), "k")
            b = te.compute((M,), lambda i, k=k, r=reduce: r(a[i, k], axis=k, init=3.0), name="B")
            s = te.create_schedule(b.op)
            s[b].split(k, factor=4)
            assert_computes(s, [a, b], [x], expected, target)

    @everywhere
    def test_bytes_are_multiplied_into_words(self, target: str) -> None:
        a, b = (te.placeholder((M, 300), "int8", name=n) for n in "AB")
        k = te.reduce_axis((0, 300), "k")
        c = te.compute(
            (M,),
            lambda i: te.sum(a[i, k].astype("int32") * b[i, k].astype("int32"), k),
            name="C",
        )
        s = te.create_schedule(c.op)
        bind_rows(s, c, target)
        x, y = np.full((M, 300), -128, np.int8), np.full((M, 300), 127, np.int8)
        expected = (x.astype(np.int32) * y).sum(1).astype(np.int32)
        assert_computes(s, [a, b, c], [x, y], expected, target)

    @everywhere
    def test_a_reducer_of_ones_own(self, target: str) -> None:
        longest = te.comm_reducer(
            lambda x, y: te.max(te.abs(x), te.abs(y)), lambda t: te.const(0, t), name="longest"
        )
        a = te.placeholder((M, K), name="A")
        k = te.reduce_axis((0, K), "k")
        b = te.compute((M,), lambda i: longest(a[i, k], axis=k), name="B")
        s = te.create_schedule(b.op)
        bind_rows(s, b, target)
        assert_computes(s, [a, b], [X], np.abs(X).max(1), target)

    @on_cpu
    def test_a_reduction_of_everything(self, target: str) -> None:
        a = te.placeholder((M, K), name="A")
        i, k = te.reduce_axis((0, M), "i"), te.reduce_axis((0, K), "k")
        b = te.compute((), lambda: te.sum(a[i, k], [i, k]), name="B")
        s = te.create_schedule(b.op)
        assert_computes(s, [a, b], [X], np.asarray(X.sum()), target)
