"""Found by the search: vectors under masks, and indices and values that memory holds."""

from __future__ import annotations

import pytest
from tests.support.found import ARGMAX, agree

from tilewright import te
from tilewright.ir.errors import LoweringError
from tilewright.ir.expr import Expr
from tilewright.lower.pipeline import lower

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


def test_a_blend_uses_a_scalar_where_it_chooses_one_of_its_lanes() -> None:
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda j: A[j], name="B")
    C = te.compute(
        (3, 12),
        lambda i, j: te.if_then_else(te.all(i >= 1, j >= 2, j < 10), B[j - 2], 0.0),
        name="C",
    )
    s = te.create_schedule(C.op)
    i, j = s[C].op.axis
    s[C].reorder(j, i)
    s[C].bind(j, te.thread_axis("threadIdx.x"))
    s[B].compute_at(s[C], j)
    s[C].vectorize(i)
    agree(s, [A], [C], "sim")


def test_vectors_of_indices_from_memory_stay_in_bounds_under_masks() -> None:
    A, index = te.placeholder((4,), name="A"), te.placeholder((5,), "int32", name="index")
    B = te.compute((9,), lambda i: te.if_then_else(te.all(i >= 1, i < 5), A[i - 1], 1.0), name="B")
    C = te.compute((5, 4), lambda i, j: B[te.clip(index[i], 0, 8)] * j, name="C")
    s = te.create_schedule(C.op)
    s[B].compute_inline()
    _, lane = s[C].split(s[C].op.axis[0], factor=6)
    s[C].vectorize(lane)
    agree(s, [A, index], [C], "llvm")


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


def test_what_is_read_at_an_index_of_a_large_value_is_prefetched() -> None:
    def choices(i: Expr) -> Expr:
        value = A[i]
        for q in range(10):
            value = te.if_then_else(value > q, value - 1, te.min(value, 3))
        return value

    A = te.placeholder((16,), name="A")
    B = te.compute((16,), choices, name="B")
    s = te.create_schedule(B.op)
    i = s[B].pad_to(s[B].op.axis[0], 10)
    s[B].split(i, factor=5)
    own = s.cache_write(B, "global")
    outer, _ = s[own].op.axis
    s[own].prefetch(A, outer, 2)
    assert "prefetch" in str(lower(s, [A, B], "llvm"))
    agree(s, [A], [B], "llvm")


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


def test_an_axis_inlined_at_an_index_of_64_bits_keeps_its_type() -> None:
    A, index = te.placeholder((4,), name="A"), te.placeholder((3,), "int64", name="index")
    B = te.compute((6,), lambda i: te.select(te.all(i >= 1, i < 5), A[i - 1], 1.0), name="B")
    C = te.compute((3,), lambda i: B[te.clip(index[i], 0, 5)], name="C")
    s = te.create_schedule(C.op)
    s[B].compute_inline()
    agree(s, [A, index], [C], "llvm")


# -- conditions that read memory -----------------------------------------------------------------


@pytest.mark.parametrize("target", ["llvm", "sim"])
def test_a_condition_that_reads_memory_stands_behind_the_guards_of_splits(target: str) -> None:
    A, M = te.placeholder((7, 7), name="A"), te.placeholder((7,), "int32", name="M")
    k = te.reduce_axis((0, 7), "k")
    B = te.compute((7,), lambda i: te.sum(A[i, k], axis=k, where=M[k] > 0), name="B")
    s = te.create_schedule(B.op)
    _, inner = s[B].split(s[B].op.reduce_axis[0], factor=4)
    part = s.rfactor(B, inner)
    thread = te.thread_axis("threadIdx.x")
    if target == "sim":
        s[part].bind(s[part].op.axis[0], thread)
        s[B].bind(s[B].op.axis[0], thread)
    agree(s, [A, M], [B], target)


