"""Right programs that ``python -m tests.fuzz`` found refused, minimised: verify proves them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.found import agree
from tests.support.kernels import buffer

from tilewright import lower, te
from tilewright.ir import Func, dtype
from tilewright.ir import expr as E
from tilewright.ir.expr import Var
from tilewright.ir.ops import const
from tilewright.ir.stmt import Store, Sync
from tilewright.ir.visit import walk
from tilewright.schedule import Schedule
from tilewright.te import Tensor
from tilewright.verify import check

_Drawn = tuple[Schedule, list[Tensor], Tensor, str]


def _shifted_vector() -> _Drawn:
    """A guard on bits of data, carried out as a vector: the shift is by a vector of one number."""
    B, C = te.placeholder((8,), "int32", name="B"), te.placeholder((8,), "int32", name="C")

    def read(i: Any) -> Any:
        x = C[i] >> 28
        return te.if_then_else(te.all(x - 2 >= 0, x < 8), B[x - 2], 1)

    T = te.compute((8,), read, name="T")
    s = te.create_schedule(T.op)
    s[T].vectorize(T.op.axis[0])
    return s, [B, C], T, "llvm"


def _cast_that_wraps_around() -> _Drawn:
    """A guard on the number that an integer is in a type that has not all of its numbers."""
    A, B = te.placeholder((5,), "float32", name="A"), te.placeholder((9,), "uint32", name="B")

    def read(i: Any) -> Any:
        x = B[i].astype("int32")
        return te.if_then_else(te.all(x >= 0, x < 5), A[B[i]], 1.0)

    T = te.compute((9,), read, name="T")
    return te.create_schedule(T.op), [A, B], T, "llvm"


def _product_of_quotient_and_remainder() -> _Drawn:
    """Loops that end at the least of several bounds, of which one bounds what is divided."""
    A = te.placeholder((20,), "int32", name="A")
    T = te.compute((5, 5), lambda i, j: A[j * i % 20], name="T")
    s = te.create_schedule(T.op)
    outer, inner = s[T].split(s[T].fuse(*T.op.axis), factor=7)
    outer = s[T].tile(outer, inner, 3, 2)[0]
    s[T].parallel(s[T].split(outer, nparts=6)[0])
    return s, [A], T, "llvm"


def _filled_by_threads() -> _Drawn:
    """Threads fill a tile whose axes are one loop in another order: of both threads the quotients
    by an extent that a call gives are bounded."""
    n = te.var("n")
    A = te.placeholder((n, 13, 7), "int32", name="A")
    T = te.compute((n, 8, 7), lambda i, j, k: A[i, j, k], name="T")
    s = te.create_schedule(T.op)
    copy = s.cache_read(A, "shared", [T])
    y, x = te.thread_axis("threadIdx.y"), te.thread_axis("threadIdx.x")
    i, j, k = copy.op.axis
    outer, inner = s[copy].split(j, nparts=3)
    s[copy].reorder(inner, k, i, outer)
    fused = s[copy].fuse(s[copy].fuse(s[copy].fuse(inner, k), i), outer)
    rest, lane = s[copy].split(fused, factor=2)
    s[copy].bind(lane, x)
    s[copy].bind(s[copy].split(rest, factor=4)[1], y)
    rows, lane = s[T].split(T.op.axis[1], factor=2)
    s[T].reorder(rows, lane, T.op.axis[0])
    s[T].bind(rows, y)
    s[T].bind(lane, x)
    s[copy].compute_at(s[T], lane)
    return s, [A], T, "sim"


@pytest.mark.parametrize(
    "drawn",
    [
        _shifted_vector,
        _cast_that_wraps_around,
        _product_of_quotient_and_remainder,
        _filled_by_threads,
    ],
)
def test_a_right_program_is_proved(drawn: Callable[[], _Drawn]) -> None:
    s, inputs, output, target = drawn()
    (func,) = lower(s, [*inputs, output], target).funcs
    assert sum(isinstance(x, Sync) for x in walk(func.body)) == (target == "sim"), (
        "no other barrier is needed"
    )
    agree(s, inputs, [output], target, {e: 5 for e in output.shape if isinstance(e, Var)})


def test_an_index_is_0_in_the_lanes_of_a_read_that_are_off() -> None:
    """The mask of a read is put to the reads of its indices, where it reads them itself."""
    C, B, T = buffer("C", (3,), type="uint16"), buffer("B", (200,)), buffer("T", (4,))
    lanes = E.Ramp(const(0), const(1), 4)
    inside = E.LT(lanes, E.Broadcast(const(3), 4))
    below = E.LT(E.Cast(dtype("int32x4"), E.Load(C, (lanes,), inside)), E.Broadcast(const(200), 4))
    index = E.Load(C, (lanes,), E.And(inside, below))
    assert not check(Func("main", (C, B, T), Store(T, (lanes,), E.Load(B, (index,), None))))
