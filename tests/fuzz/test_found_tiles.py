"""Parts of tensors kept in other memories that ``python -m tests.fuzz`` found wrong, minimised."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.found import agree

from tilewright import build, lower, te
from tilewright.ir.errors import LoweringError, VerificationError
from tilewright.ir.stmt import Allocate
from tilewright.ir.visit import walk
from tilewright.schedule import Schedule
from tilewright.te import Tensor


def test_sim_computes_offsets_that_the_type_of_an_index_does_not_hold() -> None:
    A, P = te.placeholder((5, 100), "int32", name="A"), te.placeholder((64,), "uint8", name="P")
    B = te.compute((64,), lambda i: A[te.clip(P[i], 0, 4), 99 - i], name="B")
    s = te.create_schedule(B.op)
    s[B].bind(B.op.axis[0], te.thread_axis("threadIdx.x"))
    agree(s, [A, P], [B], "sim")


def _gathered(index: Any, size: int) -> tuple[Schedule, list[Tensor], Tensor]:
    """A table in shared memory, read at what ``index`` makes of data."""
    A, P = te.placeholder((size,), name="A"), te.placeholder((8,), "uint16", name="P")
    B = te.compute((8,), lambda i: index(A, P[i], i), name="B")
    s = te.create_schedule(B.op)
    copy = s.cache_read(A, "shared", [B])
    outer, inner = s[B].split(B.op.axis[0], factor=4)
    s[B].bind(outer, te.thread_axis("blockIdx.x"))
    s[B].bind(inner, te.thread_axis("threadIdx.x"))
    s[copy].compute_at(s[B], outer)
    s[copy].align_bounds(copy.op.axis[0], 4)
    s[copy].bind(s[copy].split(copy.op.axis[0], factor=4)[1], te.thread_axis("threadIdx.x"))
    return s, [A, P], B


def test_of_a_table_read_at_guarded_data_no_more_is_kept_than_it_has() -> None:
    def index(A: Tensor, p: Any, i: Any) -> Any:
        twice = te.cast("int32", p) * 2
        return te.if_then_else(twice < 6, A[twice], 0.0)

    s, inputs, B = _gathered(index, 6)
    (func,) = lower(s, [*inputs, B], "sim").funcs
    (kept,) = (x.buffer for x in walk(func.body) if isinstance(x, Allocate))
    assert [str(n) for n in kept.shape] == ["8"], "whole groups of four of what the table has"
    agree(s, inputs, [B], "sim")


def test_a_copy_has_no_room_for_data_that_say_a_place_beyond_the_table() -> None:
    s, inputs, B = _gathered(lambda A, p, i: A[te.cast("int32", p & 31) - i], 200)
    with pytest.raises(VerificationError, match="could not prove.*within its shape"):
        build(s, [*inputs, B], "sim")


def test_an_aligned_copy_between_two_reads_apart_is_all_of_the_tensor() -> None:
    A = te.placeholder((20,), "int32", name="A")
    B = te.compute(
        (6,), lambda i: te.select(i < 9, A[i * i % 20], A[(i // 2 - i // 3 + i - 3) % 20]), name="B"
    )
    s = te.create_schedule(B.op)
    copy = s.cache_read(A, "local", [B])
    s[B].bind(B.op.axis[0], te.thread_axis("threadIdx.x"))
    s[copy].compute_at(s[B], B.op.axis[0])
    s[copy].align_bounds(copy.op.axis[0], 2)
    agree(s, [A], [B], "sim")


def _longer_by_thread(inside: bool, scope: str, spread: bool) -> tuple[Schedule, Tensor, Tensor]:
    """Sums over more rows for later threads, of rows that are copied."""
    A = te.placeholder((8, 8), "int32", name="A")

    def total(i: Any) -> Any:
        r = te.reduce_axis((0, i), "r")
        return te.sum(A[r, 7 - i], axis=r)

    B = te.compute((8,), total, name="B")
    s = te.create_schedule(B.op)
    copy = s.cache_read(A, scope, [B])
    outer, i = s[B].split(B.op.axis[0], factor=8)
    s[B].bind(outer, te.thread_axis("blockIdx.x"))
    s[B].bind(i, te.thread_axis("threadIdx.x"))
    s[copy].compute_at(s[B], B.op.reduce_axis[0] if inside else outer)
    if spread:
        s[copy].bind(copy.op.axis[1], te.thread_axis("threadIdx.x"))
    return s, A, B


@pytest.mark.parametrize("spread", [True, False])
def test_threads_share_nothing_in_a_loop_that_some_leave_early(spread: bool) -> None:
    s, A, B = _longer_by_thread(inside=True, scope="shared", spread=spread)
    with pytest.raises(LoweringError, match="over 'r' of stage 'B'.*not as often.*outside of that"):
        lower(s, [A, B], "sim")


@pytest.mark.parametrize("inside", [True, False])
def test_they_may_share_it_outside_of_the_loop_or_keep_their_own(inside: bool) -> None:
    s, A, B = _longer_by_thread(inside, "local" if inside else "shared", spread=not inside)
    agree(s, [A], [B], "sim")


def test_threads_fill_a_tile_together_though_some_need_nothing_of_it() -> None:
    # The tile is read for a value in registers, which in turn is stored under the guard alone.
    A = te.placeholder((9,), name="A")
    T = te.compute((9,), lambda i: A[i] + 1, name="T")
    B = te.compute((9,), lambda i: T[i] * 2, name="B")
    s = te.create_schedule(B.op)
    copy = s.cache_read(A, "shared", [T])
    outer, inner = s[B].split(B.op.axis[0], factor=8)
    s[B].bind(outer, te.thread_axis("threadIdx.x"))
    s[T].compute_at(s[B], inner)
    s[T].set_scope("local")
    s[copy].compute_at(s[T], T.op.axis[0])
    s[copy].align_bounds(copy.op.axis[0], 4)
    _, own = s[copy].split(copy.op.axis[0], factor=2)
    s[copy].bind(own, te.thread_axis("threadIdx.x"))
    agree(s, [A], [B], "sim")


@pytest.mark.parametrize("target", ["llvm", "sim"])
def test_what_a_reduction_may_run_over_says_nothing_of_the_axes_around_it(target: str) -> None:
    A = te.placeholder((5,), name="A")
    B = te.compute(
        (5,), lambda i: te.sum(A[(r := te.reduce_axis((0, 5 - i), "r"))], axis=r), name="B"
    )
    s = te.create_schedule(B.op)
    copy = s.cache_read(A, "local", [B])
    outer, inner = s[B].split(B.op.axis[0], factor=8)
    s[B].split(B.op.reduce_axis[0], factor=3)
    s[copy].compute_at(s[B], outer)
    if target == "sim":
        s[B].bind(outer, te.thread_axis("blockIdx.x"))
        s[B].bind(inner, te.thread_axis("threadIdx.x"))
    agree(s, [A], [B], target)


@pytest.mark.parametrize("target", ["llvm", "sim"])
@pytest.mark.parametrize("alignment", [0, 4])
@pytest.mark.parametrize(
    "index",
    [
        lambda i, at: te.cast("int64", i) * 2 + 1,
        lambda i, at: te.max(te.cast("int64", i) - 2, 0),
        lambda i, at: te.clip(at, 0, 0),
    ],
    ids=["affine", "maximum", "constant"],
)
def test_an_axis_computed_where_it_is_read_at_64_bits_keeps_its_type(
    index: Any, alignment: int, target: str
) -> None:
    A, P = te.placeholder((60,), "int32", name="A"), te.placeholder((8,), "int64", name="P")
    T = te.compute((20,), lambda j: A[j * 3] + j, name="T")
    B = te.compute((8,), lambda i: T[index(i, P[i])], name="B")
    s = te.create_schedule(B.op)
    s[T].compute_at(s[B], B.op.axis[0])
    s[T].split(T.op.axis[0], nparts=3)
    if alignment:
        s[T].align_bounds(T.op.axis[0], alignment)
    if target == "sim":
        s[B].bind(B.op.axis[0], te.thread_axis("threadIdx.x"))
    agree(s, [A, P], [B], target)


def _squares(spread: bool) -> tuple[Schedule, Tensor, Tensor]:
    """Pairs of elements kept in registers, each thread's around the square of its index."""
    A = te.placeholder((8,), name="A")
    B = te.compute((3, 12), lambda i, j: A[(i * j + j * j) % 8], name="B")
    s = te.create_schedule(B.op)
    copy = s.cache_read(A, "local", [B])
    i, j = s[B].op.axis
    s[B].bind(i, te.thread_axis("blockIdx.x"))
    s[B].bind(j, te.thread_axis("threadIdx.x"))
    s[copy].compute_at(s[B], j)
    s[copy].align_bounds(copy.op.axis[0], 2)
    if spread:
        s[copy].bind(copy.op.axis[0], te.thread_axis("threadIdx.x"))
    return s, A, B


