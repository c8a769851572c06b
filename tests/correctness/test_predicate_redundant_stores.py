"""Of the threads that would all store the same element, the first stores it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.kernels import Launch, buffer, loop, store

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Ramp, Var
from tilewright.ir.ops import const, logical_and
from tilewright.ir.stmt import Allocate, AllReduce, For, If, Stmt, Store, Sync, seq
from tilewright.ir.visit import stores, walk
from tilewright.lower.loops.predicate_redundant_stores import predicate_redundant_stores

A, B = buffer("A", (64,)), buffer("B", (64,))
S, R = buffer("S", (64,), "shared"), buffer("R", (64,), "local")
W = buffer("W", (64,), "warp")


def launch() -> Launch:
    return Launch(blockIdx_x=4, threadIdx_y=8, threadIdx_x=32)


def after(body: Callable[[Var, Var, Var], Stmt]) -> Stmt:
    """What becomes of ``body(threadIdx.x, threadIdx.y, blockIdx.x)``."""
    axes = launch()
    return predicate_redundant_stores(
        axes.func("k", [A, B], body(axes.threadx, axes.thready, axes.blockx))
    ).body


def guards(body: Stmt) -> list[str]:
    return [str(s.condition) for s in walk(body) if isinstance(s, If)]


def test_shared_memory_is_stored_by_one_thread_of_the_block() -> None:
    found = after(lambda tx, ty, bx: store(S, 3, A[bx]))
    assert guards(found) == ["threadIdx_y == 0 and threadIdx_x == 0"]


def test_global_memory_is_stored_by_one_thread_of_the_grid() -> None:
    found = after(lambda tx, ty, bx: store(B, tx, A[tx]))
    assert guards(found) == ["blockIdx_x == 0 and threadIdx_y == 0"]


@pytest.mark.parametrize("b", [R, W])
def test_what_each_thread_has_of_its_own_is_stored_by_all(b: Buffer) -> None:
    assert guards(after(lambda tx, ty, bx: store(b, 3, A[0]))) == []


def test_a_whole_nest_is_guarded_at_once() -> None:
    found = after(lambda tx, ty, bx: loop("i", 8, lambda i: store(S, i * 4 + ty % 4, A[i])))
    assert isinstance(found, If)
    assert str(found.condition) == "threadIdx_x == 0"
    assert isinstance(found.then, For)


def test_statements_that_differ_are_guarded_apart() -> None:
    found = after(
        lambda tx, ty, bx: seq(
            store(S, tx, A[tx]), Sync("shared"), store(S, ty, A[ty]), Sync("shared")
        )
    )
    assert guards(found) == ["threadIdx_y == 0", "threadIdx_x == 0"]
    assert not any(isinstance(x, Sync) for s in walk(found) if isinstance(s, If) for x in walk(s))


def test_a_reduction_across_threads_is_reached_by_all() -> None:
    reducer = _sum()

    def body(tx: Var, ty: Var, bx: Var) -> Stmt:
        own = store(R, 0, A[tx])
        total = AllReduce(reducer, (R,), (const(0),), (R[0],), const(True), (tx,))
        return Allocate(R, seq(own, total, store(S, ty, R[0])))

    found = after(body)
    assert guards(found) == ["threadIdx_x == 0"]
    (guarded,) = (s for s in walk(found) if isinstance(s, If))
    assert not any(isinstance(x, AllReduce) for x in walk(guarded))


def _sum() -> object:
    from tilewright import te

    k = te.reduce_axis((0, 4), "k")
    return te.sum(A[k.var], k).reducer


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (lambda tx, bx: tx < 4, True),
        (lambda tx, bx: tx * 8 + bx < 11, True),
        (lambda tx, bx: logical_and(bx < 3, tx < 4), True),
        (lambda tx, bx: (tx + bx) // 4 < 3, True),
        (lambda tx, bx: tx.equal(0), True),
        (lambda tx, bx: tx.equal(3), False),
        (lambda tx, bx: tx >= 28, False),
        (lambda tx, bx: (tx % 4).equal(1), False),
        (lambda tx, bx: A[tx] > 0.0, False),
    ],
)
def test_under_a_condition_the_first_thread_must_meet_it_if_any_does(
    condition: Callable[[Var, Var], Expr], expected: bool
) -> None:
    found = after(lambda tx, ty, bx: If(condition(tx, bx), store(S, ty, A[0])))
    assert len(guards(found)) == 1 + expected
    assert (guards(found)[0] == "threadIdx_x == 0") == expected


def test_a_mask_that_depends_on_the_thread_is_somebodys_choice() -> None:
    def body(tx: Var, ty: Var, bx: Var) -> Stmt:
        lanes = Ramp(const(0), const(1), 4)
        return Store(S, (lanes,), A[lanes], Ramp(tx, const(1), 4) < 4)

    assert guards(after(body)) == ["threadIdx_y == 0"]


def test_a_loop_as_long_as_the_thread_says_is_somebodys_choice() -> None:
    assert guards(after(lambda tx, ty, bx: loop("i", tx + 1, lambda i: store(S, i, A[i])))) == [
        "threadIdx_y == 0"
    ]


def test_an_index_that_is_read_from_memory_may_be_any() -> None:
    index = buffer("index", (64,), type="int32")
    assert guards(after(lambda tx, ty, bx: store(S, index[tx], A[0]))) == []


def test_a_program_without_threads_stays_as_it_is() -> None:
    func = Launch().func("k", [A, B], store(B, 0, A[0]))
    assert predicate_redundant_stores(func) is func
    assert len(list(stores(func.body))) == 1
