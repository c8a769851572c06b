"""Tiles that do not divide the output are computed whole, where only registers see it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support.interpreter import interpret

from tilewright import lower, te
from tilewright.ir.expr import Expr, LetExpr, Select
from tilewright.ir.func import Func
from tilewright.ir.ops import const, logical_and
from tilewright.ir.stmt import Let, Stmt
from tilewright.lower.ir_builder import allocate, axes, buffer, func, loop, store, when
from tilewright.lower.loops.drop_guards import drop_guards
from tilewright.runtime.sim import simulate

i, v, k = axes("i v k")
C, acc = buffer("C", 14), buffer("acc", 8, scope="local")
n = i * 8 + v


def program(*tile: Stmt, target: str = "llvm") -> Func:
    """Tiles of eight, of which fourteen elements are kept."""
    out = loop(v, 8, when(n < 14, store(C[n], acc[v])))
    return func(loop(i, 2, allocate(acc, *tile, out)), target=target)


def guards(f: Func) -> int:
    return repr(f.body).count("if ")


def update(guard: Expr, extent: int = 18) -> Stmt:
    A = buffer("A", extent)
    return loop(k, 3, loop(v, 8, when(guard, store(acc[v], acc[v] + A[n + k]))))


def test_only_the_copy_out_keeps_its_guard() -> None:
    f = program(loop(v, 8, when(n < 14, store(acc[v], 0.0))), update(n < 14))
    made = drop_guards(f)
    assert (guards(f), guards(made)) == (3, 1)
    data: dict[str, Any] = {"A": np.arange(18.0), "C": np.zeros(14)}
    np.testing.assert_array_equal(interpret(made, data)["C"], interpret(f, data)["C"])


def test_a_guard_that_keeps_reads_in_bounds_stays() -> None:
    f = program(loop(v, 8, when(n < 14, store(acc[v], 0.0))), update(n < 14, extent=16))
    assert guards(drop_guards(f)) == 2


def test_a_guard_that_keeps_a_value_from_another_stays() -> None:
    """All elements are set to zero: those past the end are zero afterwards, too."""
    f = program(loop(v, 8, store(acc[v], 0.0)), update(n < 14))
    assert drop_guards(f).body is f.body or guards(drop_guards(f)) == guards(f)


def test_a_guard_of_the_sum_and_not_of_the_element_stays() -> None:
    zero = loop(v, 8, when(n < 14, store(acc[v], 0.0)))
    f = program(zero, update(logical_and(n < 14, k < 2)))
    assert "if k < 2:" in repr(drop_guards(f))


def test_on_a_gpu_guards_stay() -> None:
    f = program(loop(v, 8, when(n < 14, store(acc[v], 0.0))), update(n < 14), target="cuda")
    assert drop_guards(f) is f


def test_a_guard_in_front_of_a_condition_that_reads_memory_stays() -> None:
    M = buffer("M", 14)
    zero = loop(v, 8, when(n < 14, store(acc[v], 0.0)))
    f = program(zero, update(logical_and(n < 14, M[n] > 0)))
    assert "if i * 8 + v < 14 and M[i * 8 + v] > T.float32(0):" in repr(drop_guards(f))


def test_a_guard_stays_where_what_is_read_is_written_under_it_alone() -> None:
    A, copy = buffer("A", 16), buffer("copy", 8)
    fill = loop(v, 8, when(n < 14, store(copy[v], A[n])))
    read = loop(v, 8, when(n < 14, store(acc[v], copy[v])))
    assert guards(drop_guards(program(allocate(copy, fill, read)))) == 3


def test_a_guard_stays_where_what_is_read_is_written_under_what_follows_from_it() -> None:
    A, copy = buffer("A", 16), buffer("copy", 1)
    fill = when(n < 15, store(copy[0], A[n]))  # in the same iteration, for the same element
    read = when(n < 14, store(acc[v], copy[0]))
    assert guards(drop_guards(program(allocate(copy, loop(v, 8, fill, read))))) == 3


@pytest.mark.parametrize(
    "value",
    [
        lambda F, x: te.if_then_else(x > 0, te.truncdiv(F[3], x), 1),
        lambda F, x: te.floormod(F[3], x),
        lambda F, x: F[te.clip(x, 0, 8)],
    ],
    ids=["branch", "divisor", "index"],
)
def test_a_guard_stays_where_a_value_of_another_tile_decides(value: Any) -> None:
    # The other tile lacks elements that the guard leaves out: without it, what LLVM takes for
    # undefined would decide where the program goes on.
    A, F = te.placeholder((8,), "int32", name="A"), te.placeholder((9,), "int32", name="F")
    M = te.compute((8,), lambda i: A[i] * 3, name="M")
    W = te.compute((8,), lambda i: value(F, M[i]), name="W")
    B = te.compute((8,), lambda i: te.if_then_else(i >= 2, W[i - 2], 0) + W[i], name="B")
    s = te.create_schedule(B.op)
    outer, inner = s[B].split(B.op.axis[0], factor=4)
    s[B].unroll(outer)
    s[B].unroll(inner)
    for tile in (M, W):
        s[tile].unroll(tile.op.axis[0])
        s[tile].set_scope("local")
        s[tile].compute_at(s[B], outer)
    arrays = [np.arange(1, 9, dtype="int32"), np.arange(9, dtype="int32"), np.zeros(8, "int32")]
    assert not simulate(lower(s, [A, F, B], "llvm"), arrays).findings


def test_a_guard_stays_where_a_value_of_another_tile_bounds_a_loop_or_has_a_name() -> None:
    A, F = buffer("A", 16, type="int32"), buffer("F", 8)
    other = buffer("other", 8, type="int32", scope="local")
    (x,) = axes("x")
    tile = loop(v, 8, when(n < 14, store(other[v], A[n])))
    zero = loop(v, 8, when(n < 14, store(acc[v], 0.0)))
    inside = F[te.max(te.min(x, 7), 0)]
    many = when(n < 14, loop(x, other[v], store(acc[v], acc[v] + inside)))
    named = Let(x, other[v], when(n < 14, store(acc[v], inside)))
    within = when(n < 14, store(acc[v], LetExpr(x, other[v], inside)))
    both = Select(logical_and(other[v] > 0, te.floordiv(A[n], A[v]) > 2), const(1.0), const(0.0))
    for body in (many, named, within, when(n < 14, store(acc[v], both))):
        f = program(allocate(other, tile, zero, loop(v, 8, body)))
        assert guards(drop_guards(f)) == 2
