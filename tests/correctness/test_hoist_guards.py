"""Conditions stand at the outermost loop that can decide them."""

from __future__ import annotations

from tilewright.ir.ops import logical_and
from tilewright.ir.stmt import Let, Stmt, Sync
from tilewright.lower.ir_builder import allocate, axes, buffer, func, loop, store, when
from tilewright.lower.loops.hoist_guards import hoist_guards

i, j, k, t = axes("i j k t")
A, C = buffer("A", 64), buffer("C", 64)


def hoisted(*body: Stmt) -> str:
    return repr(hoist_guards(func(*body, target="cuda")).body)


def test_statements_under_one_condition_share_it() -> None:
    body = loop(i, 8, loop(j, 4, when(i < 5, store(A[j], 1.0)), when(i < 5, store(C[j], 1.0))))
    assert (
        hoisted(body)
        == """\
for i in range(8):
    if i < 5:
        for j in range(4):
            A[j] = T.float32(1)
            C[j] = T.float32(1)"""
    )


def test_a_condition_of_one_statement_among_several_stays() -> None:
    body = loop(i, 8, loop(j, 4, when(i < 5, store(A[j], 1.0)), store(C[j], 1.0)))
    assert hoisted(body).count("        if i < 5:") == 1


def test_a_condition_leaves_the_scope_of_buffers_and_names_that_it_does_not_use() -> None:
    L, n = buffer("L", 4, scope="local"), axes("n")[0]
    body = allocate(L, Let(n, i * 2, when(logical_and(i < 5, n < 6), store(L[n], 1.0))))
    assert (
        hoisted(loop(i, 8, body))
        == """\
for i in range(8):
    if i < 5:
        L = T.allocate([4], 'float32', 'local')
        n: T.int32 = i * 2
        if n < 6:
            L[n] = T.float32(1)"""
    )


def test_a_condition_that_reads_memory_stays_and_what_it_guards_with_it() -> None:
    body = loop(i, 8, loop(j, 4, when(logical_and(A[0] > 0, i < 5), store(C[j], 1.0))))
    assert "for j in range(4):\n        if A[0]" in hoisted(body)


def test_no_condition_crosses_a_barrier_or_leaves_the_loops_over_threads() -> None:
    body = loop(j, 4, when(i < 5, store(A[j], 1.0), Sync("shared")))
    assert "for j in range(4):\n        if i < 5" in hoisted(loop(i, 8, body))
    threads = loop(t, 8, when(i < 5, store(A[t], 1.0)), tag="threadIdx.x")
    assert "launch_thread('threadIdx.x', 8)\n    if i < 5" in hoisted(loop(i, 8, threads))
