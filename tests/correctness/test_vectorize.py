"""Vectorised loops become vectors where that keeps their meaning, and else stay loops."""

from __future__ import annotations

import pytest

from tilewright.ir import ops
from tilewright.ir.expr import Call, Expr, Var
from tilewright.ir.ops import if_then_else
from tilewright.ir.stmt import For, ForKind, Let, Stmt
from tilewright.ir.visit import walk
from tilewright.lower.ir_builder import allocate, axes, buffer, func, loop, store, when
from tilewright.lower.loops.vectorize import vectorize

i, v, k = axes("i v k")
A, B, C = buffer("A", 64), buffer("B", 64), buffer("C", 64)


def vectorized(*body: Stmt, lanes: int = 4, outer: int = 8) -> str:
    f = func(loop(i, outer, loop(v, lanes, *body, kind="vectorized")))
    return repr(vectorize(f).body)


def test_strides_and_broadcasts_stay_ramps() -> None:
    made = vectorized(store(C[i * 4 + v], A[(i * 4 + v) * 2] + B[i]))
    assert "C[T.Ramp(i * 4, 1, 4)] = A[T.Ramp(i * 8, 2, 4)] + T.Broadcast(B[i], 4)" in made


def test_quotients_and_remainders_of_an_aligned_ramp_are_ramps() -> None:
    D = buffer("D", 4, 16)
    n = i * 4 + v
    assert "D[i // 4, T.Ramp(i % 4 * 4, 1, 4)] =" in vectorized(store(D[n // 16, n % 16], 1.0))


def test_a_condition_of_the_lane_masks_the_store_and_the_reads_that_need_it() -> None:
    n, D = i * 4 + v, buffer("D", 30)
    made = vectorized(when(n < 30, store(D[n], A[n] + D[n])))
    on = "T.Ramp(i * 4, 1, 4) < T.Broadcast(30, 4)"
    ramp = "T.Ramp(i * 4, 1, 4)"
    assert made.endswith(f"D[{ramp}] = A[{ramp}] + D[{ramp}].where({on})  # where {on}")


def test_a_condition_that_leaves_one_lane_leaves_no_loop() -> None:
    assert vectorized(when(v < 1, store(C[i], A[i]))).endswith("range(8):\n    C[i] = A[i]")
    made = vectorized(when(ops.logical_and(v >= 2, v < 3, i < 5), store(C[i * 4 + v], 1.0)))
    assert made.endswith("    if i < 5:\n        C[i * 4 + 2] = T.float32(1)")


def test_a_choice_with_another_value_than_zero_selects() -> None:
    n, D = i * 4 + v, buffer("D", 30)
    made = vectorized(store(C[n], if_then_else(n < 30, D[n], 1.0)))
    assert "T.Select(T.Ramp(i * 4, 1, 4) < T.Broadcast(30, 4), D[" in made


def test_a_condition_that_reads_what_the_branch_writes_is_evaluated_once() -> None:
    n = i * 4 + v
    made = vectorized(when(A[n] > 0, store(A[n], 0.0), store(B[n], 1.0)))
    assert "mask: T.boolx4 = A[T.Ramp(i * 4, 1, 4)] > T.Broadcast(T.float32(0), 4)" in made
    assert made.count("# where mask") == 2


def test_a_scalar_of_each_lane_becomes_a_vector() -> None:
    acc = buffer("acc", 1, scope="local")
    n = i * 4 + v
    body = allocate(acc, store(acc[0], 0.0), loop(k, 3, store(acc[0], acc[0] + A[n])),
                    store(C[n], acc[0]))  # fmt: skip
    made = vectorized(body)
    assert "acc = T.allocate([1, 4], 'float32', 'local')" in made
    assert "acc[0, T.Ramp(0, 1, 4)] = acc[0, T.Ramp(0, 1, 4)] + A[T.Ramp(i * 4, 1, 4)]" in made


def test_definitions_become_vectors() -> None:
    t = Var.make("t")
    made = vectorized(Let(t, i * 4 + v, store(C[t], 1.0)))
    assert "C[T.Ramp(i * 4, 1, 4)] =" in made
    x = Var.make("x", "float32")
    made = vectorized(Let(x, A[i * 4 + v] + 1.0, store(C[i * 4 + v], x * x)))
    assert "x: T.float32x4 = A[T.Ramp(i * 4, 1, 4)]" in made
    assert "C[T.Ramp(i * 4, 1, 4)] = x * x" in made


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(store(C[i], C[i] + A[i * 4 + v]), id="a reduction over the lanes"),
        pytest.param(store(C[i * 4 + v + 1], C[i * 4 + v]), id="a lane that reads another's"),
        pytest.param(loop(k, 2, store(C[v + k], C[v + k] + 1.0)), id="lanes that overlap"),
        pytest.param(
            store(C[v], Call(ops.dtype("float32"), "extern:f", (A[v],))), id="a call to a library"
        ),
    ],
)
def test_lanes_that_depend_on_one_another_run_one_after_the_other(body: Stmt) -> None:
    f = vectorize(func(loop(i, 8, loop(v, 4, body, kind="vectorized"))))
    assert [s.kind for s in walk(f.body) if isinstance(s, For)][1] is ForKind.SERIAL
    assert all(e.dtype.lanes == 1 for e in walk(f.body) if isinstance(e, Expr))


def test_a_statement_without_a_vector_form_becomes_a_loop_beside_the_vectors() -> None:
    n = i * 4 + v
    made = vectorized(store(C[n], 1.0), loop(k, v + 1, store(B[n], A[k] + B[n])))
    assert (
        made
        == """\
for i in range(8):
    C[T.Ramp(i * 4, 1, 4)] = T.Broadcast(T.float32(1), 4)
    for v in range(4):
        for k in range(v + 1):
            B[i * 4 + v] = A[k] + B[i * 4 + v]"""
    )


def test_a_read_that_only_the_mask_keeps_in_bounds_is_not_done_without_it() -> None:
    """``D[i]`` exists only where some lane is on."""
    n, D = i * 4 + v, buffer("D", 7)
    made = vectorized(when(n < 27, store(C[n], D[i])))
    assert "for v in range(4):" in made


def test_a_mask_that_no_vector_crosses_is_a_condition() -> None:
    n, D = i * 4 + v, buffer("D", 7)
    made = vectorized(when(n < 28, store(C[n], D[i])))
    assert "if i < 7:" in made
    assert "for v in range" not in made


def test_one_axis_split_from_two_fused_ones_is_still_vectorized() -> None:
    D = buffer("D", 4, 6)
    n = i * 4 + v
    place = D[n // 6, n % 6]
    made = vectorized(store(place, place + 1.0), outer=6)
    assert "for v in range" not in made


def test_a_very_long_vector_becomes_a_loop_over_shorter_ones() -> None:
    D = buffer("D", 1000)
    f = func(loop(v, 1000, store(D[v], 1.0), kind="vectorized"))
    assert (
        repr(vectorize(f).body)
        == """\
for v in range(125):
    D[T.Ramp(v * 8, 1, 8)] = T.Broadcast(T.float32(1), 8)"""
    )
