"""Programs that the search for wrong ones found, once made right, as they were minimised."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.found import ARGMAX, agree

from tilewright import te
from tilewright.ir.errors import LoweringError, ScheduleError
from tilewright.lower.pipeline import lower

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


def test_a_loop_in_which_threads_fill_a_tile_together_is_the_same_for_all_of_them() -> None:
    A = te.placeholder((22,), name="A")
    T = te.compute((22,), lambda i: A[i] + 1, name="T")
    B = te.compute((2, 11), lambda i, j: T[i * 11 + j], name="B")
    s = te.create_schedule(B.op)
    i, j = s[B].op.axis
    s[B].reorder(j, i)
    outer, inner = s[B].split(j, factor=8)
    s[B].bind(outer, te.thread_axis("threadIdx.x"))
    s[T].compute_at(s[B], inner)
    s[T].set_scope("shared")
    _, own = s[T].split(s[T].op.axis[0], factor=2)
    s[T].bind(own, te.thread_axis("threadIdx.x"))
    agree(s, [A], [B], "sim")


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


def test_scratch_memory_with_gaps_takes_none_where_a_symbolic_extent_is_zero() -> None:
    n = te.var("n")
    A = te.placeholder((n, 1), name="A")
    B = te.compute((n, 1), lambda i, j: A[i, j] + 1, name="B")
    s = te.create_schedule(B.op)
    R = s.cache_read(A, "global", [B])
    s[R].storage_align(s[R].op.axis[0], 2, 0)
    agree(s, [A], [B], "llvm", {n: 0})
    agree(s, [A], [B], "llvm", {n: 3})


def test_a_tile_of_a_symbolic_tensor_takes_no_memory_where_it_begins_behind_the_end() -> None:
    n = te.var("n")
    A = te.placeholder((n, 7), name="A")
    T = te.compute((n, 7), lambda i, j: A[i, j] + 1, name="T")
    B = te.compute((n, 7), lambda i, j: T[i, j] * 2, name="B")
    s = te.create_schedule(B.op)
    i, j = s[B].op.axis
    outer, inner = s[B].split(i, factor=1)
    outer, block = s[B].split(outer, factor=5)
    s[B].reorder(block, outer, inner, j)
    s[B].bind(block, te.thread_axis("blockIdx.x"))
    s[T].compute_at(s[B], block)
    s[T].set_scope("local")
    agree(s, [A], [B], "sim", {n: 0})
    agree(s, [A], [B], "sim", {n: 3})


@pytest.mark.parametrize("type", ["int16", "int32", "uint32", "int64"])
def test_a_copy_that_is_read_at_indices_from_memory_is_of_the_whole_tensor(type: str) -> None:
    A = te.placeholder((30,), name="A")
    K = te.placeholder((8,), type, name="K")
    zero = te.const(0, "float32")
    B = te.compute(
        (8,), lambda i: te.if_then_else(te.all(K[i] >= 0, K[i] < 30), A[K[i]], zero), name="B"
    )
    s = te.create_schedule(B.op)
    R = s.cache_read(A, "local", [B])
    outer, _ = s[B].split(s[B].op.axis[0], factor=2)
    s[R].compute_at(s[B], outer)
    agree(s, [A, K], [B], "llvm")


def test_an_aligned_part_of_a_symbolic_tensor_is_no_longer_than_the_tensor() -> None:
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 2, name="B")
    s = te.create_schedule(B.op)
    L = s.cache_write(B, "local")
    outer, inner = s[B].split(s[B].op.axis[0], factor=3)
    s[B].reorder(inner, outer)
    s[L].compute_at(s[B], inner)
    s[L].align_bounds(s[L].op.axis[0], 3)
    assert "2147483" not in str(lower(s, [A, B]))
    agree(s, [A], [B], "llvm", {n: 0})
    agree(s, [A], [B], "llvm", {n: 7})


def test_a_parallel_loop_inside_a_long_one_computes_its_indices_by_itself() -> None:
    A = te.placeholder((3, 2, 11, 1), name="A")
    zero = te.const(0, "float32")
    P = te.compute(
        (3, 2, 15, 1),
        lambda i, j, k, l: te.if_then_else(te.all(k >= 2, k < 13), A[i, j, k - 2, l], zero),
        name="P",
    )
    r = te.reduce_axis((0, 1), "r")
    B = te.compute((3, 2, 15, 1), lambda i, j, k, l: te.sum(P[i, j, k, l + r], axis=[r]), name="B")
    s = te.create_schedule(B.op)
    s[P].compute_inline()
    _, _, k, l = s[B].op.axis
    *_, inner = s[B].tile(k, l, 4, 3)
    s[B].split(r, factor=7)
    s[B].parallel(inner)
    agree(s, [A], [B], "llvm")


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


def test_copies_of_a_nest_over_threads_inside_of_one_speak_of_the_same_threads() -> None:
    A = te.placeholder((4, 12), name="A")
    B = te.compute((4, 12), lambda i, j: A[3 - i, j] + 1, name="B")
    k = te.reduce_axis((0, 2), "k")
    C = te.compute((4, 11), lambda i, j: te.sum(B[3 - i, j + k], axis=k), name="C")
    s = te.create_schedule(C.op)
    thread = te.thread_axis("threadIdx.x")
    i, j = s[C].op.axis
    s[C].split(j, factor=5)
    s[C].bind(i, thread)
    s[B].compute_at(s[C], k)
    s[B].set_scope("shared")
    s[B].bind(s[B].op.axis[0], thread)
    agree(s, [A], [C], "sim")


# -- symbolic extents ----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3, 8])
def test_threads_share_a_tile_whose_fused_axes_have_a_symbolic_extent(size: int) -> None:
    n = te.var("n")
    A = te.placeholder((n, 4, 3), name="A")
    B = te.compute((n, 4, 3), lambda i, j, k: A[i, j, k] + 1, name="B")
    C = te.compute((n, 4, 6), lambda i, j, k: B[n - 1 - i, j, k // 2] * 2, name="C")
    s = te.create_schedule(C.op)
    thread = te.thread_axis("threadIdx.x")
    i, j, k = s[C].op.axis
    s[C].reorder(k, i, j)
    s[C].bind(k, thread)
    s[B].compute_at(s[C], k)
    s[B].set_scope("shared")
    i, j, k = s[B].op.axis
    outer, inner = s[B].split(j, nparts=3)
    s[B].reorder(inner, outer, i, k)
    fused = s[B].fuse(s[B].fuse(s[B].fuse(inner, outer), i), k)
    _, inner = s[B].split(fused, factor=6)
    s[B].bind(inner, thread)
    agree(s, [A], [C], "sim", {n: size})


@pytest.mark.parametrize("size", [1, 3, 8])
def test_a_tail_of_a_symbolic_extent_is_fused_with_another_axis(size: int) -> None:
    n = te.var("n")
    A = te.placeholder((n, 4, 6), name="A")
    B = te.compute((n, 4, 6), lambda i, j, k: A[i, j, k] + 1, name="B")
    C = te.compute((n, 4, 6), lambda i, j, k: B[n - 1 - i, j, k] * 2, name="C")
    s = te.create_schedule(C.op)
    thread = te.thread_axis("threadIdx.x")
    i, j, k = s[C].op.axis
    outer, inner = s[C].split(j, factor=2)
    s[C].reorder(outer, k, i, inner)
    s[C].bind(outer, te.thread_axis("blockIdx.x"))
    s[C].bind(k, thread)
    s[B].compute_at(s[C], k)
    s[B].set_scope("shared")
    i, j, k = s[B].op.axis
    outer, inner = s[B].split(i, factor=6)
    s[B].reorder(j, k, outer, inner)
    fused = s[B].fuse(s[B].fuse(s[B].fuse(j, k), outer), inner)
    _, inner = s[B].split(fused, factor=3)
    s[B].bind(inner, thread)
    agree(s, [A], [C], "sim", {n: size})


# -- proofs of symbolic extents ------------------------------------------------------------------


def test_half_of_a_symbolic_sum_is_in_bounds() -> None:
    n = te.var("n")
    A = te.placeholder((n, 1, 1), name="A")
    r = te.reduce_axis((0, 1), "r")
    B = te.compute((n, 1), lambda i, j: te.sum(A[i, r, j], axis=[r]), name="B")
    k = te.reduce_axis((0, n), "k")
    C = te.compute((1,), lambda i: te.sum(B[k, i], axis=[k]), name="C")
    s = te.create_schedule([C.op])
    _, inner = s[C].split(s[C].op.reduce_axis[0], nparts=2)
    part = s.rfactor(C, inner)
    s[B].compute_at(s[part], s[part].op.axis[0])
    agree(s, [A], [C], "llvm", {n: 5})


def test_threads_share_half_of_a_symbolic_sum_in_bounds() -> None:
    n = te.var("n")
    A = te.placeholder((n, 1), name="A")
    B = te.compute((n, 1), lambda i, j: A[i, j], name="B")
    r = te.reduce_axis((0, n), "r")
    C = te.compute((1,), lambda i: te.sum(B[r, i], axis=[r]), name="C")
    s = te.create_schedule([C.op])
    copy = s.cache_write(B, "local")
    _, inner = s[C].split(s[C].op.reduce_axis[0], nparts=2)
    part = s.rfactor(C, inner)
    thread = te.thread_axis("threadIdx.x")
    outer, lane = s[C].split(s[C].op.axis[0], factor=2)
    s[C].bind(outer, te.thread_axis("blockIdx.y"))
    s[C].bind(lane, thread)
    s[part].compute_at(s[C], outer)
    turn, lane = s[part].split(s[part].fuse(*s[part].op.axis), factor=2)
    s[part].bind(lane, thread)
    s[B].compute_at(s[part], turn)
    _, lane = s[B].split(s[B].fuse(*s[B].op.axis), factor=2)
    s[B].bind(lane, te.thread_axis("threadIdx.x"))
    s[copy].set_scope("global")
    s[copy].bind(s[copy].op.axis[0], te.thread_axis("blockIdx.x"))
    agree(s, [A], [C], "sim", {n: 5})


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


def test_a_tile_inside_a_reduction_across_threads_has_no_more_threads_than_that() -> None:
    A = te.placeholder((10, 10), name="A")
    T = te.compute((10, 5), lambda i, j: A[i, j * 2] + 1, name="T")
    r = te.reduce_axis((0, 2), "r")
    B = te.compute((10, 3), lambda i, j: te.sum(T[i, j + r * 2], axis=r), name="B")
    s = te.create_schedule(B.op)
    i, j = s[B].op.axis
    turn, own = s[B].split(r, factor=2)
    s[B].bind(own, te.thread_axis("threadIdx.x"))
    s[B].bind(j, te.thread_axis("blockIdx.x"))
    s[B].reorder(j, i, turn, own)
    s[T].compute_at(s[B], turn)
    _, x = s[T].split(s[T].fuse(*s[T].op.axis), factor=7)
    s[T].bind(x, te.thread_axis("threadIdx.x"))
    with pytest.raises(LoweringError, match="7 iterations for threadIdx.x.*a loop over 2 of it"):
        lower(s, [A, B], "sim")


@pytest.mark.parametrize("scope", ["global", "local"])
@pytest.mark.parametrize("size", [1, 2, 7])
def test_an_aligned_part_whose_size_the_loops_change_is_all_of_it(scope: str, size: int) -> None:
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    T = te.compute((n,), lambda i: A[i] * 2, name="T")
    B = te.compute((n, 3), lambda i, j: T[n - 1 - i] + T[i] + j, name="B")
    s = te.create_schedule(B.op)
    i, j = B.op.axis
    s[B].reorder(j, i)
    s[T].compute_at(s[B], i)
    s[T].set_scope(scope)
    s[T].align_bounds(T.op.axis[0], 2)
    agree(s, [A], [B], "llvm", {n: size})


def test_a_conversion_to_a_narrower_type_and_back_is_kept_behind_a_copy() -> None:
    A = te.placeholder((7,), "int32", name="A")
    B = te.compute((7,), lambda i: te.cast("int8", A[i] * 100) * te.const(3), name="B")
    s = te.create_schedule(B.op)
    s.cache_read(A, "local", [B])
    agree(s, [A], [B], "llvm")


def test_a_parallel_loop_in_a_long_one_computes_its_own_indices() -> None:
    A = te.placeholder((8,), name="A")
    T = te.compute((8, 3, 3), lambda i, j, k: te.if_then_else(j == k, A[i], 0.0), name="T")
    r = te.reduce_axis((0, 8), "r")
    largest = te.comm_reducer(
        lambda a, b: (te.if_then_else(a[1] >= b[1], a[0], b[0]), te.max(a[1], b[1])),
        lambda t0, t1: (te.const(-1, t0), te.min_value(t1)),
        name="largest",
    )
    M, B = te.compute((1, 3, 3), lambda i, j, k: largest((r, T[r, j, k]), axis=r), name="B")
    s = te.create_schedule(B.op)
    i, _, k = B.op.axis
    s[B].split(i, factor=4)
    s[T].compute_at(s[B], s[B].op.reduce_axis[0])
    s[B].parallel(k)
    agree(s, [A], [M, B], "llvm")


@pytest.mark.parametrize("target", ["llvm", "sim"])
def test_a_reduction_that_may_be_empty_is_written_all_the_same(target: str) -> None:
    A = te.placeholder((3, 1), name="A")

    def total(i: Any, j: Any) -> Any:
        r = te.reduce_axis((0, i), "r")
        return te.sum(A[r, j], axis=r)

    B = te.compute((3, 1), total, name="B")
    s = te.create_schedule(B.op)
    outer, _, _, _ = s[B].tile(*B.op.axis, 2, 1)
    if target == "sim":
        s[B].bind(outer, te.thread_axis("blockIdx.x"))
    agree(s, [A], [B], target)


def test_threads_reduce_no_axis_whose_extent_depends_on_another() -> None:
    A = te.placeholder((8,), name="A")

    def total(i: Any) -> Any:
        r = te.reduce_axis((0, te.max(7 - i, 0)), "r")
        return te.sum(A[r], axis=r)

    B = te.compute((8,), total, name="B")
    s = te.create_schedule(B.op)
    s[B].bind(B.op.axis[0], te.thread_axis("blockIdx.x"))
    s[B].bind(B.op.reduce_axis[0], te.thread_axis("threadIdx.x"))
    with pytest.raises(LoweringError, match="as many threads for all.*bind the inner one"):
        lower(s, [A, B], "sim")


def test_an_array_that_takes_the_registers_of_another_outlasts_it() -> None:
    A, C = te.placeholder((2, 7), name="A"), te.placeholder((1,), name="C")
    r = te.reduce_axis((0, 7), "r")
    T = te.compute((2, 1), lambda i, j: te.sum(A[i, r] * 2, axis=r), name="T")
    B, D = te.compute((2, 1), lambda i, j: (T[i, j] + 1, C[j]), name="B")
    s = te.create_schedule([B.op, D.op])
    own, _ = s.cache_write([B, D], "local")
    s[B].bind(B.op.axis[0], te.thread_axis("blockIdx.x"))
    s[own].compute_at(s[B], B.op.axis[0])
    s[T].compute_at(s[own], own.op.axis[0])
    s[T].set_scope("local")
    agree(s, [A, C], [B, D], "sim")


def test_an_array_begins_in_registers_of_another_behind_the_last_read_of_that_one() -> None:
    A, C = te.placeholder((2, 7), name="A"), te.placeholder((1,), name="C")
    r = te.reduce_axis((0, 7), "r")
    T = te.compute((2, 1), lambda i, j: te.sum(A[i, r] * 2, axis=r), name="T")
    B, D = te.compute((2, 1), lambda i, j: (T[i, j] + A[j, i], C[j]), name="B")
    s = te.create_schedule([B.op, D.op])
    first = s.cache_write(T, "local")
    second, _ = s.cache_write([B, D], "local")
    s[T].compute_inline()
    s[B].bind(B.op.axis[0], te.thread_axis("blockIdx.x"))
    s[second].compute_at(s[B], B.op.axis[0])
    s[first].compute_at(s[B], B.op.axis[0])
    agree(s, [A, C], [B, D], "sim")
