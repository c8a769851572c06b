"""Vectors of indices stay ramps and broadcasts, and every lane keeps its value."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.interpreter import Interpreter

from tilewright.arith import Analyzer
from tilewright.ir import expr as E
from tilewright.ir import ops
from tilewright.ir.expr import Broadcast, Expr, Ramp, Var
from tilewright.ir.operand import OPERATORS
from tilewright.ir.ops import const

LANES = 4
X, Y = Var.make("x"), Var.make("y")
AZ = Analyzer()
AZ.bind(X, 0, 6)
AZ.bind(Y, -2, 5)
SCALARS = [X, Y, X * 4, X * 8 + 2, Y * 3 - X, const(7), X // 2]


def lanes(e: Expr, x: int, y: int) -> list[Any]:
    return [Interpreter().value(e, {X: x, Y: y}, {}, lane) for lane in range(e.dtype.lanes)]


@st.composite
def vectors(draw: Any, depth: int = 3) -> Expr:
    kind = draw(st.integers(0, 9)) if depth else draw(st.integers(0, 1))
    scalar = draw(st.sampled_from(SCALARS))
    if kind == 0:
        return Broadcast(scalar, LANES)
    if kind == 1:
        return Ramp(scalar, const(draw(st.sampled_from([1, 2, 4, -1, 3]))), LANES)
    a = draw(vectors(depth - 1))
    if kind <= 6:
        number = draw(st.sampled_from([2, 3, 4, 8]))
        rule = draw(
            st.sampled_from([ops.mul, ops.floordiv, ops.floormod, ops.truncdiv, ops.truncmod])
        )
        return rule(a, number)
    b = draw(vectors(depth - 1))
    return draw(st.sampled_from([ops.add, ops.sub, ops.minimum, ops.maximum]))(a, b)


@st.composite
def masks(draw: Any, depth: int = 2) -> Expr:
    kind = draw(st.integers(0, 6)) if depth else 0
    if kind <= 3:
        rule = draw(st.sampled_from([OPERATORS[c] for c in ("lt", "le", "gt", "ge", "eq", "ne")]))
        return rule(draw(vectors(2)), draw(vectors(1)))
    a = draw(masks(depth - 1))
    if kind == 6:
        return ops.logical_not(a)
    return (E.And if kind == 4 else E.Or)(a, draw(masks(depth - 1)))


def check(e: Expr) -> None:
    made = AZ.simplify(e)
    assert made.dtype == e.dtype
    for x, y in itertools.product(range(6), range(-2, 3)):
        assert lanes(made, x, y) == lanes(e, x, y), (e, made, x, y)
    AZ.context.forget()
    assert AZ.simplify(made) is made


@settings(max_examples=2 * settings().max_examples)
@given(vectors())
def test_random_vectors_keep_their_lanes(e: Expr) -> None:
    check(e)


@settings(max_examples=2 * settings().max_examples)
@given(masks())
def test_random_masks_keep_their_lanes(e: Expr) -> None:
    check(e)


@settings(max_examples=2 * settings().max_examples)
@given(masks(1), vectors(2), vectors(2))
def test_random_choices_keep_their_lanes(c: Expr, a: Expr, b: Expr) -> None:
    check(ops.select(c, a, b))


@pytest.mark.parametrize(
    ("e", "text"),
    [
        (Ramp(X * 4, const(1), 4) // 8, "T.Broadcast(x // 2, 4)"),
        (Ramp(X * 4, const(1), 4) % 8, "T.Ramp(x % 2 * 4, 1, 4)"),
        (Ramp(X * 4, const(1), 4) * 2 + Broadcast(Y, 4), "T.Ramp(x * 8 + y, 2, 4)"),
        (Ramp(X, const(8), 4) // 4, "T.Ramp(x // 4, 2, 4)"),
        (Ramp(X * 4, const(1), 4) < 24, "T.Broadcast(True, 4)"),
        (Ramp(X, const(1), 4) < Ramp(Y, const(1), 4), "T.Broadcast(x < y, 4)"),
        (Ramp(X, const(1), 4) - Ramp(Y, const(1), 4), "T.Broadcast(x - y, 4)"),
    ],
)
def test_a_vector_takes_its_canonical_form(e: Expr, text: str) -> None:
    assert str(AZ.simplify(e)) == text
