"""What holds at one moment is no proof of another: a value that changed, a thread, an iteration."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.kernels import Launch, barrier, buffer, loop, store

from tilewright.ir import Func
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr, Var
from tilewright.ir.ops import const
from tilewright.ir.stmt import Allocate, For, ForKind, If, Let, Stmt, seq
from tilewright.verify import check

X, B = buffer("X", (1,), type="int32"), buffer("B", (4,))
x = X[const(0)]
CHANGES, USES = store(X, 0, const(100, "int32")), store(B, (x,), 1.0)


def within(e: Expr) -> Expr:
    return E.And(e >= 0, e < 4)


def by_loop(body: Stmt) -> Stmt:
    """Up to ``4 - X[0]`` times: not at all where ``X[0]`` is beyond the end."""
    once = loop("k", E.Min(const(4) - x, const(1)), lambda k: body)
    return If(x >= 0, once)


def by_name(body: Stmt) -> Stmt:
    t = Var.make("t", exact=False)
    return Let(t, x, seq(CHANGES, If(within(t), USES)))


GUARDS: list[Callable[[Stmt], Stmt]] = [lambda body: If(within(x), body), by_loop, by_name]


@pytest.mark.parametrize("guard", GUARDS)
def test_a_guard_says_nothing_of_a_value_that_was_written_since(
    guard: Callable[[Stmt], Stmt],
) -> None:
    found = check(Func("main", (X, B), guard(seq(CHANGES, USES))))
    assert [f.kind for f in found] == ["bounds"]


@pytest.mark.parametrize("guard", GUARDS[:2])
def test_a_guard_holds_of_a_value_that_stays(guard: Callable[[Stmt], Stmt]) -> None:
    assert not check(Func("main", (X, B), guard(USES)))


def test_a_name_for_a_value_is_not_the_value_that_was_written_since() -> None:
    """``S[t, R[0]]`` is ``S[1, 2]``, which another thread writes; each statement stands twice."""
    S, R = buffer("S", (8, 8), "shared"), buffer("R", (1,), "local", "int32")
    launch, t = Launch(threadIdx_x=2), Var.make("t", exact=False)
    own = seq(store(S, (t, R[const(0)]), 1.0), store(S, (launch.threadx, launch.threadx + 1), 2.0))
    body = seq(
        store(R, 0, const(1, "int32")),
        Let(t, R[const(0)], seq(store(R, 0, const(2, "int32")), own, own)),
    )
    found = check(launch.func("main", (), Allocate(S, Allocate(R, body))))
    races = [f.message for f in found if f.kind == "race"]
    assert any("S[t, R[0]]" in race and "threadIdx_x + 1]" in race for race in races)


def test_inner_loops_that_range_alike_are_not_one() -> None:
    """In two dimensions, where the sum of both indices is that of another iteration."""
    A = buffer("A", (8, 8))

    def body(p: Var) -> Stmt:
        return loop("i", 3, lambda i: loop("j", 3, lambda j: store(A, (p + i, p - j + 3), 1.0)))

    (found,) = check(Func("main", (A,), loop("p", 4, body, kind=ForKind.PARALLEL)))
    assert "p = 0, i = 1, j = 0 writes [1, 3]" in found.message


def test_an_inner_loop_is_one_in_all_dimensions() -> None:
    A = buffer("A", (8, 8))

    def body(p: Var) -> Stmt:
        return loop("i", 3, lambda i: store(A, (p + i, p - i + 3), 1.0))

    assert not check(Func("main", (A,), loop("p", 4, body, kind=ForKind.PARALLEL)))


def test_a_loop_over_threads_with_barriers_is_no_loop_of_one_thread() -> None:
    S = buffer("S", (8,), "shared")
    thread = Var.make("threadIdx_x")
    body = seq(store(S, 0, 1.0), barrier(), store(S, 1, 2.0))
    loops = For(thread, const(0), const(8), ForKind.THREAD, body, "threadIdx.x")
    found = check(Func("main", (), Allocate(S, loops)))
    assert [f.kind for f in found] == ["race", "race"]