def test_a_thread_may_read_registers_at_a_product() -> None:
    s, A, B = _squares(spread=False)
    agree(s, [A], [B], "sim")


@pytest.mark.parametrize("size", [0, 1, 3])
def test_a_thread_may_read_registers_at_a_remainder_by_an_extent(size: int) -> None:
    # A copy of a copy: of either, threads write what the extent, if there is any, leaves over.
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((4,), lambda i: te.if_then_else(n > 0, A[i % n], 1.0), name="B")
    s = te.create_schedule(B.op)
    first = s.cache_read(A, "local", [B])
    second = s.cache_read(first, "local", [B])
    s[B].bind(B.op.axis[0], te.thread_axis("blockIdx.x"))
    s[second].compute_at(s[B], B.op.axis[0])
    s[first].compute_at(s[second], second.op.axis[0])
    _, inner = s[first].split(first.op.axis[0], factor=1)
    s[first].split(inner, factor=3)
    agree(s, [A], [B], "sim", {n: size})


def test_a_condition_may_say_what_a_product_is_where_registers_are_read() -> None:
    A = te.placeholder((8,), name="A")
    B = te.compute((6, 3), lambda i, j: te.select(i < 1, A[i * i % 8], A[j + 3]), name="B")
    s = te.create_schedule(B.op)
    copy = s.cache_read(A, "local", [B])
    s[B].bind(B.op.axis[0], te.thread_axis("threadIdx.x"))
    s[copy].compute_at(s[B], B.op.axis[1])
    agree(s, [A], [B], "sim")