def test_a_predicate_of_a_tile_keeps_the_guard_of_the_tile() -> None:
    A, M = te.placeholder((10,), name="A"), te.placeholder((10,), "int32", name="M")
    k = te.reduce_axis((0, 3), "k")
    B = te.compute((10,), lambda i: te.sum(A[i] + k, axis=k, where=M[i] > 0), name="B")
    s = te.create_schedule(B.op)
    L = s.cache_write(B, "local")
    outer, _ = s[B].split(s[B].op.axis[0], factor=4)
    s[L].compute_at(s[B], outer)
    s[L].vectorize(s[L].op.axis[0])
    agree(s, [A, M], [B], "llvm")


@pytest.mark.parametrize("target", ["llvm", "sim"])
def test_a_cached_predicate_is_read_where_it_was_filled(target: str) -> None:
    A, M = te.placeholder((11,), name="A"), te.placeholder((11,), "int32", name="M")
    k = te.reduce_axis((0, 11), "k")
    B = te.compute((5,), lambda i: te.sum(A[k] + i, axis=k, where=M[k] > 0), name="B")
    s = te.create_schedule(B.op)
    cached = s.cache_read(M, "local" if target == "sim" else "global", [B])
    outer, _ = s[B].split(s[B].op.reduce_axis[0], factor=4)
    s[cached].compute_at(s[B], outer)
    if target == "sim":
        s[B].bind(s[B].op.axis[0], te.thread_axis("threadIdx.x"))
    agree(s, [A, M], [B], target)


