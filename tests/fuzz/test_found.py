"""Programs that the search for wrong ones found, once made right, as they were minimised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.support.drawn_programs import Case, judge

from tilewright import te
from tilewright.ir.errors import LoweringError, ScheduleError
from tilewright.ir.expr import Var
from tilewright.lower.pipeline import lower
from tilewright.schedule import Schedule
from tilewright.te import Tensor


def agree(
    s: Schedule,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    target: str,
    sizes: Mapping[Var, int] | None = None,
) -> None:
    """The schedule is proved right and computes, bit for bit, what is declared."""
    found = judge(Case(inputs, outputs, sizes), s, target)
    assert found.kind == "right", found


ARGMAX = te.comm_reducer(
    lambda a, b: (
        te.if_then_else(te.any(a[1] > b[1], te.all(a[1].equal(b[1]), a[0] <= b[0])), a[0], b[0]),
        te.max(a[1], b[1]),
    ),
    lambda t0, t1: (te.const(2**30, t0), te.min_value(t1)),
    name="argmax",
)


# -- loops that may have no iterations -----------------------------------------------------------


def test_a_loop_that_trimming_leaves_empty_is_not_partitioned_as_if_it_ran() -> None:
    A = te.placeholder((2,), name="A")
    B = te.compute((2,), lambda i: A[i] + 1, name="B")
    C = te.compute((2,), lambda i: B[i] * 2, name="C")
    s = te.create_schedule(C.op)
    _, inner = s[C].split(s[C].op.axis[0], nparts=7)
    _, innermost = s[C].split(inner, factor=7)
    s[B].compute_at(s[C], innermost)
    agree(s, [A], [C], "llvm")


def test_nested_splits_with_tails_leave_a_tile_empty() -> None:
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1, name="B")
    s = te.create_schedule(B.op)
    L = s.cache_write(B, "global")
    outer, inner = s[B].split(s[B].op.axis[0], factor=2)
    _, inner = s[B].split(inner, factor=3)
    s[B].split(outer, factor=3)
    middle, _ = s[B].split(inner, factor=2)
    s[L].compute_at(s[B], middle)
    agree(s, [A], [B], "llvm")


def test_the_interior_of_a_partitioned_loop_ends_within_it() -> None:
    A = te.placeholder((12, 7), "float64", name="A")
    k = te.reduce_axis((0, 5), "k")
    B = te.compute((6,), lambda i: te.sum(te.if_then_else(i > 1, A[i, k], 0.0), axis=k), name="B")
    C = te.compute((6,), lambda i: B[i], name="C")
    s = te.create_schedule(C.op)
    F = s.rfactor(B, s[B].op.reduce_axis[0])
    R = s.cache_read(B, "global", [C])
    s[B].compute_at(s[R], s[R].op.axis[0])
    s[B].align_bounds(s[B].op.axis[0], 3, 2)
    outer, inner = s[F].split(s[F].op.axis[1], factor=1)
    s[F].tile(outer, inner, 4, 3)
    s[F].compute_at(s[B], s[B].op.axis[0])
    agree(s, [A], [C], "llvm")


def test_nothing_is_filled_ahead_of_a_loop_without_iterations() -> None:
    n = te.var("n")
    A = te.placeholder((n, 4), name="A")
    B = te.compute((n, 4), lambda i, j: A[i, j] + 1, name="B")
    C = te.compute((4, n), lambda j, i: B[i, j] * 2, name="C")
    s = te.create_schedule(C.op)
    j, i = s[C].op.axis
    outer, inner = s[C].split(i, factor=3)
    s[C].reorder(j, inner, outer)
    s[B].compute_at(s[C], outer)
    s[B].double_buffer()
    agree(s, [A], [C], "llvm", {n: 1})
    agree(s, [A], [C], "llvm", {n: 5})


# -- double buffers ------------------------------------------------------------------------------


@pytest.mark.parametrize("extent", [1, 2, 3, 4])
def test_the_last_turn_of_a_double_buffered_loop_fills_nothing(extent: int) -> None:
    A = te.placeholder((extent,), name="A")
    B = te.compute((2, extent), lambda i, j: A[j] * 2, name="B")
    s = te.create_schedule(B.op)
    R = s.cache_read(A, "local", [B])
    i, j = s[B].op.axis
    s[B].bind(i, te.thread_axis("threadIdx.x"))
    s[R].compute_at(s[B], j)
    s[R].double_buffer()
    agree(s, [A], [B], "sim")


# -- vectors under masks -------------------------------------------------------------------------


def test_lanes_that_are_off_do_not_read_what_another_thread_writes() -> None:
    A = te.placeholder((3, 7), name="A")
    k = te.reduce_axis((0, 3), "k")
    B = te.compute((7,), lambda i: te.sum(A[k, i], axis=k), name="B")
    s = te.create_schedule(B.op)
    outer, inner = s[B].split(s[B].op.axis[0], factor=2)
    _, lane = s[B].split(inner, factor=3)
    s[B].vectorize(lane)
    s[B].parallel(outer)
    agree(s, [A], [B], "llvm")


def test_a_masked_store_may_drop_what_it_read_of_an_undefined_element() -> None:
    A = te.placeholder((3, 4), name="A")
    B = te.compute((12,), lambda i: A[i // 4, i % 4], name="B")
    s = te.create_schedule(B.op)
    R = s.cache_read(A, "local", [B])
    L = s.cache_write(B, "local")
    s[B].bind(s[B].op.axis[0], te.thread_axis("blockIdx.x"))
    outer, inner = s[L].split(s[L].op.axis[0], factor=1)
    outer, _, _, lane = s[L].tile(outer, inner, 2, 2)
    s[L].compute_at(s[B], s[B].op.axis[0])
    s[R].compute_at(s[L], outer)
    s[L].vectorize(lane)
    agree(s, [A], [B], "sim")


def test_a_blend_of_vectors_uses_what_it_chooses() -> None:
    A = te.placeholder((6,), "int32", name="A")
    B = te.compute((6,), lambda i: A[i] * 2, name="B")
    C = te.compute(
        (7,), lambda i: te.if_then_else(i >= 1, B[i - 1], te.const(1, "int32")), name="C"
    )
    s = te.create_schedule(C.op)
    outer, lane = s[C].split(s[C].op.axis[0], factor=2)
    thread, serial = s[C].split(outer, factor=2)
    s[C].bind(thread, te.thread_axis("threadIdx.x"))
    s[B].compute_at(s[C], serial)
    s[C].vectorize(lane)
    agree(s, [A], [C], "sim")


def test_named_vectors_may_be_undefined_where_masked_stores_drop_them() -> None:
    A = te.placeholder((2, 7, 12), "int8", name="A")
    k = te.reduce_axis((0, 12), "k")
    B, C = te.compute((2, 7), lambda i, j: ARGMAX((k, A[i, j, k]), axis=k), name="B")
    s = te.create_schedule(B.op)
    _, inner = s[B].split(s[B].op.reduce_axis[0], nparts=2)
    F, _ = s.rfactor(B, inner)
    i, j = s[B].op.axis
    s[B].bind(i, te.thread_axis("threadIdx.x"))
    s[F].compute_at(s[B], j)
    s[F].align_bounds(s[F].op.axis[2], 2)
    s[F].vectorize(s[F].op.axis[2])
    agree(s, [A], [B, C], "sim")


def test_a_select_beyond_its_tensor_is_lazy_though_only_one_element_is_kept() -> None:
    A = te.placeholder((3,), name="A")
    B = te.compute((3,), lambda i: A[i] * 2, name="B")
    C = te.compute((5,), lambda i: te.select(te.all(i >= 1, i < 4), B[i - 1], 0.0), name="C")
    s = te.create_schedule(C.op)
    s[C].bind(s[C].op.axis[0], te.thread_axis("blockIdx.x"))
    s[B].compute_at(s[C], s[C].op.axis[0])
    agree(s, [A], [C], "sim")


# -- threads and kernels -------------------------------------------------------------------------


def test_a_stage_cannot_take_more_threads_than_the_loop_over_them_that_it_is_in() -> None:
    A = te.placeholder((3,), name="A")
    k = te.reduce_axis((0, 3), "k")
    B = te.compute((3,), lambda i: te.sum(A[k], axis=k), name="B")
    s = te.create_schedule(B.op)
    R = s.cache_read(A, "shared", [B])
    outer, _ = s[B].split(s[B].op.axis[0], factor=2)
    s[B].bind(outer, te.thread_axis("threadIdx.y"))
    s[R].compute_at(s[B], outer)
    s[R].bind(s[R].op.axis[0], te.thread_axis("threadIdx.y"))
    with pytest.raises(LoweringError, match=r"3 iterations for threadIdx.y.*Split the axis by 2"):
        lower(s, [A, B], "sim")


def test_what_is_computed_at_a_reduction_over_threads_knows_the_serial_ones_around() -> None:
    A = te.placeholder((9, 9), name="A")
    B = te.compute((9, 9), lambda i, j: A[i, j] + 1, name="B")
    k, l = te.reduce_axis((0, 3), "k"), te.reduce_axis((0, 2), "l")
    C = te.compute((7, 8), lambda i, j: te.sum(B[i + k, j + l], axis=[k, l]), name="C")
    s = te.create_schedule(C.op)
    s[C].split(k, factor=2)
    s[C].bind(l, te.thread_axis("threadIdx.x"))
    s[B].compute_at(s[C], l)
    agree(s, [A], [C], "sim")


def test_what_is_computed_at_a_loop_of_one_iteration_stays_in_the_kernel() -> None:
    A = te.placeholder((6,), name="A")
    B = te.compute((6,), lambda i: A[i] + 1, name="B")
    C = te.compute((6,), lambda i: B[5 - i] * 2, name="C")
    s = te.create_schedule(C.op)
    outer, inner = s[C].split(s[C].op.axis[0], factor=6)
    s[C].bind(inner, te.thread_axis("threadIdx.x"))
    s[B].compute_at(s[C], outer)
    s[B].set_scope("shared")
    s[B].bind(s[B].op.axis[0], te.thread_axis("threadIdx.x"))
    agree(s, [A], [C], "sim")


def test_on_a_cpu_local_memory_at_the_root_lives_through_all_stages() -> None:
    n = te.var("n")
    A = te.placeholder((n, 11), name="A")
    k = te.reduce_axis((0, 11), "k")
    B, C = te.compute((n,), lambda i: ARGMAX((k, A[i, k]), axis=k), name="B")
    s = te.create_schedule(B.op)
    L, _ = s.cache_write([B, C], "local")
    s[L].parallel(s[L].op.axis[0])
    agree(s, [A], [B, C], "llvm", {n: 3})


def test_a_thread_axis_of_several_stages_has_the_threads_of_the_longest() -> None:
    n = te.var("n")
    A = te.placeholder((n, 2), name="A")
    B = te.compute((n, 2), lambda i, j: A[i, j] + 1, name="B")
    C = te.compute((n,), lambda i: B[i, 0] + B[i, 1], name="C")
    D = te.compute((n,), lambda i: C[i] * 2, name="D")
    s = te.create_schedule(D.op)
    block = te.thread_axis("blockIdx.x")
    _, inner = s[D].split(s[D].op.axis[0], factor=2)
    _, innermost = s[D].split(inner, factor=5)
    s[D].bind(innermost, block)
    s[C].bind(s[C].op.axis[0], block)
    s[B].bind(s[B].op.axis[1], block)
    agree(s, [A], [D], "sim", {n: 3})


def test_stages_that_share_a_virtual_thread_have_loops_of_their_own() -> None:
    A = te.placeholder((4, 8), name="A")
    B = te.compute((4, 8), lambda i, j: A[i, 7 - j] + 1, name="B")
    C = te.compute((4, 8), lambda i, j: B[i, j] * 2, name="C")
    s = te.create_schedule(C.op)
    virtual = te.thread_axis("vthread")
    i, j = s[C].op.axis
    outer, inner = s[C].split(j, factor=4)
    s[C].reorder(outer, i, inner)
    s[C].bind(outer, virtual)
    s[C].bind(i, te.thread_axis("threadIdx.x"))
    s[B].compute_at(s[C], i)
    _, inner = s[B].split(s[B].op.axis[1], factor=2)
    s[B].bind(inner, virtual)
    agree(s, [A], [C], "sim")


def test_one_virtual_thread_carries_one_axis_of_a_stage() -> None:
    A = te.placeholder((4, 8), name="A")
    B = te.compute((4, 8), lambda i, j: A[i, j] + 1, name="B")
    s = te.create_schedule(B.op)
    virtual = te.thread_axis("vthread")
    s[B].bind(s[B].op.axis[0], virtual)
    with pytest.raises(ScheduleError, match="vthread already carries axis i"):
        s[B].bind(s[B].op.axis[1], virtual)


# -- what memory holds ---------------------------------------------------------------------------


def test_nothing_is_added_to_the_greatest_value_of_a_type() -> None:
    A = te.placeholder((5, 2), "int32", name="A")
    k = te.reduce_axis((0, 1), "k")
    B = te.compute((5,), lambda i: te.min(A[i, k], axis=k, where=k >= 1), name="B")
    C = te.compute((5,), lambda i: te.clip(B[i], -100, 100) + 1, name="C")
    D = te.compute((5,), lambda i: te.if_then_else(B[i] - 5 > A[i, 0], 1, 0), name="D")
    s = te.create_schedule([C.op, D.op])
    agree(s, [A], [C, D], "llvm")


def test_indices_from_memory_are_read_where_the_guards_of_their_reader_hold() -> None:
    A = te.placeholder((3,), name="A")
    index = te.placeholder((1,), "int32", name="index")
    B = te.compute((3,), lambda i: A[2 - i] + 1, name="B")
    C = te.compute((1,), lambda i: B[te.clip(index[i], 0, 2)] + 1, name="C")
    s = te.create_schedule(C.op)
    _, inner = s[C].split(s[C].op.axis[0], factor=2)
    s[C].bind(inner, te.thread_axis("blockIdx.x"))
    s[B].compute_at(s[C], inner)
    agree(s, [A, index], [C], "sim")


def test_nothing_is_prefetched_at_an_index_from_memory() -> None:
    A = te.placeholder((3,), name="A")
    index = te.placeholder((2,), "int32", name="index")
    B = te.compute((2,), lambda i: A[te.clip(index[i], 0, 2)], name="B")
    s = te.create_schedule(B.op)
    s[B].prefetch(A, s[B].op.axis[0], 1)
    agree(s, [A, index], [B], "llvm")


def test_what_is_computed_inside_of_a_loop_is_not_prefetched_there() -> None:
    A = te.placeholder((4, 8), name="A")
    B = te.compute((4, 8), lambda i, j: A[i, j] + 1, name="B")
    C = te.compute((4, 8), lambda i, j: B[i, j] * 2, name="C")
    s = te.create_schedule(C.op)
    i, j = s[C].op.axis
    s[B].compute_at(s[C], j)
    s[C].prefetch(B, i, 1)
    with pytest.raises(LoweringError, match="B is computed inside of the axis"):
        lower(s, [A, C], "llvm")


# -- libraries -----------------------------------------------------------------------------------


def test_proofs_take_integers_beyond_64_bits() -> None:
    n = te.var("n")
    A = te.placeholder((n, 9, 4, 1), "int64", name="A")
    k = te.reduce_axis((0, 9), "k")
    B, C = te.compute((n, 4, 1), lambda i, j, l: ARGMAX((k, A[i, k, j, l]), axis=k), name="B")
    s = te.create_schedule(B.op)
    s[B].split(s[B].op.axis[0], factor=2)
    agree(s, [A], [B, C], "llvm", {n: 1})


def test_llvm_does_not_abort_on_the_least_of_greatest_values() -> None:
    A, B = te.placeholder((63,), name="A"), te.placeholder((63,), name="B")
    k = te.reduce_axis((0, 63), "k")
    C = te.compute((1,), lambda i: te.min(te.max(A[k], B[i + 2]), axis=k), name="C")
    agree(te.create_schedule(C.op), [A, B], [C], "llvm")


@pytest.mark.parametrize("reduce", [te.min, te.max])
def test_llvm_keeps_all_parts_of_several_minima(reduce: Any) -> None:
    A = te.placeholder((8, 13), name="A")
    k = te.reduce_axis((0, 13), "k")
    B = te.compute((8,), lambda i: reduce(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    s[B].reorder(k, s[B].op.axis[0])
    agree(s, [A], [B], "llvm")