def test_what_other_threads_keep_at_a_product_is_not_there() -> None:
    s, A, B = _squares(spread=True)
    with pytest.raises(VerificationError, match="reads of A.local only what its thread wrote"):
        build(s, [A, B], "sim")


@pytest.mark.parametrize("value", [-3, 0, 2, 9])
@pytest.mark.parametrize("target", ["llvm", "sim"])
def test_a_scalar_that_says_where_a_sum_begins_may_be_negative(target: str, value: int) -> None:
    # Partial sums are kept in a tensor whose extent depends on the scalar.
    A, p = te.placeholder((4, 6), "int32", name="A"), te.var("p")
    r = te.reduce_axis((te.clip(p, 0, 6), 6), "r")
    B = te.compute((4,), lambda i: te.sum(A[i, r] * p, axis=r), name="B")
    s = te.create_schedule(B.op)
    F = s.rfactor(B, r)
    if target == "sim":
        for stage in (F, B):
            s[stage].bind(s[stage].op.axis[-1], te.thread_axis("threadIdx.x"))
    agree(s, [A], [B], target, {p: value})


@pytest.mark.parametrize("value", [-3, 0, 2])
@pytest.mark.parametrize("factored", [True, False])
def test_a_sum_of_a_negative_number_of_terms_is_empty(factored: bool, value: int) -> None:
    A, C = te.placeholder((4, 6), "int32", name="A"), te.placeholder((4, 6), "int32", name="C")
    p = te.var("p")
    r, q = te.reduce_axis((0, te.min(p, 6)), "r"), te.reduce_axis((te.clip(p, 0, 6), 6), "q")
    B = te.compute((4,), lambda i: te.sum(A[i, r], axis=r, init=te.max(p, 0)), name="B")
    D = te.compute((4,), lambda i: te.sum(C[i, q], axis=q), name="D")
    s = te.create_schedule([B.op, D.op])
    if factored:
        s.rfactor(B, r)
    agree(s, [A, C], [B, D], "llvm", {p: value})


@pytest.mark.parametrize("value", [0, 3, 100, -128])
@pytest.mark.parametrize("type", ["int8", "uint32", "int64"])
@pytest.mark.parametrize("target", ["llvm", "sim"])
def test_a_tile_read_at_a_scalar_of_any_type_is_in_bounds(
    target: str, type: str, value: int
) -> None:
    # Of 8 bits, products wrap around; of 64, the axis of the tile does not hold where it begins.
    A, p = te.placeholder((20,), name="A"), te.var("p", type)
    T = te.compute((20,), lambda i: A[i] + 1, name="T")
    place = {"int8": lambda i: te.clip(p * p - i, 0, 19), "uint32": lambda i: te.min(p, 19)}
    at = place.get(type, lambda i: te.clip(p, 0, 15) + i)
    B = te.compute((4,), lambda i: T[at(i)], name="B")
    s = te.create_schedule(B.op)
    if target == "sim":
        s[B].bind(B.op.axis[0], te.thread_axis("threadIdx.x"))
    s[T].split(T.op.axis[0], factor=3)
    s[T].compute_at(s[B], B.op.axis[0])
    agree(s, [A], [B], target, {p: abs(value) if type == "uint32" else value})


