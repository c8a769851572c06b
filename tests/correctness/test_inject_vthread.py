"""Virtual threads stand side by side, and share the loops that they can share."""

from __future__ import annotations

import numpy as np
from tests.support.interpreter import interpret

from tilewright.ir.ops import if_then_else
from tilewright.ir.stmt import For, ForKind, Let, Stmt, Store
from tilewright.ir.visit import allocated, walk
from tilewright.lower.build.inject_vthread import inject_vthread
from tilewright.lower.ir_builder import allocate, axes, buffer, func, loop, store, when


def body_text(*body: Stmt) -> str:
    return repr(inject_vthread(func(*body, target="cuda")).body)


def test_copies_are_innermost_and_the_inner_virtual_thread_varies_slowest() -> None:
    """The order of the stores in article 000."""
    vy, vx, i, d = axes("vy vx i d")
    A, C = buffer("A", 4, 8, 3), buffer("C", 4, 8)
    place = C[vy * 2 + i, vx * 4]
    update = loop(d, 3, store(place, place + A[vy * 2 + i, vx * 4, d]))
    nest = loop(vx, 2, loop(i, 2, store(place, 0.0), update), kind="vthread")
    assert (
        body_text(loop(vy, 2, nest, kind="vthread"))
        == """\
for i in range(2):
    C[i, 0] = T.float32(0)
    C[2 + i, 0] = T.float32(0)
    C[i, 4] = T.float32(0)
    C[2 + i, 4] = T.float32(0)
    for d in range(3):
        C[i, 0] = C[i, 0] + A[i, 0, d]
        C[2 + i, 0] = C[2 + i, 0] + A[2 + i, 0, d]
        C[i, 4] = C[i, 4] + A[i, 4, d]
        C[2 + i, 4] = C[2 + i, 4] + A[2 + i, 4, d]"""
    )


def test_a_local_buffer_gets_a_dimension_for_each_virtual_thread() -> None:
    v, w = axes("v w")
    A, C, acc = buffer("A", 2, 3), buffer("C", 2, 3), buffer("acc", 1, scope="local")
    body = allocate(acc, store(acc[0], A[v, w]), store(C[v, w], acc[0]))
    made = body_text(loop(v, 2, loop(w, 3, body, kind="vthread"), kind="vthread"))
    assert made.startswith("acc = T.allocate([2, 3, 1], 'float32', 'local')")
    assert "acc[1, 2, 0] = A[1, 2]" in made


def test_what_is_the_same_in_all_virtual_threads_is_done_once() -> None:
    v, x = axes("v x")
    A, C, S = buffer("A", 8), buffer("C", 2, 8), buffer("S", 8, scope="shared")
    body = allocate(S, loop(x, 8, store(S[x], A[x])), store(C[v, 0], S[v]))
    assert (
        body_text(loop(v, 2, body, kind="vthread"))
        == """\
S = T.allocate([8], 'float32', 'shared')
for x in range(8):
    S[x] = A[x]
C[0, 0] = S[0]
C[1, 0] = S[1]"""
    )


def test_a_guard_of_one_virtual_thread_moves_in_so_that_the_loop_stays_shared() -> None:
    v, d = axes("v d")
    A, C = buffer("A", 4, 3), buffer("C", 4)
    body = when(v < 1, loop(d, 3, store(C[v], C[v] + A[v, d])))
    assert (
        body_text(loop(v, 2, body, kind="vthread"))
        == """\
for d in range(3):
    C[0] = C[0] + A[0, d]"""
    )


def test_a_loop_whose_length_depends_on_the_virtual_thread_is_copied() -> None:
    v, d = axes("v d")
    C = buffer("C", 4)
    made = inject_vthread(
        func(loop(v, 2, loop(d, v + 1, store(C[d], 1.0)), kind="vthread"), target="cuda")
    )
    loops = [s for s in walk(made.body) if isinstance(s, For)]
    assert len(loops) == 2
    assert loops[0].var is not loops[1].var


def test_many_virtual_threads_stay_a_loop_around_each_statement() -> None:
    v, d = axes("v d")
    A, C = buffer("A", 40, 3), buffer("C", 40)
    f = func(loop(v, 40, loop(d, 3, store(C[v], C[v] + A[v, d])), kind="vthread"), target="cuda")
    made = inject_vthread(f)
    kinds = [s.kind for s in walk(made.body) if isinstance(s, For)]
    assert kinds == [ForKind.SERIAL, ForKind.UNROLLED]
    data = {"A": np.arange(120.0).reshape(40, 3), "C": np.zeros(40)}
    np.testing.assert_array_equal(interpret(made, data)["C"], data["A"].sum(1))


def test_definitions_and_choices_are_each_virtual_threads_own() -> None:
    v, t = axes("v t")
    A, C = buffer("A", 4), buffer("C", 4)
    body = Let(t, v * 3, store(C[t], if_then_else(t < 2, A[t], 7.0)))
    made = inject_vthread(func(loop(v, 2, body, kind="vthread"), target="cuda"))
    assert sum(isinstance(s, Let) for s in walk(made.body)) == 2
    assert sum(isinstance(s, Store) for s in walk(made.body)) == 2
    result = interpret(made, {"A": np.ones(4), "C": np.zeros(4)})["C"]
    np.testing.assert_array_equal(result, [1, 0, 0, 7])
    assert not allocated(made.body)


def test_what_a_guard_keeps_in_bounds_is_not_read_ahead_of_it() -> None:
    v, i = axes("v i")
    A, C = buffer("A", 1), buffer("C", 1)
    inner = when(A[i] > 3, store(C[i], 1.0))
    f = func(loop(i, 2, loop(v, 2, when(v + i < 1, inner), kind="vthread")), target="cuda")
    data = {"A": np.full(1, 4.0), "C": np.zeros(1)}
    assert interpret(inject_vthread(f), data)["C"] == 1
