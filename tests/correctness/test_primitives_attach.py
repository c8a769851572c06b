"""Stages are computed where the schedule says, exactly as much of them as is needed there."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.chain import N, X, chain, stencil
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


def test_registers_are_not_indexed_by_threads_where_one_image_is_computed() -> None:
    a = te.placeholder((1, 6, 5), name="A")
    b = te.compute(a.shape, lambda n, i, j: a[n, i, j] * 2.0, name="B")
    s = te.create_schedule(b.op)
    mine = s.cache_write(b, "local")
    block, item = s[b].split(s[b].fuse(*s[b].op.axis), factor=8)
    s[b].bind(block, te.thread_axis("blockIdx.x"))
    s[b].bind(item, te.thread_axis("threadIdx.x"))
    s[mine].compute_at(s[b], item)
    assert "= B_local[0, 0, 0]" in str(tilewright.lower(s, [a, b], "sim").funcs[0])


class TestHalos:
    """The region of a producer inside a tile of its consumer is exact."""

    @pytest.mark.parametrize("stride", [1, 2, 3])
    @pytest.mark.parametrize("dilation", [1, 2])
    @pytest.mark.parametrize("padding", [0, 2])
    def test_a_tile_of_a_convolution(self, stride: int, dilation: int, padding: int) -> None:
        n, taps, tile = 37, 3, 4
        reach = dilation * (taps - 1) + 1
        m = (n + 2 * padding - reach) // stride + 1
        a = te.placeholder((n,), name="A")
        w = te.placeholder((taps,), name="W")
        p = te.compute(
            (n + 2 * padding,),
            lambda i: te.if_then_else(
                te.all(i >= padding, i < n + padding), a[i - padding], te.const(0, "float32")
            ),
            name="P",
        )
        k = te.reduce_axis((0, taps), "k")
        c = te.compute((m,), lambda i: te.sum(p[i * stride + k * dilation] * w[k], k), name="C")
        s = te.create_schedule(c.op)
        outer, _ = s[c].split(c.op.axis[0], factor=tile)
        s[p].compute_at(s[c], outer)
        args = [a, w, c]
        assert allocated_shapes(s, args, "llvm") == {"P": (stride * (tile - 1) + reach,)}
        x, f = integers(n, seed=1), integers(taps, seed=2)
        padded = np.pad(x, padding)
        expected = sum(
            padded[t * dilation :][: stride * m : stride][:m] * f[t] for t in range(taps)
        )
        assert_computes(s, args, [x, f], np.asarray(expected, np.float32), "llvm")

    def test_two_dimensions_at_a_fused_tile(self) -> None:
        a = te.placeholder((19, 23), name="A")
        b = te.compute((19, 23), lambda i, j: a[i, j] + 1.0, name="B")
        c = te.compute((17, 20), lambda i, j: b[i, j] + b[i + 2, j + 3], name="C")
        s = te.create_schedule(c.op)
        io, jo, _, _ = s[c].tile(*c.op.axis, 4, 5)
        s[b].compute_at(s[c], s[c].fuse(io, jo))
        assert allocated_shapes(s, [a, c], "llvm") == {"B": (4 + 2, 5 + 3)}
        x = integers(19, 23)
        y = x + 1
        assert_computes(s, [a, c], [x], y[:17, :20] + y[2:, 3:], "llvm")

    def test_an_index_that_divides_needs_part_of_a_tile(self) -> None:
        a = te.placeholder((12,), name="A")
        b = te.compute((12,), lambda i: a[i] + 1.0, name="B")
        c = te.compute((47,), lambda i: b[i // 4], name="C")
        s = te.create_schedule(c.op)
        outer, _ = s[c].split(c.op.axis[0], factor=8)
        s[b].compute_at(s[c], outer)
        assert allocated_shapes(s, [a, c], "llvm") == {"B": (2,)}
        x = integers(12)
        assert_computes(s, [a, c], [x], (x + 1)[np.arange(47) // 4], "llvm")

    def test_a_transposed_read_needs_a_column(self) -> None:
        a = te.placeholder((7, 9), name="A")
        b = te.compute((7, 9), lambda i, j: a[i, j] * 2.0, name="B")
        c = te.compute((9, 7), lambda i, j: b[j, i], name="C")
        s = te.create_schedule(c.op)
        s[b].compute_at(s[c], c.op.axis[0])
        assert allocated_shapes(s, [a, c], "llvm") == {"B": (7, 1)}
        x = integers(7, 9)
        assert_computes(s, [a, c], [x], (x * 2).T.copy(), "llvm")

    def test_threads_that_share_a_tile_need_what_all_of_them_read(self) -> None:
        s, a, b, c = chain()
        block, thread = s[c].split(c.op.axis[0], factor=8)
        s[c].bind(block, te.thread_axis("blockIdx.x"))
        s[c].bind(thread, te.thread_axis("threadIdx.x"))
        s[b].set_scope("shared")
        s[b].compute_at(s[c], thread)
        s[b].bind(s[b].split(b.op.axis[0], factor=8)[1], te.thread_axis("threadIdx.x"))
        assert allocated_shapes(s, [a, c], "sim") == {"B": (10,)}

    def test_a_thread_with_a_tile_of_its_own_needs_what_it_reads_itself(self) -> None:
        s, a, b, c = chain()
        block, thread = s[c].split(c.op.axis[0], factor=8)
        s[c].bind(block, te.thread_axis("blockIdx.x"))
        s[c].bind(thread, te.thread_axis("threadIdx.x"))
        s[b].compute_at(s[c], thread)
        assert allocated_shapes(s, [a, c], "sim") == {"B": (3,)}

    def test_stages_that_are_attached_to_attached_stages(self) -> None:
        a = te.placeholder((40,), name="A")
        b = te.compute((40,), lambda i: a[i] + 1.0, name="B")
        c = te.compute((38,), lambda i: b[i] + b[i + 2], name="C")
        d = te.compute((36,), lambda i: c[i] * c[i + 2], name="D")
        s = te.create_schedule(d.op)
        outer, _ = s[d].split(d.op.axis[0], factor=5)
        s[c].compute_at(s[d], outer)
        ci, _ = s[c].split(c.op.axis[0], factor=2)
        s[b].compute_at(s[c], ci)
        assert allocated_shapes(s, [a, d], "llvm") == {"C": (7,), "B": (4,)}
        x = integers(40)
        y = x + 1
        z = y[:-2] + y[2:]
        assert_computes(s, [a, d], [x], z[:-2] * z[2:], "llvm")


class TestComputeAt:
    @pytest.mark.parametrize("place", range(3))
    @on_cpu
    def test_at_every_loop(self, place: int, target: str) -> None:
        s, a, b, c = chain()
        _outer, inner = s[c].split(c.op.axis[0], factor=12)
        s[c].split(inner, factor=5)
        s[b].compute_at(s[c], s[c].leaf_iter_vars[place])
        assert_computes(s, [a, c], [X], stencil(X), target)

    @on_gpu
    def test_in_shared_memory(self, target: str) -> None:
        s, a, b, c = chain()
        block, thread = s[c].split(c.op.axis[0], factor=8)
        s[c].bind(block, te.thread_axis("blockIdx.x"))
        s[c].bind(thread, te.thread_axis("threadIdx.x"))
        s[b].compute_at(s[c], block)
        s[b].set_scope("shared")
        s[b].bind(s[b].split(b.op.axis[0], nparts=8)[0], te.thread_axis("threadIdx.x"))
        assert_computes(s, [a, c], [X], stencil(X), target)

    @on_gpu
    def test_in_registers(self, target: str) -> None:
        s, a, b, c = chain()
        thread, inner = s[c].split(c.op.axis[0], factor=4)
        s[c].bind(thread, te.thread_axis("threadIdx.x"))
        s[c].unroll(inner)
        s[b].compute_at(s[c], thread)
        s[b].unroll(b.op.axis[0])
        assert_computes(s, [a, c], [X], stencil(X), target)

    @everywhere
    def test_inside_a_reduction(self, target: str) -> None:
        a = te.placeholder((6, 10), name="A")
        b = te.compute((6, 10), lambda i, k: a[i, k] * a[i, k], name="B")
        k = te.reduce_axis((0, 10), "k")
        c = te.compute((6,), lambda i: te.sum(b[i, k], k), name="C")
        s = te.create_schedule(c.op)
        outer, _ = s[c].split(k, factor=4)
        s[b].compute_at(s[c], outer)
        if target != "llvm":
            s[c].bind(c.op.axis[0], te.thread_axis("threadIdx.x"))
        x = integers(6, 10)
        assert_computes(s, [a, c], [x], (x * x).sum(1), target)

    @on_cpu
    def test_stages_that_reduce_over_one_axis_may_nest(self, target: str) -> None:
        a = te.placeholder((5, 7), name="A")
        k = te.reduce_axis((0, 7), "k")
        b = te.compute((7,), lambda j: te.sum(a[k % 5, j] + k, k), name="B")
        c = te.compute((5,), lambda i: te.sum(a[i, k] * b[k], k), name="C")
        s = te.create_schedule(c.op)
        s[b].compute_at(s[c], k)
        s[b].split(k, factor=3)
        x = integers(5, 7)
        rows = np.arange(7)
        inner = (x[rows % 5] + rows[:, None]).sum(0).astype(np.float32)
        assert_computes(s, [a, c], [x], (x * inner).sum(1), target)

    @on_cpu
    def test_a_stage_with_several_consumers_inside(self, target: str) -> None:
        a = te.placeholder((N,), name="A")
        b = te.compute((N,), lambda i: a[i] + 1.0, name="B")
        c = te.compute((N,), lambda i: b[i] * 2.0, name="C")
        d = te.compute((N,), lambda i: b[N - 1 - i] + c[i], name="D")
        s = te.create_schedule(d.op)
        outer, _ = s[d].split(d.op.axis[0], factor=4)
        s[c].compute_at(s[d], outer)
        s[b].compute_at(s[d], outer)
        y = X + 1
        assert_computes(s, [a, d], [X], y[::-1] + y * 2, target)

    @on_cpu
    def test_back_to_the_root(self, target: str) -> None:
        s, a, b, c = chain()
        s[b].compute_at(s[c], c.op.axis[0])
        s[b].compute_root()
        assert allocated_shapes(s, [a, c], "llvm") == {"B": (N,)}
        assert_computes(s, [a, c], [X], stencil(X), target)


class TestInline:
    @everywhere
    def test_an_inlined_stage_leaves_no_buffer(self, target: str) -> None:
        s, a, b, c = chain()
        s[b].compute_inline()
        if target != "llvm":
            s[c].bind(c.op.axis[0], te.thread_axis("threadIdx.x"))
        assert allocated_shapes(s, [a, c], target) == {}
        assert_computes(s, [a, c], [X], stencil(X), target)

    @on_cpu
    def test_chains_and_several_outputs(self, target: str) -> None:
        a = te.placeholder((N,), name="A")
        b, c = te.compute((N,), lambda i: (a[i] + 1.0, a[i] * 2.0), name="BC")
        d = te.compute((N,), lambda i: b[i] * c[N - 1 - i], name="D")
        e = te.compute((N,), lambda i: d[i] + b[i], name="E")
        s = te.create_schedule(e.op)
        s[b].compute_inline()
        s[d].compute_inline()
        assert allocated_shapes(s, [a, e], target) == {}
        x = X
        assert_computes(s, [a, e], [x], (x + 1) * (x * 2)[::-1] + x + 1, target)

    @on_cpu
    def test_into_a_reduction_and_its_condition(self, target: str) -> None:
        a = te.placeholder((N,), name="A")
        b = te.compute((N,), lambda i: a[i] * 2.0, name="B")
        k = te.reduce_axis((0, N), "k")
        c = te.compute((), lambda: te.sum(b[k], k, where=b[k] > 1.0), name="C")
        s = te.create_schedule(c.op)
        s[b].compute_inline()
        y = X * 2
        assert_computes(s, [a, c], [X], np.asarray(y[y > 1].sum()), target)

    @on_cpu
    def test_normalize_puts_inlined_stages_into_their_consumers(self, target: str) -> None:
        s, a, b, c = chain()
        s[b].compute_inline()
        normal = s.normalize()
        assert [stage.name for stage in normal.stages] == ["A", "C"]
        assert [stage.name for stage in s.stages] == ["A", "B", "C"]
        assert_computes(normal, [a, c], [X], stencil(X), target)


@everywhere
def test_several_outputs_in_one_schedule(target: str) -> None:
    a = te.placeholder((N,), name="A")
    b = te.compute((N,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((N,), lambda i: b[i] + 1.0, name="C")
    k = te.reduce_axis((0, N), "k")
    d = te.compute((), lambda: te.sum(b[k], k), name="D")
    s = te.create_schedule([c.op, d.op, b.op])
    if target != "llvm":
        for stage in (s[b], s[c]):
            outer, inner = stage.split(stage.op.axis[0], factor=8)
            stage.bind(outer, te.thread_axis("blockIdx.x"))
            stage.bind(inner, te.thread_axis("threadIdx.x"))
        s[d].bind(s[d].fuse(), te.thread_axis("threadIdx.x"))
    y = X * 2
    assert_computes(s, [a, b, c, d], [X], [y, y + 1, np.asarray(y.sum())], target)


@everywhere
def test_a_stage_between_that_is_an_argument_is_stored_there(target: str) -> None:
    s, a, b, c = chain()
    if target != "llvm":
        s[b].bind(b.op.axis[0], te.thread_axis("blockIdx.x"))
        s[c].bind(c.op.axis[0], te.thread_axis("threadIdx.x"))
    assert_computes(s, [a, b, c], [X], [X * 2 + 1, stencil(X)], target)