@pytest.mark.parametrize("value", [-3, 0, 2])
def test_the_square_of_a_scalar_is_not_negative(value: int) -> None:
    A, p = te.placeholder((7,), name="A"), te.var("p")
    B = te.compute(
        (4,),
        lambda i: te.select(te.all(p * p + i >= 0, p * p + i < 7), A[p * p + i], te.const(1.0)),
        name="B",
    )
    agree(te.create_schedule(B.op), [A], [B], "llvm", {p: value})


def _beyond_an_empty_tensor() -> tuple[Tensor, Tensor, Any]:
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    return A, te.compute((4,), lambda i: A[i % n], name="B"), 0


def _below_a_tensor() -> tuple[Tensor, Tensor, Any]:
    A = te.placeholder((9,), name="A")
    return A, te.compute((4,), lambda i: A[i - 1], name="B"), (3, 2)


@pytest.mark.parametrize("declared", [_beyond_an_empty_tensor, _below_a_tensor])
@pytest.mark.parametrize("target", ["llvm", "sim"])
def test_a_tile_hides_no_read_beyond_its_tensor(declared: Any, target: str) -> None:
    A, B, alignment = declared()
    s = te.create_schedule(B.op)
    copy = s.cache_read(A, "local", [B])
    s[copy].compute_at(s[B], B.op.axis[0])
    if alignment:
        s[copy].align_bounds(copy.op.axis[0], *alignment)
    if target == "sim":
        s[B].bind(B.op.axis[0], te.thread_axis("threadIdx.x"))
    with pytest.raises(VerificationError, match="reads A"):
        build(s, [A, B], target)


def test_a_tile_of_a_tile_hides_no_read_beyond_a_tensor() -> None:
    # It says nothing that the first tile is read within: it is computed beyond its tensor.
    A, p = te.placeholder((11,), name="A"), te.var("p")
    T = te.compute((11,), lambda i: A[i] + 1, name="T")
    B = te.compute((4,), lambda i: te.if_then_else(i + p < 11, T[i + p], 1.0), name="B")
    s = te.create_schedule(B.op)
    first = s.cache_write(T, "shared")
    axis = B.op.axis[0]
    s[B].bind(axis, te.thread_axis("blockIdx.x"))
    s[T].compute_at(s[B], axis)
    s[T].set_scope("local")
    s[first].compute_at(s[B], axis)
    with pytest.raises(VerificationError, match="reads A"):
        build(s, [A, p, B], "sim")


def test_an_aligned_tile_behind_a_guard_on_data_of_eight_bits_stays_in_its_tensor() -> None:
    A, P = te.placeholder((8,), name="A"), te.placeholder((6,), "int8", name="P")
    body = lambda i: te.select(te.all(P[i] >= 0, P[i] < 8), A[P[i]], 0.0)  # noqa: E731
    B = te.compute((6,), body, name="B")
    s = te.create_schedule(B.op)
    copy = s.cache_read(A, "global", [B])
    s[copy].compute_at(s[B], B.op.axis[0])
    s[copy].align_bounds(copy.op.axis[0], 3)
    agree(s, [A, P], [B], "llvm")


@pytest.mark.parametrize("size", [0, 1, 7])
def test_a_tile_behind_a_guard_on_data_stays_in_its_tensor(size: int) -> None:
    n = te.var("n")
    A, P = te.placeholder((n,), name="A"), te.placeholder((8,), "uint8", name="P")
    body = lambda i: te.if_then_else(te.all(P[i] > 1, i < n), A[i], 0.0)  # noqa: E731
    B = te.compute((8,), body, name="B")
    s = te.create_schedule(B.op)
    outer, _ = s[B].split(B.op.axis[0], factor=3)
    s[s.cache_read(A, "local", [B])].compute_at(s[B], outer)
    agree(s, [A, P], [B], "llvm", {n: size})


@pytest.mark.parametrize("size", [0, 1, 7])
def test_a_loop_that_may_not_run_says_nothing_outside_of_it(size: int) -> None:
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    last = lambda i: te.if_then_else(n > 0, A[te.clip(i, 0, n - 1)], 1.0)  # noqa: E731
    B, C = te.compute((7,), last, name="B"), te.compute((n,), lambda i: A[i] * 2, name="C")
    s = te.create_schedule([B.op, C.op])
    copy = s.cache_read(A, "local", [B])
    outer, _ = s[B].split(B.op.axis[0], factor=2)
    s[copy].compute_at(s[B], outer)
    agree(s, [A], [B, C], "llvm", {n: size})