@pytest.mark.parametrize("target", ["llvm", "sim"])
def test_an_eager_choice_reads_in_bounds_whatever_its_condition(target: str) -> None:
    A = te.placeholder((20,), name="A")
    B = te.compute(
        (32,), lambda i: te.select(i < 19, A[(i * 4 + 1) % 20], A[(i // 2 - i // 3 + i - 3) % 20])
    )
    s = te.create_schedule(B.op)
    outer, inner = s[B].split(B.op.axis[0], nparts=16)
    s[B].split(inner, factor=4)
    outer, _ = s[B].split(outer, factor=3)
    if target == "sim":
        s[B].bind(outer, te.thread_axis("threadIdx.x"))
    agree(s, [A], [B], target)


# -- lanes ---------------------------------------------------------------------------------------


def test_what_only_simplifying_finds_alike_in_all_lanes_is_a_vector_where_one_is_needed() -> None:
    A, M = te.placeholder((5,), name="A"), te.placeholder((5,), "int32", name="M")

    def values(i: Expr, j: Expr) -> Expr:
        flag = te.cast("int32", ~te.all(M[i] > 0, j >= 0))
        return te.cast("int32", A[i]) + flag + te.cast("int32", te.cast("int16", M[i]))

    B = te.compute((5, 16), values, name="B")
    s = te.create_schedule(B.op)
    s[B].vectorize(s[B].fuse(*B.op.axis))
    agree(s, [A, M], [B], "llvm")


def test_a_cast_of_what_is_alike_in_the_lanes_that_a_fused_reduction_gets_is_a_vector() -> None:
    A, C = te.placeholder((9,), "float64", name="A"), te.placeholder((4, 9), "bfloat16", name="C")
    k, l = te.reduce_axis((0, 3), "k"), te.reduce_axis((0, 8), "l")
    B = te.compute(
        (8, 9), lambda i, j: te.max(A[i] * te.cast("float64", C[k, i]), axis=[k, l]), name="B"
    )
    s = te.create_schedule(B.op)
    s[B].fuse(*s[B].op.reduce_axis)
    agree(s, [A, C], [B], "llvm")


def test_sim_takes_a_condition_that_is_one_for_all_threads_and_lanes() -> None:
    A, M = te.placeholder((6,), "bool", name="A"), te.placeholder((2,), "int64", name="M")
    B = te.compute(
        (4, 8), lambda i, j: te.select(j * 3 + 1 <= 9, M[(-j) % 2], te.cast("int64", A[i]))
    )
    s = te.create_schedule(B.op)
    i, j = B.op.axis
    s[B].bind(i, te.thread_axis("threadIdx.x"))
    s[B].vectorize(s[B].split(j, 3)[1])
    agree(s, [A, M], [B], "sim")


def test_a_mask_is_of_the_turn_that_it_guards() -> None:
    # It stands before the loop of a sum. The variable of a loop written out in that one still has
    # the value of its last turn of the time before.
    A = te.placeholder((2, 3, 20), name="A")
    k = te.reduce_axis((0, 3), "k")
    B = te.compute((2, 20), lambda i, c: te.sum(A[i, k, c], axis=k), name="B")
    s = te.create_schedule(B.op)
    i, c = B.op.axis
    vector, lane = s[B].split(c, factor=16)
    s[B].reorder(i, k, vector, lane)
    s[B].unroll(i, vector)
    s[B].vectorize(lane)
    s[B].pragma(vector, "partition", False)
    agree(s, [A], [B], "llvm")


def test_what_llvms_vectoriser_breaks_is_compiled_without_it() -> None:
    """Emitted as LLVM 22 leaves it, with a value used too early, it ends the process."""
    A = te.placeholder((6, 7, 2), "uint32", name="A")
    B = te.compute((6, 7, 2), lambda i, j, k: te.max(A[i, j, k], te.const(100, "uint32")), name="B")
    s = te.create_schedule(B.op)
    L = s.cache_write(B, "local")
    i, j, k = s[L].op.axis
    s[L].reorder(j, k, i)
    i, j, k = s[B].op.axis
    s[B].reorder(i, k, j)
    agree(s, [A], [B], "llvm")


def test_the_last_part_of_a_vector_may_be_one_lane() -> None:
    C = te.placeholder((8,), name="C")
    T = te.compute(
        (9,), lambda i: te.if_then_else(1 - i >= 1, C[(i * i) % 8], C[(-i) % 8]), name="T"
    )
    s = te.create_schedule(T.op)
    s[T].vectorize(s[T].op.axis[0])
    agree(s, [C], [T], "llvm")


def test_parts_of_a_vector_whose_lanes_are_no_power_of_two_are_stored() -> None:
    """LLVM 22 stored lanes 4 and 5 for 6 and 7."""
    A = te.placeholder((13, 7), "int64", name="A")
    T = te.compute((13, 7), lambda i, j: A[i, j], name="T")
    s = te.create_schedule(T.op)
    i, j = T.op.axis
    s[T].pad_to(j, 5)
    W = s.cache_write(T, "local")
    M = s.reindex(A, W, [s[W].op.axis[0].var * 1, s[W].op.axis[1]], "")
    _, rest = s.partition(M, s[M].op.axis[0], [1])
    s[rest].compute_inline()
    s[T].fuse(s[T].split(i, factor=7)[1], s[T].op.axis[1])
    rows, columns, _, _ = s[W].tile(*s[W].op.axis, 1, 2)
    s[W].split(columns, factor=3)
    row, _ = s[W].split(rows, factor=1)
    s[M].compute_at(s[W], row)
    s[M].align_bounds(s[M].op.axis[1], 4)
    s[M].vectorize(s[M].op.axis[1])
    agree(s, [A], [T], "llvm")


def test_lanes_that_are_off_are_zero_where_all_read_one_element() -> None:
    B = te.placeholder((8, 4, 1), "int32", name="B")
    r = te.reduce_axis((0, 4), "r")
    T = te.compute(
        (8, 4, 2),
        lambda i, j, k: te.sum(
            te.if_then_else(
                te.all(k + r >= 2, k + r < 3), B[i, j, k + r - 2], te.const(0, "int32")
            ),
            axis=[r],
        ),
        name="T",
    )
    s = te.create_schedule(T.op)
    i, j, k = T.op.axis
    skewed = s[T].skew(r, j, step=1)
    s[T].reorder(skewed, i, j, k)
    s[T].vectorize(j)
    s[T].unroll(k)
    agree(s, [B], [T], "llvm")
