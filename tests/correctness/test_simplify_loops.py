"""What the ranges of loops decide is decided."""

from __future__ import annotations

import pytest

from tilewright.arith import Analyzer
from tilewright.ir import ops
from tilewright.ir.expr import And, IntImm, Reducer, Var
from tilewright.ir.stmt import AllReduce, Evaluate, For, ForKind, If, Let, Stmt, Store, seq
from tilewright.ir.visit import walk
from tilewright.lower.ir_builder import allocate, axes, buffer, func, loop, store, when
from tilewright.lower.loops.simplify import simplified, simplify

i, j = axes("i j")
A, C = buffer("A", 64), buffer("C", 64)


def made(*body: Stmt) -> str:
    return repr(simplify(func(*body)).body)


def test_a_condition_that_always_holds_disappears() -> None:
    body = loop(i, 8, when(And(i < 8, i >= 0), store(C[i], 1.0)))
    assert made(body) == "for i in range(8):\n    C[i] = T.float32(1)"


def test_a_condition_within_the_same_condition_disappears() -> None:
    body = loop(i, 8, when(i < 5, store(A[i], 1.0), when(i < 5, store(C[i], 1.0))))
    assert made(body).count("if") == 1


def test_of_a_condition_that_never_holds_the_other_branch_remains() -> None:
    body = loop(i, 8, If(i > 8, store(C[i], 1.0), store(C[i], 2.0)))
    assert made(body) == "for i in range(8):\n    C[i] = T.float32(2)"


def test_a_loop_of_one_iteration_is_its_body() -> None:
    assert made(loop(i, 1, store(C[i + j], 1.0), min=3)) == "C[j + 3] = T.float32(1)"


@pytest.mark.parametrize("kind", ["thread", "vthread", "parallel"])
def test_a_loop_that_says_where_it_runs_stays(kind: str) -> None:
    tag = "threadIdx.x" if kind == "thread" else ""
    body = loop(i, 1, store(C[i], 1.0), kind="serial" if tag else kind, tag=tag)
    found = simplify(func(body)).body
    assert isinstance(found, For)
    assert found.kind is ForKind(kind)
    assert isinstance(found.body, Store)
    assert ops.is_const(found.body.indices[0], 0)


def test_loops_and_buffers_of_nothing_disappear() -> None:
    L = buffer("L", 4, scope="local")
    nothing = loop(i, 8, allocate(L, loop(j, 0, store(L[j], 1.0))))
    assert made(nothing, store(C[0], 1.0)) == "C[0] = T.float32(1)"


def test_a_name_for_a_constant_is_the_constant() -> None:
    t = Var.make("t")
    assert made(Let(t, ops.const(3), store(C[t], 1.0))) == "C[3] = T.float32(1)"


def test_an_axis_of_a_reduction_over_one_thread_stays_an_axis() -> None:
    x, y, t = Var.make("x", "float32"), Var.make("y", "float32"), Var.make("t")
    total = Reducer("sum", (x,), (y,), (x + y,), (ops.const(0.0),))
    reduce = AllReduce(total, (C,), (t,), (A[t],), ops.const(True), (t,))
    found = simplify(func(loop(t, 1, reduce, tag="threadIdx.x"), target="cuda"))
    (kept,) = (s for s in walk(found.body) if isinstance(s, AllReduce))
    assert kept.axes == (t,)
    assert isinstance(kept.indices[0], IntImm)


def test_statements_for_their_effect_stay() -> None:
    call = Evaluate(ops.unary("exp", 1.0))
    assert isinstance(simplify(func(seq(call))).body, Evaluate)


def test_parts_of_a_loop_end_where_the_guard_of_their_body_ends_for_good() -> None:
    def parts(kind: str) -> str:
        body = when(And(i >= 2, i < 5), store(C[i], 1.0))
        return repr(simplified(Analyzer(), loop(i, 8, body, kind=kind)))

    assert parts("unrolled") == "for i in T.unrolled(2, 5):\n    C[i] = T.float32(1)"
    assert "if" in parts("vectorized")
